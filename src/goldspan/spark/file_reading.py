"""Reads trace files in any known format on the executors, and packs the records of each trace."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Protocol

from goldspan.batch.input_parts import divided_files, require_traces_in_folders
from goldspan.errors import TraceFileError
from goldspan.otlp.trace_files import FilePart, Loss, no_traces_loss, read_part
from goldspan.spark.telemetry_frames import PACKED_SCHEMA, packed_batch

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]
    from pyspark import Accumulator
    from pyspark.sql import DataFrame, SparkSession

_RECORDS_AT_ONCE = 4096
"""The records that are packed together."""
_MAX_LOSSES = 1000
"""The losses that are sent to the driver."""


class TraceFiles:
    """Trace files that the executors can open, because they are on a shared file system or have URLs."""

    def __init__(self, spark: SparkSession, files: Sequence[FilePart]) -> None:
        self._spark = spark
        self._files = files
        self._groups = divided_files(files, spark.sparkContext.defaultParallelism)
        self._losses: Accumulator[frozenset[Loss]] = spark.sparkContext.accumulator(frozenset(), _LossSet())
        self._errors: Accumulator[frozenset[Loss]] = spark.sparkContext.accumulator(frozenset(), _LossSet())

    @property
    def partitions(self) -> int:
        """The partitions that suit the size of the files: one for each task that reads them, and for each core."""
        cores: int = self._spark.sparkContext.defaultParallelism
        return max(len(self._groups), cores)

    def packed_traces(self) -> DataFrame:
        """Return a data frame with the columns of `PACKED_SCHEMA`. Large files are read in parts by several tasks."""
        context = self._spark.sparkContext
        groups = [(pickle.dumps(group),) for group in self._groups]
        rows = context.parallelize(groups, max(1, len(groups)))
        frame = self._spark.createDataFrame(rows, "files binary")
        return frame.mapInArrow(FileReader(self._losses, self._errors), PACKED_SCHEMA)

    def losses(self) -> list[Loss]:
        """Return what could not be read, at most a thousand places; complete when the data frame was computed.

        Raises `TraceFileError` for a folder in which no file is a trace file.
        """
        require_traces_in_folders(self._files, {loss.path: loss.what for loss in self._errors.value})
        return sorted(self._losses.value, key=str)


class _LossSet:
    """How an accumulator unites sets: a task that Spark repeats adds nothing. The names are those of PySpark."""

    def zero(self, value: frozenset[Loss]) -> frozenset[Loss]:
        return frozenset()

    def addInPlace(self, value1: frozenset[Loss], value2: frozenset[Loss]) -> frozenset[Loss]:  # noqa: N802
        return frozenset(islice(value1 | value2, _MAX_LOSSES))


class _Losses(Protocol):
    """Takes losses, as an accumulator does."""

    def add(self, term: frozenset[Loss]) -> None: ...


@dataclass(frozen=True, slots=True)
class FileReader:
    """Reads the files of each row. It runs on the executors."""

    losses: _Losses
    errors: _Losses
    """The files in folders that are no trace files."""

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of each trace in the files."""
        for batch in batches:
            for files in batch.column("files"):
                for part in pickle.loads(files.as_buffer()):
                    yield from self._read(part)

    def _read(self, part: FilePart) -> Iterator[pa.RecordBatch]:
        records = read_part(part, lambda loss: self._report(part, loss))
        try:
            while some := list(islice(records, _RECORDS_AT_ONCE)):
                yield packed_batch(some)
        except TraceFileError as error:
            if part.folder is None:
                raise
            self.errors.add(frozenset([Loss(part.path, "whole file", str(error))]))
            self.losses.add(frozenset([no_traces_loss(part.path)]))

    def _report(self, part: FilePart, loss: Loss) -> None:
        where = loss.where if part.start == 0 else f"{loss.where} after byte {part.start}"
        self.losses.add(frozenset([Loss(loss.path, where, loss.what)]))
