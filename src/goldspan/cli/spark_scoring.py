"""Evaluates the runs in traces with Apache Spark, for `score --engine spark`."""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from goldspan.cases.case_evaluation import Case
from goldspan.cli.batch_options import SparkOptions
from goldspan.cli.console import stderr_console, stdout_console
from goldspan.cli.evaluation_summary import EvaluationSummary
from goldspan.cli.input_reading import no_runs_error, print_losses
from goldspan.errors import BatchError, ConfigurationError
from goldspan.goldens import Goldens
from goldspan.model import Evaluation, Run, RunUnit
from goldspan.otlp.start_range import StartRange
from goldspan.otlp.trace_files import list_files
from goldspan.spark.evaluation_rows import EVALUATION_SCHEMA, evaluation_batch
from goldspan.spark.file_reading import TraceFiles
from goldspan.spark.frame_scoring import DEFAULT_MAX_SPANS, require_spark, stitched_traces
from goldspan.spark.partition_scoring import PartitionScorer, RunEvaluator

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]
    from pyspark.sql import DataFrame, SparkSession

_SUMMARY = "summary"
_APPLICATION = "goldspan score"
_PARTITIONS = "spark.sql.shuffle.partitions"
"""Spark's default of 200 takes half a minute for small inputs."""


def score_with_spark(
    paths: list[str],
    evaluate: Callable[[Case], Evaluation],
    spark_options: SparkOptions,
    *,
    goldens: Goldens | None,
    unit: RunUnit,
    golden_id_attributes: Sequence[str] | None,
    limit: int | None,
    prints_json: bool,
    start_range: StartRange,
) -> EvaluationSummary:
    """Evaluate the runs in traces and return their summary; print the JSON of each, or write it to a folder.

    The executors read the files, so these are on a shared file system or have URLs. Raises `BatchError` if Spark fails.
    """
    files = list_files(paths, start_range)
    for file in files:
        if not file.can_be_opened_again:
            raise ConfigurationError(f"--engine spark cannot read {file.path}: name files that the executors can open")
    if spark_options.out is not None and os.path.exists(spark_options.out):
        raise ConfigurationError(f"--out {spark_options.out}: it exists; --engine spark writes a new folder")
    require_spark()
    components = () if goldens is None else goldens.components
    evaluator = RunEvaluator(_CaseEvaluator(evaluate), unit, golden_id_attributes, components, start_range)
    with _spark_session(spark_options) as spark:
        traces = TraceFiles(spark, files)
        if _PARTITIONS not in spark_options.settings:
            spark.conf.set(_PARTITIONS, traces.partitions)
        scorer = SummarizingScorer(PartitionScorer(evaluator, DEFAULT_MAX_SPANS), limit)
        rows = stitched_traces(traces.packed_traces()).mapInArrow(scorer, f"{EVALUATION_SCHEMA}, {_SUMMARY} binary")
        # Two queries read the rows: the results, and the summaries. They are computed once.
        rows = rows.persist(_disk_only())
        try:
            summary = EvaluationSummary(limit)
            for row in rows.where(f"{_SUMMARY} is not null").select(_SUMMARY).collect():
                summary.merge(pickle.loads(row[_SUMMARY]))
            print_losses(traces.losses())
            if not summary:
                raise no_runs_error(paths, unit, start_range)
            results = rows.where(f"{_SUMMARY} is null").drop(_SUMMARY)
            if spark_options.out is not None:
                _write(results, spark_options.out, spark_options.out_format)
            elif prints_json:
                for row in results.select("document").toLocalIterator():
                    stdout_console().write_line(row.document)
        finally:
            rows.unpersist()
    return summary


@dataclass(frozen=True, slots=True)
class _CaseEvaluator:
    """Evaluates a run with the options of the command."""

    evaluate: Callable[[Case], Evaluation]

    def __call__(self, run: Run) -> Evaluation:
        return self.evaluate(Case(run))


@dataclass(frozen=True, slots=True)
class SummarizingScorer:
    """Scores a partition; the last row has the summary of its evaluations, and no evaluation."""

    scorer: PartitionScorer
    limit: int | None

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the evaluations of the partition, and its summary."""
        import pyarrow as pa

        summary = EvaluationSummary(self.limit)
        schema = evaluation_batch([]).schema.append(pa.field(_SUMMARY, pa.binary()))
        for evaluations in self.scorer.evaluations(batches):
            rows = evaluation_batch(list(summary.observe(evaluations)))
            yield pa.RecordBatch.from_arrays([*rows.columns, pa.nulls(rows.num_rows, pa.binary())], schema=schema)
        if summary:
            last: dict[str, list[Any]] = {name: [None] for name in schema.names} | {_SUMMARY: [pickle.dumps(summary)]}
            yield pa.RecordBatch.from_pydict(last, schema=schema)


@contextmanager
def _spark_session(options: SparkOptions) -> Iterator[SparkSession]:
    """Yield a session, and stop it afterwards. Raises `BatchError` if Spark fails."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    # The executors of this machine run this Python; those of a cluster have the setting of their own.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    is_terminal = str(stderr_console().is_terminal).lower()
    builder = SparkSession.builder.appName(_APPLICATION).config("spark.ui.showConsoleProgress", is_terminal)
    if options.master is not None:
        builder = builder.master(options.master)
    for key, value in options.settings.items():
        builder = builder.config(key, value)
    try:
        spark = builder.getOrCreate()
        spark.sparkContext.setLogLevel("OFF")
        try:
            yield spark
        finally:
            spark.stop()
    except (PySparkException, Py4JJavaError) as error:
        raise BatchError(f"Spark failed: {_reason_of(error)}") from error


def _disk_only() -> Any:
    from pyspark import StorageLevel

    return StorageLevel.DISK_ONLY


def _write(results: DataFrame, out: str, out_format: Literal["jsonl", "parquet"]) -> None:
    if out_format == "parquet":
        results.write.parquet(out)
    else:
        results.select("document").write.text(out)


def _reason_of(error: Exception) -> str:
    """Return the last line of the error of a Python worker, which has the reason, or else the first line."""
    lines = [line.strip() for line in str(error).splitlines()]
    raised = [line for line in lines if line.startswith("goldspan.errors.")]
    return raised[-1].partition(": ")[2] if raised else next(filter(None, lines), type(error).__name__)
