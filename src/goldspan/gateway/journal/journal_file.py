"""The file of a journal: its tables, its connections, and what SQLite says about it in words for people."""

from __future__ import annotations

import os
import shutil
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

from goldspan.errors import StoreError
from goldspan.store.sqlite_files import as_store_error, enable_wal, read_header

APPLICATION_ID = 0x676F6C6A
"""Tells journals from other SQLite files: `golj` in ASCII."""
VERSION = 1
"""Of the tables. A file of another version is refused."""

PAGE_BYTES = 16384
"""Measured for bodies of 1 KB to 1 MB: with smaller pages a large body costs more CPU, for it is a chain of them; with
larger ones a small body does, for a transaction writes some pages whole."""
_WAL_BYTES = 32 * 2**20
"""The write-ahead log is put into the file when it is so large. Most entries are pruned before that, and never written
a second time."""
_PAGES_PER_TRANSACTION = 4
"""Beside those of its rows: the roots of table and file, which pages are free, and what is where."""
_CHECKPOINT_TIMEOUT_MS = 50
"""How long putting the log into the file waits for readers; it is tried again after some more writing."""
_LOCK_TIMEOUT_MS = 5000
"""How long a transaction waits for those of other processes, which only write cursors."""
_MAX_FREE_BYTES = 64 * 2**20
"""So much unused room is kept in the file; what is beyond it is given back to the system."""
_DISK_RESERVE_BYTES = 4 * _WAL_BYTES
"""So much of the disk is left alone by entries. Pruning writes before it frees anything, and so does the log when it is
put into the file: on a disk that was full to the brim, a journal could never become smaller again."""
_RELEASE_BATCH_PAGES = 256
"""So many at once: pages are moved for it, and nobody's entry is committed meanwhile."""

_TABLES = (
    # Keys are given by the one process that writes, without gaps. What is asked without reading bodies stands before
    # them, since a row is read from its beginning. `total` is the size of this entry and of all before it.
    """CREATE TABLE entries (
        key INTEGER PRIMARY KEY,
        size INTEGER NOT NULL,
        total INTEGER NOT NULL,
        signal TEXT NOT NULL,
        media TEXT NOT NULL,
        origin TEXT NOT NULL,
        partitions INTEGER NOT NULL,
        arrived_ns INTEGER NOT NULL,
        body BLOB NOT NULL
    )""",
    "CREATE TABLE cursors (consumer TEXT PRIMARY KEY, key INTEGER NOT NULL) WITHOUT ROWID",
    # The last entry that was pruned: no key is given twice. (AUTOINCREMENT would write a page more with each commit.)
    "CREATE TABLE pruned (key INTEGER NOT NULL)",
    "INSERT INTO pruned VALUES (0)",
)

_ERROR_ADVICE = {
    "file is not a database": "it is no SQLite database; move it away, or name another data folder",
    "malformed": "it is damaged; move it away to go on with an empty journal (`sqlite3 FILE .recover` may save entries "
    "that were not forwarded or scored yet)",
    "is full": "the disk is full; make room",
    "locked": "another process keeps it locked; only one gateway may use a data folder",
    "readonly database": "it cannot be written: file or folder is read-only",
    "unable to open": "it cannot be opened: the folder does not exist, or the permissions do not allow it",
    "disk I/O error": "the disk reports an error, or a limit for the size of files was met",
}
"""What to do about what SQLite says, by words that are in it."""


class JournalFile:
    """An SQLite file with a write-ahead log: one connection that writes, and one for each thread that reads just now.

    It is created where there is none. `owned` is false where another process writes the entries and looks after the
    log. SQLite's connections must not be carried over a fork: start processes by spawning them.
    """

    def __init__(self, path: Path, *, is_owner: bool) -> None:
        self.path = path
        self._file = path.absolute()
        self._is_owner = is_owner
        self._writer_lock = threading.Lock()
        self._readers_lock = threading.Lock()
        self._idle_readers: list[sqlite3.Connection] = []
        self._is_closed = False
        self._wal_bytes = 0
        self._checkpoint_at = _WAL_BYTES
        with explain_sqlite_errors(path):
            self._writer: sqlite3.Connection | None = self._open_for_writing()

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """The connection that writes, in a transaction that is undone where anything goes wrong."""
        with self._writer_lock, explain_sqlite_errors(self.path):
            connection = self._ensure_writer()
            try:
                connection.execute("BEGIN IMMEDIATE")
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                # Whatever state the disk has left it in: the next one gets another, and reads the log anew.
                self._writer = None
                connection.close()  # undoes what was not committed
                raise

    @contextmanager
    def reader(self) -> Iterator[sqlite3.Connection]:
        """A connection for one query, all of whose rows are fetched: an open query keeps the log from being reused."""
        with explain_sqlite_errors(self.path):
            with self._readers_lock:
                self._check_open()
                connection = self._idle_readers.pop() if self._idle_readers else None
            if connection is None:
                connection = self._connect("ro")
            try:
                yield connection
            except BaseException:
                connection.close()
                raise
            with self._readers_lock:
                if not self._is_closed:
                    self._idle_readers.append(connection)
                    return
            connection.close()

    def record_write(self, size: int, rows: int) -> None:
        """Put the log into the file now and then; a transaction with so many bytes and rows has come to it.

        Readers that are under way are waited for, but not long: then the log grows a little and it is tried again.
        """
        self._wal_bytes += size + PAGE_BYTES * (rows + _PAGES_PER_TRANSACTION)
        if self._wal_bytes < self._checkpoint_at:
            return
        self._checkpoint_at = self._wal_bytes + _WAL_BYTES // 4
        with self._writer_lock, explain_sqlite_errors(self.path):
            self._checkpoint(self._ensure_writer())

    def release_free_pages(self) -> bool:
        """Return some of the unused pages to the system, where there are many. Whether there may be more of them."""
        with explain_sqlite_errors(self.path):
            surplus = self._unused_pages() - _MAX_FREE_BYTES // PAGE_BYTES
            if surplus > 0:
                with self._writer_lock:
                    # As a script: otherwise it goes on only as long as somebody asks for rows.
                    self._ensure_writer().executescript(
                        f"PRAGMA incremental_vacuum({min(surplus, _RELEASE_BATCH_PAGES)})"
                    )
        return surplus > _RELEASE_BATCH_PAGES

    def has_disk_space(self, *, internal: bool = False) -> bool:
        """Whether the disk has room for more entries, and after them for the log and for pruning.

        For goldspan's `own` half of the reserve is enough: entries can be pruned when these are there.
        """
        reserve = _DISK_RESERVE_BYTES // 2 if internal else _DISK_RESERVE_BYTES
        with explain_sqlite_errors(self.path):
            free = shutil.disk_usage(self._file.parent).free
            return free >= reserve or free + self._unused_pages() * PAGE_BYTES >= reserve

    def close(self) -> None:
        """Close what is open; the last to close puts the log into the file. Queries under way close their own."""
        with self._readers_lock:
            self._is_closed = True
            for connection in self._idle_readers:
                connection.close()
            self._idle_readers.clear()
        with self._writer_lock:
            if self._writer is not None:
                self._writer.close()
                self._writer = None

    def _ensure_writer(self) -> sqlite3.Connection:
        """The connection that writes; another one after a failure."""
        if self._writer is None:
            self._check_open()
            self._writer = self._open_for_writing()
            # What failed may have been for want of room: the log needs none where it can begin anew.
            with suppress(sqlite3.Error):
                self._checkpoint(self._writer)
        return self._writer

    def _unused_pages(self) -> int:
        with self.reader() as connection:
            return int(connection.execute("PRAGMA freelist_count").fetchone()[0])

    def _checkpoint(self, connection: sqlite3.Connection) -> None:
        connection.execute(f"PRAGMA busy_timeout = {_CHECKPOINT_TIMEOUT_MS}")
        (busy, _, _) = connection.execute("PRAGMA wal_checkpoint(RESTART)").fetchone()
        connection.execute(f"PRAGMA busy_timeout = {_LOCK_TIMEOUT_MS}")
        if not busy:
            self._wal_bytes, self._checkpoint_at = 0, _WAL_BYTES

    def _check_open(self) -> None:
        if self._is_closed:
            raise StoreError(f"{self.path}: the journal was closed")

    def _open_for_writing(self) -> sqlite3.Connection:
        """A connection that writes, to a file that is a journal of this version."""
        # What users said is in it: whoever shall read it beside its owner must be let in on purpose.
        os.close(os.open(self._file, os.O_CREAT | os.O_RDWR, 0o600))
        connection = self._connect("rw")
        try:
            connection.execute(f"PRAGMA page_size = {PAGE_BYTES}")  # this and the next have a say in a new file only
            connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
            enable_wal(connection, _LOCK_TIMEOUT_MS / 1000)
            connection.execute("PRAGMA synchronous = FULL")  # a commit is on disk, not only in the system's hands
            # Some builds overwrite what is deleted, which doubles the CPU of an entry: here it is soon written over.
            connection.execute("PRAGMA secure_delete = OFF")
            connection.execute(f"PRAGMA journal_size_limit = {2 * _WAL_BYTES}")
            # Owners do that after they have answered; the others only where the owner is gone and the log goes on.
            pages = 0 if self._is_owner else 4 * _WAL_BYTES // PAGE_BYTES
            connection.execute(f"PRAGMA wal_autocheckpoint = {pages}")
            _create_tables(connection, self.path)
        except BaseException:
            connection.close()
            raise
        return connection

    def _connect(self, mode: str) -> sqlite3.Connection:
        return sqlite3.connect(
            f"{self._file.as_uri()}?mode={mode}",
            uri=True,
            timeout=_LOCK_TIMEOUT_MS / 1000,
            isolation_level=None,  # transactions begin where we say so
            check_same_thread=False,
        )


def explain_sqlite_errors(path: Path) -> AbstractContextManager[None]:
    """Turn what SQLite and the system raise into an error that names the file and says what to do."""
    return as_store_error(path, _ERROR_ADVICE)


def _create_tables(connection: sqlite3.Connection, path: Path) -> None:
    """Create the tables where there are none. Two processes that open a file at once create them once."""
    if _schema_version(connection, path) == VERSION:
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        if _schema_version(connection, path) == 0:
            for statement in _TABLES:
                connection.execute(statement)
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {VERSION}")
        connection.execute("COMMIT")
    except BaseException:
        connection.execute("ROLLBACK")
        raise


def _schema_version(connection: sqlite3.Connection, path: Path) -> int:
    """The version of a journal; 0 for a file without any table. Other people's files, and newer ones, are refused."""
    application, version, tables = read_header(connection)
    if application == APPLICATION_ID and version > VERSION:
        raise StoreError(
            f"{path}: a newer goldspan wrote it (version {version}, this one knows {VERSION}): "
            "pip install --upgrade 'goldspan[server]', or move it away"
        )
    if application == APPLICATION_ID and version == VERSION:
        return VERSION
    if application or version or tables:
        raise StoreError(f"{path}: it is the database of another program; name another data folder")
    return 0
