"""Evaluations in a file, one JSON document a line."""

from __future__ import annotations

import os
import stat
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from goldspan.errors import ConfigurationError
from goldspan.model import Evaluation
from goldspan.sinks.documents import evaluation_document, written
from goldspan.sinks.forking import renew_in_forked_children

if sys.platform != "win32":
    import fcntl

_HAS_LOCKS = sys.platform != "win32"
_FLAGS = os.O_RDWR | os.O_APPEND | os.O_CREAT | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)


class JsonLinesSink:
    """Appends each evaluation to a file as one line of JSON, written at once and held back by nothing.

    Threads, forked children and other processes may write to the same file: lines are never mixed. A file that somebody
    moves away or deletes is begun anew. With `rotate_bytes`, a file that would grow beyond that is renamed to
    `NAME.1` first, in place of the one that had this name, so that at most twice as much is kept. Values of arguments
    are written only with `arguments=True`.

    Raises `ConfigurationError` where the file cannot be written when the sink is made. What goes wrong later (a full
    disk) costs the lines that cannot be written, is counted and logged, and ends when its cause does.
    """

    def __init__(
        self, path: str | os.PathLike[str], *, rotate_bytes: int | None = None, arguments: bool = False
    ) -> None:
        if rotate_bytes is not None and rotate_bytes < 1:
            raise ConfigurationError(f"rotate_bytes is a number of at least 1, not {rotate_bytes}")
        if rotate_bytes is not None and not _HAS_LOCKS:
            raise ConfigurationError("rotate_bytes needs locks on files, which this system does not have")
        self._path = os.path.abspath(path)
        self._rotate_bytes = rotate_bytes
        self._arguments = arguments
        self._file = -1
        self._torn = False
        self._fresh = True
        self._closed = False
        self._lock = threading.Lock()
        try:
            self._open()
        except OSError as error:
            raise ConfigurationError(f"cannot write evaluations to {self._path}: {error.strerror}") from error
        renew_in_forked_children(self)

    def submit(self, evaluation: Evaluation) -> None:
        """Write one line. Raises `OSError` where that fails, and `ValueError` after `close`."""
        text = written(lambda values: evaluation_document(evaluation, arguments=values), values=self._arguments)
        line = text.encode() + b"\n"
        with self._lock:
            if self._closed:
                raise ValueError(f"{self._path} has been closed")
            self._follow()
            with self._alone():
                size = os.fstat(self._file).st_size
                full = self._rotate_bytes is not None and size > 0 and size + len(line) > self._rotate_bytes
                if not full:
                    self._write(line)
                    return
                os.replace(self._path, f"{self._path}.1")
            self._open()
            with self._alone():
                self._write(line)

    def close(self) -> None:
        """Close the file; nothing can be submitted any more."""
        with self._lock:
            self._closed = True
            self._release()

    shutdown = close

    def renew(self) -> None:
        """Open the file anew, in a forked child: locks on files are shared by all who share the opening."""
        self._lock = threading.Lock()
        self._release()

    def _write(self, line: bytes) -> None:
        """Write a line in one go. What is left of one that did not fit on the disk is ended first."""
        rest = b"\n" + line if self._torn else line
        while rest:
            rest = rest[os.write(self._file, rest) :]
            self._torn = bool(rest)  # to write the rest of it says what is the matter

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Hold off the other processes, on the file that has the name now."""
        if sys.platform != "win32":
            while True:
                fcntl.flock(self._file, fcntl.LOCK_EX)
                if not self._moved():
                    break
                self._open()  # somebody else renamed it while we waited
            try:
                self._look_at_the_end()
                yield
            finally:
                fcntl.flock(self._file, fcntl.LOCK_UN)
        else:
            self._look_at_the_end()
            yield

    def _follow(self) -> None:
        """See to it that the open file is the one of that name."""
        if self._file < 0 or self._moved():
            self._open()

    def _moved(self) -> bool:
        try:
            return not os.path.samestat(os.stat(self._path), os.fstat(self._file))
        except FileNotFoundError:
            return True

    def _open(self) -> None:
        self._release()
        self._file = os.open(self._path, _FLAGS, 0o666)
        self._fresh = True

    def _look_at_the_end(self) -> None:
        """Whether a file that was just opened ends within a line: of a process that came to its end in the middle.

        While another process writes, it may seem so.
        """
        if self._fresh:
            about = os.fstat(self._file)
            self._torn = self._fresh = False
            if stat.S_ISREG(about.st_mode) and about.st_size:
                os.lseek(self._file, -1, os.SEEK_END)
                self._torn = os.read(self._file, 1) != b"\n"

    def _release(self) -> None:
        # First forgotten, then closed: a child that is forked in between must not close what may be another file.
        file, self._file = self._file, -1
        if file >= 0:
            os.close(file)
