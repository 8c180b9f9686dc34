"""What came out of laying a run beside its golden: rows, scores, and the whole evaluation."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from goldspan.model.goldens import AnyOf, ExpectedTool, Golden, Match
from goldspan.model.runs import Health, Run, ToolCall

NO_RUN = Run("")
Verdict = Literal["paired", "missing", "unexpected", "superseded", "tolerated", "forbidden"]
Label = Literal["pass", "fail", "not_evaluated"]


@dataclass(frozen=True, slots=True)
class Difference:
    """One argument in which a call differs from what was expected. A missing side is `ABSENT`."""

    key: str
    expected: Any
    called: Any


@dataclass(frozen=True, slots=True)
class Agreement:
    """How far the arguments, or the result, of a paired call agree with what was expected."""

    share: float
    """From 0 (nothing agrees) to 1 (all equal)."""
    differences: tuple[Difference, ...] = ()


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a comparison: a call, an expectation, or both side by side."""

    verdict: Verdict
    expected: ExpectedTool | AnyOf | None = None
    """Of alternative calls the one that was made; all of them where none was."""
    called: ToolCall | None = None
    expected_at: int | None = None
    """The expectation's position among all of the golden; of alternative trajectories only the one that was taken counts,
    and what is expected several times takes several positions."""
    called_at: int | None = None
    """The call's position in the run."""
    agreement: Agreement | None = None
    """For pairs whose arguments were judged; `None`: not stated by the golden, or not captured."""
    result_agreement: Agreement | None = None
    """The same for results."""
    in_order: bool | None = None
    """For pairs: whether the call came where the golden's order wants it."""
    note: str | None = None
    """Why a call or an expectation was tolerated, or a call superseded."""


@dataclass(frozen=True)
class Comparison:
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

    @cached_property
    def _by_verdict(self) -> dict[Verdict, tuple[Row, ...]]:
        sorted_rows: dict[Verdict, list[Row]] = {}
        for row in self.rows:
            sorted_rows.setdefault(row.verdict, []).append(row)
        return {verdict: tuple(rows) for verdict, rows in sorted_rows.items()}


@dataclass(frozen=True, slots=True)
class Score:
    """One number that a metric read off a comparison."""

    metric: str
    value: float | None = None
    """Usually 0 to 1; `None` where it cannot be known, and `reason` says why."""
    passed: bool | None = None
    """Whether the threshold is met; `None` where there is no threshold or no value."""
    threshold: float | None = None
    label: Label | None = None
    reason: str | None = None
    error: str | None = None
    """The metric itself failed: an exception, as text."""
    steps: tuple[str, ...] = ()
    """How the value came about, where that was asked for."""


@dataclass(frozen=True, slots=True)
class Evaluation:
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
    digest: str
    """Hash of calls, golden and scoring version: equal digests mean the same verdict."""
    scoring_version: int
    revision: int = 1
    """Counts changes of content of one run's evaluation, from 1."""

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
