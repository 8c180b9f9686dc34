"""What is sent as one request: an entry of the journal as it came, or, where a back end cannot take that, otherwise.

Nothing is lost on the way from JSON to protobuf or from one request to two halves of it.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from google.protobuf.json_format import ParseDict, ParseError
from google.protobuf.message import DecodeError as ProtobufError
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from goldspan.gateway.intake.parsing import turn
from goldspan.gateway.signals import Media, Signal
from goldspan.otlp.decoding import DecodeError
from goldspan.otlp.json_fields import parse

_REQUESTS: Mapping[Signal, Any] = {
    "traces": ExportTraceServiceRequest,
    "logs": ExportLogsServiceRequest,
    "metrics": ExportMetricsServiceRequest,
}
_LEVELS: Mapping[Signal, tuple[str, str, str]] = {
    "traces": ("resource_spans", "scope_spans", "spans"),
    "logs": ("resource_logs", "scope_logs", "log_records"),
    "metrics": ("resource_metrics", "scope_metrics", "metrics"),
}
_IDS = frozenset({"traceId", "spanId", "parentSpanId"})
_OLDER_NAMES = {f"instrumentationLibrary{what}": f"scope{what}" for what in ("Spans", "Logs", "Metrics")} | {
    "instrumentationLibrary": "scope"
}
"""What OTLP called scopes before 2022, with the names of today: the messages are the same."""


class Part(NamedTuple):
    """What is sent as one request."""

    media: Media
    body: bytes


def as_protobuf(signal: Signal, body: bytes) -> bytes:
    """A request in OTLP/JSON as the same in protobuf, which gRPC needs.

    OTLP/JSON is proto3 JSON but for its ids, which are hexadecimal there: they are put into base64, and protobuf's own
    reader does the rest. Fields that OTLP/JSON does not know (snake_case names among them) are left out, and so is any
    single span, log record or metric that is wrong, as receivers of OTLP/JSON are to do.

    Raises `DecodeError` for what is no request at all.
    """
    with turn(body):
        try:
            text = body.decode("utf-8-sig").strip()
            document, end = parse(text)
        except ValueError as error:
            raise DecodeError("no JSON") from error
        if end < len(text) or not isinstance(document, dict):
            raise DecodeError("no JSON object")
        plain = _proto3(document)
        try:
            return _written(plain, signal)
        except ParseError:
            _leave_wrong_items_out(plain, signal)
        try:
            return _written(plain, signal)
        except ParseError as error:
            raise DecodeError("no OTLP/JSON") from error


def in_protobuf(signal: Signal, part: Part) -> Part:
    """The same in protobuf, whatever it is in. Raises `DecodeError` for what cannot be read."""
    return part if part.media == "protobuf" else Part("protobuf", as_protobuf(signal, part.body))


def halves(signal: Signal, part: Part) -> tuple[Part, Part] | None:
    """A request as two, each with about half of the items; `None` where there is nothing to divide.

    It is cut between resources, else between scopes, else between items, and what stands above the cut is in both.
    """
    try:
        first = _REQUESTS[signal].FromString(in_protobuf(signal, part).body)
    except (ProtobufError, DecodeError):
        return None
    second = type(first)()
    second.CopyFrom(first)
    if not _cut(first, second, _LEVELS[signal]):
        return None
    return Part("protobuf", first.SerializeToString()), Part("protobuf", second.SerializeToString())


def _cut(first: Any, second: Any, levels: tuple[str, ...]) -> bool:
    for level in levels:
        left, right = getattr(first, level), getattr(second, level)
        if not left:
            return False
        if len(left) > 1:
            half = len(left) // 2
            del left[half:]
            del right[:half]
            return True
        first, second = left[0], right[0]
    return False


def _written(document: Any, signal: Signal) -> bytes:
    request = ParseDict(document, _REQUESTS[signal](), ignore_unknown_fields=True)
    return bytes(request.SerializeToString())


def _proto3(node: Any) -> Any:
    """A part of an OTLP/JSON document as plain proto3 JSON. Attribute keys are values there, and never renamed."""
    if isinstance(node, dict):
        return {
            _OLDER_NAMES.get(name, name): _id(value) if name in _IDS else _proto3(value)
            for name, value in node.items()
            if "_" not in name
        }
    if isinstance(node, list):
        return [_proto3(item) for item in node if item is not None]
    return node


def _id(value: Any) -> Any:
    try:
        return base64.b64encode(bytes.fromhex(value)).decode()
    except (ValueError, TypeError):
        return value if value is None else False  # which no reader takes for bytes: the item is left out


def _leave_wrong_items_out(document: Any, signal: Signal) -> None:
    for scope, field in _scopes(document, signal):
        scope[field] = [item for item in scope[field] if _is_right(item, field, signal)]


def _scopes(document: Any, signal: Signal) -> Iterator[tuple[dict[str, Any], str]]:
    """Each object with a list of items in it, and the name of that list."""
    resources, scopes, items = (_camel_case(level) for level in _LEVELS[signal])
    for resource in _objects(document, resources):
        for scope in _objects(resource, scopes):
            if isinstance(scope.get(items), list):
                yield scope, items


def _objects(parent: Any, field: str) -> list[dict[str, Any]]:
    given = parent.get(field) if isinstance(parent, dict) else None
    return [item for item in given if isinstance(item, dict)] if isinstance(given, list) else []


def _is_right(item: Any, field: str, signal: Signal) -> bool:
    resources, scopes, _ = (_camel_case(level) for level in _LEVELS[signal])
    alone = {resources: [{scopes: [{field: [item]}]}]}
    try:
        _written(alone, signal)
    except ParseError:
        return False
    return True


def _camel_case(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(map(str.capitalize, rest))
