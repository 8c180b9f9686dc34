"""Braintrust's OpenTelemetry SDKs: `braintrust.span_attributes` with `braintrust.input_json` and `.output_json`.

The type of a span is a field of a JSON text, or an attribute of its own; the name of a tool is the name of its span.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from goldspan.extraction import envelopes, messages, values
from goldspan.extraction.convention import Convention, FromJson, Places
from goldspan.extraction.reading import Reading, Role, Written
from goldspan.model import SpanRecord

_ATTRIBUTES = "braintrust.span_attributes"
_METADATA = "braintrust.metadata"
_FUNCTION = "function.name"
_INPUT = ("braintrust.input_json", "braintrust.input")
_OUTPUT = ("braintrust.output_json", "braintrust.output")
_TYPES: dict[str, Role] = {"tool": "tool", "function_call": "tool", "llm": "model"}
_RETURNED = envelopes.inside("result")


def _refine(span: SpanRecord, reading: Reading) -> Reading:
    described, told = _fields(span, _ATTRIBUTES), _fields(span, _METADATA)
    if reading.role is None:
        untyped: Role | None = "model" if isinstance(told.get("model"), str) and "type" not in described else None
        reading.role = _TYPES.get(str(described.get("type")).lower(), untyped)
    if reading.role == "tool":
        reading.span_name = span.name
        if _FUNCTION in span.attributes and reading.result is not None:
            reading.result = Written(reading.result.raw, lambda value: values.result(value, _RETURNED))
    if reading.role == "model" and "tools" in told:
        reading.tools = (*reading.tools, partial(messages.definitions, told["tools"]))
    if reading.session_id is None and isinstance(told.get("session_id"), str):
        reading.session_id = told["session_id"]
    return reading


def _fields(span: SpanRecord, key: str) -> Mapping[str, Any]:
    read = values.plain(span.attributes.get(key))
    return read if isinstance(read, Mapping) else {}


def _arguments(value: Any) -> values.Request:
    return values.request(value, envelopes.mcp_request)


CONVENTION = Convention(
    name="braintrust",
    title="Braintrust",
    source="https://github.com/braintrustdata (braintrust-sdk-go, -java, -ruby, -dotnet, -python)",
    versions="the OpenTelemetry SDKs",
    roles={f"{_ATTRIBUTES}.type": _TYPES},
    signs=(_ATTRIBUTES, _METADATA, *_INPUT),
    everywhere=Places(
        name=("tool.name", _FUNCTION),
        call_id=("tool.call_id",),
        arguments=_INPUT,
        result=_OUTPUT,
        input=_INPUT,
        output=_OUTPUT,
        session_id=(f"{_METADATA}.session_id",),
        asked=tuple(map(FromJson, _INPUT)),
        answered=tuple(map(FromJson, _OUTPUT)),
    ),
    open_arguments=_arguments,
    refine=_refine,
    notes=(
        "The type of a span is usually a field of the JSON in `braintrust.span_attributes`.",
        "A span without a type whose `braintrust.metadata` names a model is a model's: Go leaves its type out.",
        "`tools` and `session_id` in the JSON of `braintrust.metadata` are what they say.",
        "What a function of .NET's agents returned stands in `result`.",
    ),
)
