"""`open_store`: opens the store at a location, which is a file or the URL of a database server."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from pathlib import Path

from goldspan.store.connection_pool import ConnectionPool
from goldspan.store.retention import UNLIMITED_RETENTION
from goldspan.store.sqlite import SqliteStore
from goldspan.store.store_protocol import Retention, Store

_URL = re.compile(r"postgres(?:ql)?://")
_SECRET_PARAMETER = re.compile(r"([?&](?:ssl)?password=)[^&#]*")


def open_store(
    location: str | os.PathLike[str],
    *,
    read_only: bool = False,
    retention: Retention = UNLIMITED_RETENTION,
    keep_arguments: bool = False,
    timeout: float = 5.0,
    clock: Callable[[], int] = time.time_ns,
) -> Store:
    """Open a store. Create the file or the tables if they do not exist, and upgrade those of an older goldspan.

    Args:
        location: The SQLite file, or the URL of a PostgreSQL database, such as `postgresql://user@host/database`.
        read_only: Open an existing store for reading only.
        retention: How much the store keeps.
        keep_arguments: Also store values: arguments, results, error messages, outputs and metadata.
        timeout: How many seconds an operation waits for other processes, and a write for an unavailable server.
        clock: Returns the current time in nanoseconds since the Unix epoch.

    Returns:
        The store, to be closed or used as a context manager.

    Raises:
        StoreError: The location is no store, is damaged, locked, unavailable, or of a newer goldspan; or it cannot be
            written and `read_only` is not set.
        MissingExtraError: The location is a URL, and the extra `postgres` is not installed.
    """
    if is_store_url(location):
        from goldspan.store.postgres import open_postgres  # needs the extra `postgres`

        return open_postgres(
            str(location),
            display_name=redacted_location(location),
            read_only=read_only,
            retention=retention,
            keep_arguments=keep_arguments,
            timeout=timeout,
            clock=clock,
        )
    return SqliteStore(
        ConnectionPool(Path(location), read_only=read_only, timeout=timeout),
        retention=retention,
        keep_arguments=keep_arguments,
        clock=clock,
    )


def is_store_url(location: str | os.PathLike[str]) -> bool:
    """Whether a location is the URL of a database server and not a path."""
    return _URL.match(os.fspath(location)) is not None


def redacted_location(location: str | os.PathLike[str]) -> str:
    """Return a location as messages show it: a URL without passwords."""
    text = os.fspath(location)
    if not is_store_url(text):
        return text
    scheme, _, rest = text.partition("://")
    address, question_mark, parameters = rest.partition("?")
    credentials, at, host = address.rpartition("@")
    user = credentials.partition(":")[0]
    return f"{scheme}://{user}{at}{host}" + _SECRET_PARAMETER.sub(r"\1***", question_mark + parameters)
