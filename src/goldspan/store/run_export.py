"""Writes stored runs as CSV for spreadsheets, Parquet for data frames, or JSON lines."""

from __future__ import annotations

import csv
import io
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timezone
from itertools import islice
from pathlib import Path
from typing import IO, Any, Literal, cast, get_args

from goldspan._extras import require_extra
from goldspan.errors import ConfigurationError, StoreError
from goldspan.sinks.serialization import to_json
from goldspan.store.run_records import valid_unicode
from goldspan.store.store_protocol import ExportFormat, ExportTarget, StoredRun

ColumnType = Literal["text", "texts", "number", "integer", "boolean", "time"]


@dataclass(frozen=True, slots=True)
class TableRow:
    """What the columns of one row are read from. A key that the document lacks is an empty cell."""

    document: Mapping[str, Any]
    """The stored part of an evaluation."""
    time_ns: int | None
    """The time of the run, in nanoseconds since the Unix epoch."""
    evaluation_count: int | None
    """How many evaluations of the run are stored; `None`: it is not in a store."""

    @classmethod
    def of_stored_run(cls, run: StoredRun) -> TableRow:
        """Return the row of a run and its current evaluation."""
        return cls(run.current.document, run.time_ns, run.evaluation_count)


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table of runs."""

    name: str
    column_type: ColumnType
    read: Callable[[TableRow], Any]


def table_columns(metrics: Iterable[str]) -> tuple[Column, ...]:
    """Return the base columns and one column for the score of each metric."""
    return (*BASE_COLUMNS, *(Column(f"score.{metric}", "number", _score_reader(metric)) for metric in metrics))


def document_column(name: str, column_type: ColumnType = "text") -> Column:
    """Return the column of a key of the document."""
    return Column(name, column_type, lambda row: row.document.get(name))


def _tools_column(name: str, verdict: str) -> Column:
    """Return a column with the tools of the comparison rows that have a verdict."""

    def read(row: TableRow) -> list[str] | None:
        document = row.document
        if "rows" not in document:
            return None
        calls = document["tool_calls"]
        rows = (each for each in document["rows"] if each["verdict"] == verdict)
        return [each["expected"] or calls[each["called_at"]]["name"] for each in rows]

    return Column(name, "texts", read)


def _golden_match(row: TableRow) -> Mapping[str, Any]:
    return row.document.get("golden_match") or {}


def _start_time(row: TableRow) -> datetime | None:
    if row.time_ns is None:
        return None
    seconds, nanoseconds = divmod(row.time_ns, 10**9)
    return datetime.fromtimestamp(seconds, timezone.utc).replace(microsecond=nanoseconds // 1000)


def _score_reader(metric: str) -> Callable[[TableRow], float | None]:
    def read(row: TableRow) -> float | None:
        scores = row.document.get("scores", ())
        value = next((score["value"] for score in scores if score["metric"] == metric), None)
        return None if value is None else float(value)

    return read


BASE_COLUMNS = (
    document_column("run_id"),
    Column("time", "time", _start_time),
    document_column("unit"),
    document_column("trace_ids", "texts"),
    document_column("service"),
    document_column("environment"),
    document_column("agent"),
    document_column("component"),
    document_column("session_id"),
    document_column("input"),
    document_column("golden_id"),
    Column("golden_match", "text", lambda row: _golden_match(row).get("how")),
    Column("similarity", "number", lambda row: _golden_match(row).get("similarity")),
    document_column("passed", "boolean"),
    document_column("reason"),
    document_column("tools_used", "texts"),
    document_column("expected_tools", "texts"),
    _tools_column("missing", "missing"),
    _tools_column("unexpected", "unexpected"),
    _tools_column("forbidden", "forbidden"),
    document_column("revision", "integer"),
    Column("evaluations", "integer", lambda row: row.evaluation_count),
)
"""The columns of every table, which precede the scores."""


_ROW_GROUP_SIZE = 5000
"""Runs in a row group, which are in memory at the same time."""


def require_pyarrow() -> None:
    """Raise `MissingExtraError` if pyarrow is not installed."""
    with require_extra("parquet"):
        import pyarrow.parquet  # type: ignore[import-untyped]  # noqa: F401 - checks that it is installed


def write_parquet(rows: Iterable[TableRow], columns: Sequence[Column], file: IO[bytes]) -> None:
    """Write runs as a Parquet table, a row group at a time."""
    import pyarrow as pa
    from pyarrow.parquet import ParquetWriter

    arrow_types: dict[ColumnType, Any] = {
        "text": pa.string(),
        "texts": pa.list_(pa.string()),
        "number": pa.float64(),
        "integer": pa.int64(),
        "boolean": pa.bool_(),
        "time": pa.timestamp("us", tz="UTC"),
    }
    schema = pa.schema([(column.name, arrow_types[column.column_type]) for column in columns])
    remaining = iter(rows)
    with ParquetWriter(file, schema) as writer:
        while group := list(islice(remaining, _ROW_GROUP_SIZE)):
            arrays = [[cell_value(column.read(row)) for row in group] for column in columns]
            writer.write_table(pa.table(arrays, schema=schema))


def cell_value(value: Any) -> Any:
    """Return the value of a cell for Arrow and data frames, whose texts must be valid Unicode."""
    if isinstance(value, str):
        return valid_unicode(value)
    return list(map(valid_unicode, value)) if isinstance(value, list) else value


def export_runs(
    runs: Iterable[StoredRun],
    target: ExportTarget,
    export_format: ExportFormat | None,
    *,
    metrics: Iterable[str],
    overwrite: bool,
) -> int:
    """Write runs to a file or a binary stream and return their number."""
    export_format = _format_of(target) if export_format is None else export_format
    if export_format not in get_args(ExportFormat):
        raise ConfigurationError(
            f"the format of an export is {', '.join(get_args(ExportFormat))}, not {export_format!r}"
        )
    columns = table_columns(metrics)
    if export_format == "parquet":
        require_pyarrow()
    count = 0

    def counted() -> Iterator[StoredRun]:
        nonlocal count
        for run in runs:
            count += 1
            yield run

    with _open_target(target, overwrite) as file:
        if export_format == "parquet":
            write_parquet(map(TableRow.of_stored_run, counted()), columns, file)
        elif export_format == "csv":
            _write_csv(map(TableRow.of_stored_run, counted()), columns, file)
        else:
            for run in counted():
                file.write(f"{to_json(dict(run.current.document))}\n".encode())
    return count


def _format_of(target: ExportTarget) -> ExportFormat:
    suffix = Path(cast("str", getattr(target, "name", "") if _is_stream(target) else target)).suffix.lower()[1:]
    if suffix not in get_args(ExportFormat):
        raise ConfigurationError(
            f"{target}: the name must end in .csv, .parquet or .jsonl, or the format must be given"
        )
    return cast("ExportFormat", suffix)


def _is_stream(target: ExportTarget) -> bool:
    return hasattr(target, "write")


@contextmanager
def _open_target(target: ExportTarget, overwrite: bool) -> Iterator[IO[bytes]]:
    """Yield the stream itself, or a temporary file that replaces the target when it is complete."""
    if _is_stream(target):
        yield cast("IO[bytes]", target)
        return
    path = Path(cast("str", target))
    if path.exists() and not overwrite:
        raise StoreError(f"{path}: the file exists; pass overwrite=True to replace it")
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with temporary.open("wb") as file:
            yield file
        temporary.replace(path)
    except OSError as error:
        raise StoreError(f"{path}: it cannot be written: {error.strerror}") from error
    finally:
        with suppress(OSError):  # it was renamed, or never created
            temporary.unlink()


_FORMULA = re.compile(r"\A(?= *[=+\-@\t\r\n＝＋－＠])|(?<=[;\t\r\n])(?= *[=+\-@＝＋－＠])")
"""The start of a cell that a spreadsheet may interpret as a formula (OWASP, CSV injection). In many locales,
spreadsheets separate cells by semicolons, even in quoted text, so a cell can also start inside a text."""
_CONTROL_CHARACTERS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")


def _write_csv(rows: Iterable[TableRow], columns: tuple[Column, ...], file: IO[bytes]) -> None:
    text = io.TextIOWrapper(file, "utf-8", newline="", write_through=True)
    try:
        writer = csv.writer(text)
        writer.writerow([column.name for column in columns])
        for row in rows:
            writer.writerow([_csv_cell(column.read(row)) for column in columns])
    finally:
        text.detach()  # the caller closes the stream


def _csv_cell(value: Any) -> Any:
    """Return a cell: numbers stay numbers, and a text that a spreadsheet could interpret as a formula is escaped."""
    if value is None or isinstance(value, (int, float)):
        return str(value).lower() if isinstance(value, bool) else value
    if isinstance(value, datetime):
        return value.isoformat(timespec="microseconds")
    text = value if isinstance(value, str) else ", ".join(value)
    text = _CONTROL_CHARACTERS.sub("\ufffd", valid_unicode(text))
    return _FORMULA.sub("'", text)
