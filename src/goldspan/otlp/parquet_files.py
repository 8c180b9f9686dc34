"""Reads and writes Parquet files with spans and log records as rows, see `span_rows`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import IO, Any

from goldspan._extras import require_extra
from goldspan.model import TelemetryRecord
from goldspan.otlp import span_rows
from goldspan.otlp.decode_results import DecodeError
from goldspan.otlp.span_rows import ColumnKind, Row
from goldspan.otlp.streams import LossReporter

MAGIC = b"PAR1"
"""The first bytes of every Parquet file."""
_BATCH_ROWS = 1000
"""Rows in memory while reading: messages make a row as long as 100 KB."""
_GROUP_ROWS = 5000
"""Rows in a row group that is written."""


def decode_file(
    source: Any, report: LossReporter, on_share_read: Callable[[float], object] = lambda share: None
) -> Iterator[Sequence[TelemetryRecord]]:
    """Yields the records of a Parquet file in groups, and reads only the columns that records are made of.

    Args:
        source: A path, or a file that can seek.
        report: Called for the rows that are invalid, and if the file cannot be read.
        on_share_read: Called with the share of all rows, from 0 to 1, that were read since the last call.
    """
    with require_extra("parquet"):
        import pyarrow as pa  # type: ignore[import-untyped]
        import pyarrow.parquet as pq  # type: ignore[import-untyped]
    try:
        with pq.ParquetFile(source) as file:
            names = span_rows.column_names(file.schema_arrow.names)
            rows_read = 0
            # Without threads one batch is in memory at a time.
            for batch in file.iter_batches(_BATCH_ROWS, columns=list(names.values()), use_threads=False):
                if records := _records_of(python_rows(batch, names), rows_read, report):
                    yield records
                rows_read += batch.num_rows
                on_share_read(batch.num_rows / file.metadata.num_rows)
    except DecodeError as error:
        report("whole file", str(error))
    except (pa.ArrowException, OSError) as error:
        report("end of file", f"the Parquet data is damaged ({error})")


def write_records(records: Iterable[TelemetryRecord], file: IO[bytes] | str) -> int:
    """Writes records as a Parquet file, a row group at a time, and returns their number."""
    with require_extra("parquet"):
        import pyarrow as pa
        from pyarrow.parquet import ParquetWriter
    schema = arrow_schema()
    remaining = iter(records)
    count = 0
    with ParquetWriter(file, schema, compression="zstd") as writer:
        while rows := [span_rows.record_to_row(record) for record in islice(remaining, _GROUP_ROWS)]:
            columns = [
                pa.array([_valid(row[name]) for row in rows], type=field.type)
                for name, field in zip(span_rows.COLUMNS, schema, strict=True)
            ]
            writer.write_batch(pa.record_batch(columns, schema=schema))
            count += len(rows)
    return count


def arrow_schema() -> Any:
    """Returns the columns of `span_rows` as a `pyarrow.Schema`."""
    with require_extra("parquet"):
        import pyarrow as pa
    text_map = pa.map_(pa.string(), pa.string())
    time = pa.timestamp("ns", tz="UTC")
    types: Mapping[ColumnKind, Any] = {
        "text": pa.string(),
        "time": time,
        "integer": pa.int64(),
        "map": text_map,
        "times": pa.list_(time),
        "texts": pa.list_(pa.string()),
        "maps": pa.list_(text_map),
    }
    return pa.schema([(name, types[kind]) for name, kind in span_rows.COLUMNS.items()])


def _records_of(rows: Iterable[Row], first: int, report: LossReporter) -> list[TelemetryRecord]:
    records: list[TelemetryRecord] = []
    for number, row in enumerate(rows, first + 1):
        try:
            records.append(span_rows.row_to_record(row))
        except DecodeError as error:
            report(f"row {number}", str(error))
    return records


def python_rows(batch: Any, names: Mapping[str, str]) -> list[Row]:
    """Returns the rows of an Arrow batch by our names of the columns; `names` has their names in the batch."""
    columns = [_python_values(batch.column(found)) for found in names.values()]
    return [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]


def _python_values(column: Any) -> list[Any]:
    """Returns the values of a column; a time in nanoseconds as an integer, because `datetime` has microseconds."""
    return list(_without_times(column).to_pylist())


def _without_times(column: Any) -> Any:
    """Returns an array with times and durations as integers of nanoseconds, also inside lists and structures."""
    import pyarrow as pa

    found = column.type
    if pa.types.is_dictionary(found):
        return _without_times(column.dictionary_decode())
    if pa.types.is_timestamp(found):
        return column.cast(pa.timestamp("ns", tz=found.tz)).cast(pa.int64())
    if pa.types.is_duration(found):
        return column.cast(pa.duration("ns")).cast(pa.int64())
    if pa.types.is_list(found) or pa.types.is_large_list(found):
        integers = _integer_type(found)
        return column if integers == found else column.cast(integers)
    return column


def _integer_type(found: Any) -> Any:
    """Returns a type with integers in place of times, which Arrow can cast if the times are in nanoseconds."""
    import pyarrow as pa

    if pa.types.is_timestamp(found) and found.unit == "ns":
        return pa.int64()
    if pa.types.is_list(found):
        return pa.list_(_integer_type(found.value_type))
    if pa.types.is_struct(found):
        return pa.struct([(each.name, _integer_type(each.type)) for each in found])
    return found


def _valid(value: Any) -> Any:
    """Returns a value for Arrow, which takes valid Unicode only."""
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "replace").decode()
    if isinstance(value, Mapping):
        return [(_valid(key), _valid(member)) for key, member in value.items()]
    return [_valid(item) for item in value] if isinstance(value, list) else value
