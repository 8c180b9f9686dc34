"""Defines the comparison of a run with its golden, and the evaluation that results from it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from goldspan.model.findings import ComparisonRow, Fault, RequirementResult, RowVerdict, Score
from goldspan.model.goldens import ABSENT, Golden, Match
from goldspan.model.notebook_display import NotebookDisplay
from goldspan.model.runs import COUNTED_TOOL_KINDS, Health, Run, ToolCall
from goldspan.model.telemetry import content_digest

if TYPE_CHECKING:
    from goldspan.model.markup import Block
    from goldspan.model.value_matchers import Redaction


EMPTY_RUN = Run("")

_RowTuple: TypeAlias = "tuple[ComparisonRow, ...]"


@dataclass(frozen=True)
class Comparison(NotebookDisplay):
    """The comparison of a run with its golden. Each call and each expectation is in exactly one row.

    The rows have the order of the calls. A missing expectation has the position where its call was due.
    """

    golden: Golden | None
    """`None`: the run has no golden, and every call is tolerated."""
    rows: tuple[ComparisonRow, ...]
    run: Run = EMPTY_RUN
    """The run. Calls that were passed as a list are in a run without an id."""
    approximation_reason: str | None = None
    """Why a better pairing may exist: the work was limited. `None`: the pairing is the best one."""
    wrong_agent_pairs: tuple[tuple[ComparisonRow, ComparisonRow], ...] = ()
    """Missing expectations, each with the unexpected call of the same tool by another agent than the expected one."""

    # These fields are computed once and stored, because every metric reads them.
    pairs: _RowTuple = field(default=(), init=False, repr=False, compare=False)
    """Required expectations that were matched with a call."""
    missing: _RowTuple = field(default=(), init=False, repr=False, compare=False)
    """Required expectations without a call."""
    unexpected: _RowTuple = field(default=(), init=False, repr=False, compare=False)
    """Calls that match no expectation."""
    superseded: _RowTuple = field(default=(), init=False, repr=False, compare=False)
    """Failed attempts that do not count, usually because the tool was called again."""
    tolerated: _RowTuple = field(default=(), init=False, repr=False, compare=False)
    """Rows that do not count: calls of agents, hand-offs and denied calls; optional expectations, called or not; extra
    calls that are allowed."""
    forbidden: _RowTuple = field(default=(), init=False, repr=False, compare=False)
    """Calls that the golden forbids."""
    calls: tuple[ToolCall, ...] = field(default=(), init=False, repr=False, compare=False)
    """The tool calls that were made, expected or not, with every attempt. It leaves out agents, hand-offs, retrievals
    and calls that were only requested, and with `depth: own` the calls of other agents."""
    is_as_expected: bool = field(default=False, init=False, repr=False, compare=False)
    """Whether every call is known to be the expected one at the same position, successful and with agreeing arguments.
    If it is false, the rows decide."""
    is_all_successful: bool = field(default=False, init=False, repr=False, compare=False)
    """Whether every call is known to have been made, to have succeeded, and to be in `calls`. If it is false, the calls
    decide."""

    def __post_init__(self) -> None:
        """Group the rows by verdict and collect the calls."""
        verdicts = {row.verdict for row in self.rows}
        for verdict in verdicts:
            rows = self.rows if len(verdicts) == 1 else tuple([row for row in self.rows if row.verdict == verdict])
            object.__setattr__(self, _FIELD_BY_VERDICT[verdict], rows)
        called = [row.called for row in self.rows]
        made = [call for call in called if call is not None and call.kind in COUNTED_TOOL_KINDS and call.was_made]
        own_agent = self.run.agent if self.golden and self.golden.depth == "own" else None
        calls = made if own_agent is None else [call for call in made if call.agent in (None, own_agent)]
        object.__setattr__(self, "calls", tuple(calls))

    @classmethod
    def of_successful_calls(
        cls,
        golden: Golden,
        run: Run,
        rows: _RowTuple,
        *,
        pairs: _RowTuple,
        missing: _RowTuple = (),
        unexpected: _RowTuple = (),
        tolerated: _RowTuple = (),
        approximation_reason: str | None = None,
        is_as_expected: bool = False,
    ) -> Comparison:
        """Return the comparison of a run whose calls were all made and succeeded, with the rows of each verdict.

        It sets the fields directly, in a fifth of the time that the constructor takes.
        """
        comparison = object.__new__(cls)
        fields = vars(comparison)
        fields.update(golden=golden, rows=rows, run=run, approximation_reason=approximation_reason)
        fields.update(wrong_agent_pairs=(), pairs=pairs, missing=missing, unexpected=unexpected, tolerated=tolerated)
        fields.update(calls=run.tool_calls, is_all_successful=True)
        if is_as_expected:
            fields.update(is_as_expected=True, faults=())
        return comparison

    @cached_property
    def faults(self) -> tuple[Fault, ...]:
        """The faults of the run, each with the agent that is responsible."""
        from goldspan.model.findings import find_faults

        if self.golden is None:
            return ()
        return find_faults(self.rows, self.run, self.wrong_agent_pairs, is_ordered=self.golden.order != "any")

    def _display_blocks(self, *, values: bool = False, redact: Redaction | None = None) -> Iterable[Block]:
        from goldspan.model import rendering

        return rendering.comparison_blocks(
            self.rows,
            has_golden=self.golden is not None,
            approximate=self.approximation_reason,
            values=values,
            redact=redact,
        )


_FIELD_BY_VERDICT: Mapping[RowVerdict, str] = {
    "paired": "pairs",
    "missing": "missing",
    "unexpected": "unexpected",
    "superseded": "superseded",
    "tolerated": "tolerated",
    "forbidden": "forbidden",
}


@dataclass(frozen=True)
class Evaluation(NotebookDisplay):
    """The comparison of one run with its golden, the scores, and the verdict."""

    run: Run
    golden: Golden | None
    match: Match | None
    comparison: Comparison
    scores: tuple[Score, ...]
    passed: bool | None
    """Whether the run meets every requirement of the golden; `None`: not evaluated."""
    reason: str
    """The verdict in one sentence. `with_deferred_reason` computes it when it is first read."""
    scoring_version: int
    revision: int = 1
    """The number of this version of the run's evaluation, from 1."""
    changes: tuple[str, ...] | None = None
    """The metrics whose scores this revision adds or changes, if nothing else changed; `None`: anything can have
    changed."""
    broken: tuple[RequirementResult, ...] = ()
    """The requirements of the golden that the run breaks. Each of them makes the run fail."""
    undetermined: tuple[RequirementResult, ...] = ()
    """The requirements of the golden that the telemetry does not decide."""
    accepted_shares: tuple[str, ...] = ()
    """The shares below 1 that a threshold accepts: `0.8 of 0.8 wanted`."""

    @classmethod
    def of_fields(cls, **values: Any) -> Evaluation:
        """Return an evaluation of all its fields, in half of the time that the constructor takes."""
        evaluation = object.__new__(cls)
        vars(evaluation).update(values)
        return evaluation

    def with_deferred_reason(self, explain: Callable[[], str]) -> Evaluation:
        """Let `explain` write the reason when it is first read, and return this evaluation, which is new."""
        del vars(self)["reason"]
        vars(self)["_explain"] = explain
        return self

    if not TYPE_CHECKING:  # a type checker would accept every attribute name

        def __getattr__(self, name: str) -> str:
            """Compute the deferred reason. Python calls this only for an attribute that the object does not have."""
            state = vars(self)
            if name == "reason" and (explain := state.get("_explain")) is not None:
                state["reason"] = explain()
                state.pop("_explain", None)
            if name == "reason" and name in state:  # another thread may have stored it since Python looked for it
                return state[name]
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)

    def __getstate__(self) -> dict[str, Any]:
        """Return what a copy and a pickle contain: a deferred reason is computed first."""
        state = {"reason": self.reason, **vars(self)}
        state.pop("_explain", None)
        return state

    @cached_property
    def digest(self) -> str:
        """A hash of calls, golden and scoring version: equal digests mean the same verdict."""
        versions = [self.golden.digest if self.golden else None, self.scoring_version]
        try:
            return content_digest([_digest_inputs(self.run, self.golden), *versions])
        except Exception:  # noqa: BLE001 - values of the application can raise anything when they are serialized
            # Some values have no hash (keys of several types, cycles, thousands of levels): hash the verdict instead.
            rows = self.comparison.rows
            shares = [[found and found.share for found in (row.agreement, row.result_agreement)] for row in rows]
            verdicts = [[row.verdict, row.expected_at, row.in_order] for row in rows]
            return content_digest([verdicts, shares, *versions])

    @property
    def faults(self) -> tuple[Fault, ...]:
        """The faults of the run, each with the agent that is responsible."""
        return self.comparison.faults

    @property
    def health(self) -> Health:
        """How completely the run was captured."""
        return self.run.health

    @property
    def status(self) -> Literal["scored", "not_evaluated"]:
        """`not_evaluated` if no golden applies, or if a requirement of the golden cannot be evaluated."""
        return "scored" if self.passed is not None else "not_evaluated"

    def with_revision(self, revision: int) -> Evaluation:
        """Returns a copy with another revision. It keeps the digest, even if values were redacted since."""
        copy = replace(self, revision=revision)
        vars(copy)["digest"] = self.digest
        return copy

    def score(self, metric: str) -> Score | None:
        """Returns the score of that metric; `None`: it was not measured."""
        return next((score for score in self.scores if score.metric == metric), None)

    @property
    def name(self) -> str:
        """The name of the evaluation: the golden's id, else the run's golden, component, agent or id."""
        run = self.run
        names = (run.golden_id, run.component, run.agent, run.run_id, "run")
        return self.match.golden.id if self.match else next(filter(None, names))

    def _display_blocks(self, *, values: bool = False, redact: Redaction | None = None) -> Iterable[Block]:
        from goldspan.model import rendering
        from goldspan.model.markup import TextSpan

        yield rendering.heading_block(rendering.OUTCOME_SYMBOLS[self.passed], self.name, self.run.input, redact)
        if self.comparison.rows or not self.run.health.calls_invisible:
            yield from self.comparison._display_blocks(values=values, redact=redact)
        if self.reason:
            yield (TextSpan(self.reason),)
        yield from rendering.score_blocks(self.scores)


class NotEvaluatedRun(NamedTuple):
    """A run that has a golden with a requirement that cannot be evaluated."""

    run_id: str
    golden_id: str
    reason: str
    missing_metrics: frozenset[str]
    """The metrics that have no value."""


def _digest_inputs(run: Run, golden: Golden | None) -> list[Any]:
    """Returns the values of a run that a verdict can depend on."""
    results_matter = golden is not None and any(tool.result is not ABSENT for tool in golden.expected_calls)
    calls = [
        [
            [call.name, call.raw_name, call.server, call.arguments, call.result if results_matter else None],
            [_has_failed(call), call.kind, call.outcome, call.agent, call.concurrent_with],
        ]
        for call in run.tool_calls
    ]
    own = run.agent if golden is not None and golden.depth == "own" else None
    return [calls, own, [tool.name for tool in run.available_tools], run.health.calls_invisible]


def _has_failed(call: ToolCall) -> bool | None:
    """Whether a call failed; `None`: not known."""
    return None if call.succeeded is None else call.error is not None
