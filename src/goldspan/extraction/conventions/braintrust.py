"""Braintrust's OpenTelemetry SDKs: `braintrust.span_attributes` with `braintrust.input_json` and `.output_json`.

The type of a span is a field of a JSON text, or an attribute of its own; the name of a tool is the name of its span.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from goldspan.extraction import envelopes, values
from goldspan.extraction.convention import Convention, FromJson, Places
from goldspan.extraction.reading import Reading, Role
from goldspan.model import SpanRecord

_ATTRIBUTES = "braintrust.span_attributes"
_INPUT = ("braintrust.input_json", "braintrust.input")
_OUTPUT = ("braintrust.output_json", "braintrust.output")
_TYPES: dict[str, Role] = {"tool": "tool", "llm": "model"}


def _refine(span: SpanRecord, reading: Reading) -> Reading:
    described = values.plain(span.attributes.get(_ATTRIBUTES))
    if reading.role is None and isinstance(described, Mapping):
        reading.role = _TYPES.get(str(described.get("type")).lower())
    if reading.role == "tool":
        reading.span_name = span.name
    return reading


def _arguments(value: Any) -> values.Request:
    return values.request(value, envelopes.mcp_request)


CONVENTION = Convention(
    name="braintrust",
    title="Braintrust",
    source="https://github.com/braintrustdata (braintrust-sdk-go, -java, -ruby, -dotnet, -python)",
    versions="the OpenTelemetry SDKs",
    roles={f"{_ATTRIBUTES}.type": _TYPES},
    signs=(_ATTRIBUTES,),
    everywhere=Places(
        name=("tool.name",),
        call_id=("tool.call_id",),
        arguments=_INPUT,
        result=_OUTPUT,
        input=_INPUT,
        output=_OUTPUT,
        asked=tuple(map(FromJson, _INPUT)),
        answered=tuple(map(FromJson, _OUTPUT)),
    ),
    open_arguments=_arguments,
    refine=_refine,
    notes=("The type of a span is usually a field of the JSON in `braintrust.span_attributes`.",),
)
