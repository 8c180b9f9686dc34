"""How an evaluation is written: its run, its document, and the rows by which it is found."""

from __future__ import annotations

import hashlib
import re
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from goldspan.content.tools import fold_name
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
from goldspan.model.rendering import ValueDifference, render_differences
from goldspan.sinks.serialization import document_json, evaluation_document
from goldspan.store.store_protocol import ToolRole

MAX_INPUT_LENGTH = 2000
"""Characters that are kept of what was asked."""

_ERROR_TYPE = re.compile(r"[A-Za-z_][\w.]{0,99}(?=:|$)")
_CALL_FIELDS = ("name", "server", "outcome", "call_id", "agent", "span_id", "start_ns", "end_ns")
"""Fields of a call that tell of it without what was passed or came back."""
_CALL_VALUE_FIELDS = ("arguments", "raw_arguments", "result", "error", "error_guess")


def evaluation_to_document(evaluation: Evaluation, *, keep_arguments: bool) -> dict[str, Any]:
    """Everything that is kept of an evaluation.

    With `keep_arguments` also the values: arguments, results, texts of errors, the output and the metadata.
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
    """The beginning of what was asked."""
    return None if run.input is None else run.input[:MAX_INPUT_LENGTH]


def run_from_document(document: Mapping[str, Any]) -> Run:
    """The run of a stored document, to score it again.

    What was not kept is `None`, as if it had not been captured: without arguments, what depends on them is not known.
    Never kept are the attributes of its span, what it said itself is expected, and the schemas of tools that it did not
    call.
    """
    said = ("span_id", "input", "output", "session_id", "agent", "service", "component")
    told: dict[str, Any] = {
        name: document.get(name) for name in (*said, "start_ns", "end_ns", "environment", "span_name")
    }
    calls = ({**call, "concurrent_with": tuple(call.get("concurrent_with", ()))} for call in document["tool_calls"])
    health: dict[str, Any] = {
        name: tuple(told) if isinstance(told, list) else told for name, told in document["health"].items()
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
        **told,
    )


def _called_tool_schemas(run: Run) -> dict[str, Any]:
    """The schemas of the tools that were called, by which their arguments are judged."""
    called = {fold_name(name) for call in run.tool_calls for name in (call.name, call.raw_name)}
    offered = (tool for tool in run.available_tools if tool.parameters is not None)
    return {tool.name: tool.parameters for tool in offered if fold_name(tool.name) in called}


def _tool_definitions(document: Mapping[str, Any]) -> Iterator[ToolDefinition]:
    read_only, schemas = document.get("read_only", {}), document.get("schemas", {})
    for name in document["available_tools"]:
        yield ToolDefinition(name, parameters=schemas.get(name), read_only=read_only.get(name))


def _call_fields(call: ToolCall, keep_arguments: bool) -> Iterator[tuple[str, Any]]:
    """What there is to say of a call; what is not known, or is as with most calls, is left out."""
    for name in (*_CALL_FIELDS, *(_CALL_VALUE_FIELDS if keep_arguments else ())):
        if (value := getattr(call, name)) is not None:
            yield name, value
    for name, error in (("error", call.error), ("error_guess", call.error_guess)):
        if error is not None and not keep_arguments:
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
    """The type of an error; its text may quote what was passed."""
    told = _ERROR_TYPE.match(error)
    return told[0] if told else "failed"


def _difference_document(contrast: ValueDifference) -> dict[str, Any]:
    """A value that differs; a hint only where there is one."""
    document = contrast._asdict()
    if contrast.hint is None:
        del document["hint"]
    return document


def _row_fields(row: ComparisonRow, keep_arguments: bool) -> Iterator[tuple[str, Any]]:
    """A line of the comparison; the call of it is told by its position."""
    differing, differences = render_differences(row, values=keep_arguments)
    yield "verdict", row.verdict
    yield "expected", row.expected.name if row.expected else None
    yield "called_at", row.called_at
    if row.in_order is not None:
        yield "in_order", row.in_order
    if differing:
        yield "differing", differing
    if differences:
        yield "differences", [_difference_document(each) for each in differences]
    if row.note:
        yield "note", row.note


_MAX_TIME_NS = 2**63 - 1
"""Nanoseconds that SQLite can write: until the year 2262."""


@dataclass(frozen=True, slots=True)
class RunRecord:
    """What is stored of one evaluation."""

    run_id: str
    time_ns: int
    revision: int
    digest: str
    passed: bool | None
    indexed_columns: tuple[str | None, ...]
    """Unit, golden, agent, service, environment and session."""
    search_text: str | None
    """The input as it is searched."""
    tools: tuple[tuple[str, str, str], ...]
    """Each tool as it is searched for, what it was in the run, and its name as it is shown."""
    substitutions: tuple[tuple[str, str], ...]
    """The tool that was expected, and the one that was called in its place."""
    scores: Mapping[str, float | None]
    trace_ids: frozenset[str]
    document: str
    """JSON."""

    @property
    def run_columns(self) -> tuple[Any, ...]:
        """What stands beside the document in the list of runs, from the revision to the shape."""
        shape = shape_hash(self.tools, self.substitutions)
        return (self.revision, self.passed, *self.indexed_columns, self.search_text, shape)


def record_of(evaluation: Evaluation, *, now_ns: int, keep_arguments: bool) -> RunRecord:
    """An evaluation as it is stored. A run whose clock goes ahead counts as of now, so that it does not stay first."""
    run, match = evaluation.run, evaluation.match
    asked = truncated_input(run)
    listed = (run.unit, match.golden.id if match else None, run.agent, run.service, run.environment, run.session_id)
    return RunRecord(
        run_id=valid_unicode(run.run_id),
        time_ns=max(0, min(run.start_ns or run.end_ns or now_ns, now_ns, _MAX_TIME_NS)),
        revision=evaluation.revision,
        digest=evaluation.digest,
        passed=evaluation.passed,
        indexed_columns=tuple(None if text is None else valid_unicode(text) for text in listed),
        search_text=None if asked is None else search_key(asked),
        tools=_unique_tools(_tool_roles(evaluation)),
        substitutions=unique_substitutions(
            (fault.tool, fault.instead) for fault in evaluation.faults if fault.kind == "wrong_tool"
        ),
        scores={
            valid_unicode(score.metric): None if score.value is None else float(score.value)
            for score in evaluation.scores
        },
        trace_ids=frozenset(map(valid_unicode, run.trace_ids)),
        document=document_json(
            lambda values: evaluation_to_document(evaluation, keep_arguments=values), include_values=keep_arguments
        ),
    )


def valid_unicode(text: str) -> str:
    """A text that UTF-8 can say: half a surrogate pair becomes the replacement character."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def search_key(text: str) -> str:
    """A text as it is searched for and searched in: case does not matter."""
    return valid_unicode(text).casefold()


def tool_key(name: str) -> str:
    """A tool's name as it is searched for."""
    return valid_unicode(fold_name(name))


def unique_substitutions(found: Iterable[tuple[str, str | None]]) -> tuple[tuple[str, str], ...]:
    """Which tool was called in place of which, each two of them once, however they are spelt."""
    spelt: dict[tuple[str, str], tuple[str, str]] = {}
    for expected, called in found:
        spelt.setdefault(
            (tool_key(expected), tool_key(called or "")), (valid_unicode(expected), valid_unicode(called or ""))
        )
    return tuple(sorted(spelt.values()))


def shape_hash(tools: Iterable[tuple[str, str, str]], substitutions: Iterable[tuple[str, str]]) -> int:
    """A number of 64 bits that tells runs apart by what is stored of their tools: equal numbers, equal rows."""
    told = repr((tuple(tools), tuple(substitutions))).encode()
    return int.from_bytes(hashlib.blake2b(told, digest_size=8).digest(), "big", signed=True)


def _unique_tools(found: Iterable[tuple[str, ToolRole]]) -> tuple[tuple[str, str, str], ...]:
    """Each tool and role once, with the name that comes first."""
    spelt: dict[tuple[str, str], str] = {}
    for name, role in found:
        spelt.setdefault((tool_key(name), role), valid_unicode(name))
    return tuple(sorted((tool, role, name) for (tool, role), name in spelt.items()))


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
    """The tools that are expected: of alternatives, all of them."""
    if isinstance(item, ExpectedTool):
        yield item.name
        return
    inner = [each for option in item.options for each in option] if isinstance(item, AnyOf) else item.items
    for each in inner:
        yield from _expected_names(each)


_INSERT_RUN = """
    INSERT OR IGNORE INTO runs
        (run_id, time_ns, revision, passed, unit, golden, agent, service, environment, session_id, text, shape)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
_UPDATE_RUN = """
    UPDATE runs SET revision = ?, passed = ?, unit = ?, golden = ?, agent = ?, service = ?, environment = ?,
        session_id = ?, text = ?, shape = ? WHERE key = ?
"""
_FIND_RUN = "SELECT key, time_ns, revision FROM runs WHERE run_id = ?"
_INSERT_EVALUATION = """
    INSERT OR IGNORE INTO evaluations (run, revision, digest, stored_ns, document) VALUES (?, ?, ?, ?, ?)
"""


def write_record(connection: sqlite3.Connection, entry: RunRecord, now_ns: int) -> None:
    """Store an evaluation; what is there already stays as it is.

    Most are the first of their run, which is written once then, and not looked up.
    """
    added = connection.execute(_INSERT_RUN, (entry.run_id, entry.time_ns, *entry.run_columns))
    is_new = added.rowcount > 0
    if is_new:
        run, time_ns, revision = added.lastrowid, entry.time_ns, entry.revision
    else:
        run, time_ns, revision = connection.execute(_FIND_RUN, (entry.run_id,)).fetchone()
    stored = connection.execute(_INSERT_EVALUATION, (run, entry.revision, entry.digest, now_ns, entry.document))
    if stored.rowcount and entry.revision >= revision:
        if not is_new:
            connection.execute(_UPDATE_RUN, (*entry.run_columns, run))
            _delete_index_rows(connection, run)
        connection.execute("UPDATE runs SET current = ? WHERE key = ?", (stored.lastrowid, run))
        _insert_index_rows(connection, entry, run, time_ns)


def _delete_index_rows(connection: sqlite3.Connection, run: int | None) -> None:
    """Have a run no longer be found by what its last evaluation said."""
    for table in ("tools", "substitutions", "scores", "traces"):
        connection.execute(f"DELETE FROM {table} WHERE run = ?", (run,))


def _insert_index_rows(connection: sqlite3.Connection, entry: RunRecord, run: int | None, time_ns: int) -> None:
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
        [(run, trace_id, time_ns) for trace_id in sorted(entry.trace_ids)],
    )
