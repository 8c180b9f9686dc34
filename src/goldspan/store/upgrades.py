"""What a newer version keeps beside the runs of an older store, told by their documents."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from goldspan.store.entries import as_tool, shape_of, storable, substitutions_of

_BATCH = 500
_OF_GOLDEN = ("expected", "missing")
"""What a tool is in a run because its golden says so: the golden's spelling is the one that is shown."""
_PARTS = re.compile(r" or | & | \+ ")
"""Between the names of what is expected together, or one of it."""

_DOCUMENTS = """
    SELECT runs.key, current.document FROM runs JOIN evaluations AS current ON current.key = runs.current
    WHERE runs.key > ? ORDER BY runs.key LIMIT ?
"""
_TOOLS = "SELECT tool, role FROM tools WHERE run = ? ORDER BY tool, role"
_NAME = "UPDATE tools SET name = ? WHERE run = ? AND tool = ? AND role = ?"
_SUBSTITUTION = "INSERT INTO substitutions (run, expected, called) VALUES (?, ?, ?)"
_SHAPE = "UPDATE runs SET shape = ? WHERE key = ?"


def fill_shapes(connection: sqlite3.Connection) -> None:
    """Bring every run to version 3: the names of its tools as they are written, its substitutions, and its shape.

    A name that no document says is left as it is compared: without case and separators.
    """
    done = 0
    while found := connection.execute(_DOCUMENTS, (done, _BATCH)).fetchall():
        for run, text in found:
            document = json.loads(text)
            spelt = _names(document)
            listed = connection.execute(_TOOLS, (run,)).fetchall()
            tools = [(tool, role, spelt[role in _OF_GOLDEN].get(tool, tool)) for tool, role in listed]
            instead = substitutions_of(
                (fault["tool"], fault["instead"]) for fault in document["faults"] if fault["kind"] == "wrong_tool"
            )
            connection.executemany(_NAME, [(name, run, tool, role) for tool, role, name in tools])
            connection.executemany(_SUBSTITUTION, [(run, *each) for each in instead])
            connection.execute(_SHAPE, (shape_of(tools, instead), run))
        done = found[-1][0]


def _names(document: Mapping[str, Any]) -> tuple[dict[str, str], dict[str, str]]:
    """How the run writes its tools, and how its golden does, by the name as it is compared."""
    return _by_tool(document["tools_used"]), _by_tool(_expected(document["rows"]))


def _expected(rows: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    for row in rows:
        if row["expected"] is not None:
            yield row["expected"]
            yield from _PARTS.split(row["expected"])


def _by_tool(names: Iterable[str]) -> dict[str, str]:
    spelt: dict[str, str] = {}
    for name in names:
        spelt.setdefault(as_tool(name), storable(name))
    return spelt
