"""The methods that every store implements alike: iteration, counts of a page, and exports."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import TypeVar

from goldspan.model import Evaluation
from goldspan.store.data_frames import StoreFrames
from goldspan.store.query_results import count_verdicts
from goldspan.store.run_export import export_runs
from goldspan.store.store_protocol import (
    ALL_RUNS,
    MAX_PAGE_SIZE,
    ExportFormat,
    ExportTarget,
    Page,
    RunFilter,
    RunObserver,
    StoredRun,
    VerdictCounts,
)

_StoreT = TypeVar("_StoreT", bound="BaseStore")


class BaseStore(StoreFrames, ABC):
    """Implements a part of `Store`. A back end implements the rest."""

    @abstractmethod
    def submit_many(self, evaluations: Iterable[Evaluation]) -> None:
        """Store several evaluations in one transaction."""

    @abstractmethod
    def runs(
        self,
        filter: RunFilter = ALL_RUNS,  # noqa: A002 - the usual name
        *,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page:
        """Return a page of at most 1,000 runs that match, newest first."""

    @abstractmethod
    def count(self, filter: RunFilter = ALL_RUNS) -> VerdictCounts:  # noqa: A002
        """Count the runs that match, by verdict."""

    @abstractmethod
    def metrics(self) -> tuple[str, ...]:
        """Return the names of all metrics that have a score, sorted."""

    @abstractmethod
    def close(self) -> None:
        """Close the store."""

    def submit(self, evaluation: Evaluation) -> None:
        """Store one evaluation."""
        self.submit_many((evaluation,))

    def page_with_counts(
        self,
        filter: RunFilter = ALL_RUNS,  # noqa: A002
        *,
        limit: int = 50,
        cursor: str | None = None,
    ) -> tuple[Page, VerdictCounts]:
        """Return a page and the counts of all runs that match, with one query if they fit on the page."""
        page = self.runs(filter, limit=limit, cursor=cursor)
        is_all = cursor is None and page.next_cursor is None
        return page, count_verdicts(page.items) if is_all else self.count(filter)

    def iter_runs(self, run_filter: RunFilter = ALL_RUNS) -> Iterator[StoredRun]:
        """Iterate over all runs that match, newest first, a page at a time."""
        cursor: str | None = None
        while True:
            page = self.runs(run_filter, limit=MAX_PAGE_SIZE // 2, cursor=cursor)
            yield from page.items
            cursor = page.next_cursor
            if cursor is None:
                return

    def export(
        self,
        target: ExportTarget,
        *,
        format: ExportFormat | None = None,  # noqa: A002 - the usual name
        filter: RunFilter = ALL_RUNS,  # noqa: A002
        overwrite: bool = False,
        observe: RunObserver = iter,
    ) -> int:
        """Write the runs that match to a file or a binary stream, newest first.

        A file appears only when it is complete.

        Args:
            target: The path of a file, or a binary stream.
            format: `csv`, `parquet` or `jsonl`; by default the suffix of the file's name.
            filter: Selects the runs.
            overwrite: Replace an existing file.
            observe: Called with the runs before they are written, for example to report progress.

        Returns:
            The number of runs.

        Raises:
            ConfigurationError: The format is unknown.
            StoreError: The file exists and `overwrite` is not set, or it cannot be written.
        """
        return export_runs(observe(self.iter_runs(filter)), target, format, metrics=self.metrics(), overwrite=overwrite)

    def __enter__(self: _StoreT) -> _StoreT:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
