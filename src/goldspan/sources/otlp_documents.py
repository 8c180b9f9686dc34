"""Writes spans that a tool returns in a form of its own as OTLP/JSON, which `goldspan.otlp` reads."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from goldspan.sources.time_window import TimeWindow
from goldspan.sources.trace_source import JsonObject


def request_document(
    spans: Sequence[JsonObject], resource: JsonObject | None = None, scope_name: str | None = None
) -> dict[str, Any]:
    """Return an OTLP request with the spans of one resource and scope."""
    scope_spans: dict[str, Any] = {"spans": list(spans)}
    if scope_name:
        scope_spans["scope"] = {"name": scope_name}
    resource_spans: dict[str, Any] = {"scopeSpans": [scope_spans]}
    if resource:
        resource_spans["resource"] = {"attributes": attribute_list(resource)}
    return {"resourceSpans": [resource_spans]}


def spans_of(document: JsonObject) -> Iterator[JsonObject]:
    """Yield the spans of an OTLP document, which Tempo's first API calls `batches`."""
    for resource_spans in document.get("resourceSpans") or document.get("batches") or ():
        for scope_spans in resource_spans.get("scopeSpans") or resource_spans.get("instrumentationLibrarySpans") or ():
            yield from scope_spans.get("spans") or ()


def begins_in(window: TimeWindow, starts_ns: Iterable[int], *, unit_ns: int = 1) -> bool:
    """Return whether a trace whose spans began at these times belongs to a window; 0 is a time that is missing.

    The tool cuts times to whole units.
    """
    first_ns = min((start_ns for start_ns in starts_ns if start_ns), default=None)
    return first_ns is None or window.start_ns // unit_ns * unit_ns <= first_ns < window.end_ns


def starts_of(document: JsonObject) -> Iterator[int]:
    """Yield when each span of an OTLP document began; 0 for a span without a time."""
    return (int(span.get("startTimeUnixNano") or 0) for span in spans_of(document))


def attribute_list(attributes: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return attributes as OTLP key values. `None` is left out."""
    return [{"key": key, "value": any_value(value)} for key, value in attributes.items() if value is not None]


def any_value(value: Any) -> dict[str, Any]:
    """Return a JSON value as an OTLP `AnyValue`."""
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)} if -(2**63) <= value < 2**63 else {"doubleValue": float(value)}
    if isinstance(value, float):
        return {"doubleValue": value}
    if isinstance(value, Mapping):
        return {"kvlistValue": {"values": attribute_list(value)}}
    if isinstance(value, Iterable) and not isinstance(value, str):
        return {"arrayValue": {"values": [any_value(item) for item in value]}}
    return {} if value is None else {"stringValue": value}


def plain_value(value: Mapping[str, Any]) -> Any:
    """Return an OTLP `AnyValue` as a JSON value."""
    if "arrayValue" in value:
        return [plain_value(item) for item in value["arrayValue"].get("values", ())]
    if "kvlistValue" in value:
        return {pair["key"]: plain_value(pair.get("value", {})) for pair in value["kvlistValue"].get("values", ())}
    if "intValue" in value:
        return int(value["intValue"])  # protobuf's JSON writes 64-bit integers as text
    return next(iter(value.values()), None)


def hex_id(value: Any) -> str:
    """Return an id in hexadecimal digits from base64, in which protobuf's JSON writes bytes; empty if it is not."""
    try:
        return base64.b64decode(value, validate=True).hex() if isinstance(value, str) else ""
    except ValueError:
        return ""


def to_proto_json(value: Any) -> Any:
    """Return a protobuf message in proto3 JSON: field names in camelCase, and no field that is `null`.

    Attributes keep their names, which are values of the field `key`.
    """
    if isinstance(value, Mapping):
        return {_camel_case(name): to_proto_json(field) for name, field in value.items() if field is not None}
    if isinstance(value, list):
        return [to_proto_json(item) for item in value]
    return value


def _camel_case(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(word.capitalize() for word in others)
