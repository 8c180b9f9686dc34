"""`score_stream`: evaluates the runs in a stream of spans when their traces are idle."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from goldspan.errors import ConfigurationError
from goldspan.goldens import Goldens
from goldspan.model import RunUnit
from goldspan.spark.evaluation_rows import EVALUATION_SCHEMA
from goldspan.spark.frame_scoring import DEFAULT_MAX_SPANS, require_spark, run_evaluator
from goldspan.spark.telemetry_frames import OnError, packed_traces

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from goldspan.scoring.metrics import MetricLike

DEFAULT_IDLE_SECONDS = 30.0
DEFAULT_LATE_SECONDS = 600.0
STATE_STORE_SETTING: Final = "spark.sql.streaming.stateStore.providerClass"
STATE_STORE: Final = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
"""The setting of the Spark session that `score_stream` needs, and its value."""


def score_stream(
    spans: DataFrame,
    goldens: Goldens | str | os.PathLike[str] | None = None,
    *,
    idle_seconds: float = DEFAULT_IDLE_SECONDS,
    late_seconds: float = DEFAULT_LATE_SECONDS,
    unit: RunUnit = "request",
    metrics: Iterable[MetricLike] | None = None,
    thresholds: Mapping[str, float] | None = None,
    strict: bool = False,
    golden_id_attributes: Sequence[str] | None = None,
    otlp_column: str | None = None,
    max_spans: int = DEFAULT_MAX_SPANS,
    on_error: OnError = "skip",
) -> DataFrame:
    """Return a stream of evaluations for a stream of spans: one for each run, and one for each revision of it.

    The runs of a trace are evaluated when no span of it has arrived for `idle_seconds`. Spans that arrive later, up to
    `late_seconds` after the evaluation, cause a revision if they change the result. Spark keeps the spans in the state
    of the query, which its checkpoint protects.

        spark.conf.set(goldspan.spark.STATE_STORE_SETTING, goldspan.spark.STATE_STORE)
        messages = spark.readStream.format("kafka").option("subscribe", "otlp_spans")....load()
        evaluations = goldspan.spark.score_stream(messages, "goldens.yaml")
        evaluations.writeStream.option("checkpointLocation", "s3a://...").toTable("agent_evaluations")

    A row is identified by `run_id` and `revision`. Traces are not joined: a run is in one trace.

    Args:
        spans: A streaming data frame with the columns of `score`.
        idle_seconds: The time without a new span after which a trace is evaluated.
        late_seconds: How long after its evaluation the spans of a trace are kept.
        on_error: What happens to a row that cannot be read: `skip` logs a warning on the executor, and `raise` ends the
            query.
        goldens, unit, metrics, thresholds, strict, golden_id_attributes, otlp_column, max_spans: See `score`.

    Returns:
        A streaming data frame in append mode with the columns of `EVALUATION_SCHEMA`.

    Raises:
        ConfigurationError: The columns are not known, an option is wrong, or the state store is not RocksDB.
        MissingExtraError: PySpark or pyarrow is not installed.
    """
    require_spark()
    _require_streaming(spans)
    for name, seconds in (("idle_seconds", idle_seconds), ("late_seconds", late_seconds)):
        if not seconds > 0:
            raise ConfigurationError(f"{name} must be more than 0, not {seconds!r}.")
    from goldspan.spark.trace_processor import TraceProcessor

    evaluator = run_evaluator(goldens, unit, metrics, thresholds, strict, golden_id_attributes)
    processor = TraceProcessor(evaluator, round(idle_seconds * 1000), round(late_seconds * 1000), max_spans)
    return (
        packed_traces(spans, otlp_column, on_error)
        .groupBy("trace_key")
        .transformWithState(processor, EVALUATION_SCHEMA, outputMode="Append", timeMode="ProcessingTime")
    )


def _require_streaming(spans: DataFrame) -> None:
    if not spans.isStreaming:
        raise ConfigurationError("score_stream needs a streaming data frame; score() evaluates this one.")
    if not hasattr(spans.groupBy(), "transformWithState"):
        raise ConfigurationError("score_stream needs PySpark 4.1 or newer.")
    if spans.sparkSession.conf.get(STATE_STORE_SETTING, "") != STATE_STORE:
        raise ConfigurationError(
            f"score_stream needs the state store RocksDB: set {STATE_STORE_SETTING} to {STATE_STORE}."
        )
