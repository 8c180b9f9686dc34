"""Braintrust's OpenTelemetry SDKs: `braintrust.span_attributes`, `braintrust.input_json` and so on.

The type of a span is a field of a JSON text or a separate attribute. The name of a tool is the name of its span.
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
_unwrap_function_result = envelopes.keyed_result("result")


def _postprocess(span: SpanRecord, facts: SpanFacts) -> SpanFacts:
    span_fields, metadata = _json_fields(span, _ATTRIBUTES), _json_fields(span, _METADATA)
    if facts.role is None:
        default: Role | None = "model" if isinstance(metadata.get("model"), str) and "type" not in span_fields else None
        facts.role = _TYPES.get(str(span_fields.get("type")).lower(), default)
    if facts.role == "tool":
        facts.span_name = span.name
        if _FUNCTION in span.attributes and facts.result is not None:
            facts.result = RawValue(
                facts.result.raw, lambda value: envelopes.unwrap_result(value, _unwrap_function_result)
            )
    if facts.role == "model" and "tools" in metadata:
        facts.tool_definitions = (*facts.tool_definitions, partial(tool_definitions, metadata["tools"]))
    if facts.session_id is None and isinstance(metadata.get("session_id"), str):
        facts.session_id = metadata["session_id"]
    return facts


def _json_fields(span: SpanRecord, key: str) -> Mapping[str, Any]:
    decoded = literals.plain_value(span.attributes.get(key))
    return decoded if isinstance(decoded, Mapping) else {}


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
        "A span without a type is a model call if `braintrust.metadata` names a model. The Go SDK omits the type.",
        "`tools` and `session_id` are fields of the JSON in `braintrust.metadata`.",
        "The function spans of .NET agents hold the result in `result`.",
    ),
)
