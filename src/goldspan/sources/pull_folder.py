"""`PullFolder`: a folder with the pages that were read, and the place where to continue.

A page is complete in its file before the state names it. After an interruption the next page has the same number, so it
replaces a file that the state does not know.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from goldspan.errors import ConfigurationError, TraceFileError
from goldspan.sources.time_window import TimeWindow
from goldspan.sources.trace_source import JsonObject

STATE_NAME = "pull-state"
"""It has no suffix of a trace file, so that `goldspan score FOLDER` does not read it."""
_VERSION = 1


@dataclass(frozen=True, slots=True)
class PullState:
    """What a folder contains."""

    source: str
    """The URL of the source."""
    start_ns: int
    end_ns: int
    cursor: Any = None
    """Where the next page begins; `None` before the first page."""
    pages: int = 0
    traces: int = 0
    is_complete: bool = False

    @property
    def window(self) -> TimeWindow:
        """The time window of the traces."""
        return TimeWindow(self.start_ns, self.end_ns)


class PullFolder:
    """A folder for the traces of one source and one time window.

    Raises:
        ConfigurationError: The folder has the state of another version, or files that no pull wrote.
        TraceFileError: The folder cannot be created or read.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            path.mkdir(parents=True, exist_ok=True)
            names = sorted(os.listdir(path))
            text = (path / STATE_NAME).read_text(encoding="utf-8") if STATE_NAME in names else None
        except (OSError, UnicodeDecodeError) as error:
            raise TraceFileError(f"{path}: cannot be used as a folder for traces: {error}") from None
        if text is None and names:
            raise ConfigurationError(f"{path} contains other files; name a new folder for the traces")
        self.state: PullState | None = None if text is None else self._parse(text)
        """`None` for a new folder."""

    def _parse(self, text: str) -> PullState:
        try:
            document = json.loads(text)
            if document.pop("version") == _VERSION:
                return PullState(**document)
        except (ValueError, TypeError, KeyError, AttributeError):
            pass
        raise ConfigurationError(f"{self.path / STATE_NAME} is damaged or of another version; name a new folder")

    def write_page(self, number: int, documents: Iterable[JsonObject]) -> None:
        """Write the documents of a page as JSON lines. Raises `TraceFileError`."""
        lines = "".join(f"{json.dumps(document, separators=(',', ':'))}\n" for document in documents)
        if lines:
            self._replace(f"traces-{number:06}.jsonl", lines)

    def write_state(self, state: PullState) -> None:
        """Record what the folder contains. Raises `TraceFileError`."""
        self._replace(STATE_NAME, json.dumps({"version": _VERSION, **asdict(state)}))
        self.state = state

    def _replace(self, name: str, text: str) -> None:
        target, temporary = self.path / name, self.path / f"{name}.part"
        try:
            with open(temporary, "w", encoding="utf-8", newline="\n") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, target)
        except OSError as error:
            raise TraceFileError(f"{target}: cannot be written: {error.strerror or error}") from None
