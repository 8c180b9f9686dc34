"""`TraceProcessor`: keeps the spans of each trace in the state of a query until it is idle."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from goldspan._extras import require_extra
from goldspan.model import Evaluation, TelemetryRecord
from goldspan.spark.evaluation_rows import evaluation_batch
from goldspan.spark.partition_scoring import RunEvaluator
from goldspan.spark.record_packing import unpack_records

with require_extra("spark"):
    from pyspark.sql import Row
    from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

if TYPE_CHECKING:
    from pyspark.sql.streaming.stateful_processor import ExpiredTimerInfo, TimerValues

_CHUNKS_SCHEMA = "packed binary"
_REVISIONS_SCHEMA = "revision int, digest string"
_IS_EVALUATED_SCHEMA = "is_evaluated boolean"


class TraceProcessor(StatefulProcessor):  # type: ignore[misc]  # PySpark is not installed where types are checked
    """Evaluates the runs of a trace after a time without new spans, and again after late spans.

    A trace has one timer at a time: after its last spans, the time of the evaluation; after the evaluation, the time
    at which its state is removed.
    """

    def __init__(self, evaluator: RunEvaluator, idle_ms: int, late_ms: int, max_records: int) -> None:
        self._evaluator = evaluator
        self._idle_ms = idle_ms
        self._late_ms = late_ms
        self._max_records = max_records

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Declare the state of a trace."""
        self._handle = handle
        self._chunks = handle.getListState("chunks", _CHUNKS_SCHEMA)
        self._revisions = handle.getMapState("revisions", "run_id string", _REVISIONS_SCHEMA)
        self._is_evaluated = handle.getValueState("is_evaluated", _IS_EVALUATED_SCHEMA)

    def handleInputRows(  # noqa: N802 - the name in the interface
        self,
        key: Any,
        rows: Iterator[Row],
        timerValues: TimerValues,  # noqa: N803
    ) -> Iterator[Row]:
        """Add spans to a trace, and postpone its evaluation."""
        self._chunks.appendList([(row.packed,) for row in rows])
        self._is_evaluated.update((False,))
        self._set_timer(timerValues.getCurrentProcessingTimeInMs() + self._idle_ms)
        return iter(())

    def handleExpiredTimer(  # noqa: N802
        self,
        key: Any,
        timerValues: TimerValues,  # noqa: N803
        expiredTimerInfo: ExpiredTimerInfo,  # noqa: N803
    ) -> Iterator[Row]:
        """Evaluate the runs of an idle trace, or remove a trace that has been idle since its evaluation."""
        if self._is_evaluated.get()[0]:
            self._chunks.clear()
            self._revisions.clear()
            self._is_evaluated.clear()
            return
        evaluations = [revised for evaluation in self._evaluate() if (revised := self._revised(evaluation)) is not None]
        self._is_evaluated.update((True,))
        self._set_timer(timerValues.getCurrentProcessingTimeInMs() + self._late_ms)
        for row in evaluation_batch(evaluations).to_pylist():
            yield Row(**row | {"scores": dict(row["scores"])})

    def close(self) -> None:
        """Do nothing: Spark closes the state."""

    def _set_timer(self, at_ms: int) -> None:
        for timer in list(self._handle.listTimers()):
            self._handle.deleteTimer(timer)
        self._handle.registerTimer(at_ms)

    def _evaluate(self) -> list[Evaluation]:
        records: list[TelemetryRecord] = []
        for (packed,) in self._chunks.get():
            records += unpack_records(packed)
            if len(records) > self._max_records:
                return self._evaluator.evaluate_part(records[: self._max_records], self._max_records)
        return self._evaluator.evaluate(records)

    def _revised(self, evaluation: Evaluation) -> Evaluation | None:
        """Return an evaluation with its revision; `None` if it equals the one before. Remember it."""
        run_key = (evaluation.run.run_id,)
        known = self._revisions.getValue(run_key) if self._revisions.containsKey(run_key) else None
        if known is not None and known[1] == evaluation.digest:
            return None
        revision = 1 if known is None else known[0] + 1
        self._revisions.updateValue(run_key, (revision, evaluation.digest))
        return evaluation.with_revision(revision)
