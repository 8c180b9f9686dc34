"""Reads and writes Parquet files with spans and log records as rows, see `span_rows`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, groupby, islice
from typing import IO, Any, Final

from goldspan._extras import require_extra
from goldspan.model import TelemetryRecord
from goldspan.otlp import span_rows
from goldspan.otlp.decode_results import DecodeError
from goldspan.otlp.span_rows import ColumnKind, Row
from goldspan.otlp.start_range import ALL_STARTS, StartRange
from goldspan.otlp.streams import LossReporter

MAGIC = b"PAR1"
"""The first bytes of every Parquet file."""
_BATCH_ROWS = 1000
"""Rows in memory while reading: messages make a row as long as 100 KB."""
_GROUP_ROWS = 5000
"""Rows in a row group that is written."""
_UNIT_NS: Final[Mapping[str, int]] = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}


def decode_file(
    source: Any,
    report: LossReporter,
    on_share_read: Callable[[float], object] = lambda share: None,
    start_range: StartRange = ALL_STARTS,
) -> Iterator[Sequence[TelemetryRecord]]:
    """Yields the records of a Parquet file in groups, and reads only the columns that records are made of.

    Row groups whose statistics show that no record is in the time range are not read. Other records outside the range
    may be among the results, for example if the column of times has no statistics or is text. Rows that are left out
    are not checked, and count as readable.

    Args:
        source: A path, or a file that can seek.
        report: Called for the rows that are invalid, and if the file cannot be read.
        on_share_read: Called with the share of all rows, from 0 to 1, that were read or skipped since the last call.
        start_range: The records that are needed, by the start of spans and the time of log records.
    """
    with require_extra("parquet"):
        import pyarrow as pa  # type: ignore[import-untyped]
        import pyarrow.parquet as pq  # type: ignore[import-untyped]
    try:
        fragment = _fragment_of(source) if start_range.is_bounded else None
        with pq.ParquetFile(source, metadata=None if fragment is None else fragment.metadata) as file:
            names = span_rows.column_names(file.schema_arrow.names)
            sizes = [file.metadata.row_group(group).num_rows for group in range(file.num_row_groups)]
            rows = sum(sizes)
            groups = range(len(sizes)) if fragment is None else _groups_in(start_range, fragment, names)
            if skipped := rows - sum(sizes[group] for group in groups):
                yield []
                on_share_read(skipped / rows)
            for first, batch in _iter_batches(file, groups, sizes, list(names.values())):
                positions = _positions_in(start_range, batch, names)
                records = _records_of(batch, first, positions, names, report)
                if records or len(positions) < batch.num_rows:
                    yield records
                on_share_read(batch.num_rows / rows)
    except DecodeError as error:
        report("whole file", str(error))
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
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


def _fragment_of(source: Any) -> Any:
    """Returns the `pyarrow.dataset.ParquetFileFragment` of a path or an open file."""
    from pyarrow.dataset import ParquetFileFormat  # type: ignore[import-untyped]
    from pyarrow.fs import LocalFileSystem  # type: ignore[import-untyped]

    return ParquetFileFormat().make_fragment(source, LocalFileSystem() if isinstance(source, str) else None)


def _groups_in(start_range: StartRange, fragment: Any, names: Mapping[str, str]) -> Sequence[int]:
    """Returns the numbers of the row groups that can have records in the range, by their statistics."""
    name = names.get("Timestamp")
    condition = None if name is None else _time_condition(start_range, name, fragment.physical_schema.field(name).type)
    if condition is not None:
        fragment = fragment.subset(filter=condition)
    return [group.id for group in fragment.row_groups]


def _time_condition(start_range: StartRange, name: str, found: Any) -> Any:
    """Returns the `pyarrow.dataset.Expression` of rows in the range; `None` for a type that is not compared.

    Rows without a time are in it.
    """
    import pyarrow as pa
    from pyarrow.dataset import field, scalar

    if not (pa.types.is_timestamp(found) or pa.types.is_int64(found) or pa.types.is_uint64(found)):
        return None
    unit_ns = _UNIT_NS[found.unit] if pa.types.is_timestamp(found) else 1
    lowest, highest = (0, 2**64 - 1) if pa.types.is_uint64(found) else (-(2**63), 2**63 - 1)
    time = field(name)
    inside = scalar(True)
    if start_range.since_ns is not None:
        start = -(-start_range.since_ns // unit_ns)
        inside = time >= pa.scalar(max(lowest, min(start, highest)), found)
    if start_range.until_ns is not None and (end := -(-start_range.until_ns // unit_ns)) <= highest:
        inside = (time < pa.scalar(max(lowest, end), found)) & inside
    return time.is_null() | (time == pa.scalar(0, found)) | inside


def _iter_batches(
    file: Any, groups: Sequence[int], sizes: Sequence[int], columns: list[str]
) -> Iterator[tuple[int, Any]]:
    """Yields the batches of some row groups, each with the number of its first row in the file, from 0.

    Without threads one batch is in memory at a time. The scanner of a dataset would decode whole row groups.
    """
    firsts = list(accumulate(sizes, initial=0))
    for _, together in groupby(enumerate(groups), lambda item: item[1] - item[0]):
        numbers = [group for _, group in together]
        first = firsts[numbers[0]]
        for batch in file.iter_batches(_BATCH_ROWS, row_groups=numbers, columns=columns, use_threads=False):
            yield first, batch
            first += batch.num_rows


def _positions_in(start_range: StartRange, batch: Any, names: Mapping[str, str]) -> Sequence[int]:
    """Returns the positions of the rows in the range, and of those whose time is no time and no integer."""
    if not start_range.is_bounded or "Timestamp" not in names:
        return range(batch.num_rows)
    times = _python_values(batch.column(names["Timestamp"]))
    return [at for at, time in enumerate(times) if not isinstance(time, int) or start_range.includes(time)]


def _records_of(
    batch: Any, first: int, positions: Sequence[int], names: Mapping[str, str], report: LossReporter
) -> list[TelemetryRecord]:
    import pyarrow as pa

    chosen = batch if len(positions) == batch.num_rows else batch.take(pa.array(positions, pa.int64()))
    records: list[TelemetryRecord] = []
    for position, row in zip(positions, python_rows(chosen, names), strict=True):
        try:
            records.append(span_rows.row_to_record(row))
        except DecodeError as error:
            report(f"row {first + position + 1}", str(error))
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
