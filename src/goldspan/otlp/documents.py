"""Find the JSON documents in lines of text, however they were written down.

One a line as the Collector does it, one over many lines, several in an array, several back to back: all are read by
one rule. What stands between documents (white space, commas, square brackets, a byte order mark) is passed over; a
line that ends in the middle of a document is continued by the next, unless that is a whole one by itself.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

from goldspan.otlp import shapes
from goldspan.otlp.json_fields import parse
from goldspan.otlp.streams import Report

_BETWEEN = re.compile(r"[\s,\[\]\ufeff]*")
_BRACKETS = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"?|[{}\[\]]', re.DOTALL)
_LISTS_OF_RECORDS = ('"spans"', '"logRecords"', '"log_records"')


class _BrokenError(Exception):
    def __init__(self, what: str, *, start: int, at: int, unfinished: bool) -> None:
        super().__init__(what)
        self.start = start
        """Where the broken document begins."""
        self.at = at
        """Where it breaks."""
        self.unfinished = unfinished
        """Whether nothing is wrong but that the text ends too early."""


def documents(raw_lines: Iterable[bytes], report: Report) -> Iterator[tuple[int, Any]]:
    """Each JSON value with the number of the line where it begins. What cannot be read goes to `report`."""
    unfinished: list[str] = []
    began = 0
    seen = False
    for number, raw in enumerate(raw_lines, 1):
        line = _as_text(raw, number, report)
        if unfinished:
            if not _stands_alone(line):
                unfinished.append(line)
                continue
            yield from _values_and_losses("\n".join(unfinished), began, report)
            unfinished.clear()
        try:
            for _, value in _values(line):
                seen = True
                yield number, value
        except _BrokenError as broken:
            if broken.unfinished:
                unfinished.append(line[broken.start :])
                began = number
            else:
                report(f"line {number}", str(broken))
    if unfinished:
        yield from _values_and_losses("\n".join(unfinished), began, report, only=not seen)


def _as_text(raw: bytes, number: int, report: Report) -> str:
    if b"\0" in raw:  # what some file systems leave at the end of a file after a crash
        report(f"line {number}", "NUL bytes, as a crash leaves them")
        raw = raw.replace(b"\0", b"")
    try:
        return raw.decode()
    except UnicodeDecodeError:
        report(f"line {number}", "bytes that are not UTF-8 were replaced")
        return raw.decode(errors="replace")


def _stands_alone(line: str) -> bool:
    """Whether the line is a whole document, so that it cannot belong to the document before it."""
    if not line.startswith("{") or not line.rstrip().endswith("}"):
        return False
    try:
        return all(value and shapes.is_whole(value) for _, value in _values(line))
    except _BrokenError:
        return False


def _values(text: str, start: int = 0) -> Iterator[tuple[int, Any]]:
    """The JSON objects from `start` on, each with its position. Raises `_BrokenError`."""
    while (start := _end_of_gap(text, start)) < len(text):
        if text[start] != "{":
            raise _not_json("no object begins here", text, start, start)
        try:
            value, end = parse(text, start)
        except ValueError as error:
            raise _broken(error, text, start) from None
        yield start, value
        start = end


def _broken(error: ValueError, text: str, start: int) -> _BrokenError:
    if isinstance(error, json.JSONDecodeError):
        return _not_json(error.msg, text, start, error.pos)
    # No fault of syntax: nested too deeply, or a number of too many digits.
    return _BrokenError(f"not read: {error}", start=start, at=start, unfinished=False)


def _not_json(why: str, text: str, start: int, at: int) -> _BrokenError:
    what = f"not JSON: {why} (column {at - text.rfind(chr(10), 0, at)})"
    unfinished = why.startswith("Unterminated string") or not text[at:].strip()
    return _BrokenError(what, start=start, at=at, unfinished=unfinished)


def _end_of_gap(text: str, start: int) -> int:
    gap = _BETWEEN.match(text, start)
    return gap.end() if gap else start


def _values_and_losses(text: str, began: int, report: Report, *, only: bool = False) -> Iterator[tuple[int, Any]]:
    """The values of a text of many lines; after a broken one it goes on with the next line that begins with `{`.

    Where a document that was cut off is the `only` one of its file, its whole spans are read all the same.
    """
    start, line, reported = 0, began, 0
    while start >= 0:
        try:
            for at, value in _values(text, start):
                line, start, only = line + text.count("\n", start, at), at, False
                yield line, value
            return
        except _BrokenError as broken:
            line, start = line + text.count("\n", start, broken.start), broken.start
            place, what = line, "the JSON that begins here is cut off"
            if not broken.unfinished:
                place, what = line + text.count("\n", start, broken.at), str(broken)
            if place != reported:  # what follows on a broken line may break again
                report(f"line {place}", what)
                reported = place
            if only and broken.unfinished and (whole := _cut_back(text[start:])):
                yield line, parse(whole)[0]
                return
            following = text.find("\n{", start)
            line, start = line + text.count("\n", start, max(start, following)), following


def _cut_back(text: str) -> str | None:
    """A document that was cut off, up to its last whole span or log record."""
    opened: list[str] = []  # an opening bracket, with the key before it where it begins a list
    whole, last = None, ""
    for found in _BRACKETS.finditer(text):
        token = found[0]
        if token in ("{", "["):
            opened.append(token if token == "{" else token + last)
        elif token in ("}", "]"):
            opened = opened[:-1]
            if token == "}" and opened and opened[-1][1:] in _LISTS_OF_RECORDS:
                whole = text[: found.end()] + "".join("}" if each == "{" else "]" for each in reversed(opened))
        last = token
    return whole
