"""Defines the `Store` interface, the filters it accepts, and the values it returns."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, get_args

from goldspan.errors import ConfigurationError
from goldspan.model import Evaluation, RunUnit

if TYPE_CHECKING:
    import pandas
    import polars

    PandasFrame: TypeAlias = pandas.DataFrame
    PolarsFrame: TypeAlias = polars.DataFrame

Verdict = Literal["pass", "fail", "not_evaluated"]
ToolRole = Literal["called", "expected", "missing", "unexpected", "forbidden", "failed"]
"""The role of a tool in a run: `called`; `expected`, whether or not it was called; expected and `missing`; called and
`unexpected` or `forbidden`; called, and the call `failed`."""

GroupBy = Literal["golden", "agent", "service", "environment", "unit"]
GROUP_BY_FIELDS: tuple[str, ...] = get_args(GroupBy)

ExportFormat = Literal["csv", "parquet", "jsonl"]
ExportTarget: TypeAlias = "str | os.PathLike[str] | IO[bytes]"
"""The target of an export: the path of a file, or a binary stream."""

_ALLOWED_WORDS: Mapping[str, tuple[str, ...]] = {
    "verdict": get_args(Verdict), "tool_role": get_args(ToolRole), "unit": get_args(RunUnit)
}  # fmt: skip
"""The valid values of the filter fields that accept one of a few words."""

MAX_PAGE_SIZE = 1000
"""The maximum number of runs or evaluations on a page."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFilter:
    """Selects runs by their current evaluation. A run matches if it meets every field that is set."""

    verdict: Verdict | None = None
    metric: str | None = None
    """Runs that have a score of that metric, including a score that could not be evaluated."""
    below: float | None = None
    """Runs whose score of `metric` is known and less than this."""
    agent: str | None = None
    golden: str | None = None
    """Runs that were evaluated against the golden with this id."""
    covered: bool | None = None
    """Runs with a golden (`True`) or without one (`False`)."""
    tool: str | None = None
    """Runs in which this tool has the role `tool_role`. Case and separators do not matter."""
    tool_role: ToolRole = "called"
    """The role of `tool` in the run."""
    service: str | None = None
    environment: str | None = None
    unit: RunUnit | None = None
    session_id: str | None = None
    trace_id: str | None = None
    """Runs that have spans in this trace."""
    text: str | None = None
    """Runs whose stored input contains this text. Case does not matter."""
    since_ns: int | None = None
    """Runs at or after this time, in nanoseconds since the Unix epoch."""
    until_ns: int | None = None
    """Runs before this time, in nanoseconds since the Unix epoch."""

    def __post_init__(self) -> None:
        """Raise `ConfigurationError` for a misspelt value, and for a field without the field it depends on."""
        if self.below is not None and self.metric is None:
            raise ConfigurationError("`below` needs the `metric` whose score it limits")
        if self.tool_role != "called" and self.tool is None:
            raise ConfigurationError(f"`tool_role` {self.tool_role!r} needs a `tool`")
        for name, known in _ALLOWED_WORDS.items():
            if (value := getattr(self, name)) is not None and value not in known:
                raise ConfigurationError(f"`{name}` is {', '.join(known[:-1])} or {known[-1]}, not {value!r}")


ALL_RUNS = RunFilter()


@dataclass(frozen=True, slots=True)
class StoredEvaluation:
    """One stored evaluation of a run."""

    run_id: str
    revision: int
    digest: str
    stored_ns: int
    """When it was stored, in nanoseconds since the Unix epoch."""
    document: Mapping[str, Any]
    """The stored part of the evaluation; `docs/store.md` lists the keys."""


@dataclass(frozen=True, slots=True)
class StoredRun:
    """A run with its current evaluation: the last stored of the highest revision."""

    run_id: str
    time_ns: int
    """The time of the run: its start, else its end, else the time it was first stored. Never in the future, and it does
    not change with a later evaluation."""
    evaluation_count: int
    """How many evaluations of the run are stored."""
    current: StoredEvaluation


RunObserver: TypeAlias = Callable[[Iterable[StoredRun]], Iterable[StoredRun]]
"""Called with the runs of an export before they are written, for example to report progress."""


@dataclass(frozen=True, slots=True)
class Page:
    """One page of runs, newest first."""

    items: tuple[StoredRun, ...]
    next_cursor: str | None
    """The cursor of the next page; `None` on the last page."""


@dataclass(frozen=True, slots=True)
class EvaluationPage:
    """One page of evaluations, in the order in which they were stored."""

    items: tuple[StoredEvaluation, ...]
    next_after: int
    """The `after` argument that returns the evaluations stored after these."""


@dataclass(frozen=True, slots=True)
class VerdictCounts:
    """The number of runs with each verdict."""

    passed: int = 0
    failed: int = 0
    not_evaluated: int = 0

    @property
    def total(self) -> int:
        """The number of all runs."""
        return self.passed + self.failed + self.not_evaluated


@dataclass(frozen=True, slots=True)
class GroupCounts:
    """The runs of one golden, agent, service, environment or unit."""

    name: str | None
    """`None` for runs without one, or for which it is unknown."""
    counts: VerdictCounts
    last_ns: int
    """The time of the newest run, in nanoseconds since the Unix epoch."""


@dataclass(frozen=True, slots=True)
class TimeBucket:
    """The runs of one time interval."""

    start_ns: int
    """In nanoseconds since the Unix epoch. The interval ends where the next one starts."""
    counts: VerdictCounts


@dataclass(frozen=True, slots=True)
class ToolCounts:
    """The number of runs in which a tool has each `ToolRole`. A tool can have several roles in one run."""

    name: str
    """In the spelling of the first of the runs."""
    called: int
    expected: int
    missing: int
    unexpected: int
    forbidden: int
    failed: int

    @property
    def problem_count(self) -> int:
        """The sum of the roles that report a problem; a run counts once for each of them."""
        return self.missing + self.unexpected + self.forbidden + self.failed


@dataclass(frozen=True, slots=True)
class Substitution:
    """A tool that was called in place of an expected one."""

    expected: str
    called: str
    runs: int


@dataclass(frozen=True, slots=True)
class Retention:
    """Limits how much a store keeps. Runs that exceed a limit are deleted, the oldest first."""

    max_age: timedelta | None = None
    """Runs older than this are deleted; `None` for no limit."""
    max_bytes: int | None = None
    """The maximum size of the file, without its write-ahead log of about 4 MiB; `None` for no limit. In PostgreSQL, the
    maximum size of the tables and indexes, from which whole weeks are deleted and never the newest one."""
    deletion_memory: timedelta = timedelta(days=1)
    """How long the deletion of a trace is remembered. For this time, evaluations of runs in it are not stored."""

    def __post_init__(self) -> None:
        """Raise `ConfigurationError` for a limit under which nothing could be kept."""
        ages: Mapping[str, object] = {"max_age": self.max_age, "deletion_memory": self.deletion_memory}
        for name, age in ages.items():
            if not (isinstance(age, timedelta) and age > timedelta(0)) and (name, age) != ("max_age", None):
                raise ConfigurationError(f"{name} must be a positive duration such as timedelta(days=30), not {age!r}")
        size: object = self.max_bytes
        if size is not None and not (isinstance(size, (int, float)) and size > 0):
            raise ConfigurationError(f"max_bytes must be a number of at least 1, not {size!r}")


class Store(Protocol):
    """Stores and queries evaluations. A store is a sink.

    Every method can be called from any thread of any process, and raises `StoreError` if the store fails. A store is a
    context manager that closes it.
    """

    @property
    def location(self) -> str:
        """The file or the URL, without passwords, as messages name it."""
        ...

    def submit(self, evaluation: Evaluation) -> None:
        """Store one evaluation. It is stored when the method returns."""
        ...

    def submit_many(self, evaluations: Iterable[Evaluation]) -> None:
        """Store several evaluations in one transaction: all of them or, with an error, none.

        An evaluation with the same run, revision and digest as a stored one is ignored. All evaluations of a run are
        kept; its current one has the highest revision and, of equal revisions, was stored last. An evaluation of a run
        in a recently deleted trace (`Retention.deletion_memory`) is dropped.
        """
        ...

    def replace_if_current(self, evaluation: Evaluation, expected: tuple[int, str]) -> bool:
        """Store an evaluation only if the current evaluation of its run is still the expected one (compare and swap).

        `expected` is the revision and the digest of the evaluation from which the new one was made. Returns whether it
        was still current; if not, nothing is stored.
        """
        ...

    def runs(
        self,
        filter: RunFilter = ALL_RUNS,  # noqa: A002 - the usual name
        *,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page:
        """Return a page of the runs that match, newest first.

        A run that is stored and matches during the whole iteration appears on exactly one page.
        """
        ...

    def page_with_counts(
        self,
        filter: RunFilter = ALL_RUNS,  # noqa: A002
        *,
        limit: int = 50,
        cursor: str | None = None,
    ) -> tuple[Page, VerdictCounts]:
        """Return a page as `runs` does, and the counts of all runs that match."""
        ...

    def iter_runs(self, run_filter: RunFilter = ALL_RUNS) -> Iterator[StoredRun]:
        """Iterate over all runs that match, newest first, a page at a time."""
        ...

    def run(self, run_id: str) -> StoredRun | None:
        """Return one run, or `None` if it is not stored."""
        ...

    def evaluations(self, run_id: str) -> tuple[StoredEvaluation, ...]:
        """Return all evaluations of one run, by revision and then in the order in which they were stored."""
        ...

    def current_revision(self, run_id: str) -> tuple[int, str] | None:
        """Return revision and digest of a run's current evaluation, or `None`, without reading its document."""
        ...

    def has_trace(self, trace_id: str) -> bool:
        """Return whether a run with spans in this trace is stored."""
        ...

    def evaluations_after(self, after: int = 0, limit: int = 50) -> EvaluationPage:
        """Return the evaluations stored after a position, in the order in which they were stored.

        A client that polls passes 0 first, and then the `next_after` of the previous page; it misses nothing.
        """
        ...

    def count(self, filter: RunFilter = ALL_RUNS) -> VerdictCounts:  # noqa: A002
        """Count the runs that match, by verdict."""
        ...

    def count_by(self, by: GroupBy, filter: RunFilter = ALL_RUNS) -> tuple[GroupCounts, ...]:  # noqa: A002
        """Count the runs that match for each golden, agent, service, environment or unit; most runs first."""
        ...

    def trend(self, filter: RunFilter = ALL_RUNS, *, buckets: int = 40) -> tuple[TimeBucket, ...]:  # noqa: A002
        """Count the runs that match in time intervals of equal length, empty ones included; the oldest first.

        The intervals cover `since_ns` of the filter, else the oldest run, to `until_ns`, else the newest run. There are
        `buckets` of them, or fewer if the time has fewer nanoseconds; none if no run matches.
        """
        ...

    def tool_counts(self, filter: RunFilter = ALL_RUNS) -> tuple[ToolCounts, ...]:  # noqa: A002
        """Count, for each tool, the matching runs in which it has each role; most problems first."""
        ...

    def substitutions(self, filter: RunFilter = ALL_RUNS) -> tuple[Substitution, ...]:  # noqa: A002
        """Return which tool was called in place of which, with the number of matching runs; most runs first."""
        ...

    def last_sequence_number(self) -> int:
        """Return the `after` argument with which `evaluations_after` returns only what is stored from now on.

        It never decreases.
        """
        ...

    def metrics(self) -> tuple[str, ...]:
        """Return the names of all metrics that have a score, sorted."""
        ...

    def export(
        self,
        target: ExportTarget,
        *,
        format: ExportFormat | None = None,  # noqa: A002 - the usual name
        filter: RunFilter = ALL_RUNS,  # noqa: A002
        overwrite: bool = False,
        observe: RunObserver = iter,
    ) -> int:
        """Write the runs that match to a file, newest first.

        Args:
            target: A path, or a stream that accepts bytes.
            format: The format of the file; `None` takes it from the ending of the path.
            filter: Which runs are written.
            overwrite: Whether an existing file is replaced.
            observe: Wraps the iterator over the runs, for a progress bar.

        Returns:
            The number of runs written.
        """
        ...

    def to_pandas(self, filter: RunFilter = ALL_RUNS) -> PandasFrame:  # noqa: A002
        """Return a pandas data frame with the columns of an export: a row for each run that matches, newest first."""
        ...

    def to_polars(self, filter: RunFilter = ALL_RUNS) -> PolarsFrame:  # noqa: A002
        """Return a polars data frame with the columns of an export: a row for each run that matches, newest first."""
        ...

    def delete_trace(self, trace_id: str) -> int:
        """Delete every run that has spans in a trace, with all its evaluations, and return the number of runs.

        Evaluations of the trace that arrive later are dropped for the time of `Retention.deletion_memory`.
        """
        ...

    def delete_runs(self, run_ids: Iterable[str]) -> int:
        """Delete runs with all their evaluations and return their number. They can be stored again."""
        ...

    def prune(self) -> int:
        """Apply the retention now and return the number of deleted runs."""
        ...

    def check(self) -> None:
        """Read the whole store; raise `StoreError` if it is damaged."""
        ...

    def close(self) -> None:
        """Close the store. Submitted evaluations stay."""
        ...

    def __enter__(self) -> Store: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None: ...
