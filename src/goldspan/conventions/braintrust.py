"""Braintrust's OpenTelemetry SDKs: `braintrust.span_attributes` with `braintrust.input_json` and `.output_json`.

The type of a span is a field of a JSON text, or an attribute of its own; the name of a tool is the name of its span.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from goldspan.content import envelopes, literals
from goldspan.content.tools import tool_definitions
from goldspan.conventions.convention import AttributeMap, Convention, FromJson
from goldspan.conventions.span_facts import RawValue, Role, SpanFacts
from goldspan.model import SpanRecord

_ATTRIBUTES = "braintrust.span_attributes"
_METADATA = "braintrust.metadata"
_FUNCTION = "function.name"
_INPUT = ("braintrust.input_json", "braintrust.input")
_OUTPUT = ("braintrust.output_json", "braintrust.output")
_TYPES: dict[str, Role] = {"tool": "tool", "function_call": "tool", "llm": "model"}
_unwrap_returned = envelopes.keyed_result("result")


def _postprocess(span: SpanRecord, facts: SpanFacts) -> SpanFacts:
    described, told = _json_fields(span, _ATTRIBUTES), _json_fields(span, _METADATA)
    if facts.role is None:
        untyped: Role | None = "model" if isinstance(told.get("model"), str) and "type" not in described else None
        facts.role = _TYPES.get(str(described.get("type")).lower(), untyped)
    if facts.role == "tool":
        facts.span_name = span.name
        if _FUNCTION in span.attributes and facts.result is not None:
            facts.result = RawValue(facts.result.raw, lambda value: envelopes.unwrap_result(value, _unwrap_returned))
    if facts.role == "model" and "tools" in told:
        facts.tool_definitions = (*facts.tool_definitions, partial(tool_definitions, told["tools"]))
    if facts.session_id is None and isinstance(told.get("session_id"), str):
        facts.session_id = told["session_id"]
    return facts


def _json_fields(span: SpanRecord, key: str) -> Mapping[str, Any]:
    read = literals.plain_value(span.attributes.get(key))
    return read if isinstance(read, Mapping) else {}


def _unwrap_arguments(value: Any) -> envelopes.CallArguments:
    return envelopes.unwrap_arguments(value, envelopes.mcp_request)


CONVENTION = Convention(
    name="braintrust",
    title="Braintrust",
    source="https://github.com/braintrustdata (braintrust-sdk-go, -java, -ruby, -dotnet, -python)",
    versions="the OpenTelemetry SDKs",
    roles={f"{_ATTRIBUTES}.type": _TYPES},
    marker_attributes=(_ATTRIBUTES, _METADATA, *_INPUT),
    common_attributes=AttributeMap(
        name=("tool.name", _FUNCTION),
        call_id=("tool.call_id",),
        arguments=_INPUT,
        result=_OUTPUT,
        input=_INPUT,
        output=_OUTPUT,
        session_id=(f"{_METADATA}.session_id",),
        input_messages=tuple(map(FromJson, _INPUT)),
        output_messages=tuple(map(FromJson, _OUTPUT)),
    ),
    unwrap_arguments=_unwrap_arguments,
    postprocess=_postprocess,
    notes=(
        "The type of a span is usually a field of the JSON in `braintrust.span_attributes`.",
        "A span without a type whose `braintrust.metadata` names a model is a model's: Go leaves its type out.",
        "`tools` and `session_id` in the JSON of `braintrust.metadata` are what they say.",
        "What a function of .NET's agents returned stands in `result`.",
    ),
)
