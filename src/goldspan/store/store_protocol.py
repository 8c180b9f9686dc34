"""What a store must be able to do, and the values that go in and out of one."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import IO, Any, Literal, Protocol, TypeAlias, get_args

from goldspan.errors import ConfigurationError
from goldspan.model import Evaluation, RunUnit

Verdict = Literal["pass", "fail", "not_evaluated"]
ToolRole = Literal["called", "expected", "missing", "unexpected", "forbidden", "failed"]
"""How a tool stands in a run: `called` at all; `expected`, called or not; expected and `missing`; called and
`unexpected` or `forbidden`; called, and the call `failed`."""

GroupBy = Literal["golden", "agent", "service", "environment", "unit"]
GROUP_BY_FIELDS: tuple[str, ...] = get_args(GroupBy)

ExportFormat = Literal["csv", "parquet", "jsonl"]
ExportTarget: TypeAlias = "str | os.PathLike[str] | IO[bytes]"
"""Where an export goes: a file by its name, or a stream of bytes."""

_ALLOWED_WORDS: Mapping[str, tuple[str, ...]] = {
    "verdict": get_args(Verdict), "tool_role": get_args(ToolRole), "unit": get_args(RunUnit)
}  # fmt: skip
"""What the fields of a filter that take one word may say."""

MAX_PAGE_SIZE = 1000
"""So many runs, or evaluations, a page has at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFilter:
    """Which runs are meant, by their current evaluation: everything that is said must hold."""

    verdict: Verdict | None = None
    metric: str | None = None
    """Runs that have a score of that metric, known or not."""
    below: float | None = None
    """Runs whose score of `metric` is known and less than that."""
    agent: str | None = None
    golden: str | None = None
    """The id of the golden by which it was judged."""
    covered: bool | None = None
    """Whether there was a golden to judge it by."""
    tool: str | None = None
    """A tool's name; case and separators do not matter."""
    tool_role: ToolRole = "called"
    """What `tool` was in the run."""
    service: str | None = None
    environment: str | None = None
    unit: RunUnit | None = None
    session_id: str | None = None
    trace_id: str | None = None
    """A trace that the run has spans in."""
    text: str | None = None
    """Stands somewhere in the input, as far as that is kept; case does not matter."""
    since_ns: int | None = None
    """Runs of that time and later, in nanoseconds since the Unix epoch."""
    until_ns: int | None = None
    """Runs before that time."""

    def __post_init__(self) -> None:
        """Refuse what means no runs, or all of them, only because it is misspelt or alone."""
        if self.below is not None and self.metric is None:
            raise ConfigurationError("`below` needs the `metric` whose score it limits")
        if self.tool_role != "called" and self.tool is None:
            raise ConfigurationError(f"`tool_role` {self.tool_role!r} needs the `tool` that was it")
        for name, known in _ALLOWED_WORDS.items():
            if (said := getattr(self, name)) is not None and said not in known:
                raise ConfigurationError(f"`{name}` is {', '.join(known[:-1])} or {known[-1]}, not {said!r}")


ALL_RUNS = RunFilter()


@dataclass(frozen=True, slots=True)
class StoredEvaluation:
    """One evaluation of a run, as it was stored."""

    run_id: str
    revision: int
    digest: str
    stored_ns: int
    """When it was stored, in nanoseconds since the Unix epoch."""
    document: Mapping[str, Any]
    """What is kept of it; `docs/store.md` lists the keys."""


@dataclass(frozen=True, slots=True)
class StoredRun:
    """A run with its current evaluation: the last stored of the highest revision."""

    run_id: str
    time_ns: int
    """When it began, else when it ended, else when it was first stored; never in the future, and never changed."""
    evaluation_count: int
    """How many are stored of it."""
    current: StoredEvaluation


RunObserver: TypeAlias = Callable[[Iterable[StoredRun]], Iterable[StoredRun]]
"""Looks at runs on their way into a file."""


@dataclass(frozen=True, slots=True)
class Page:
    """Some runs, newest first."""

    items: tuple[StoredRun, ...]
    next_cursor: str | None
    """Where the next page begins; `None`: there are no more."""


@dataclass(frozen=True, slots=True)
class EvaluationPage:
    """Some evaluations, in the order in which they were stored."""

    items: tuple[StoredEvaluation, ...]
    next_after: int
    """What to ask with for those that came, or will come, after these."""


@dataclass(frozen=True, slots=True)
class VerdictCounts:
    """How many runs came out how."""

    passed: int = 0
    failed: int = 0
    not_evaluated: int = 0

    @property
    def total(self) -> int:
        """All of them."""
        return self.passed + self.failed + self.not_evaluated


@dataclass(frozen=True, slots=True)
class GroupCounts:
    """The runs of one golden, agent, service, environment or unit."""

    name: str | None
    """`None`: of none, or not known."""
    counts: VerdictCounts
    last_ns: int
    """The time of the newest of them, in nanoseconds since the Unix epoch."""


@dataclass(frozen=True, slots=True)
class TimeBucket:
    """The runs of a span of time."""

    start_ns: int
    """In nanoseconds since the Unix epoch; the span ends where the next one begins."""
    counts: VerdictCounts


@dataclass(frozen=True, slots=True)
class ToolCounts:
    """In how many runs a tool was what; in one run it may be several of them. The words are those of `ToolRole`."""

    name: str
    """As the first of the runs writes it."""
    called: int
    expected: int
    missing: int
    unexpected: int
    forbidden: int
    failed: int

    @property
    def problem_count(self) -> int:
        """How often something was wrong with it: a run counts for each thing."""
        return self.missing + self.unexpected + self.forbidden + self.failed


@dataclass(frozen=True, slots=True)
class Substitution:
    """A tool that was called in place of another."""

    expected: str
    called: str
    runs: int


@dataclass(frozen=True, slots=True)
class Retention:
    """How much is kept. What is too old or too much goes, the oldest runs first."""

    max_age: timedelta | None = None
    """Runs whose time is longer ago are deleted; `None`: they are kept."""
    max_bytes: int | None = None
    """What the file may hold; a write-ahead log of about 4 MiB may stand beside it. `None`: no limit."""
    deletion_memory: timedelta = timedelta(days=1)
    """How long it is remembered that a trace was deleted: so long, evaluations of runs in it are not stored again."""

    def __post_init__(self) -> None:
        """Refuse limits under which nothing could be kept, and what is no limit."""
        ages: Mapping[str, object] = {"max_age": self.max_age, "deletions": self.deletion_memory}
        for name, age in ages.items():
            if not (isinstance(age, timedelta) and age > timedelta(0)) and (name, age) != ("max_age", None):
                raise ConfigurationError(f"{name} must be more than nothing, as in timedelta(days=30), not {age!r}")
        size: object = self.max_bytes
        if size is not None and not (isinstance(size, (int, float)) and size > 0):
            raise ConfigurationError(f"max_bytes must be a number of at least 1, not {size!r}")


class Store(Protocol):
    """Keeps evaluations and finds them again. It is a sink.

    Every method may be called from any thread, in any process, and raises `StoreError` where the store cannot answer.
    """

    def submit(self, evaluation: Evaluation) -> None:
        """Keep one evaluation; on return it is stored."""
        ...

    def submit_many(self, evaluations: Iterable[Evaluation]) -> None:
        """Keep several at once: all of them or, with an error, none.

        The same run, revision and digest are kept once. Of several evaluations of a run none is lost; that of the
        highest revision is its current one, and of equal revisions the one stored last. Those of runs with spans in a
        trace that was deleted a short time ago (`Retention.deletions`) are left out.
        """
        ...

    def runs(
        self,
        filter: RunFilter = ALL_RUNS,  # noqa: A002 - the word for it
        *,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page:
        """The runs that are meant, newest first, from where a cursor of an earlier page says.

        Runs that are there all the while, and are meant all the while, are in exactly one of the pages.
        """
        ...

    def page_with_counts(
        self,
        filter: RunFilter = ALL_RUNS,  # noqa: A002
        *,
        limit: int = 50,
        cursor: str | None = None,
    ) -> tuple[Page, VerdictCounts]:
        """A page as `runs` gives it, and how many runs are meant in all."""
        ...

    def iter_runs(self, run_filter: RunFilter = ALL_RUNS) -> Iterator[StoredRun]:
        """All runs that are meant, newest first, read a page at a time."""
        ...

    def run(self, run_id: str) -> StoredRun | None:
        """One run, or `None` where it is not stored."""
        ...

    def evaluations(self, run_id: str) -> tuple[StoredEvaluation, ...]:
        """All that is stored of one run, by revision and then in the order of storing."""
        ...

    def evaluations_after(self, after: int = 0, limit: int = 50) -> EvaluationPage:
        """What was stored after that place, in the order of storing: whoever asks again and again misses nothing.

        `after` is 0 to begin with, and then the `next_after` of the answer before.
        """
        ...

    def count(self, filter: RunFilter = ALL_RUNS) -> VerdictCounts:  # noqa: A002
        """How many runs are meant, by what came out."""
        ...

    def count_by(self, by: GroupBy, filter: RunFilter = ALL_RUNS) -> tuple[GroupCounts, ...]:  # noqa: A002
        """How the runs that are meant came out, for each golden, agent, service, environment or unit; most first."""
        ...

    def trend(self, filter: RunFilter = ALL_RUNS, *, buckets: int = 40) -> tuple[TimeBucket, ...]:  # noqa: A002
        """How the runs that are meant came out over time, in spans of equal length, empty ones too; the oldest first.

        They reach from `since_ns` of the filter, else the oldest run, to `until_ns`, else the newest run, which is in
        the last. There are fewer than `buckets` only where there are fewer nanoseconds, and none where there is no run.
        """
        ...

    def tool_counts(self, filter: RunFilter = ALL_RUNS) -> tuple[ToolCounts, ...]:  # noqa: A002
        """In how many of the runs that are meant each tool was called, missing and so on; most trouble first."""
        ...

    def substitutions(self, filter: RunFilter = ALL_RUNS) -> tuple[Substitution, ...]:  # noqa: A002
        """Which tool was called in place of which, and in how many of the runs that are meant; most runs first."""
        ...

    def last_sequence_number(self) -> int:
        """What `arrivals` is asked with to learn only of what is stored from now on. It never becomes less."""
        ...

    def metrics(self) -> tuple[str, ...]:
        """The names of all metrics of which there is a score, sorted."""
        ...

    def export(
        self,
        target: ExportTarget,
        *,
        format: ExportFormat | None = None,  # noqa: A002 - the word for it
        filter: RunFilter = ALL_RUNS,  # noqa: A002
        overwrite: bool = False,
        observe: RunObserver = iter,
    ) -> int:
        """Write the runs that are meant to a file, newest first; the number of them."""
        ...

    def delete_trace(self, trace_id: str) -> int:
        """Delete every run that has spans in a trace, with all its evaluations; the number of runs.

        What comes of the trace later is not stored either, for as long as the deletion is remembered.
        """
        ...

    def delete_runs(self, run_ids: Iterable[str]) -> int:
        """Delete runs with all their evaluations; the number of runs. They may be stored again."""
        ...

    def prune(self) -> int:
        """Delete now what is kept no longer; the number of runs."""
        ...

    def check(self) -> None:
        """Read everything; raises `StoreError` where it is damaged."""
        ...

    def close(self) -> None:
        """Let go of the store; what was submitted stays."""
        ...
