"""`score`: evaluates every run in a data frame of spans, as `goldspan score` does."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Literal, get_args

from goldspan._extras import require_extra
from goldspan.errors import ConfigurationError
from goldspan.goldens import Goldens, load_goldens
from goldspan.model import RunUnit
from goldspan.scoring import evaluate
from goldspan.scoring.metrics.registry import resolve_metrics
from goldspan.spark.evaluation_rows import EVALUATION_SCHEMA
from goldspan.spark.partition_scoring import PartitionScorer, RunEvaluator
from goldspan.spark.telemetry_frames import SESSION_PREFIX, OnError, packed_traces

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from goldspan.scoring.metrics import MetricLike

Stitch = Literal["session", "trace"]
"""Which traces may be parts of one run."""
DEFAULT_MAX_SPANS = 100_000
"""The spans of one stitch key beyond which a run has no verdict; the same as in the gateway."""


def score(
    spans: DataFrame,
    goldens: Goldens | str | os.PathLike[str] | None = None,
    *,
    unit: RunUnit = "request",
    metrics: Iterable[MetricLike] | None = None,
    thresholds: Mapping[str, float] | None = None,
    strict: bool = False,
    golden_id_attributes: Sequence[str] | None = None,
    otlp_column: str | None = None,
    stitch: Stitch = "session",
    max_spans: int = DEFAULT_MAX_SPANS,
    on_error: OnError = "raise",
) -> DataFrame:
    """Return a data frame with an evaluation for each run in a data frame of spans.

    The evaluations are those of `goldspan score` for the same spans. Spark reads, distributes and sorts the spans; each
    Python worker extracts and evaluates the runs of thousands of spans at a time. Nothing is computed until the result
    is used.

        spans = spark.read.parquet("s3a://traces/2026/11/")
        evaluations = goldspan.spark.score(spans, "goldens.yaml")
        evaluations.groupBy("golden_id").avg("scores.tool_correctness").show()

    Args:
        spans: Spans as rows, with the columns of the tables `otel_traces` and `otel_logs` of OpenTelemetry's ClickHouse
            exporter (docs/spark.md), or a column with OTLP requests in protobuf or JSON, such as `value` of Kafka's
            messages. Rows may be in any order, and be repeated.
        goldens: Goldens, or the path of a golden file on the driver. They are sent to the executors.
        unit: What a run is.
        metrics: The metrics to measure, by name. Default: those that the golden lists.
        thresholds: The value that each metric must reach, in place of the golden's.
        strict: Raises every threshold to 1 and sets lower scores to 0.
        golden_id_attributes: The span attributes that may name a run's golden.
        otlp_column: The column with OTLP requests. Default: `value`, if the columns are not those of spans.
        stitch: Which traces may be parts of one run: those of one `session`, or none (`trace`), which needs only one
            shuffle.
        max_spans: The spans of a session or trace that are read at most. A run of a longer one has no verdict, and its
            reason says so. They bound the memory of a Python worker.
        on_error: What happens to a row that cannot be read: `raise` ends the query with an error, and `skip` logs a
            warning on the executor.

    Returns:
        A data frame with the columns of `EVALUATION_SCHEMA`.

    Raises:
        ConfigurationError: The columns are not known, or an option is wrong.
        GoldspanError: The golden file cannot be read.
        MissingExtraError: PySpark or pyarrow is not installed.
    """
    require_spark()
    evaluator = run_evaluator(goldens, unit, metrics, thresholds, strict, golden_id_attributes)
    if stitch not in get_args(Stitch):
        raise ConfigurationError(f"stitch must be 'session' or 'trace', not {stitch!r}.")
    traces = stitched_traces(packed_traces(spans, otlp_column, on_error), stitch)
    return traces.mapInArrow(PartitionScorer(evaluator, max_spans), EVALUATION_SCHEMA)


def run_evaluator(
    goldens: Goldens | str | os.PathLike[str] | None,
    unit: RunUnit,
    metrics: Iterable[MetricLike] | None,
    thresholds: Mapping[str, float] | None,
    strict: bool,
    golden_id_attributes: Sequence[str] | None,
) -> RunEvaluator:
    """Return the evaluator for some options. Raises `ConfigurationError` if one of them is wrong."""
    if unit not in get_args(RunUnit):
        raise ConfigurationError(f"unknown unit {unit!r}; choose one of {', '.join(get_args(RunUnit))}.")
    loaded = load_goldens(goldens) if isinstance(goldens, str | os.PathLike) else goldens
    names = None if metrics is None else list(metrics)
    resolve_metrics(names, thresholds)
    evaluate_run = partial(evaluate, goldens=loaded, metrics=names, thresholds=thresholds, strict=strict)
    return RunEvaluator(evaluate_run, unit, golden_id_attributes, () if loaded is None else loaded.components)


def require_spark() -> None:
    """Raise `MissingExtraError` if PySpark, or what it needs to run Python, is not installed."""
    with require_extra("spark"):
        import pandas  # noqa: F401 - PySpark needs it for functions of Arrow batches
        import pyarrow  # type: ignore[import-untyped]  # noqa: F401
        import pyspark  # noqa: F401


def stitched_traces(traces: DataFrame, stitch: Stitch = "session") -> DataFrame:
    """Return packed traces for a `PartitionScorer`: those of one stitch key one after the other, by start."""
    keyed = _with_stitch_key(traces, stitch)
    return keyed.repartition("stitch_key").sortWithinPartitions("stitch_key", "start_ns")


def _with_stitch_key(traces: DataFrame, stitch: Stitch) -> DataFrame:
    """Return the traces with the key whose traces are scored together."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F  # noqa: N812 - its usual name

    if stitch == "trace":
        return traces.select(F.col("trace_key").alias("stitch_key"), "start_ns", "packed")
    # A row holds the spans of one batch, and not each of them names the session: all rows of a trace get the same key.
    session_id = F.max("session_id").over(Window.partitionBy("trace_key"))
    session_key = F.concat(F.lit(SESSION_PREFIX), session_id)
    return traces.select(F.coalesce(session_key, "trace_key").alias("stitch_key"), "start_ns", "packed")
