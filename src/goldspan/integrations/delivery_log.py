"""`DeliveryLog` remembers which runs were written into which product, so that a backfill can continue."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from types import TracebackType

from goldspan.integrations.product import Product
from goldspan.integrations.scored_runs import ScoredRun
from goldspan.store.sqlite_files import (
    COMMON_ADVICE,
    SqliteFormat,
    as_store_error,
    connect,
    open_for_writing,
    read_version,
    transaction,
)

_LOCK_TIMEOUT_S = 5.0
_ADVICE = {
    **COMMON_ADVICE,
    "readonly database": "it cannot be written; --state names another file for what was delivered",
    "locked": "another program writes it",
    "not a database": "it is not a file of delivered runs; --state names another one",
    "malformed": "the file is damaged; delete it to send all runs again",
}
_LOG_FORMAT = SqliteFormat(
    application_id=0x676F6C73,  # `gols` in ASCII
    migrations=(
        (
            """CREATE TABLE delivered (
                destination TEXT NOT NULL, run_id TEXT NOT NULL, revision INTEGER NOT NULL, digest BLOB NOT NULL,
                PRIMARY KEY (destination, run_id)
            ) WITHOUT ROWID""",
        ),
    ),
    connection_pragmas=("synchronous = NORMAL",),
    upgrade_hint="upgrade goldspan, or name another file",
    foreign_hint="name another file",
)
_SELECT = "SELECT digest FROM delivered WHERE destination = ? AND run_id = ?"
_INSERT = "INSERT OR REPLACE INTO delivered VALUES (?, ?, ?, ?)"


class DeliveryLog:
    """The runs that were written into each product, with their revision, in an SQLite file or in memory.

    Args:
        path: The file; `None` to remember the runs only in memory.
        read_only: Neither create nor change the file.

    Raises:
        StoreError: The file cannot be opened, or is another kind of file.
    """

    def __init__(self, path: Path | None, *, read_only: bool = False) -> None:
        self._path = path or Path(":memory:")
        with as_store_error(self._path, _ADVICE):
            if path is not None and read_only and path.exists():
                self._connection = connect(path, mode="ro", timeout=_LOCK_TIMEOUT_S)
                read_version(self._connection, path, _LOG_FORMAT)
            else:
                file = None if read_only else path
                self._connection = open_for_writing(file, _LOG_FORMAT, timeout=_LOCK_TIMEOUT_S, display_path=self._path)

    def __enter__(self) -> DeliveryLog:
        """Return the log."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close the log."""
        self.close()

    def is_delivered(self, product: Product, run: ScoredRun) -> bool | None:
        """Return whether exactly these scores of the run were written; `None` if none of the run were."""
        with as_store_error(self._path, _ADVICE):
            row = self._connection.execute(_SELECT, (_destination(product), _text(run.run_id))).fetchone()
        return None if row is None else row[0] == _digest(run)

    def record(self, product: Product, runs: Iterable[ScoredRun]) -> None:
        """Remember that the scores of these runs were written."""
        destination = _destination(product)
        rows = [(destination, _text(run.run_id), run.revision, _digest(run)) for run in runs]
        if rows:
            with as_store_error(self._path, _ADVICE), transaction(self._connection):
                self._connection.executemany(_INSERT, rows)

    def close(self) -> None:
        """Close the file."""
        self._connection.close()


def _destination(product: Product) -> str:
    return f"{product.name} {product.destination}"


def _text(run_id: str) -> str:
    """Return a run id that SQLite can store, which cannot represent unpaired surrogates."""
    return run_id.encode("utf-8", "backslashreplace").decode()


def _digest(run: ScoredRun) -> bytes:
    """Return a hash of everything that a product receives about a run; `metadata` has its revision."""
    content = {name: value for name, value in asdict(run).items() if name != "revision"}
    return hashlib.blake2b(json.dumps(content, sort_keys=True).encode(), digest_size=16).digest()
