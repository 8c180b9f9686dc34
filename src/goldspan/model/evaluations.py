"""What came out of laying a run beside its golden: the comparison, and the whole evaluation."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, cast

from goldspan.model.digests import content_digest
from goldspan.model.display import Displayed
from goldspan.model.findings import Row, Score, Verdict
from goldspan.model.goldens import ABSENT, Golden, Match
from goldspan.model.runs import COUNTED_KINDS, Health, Run, ToolCall

if TYPE_CHECKING:
    from goldspan.model.markup import Block
    from goldspan.model.values import Redaction

NO_RUN = Run("")

_T = TypeVar("_T")


class _Kept(Generic[_T]):
    """A property of a frozen value that is found out when it is first asked for.

    Like `cached_property`, in half of its time: no lock, and nothing that makes Python give the value a dictionary.
    """

    def __init__(self, find: Callable[[Any], _T]) -> None:
        self._find, self._name, self.__doc__ = find, find.__name__, find.__doc__

    def __get__(self, value: Any, owner: type[Any]) -> _T:
        if value is None:
            return cast("_T", self)  # the class itself is asked: for its documentation
        found = self._find(value)
        object.__setattr__(value, self._name, found)
        return found


@dataclass(frozen=True)
class Comparison(Displayed):
    """A run laid beside its golden, once. Every call and every expectation is in exactly one row.

    The rows stand in the order of the calls; a missing expectation stands where it was due.
    """

    golden: Golden | None
    """`None`: nothing was expected of the run, and every call is tolerated."""
    rows: tuple[Row, ...]
    run: Run = NO_RUN
    """The run; calls that were given as a list are in one without an id."""
    approximate: str | None = None
    """Why a better pairing may exist, where the work had to be bounded; `None`: there is none better."""

    @property
    def pairs(self) -> tuple[Row, ...]:
        """Expectations that must be met and found their call."""
        return self._by_verdict.get("paired", ())

    @property
    def missing(self) -> tuple[Row, ...]:
        """Expectations that must be met and have no call."""
        return self._by_verdict.get("missing", ())

    @property
    def unexpected(self) -> tuple[Row, ...]:
        """Calls that nobody expected."""
        return self._by_verdict.get("unexpected", ())

    @property
    def superseded(self) -> tuple[Row, ...]:
        """Failed attempts that do not count, usually because a later call of the same tool made them good."""
        return self._by_verdict.get("superseded", ())

    @property
    def tolerated(self) -> tuple[Row, ...]:
        """What does not count either way: agents, hand-offs, denied calls; optional expectations, called or not; extra
        calls that are allowed."""
        return self._by_verdict.get("tolerated", ())

    @property
    def forbidden(self) -> tuple[Row, ...]:
        """Calls the golden forbids."""
        return self._by_verdict.get("forbidden", ())

    @_Kept
    def calls(self) -> tuple[ToolCall, ...]:
        """The tool calls that were made, whatever was expected: every attempt, but no agents, hand-offs and retrievals,
        nothing that was only asked for, and with `depth: own` none of other agents."""
        called = [row.called for row in self.rows]
        made = [call for call in called if call is not None and call.kind in COUNTED_KINDS and call.made]
        own = self.run.agent if self.golden and self.golden.depth == "own" else None
        return tuple(made if own is None else [call for call in made if call.agent in (None, own)])

    def _blocks(self, *, values: bool = False, redact: Redaction | None = None) -> Iterable[Block]:
        from goldspan.model import rendering

        return rendering.comparison(self.rows, approximate=self.approximate, values=values, redact=redact)

    @_Kept
    def _by_verdict(self) -> dict[Verdict, tuple[Row, ...]]:
        verdicts = {row.verdict for row in self.rows}
        if len(verdicts) == 1:  # as in most comparisons
            return dict.fromkeys(verdicts, self.rows)
        return {verdict: tuple([row for row in self.rows if row.verdict == verdict]) for verdict in verdicts}


@dataclass(frozen=True)
class Evaluation(Displayed):
    """A comparison and its scores: everything there is to say about one run and one golden."""

    run: Run
    golden: Golden | None
    match: Match | None
    comparison: Comparison
    scores: tuple[Score, ...]
    passed: bool | None
    """Whether every score with a threshold passed; `None`: not evaluated."""
    reason: str
    """One sentence for people."""
    scoring_version: int
    revision: int = 1
    """Counts changes of content of one run's evaluation, from 1."""

    @cached_property
    def digest(self) -> str:
        """Hash of calls, golden and scoring version: equal digests mean the same verdict."""
        judged_by = [self.golden.digest if self.golden else None, self.scoring_version]
        try:
            return content_digest([_judged(self.run, self.golden), *judged_by])
        except (TypeError, ValueError, RecursionError):
            # Values no hash can be made of (keys of several types, circles, thousands of levels): hash the verdict.
            rows = self.comparison.rows
            shares = [[found and found.share for found in (row.agreement, row.result_agreement)] for row in rows]
            verdicts = [[row.verdict, row.expected_at, row.in_order] for row in rows]
            return content_digest([verdicts, shares, *judged_by])

    @property
    def health(self) -> Health:
        """How well the run was captured."""
        return self.run.health

    @property
    def status(self) -> Literal["scored", "not_evaluated"]:
        """`not_evaluated` where no golden applied."""
        return "scored" if self.golden is not None else "not_evaluated"

    def score(self, metric: str) -> Score | None:
        """The score of that metric, or `None` where it was not asked for."""
        return next((score for score in self.scores if score.metric == metric), None)

    @property
    def name(self) -> str:
        """By what people know it: the golden, or what the run says of itself."""
        run = self.run
        told = (run.golden_id, run.component, run.agent, run.run_id, "run")
        return self.match.golden.id if self.match else next(filter(None, told))

    def _blocks(self, *, values: bool = False, redact: Redaction | None = None) -> Iterable[Block]:
        from goldspan.model import rendering
        from goldspan.model.markup import Span

        yield rendering.heading(rendering.VERDICTS[self.passed], self.name, self.run.input, redact)
        yield from self.comparison._blocks(values=values, redact=redact)
        if self.reason:
            yield (Span(self.reason),)
        yield from rendering.scores(self.scores)


def _judged(run: Run, golden: Golden | None) -> list[Any]:
    """What a verdict on that run can depend on."""
    results_matter = golden is not None and any(tool.result is not ABSENT for tool in golden.calls)
    calls = [
        [
            [call.name, call.raw_name, call.server, call.arguments, call.result if results_matter else None],
            [call.error is not None, call.kind, call.outcome, call.agent, call.concurrent_with],
        ]
        for call in run.tool_calls
    ]
    own = run.agent if golden is not None and golden.depth == "own" else None
    return [calls, own, [tool.name for tool in run.available_tools]]
