"""Genkit, after `js/core/src/tracing/instrumentation.ts` and recorded exports: genkit 1.42, Go 1.4."""

from __future__ import annotations

import json
from typing import Any

import pytest

from goldspan.conventions import installed_conventions
from goldspan.extraction import extract
from goldspan.model import SpanRecord
from support.span_builders import span


def action(subtype: str, name: str = "x", **more: Any) -> SpanRecord:
    fields = {key: more.pop(key) for key in ("parent_id", "status") if key in more}
    attributes = {"genkit:type": "action", "genkit:metadata:subtype": subtype, "genkit:name": name}
    return span(name, **fields, **attributes, **{f"genkit:{key}": value for key, value in more.items()})


@pytest.mark.parametrize(
    ("subtype", "role", "kind"),
    [
        ("tool", "tool", None),
        ("tool.v2", "tool", None),
        ("retriever", "tool", "retrieval"),
        ("flow", "entry", None),
        ("agent", "agent", None),
        ("model", "model", None),
        ("prompt", None, None),
        ("evaluator", None, None),
    ],
)
def test_the_subtype_determines_role_and_kind(subtype: str, role: str | None, kind: str | None) -> None:
    reading = installed_conventions().classify(action(subtype))
    assert (reading.role, reading.kind) == (role, kind)


def test_a_nested_flow_is_part_of_the_same_request() -> None:
    outer = action("flow", input='"Plan it."', output='"Done."', sessionId="s1")
    inner = action("flow", parent_id=outer.span_id, input='"A part."')
    call = action("tool", "search", parent_id=inner.span_id, input='{"q": 1}', output='"found"', state="success")
    [run] = extract([outer, inner, call])
    assert (run.input, run.output, run.session_id) == ("Plan it.", "Done.", "s1")
    assert [(made.name, made.arguments, made.result) for made in run.tool_calls] == [("search", {"q": 1}, "found")]


def test_a_call_that_only_the_model_span_shows_is_requested() -> None:
    said = {"message": {"role": "model", "content": [{"toolRequest": {"name": "pay", "ref": "r1", "input": {"n": 1}}}]}}
    [run] = extract([action("model", output=json.dumps(said))])
    assert [(call.name, call.call_id, call.evidence) for call in run.tool_calls] == [("pay", "r1", "requested")]


def test_the_state_attribute_gives_the_error_if_the_span_status_is_unset() -> None:
    [run] = extract([action("tool", "search", state="error")])
    assert [call.error for call in run.tool_calls] == ["error"]


@pytest.mark.parametrize(
    ("subtype", "response", "result"),
    [
        ("tool.v2", {"output": {"found": 1}}, {"found": 1}),
        ("tool.v2", {"output": "found", "content": [{"text": "a picture"}]}, None),
        ("tool.v2", {}, {}),
        ("tool", {"output": {"found": 1}}, None),
    ],
)
def test_the_result_of_a_multipart_tool_is_the_output_of_its_response(
    subtype: str, response: dict[str, Any], result: Any
) -> None:
    # go/ai/gen.go, MultipartToolResponse
    [run] = extract([action(subtype, "search", input="{}", output=json.dumps(response), state="success")])
    assert [call.result for call in run.tool_calls] == [response if result is None else result]
