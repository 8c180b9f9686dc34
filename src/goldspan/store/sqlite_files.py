"""Opens and migrates the SQLite files of the store, the gateway's journal and the judge's cache.

Each kind of file is described by a `SqliteFormat`; the tables themselves are defined where they are used.
"""

from __future__ import annotations

import errno
import os
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

from goldspan.errors import StoreError

_RETRY_INTERVAL_S = 0.01

COMMON_ADVICE: Mapping[str, str] = {
    "unable to open": "it cannot be opened: the folder does not exist, or the permissions do not allow it",
    "disk I/O error": "the disk reports an error",
}
"""Advice that fits every kind of file, by words of SQLite's message."""

Migration: TypeAlias = "str | Callable[[sqlite3.Connection], None]"
"""An SQL statement, or a function where SQL is not enough."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SqliteFormat:
    """One kind of SQLite file: how it is recognized, created, upgraded and opened."""

    application_id: int
    """The `application_id` in the header, which distinguishes the file from other SQLite files."""
    migrations: Sequence[Sequence[Migration]]
    """The step at index i leads to version i + 1. A released step never changes."""
    creation_pragmas: Sequence[str] = ()
    """Take effect in a new file only, so they run before the switch to a write-ahead log."""
    connection_pragmas: Sequence[str] = ()
    """Run on each connection that writes."""
    upgrade_hint: str
    """What to do about a file that a newer goldspan wrote."""
    foreign_hint: str
    """What to do about the database of another program."""

    @property
    def version(self) -> int:
        """The version that this goldspan reads and writes."""
        return len(self.migrations)


class SqliteHeader(NamedTuple):
    """The values that identify a file; all are zero for an empty file."""

    application_id: int
    user_version: int
    table_count: int


def open_for_writing(
    path: Path | None, file_format: SqliteFormat, *, timeout: float, display_path: Path | None = None
) -> sqlite3.Connection:
    """Return a connection that writes, to a file of the current version; create or upgrade the file if necessary.

    Raises `StoreError`, and leaves the file unchanged, if it belongs to another program or to a newer goldspan.

    Args:
        path: The file; `None` for a database in memory.
        file_format: The kind of file.
        timeout: How many seconds to wait for locks of other connections.
        display_path: How error messages name the file; `path` by default.
    """
    display_path = display_path or path
    if path is None:
        connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    else:
        create_private_file(path)
        connection = connect(path, mode="rw", timeout=timeout)
    try:
        read_version(connection, display_path, file_format)  # before any pragma that changes the file
        for pragma in file_format.creation_pragmas:
            connection.execute(f"PRAGMA {pragma}")
        enable_wal(connection, timeout)
        for pragma in file_format.connection_pragmas:
            connection.execute(f"PRAGMA {pragma}")
        migrate(connection, display_path, file_format)
    except BaseException:
        connection.close()
        raise
    return connection


def create_private_file(path: Path) -> None:
    """Create a file that only its owner can read, because it contains inputs of users. An existing one is kept."""
    os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))


def connect(path: Path, *, mode: Literal["rw", "ro", "ro&immutable=1"], timeout: float) -> sqlite3.Connection:
    """Return a connection to an existing file, without implicit transactions and usable from any thread."""
    return sqlite3.connect(
        f"{path.absolute().as_uri()}?mode={mode}",
        uri=True,
        timeout=timeout,
        isolation_level=None,
        check_same_thread=False,
    )


def migrate(connection: sqlite3.Connection, path: Path | None, file_format: SqliteFormat) -> None:
    """Create the tables, or upgrade them to the current version, in one transaction.

    The version is read again inside the transaction: of two processes that open the file at once, one migrates it.
    """
    if read_version(connection, path, file_format) == file_format.version:
        return
    with transaction(connection):
        for step in file_format.migrations[read_version(connection, path, file_format) :]:
            for migration in step:
                if isinstance(migration, str):
                    connection.execute(migration)
                else:
                    migration(connection)
        connection.execute(f"PRAGMA application_id = {file_format.application_id}")
        connection.execute(f"PRAGMA user_version = {file_format.version}")


def read_version(connection: sqlite3.Connection, path: Path | None, file_format: SqliteFormat) -> int:
    """Return the version of a file; 0 for an empty one. Raises `StoreError` for a newer version or another program."""
    header = read_header(connection)
    if header.application_id == file_format.application_id:
        if header.user_version > file_format.version:
            raise StoreError(
                f"{path}: a newer goldspan wrote it (version {header.user_version}, this one knows "
                f"{file_format.version}): {file_format.upgrade_hint}"
            )
        return header.user_version
    if any(header):
        raise StoreError(f"{path}: it is the database of another program; {file_format.foreign_hint}")
    return 0


def read_header(connection: sqlite3.Connection) -> SqliteHeader:
    """Return the identifying values of a file at one moment.

    One statement reads them all: between two statements, another process could create the file.
    """
    return SqliteHeader(
        *connection.execute(  # the table-valued pragmas exist since SQLite 3.16 (2017)
            "SELECT application_id, user_version, (SELECT count(*) FROM sqlite_master) "
            "FROM pragma_application_id, pragma_user_version"
        ).fetchone()
    )


def enable_wal(connection: sqlite3.Connection, timeout: float) -> None:
    """Switch to a write-ahead log, and retry while another process that creates the file holds the lock.

    SQLite itself does not wait for that lock. Raises `sqlite3.OperationalError` after `timeout` seconds.
    """
    until = time.monotonic() + timeout
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > until:
                raise
        time.sleep(_RETRY_INTERVAL_S)


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Commit the statements of the block together, or roll all of them back when one raises."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:  # SQLite itself rolls back when the disk is full
            with suppress(sqlite3.Error):
                connection.rollback()
        raise


@contextmanager
def as_store_error(path: Path, advice: Mapping[str, str]) -> Iterator[None]:
    """Convert errors of SQLite and the operating system into a `StoreError` that names the file and says what to do.

    `advice` maps words of SQLite's message to a sentence, in the order of the search; Python reports SQLite's error
    codes only since 3.11. Its entries `unable to open` and `readonly database` also cover errors of the system.
    """
    try:
        yield
    except sqlite3.Error as error:
        hint = next((hint for words, hint in advice.items() if words in str(error)), "SQLite refuses")
        raise StoreError(f"{path}: {hint} ({error})") from error
    except OSError as error:
        is_denied = isinstance(error, PermissionError) or error.errno == errno.EROFS
        hint = advice["readonly database" if is_denied else "unable to open"]
        raise StoreError(f"{path}: {hint} ({error.strerror})") from error
