"""Stored runs as files for other programs: CSV for spreadsheets, Parquet for data frames, JSON lines for the rest."""

from __future__ import annotations

import csv
import io
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import IO, Any, cast, get_args

from goldspan.errors import ConfigurationError, StoreError
from goldspan.sinks.documents import to_json
from goldspan.store.columns import Column, columns_with
from goldspan.store.entries import storable
from goldspan.store.parquet import check_installed, write_parquet
from goldspan.store.protocol import Format, StoredRun, Target


def exported(
    runs: Iterable[StoredRun], target: Target, form: Format | None, *, metrics: Iterable[str], overwrite: bool
) -> int:
    """Write runs to a file or a binary stream, a column for the score of each metric; how many there were."""
    form = _form_of(target) if form is None else form
    if form not in get_args(Format):
        raise ConfigurationError(f"a store is written as {', '.join(get_args(Format))}, not as {form!r}")
    columns = columns_with(metrics)
    if form == "parquet":
        check_installed()
    number = 0

    def numbered() -> Iterator[StoredRun]:
        nonlocal number
        for run in runs:
            number += 1
            yield run

    with _opened(target, overwrite) as file:
        if form == "parquet":
            write_parquet(numbered(), columns, file)
        elif form == "csv":
            _write_csv(numbered(), columns, file)
        else:
            for run in numbered():
                file.write(f"{to_json(dict(run.current.document))}\n".encode())
    return number


def _form_of(target: Target) -> Format:
    suffix = Path(cast("str", getattr(target, "name", "") if _is_stream(target) else target)).suffix.lower()[1:]
    if suffix not in get_args(Format):
        raise ConfigurationError(f"{target}: its name does not say the format; it ends in .csv, .parquet or .jsonl")
    return cast("Format", suffix)


def _is_stream(target: Target) -> bool:
    return hasattr(target, "write")


@contextmanager
def _opened(target: Target, overwrite: bool) -> Iterator[IO[bytes]]:
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
_UNREADABLE = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")


def _write_csv(runs: Iterable[StoredRun], columns: tuple[Column, ...], file: IO[bytes]) -> None:
    text = io.TextIOWrapper(file, "utf-8", newline="", write_through=True)
    try:
        writer = csv.writer(text)
        writer.writerow([column.name for column in columns])
        for run in runs:
            writer.writerow([_cell(column.read(run)) for column in columns])
    finally:
        text.detach()  # the stream is somebody else's to close


def _cell(value: Any) -> Any:
    """Numbers stay numbers; texts are texts to a spreadsheet too, whatever they begin with."""
    if value is None or isinstance(value, (int, float)):
        return str(value).lower() if isinstance(value, bool) else value
    if isinstance(value, datetime):
        return value.isoformat(timespec="microseconds")
    text = value if isinstance(value, str) else ", ".join(value)
    text = _UNREADABLE.sub("\ufffd", storable(text))
    return _FORMULA.sub("'", text)
