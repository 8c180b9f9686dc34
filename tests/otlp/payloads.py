"""Export requests made by hand, in both of OTLP's wire formats."""

from __future__ import annotations

import json
from typing import Any

from google.protobuf.json_format import MessageToDict
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue, KeyValueList
from opentelemetry.proto.trace.v1.trace_pb2 import Span

TRACE_ID = bytes(15) + b"\x01"
START = 1_700_000_000_000_000_000


def request(*names: str, trace: int = 1, service: str = "shop") -> ExportTraceServiceRequest:
    """A request with one span for each name; the position in it is the span's id."""
    made = ExportTraceServiceRequest()
    resource_spans = made.resource_spans.add()
    resource_spans.resource.attributes.append(KeyValue(key="service.name", value=AnyValue(string_value=service)))
    scope_spans = resource_spans.scope_spans.add()
    scope_spans.scope.name = "shop.tracer"
    for position, name in enumerate(names, 1):
        scope_spans.spans.append(
            Span(
                trace_id=trace.to_bytes(16, "big"),
                span_id=position.to_bytes(8, "big"),
                name=name,
                start_time_unix_nano=START + position,
                end_time_unix_nano=START + position + 5,
            )
        )
    return made


def tool_request(tool: str, *, trace: int = 1, at: int = 0, **attributes: str) -> ExportTraceServiceRequest:
    """A request with an agent's span and a tool's span inside it. Attributes go on the agent's span."""
    made = request("invoke_agent helper", f"execute_tool {tool}", trace=trace)
    agent, call = spans_of(made)
    call.parent_span_id = agent.span_id
    agent.start_time_unix_nano = START + at
    agent.end_time_unix_nano = START + at + 100
    add(agent, {"gen_ai.operation.name": "invoke_agent", **attributes})
    add(call, {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": tool})
    return made


def spans_of(made: ExportTraceServiceRequest) -> list[Span]:
    """All spans of a request, to be changed in place."""
    return [span for outer in made.resource_spans for inner in outer.scope_spans for span in inner.spans]


def add(span: Span, attributes: dict[str, Any]) -> None:
    """Put plain values on a span."""
    span.attributes.extend(KeyValue(key=key, value=any_value(value)) for key, value in attributes.items())


def any_value(value: Any) -> AnyValue:
    """A plain value as OTLP writes it."""
    match value:
        case None:
            return AnyValue()
        case bool():
            return AnyValue(bool_value=value)
        case int():
            return AnyValue(int_value=value)
        case float():
            return AnyValue(double_value=value)
        case str():
            return AnyValue(string_value=value)
        case bytes():
            return AnyValue(bytes_value=value)
        case list():
            return AnyValue(array_value=ArrayValue(values=map(any_value, value)))
        case dict():
            pairs = [KeyValue(key=key, value=any_value(item)) for key, item in value.items()]
            return AnyValue(kvlist_value=KeyValueList(values=pairs))
    raise TypeError(value)


def document(made: ExportTraceServiceRequest, *, enum_names: bool = False) -> dict[str, Any]:
    """The same request in OTLP/JSON: what protobuf makes of it, with hexadecimal ids."""
    plain: dict[str, Any] = MessageToDict(made, use_integers_for_enums=not enum_names)
    for outer, outer_plain in zip(made.resource_spans, plain.get("resourceSpans", ()), strict=True):
        for inner, inner_plain in zip(outer.scope_spans, outer_plain.get("scopeSpans", ()), strict=True):
            for span, span_plain in zip(inner.spans, inner_plain.get("spans", ()), strict=True):
                span_plain["traceId"] = span.trace_id.hex()
                span_plain["spanId"] = span.span_id.hex()
                span_plain["parentSpanId"] = span.parent_span_id.hex()
    return plain


def line(made: ExportTraceServiceRequest) -> bytes:
    """One line of a Collector's file."""
    return json.dumps(document(made), separators=(",", ":")).encode() + b"\n"
