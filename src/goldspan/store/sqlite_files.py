"""What every SQLite file of ours needs: a write-ahead log, to be told from others, and errors in words for people."""

from __future__ import annotations

import errno
import sqlite3
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from goldspan.errors import StoreError

_RETRY_INTERVAL_S = 0.01


class SqliteHeader(NamedTuple):
    """By what a file is known; zeros for one in which there is nothing yet."""

    application_id: int
    user_version: int
    table_count: int


def read_header(connection: sqlite3.Connection) -> SqliteHeader:
    """What a file is at one moment: asked one by one, what another process is about to create would look like neither.

    The pragmas as tables came with SQLite 3.16 (2017).
    """
    return SqliteHeader(
        *connection.execute(
            "SELECT application_id, user_version, (SELECT count(*) FROM sqlite_master) "
            "FROM pragma_application_id, pragma_user_version"
        ).fetchone()
    )


def enable_wal(connection: sqlite3.Connection, timeout_s: float) -> None:
    """Switch to a write-ahead log. Where two processes create a file at once, SQLite does not wait by itself.

    Raises `sqlite3.OperationalError` where somebody keeps it locked for so many seconds.
    """
    until = time.monotonic() + timeout_s
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > until:
                raise
        time.sleep(_RETRY_INTERVAL_S)


@contextmanager
def as_store_error(path: Path, advice: Mapping[str, str]) -> Iterator[None]:
    """Turn what is raised into a `StoreError` that names the file and says what to do.

    `advice` is by words that are in what SQLite says: its codes came to Python only with 3.11. It has `unable to open`
    and `readonly database`, for what the system says, too.
    """
    try:
        yield
    except sqlite3.Error as error:
        told = next((told for words, told in advice.items() if words in str(error)), "SQLite refuses")
        raise StoreError(f"{path}: {told} ({error})") from error
    except OSError as error:
        refused = isinstance(error, PermissionError) or error.errno == errno.EROFS
        told = advice["readonly database" if refused else "unable to open"]
        raise StoreError(f"{path}: {told} ({error.strerror})") from error
