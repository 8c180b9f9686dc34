"""A stored evaluation as a document: names and numbers, and values only where they are asked for."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from goldspan.extraction.names import fold
from goldspan.model import Evaluation, Health, Row, Run, ToolCall, ToolDefinition
from goldspan.model.rendering import Contrast, differences_of
from goldspan.sinks.documents import evaluation_document

LONGEST_INPUT = 2000
"""Characters that are kept of what was asked."""

_TYPE = re.compile(r"[A-Za-z_][\w.]{0,99}(?=:|$)")
_NAMES = ("name", "server", "outcome", "call_id", "agent", "span_id", "start_ns", "end_ns")
"""Fields of a call that tell of it without what was passed or came back."""
_VALUES = ("arguments", "raw_arguments", "result", "error", "error_guess")


def stored_document(evaluation: Evaluation, *, keep_arguments: bool) -> dict[str, Any]:
    """Everything that is kept of an evaluation.

    With `keep_arguments` also the values: arguments, results, texts of errors, the output and the metadata.
    """
    run = evaluation.run
    document = evaluation_document(evaluation, arguments=keep_arguments)
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
        "input": kept_input(run),
        "tool_calls": [dict(_call(call, keep_arguments)) for call in run.tool_calls],
        "available_tools": [tool.name for tool in run.available_tools],
        "read_only": {tool.name: tool.read_only for tool in run.available_tools if tool.read_only is not None},
        "states_expectations": run.expected_tools is not None,
        "asked_metrics": None if run.metrics is None else list(run.metrics),
        "conventions": list(run.conventions),
        "rows": [dict(_row(row, keep_arguments)) for row in evaluation.comparison.rows],
    }
    return document | {"metadata": dict(run.metadata), "schemas": _schemas(run)} if keep_arguments else document


def kept_input(run: Run) -> str | None:
    """The beginning of what was asked."""
    return None if run.input is None else run.input[:LONGEST_INPUT]


def run_of(document: Mapping[str, Any]) -> Run:
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
        available_tools=tuple(_offered(document)),
        golden_id=document["named_golden_id"],
        conventions=tuple(document["conventions"]),
        health=Health(**health),
        metadata=document.get("metadata", {}),
        metrics=None if document.get("asked_metrics") is None else tuple(document["asked_metrics"]),
        **told,
    )


def _schemas(run: Run) -> dict[str, Any]:
    """The schemas of the tools that were called, by which their arguments are judged."""
    called = {fold(name) for call in run.tool_calls for name in (call.name, call.raw_name)}
    offered = (tool for tool in run.available_tools if tool.parameters is not None)
    return {tool.name: tool.parameters for tool in offered if fold(tool.name) in called}


def _offered(document: Mapping[str, Any]) -> Iterator[ToolDefinition]:
    read_only, schemas = document.get("read_only", {}), document.get("schemas", {})
    for name in document["available_tools"]:
        yield ToolDefinition(name, parameters=schemas.get(name), read_only=read_only.get(name))


def _call(call: ToolCall, keep_arguments: bool) -> Iterator[tuple[str, Any]]:
    """What there is to say of a call; what is not known, or is as with most calls, is left out."""
    for name in (*_NAMES, *(_VALUES if keep_arguments else ())):
        if (value := getattr(call, name)) is not None:
            yield name, value
    for name, error in (("error", call.error), ("error_guess", call.error_guess)):
        if error is not None and not keep_arguments:
            yield name, _type_of(error)
    if call.raw_name != call.name:
        yield "raw_name", call.raw_name
    if call.kind != "tool":
        yield "kind", call.kind
    if call.evidence != "executed":
        yield "evidence", call.evidence
    if call.concurrent_with:
        yield "concurrent_with", list(call.concurrent_with)


def _type_of(error: str) -> str:
    """The type of an error; its text may quote what was passed."""
    told = _TYPE.match(error)
    return told[0] if told else "failed"


def _difference(contrast: Contrast) -> dict[str, Any]:
    """A value that differs; a hint only where there is one."""
    document = contrast._asdict()
    if contrast.hint is None:
        del document["hint"]
    return document


def _row(row: Row, keep_arguments: bool) -> Iterator[tuple[str, Any]]:
    """A line of the comparison; the call of it is told by its position."""
    differing, differences = differences_of(row, values=keep_arguments)
    yield "verdict", row.verdict
    yield "expected", row.expected.name if row.expected else None
    yield "called_at", row.called_at
    if row.in_order is not None:
        yield "in_order", row.in_order
    if differing:
        yield "differing", differing
    if differences:
        yield "differences", [_difference(each) for each in differences]
    if row.note:
        yield "note", row.note
