"""What came out of laying a run beside its golden: the comparison, and the whole evaluation."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from goldspan.model.findings import ComparisonRow, Fault, RequirementResult, RowVerdict, Score
from goldspan.model.goldens import ABSENT, Golden, Match
from goldspan.model.runs import COUNTED_TOOL_KINDS, Health, Run, ToolCall
from goldspan.model.telemetry import content_digest

if TYPE_CHECKING:
    from goldspan.model.rendering import Block
    from goldspan.model.value_matchers import Redaction


class NotebookDisplay(ABC):
    """Something that can be shown as a page of paragraphs and tables."""

    __slots__ = ()

    @abstractmethod
    def _display_blocks(self, *, values: bool = False, redact: Redaction | None = None) -> Iterable[Block]:
        """The paragraphs and tables; values of arguments and results are in them only where `values` says so."""

    def to_markdown(self, *, values: bool = False, redact: Redaction | None = None) -> str:
        """As Markdown with GitHub's tables.

        Names are shown, and values of arguments and results only with `values=True`. `redact` is called with the path
        of each value and the value before it is shown, and what it returns is shown instead.
        """
        from goldspan.model.rendering import render_markdown  # most processes never show anything

        return render_markdown(self._display_blocks(values=values, redact=redact))

    def to_html(self, *, values: bool = False, redact: Redaction | None = None) -> str:
        """As a fragment of HTML that needs no style sheet; `values` and `redact` as in `to_markdown`."""
        from goldspan.model.rendering import render_html

        return render_html(self._display_blocks(values=values, redact=redact))

    def _repr_markdown_(self) -> str:
        return self.to_markdown()

    def _repr_html_(self) -> str:
        return self.to_html()


EMPTY_RUN = Run("")

_RowTuple: TypeAlias = "tuple[ComparisonRow, ...]"


@dataclass(frozen=True)
class Comparison(NotebookDisplay):
    """A run laid beside its golden, once. Every call and every expectation is in exactly one row.

    The rows stand in the order of the calls; a missing expectation stands where it was due.
    """

    golden: Golden | None
    """`None`: nothing was expected of the run, and every call is tolerated."""
    rows: tuple[ComparisonRow, ...]
    run: Run = EMPTY_RUN
    """The run; calls that were given as a list are in one without an id."""
    approximation_reason: str | None = None
    """Why a better pairing may exist, where the work had to be bounded; `None`: there is none better."""
    wrong_agent_pairs: tuple[tuple[ComparisonRow, ComparisonRow], ...] = ()
    """Missing expectations, each with the unexpected call of its tool that another agent made than the expected one."""

    # What follows is found once and kept in plain attributes, since every metric asks for it.
    pairs: _RowTuple = field(default=(), init=False, repr=False, compare=False)
    """Expectations that must be met and found their call."""
    missing: _RowTuple = field(default=(), init=False, repr=False, compare=False)
    """Expectations that must be met and have no call."""
    unexpected: _RowTuple = field(default=(), init=False, repr=False, compare=False)
    """Calls that nobody expected."""
    superseded: _RowTuple = field(default=(), init=False, repr=False, compare=False)
    """Failed attempts that do not count, usually because the tool was called again."""
    tolerated: _RowTuple = field(default=(), init=False, repr=False, compare=False)
    """What does not count either way: agents, hand-offs, denied calls; optional expectations, called or not; extra
    calls that are allowed."""
    forbidden: _RowTuple = field(default=(), init=False, repr=False, compare=False)
    """Calls the golden forbids."""
    calls: tuple[ToolCall, ...] = field(default=(), init=False, repr=False, compare=False)
    """The tool calls that were made, whatever was expected: every attempt, but no agents, hand-offs and retrievals,
    nothing that was only asked for, and with `depth: own` none of other agents."""

    def __post_init__(self) -> None:
        """Sort rows and calls."""
        verdicts = {row.verdict for row in self.rows}
        for verdict in verdicts:
            alike = self.rows if len(verdicts) == 1 else tuple([row for row in self.rows if row.verdict == verdict])
            object.__setattr__(self, _FIELD_BY_VERDICT[verdict], alike)
        called = [row.called for row in self.rows]
        made = [call for call in called if call is not None and call.kind in COUNTED_TOOL_KINDS and call.was_made]
        own = self.run.agent if self.golden and self.golden.depth == "own" else None
        calls = made if own is None else [call for call in made if call.agent in (None, own)]
        object.__setattr__(self, "calls", tuple(calls))

    @cached_property
    def faults(self) -> tuple[Fault, ...]:
        """What went wrong, one by one, each with the agent whose fault it is."""
        from goldspan.model.findings import find_faults

        if self.golden is None:
            return ()
        return find_faults(self.rows, self.run, self.wrong_agent_pairs, is_ordered=self.golden.order != "any")

    def _display_blocks(self, *, values: bool = False, redact: Redaction | None = None) -> Iterable[Block]:
        from goldspan.model import rendering

        of_golden = self.golden is not None
        return rendering.comparison_blocks(
            self.rows, has_golden=of_golden, approximate=self.approximation_reason, values=values, redact=redact
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
    """A comparison, its scores and the verdict: everything there is to say about one run and one golden."""

    run: Run
    golden: Golden | None
    match: Match | None
    comparison: Comparison
    scores: tuple[Score, ...]
    passed: bool | None
    """Whether everything was kept that the golden states; `None`: not evaluated."""
    reason: str
    """One sentence for people."""
    scoring_version: int
    revision: int = 1
    """Counts changes of content of one run's evaluation, from 1."""
    changes: tuple[str, ...] | None = None
    """The metrics whose scores this revision adds or changes, where nothing else is new; `None`: all of it may be."""
    broken: tuple[RequirementResult, ...] = ()
    """What the golden states and the run breaks: each of them fails it."""
    undetermined: tuple[RequirementResult, ...] = ()
    """What the golden states and the telemetry does not tell."""
    accepted_shares: tuple[str, ...] = ()
    """The shares that a threshold accepts in place of everything: `0.8 of 0.8 wanted`."""

    @cached_property
    def digest(self) -> str:
        """Hash of calls, golden and scoring version: equal digests mean the same verdict."""
        judged_by = [self.golden.digest if self.golden else None, self.scoring_version]
        try:
            return content_digest([_digest_inputs(self.run, self.golden), *judged_by])
        except Exception:  # noqa: BLE001 - values of the application may do anything when they are written down
            # Values no hash can be made of (keys of several types, circles, thousands of levels): hash the verdict.
            rows = self.comparison.rows
            shares = [[found and found.share for found in (row.agreement, row.result_agreement)] for row in rows]
            verdicts = [[row.verdict, row.expected_at, row.in_order] for row in rows]
            return content_digest([verdicts, shares, *judged_by])

    @property
    def faults(self) -> tuple[Fault, ...]:
        """What went wrong, one by one, each with the agent whose fault it is."""
        return self.comparison.faults

    @property
    def health(self) -> Health:
        """How well the run was captured."""
        return self.run.health

    @property
    def status(self) -> Literal["scored", "not_evaluated"]:
        """`not_evaluated` where no golden applied, or what it states cannot be judged."""
        return "scored" if self.passed is not None else "not_evaluated"

    def with_revision(self, revision: int) -> Evaluation:
        """The same with another number. The digest stays, also where it is not that of what a redaction left."""
        copy = replace(self, revision=revision)
        vars(copy)["digest"] = self.digest
        return copy

    def score(self, metric: str) -> Score | None:
        """The score of that metric, or `None` where it was not asked for."""
        return next((score for score in self.scores if score.metric == metric), None)

    @property
    def name(self) -> str:
        """By what people know it: the golden, or what the run says of itself."""
        run = self.run
        told = (run.golden_id, run.component, run.agent, run.run_id, "run")
        return self.match.golden.id if self.match else next(filter(None, told))

    def _display_blocks(self, *, values: bool = False, redact: Redaction | None = None) -> Iterable[Block]:
        from goldspan.model import rendering
        from goldspan.model.rendering import TextSpan

        yield rendering.heading_block(rendering.OUTCOME_SYMBOLS[self.passed], self.name, self.run.input, redact)
        if self.comparison.rows or not self.run.health.calls_invisible:
            yield from self.comparison._display_blocks(values=values, redact=redact)
        if self.reason:
            yield (TextSpan(self.reason),)
        yield from rendering.score_blocks(self.scores)


class NotEvaluatedRun(NamedTuple):
    """A run that a golden is for, and of which something stated cannot be judged."""

    run_id: str
    golden_id: str
    reason: str
    missing_metrics: frozenset[str]
    """The metrics that have no value."""


def _digest_inputs(run: Run, golden: Golden | None) -> list[Any]:
    """What a verdict on that run can depend on."""
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
