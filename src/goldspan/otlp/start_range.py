"""`StartRange`: which runs of files are needed, by their start; `MARGIN_NS` is read around it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from goldspan.model import Run, SpanRecord, TelemetryRecord

MARGIN_NS: Final = 3600 * 10**9
"""How much before and after a range records are read, because the spans of a run start at different times.

It is the longest time for which live scoring keeps the spans of a run (`Limits.lifetime`).
"""


@dataclass(frozen=True, slots=True)
class StartRange:
    """The runs that started at `since_ns` or later and before `until_ns`, in nanoseconds since the Unix epoch.

    `None` is no bound. A time that is not known is in every range: `None`, and 0 as in OTLP.
    """

    since_ns: int | None = None
    until_ns: int | None = None

    @property
    def is_bounded(self) -> bool:
        """Whether there is a time outside the range."""
        return self.since_ns is not None or self.until_ns is not None

    def includes(self, time_ns: int | None) -> bool:
        """Return whether a time is in the range, or is not known."""
        if not time_ns:
            return True
        return (self.since_ns is None or self.since_ns <= time_ns) and (
            self.until_ns is None or time_ns < self.until_ns
        )

    def with_margin(self) -> StartRange:
        """Return the range in which the records of its runs are."""
        return StartRange(
            None if self.since_ns is None else self.since_ns - MARGIN_NS,
            None if self.until_ns is None else self.until_ns + MARGIN_NS,
        )

    def select_records(self, records: Sequence[TelemetryRecord]) -> Sequence[TelemetryRecord]:
        """Return the spans that started in the range, and the log records whose time is in it."""
        return [
            record
            for record in records
            if self.includes(record.start_ns if isinstance(record, SpanRecord) else record.time_ns)
        ]

    def select_runs(self, runs: Iterable[Run]) -> list[Run]:
        """Return the runs that started in the range."""
        return [run for run in runs if self.includes(run.start_ns)]


ALL_STARTS: Final = StartRange()
"""The range without bounds."""
