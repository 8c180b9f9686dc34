"""Manages the connections of a store to its SQLite file: one that writes, and several that read."""

from __future__ import annotations

import os
import shlex
import sqlite3
import threading
import weakref
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Literal

from goldspan.errors import StoreError
from goldspan.store import migrations
from goldspan.store.sqlite_files import (
    COMMON_ADVICE,
    as_store_error,
    connect,
    open_for_writing,
    read_version,
    transaction,
)

_FORK_TIMEOUT_S = 5.0
"""How long a fork waits for running queries."""

_ADVICE = {
    "file is not a database": "it is not an SQLite database; name another file for the store",
    "malformed": "it is damaged: `sqlite3 FILE .recover` may recover the rest; move it away to start a new store",
    "disk is full": "the disk is full; free some space, or reduce the retention of the store",
    "locked": "another process holds a lock on it; stop that process, or raise `timeout`",
    "readonly database": "it cannot be written: file or folder is read-only, or it was opened with read_only=True",
    **COMMON_ADVICE,
}
"""What to do about an error of SQLite, by words of its message."""


class ConnectionPool:
    """Opens and lends the connections of a store.

    One connection writes, for one thread at a time. A reader uses any idle connection. SQLite connections must not stay
    open across a fork: the pool closes them before a fork, and both processes open new ones when they need them.
    """

    def __init__(self, path: Path, *, read_only: bool, timeout: float) -> None:
        self.path = path
        self._file = path.absolute()
        self.read_only = read_only
        self._timeout = timeout
        self._reset()
        self._closed = False
        with _pools_lock:
            _pools.add(self)

    def _reset(self) -> None:
        self._write_lock = threading.Lock()
        self._writer: sqlite3.Connection | None = None
        self._changed = threading.Condition()
        self._idle: list[sqlite3.Connection] = []
        self._borrowed = 0

    @contextmanager
    def writer(self) -> Iterator[sqlite3.Connection]:
        """Lend the writing connection, outside a transaction, to one thread."""
        if self.read_only:
            raise StoreError(f"{self.path}: it was opened with read_only=True")
        with self._write_lock, translate_errors(self.path):
            self._check_open()
            if self._writer is None:
                self._writer = self._open_writer()
            yield self._writer

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Lend the writing connection in a transaction, which is rolled back when the block raises."""
        with self.writer() as connection, transaction(connection):
            yield connection

    @contextmanager
    def reader(self) -> Iterator[sqlite3.Connection]:
        """Lend a connection for one query."""
        with translate_errors(self.path):
            with self._changed:
                self._check_open()
                connection = self._idle.pop() if self._idle else None
                self._borrowed += 1
            try:
                connection = connection or self._open_reader()
                yield connection
            finally:
                with self._changed:
                    self._borrowed -= 1
                    if connection is not None:
                        self._release(connection)
                    self._changed.notify_all()

    def close(self) -> None:
        """Close all idle connections; a running query closes its connection at its end."""
        with self._write_lock, self._changed:
            self._closed = True
            self._close_idle()

    def before_fork(self) -> None:
        """Wait a limited time for running queries, then close all connections."""
        self._locked_for_fork = self._write_lock.acquire(timeout=_FORK_TIMEOUT_S)
        self._changed.acquire()
        self._changed.wait_for(lambda: not self._borrowed, _FORK_TIMEOUT_S)
        if self._locked_for_fork:
            self._close_idle()

    def after_fork_in_parent(self) -> None:
        """Release the locks."""
        self._changed.release()
        if self._locked_for_fork:
            self._write_lock.release()

    def after_fork_in_child(self) -> None:
        """Start without connections. The parent's are neither used nor closed, because both would corrupt its state."""
        _inherited.append((self._writer, *self._idle))
        self._reset()

    def _close_idle(self) -> None:
        # The last connection to close checkpoints the log, which a reader cannot do: the writer closes last.
        for connection in (*self._idle, self._writer):
            if connection is not None:
                connection.close()
        self._writer = None
        self._idle.clear()

    def _release(self, connection: sqlite3.Connection) -> None:
        if self._closed:
            connection.close()
        else:
            self._idle.append(connection)

    def _check_open(self) -> None:
        if self._closed:
            raise StoreError(f"{self.path}: the store was closed")

    def _open_writer(self) -> sqlite3.Connection:
        return open_for_writing(self._file, migrations.STORE_FORMAT, timeout=self._timeout, display_path=self.path)

    def _open_reader(self) -> sqlite3.Connection:
        if not self._file.is_file():
            raise StoreError(f"{self.path}: the file does not exist")
        try:
            return self._open_for_reading("ro")
        except sqlite3.OperationalError as error:
            # Beside a writer, SQLite needs to create a file in the folder. If it may not, no process writes, unless
            # there is a log.
            log = self._file.with_name(f"{self._file.name}-wal")
            if not _mentions(error, "unable to open", "readonly database") or (log.exists() and log.stat().st_size):
                raise
        return self._open_for_reading("ro&immutable=1")

    def _open_for_reading(self, mode: Literal["ro", "ro&immutable=1"]) -> sqlite3.Connection:
        connection = connect(self._file, mode=mode, timeout=self._timeout)
        try:
            _require_current_version(connection, self.path)
        except BaseException:
            connection.close()
            raise
        return connection


def translate_errors(path: Path) -> AbstractContextManager[None]:
    """Convert errors of SQLite and the operating system into a `StoreError` that says what to do."""
    return as_store_error(path, _ADVICE)


def _require_current_version(connection: sqlite3.Connection, path: Path) -> None:
    """Raise `StoreError` for a file that must be upgraded first, which a reader cannot do."""
    current = migrations.STORE_FORMAT
    version = read_version(connection, path, current)
    if version < current.version:
        raise StoreError(
            f"{path}: an older goldspan wrote it (version {version}, this one reads {current.version}); open it once "
            "for writing to upgrade it: "
            "python -c 'import sys; from goldspan.store import open_store; open_store(sys.argv[1]).check()' "
            f"{shlex.quote(str(path))}"
        )


def _mentions(error: sqlite3.Error, *phrases: str) -> bool:
    return any(phrase in str(error) for phrase in phrases)


_pools: weakref.WeakSet[ConnectionPool] = weakref.WeakSet()
_pools_lock = threading.Lock()
"""Also held while the process forks."""
_locked_pools: list[ConnectionPool] = []
_inherited: list[object] = []
"""Connections of the parent process; kept referenced so that the garbage collector does not close them."""


def _before_fork() -> None:
    _pools_lock.acquire()
    _locked_pools[:] = _pools
    for pool in _locked_pools:
        pool.before_fork()


def _after_fork_in_parent() -> None:
    for pool in _locked_pools:
        pool.after_fork_in_parent()
    _locked_pools.clear()
    _pools_lock.release()


def _after_fork_in_child() -> None:
    for pool in _locked_pools:
        pool.after_fork_in_child()
    _locked_pools.clear()
    _pools_lock.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)
