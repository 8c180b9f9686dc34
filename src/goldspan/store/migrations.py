"""The tables of a store, as the steps that lead from each version of the file to the next."""

from __future__ import annotations

import json
import re
import shlex
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from goldspan.errors import StoreError
from goldspan.store.run_records import shape_hash, tool_key, unique_substitutions, valid_unicode
from goldspan.store.sqlite_files import read_header

_BATCH_SIZE = 500
_GOLDEN_ROLES = ("expected", "missing")
"""What a tool is in a run because its golden says so: the golden's spelling is the one that is shown."""
_NAME_SEPARATORS = re.compile(r" or | & | \+ ")
"""Between the names of what is expected together, or one of it."""

_SELECT_DOCUMENTS = """
    SELECT runs.key, current.document FROM runs JOIN evaluations AS current ON current.key = runs.current
    WHERE runs.key > ? ORDER BY runs.key LIMIT ?
"""
_SELECT_TOOLS = "SELECT tool, role FROM tools WHERE run = ? ORDER BY tool, role"
_UPDATE_TOOL_NAME = "UPDATE tools SET name = ? WHERE run = ? AND tool = ? AND role = ?"
_INSERT_SUBSTITUTION = "INSERT INTO substitutions (run, expected, called) VALUES (?, ?, ?)"
_UPDATE_SHAPE = "UPDATE runs SET shape = ? WHERE key = ?"


def fill_tool_names_and_shapes(connection: sqlite3.Connection) -> None:
    """Bring every run to version 3: the names of its tools as they are written, its substitutions, and its shape.

    A name that no document says is left as it is compared: without case and separators.
    """
    done = 0
    while found := connection.execute(_SELECT_DOCUMENTS, (done, _BATCH_SIZE)).fetchall():
        for run, text in found:
            document = json.loads(text)
            spelt = _spellings(document)
            listed = connection.execute(_SELECT_TOOLS, (run,)).fetchall()
            tools = [(tool, role, spelt[role in _GOLDEN_ROLES].get(tool, tool)) for tool, role in listed]
            instead = unique_substitutions(
                (fault["tool"], fault["instead"]) for fault in document["faults"] if fault["kind"] == "wrong_tool"
            )
            connection.executemany(_UPDATE_TOOL_NAME, [(name, run, tool, role) for tool, role, name in tools])
            connection.executemany(_INSERT_SUBSTITUTION, [(run, *each) for each in instead])
            connection.execute(_UPDATE_SHAPE, (shape_hash(tools, instead), run))
        done = found[-1][0]


def _spellings(document: Mapping[str, Any]) -> tuple[dict[str, str], dict[str, str]]:
    """How the run writes its tools, and how its golden does, by the name as it is compared."""
    return _spelling_by_tool(document["tools_used"]), _spelling_by_tool(_expected_names(document["rows"]))


def _expected_names(rows: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    for row in rows:
        if row["expected"] is not None:
            yield row["expected"]
            yield from _NAME_SEPARATORS.split(row["expected"])


def _spelling_by_tool(names: Iterable[str]) -> dict[str, str]:
    spelt: dict[str, str] = {}
    for name in names:
        spelt.setdefault(tool_key(name), valid_unicode(name))
    return spelt


APPLICATION_ID = 0x676F6C64
"""Tells our files from other SQLite files: `gold` in ASCII."""

_VERSION_1 = (
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

_VERSION_2 = (
    # Traces that were deleted: what is still on its way of them is not stored.
    "CREATE TABLE deletions (trace_id TEXT PRIMARY KEY, time_ns INTEGER NOT NULL) WITHOUT ROWID",
    "CREATE INDEX deletions_listed ON deletions (time_ns)",
)

_VERSION_3 = (
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
    fill_tool_names_and_shapes,
    "DROP INDEX runs_listed",
    """CREATE INDEX runs_listed ON runs (
        time_ns, key, passed, unit, golden, agent, service, environment, session_id, shape
    )""",
)

MigrationStep: TypeAlias = "str | Callable[[sqlite3.Connection], None]"
"""A statement, or a function where statements do not do."""
MIGRATIONS: tuple[tuple[MigrationStep, ...], ...] = (_VERSION_1, _VERSION_2, _VERSION_3)
"""Each leads to the version of its position, counted from 1. A step that was released is never changed."""


def migrate(connection: sqlite3.Connection, path: Path) -> None:
    """Make a file a store of this version: create what is not there, bring an older one up to date.

    Either all steps are taken or none; two processes that open the file at once take them once.
    """
    version = schema_version(connection, path)
    if version == len(MIGRATIONS):
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        for step in MIGRATIONS[schema_version(connection, path) :]:
            for change in step:
                if isinstance(change, str):
                    connection.execute(change)
                else:
                    change(connection)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {len(MIGRATIONS)}")
        connection.execute("COMMIT")
    except BaseException:
        connection.execute("ROLLBACK")
        raise


def require_current_version(connection: sqlite3.Connection, path: Path) -> None:
    """Refuse a file that would first have to be changed."""
    version = schema_version(connection, path)
    if version < len(MIGRATIONS):
        raise StoreError(
            f"{path}: an older goldspan wrote it (version {version}, this one reads {len(MIGRATIONS)}); open it once for "
            "writing to bring it up to date: "
            "python -c 'import sys; from goldspan.store import open_store; open_store(sys.argv[1]).check()' "
            f"{shlex.quote(str(path))}"
        )


def schema_version(connection: sqlite3.Connection, path: Path) -> int:
    """The version of a store; 0 for a file without any table. Other people's files, and newer ones, are refused."""
    application, version, tables = read_header(connection)
    if application == APPLICATION_ID and version > len(MIGRATIONS):
        raise StoreError(
            f"{path}: a newer goldspan wrote it (version {version}, this one knows {len(MIGRATIONS)}): "
            "pip install --upgrade goldspan"
        )
    if application == APPLICATION_ID:
        return version
    if application or version or tables:
        raise StoreError(f"{path}: it is the database of another program; name another file for the store")
    return 0
