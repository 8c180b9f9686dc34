"""Reads rows of cases from JSON Lines, JSON lists and CSV files.

The first character determines the format, not the name of the file. `case_evaluation` interprets the rows.
"""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from io import TextIOWrapper
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple, TextIO

from goldspan.cases.case_fields import CASE_FIELDS
from goldspan.errors import GoldspanError
from goldspan.goldens.spelling import short_repr
from goldspan.model.name_folding import fold_name

_MAX_ROW_LENGTH = 16 * 1024 * 1024
_MAX_LIST_LENGTH = 256 * 1024 * 1024
"""The greatest length of a line, and of a JSON list, which is read as a whole, in characters."""
_DELIMITERS = ",;\t"

OnRowError = Callable[[str], None]
"""Called for each unreadable row with a sentence that states its location and the problem."""


class LocatedRow(NamedTuple):
    """A row and its location, such as `cases.csv, line 3`."""

    location: str
    row: Any


def read_case_rows(path: str, on_error: OnRowError) -> Iterator[LocatedRow]:
    """Yields the rows of a case file, or of standard input (`-`). Unreadable rows are reported and skipped.

    Raises `GoldspanError` if the file cannot be opened, or has no rows.
    """
    name = "standard input" if path == "-" else path
    with _open_text(path) as file:
        lines = _valid_lines(file, name, on_error)
        first = next((line for line in lines if line.text.strip()), None)
        if first is None:
            raise GoldspanError(f"{name}: holds no row.")
        yield from _choose_reader(first.text)(name, chain([first], lines), on_error)


class _NumberedLine(NamedTuple):
    number: int
    text: str


_Reader = Callable[[str, Iterable[_NumberedLine], OnRowError], Iterator[LocatedRow]]


def _choose_reader(first_line: str) -> _Reader:
    return {"[": _read_json_list, "{": _read_json_lines}.get(first_line.lstrip()[0], _read_csv)


@contextmanager
def _open_text(path: str) -> Iterator[TextIO]:
    # Invalid UTF-8 becomes surrogates, so that only the rows that contain it are skipped.
    options: Any = {"encoding": "utf-8-sig", "errors": "surrogateescape", "newline": ""}
    try:
        file = TextIOWrapper(sys.stdin.buffer, **options) if path == "-" else Path(path).open(**options)  # noqa: SIM115 - see below
    except OSError as error:
        problem = "there is no such file" if isinstance(error, FileNotFoundError) else (error.strerror or "unreadable")
        raise GoldspanError(f"{path}: cannot be read: {problem[0].lower()}{problem[1:]}.") from None
    with file:
        yield file


def _valid_lines(file: TextIO, name: str, on_error: OnRowError) -> Iterator[_NumberedLine]:
    """Yields the lines of a file; reports lines that are too long or not UTF-8."""
    number = 0
    while text := file.readline(_MAX_ROW_LENGTH):
        number += 1
        line = text
        while len(text) == _MAX_ROW_LENGTH and not text.endswith("\n"):
            text = file.readline(_MAX_ROW_LENGTH)
            line = ""
        if not line:
            on_error(f"{name}, line {number}: is longer than {_MAX_ROW_LENGTH:,} characters.")
        elif not _is_utf8(line):
            on_error(f"{name}, line {number}: is not UTF-8 text.")
        else:
            yield _NumberedLine(number, line)


def _is_utf8(line: str) -> bool:
    try:
        line.encode()
    except UnicodeEncodeError:
        return False
    return True


# --- JSON -------------------------------------------------------------------------------------------------------------


def _read_json_lines(name: str, lines: Iterable[_NumberedLine], on_error: OnRowError) -> Iterator[LocatedRow]:
    for number, text in lines:
        location = f"{name}, line {number}"
        if text.strip():
            try:
                yield LocatedRow(location, _parse_json(text, location))
            except GoldspanError as error:
                on_error(str(error))


def _read_json_list(name: str, lines: Iterable[_NumberedLine], on_error: OnRowError) -> Iterator[LocatedRow]:
    text, length = [], 0
    for line in lines:
        length += len(line.text)
        if length > _MAX_LIST_LENGTH:
            raise GoldspanError(f"{name}: is too long for a JSON list; write one row per line.")
        text.append(line.text)
    rows = _parse_json("".join(text), name)
    for number, row in enumerate(rows, start=1):
        yield LocatedRow(f"{name}, row {number}", row)


def _parse_json(text: str, location: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        line = f", line {error.lineno}" if error.lineno > 1 else ""
        problem = f"{error.msg[0].lower()}{error.msg[1:]} at column {error.colno}"
        raise GoldspanError(f"{location}{line}: not JSON: {problem}.") from None
    except (ValueError, RecursionError):
        raise GoldspanError(f"{location}: is nested too deeply, or holds a number of thousands of digits.") from None


# --- tables -----------------------------------------------------------------------------------------------------------


def _read_csv(name: str, lines: Iterable[_NumberedLine], on_error: OnRowError) -> Iterator[LocatedRow]:
    """Yields the rows of a CSV file. Its first line determines the columns and the delimiter."""
    csv.field_size_limit(max(_MAX_ROW_LENGTH, csv.field_size_limit()))  # the default is shorter than many outputs
    lines = iter(lines)
    header, delimiter = _read_csv_header(name, next(lines))
    row_line_numbers: list[int] = []

    def texts() -> Iterator[str]:
        for number, text in lines:
            row_line_numbers.append(number)
            yield text

    reader = csv.reader(texts(), delimiter=delimiter, skipinitialspace=True, strict=True)
    while True:
        row_line_numbers.clear()
        try:
            cells = next(reader, None)
        except csv.Error as error:
            on_error(f"{name}, line {row_line_numbers[0]}: not CSV: {error}.")
            continue
        if cells is None:
            return
        if len(cells) > len(header):
            on_error(
                f"{name}, line {row_line_numbers[0]}: has {len(cells)} cells, but the table has {len(header)} columns."
            )
        elif any(cells):
            yield LocatedRow(f"{name}, line {row_line_numbers[0]}", dict(zip(header, cells, strict=False)))


def _read_csv_header(name: str, line: _NumberedLine) -> tuple[list[str], str]:
    """Returns the columns and the delimiter: the one that yields a column of called tools."""
    for delimiter in _DELIMITERS:
        columns = [column.strip() for column in next(csv.reader([line.text], delimiter=delimiter))]
        if not _TOOLS_CALLED_COLUMNS.isdisjoint(map(fold_name, columns)):
            repeated = next((column for column in columns if columns.count(column) > 1 and column), None)
            if repeated is not None:
                raise GoldspanError(f"{name}, line {line.number}: the column {short_repr(repeated)} is repeated.")
            return columns, delimiter
    raise GoldspanError(
        f"{name}, line {line.number}: is neither JSON nor the header of a table with a column 'tools_called', but "
        f"{short_repr(line.text.strip())}."
    )


_TOOLS_CALLED_COLUMNS = frozenset(map(fold_name, CASE_FIELDS["tools_called"]))
