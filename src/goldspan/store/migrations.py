"""Defines the tables of a store as migrations from each version of the file to the next."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from goldspan.store.run_records import insert_shape, shape_hash, tool_key, unique_substitutions, valid_unicode
from goldspan.store.sqlite_files import Migration, SqliteFormat

_BATCH_SIZE = 500
_GOLDEN_ROLES = ("expected", "missing")
"""Roles that come from the golden; tools in them are displayed in the golden's spelling."""
_NAME_SEPARATORS = re.compile(r" or | & | \+ ")
"""Separators between tool names in the `expected` field of a stored row."""

_SELECT_DOCUMENTS = """
    SELECT runs.key, current.document FROM runs JOIN evaluations AS current ON current.key = runs.current
    WHERE runs.key > ? ORDER BY runs.key LIMIT ?
"""
_SELECT_TOOLS = "SELECT tool, role FROM tools WHERE run = ? ORDER BY tool, role"
_UPDATE_TOOL_NAME = "UPDATE tools SET name = ? WHERE run = ? AND tool = ? AND role = ?"
_INSERT_SUBSTITUTION = "INSERT INTO substitutions (run, expected, called) VALUES (?, ?, ?)"
_UPDATE_SHAPE = "UPDATE runs SET shape = ? WHERE key = ?"


def fill_tool_names_and_shapes(connection: sqlite3.Connection) -> None:
    """Fill the columns of version 3 for every run: display names of tools, substitutions, and shape.

    A tool name that is in no document stays in its normalized form, without case and separators.
    """
    last_key = 0
    while batch := connection.execute(_SELECT_DOCUMENTS, (last_key, _BATCH_SIZE)).fetchall():
        for run, text in batch:
            document = json.loads(text)
            called_names, expected_names = _spellings(document)
            tool_rows = connection.execute(_SELECT_TOOLS, (run,)).fetchall()
            tools = [
                (tool, role, (expected_names if role in _GOLDEN_ROLES else called_names).get(tool, tool))
                for tool, role in tool_rows
            ]
            substitutions = unique_substitutions(
                (fault["tool"], fault["instead"]) for fault in document["faults"] if fault["kind"] == "wrong_tool"
            )
            connection.executemany(_UPDATE_TOOL_NAME, [(name, run, tool, role) for tool, role, name in tools])
            connection.executemany(_INSERT_SUBSTITUTION, [(run, *pair) for pair in substitutions])
            connection.execute(_UPDATE_SHAPE, (shape_hash(tools, substitutions), run))
        last_key = batch[-1][0]


def _spellings(document: Mapping[str, Any]) -> tuple[dict[str, str], dict[str, str]]:
    """Return the spelling of each tool in the run and in its golden, by normalized name."""
    return _spelling_by_tool(document["tools_used"]), _spelling_by_tool(_expected_names(document["rows"]))


def _expected_names(rows: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    for row in rows:
        if row["expected"] is not None:
            yield row["expected"]
            yield from _NAME_SEPARATORS.split(row["expected"])


def _spelling_by_tool(names: Iterable[str]) -> dict[str, str]:
    spellings: dict[str, str] = {}
    for name in names:
        spellings.setdefault(tool_key(name), valid_unicode(name))
    return spellings


_SELECT_RUNS = "SELECT key FROM runs WHERE key > ? ORDER BY key LIMIT ?"
_SELECT_TOOLS_OF_RUN = "SELECT tool, role, coalesce(name, tool) FROM tools_of_runs WHERE run = ? ORDER BY tool, role"
_SELECT_SUBSTITUTIONS_OF_RUN = "SELECT expected, called FROM substitutions_of_runs WHERE run = ?"
_SELECT_SCORES_OF_RUN = "SELECT metric, value FROM scores_of_runs WHERE run = ?"


def share_rows_of_equal_shapes(connection: sqlite3.Connection) -> None:
    """Fill the tables of version 4, which have one row for all runs of a shape, from the rows of the runs."""
    last_key = 0
    while runs := connection.execute(_SELECT_RUNS, (last_key, _BATCH_SIZE)).fetchall():
        for (run,) in runs:
            tools = connection.execute(_SELECT_TOOLS_OF_RUN, (run,)).fetchall()
            substitutions = sorted(connection.execute(_SELECT_SUBSTITUTIONS_OF_RUN, (run,)))
            scores = connection.execute(_SELECT_SCORES_OF_RUN, (run,)).fetchall()
            shape = shape_hash(tools, substitutions, scores)
            insert_shape(connection, shape, tools, substitutions, scores)
            connection.execute(_UPDATE_SHAPE, (shape, run))
        last_key = runs[-1][0]


_DELETE_UNUSED_SHAPE = """
    WHEN NOT EXISTS (SELECT 1 FROM runs WHERE shape = OLD.shape) BEGIN
        DELETE FROM tools WHERE shape = OLD.shape;
        DELETE FROM substitutions WHERE shape = OLD.shape;
        DELETE FROM scores WHERE shape = OLD.shape;
    END
"""

_VERSION_1 = (
    # Contains every field that filters use, so that a filter never reads a document.
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
    # Covers every filter except `text`: a query scans the runs in this index, newest first.
    """CREATE INDEX runs_listed ON runs (
        time_ns, key, passed, unit, golden, agent, service, environment, session_id
    )""",
    # AUTOINCREMENT never reuses a key, so that a client can ask for everything after the last key it has seen.
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
    # Tombstones: evaluations of runs in a deleted trace that arrive later are not stored.
    "CREATE TABLE deletions (trace_id TEXT PRIMARY KEY, time_ns INTEGER NOT NULL) WITHOUT ROWID",
    "CREATE INDEX deletions_listed ON deletions (time_ns)",
)

_VERSION_3 = (
    # The display name: the tool in the spelling of the run or its golden.
    "ALTER TABLE tools ADD COLUMN name TEXT",
    # Which tool was called in place of an expected one.
    """CREATE TABLE substitutions (
        run INTEGER NOT NULL REFERENCES runs ON DELETE CASCADE,
        expected TEXT NOT NULL,
        called TEXT NOT NULL,
        PRIMARY KEY (run, expected, called)
    ) WITHOUT ROWID""",
    # Runs of equal shape have equal rows in `tools` and `substitutions`, so that aggregates read one run per shape.
    "ALTER TABLE runs ADD COLUMN shape INTEGER",
    fill_tool_names_and_shapes,
    "DROP INDEX runs_listed",
    """CREATE INDEX runs_listed ON runs (
        time_ns, key, passed, unit, golden, agent, service, environment, session_id, shape
    )""",
)

_VERSION_4 = (
    # The rows that runs of equal shape have in common: tools, substitutions and scores.
    "ALTER TABLE tools RENAME TO tools_of_runs",
    "ALTER TABLE substitutions RENAME TO substitutions_of_runs",
    "ALTER TABLE scores RENAME TO scores_of_runs",
    "DROP INDEX tools_listed",
    "DROP INDEX scores_listed",
    """CREATE TABLE tools (
        shape INTEGER NOT NULL,
        tool TEXT NOT NULL,
        role TEXT NOT NULL,
        name TEXT NOT NULL,
        PRIMARY KEY (shape, tool, role)
    ) WITHOUT ROWID""",
    """CREATE TABLE substitutions (
        shape INTEGER NOT NULL,
        expected TEXT NOT NULL,
        called TEXT NOT NULL,
        PRIMARY KEY (shape, expected, called)
    ) WITHOUT ROWID""",
    """CREATE TABLE scores (
        shape INTEGER NOT NULL,
        metric TEXT NOT NULL,
        value REAL,
        PRIMARY KEY (shape, metric)
    ) WITHOUT ROWID""",
    share_rows_of_equal_shapes,
    "DROP TABLE tools_of_runs",
    "DROP TABLE substitutions_of_runs",
    "DROP TABLE scores_of_runs",
    "CREATE INDEX tools_listed ON tools (tool, role)",
    "CREATE INDEX scores_listed ON scores (metric, value)",
    # The last run of a shape takes the rows of the shape with it.
    "CREATE INDEX runs_of_shape ON runs (shape)",
    f"CREATE TRIGGER shape_of_deleted_run AFTER DELETE ON runs {_DELETE_UNUSED_SHAPE}",
    f"CREATE TRIGGER shape_of_changed_run AFTER UPDATE OF shape ON runs {_DELETE_UNUSED_SHAPE}",
)

MIGRATIONS: tuple[tuple[Migration, ...], ...] = (_VERSION_1, _VERSION_2, _VERSION_3, _VERSION_4)

STORE_FORMAT = SqliteFormat(
    application_id=0x676F6C64,  # `gold` in ASCII
    migrations=MIGRATIONS,
    creation_pragmas=("auto_vacuum = INCREMENTAL",),
    connection_pragmas=(
        "synchronous = NORMAL",
        "foreign_keys = ON",
        "secure_delete = ON",
        "journal_size_limit = 4194304",
    ),
    upgrade_hint="pip install --upgrade goldspan",
    foreign_hint="name another file for the store",
)
