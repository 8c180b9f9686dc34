"""Connections to one SQLite file: one that writes, some that read, and what SQLite says in words for people."""

from __future__ import annotations

import os
import sqlite3
import threading
import weakref
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from goldspan.errors import StoreError
from goldspan.store import migrations
from goldspan.store.sqlite_files import as_store_error, enable_wal

_FORK_TIMEOUT_S = 5.0
"""Seconds that a fork waits for queries under way."""

_ADVICE = {
    "file is not a database": "it is no SQLite database; name another file for the store",
    "malformed": "it is damaged: `sqlite3 FILE .recover` may save what is left; move it away to begin anew",
    "disk is full": "the disk is full; make room, or give the store a smaller retention",
    "locked": "another process keeps it locked; end that, or allow a longer `timeout`",
    "readonly database": "it cannot be written: file or folder is read-only, or it was opened with read_only=True",
    "unable to open": "it cannot be opened: the folder does not exist, or the permissions do not allow it",
    "disk I/O error": "the disk reports an error",
}
"""What to do about what SQLite says, by words that are in it."""


class ConnectionPool:
    """Opens and hands out the connections of a store.

    One connection writes, one thread at a time. Readers take any that is idle. SQLite's connections must not be open
    across a fork: they are closed just before one and opened again, in both processes, when they are next needed.
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
        """The connection that writes, in no transaction, and for nobody else."""
        if self.read_only:
            raise StoreError(f"{self.path}: it was opened with read_only=True")
        with self._write_lock, translate_errors(self.path):
            self._check_open()
            if self._writer is None:
                self._writer = self._ensure_writer()
            yield self._writer

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """The connection that writes, in a transaction that is undone where anything goes wrong."""
        with self.writer() as connection:
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:  # SQLite ends it by itself where the disk is full
                    connection.execute("ROLLBACK")
                raise

    @contextmanager
    def reader(self) -> Iterator[sqlite3.Connection]:
        """A connection for one query."""
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
        """Close what is open; queries under way close their own connections."""
        with self._write_lock, self._changed:
            self._closed = True
            self._close_idle()

    def before_fork(self) -> None:
        """Wait for what is under way, but not for ever, and close everything."""
        self._locked_for_fork = self._write_lock.acquire(timeout=_FORK_TIMEOUT_S)
        self._changed.acquire()
        self._changed.wait_for(lambda: not self._borrowed, _FORK_TIMEOUT_S)
        if self._locked_for_fork:
            self._close_idle()

    def after_fork_in_parent(self) -> None:
        """Go on."""
        self._changed.release()
        if self._locked_for_fork:
            self._write_lock.release()

    def after_fork_in_child(self) -> None:
        """Begin anew. A connection that was still busy is left as it is: closing it here would be wrong too."""
        _inherited.append((self._writer, *self._idle))
        self._reset()

    def _close_idle(self) -> None:
        # The last to close puts the log into the file, which a reader cannot.
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

    def _ensure_writer(self) -> sqlite3.Connection:
        """A connection that writes, to a file that is a store of this version."""
        # Inputs of users are in it: whoever shall read it beside its owner must be let in on purpose.
        os.close(os.open(self._file, os.O_CREAT | os.O_RDWR, 0o600))
        connection = self._connect("rw")
        try:
            connection.execute("PRAGMA auto_vacuum = INCREMENTAL")  # has a say only before the first table
            enable_wal(connection, self._timeout)
            connection.execute("PRAGMA synchronous = NORMAL")
            connection.execute("PRAGMA foreign_keys = ON")
            connection.execute("PRAGMA secure_delete = ON")
            connection.execute("PRAGMA journal_size_limit = 4194304")
            migrations.migrate(connection, self.path)
        except BaseException:
            connection.close()
            raise
        return connection

    def _open_reader(self) -> sqlite3.Connection:
        if not self._file.is_file():
            raise StoreError(f"{self.path}: there is no such file")
        try:
            return self._prepared(self._connect("ro"))
        except sqlite3.OperationalError as error:
            # To read beside a writer, SQLite keeps a file in the folder. Where it may not, nobody writes either.
            log = self._file.with_name(f"{self._file.name}-wal")
            if not _mentions(error, "unable to open", "readonly database") or (log.exists() and log.stat().st_size):
                raise
        return self._prepared(self._connect("ro&immutable=1"))

    def _prepared(self, connection: sqlite3.Connection) -> sqlite3.Connection:
        try:
            migrations.require_current_version(connection, self.path)
        except BaseException:
            connection.close()
            raise
        return connection

    def _connect(self, mode: str) -> sqlite3.Connection:
        return sqlite3.connect(
            f"{self._file.as_uri()}?mode={mode}",
            uri=True,
            timeout=self._timeout,
            isolation_level=None,  # transactions begin where we say so
            check_same_thread=False,
        )


def translate_errors(path: Path) -> AbstractContextManager[None]:
    """Turn what SQLite and the system raise into an error that names the file and says what to do."""
    return as_store_error(path, _ADVICE)


def _mentions(error: sqlite3.Error, *words: str) -> bool:
    return any(each in str(error) for each in words)


_pools: weakref.WeakSet[ConnectionPool] = weakref.WeakSet()
_pools_lock = threading.Lock()
"""Held while the process forks, too."""
_locked_pools: list[ConnectionPool] = []
_inherited: list[object] = []
"""Connections of the parent process, which nobody may touch, not even to close them."""


def _before_fork() -> None:
    _pools_lock.acquire()
    _locked_pools[:] = _pools
    for connections in _locked_pools:
        connections.before_fork()


def _after_fork_in_parent() -> None:
    for connections in _locked_pools:
        connections.after_fork_in_parent()
    _locked_pools.clear()
    _pools_lock.release()


def _after_fork_in_child() -> None:
    for connections in _locked_pools:
        connections.after_fork_in_child()
    _locked_pools.clear()
    _pools_lock.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)
