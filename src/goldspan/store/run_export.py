"""Stored runs as files for other programs: CSV for spreadsheets, Parquet for data frames, JSON lines for the rest."""

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

from goldspan.errors import ConfigurationError, MissingExtraError, StoreError
from goldspan.sinks.serialization import to_json
from goldspan.store.run_records import valid_unicode
from goldspan.store.store_protocol import ExportFormat, ExportTarget, StoredRun

ColumnType = Literal["text", "texts", "number", "integer", "boolean", "time"]


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table of runs."""

    name: str
    column_type: ColumnType
    read: Callable[[StoredRun], Any]


def table_columns(metrics: Iterable[str]) -> tuple[Column, ...]:
    """All columns: those of every table, and one for the score of each metric."""
    return (*BASE_COLUMNS, *(Column(f"score.{metric}", "number", _score_reader(metric)) for metric in metrics))


def _document_column(name: str, kind: ColumnType = "text") -> Column:
    return Column(name, kind, lambda run: run.current.document.get(name))


def _tools_column(name: str, verdict: str) -> Column:
    """The tools of the rows of one verdict."""

    def read(run: StoredRun) -> list[str]:
        document = run.current.document
        calls = document["tool_calls"]
        rows = (row for row in document["rows"] if row["verdict"] == verdict)
        return [row["expected"] or calls[row["called_at"]]["name"] for row in rows]

    return Column(name, "texts", read)


def _golden_match(run: StoredRun) -> Mapping[str, Any]:
    return run.current.document["golden_match"] or {}


def _start_time(run: StoredRun) -> datetime:
    seconds, nanoseconds = divmod(run.time_ns, 10**9)
    return datetime.fromtimestamp(seconds, timezone.utc).replace(microsecond=nanoseconds // 1000)


def _score_reader(metric: str) -> Callable[[StoredRun], float | None]:
    def read(run: StoredRun) -> float | None:
        scores = run.current.document["scores"]
        value = next((score["value"] for score in scores if score["metric"] == metric), None)
        return None if value is None else float(value)

    return read


BASE_COLUMNS = (
    Column("run_id", "text", lambda run: run.run_id),
    Column("time", "time", _start_time),
    _document_column("unit"),
    _document_column("trace_ids", "texts"),
    _document_column("service"),
    _document_column("environment"),
    _document_column("agent"),
    _document_column("component"),
    _document_column("session_id"),
    _document_column("input"),
    _document_column("golden_id"),
    Column("golden_match", "text", lambda run: _golden_match(run).get("how")),
    Column("similarity", "number", lambda run: _golden_match(run).get("similarity")),
    _document_column("passed", "boolean"),
    _document_column("reason"),
    _document_column("tools_used", "texts"),
    _document_column("expected_tools", "texts"),
    _tools_column("missing", "missing"),
    _tools_column("unexpected", "unexpected"),
    _tools_column("forbidden", "forbidden"),
    Column("revision", "integer", lambda run: run.current.revision),
    Column("evaluations", "integer", lambda run: run.evaluation_count),
)
"""What a table says of each run, before the scores."""


_ROW_GROUP_SIZE = 5000
"""Runs in a row group: so many are in memory at once."""


def require_pyarrow() -> None:
    """Raise `MissingExtraError` where pyarrow is not installed."""
    try:
        import pyarrow.parquet  # type: ignore[import-untyped]  # noqa: F401 - whether it can be
    except ImportError:
        raise MissingExtraError("writing Parquet", "parquet") from None


def write_parquet(runs: Iterable[StoredRun], columns: Sequence[Column], file: IO[bytes]) -> None:
    """Write runs as a table with typed columns, a row group at a time."""
    import pyarrow as pa
    from pyarrow.parquet import ParquetWriter

    kinds: dict[ColumnType, Any] = {
        "text": pa.string(),
        "texts": pa.list_(pa.string()),
        "number": pa.float64(),
        "integer": pa.int64(),
        "boolean": pa.bool_(),
        "time": pa.timestamp("us", tz="UTC"),
    }
    schema = pa.schema([(column.name, kinds[column.column_type]) for column in columns])
    waiting = iter(runs)
    with ParquetWriter(file, schema) as writer:
        while group := list(islice(waiting, _ROW_GROUP_SIZE)):
            arrays = [[_arrow_value(column.read(run)) for run in group] for column in columns]
            writer.write_table(pa.table(arrays, schema=schema))


def _arrow_value(value: Any) -> Any:
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
    """Write runs to a file or a binary stream, a column for the score of each metric; how many there were."""
    export_format = _format_of(target) if export_format is None else export_format
    if export_format not in get_args(ExportFormat):
        raise ConfigurationError(f"a store is written as {', '.join(get_args(ExportFormat))}, not as {export_format!r}")
    columns = table_columns(metrics)
    if export_format == "parquet":
        require_pyarrow()
    number = 0

    def numbered() -> Iterator[StoredRun]:
        nonlocal number
        for run in runs:
            number += 1
            yield run

    with _open_target(target, overwrite) as file:
        if export_format == "parquet":
            write_parquet(numbered(), columns, file)
        elif export_format == "csv":
            _write_csv(numbered(), columns, file)
        else:
            for run in numbered():
                file.write(f"{to_json(dict(run.current.document))}\n".encode())
    return number


def _format_of(target: ExportTarget) -> ExportFormat:
    suffix = Path(cast("str", getattr(target, "name", "") if _is_stream(target) else target)).suffix.lower()[1:]
    if suffix not in get_args(ExportFormat):
        raise ConfigurationError(f"{target}: its name does not say the format; it ends in .csv, .parquet or .jsonl")
    return cast("ExportFormat", suffix)


def _is_stream(target: ExportTarget) -> bool:
    return hasattr(target, "write")


@contextmanager
def _open_target(target: ExportTarget, overwrite: bool) -> Iterator[IO[bytes]]:
    """The stream itself, or a file that takes its place when all is written."""
    if _is_stream(target):
        yield cast("IO[bytes]", target)
        return
    path = Path(cast("str", target))
    if path.exists() and not overwrite:
        raise StoreError(f"{path}: it is there already; say so if it shall be replaced")
    unfinished = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with unfinished.open("wb") as file:
            yield file
        unfinished.replace(path)
    except OSError as error:
        raise StoreError(f"{path}: it cannot be written: {error.strerror}") from error
    finally:
        with suppress(OSError):  # it has its name by now, or there never was one
            unfinished.unlink()


_FORMULA = re.compile(r"\A(?= *[=+\-@\t\r\n＝＋－＠])|(?<=[;\t\r\n])(?= *[=+\-@＝＋－＠])")
"""Where a cell begins that a spreadsheet may take for a formula (OWASP, CSV injection). In half of the world cells are
separated by semicolons, and one begins in the middle of a text, quoted or not."""
_CONTROL_CHARACTERS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")


def _write_csv(runs: Iterable[StoredRun], columns: tuple[Column, ...], file: IO[bytes]) -> None:
    text = io.TextIOWrapper(file, "utf-8", newline="", write_through=True)
    try:
        writer = csv.writer(text)
        writer.writerow([column.name for column in columns])
        for run in runs:
            writer.writerow([_csv_cell(column.read(run)) for column in columns])
    finally:
        text.detach()  # the stream is somebody else's to close


def _csv_cell(value: Any) -> Any:
    """Numbers stay numbers; texts are texts to a spreadsheet too, whatever they begin with."""
    if value is None or isinstance(value, (int, float)):
        return str(value).lower() if isinstance(value, bool) else value
    if isinstance(value, datetime):
        return value.isoformat(timespec="microseconds")
    text = value if isinstance(value, str) else ", ".join(value)
    text = _CONTROL_CHARACTERS.sub("\ufffd", valid_unicode(text))
    return _FORMULA.sub("'", text)
