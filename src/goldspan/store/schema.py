"""The tables of a store, as the steps that lead from each version of the file to the next."""

from __future__ import annotations

import shlex
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

from goldspan.errors import StoreError
from goldspan.store.files import identity
from goldspan.store.upgrades import fill_shapes

APPLICATION_ID = 0x676F6C64
"""Tells our files from other SQLite files: `gold` in ASCII."""

FIRST = (
    # What a list of runs is filtered by stands here, so that a filter never has to open a document.
    """CREATE TABLE runs (
        key INTEGER PRIMARY KEY,
        run_id TEXT NOT NULL UNIQUE,
        time_ns INTEGER NOT NULL,
        current INTEGER,
        revision INTEGER NOT NULL,
        passed INTEGER,
        unit TEXT NOT NULL,
        golden TEXT,
        agent TEXT,
        service TEXT,
        environment TEXT,
        session_id TEXT,
        text TEXT
    )""",
    # Holds everything but the text: whatever the filter, the runs are walked newest first in here.
    """CREATE INDEX runs_listed ON runs (
        time_ns, key, passed, unit, golden, agent, service, environment, session_id
    )""",
    # A key is never given twice, so whoever has seen all up to one of them knows what came after it.
    """CREATE TABLE evaluations (
        key INTEGER PRIMARY KEY AUTOINCREMENT,
        run INTEGER NOT NULL REFERENCES runs ON DELETE CASCADE,
        revision INTEGER NOT NULL,
        digest TEXT NOT NULL,
        stored_ns INTEGER NOT NULL,
        document TEXT NOT NULL,
        UNIQUE (run, revision, digest)
    )""",
    """CREATE TABLE tools (
        run INTEGER NOT NULL REFERENCES runs ON DELETE CASCADE,
        tool TEXT NOT NULL,
        role TEXT NOT NULL,
        time_ns INTEGER NOT NULL,
        PRIMARY KEY (run, tool, role)
    ) WITHOUT ROWID""",
    "CREATE INDEX tools_listed ON tools (tool, role, time_ns, run)",
    """CREATE TABLE scores (
        run INTEGER NOT NULL REFERENCES runs ON DELETE CASCADE,
        metric TEXT NOT NULL,
        value REAL,
        time_ns INTEGER NOT NULL,
        PRIMARY KEY (run, metric)
    ) WITHOUT ROWID""",
    "CREATE INDEX scores_listed ON scores (metric, time_ns, run, value)",
    """CREATE TABLE traces (
        run INTEGER NOT NULL REFERENCES runs ON DELETE CASCADE,
        trace_id TEXT NOT NULL,
        time_ns INTEGER NOT NULL,
        PRIMARY KEY (run, trace_id)
    ) WITHOUT ROWID""",
    "CREATE INDEX traces_listed ON traces (trace_id, time_ns, run)",
)

SECOND = (
    # Traces that were deleted: what is still on its way of them is not stored.
    "CREATE TABLE deletions (trace_id TEXT PRIMARY KEY, time_ns INTEGER NOT NULL) WITHOUT ROWID",
    "CREATE INDEX deletions_listed ON deletions (time_ns)",
)

THIRD = (
    # The tool as the run, or its golden, writes it: what is shown.
    "ALTER TABLE tools ADD COLUMN name TEXT",
    # Which tool was called where which was expected.
    """CREATE TABLE substitutions (
        run INTEGER NOT NULL REFERENCES runs ON DELETE CASCADE,
        expected TEXT NOT NULL,
        called TEXT NOT NULL,
        PRIMARY KEY (run, expected, called)
    ) WITHOUT ROWID""",
    # Runs of equal shape have equal rows in `tools` and `substitutions`: few are looked at where many are meant.
    "ALTER TABLE runs ADD COLUMN shape INTEGER",
    fill_shapes,
    "DROP INDEX runs_listed",
    """CREATE INDEX runs_listed ON runs (
        time_ns, key, passed, unit, golden, agent, service, environment, session_id, shape
    )""",
)

Change: TypeAlias = "str | Callable[[sqlite3.Connection], None]"
"""A statement, or a function where statements do not do."""
STEPS: tuple[tuple[Change, ...], ...] = (FIRST, SECOND, THIRD)
"""Each leads to the version of its position, counted from 1. A step that was released is never changed."""


def prepare(connection: sqlite3.Connection, path: Path) -> None:
    """Make a file a store of this version: create what is not there, bring an older one up to date.

    Either all steps are taken or none; two processes that open the file at once take them once.
    """
    version = version_of(connection, path)
    if version == len(STEPS):
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        for step in STEPS[version_of(connection, path) :]:
            for change in step:
                if isinstance(change, str):
                    connection.execute(change)
                else:
                    change(connection)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {len(STEPS)}")
        connection.execute("COMMIT")
    except BaseException:
        connection.execute("ROLLBACK")
        raise


def check_readable(connection: sqlite3.Connection, path: Path) -> None:
    """Refuse a file that would first have to be changed."""
    version = version_of(connection, path)
    if version < len(STEPS):
        raise StoreError(
            f"{path}: an older goldspan wrote it (version {version}, this one reads {len(STEPS)}); open it once for "
            "writing to bring it up to date: "
            "python -c 'import sys; from goldspan.store import open_store; open_store(sys.argv[1]).check()' "
            f"{shlex.quote(str(path))}"
        )


def version_of(connection: sqlite3.Connection, path: Path) -> int:
    """The version of a store; 0 for a file without any table. Other people's files, and newer ones, are refused."""
    application, version, tables = identity(connection)
    if application == APPLICATION_ID and version > len(STEPS):
        raise StoreError(
            f"{path}: a newer goldspan wrote it (version {version}, this one knows {len(STEPS)}): "
            "pip install --upgrade goldspan"
        )
    if application == APPLICATION_ID:
        return version
    if application or version or tables:
        raise StoreError(f"{path}: it is the database of another program; name another file for the store")
    return 0
