"""The results file: the results of an agent on goldens, saved case by case.

It has one JSON object per line. The first line is the header, each further line is one trial of one golden. A line that
repeats an earlier golden and trial replaces it.
"""

from __future__ import annotations

import json
import os
import threading
import warnings
from dataclasses import fields
from pathlib import Path
from types import TracebackType
from typing import Any

from goldspan.errors import GoldspanWarning, ResultsError
from goldspan.goldens.spelling import short_repr
from goldspan.sinks.serialization import to_json
from goldspan.testing.results import (
    FORMAT_KEY,
    FORMAT_VERSION,
    UNFINISHED_OUTCOMES,
    AgentResults,
    CaseResult,
    ResultsHeader,
    case_from_document,
)


class ResultsWriter:
    """Writes a results file: each case is on the disk when `write` returns. Threads may share a writer.

    An existing results file is renamed to `NAME.1`, unless `resume` is set: then its header must state the same
    goldens, agent, metrics and trials, and new cases are appended. An incomplete last line is removed.

    Args:
        path: The path of the file.
        header: The first line.
        resume: Whether an existing file is continued.

    Raises:
        ResultsError: The file cannot be written, is not a results file, or has the results of something else.
    """

    def __init__(self, path: str | os.PathLike[str], header: ResultsHeader, *, resume: bool = False) -> None:
        self.path = Path(path)
        self.previous: tuple[CaseResult, ...] = ()
        """The cases of the file that is resumed, without those that raised or timed out."""
        self._lock = threading.Lock()
        has_content = self.path.exists() and self.path.stat().st_size > 0
        if has_content and resume:
            found = read_results(self.path)
            _check_same_header(self.path, found.header, header)
            self.previous = tuple(case for case in found.cases if case.outcome not in UNFINISHED_OUTCOMES)
        elif has_content:
            _check_is_results_file(self.path)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            if has_content and not resume:
                os.replace(self.path, f"{self.path}.1")
            self._file = self.path.open("ab")
            if has_content and resume:
                _end_last_line(self.path, self._file.fileno())
        except OSError as error:
            raise ResultsError(f"{self.path}: cannot be written: {error.strerror}") from error
        if not (has_content and resume):
            self._write_line(header.to_document())

    def write(self, case: CaseResult) -> None:
        """Append a case."""
        self._write_line(case.to_document())

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def __enter__(self) -> ResultsWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _write_line(self, document: dict[str, Any]) -> None:
        line = to_json(document).encode() + b"\n"
        with self._lock:
            try:
                self._file.write(line)
                self._file.flush()
            except OSError as error:
                raise ResultsError(f"{self.path}: cannot be written: {error.strerror}") from error


def read_results(path: str | os.PathLike[str]) -> AgentResults:
    """Read a results file. An incomplete last line, of a process that was killed, is ignored with a warning.

    Raises:
        ResultsError: The file is missing, is not a results file, or was written by another version of the format.
    """
    path = Path(path)
    lines = _read_bytes(path).split(b"\n")
    is_last_complete = not lines[-1]
    if is_last_complete:
        lines.pop()
    header = _parse_header(path, lines[0] if lines else b"")
    cases: dict[tuple[str, int], CaseResult] = {}
    for number, line in enumerate(lines[1:], start=2):
        try:
            case = case_from_document(json.loads(line))
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            if number == len(lines) and not is_last_complete:
                message = f"{path}, line {number}: the last line is incomplete and was ignored"
                warnings.warn(message, GoldspanWarning, stacklevel=2)
                break
            raise ResultsError(f"{path}, line {number}: is not a case of a results file.") from error
        cases[case.key] = case
    return AgentResults(header, tuple(cases.values()))


def _read_bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        reason = "there is no such file" if isinstance(error, FileNotFoundError) else error.strerror
        raise ResultsError(f"{path}: cannot be read: {reason}; `goldspan run --results FILE` writes one.") from error


def _parse_header(path: Path, line: bytes) -> ResultsHeader:
    try:
        document = json.loads(line)
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict) or FORMAT_KEY not in document:
        raise ResultsError(f"{path}: is not a results file; `goldspan run --results FILE` writes one.")
    if (version := document[FORMAT_KEY]) != FORMAT_VERSION:
        problem = f"has version {short_repr(version)} of the format, and this goldspan reads version {FORMAT_VERSION}"
        raise ResultsError(f"{path}: {problem}; run the agent again, or install the goldspan that wrote it.")
    known: dict[str, Any] = {
        each.name: tuple(value) if isinstance(value := document[each.name], list) else value
        for each in fields(ResultsHeader)
        if each.name in document
    }
    try:
        return ResultsHeader(**known)
    except TypeError:
        raise ResultsError(f"{path}, line 1: the header has no scoring_version.") from None


def _check_is_results_file(path: Path) -> None:
    """Raise `ResultsError` rather than replace a file that holds something else."""
    with path.open("rb") as file:
        start = file.readline(100)
    if FORMAT_KEY.encode() not in start:
        raise ResultsError(f"{path}: exists and is not a results file; choose another name or delete it.")


def _check_same_header(path: Path, found: ResultsHeader, wanted: ResultsHeader) -> None:
    """Raise `ResultsError` if a file has results of other goldens, another agent or other settings."""
    compared = {
        "scoring_version": "another scoring version",
        "goldens_digest": "other goldens",
        "agent": "another agent",
        "trials": "another number of trials",
        "metrics": "other metrics",
        "keeps_arguments": "another choice to keep arguments",
    }
    different = [what for name, what in compared.items() if getattr(found, name) != getattr(wanted, name)]
    if different:
        raise ResultsError(f"{path}: has the results of {different[0]}; start again without resuming.")


def _end_last_line(path: Path, descriptor: int) -> None:
    """Remove an incomplete last line, and end a complete one that has no line feed."""
    content = path.read_bytes()
    start = content.rfind(b"\n") + 1
    if start == len(content):
        return
    try:
        case_from_document(json.loads(content[start:]))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        os.ftruncate(descriptor, start)
    else:
        os.write(descriptor, b"\n")
