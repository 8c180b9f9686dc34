"""Reads spans and log records from the rows of a data frame, and packs those of each trace."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from goldspan.errors import ConfigurationError, TraceFileError
from goldspan.extraction import session_of
from goldspan.model import SpanRecord, TelemetryRecord
from goldspan.otlp import json_documents, parquet_files, protobuf_signals, span_rows
from goldspan.otlp.decode_results import DecodeError, RecordBatch
from goldspan.spark.record_packing import pack_records

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]
    from pyspark.sql import DataFrame

OnError = Literal["raise", "skip"]
"""What happens to a row that cannot be read: `raise` ends the query, `skip` logs a warning on the executor."""

PACKED_SCHEMA = "trace_key string, session_id string, start_ns bigint, packed binary"
"""The records of one trace in one batch of rows: the trace id (of log records outside any trace: `session/` and their
session), the session that one of the records names, the first start, and the records as bytes."""
SESSION_PREFIX = "session/"
"""What precedes the id of a session in a key. A trace id contains no slash."""
OTLP = "otlp"
"""Our name of a column with OTLP requests."""
_DEFAULT_OTLP_COLUMN = "value"
"""The column of Kafka's messages."""

_log = logging.getLogger("goldspan")


def packed_traces(spans: DataFrame, otlp_column: str | None, on_error: OnError) -> DataFrame:
    """Return a data frame with the columns of `PACKED_SCHEMA`.

    Raises `ConfigurationError` if the columns of `spans` are not known.
    """
    if on_error not in ("raise", "skip"):
        raise ConfigurationError(f"on_error must be 'raise' or 'skip', not {on_error!r}.")
    from pyspark.sql import functions as F  # noqa: N812 - its usual name

    columns = _columns_to_read(spans.columns, otlp_column)
    # `mapInArrow` cannot address columns with a dot in their names, such as those of events.
    safe_names = {name: name.replace(".", "_") for name in columns}
    selected = [F.col(f"`{found}`").alias(safe_names[name]) for name, found in columns.items()]
    reader = TelemetryReader(safe_names, OTLP in columns, on_error)
    return spans.select(*selected).mapInArrow(reader, PACKED_SCHEMA)


def _columns_to_read(existing: list[str], otlp_column: str | None) -> dict[str, str]:
    """Returns the columns to read: our name of each, and its name in the data frame."""
    if otlp_column is not None:
        if otlp_column not in existing:
            raise ConfigurationError(f"the data frame has no column {otlp_column!r}; it has {', '.join(existing)}.")
        return {OTLP: otlp_column}
    try:
        return span_rows.column_names(existing)
    except DecodeError as error:
        if _DEFAULT_OTLP_COLUMN in existing:
            return {OTLP: _DEFAULT_OTLP_COLUMN}
        raise ConfigurationError(
            f"{error}. Name the column with OTLP requests in otlp_column, if there is one. The data frame has the "
            f"columns {', '.join(existing)}."
        ) from None


@dataclass(frozen=True, slots=True)
class TelemetryReader:
    """Reads the records of batches of rows. It runs on the executors.

    Args:
        columns: The names of the columns in the data frame, by our name: of OTLP, or of a table of spans.
        is_otlp: Whether the only column contains OTLP requests, in protobuf or JSON.
        on_error: What happens to a row that cannot be read.
    """

    columns: Mapping[str, str]
    is_otlp: bool
    on_error: OnError

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield a row for each trace in each batch."""
        for batch in batches:
            yield packed_batch(self._read(batch))

    def _read(self, batch: pa.RecordBatch) -> Iterator[TelemetryRecord]:
        decode = _decode_request if self.is_otlp else _decode_row
        for row in parquet_files.python_rows(batch, self.columns):
            try:
                found = decode(row)
            except DecodeError as error:
                self._report(str(error))
                continue
            if found.rejected:
                self._report(f"{found.rejected} of its records are invalid: {found.reason}")
            yield from found.records

    def _report(self, reason: str) -> None:
        if self.on_error == "raise":
            raise TraceFileError(f"a row of the data frame cannot be read: {reason}; on_error='skip' skips such rows")
        _log.warning("a row of the data frame was not read: %s", reason)


def _decode_row(row: Mapping[str, Any]) -> RecordBatch:
    return RecordBatch([span_rows.row_to_record(row)])


def _decode_request(row: Mapping[str, Any]) -> RecordBatch:
    """Returns the records of one OTLP request, in protobuf or JSON; none of an empty value (a Kafka tombstone)."""
    (value,) = row.values()
    request = value.encode() if isinstance(value, str) else bytes(value or b"")
    if not request.lstrip().startswith(b"{"):
        return protobuf_signals.decode_signals(request, _raise_loss)
    try:
        batch = json_documents.decode_document(json.loads(request))
    except (ValueError, RecursionError) as error:
        raise DecodeError(f"invalid JSON: {error}") from None
    if batch is None:
        raise DecodeError("JSON, but no traces and no logs")
    return batch


def _raise_loss(where: str, what: str) -> None:
    raise DecodeError(f"{where}: {what}")


def packed_batch(records: Iterable[TelemetryRecord]) -> pa.RecordBatch:
    """Return a row with the columns of `PACKED_SCHEMA` for each trace of some records."""
    import pyarrow as pa

    traces: dict[str, list[TelemetryRecord]] = {}
    for record in records:
        traces.setdefault(record.trace_id or f"{SESSION_PREFIX}{session_of(record) or ''}", []).append(record)
    return pa.RecordBatch.from_pydict(
        {
            "trace_key": pa.array(traces.keys(), pa.string()),
            "session_id": pa.array(map(_session_of_trace, traces.values()), pa.string()),
            "start_ns": pa.array(map(_first_start, traces.values()), pa.int64()),
            "packed": pa.array(map(pack_records, traces.values()), pa.binary()),
        }
    )


def _session_of_trace(records: Iterable[TelemetryRecord]) -> str | None:
    """Returns the session that the records of a trace name; of several, the last in order."""
    return max(filter(None, map(session_of, records)), default=None)


def _first_start(records: Iterable[TelemetryRecord]) -> int | None:
    times = (record.start_ns if isinstance(record, SpanRecord) else record.time_ns for record in records)
    return min((time for time in times if time is not None), default=None)
