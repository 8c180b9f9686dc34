"""Converts an evaluation to its stored document and index rows, and a document back to a run."""

from __future__ import annotations

import hashlib
import re
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from pydantic_core import to_json

from goldspan.model import (
    AnyOf,
    ComparisonRow,
    Evaluation,
    ExpectedItem,
    ExpectedTool,
    Health,
    Run,
    ToolCall,
    ToolDefinition,
)
from goldspan.model.name_folding import fold_name
from goldspan.model.rendering import ValueDifference, render_differences
from goldspan.sinks.serialization import document_json, evaluation_document
from goldspan.store.store_protocol import ToolRole

MAX_INPUT_LENGTH = 2000
"""Maximum number of stored characters of the input."""

_ERROR_TYPE = re.compile(r"[A-Za-z_][\w.]{0,99}(?=:|$)")
_CALL_FIELDS = ("name", "server", "outcome", "call_id", "agent", "span_id", "start_ns", "end_ns")
"""Fields of a call that contain no values of arguments or results."""
_CALL_VALUE_FIELDS = ("arguments", "raw_arguments", "result", "error", "error_guess")


def evaluation_to_document(evaluation: Evaluation, *, keep_arguments: bool) -> dict[str, Any]:
    """Return the stored document of an evaluation.

    With `keep_arguments`, it contains the values too: arguments, results, error messages, output and metadata.
    """
    run = evaluation.run
    document = evaluation_document(evaluation, include_arguments=keep_arguments)
    document |= {
        "named_golden_id": run.golden_id,
        "component": run.component,
        "agent": run.agent,
        "service": run.service,
        "environment": run.environment,
        "session_id": run.session_id,
        "span_name": run.span_name,
        "start_ns": run.start_ns,
        "end_ns": run.end_ns,
        "input": truncated_input(run),
        "tool_calls": [dict(_call_fields(call, keep_arguments)) for call in run.tool_calls],
        "available_tools": [tool.name for tool in run.available_tools],
        "read_only": {tool.name: tool.read_only for tool in run.available_tools if tool.read_only is not None},
        "states_expectations": run.expected_tools is not None,
        "asked_metrics": None if run.metrics is None else list(run.metrics),
        "conventions": list(run.conventions),
        "rows": [dict(_row_fields(row, keep_arguments)) for row in evaluation.comparison.rows],
    }
    return (
        document | {"metadata": dict(run.metadata), "schemas": _called_tool_schemas(run)}
        if keep_arguments
        else document
    )


def truncated_input(run: Run) -> str | None:
    """Return the stored part of a run's input."""
    return None if run.input is None else run.input[:MAX_INPUT_LENGTH]


def run_from_document(document: Mapping[str, Any]) -> Run:
    """Return the run of a stored document, to evaluate it again.

    A field that was not stored is `None`, as if it had not been captured: without arguments, metrics that need them are
    not evaluated. The attributes of the run's span, its own expectations, and the schemas of tools that it did not call
    are never stored.
    """
    text_fields = ("span_id", "input", "output", "session_id", "agent", "service", "component")
    fields: dict[str, Any] = {
        name: document.get(name) for name in (*text_fields, "start_ns", "end_ns", "environment", "span_name")
    }
    calls = ({**call, "concurrent_with": tuple(call.get("concurrent_with", ()))} for call in document["tool_calls"])
    health: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in document["health"].items()
    }
    return Run(
        document["run_id"],
        unit=document["unit"],
        trace_ids=tuple(document["trace_ids"]),
        tool_calls=tuple(ToolCall(**call) for call in calls),
        available_tools=tuple(_tool_definitions(document)),
        golden_id=document["named_golden_id"],
        conventions=tuple(document["conventions"]),
        health=Health(**health),
        metadata=document.get("metadata", {}),
        metrics=None if document.get("asked_metrics") is None else tuple(document["asked_metrics"]),
        **fields,
    )


def _called_tool_schemas(run: Run) -> dict[str, Any]:
    """Return the schemas of the called tools, against which their arguments are validated."""
    called = {fold_name(name) for call in run.tool_calls for name in (call.name, call.raw_name)}
    with_schema = (tool for tool in run.available_tools if tool.parameters is not None)
    return {tool.name: tool.parameters for tool in with_schema if fold_name(tool.name) in called}


def _tool_definitions(document: Mapping[str, Any]) -> Iterator[ToolDefinition]:
    read_only, schemas = document.get("read_only", {}), document.get("schemas", {})
    for name in document["available_tools"]:
        yield ToolDefinition(name, parameters=schemas.get(name), read_only=read_only.get(name))


def _call_fields(call: ToolCall, keep_arguments: bool) -> Iterator[tuple[str, Any]]:
    """Yield the stored fields of a call; unknown fields and default values are left out."""
    for name in (*_CALL_FIELDS, *_CALL_VALUE_FIELDS) if keep_arguments else _CALL_FIELDS:
        if (value := getattr(call, name)) is not None:
            yield name, value
    if not keep_arguments:
        for name, error in (("error", call.error), ("error_guess", call.error_guess)):
            if error is not None:
                yield name, _error_type(error)
    if call.raw_name != call.name:
        yield "raw_name", call.raw_name
    if call.kind != "tool":
        yield "kind", call.kind
    if call.evidence != "executed":
        yield "evidence", call.evidence
    if call.concurrent_with:
        yield "concurrent_with", list(call.concurrent_with)


def _error_type(error: str) -> str:
    """Return the type of an error without its message, which may contain arguments."""
    match = _ERROR_TYPE.match(error)
    return match[0] if match else "failed"


def _difference_document(difference: ValueDifference) -> dict[str, Any]:
    """Return the document of a difference, without an empty hint."""
    document = difference._asdict()
    if difference.hint is None:
        del document["hint"]
    return document


def _row_fields(row: ComparisonRow, keep_arguments: bool) -> Iterator[tuple[str, Any]]:
    """Yield the stored fields of a row of the comparison, which refers to its call by position."""
    differing, differences = render_differences(row, values=keep_arguments)
    yield "verdict", row.verdict
    yield "expected", row.expected.name if row.expected else None
    yield "called_at", row.called_at
    if row.in_order is not None:
        yield "in_order", row.in_order
    if differing:
        yield "differing", differing
    if differences:
        yield "differences", [_difference_document(difference) for difference in differences]
    if row.note:
        yield "note", row.note


_MAX_TIME_NS = 2**63 - 1
"""The largest time that an SQLite integer holds, in the year 2262."""


class RunRecord(NamedTuple):
    """One evaluation in the form in which it is stored."""

    run_id: str
    time_ns: int
    revision: int
    digest: str
    passed: bool | None
    indexed_columns: tuple[str | None, ...]
    """Unit, golden, agent, service, environment and session, in this order."""
    search_text: str | None
    """The input, normalized for search."""
    tools: tuple[tuple[str, str, str], ...]
    """For each tool and role: the normalized name, the role, and the display name."""
    substitutions: tuple[tuple[str, str], ...]
    """Pairs of the expected tool and the tool that was called in its place."""
    scores: Mapping[str, float | None]
    shape: int
    """The hash of tools, substitutions and scores, which are stored once for all runs that have the same."""
    trace_ids: frozenset[str]
    document: str
    """JSON."""

    @property
    def run_columns(self) -> tuple[Any, ...]:
        """The columns of the table `runs` from `revision` to `shape`."""
        return (self.revision, self.passed, *self.indexed_columns, self.search_text, self.shape)


def record_of(evaluation: Evaluation, *, now_ns: int, keep_arguments: bool) -> RunRecord:
    """Return the record of an evaluation. A time in the future becomes `now_ns`, so that it does not sort first."""
    run, match = evaluation.run, evaluation.match
    text = truncated_input(run)
    columns = (run.unit, match.golden.id if match else None, run.agent, run.service, run.environment, run.session_id)
    tools = _unique_tools(_tool_roles(evaluation))
    substitutions = unique_substitutions(
        (fault.tool, fault.instead) for fault in evaluation.faults if fault.kind == "wrong_tool"
    )
    scores = {
        valid_unicode(score.metric): None if score.value is None else float(score.value) for score in evaluation.scores
    }
    return RunRecord(
        run_id=valid_unicode(run.run_id),
        time_ns=max(0, min(run.start_ns or run.end_ns or now_ns, now_ns, _MAX_TIME_NS)),
        revision=evaluation.revision,
        digest=evaluation.digest,
        passed=evaluation.passed,
        indexed_columns=tuple([None if value is None else valid_unicode(value) for value in columns]),
        search_text=None if text is None else search_key(text),
        tools=tools,
        substitutions=substitutions,
        scores=scores,
        shape=shape_hash(tools, substitutions, scores.items()),
        trace_ids=frozenset(map(valid_unicode, run.trace_ids)),
        document=_document_text(evaluation, keep_arguments=keep_arguments),
    )


def _document_text(evaluation: Evaluation, *, keep_arguments: bool) -> str:
    """Return the stored document as JSON.

    Without the values of the application, `pydantic_core` encodes it, in a third of the time of `document_json`.
    """
    if not keep_arguments:
        with suppress(ValueError):  # a lone surrogate, or an object that is not JSON
            encoded = to_json(evaluation_to_document(evaluation, keep_arguments=False))
            if not any(word in encoded for word in _NO_STRICT_JSON):
                return encoded.decode()
    return document_json(
        lambda values: evaluation_to_document(evaluation, keep_arguments=values), include_values=keep_arguments
    )


_NO_STRICT_JSON = (b"NaN", b"Infinity")
"""How `pydantic_core` writes numbers that strict JSON does not have. A text may contain these words too."""


def valid_unicode(text: str) -> str:
    """Return a text that UTF-8 can encode: lone surrogates become the replacement character."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def search_key(text: str) -> str:
    """Return a text in the form in which it is searched, without case."""
    return valid_unicode(text).casefold()


def tool_key(name: str) -> str:
    """Return the normalized name of a tool, without case and separators."""
    return valid_unicode(fold_name(name))


def unique_substitutions(found: Iterable[tuple[str, str | None]]) -> tuple[tuple[str, str], ...]:
    """Return each pair of expected and called tool once, whatever its spelling."""
    spellings: dict[tuple[str, str], tuple[str, str]] = {}
    for expected, called in found:
        spellings.setdefault(
            (tool_key(expected), tool_key(called or "")), (valid_unicode(expected), valid_unicode(called or ""))
        )
    return tuple(sorted(spellings.values()))


def shape_hash(
    tools: Iterable[tuple[str, str, str]],
    substitutions: Iterable[tuple[str, str]],
    scores: Iterable[tuple[str, float | None]] = (),
) -> int:
    """Return a 64-bit hash of the stored tools and scores of a run. Runs with equal hashes share these rows."""
    content = repr((tuple(tools), tuple(substitutions), sorted(scores))).encode()
    return int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "big", signed=True)


def _unique_tools(found: Iterable[tuple[str, ToolRole]]) -> tuple[tuple[str, str, str], ...]:
    """Return each tool and role once, with the first spelling of the name."""
    spellings: dict[tuple[str, str], str] = {}
    for name, role in found:
        spellings.setdefault((tool_key(name), role), valid_unicode(name))
    return tuple(sorted((tool, role, name) for (tool, role), name in spellings.items()))


def _tool_roles(evaluation: Evaluation) -> Iterator[tuple[str, ToolRole]]:
    for name in evaluation.run.tools_used:
        yield name, "called"
    for row in evaluation.comparison.rows:
        if row.expected is not None and row.verdict in ("paired", "missing"):
            for name in _expected_names(row.expected):
                yield name, "expected"
                if row.verdict == "missing":
                    yield name, "missing"
        if row.called is not None and row.verdict in ("unexpected", "forbidden"):
            yield row.called.name, row.verdict
        if row.called is not None and row.called.error is not None:
            yield row.called.name, "failed"


def _expected_names(item: ExpectedItem) -> Iterator[str]:
    """Yield the names of the expected tools, of all alternatives too."""
    if isinstance(item, ExpectedTool):
        yield item.name
        return
    children = [child for option in item.options for child in option] if isinstance(item, AnyOf) else item.items
    for child in children:
        yield from _expected_names(child)


_INSERT_RUN = """
    INSERT OR IGNORE INTO runs (run_id, time_ns, current,
        revision, passed, unit, golden, agent, service, environment, session_id, text, shape)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
_UPDATE_RUN = """
    UPDATE runs SET current = ?, revision = ?, passed = ?, unit = ?, golden = ?, agent = ?, service = ?,
        environment = ?, session_id = ?, text = ?, shape = ? WHERE key = ?
"""
_FIND_RUN = "SELECT key, time_ns, revision FROM runs WHERE run_id = ?"
_INSERT_EVALUATION = """
    INSERT OR IGNORE INTO evaluations (key, run, revision, digest, stored_ns, document) VALUES (?, ?, ?, ?, ?, ?)
"""
_SELECT_LAST_KEY = """
    SELECT max(coalesce((SELECT max(seq) FROM sqlite_sequence WHERE name = 'evaluations'), 0),
        coalesce((SELECT max(key) FROM evaluations), 0))
"""
"""The largest key that an evaluation ever had, which AUTOINCREMENT determines in the same way."""


def write_records(connection: sqlite3.Connection, records: Iterable[RunRecord], now_ns: int) -> None:
    """Store evaluations in the current transaction; ignore those that are already stored.

    Most evaluations are the first of their run, so the run is inserted first and looked up only if it exists. The key
    of the evaluation is chosen before, so that the run refers to it from the start.
    """
    index_rows = _IndexRows(connection)
    (key,) = connection.execute(_SELECT_LAST_KEY).fetchone()
    for record in records:
        content = (record.revision, record.digest, now_ns, record.document)
        added = connection.execute(_INSERT_RUN, (record.run_id, record.time_ns, key + 1, *record.run_columns))
        if added.rowcount > 0:
            key += 1
            connection.execute(_INSERT_EVALUATION, (key, added.lastrowid, *content))
            index_rows.add(record, added.lastrowid, record.time_ns)
            continue
        run, time_ns, revision = connection.execute(_FIND_RUN, (record.run_id,)).fetchone()
        key += 1  # SQLite counts the key as used even if the evaluation is ignored
        is_new = connection.execute(_INSERT_EVALUATION, (key, run, *content)).rowcount > 0
        if is_new and record.revision >= revision:
            connection.execute(_UPDATE_RUN, (key, *record.run_columns, run))
            index_rows.replace(record, run, time_ns)
    index_rows.insert_traces()


class _IndexRows:
    """Inserts the index rows of the runs' current evaluations: traces for each run, the others for each shape."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._stored_shapes: set[int] = set()
        self._traces: list[tuple[Any, ...]] = []

    def add(self, record: RunRecord, run: int | None, time_ns: int) -> None:
        """Add the rows of a run's current evaluation."""
        if record.shape not in self._stored_shapes:
            insert_shape(self._connection, record.shape, record.tools, record.substitutions, record.scores.items())
            self._stored_shapes.add(record.shape)
        self._traces += [(run, trace_id, time_ns) for trace_id in sorted(record.trace_ids)]

    def replace(self, record: RunRecord, run: int, time_ns: int) -> None:
        """Add the rows of an evaluation instead of those of the previous one. The update may have deleted its shape."""
        self.insert_traces()
        self._connection.execute("DELETE FROM traces WHERE run = ?", (run,))
        self._stored_shapes.clear()
        self.add(record, run, time_ns)

    def insert_traces(self) -> None:
        """Insert the rows of traces that were added."""
        self._connection.executemany(_INSERT_TRACE, self._traces)
        self._traces.clear()


def insert_shape(
    connection: sqlite3.Connection,
    shape: int,
    tools: Iterable[tuple[str, str, str]],
    substitutions: Iterable[tuple[str, str]],
    scores: Iterable[tuple[str, float | None]],
) -> None:
    """Store the rows of a shape, unless they are stored."""
    connection.executemany(_INSERT_TOOL, [(shape, *row) for row in tools])
    connection.executemany(_INSERT_SUBSTITUTION, [(shape, *row) for row in substitutions])
    connection.executemany(_INSERT_SCORE, [(shape, *row) for row in scores])


_INSERT_TRACE = "INSERT INTO traces (run, trace_id, time_ns) VALUES (?, ?, ?)"
_INSERT_TOOL = "INSERT OR IGNORE INTO tools (shape, tool, role, name) VALUES (?, ?, ?, ?)"
_INSERT_SUBSTITUTION = "INSERT OR IGNORE INTO substitutions (shape, expected, called) VALUES (?, ?, ?)"
_INSERT_SCORE = "INSERT OR IGNORE INTO scores (shape, metric, value) VALUES (?, ?, ?)"
