"""The gateway's log on standard error: lines of text, or one JSON object a line."""

from __future__ import annotations

import json
import logging
import sys
import warnings
from datetime import datetime, timezone
from typing import IO, Any

from goldspan.errors import GoldspanWarning

_QUIET = {
    "uvicorn.access": logging.CRITICAL,
    "uvicorn.error": logging.WARNING,
    "urllib3": logging.ERROR,
    **dict.fromkeys(("httpx2", "httpcore2"), logging.WARNING),  # each request to a judge's model
}
"""From which level on others are heard: who asked for which path is counted, and not logged."""


def write_logs(form: str, level: str, *, worker: int | None = None, stream: IO[str] | None = None) -> None:
    """Have everything that this process logs written to standard error, as `text` or as `json`, from that level on.

    Warnings are logged too. `worker` stands on every line where there are several.
    """
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(_Json(worker) if form == "json" else _Text(worker))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for name, least in _QUIET.items():
        logging.getLogger(name).setLevel(least)
    warnings.showwarning = _log_warning


def _log_warning(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, file: Any = None, line: Any = None
) -> None:
    if issubclass(category, GoldspanWarning):
        logging.getLogger("goldspan").warning("%s", message)
    else:
        logging.getLogger("py.warnings").warning("%s:%s: %s: %s", filename, lineno, category.__name__, message)


class _Formatter(logging.Formatter):
    def __init__(self, worker: int | None) -> None:
        super().__init__()
        self._worker = worker

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: N802 - its name there
        """The time in UTC, to the millisecond, as RFC 3339 writes it."""
        moment = datetime.fromtimestamp(record.created, timezone.utc)
        return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")

    def _exception(self, record: logging.LogRecord) -> str:
        parts = [self.formatException(record.exc_info)] if record.exc_info else [record.exc_text or ""]
        parts.append(self.formatStack(record.stack_info) if record.stack_info else "")
        return "\n".join(filter(None, parts))


class _Json(_Formatter):
    def format(self, record: logging.LogRecord) -> str:
        """One JSON object."""
        document: dict[str, Any] = {
            "time": self.formatTime(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if self._worker is not None:
            document["worker"] = self._worker
        if exception := self._exception(record):
            document["exception"] = exception
        return json.dumps(document)


class _Text(_Formatter):
    def format(self, record: logging.LogRecord) -> str:
        """One line, and the traceback below it. What others wrote can neither begin a line nor steer a terminal."""
        worker = "" if self._worker is None else f" [{self._worker}]"
        line = f"{self.formatTime(record)} {record.levelname.lower()}{worker} {record.name}: {record.getMessage()}"
        exception = self._exception(record)
        return _harmless(line) + ("\n" + "\n".join(map(_harmless, exception.splitlines())) if exception else "")


def _harmless(line: str) -> str:
    if line.isprintable():
        return line
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in line)
