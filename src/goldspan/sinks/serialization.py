"""Runs and evaluations as JSON documents, and `JsonLinesSink`, which appends them to a file."""

from __future__ import annotations

import json
import math
import os
import stat
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from goldspan.errors import ConfigurationError
from goldspan.model import Evaluation, Fault, Health, Judgement, RequirementResult, Run, Score, ToolCall
from goldspan.sinks.fork_safety import renew_after_fork
from goldspan.sinks.otel_sinks import error_type


def run_document(run: Run) -> dict[str, Any]:
    """Returns a run with its calls, arguments and results; it is for the owner of the data."""
    return {
        "unit": run.unit,
        "run_id": run.run_id,
        "trace_ids": list(run.trace_ids),
        "span_id": run.span_id,
        "golden_id": run.golden_id,
        "component": run.component,
        "agent": run.agent,
        "service": run.service,
        "session_id": run.session_id,
        "input": run.input,
        "output": run.output,
        "tools_used": list(run.tools_used),
        "tool_calls": [_call_document(call) for call in run.tool_calls],
        "available_tools": [tool.name for tool in run.available_tools],
        "conventions": list(run.conventions),
        "start_ns": run.start_ns,
        "end_ns": run.end_ns,
        "health": _dataclass_fields(run.health),
    }


def evaluation_document(evaluation: Evaluation, *, include_arguments: bool = False) -> dict[str, Any]:
    """Returns an evaluation with names and numbers, and without argument values.

    With `include_arguments` it contains the input, the output, the complete calls, and the text of metric errors: of a
    redacted evaluation, what the redaction left.
    """
    run, match, golden = evaluation.run, evaluation.match, evaluation.golden
    document: dict[str, Any] = {
        "unit": run.unit,
        "run_id": run.run_id,
        "trace_ids": list(run.trace_ids),
        "span_id": run.span_id,
        "golden_id": match.golden.id if match else None,
        "golden_match": {"how": match.how, "similarity": match.similarity} if match else None,
        "status": evaluation.status,
        "passed": evaluation.passed,
        "reason": evaluation.reason,
        "tools_used": list(run.tools_used),
        "expected_tools": [item.name for item in golden.tools] if golden else None,
        "scores": [_score_document(score, include_texts=include_arguments) for score in evaluation.scores],
        "faults": [_dataclass_fields(fault) for fault in evaluation.faults],
        "broken": [_dataclass_fields(statement) for statement in evaluation.broken],
        "unjudged": [_dataclass_fields(statement) for statement in evaluation.undetermined],
        "revision": evaluation.revision,
        "digest": evaluation.digest,
        "scoring_version": evaluation.scoring_version,
        "health": _dataclass_fields(run.health),
    }
    if include_arguments:
        calls = [_call_document(call) for call in run.tool_calls]
        document |= {"input": run.input, "output": run.output, "tool_calls": calls}
    return document


def document_json(document: Callable[[bool], dict[str, Any]], *, include_values: bool) -> str:
    """Returns a document as JSON; `document` creates it, with values or without.

    If the values cannot be encoded (cyclic arguments, numbers of thousands of digits, a failing `repr`), the document
    is written without them.
    """
    try:
        return to_json(document(include_values))
    except Exception:  # noqa: BLE001 - it calls methods of the application's objects
        return to_json(document(False))


def to_json(document: dict[str, Any]) -> str:
    """Returns one line of strict JSON, without NaN or lone surrogates."""
    try:
        return json.dumps(document, ensure_ascii=True, allow_nan=False)
    except (TypeError, ValueError):
        return json.dumps(_json_safe(document), ensure_ascii=True, allow_nan=False)


def _score_document(score: Score, *, include_texts: bool) -> dict[str, Any]:
    """Returns a score; the steps only if they were requested.

    Without `include_texts` it contains only the type of an error, and a judgement without the model's words.
    """
    error = score.error
    document: dict[str, Any] = {
        "metric": score.metric,
        "value": score.value,
        "passed": score.passed,
        "threshold": score.threshold,
        "label": score.label,
        "reason": score.reason,
        "error": error if error is None or include_texts else error_type(error),
    }
    if score.steps:
        document["steps"] = score.steps
    if score.judgement is not None:
        document["judgement"] = judgement = _dataclass_fields(score.judgement)
        if not include_texts:
            del judgement["words"]
    return document


def _call_document(call: ToolCall) -> dict[str, Any]:
    return _dataclass_fields(call) | {"concurrent_with": list(call.concurrent_with)}


def _dataclass_fields(value: ToolCall | Fault | Health | Judgement | RequirementResult) -> dict[str, Any]:
    """Returns the fields of a flat dataclass; `dataclasses.asdict` would copy all values, which is slow."""
    return {name: getattr(value, name) for name in value.__dataclass_fields__}


def _json_safe(value: Any) -> Any:
    """Returns a value that JSON can represent; others become their `repr`."""
    if isinstance(value, dict):
        return {str(key): _json_safe(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_json_safe(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    return value if value is None or isinstance(value, (str, int, float, bool)) else repr(value)


if sys.platform != "win32":
    import fcntl

_SUPPORTS_FLOCK = sys.platform != "win32"
_OPEN_FLAGS = os.O_RDWR | os.O_APPEND | os.O_CREAT | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)


class JsonLinesSink:
    """Appends each evaluation to a file as one line of JSON, without buffering.

    Threads, forked children and other processes may write to the same file: lines are never interleaved. If the file is
    moved or deleted, the sink creates a new one. An I/O error after construction (a full disk) drops the lines that
    cannot be written, and is counted and logged.

    Args:
        path: The path of the file.
        rotate_bytes: The maximum size. The sink first renames a file that would exceed it to `NAME.1`, which it
            replaces.
        arguments: Whether argument values are written.

    Raises:
        ConfigurationError: If the file cannot be written at construction.
    """

    def __init__(
        self, path: str | os.PathLike[str], *, rotate_bytes: int | None = None, arguments: bool = False
    ) -> None:
        if rotate_bytes is not None and rotate_bytes < 1:
            raise ConfigurationError(f"rotate_bytes must be at least 1, not {rotate_bytes}")
        if rotate_bytes is not None and not _SUPPORTS_FLOCK:
            raise ConfigurationError("rotate_bytes needs file locks, which this system does not support")
        self._path = os.path.abspath(path)
        self._rotate_bytes = rotate_bytes
        self._arguments = arguments
        self._file = -1
        self._has_partial_line = False
        self._is_just_opened = True
        self._closed = False
        self._lock = threading.Lock()
        try:
            self._open()
        except OSError as error:
            raise ConfigurationError(f"cannot write evaluations to {self._path}: {error.strerror}") from error
        renew_after_fork(self)

    def submit(self, evaluation: Evaluation) -> None:
        """Writes one line. Raises `OSError` if that fails, and `ValueError` after `close`."""
        text = document_json(
            lambda values: evaluation_document(evaluation, include_arguments=values), include_values=self._arguments
        )
        line = text.encode() + b"\n"
        with self._lock:
            if self._closed:
                raise ValueError(f"{self._path} has been closed")
            self._reopen_if_moved()
            with self._file_lock():
                size = os.fstat(self._file).st_size
                full = self._rotate_bytes is not None and size > 0 and size + len(line) > self._rotate_bytes
                if not full:
                    self._write(line)
                    return
                os.replace(self._path, f"{self._path}.1")
            self._open()
            with self._file_lock():
                self._write(line)

    def close(self) -> None:
        """Closes the file. Later submissions raise."""
        with self._lock:
            self._closed = True
            self._close_file()

    shutdown = close

    def renew(self) -> None:
        """Reopens the file in a forked child: processes that share a descriptor share its lock."""
        self._lock = threading.Lock()
        self._close_file()

    def _write(self, line: bytes) -> None:
        """Writes a line at once, after terminating a partial line."""
        rest = b"\n" + line if self._has_partial_line else line
        while rest:
            rest = rest[os.write(self._file, rest) :]
            self._has_partial_line = bool(rest)  # writing the rest raises the error

    @contextmanager
    def _file_lock(self) -> Iterator[None]:
        """Locks out other processes, on the file that currently has the name."""
        if sys.platform != "win32":
            while True:
                fcntl.flock(self._file, fcntl.LOCK_EX)
                if not self._is_moved():
                    break
                self._open()  # another process renamed it during the wait
            try:
                self._check_partial_line()
                yield
            finally:
                fcntl.flock(self._file, fcntl.LOCK_UN)
        else:
            self._check_partial_line()
            yield

    def _reopen_if_moved(self) -> None:
        """Makes sure that the open file is the one with the name."""
        if self._file < 0 or self._is_moved():
            self._open()

    def _is_moved(self) -> bool:
        try:
            return not os.path.samestat(os.stat(self._path), os.fstat(self._file))
        except FileNotFoundError:
            return True

    def _open(self) -> None:
        self._close_file()
        self._file = os.open(self._path, _OPEN_FLAGS, 0o666)
        self._is_just_opened = True

    def _check_partial_line(self) -> None:
        """Checks whether a file that was just opened ends with a partial line of a process that was killed.

        A concurrent write may look the same.
        """
        if self._is_just_opened:
            about = os.fstat(self._file)
            self._has_partial_line = self._is_just_opened = False
            if stat.S_ISREG(about.st_mode) and about.st_size:
                os.lseek(self._file, -1, os.SEEK_END)
                self._has_partial_line = os.read(self._file, 1) != b"\n"

    def _close_file(self) -> None:
        # Reset before closing: a child forked in between must not close a descriptor that may be another file.
        file, self._file = self._file, -1
        if file >= 0:
            os.close(file)
