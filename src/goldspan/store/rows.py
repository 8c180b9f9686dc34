"""How an evaluation is written: its run, its document, and the rows by which it is found."""

from __future__ import annotations

import sqlite3

from goldspan.store.entries import Entry

_ADD_RUN = """
    INSERT OR IGNORE INTO runs
        (run_id, time_ns, revision, passed, unit, golden, agent, service, environment, session_id, text, shape)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
_CHANGE_RUN = """
    UPDATE runs SET revision = ?, passed = ?, unit = ?, golden = ?, agent = ?, service = ?, environment = ?,
        session_id = ?, text = ?, shape = ? WHERE key = ?
"""
_FIND_RUN = "SELECT key, time_ns, revision FROM runs WHERE run_id = ?"
_ADD_EVALUATION = """
    INSERT OR IGNORE INTO evaluations (run, revision, digest, stored_ns, document) VALUES (?, ?, ?, ?, ?)
"""


def write(connection: sqlite3.Connection, entry: Entry, now_ns: int) -> None:
    """Store an evaluation; what is there already stays as it is.

    Most are the first of their run, which is written once then, and not looked up.
    """
    added = connection.execute(_ADD_RUN, (entry.run_id, entry.time_ns, *entry.columns))
    is_new = added.rowcount > 0
    if is_new:
        run, time_ns, revision = added.lastrowid, entry.time_ns, entry.revision
    else:
        run, time_ns, revision = connection.execute(_FIND_RUN, (entry.run_id,)).fetchone()
    stored = connection.execute(_ADD_EVALUATION, (run, entry.revision, entry.digest, now_ns, entry.document))
    if stored.rowcount and entry.revision >= revision:
        if not is_new:
            connection.execute(_CHANGE_RUN, (*entry.columns, run))
            _unlist(connection, run)
        connection.execute("UPDATE runs SET current = ? WHERE key = ?", (stored.lastrowid, run))
        _list(connection, entry, run, time_ns)


def _unlist(connection: sqlite3.Connection, run: int | None) -> None:
    """Have a run no longer be found by what its last evaluation said."""
    for table in ("tools", "substitutions", "scores", "traces"):
        connection.execute(f"DELETE FROM {table} WHERE run = ?", (run,))


def _list(connection: sqlite3.Connection, entry: Entry, run: int | None, time_ns: int) -> None:
    """Have a run be found by what its current evaluation says."""
    connection.executemany(
        "INSERT INTO tools (run, tool, role, time_ns, name) VALUES (?, ?, ?, ?, ?)",
        [(run, tool, role, time_ns, name) for tool, role, name in entry.tools],
    )
    connection.executemany(
        "INSERT INTO substitutions (run, expected, called) VALUES (?, ?, ?)",
        [(run, *each) for each in entry.substitutions],
    )
    connection.executemany(
        "INSERT INTO scores (run, metric, value, time_ns) VALUES (?, ?, ?, ?)",
        [(run, metric, value, time_ns) for metric, value in entry.scores.items()],
    )
    connection.executemany(
        "INSERT INTO traces (run, trace_id, time_ns) VALUES (?, ?, ?)",
        [(run, trace_id, time_ns) for trace_id in sorted(entry.traces)],
    )
