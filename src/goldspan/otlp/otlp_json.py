"""Spans from OTLP/JSON: proto3 JSON, but with hexadecimal ids.

Read as tolerantly as senders write: int64 as text or number, enums as numbers or names, `null` for "not set", unknown
fields, and the snake_case field names of a protobuf dump.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from goldspan.model import SpanEvent, SpanRecord
from goldspan.otlp.decoding import STATUSES, Decoded, DecodeError, checked_ids, parent_of, readable

_DEEPEST = 100
"""How deep values may nest: protobuf's own limit for all messages."""
_STATUS_CODES = {"STATUS_CODE_UNSET": 0, "STATUS_CODE_OK": 1, "STATUS_CODE_ERROR": 2}
_SPAN_KINDS = {
    f"SPAN_KIND_{name}": kind
    for kind, name in enumerate(("UNSPECIFIED", "INTERNAL", "SERVER", "CLIENT", "PRODUCER", "CONSUMER"))
}
_UINT32 = range(2**32)
_INT32 = range(-(2**31), 2**31)
_INT64 = range(-(2**63), 2**63)
_UINT64 = range(2**64)

_DECODER = json.JSONDecoder()
_LONE_SURROGATE = re.compile(r"\\\\|\\u[dD][89abAB]\w\w\\u[dD][c-fC-F]\w\w|(\\u[dD][89a-fA-F]\w\w)")


def parse(text: str, start: int = 0) -> tuple[Any, int]:
    """The JSON value that begins at `start`, and where it ends. Raises `ValueError`, however deep it nests.

    Half a surrogate pair, which JSON can write and UTF-8 cannot, becomes U+FFFD, so that results can be sent on.
    """
    try:
        value, end = _DECODER.raw_decode(text, start)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if text.find("\\ud", start, end) >= 0 or text.find("\\uD", start, end) >= 0:
        repaired = _LONE_SURROGATE.sub(lambda found: r"\ufffd" if found[1] else found[0], text[start:end])
        value = _DECODER.decode(repaired)
    return value, end


def decode_traces(document: Any) -> Decoded:
    """All spans of one parsed request. Raises `DecodeError` where its outline is not that of OTLP.

    A span with a wrong value in it is rejected alone. A document with snake_case names is rewritten in place.
    """
    if not isinstance(document, dict):
        raise DecodeError("not a JSON object")
    if "resource_spans" in document:
        _to_camel_case(document)
    spans: list[SpanRecord] = []
    rejected, reason = 0, ""
    for resource_spans in _objects(document, "resourceSpans"):
        resource = _attributes(_object(resource_spans, "resource"))
        for scope_spans in _objects(resource_spans, "scopeSpans"):
            scope = _text(_object(scope_spans, "scope"), "name")
            for span in _objects(scope_spans, "spans"):
                try:
                    spans.append(_span(span, scope, resource))
                except DecodeError as error:
                    rejected, reason = rejected + 1, reason or str(error)
    return Decoded(spans, rejected, reason)


def _span(span: dict[str, Any], scope: str, resource: Mapping[str, Any]) -> SpanRecord:
    trace_id, span_id = checked_ids(_id(span, "traceId"), _id(span, "spanId"))
    status = _object(span, "status")
    return SpanRecord(
        trace_id,
        span_id,
        parent_of(_id(span, "parentSpanId")),
        _text(span, "name"),
        _attributes(span),
        _integer(span, "startTimeUnixNano", _UINT64) or None,
        _integer(span, "endTimeUnixNano", _UINT64) or None,
        STATUSES.get(_enum(status, "code", _STATUS_CODES), "unset"),
        _text(status, "message"),
        tuple(map(_event, _objects(span, "events"))),
        _enum(span, "kind", _SPAN_KINDS),
        scope,
        resource,
        _integer(span, "droppedAttributesCount", _UINT32),
    )


def _event(event: dict[str, Any]) -> SpanEvent:
    return SpanEvent(_text(event, "name"), _attributes(event), _integer(event, "timeUnixNano", _UINT64) or None)


def _attributes(parent: dict[str, Any], field: str = "attributes", depth: int = 0) -> dict[str, Any]:
    return {_text(pair, "key"): _value(_object(pair, "value"), depth) for pair in _objects(parent, field)}


def _value(value: dict[str, Any], depth: int) -> Any:
    """The plain value of an `AnyValue`."""
    text = value.get("stringValue")
    if type(text) is str:  # nine of ten
        return text
    if depth > _DEEPEST:
        raise DecodeError("a value is nested too deeply")
    for kind, given in value.items():
        if given is not None and (plain := _PLAIN.get(kind)) is not None:
            return plain(value, kind, depth)
    return None


def _array(value: dict[str, Any], kind: str, depth: int) -> list[Any]:
    return [_value(item, depth + 1) for item in _objects(_object(value, kind), "values")]


def _kvlist(value: dict[str, Any], kind: str, depth: int) -> dict[str, Any]:
    return _attributes(_object(value, kind), "values", depth + 1)


def _boolean(value: dict[str, Any], kind: str, _depth: int) -> bool:
    given = value[kind]
    if not isinstance(given, bool):
        raise DecodeError(f"{kind} is not true or false")
    return given


def _double(value: dict[str, Any], kind: str, _depth: int) -> float:
    """Also `"NaN"`, `"Infinity"` and `"-Infinity"`, which JSON has no numbers for."""
    given = value[kind]
    if isinstance(given, int | float | str) and not isinstance(given, bool):
        try:
            return float(given)
        except (ValueError, OverflowError):
            pass
    raise DecodeError(f"{kind} is not a number")


def _bytes(value: dict[str, Any], kind: str, _depth: int) -> Any:
    """Base64 in either alphabet, with padding or without."""
    given = _text(value, kind).replace("-", "+").replace("_", "/").rstrip("=")
    try:
        return readable(base64.b64decode(given + "=" * (-len(given) % 4), validate=True))
    except ValueError as error:
        raise DecodeError(f"{kind} is not base64") from error


_PLAIN: Mapping[str, Callable[[dict[str, Any], str, int], Any]] = {
    "stringValue": lambda value, kind, _depth: _text(value, kind),
    "boolValue": _boolean,
    "intValue": lambda value, kind, _depth: _integer(value, kind, _INT64),
    "doubleValue": _double,
    "arrayValue": _array,
    "kvlistValue": _kvlist,
    "bytesValue": _bytes,
}


def _id(parent: dict[str, Any], field: str) -> bytes:
    try:
        return bytes.fromhex(_text(parent, field))
    except ValueError as error:
        raise DecodeError(f"{field} is not hexadecimal") from error


def _text(parent: dict[str, Any], field: str) -> str:
    given = parent.get(field)
    if type(given) is str:
        return given
    if given is None:
        return ""
    raise DecodeError(f"{field} is not text")


def _integer(parent: dict[str, Any], field: str, limits: range) -> int:
    """Exact, whether written as a number or as text; a float only where it is whole."""
    given = parent.get(field)
    if given is None:
        return 0
    try:
        number = int(given) if isinstance(given, int | str) or given.is_integer() else None
    except (ValueError, AttributeError):
        number = None
    if number is None or isinstance(given, bool) or number not in limits:
        raise DecodeError(f"{field} is not a whole number in its range")
    return number


def _enum(parent: dict[str, Any], field: str, names: Mapping[str, int]) -> int:
    """OTLP wants the number; a plain protobuf dump writes the name. A name from the future counts as 0."""
    given = parent.get(field)
    if isinstance(given, str) and not given.isdecimal():
        return names.get(given, 0)
    return _integer(parent, field, _INT32)


def _object(parent: dict[str, Any], field: str) -> dict[str, Any]:
    given = parent.get(field)
    if type(given) is dict:
        return given
    if given is None:
        return {}
    raise DecodeError(f"{field} is not a JSON object")


def _objects(parent: dict[str, Any], field: str) -> list[dict[str, Any]]:
    given = parent.get(field)
    if given is None:
        return []
    if type(given) is list:
        objects = [item for item in given if type(item) is dict]
        if len(objects) + given.count(None) == len(given):
            return objects
    raise DecodeError(f"{field} is not a list of JSON objects")


def _to_camel_case(document: dict[str, Any]) -> None:
    """Rename every field. Attribute keys are safe: in OTLP they are values."""
    waiting: list[Any] = [document]
    while waiting:
        part = waiting.pop()
        if isinstance(part, dict):
            for name in [name for name in part if "_" in name]:
                first, *rest = name.split("_")
                part[first + "".join(map(str.capitalize, rest))] = part.pop(name)
            waiting.extend(part.values())
        elif isinstance(part, list):
            waiting.extend(part)
