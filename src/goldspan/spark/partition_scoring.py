"""Extracts and evaluates the runs of packed traces, on the executors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from goldspan.extraction import extract
from goldspan.model import ComponentSelector, Evaluation, Run, RunUnit, TelemetryRecord
from goldspan.otlp.start_range import ALL_STARTS, StartRange
from goldspan.spark.evaluation_rows import evaluation_batch
from goldspan.spark.record_packing import unpack_records

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]

_RECORDS_AT_ONCE = 4096
"""The records whose runs are extracted together. Most traces are shorter: one by one they take more time."""


@dataclass(frozen=True, slots=True)
class RunEvaluator:
    """Extracts and evaluates the runs of records. Spark serializes it, with the goldens, for the executors."""

    evaluate_run: Callable[[Run], Evaluation]
    unit: RunUnit = "request"
    golden_id_attributes: Sequence[str] | None = None
    components: Sequence[ComponentSelector] = ()
    """The components that the goldens declare."""
    start_range: StartRange = ALL_STARTS
    """When the runs that are evaluated started."""

    def evaluate(self, records: Iterable[TelemetryRecord]) -> list[Evaluation]:
        """Return the evaluations of the runs, by start time."""
        runs = extract(
            records, unit=self.unit, golden_id_attributes=self.golden_id_attributes, components=self.components
        )
        return [self.evaluate_run(run) for run in self.start_range.select_runs(runs)]

    def evaluate_part(self, records: Iterable[TelemetryRecord], limit: int) -> list[Evaluation]:
        """Return the evaluations of runs of which only the first records are known. None of them has a verdict."""
        reason = f"Not evaluated: its traces have more than {limit} spans, of which only the first were read."
        return [replace(evaluation, passed=None, reason=reason) for evaluation in self.evaluate(records)]


@dataclass(frozen=True, slots=True)
class PartitionScorer:
    """Scores the rows of a partition, sorted by their first column, the stitch key, and by the first start.

    The records of `_RECORDS_AT_ONCE`, or of one stitch key up to `max_records`, are in memory at the same time.
    """

    evaluator: RunEvaluator
    max_records: int

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the evaluations of the runs, as rows."""
        yield from map(evaluation_batch, self.evaluations(batches))

    def evaluations(self, batches: Iterable[pa.RecordBatch]) -> Iterator[list[Evaluation]]:
        """Yield the evaluations of the runs, of thousands of spans at a time."""
        together: list[TelemetryRecord] = []
        for group in self._groups(batches):
            if group.is_cut:
                yield self.evaluator.evaluate_part(group.records, self.max_records)
                continue
            together += group.records
            if len(together) >= _RECORDS_AT_ONCE:
                yield self.evaluator.evaluate(together)
                together = []
        if together:
            yield self.evaluator.evaluate(together)

    def _groups(self, batches: Iterable[pa.RecordBatch]) -> Iterator[_KeyGroup]:
        """Yield the records of each stitch key."""
        current: str | None = None
        group = _KeyGroup([])
        for batch in batches:
            keys, packed_records = batch.column("stitch_key"), batch.column("packed")
            for key, packed in zip(keys.to_pylist(), packed_records, strict=True):
                if key != current:
                    yield group
                    current, group = key, _KeyGroup([])
                if not group.is_cut:
                    group.add(unpack_records(packed.as_buffer()), self.max_records)
        yield group


@dataclass(slots=True)
class _KeyGroup:
    """The records of one stitch key."""

    records: list[TelemetryRecord]
    is_cut: bool = False
    """Whether it has more records than are allowed."""

    def add(self, records: list[TelemetryRecord], limit: int) -> None:
        """Add records, up to the limit."""
        self.records += records[: limit - len(self.records) + 1]
        if len(self.records) > limit:
            self.is_cut = True
            del self.records[limit:]
