"""Export requests for tests, and every file format in which they are written."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable
from typing import Any

from google.protobuf.json_format import MessageToDict
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue, KeyValueList
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from goldspan.model import SpanRecord, TelemetryRecord

Request = ExportTraceServiceRequest | ExportLogsServiceRequest

TRACE_ID = bytes(15) + b"\x01"
START = 1_700_000_000_000_000_000


def request(*names: str, trace: int = 1, service: str = "shop") -> ExportTraceServiceRequest:
    """A request with one span for each name; the position of the name is the span's id."""
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
    """A request with an agent span and a tool span inside it. The agent span has the attributes."""
    made = request("invoke_agent helper", f"execute_tool {tool}", trace=trace)
    agent, call = spans_of(made)
    call.parent_span_id = agent.span_id
    agent.start_time_unix_nano = START + at
    agent.end_time_unix_nano = START + at + 100
    add(agent, {"gen_ai.operation.name": "invoke_agent", **attributes})
    add(call, {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": tool})
    return made


def logs_request(*names: str, trace: int = 1) -> ExportLogsServiceRequest:
    """A request with one log record for each event's name."""
    made = ExportLogsServiceRequest()
    resource_logs = made.resource_logs.add()
    resource_logs.resource.attributes.append(KeyValue(key="service.name", value=AnyValue(string_value="shop")))
    scope_logs = resource_logs.scope_logs.add()
    scope_logs.scope.name = "shop.logger"
    for position, name in enumerate(names, 1):
        scope_logs.log_records.append(
            LogRecord(
                event_name=name,
                trace_id=trace.to_bytes(16, "big"),
                span_id=position.to_bytes(8, "big"),
                time_unix_nano=START + position,
                body=AnyValue(string_value=f"the body of {name}"),
            )
        )
    return made


def requests_of(records: Iterable[TelemetryRecord]) -> list[Request]:
    """A request with the spans, and, if there are log records, one with these."""
    traces, logs = ExportTraceServiceRequest(), ExportLogsServiceRequest()
    for record in records:
        attributes = [KeyValue(key=key, value=any_value(value)) for key, value in record.attributes.items()]
        if isinstance(record, SpanRecord):
            scope_spans = traces.resource_spans.add().scope_spans.add()
            scope_spans.scope.name = record.scope
            scope_spans.spans.append(
                Span(
                    trace_id=bytes.fromhex(record.trace_id),
                    span_id=bytes.fromhex(record.span_id),
                    parent_span_id=bytes.fromhex(record.parent_id or ""),
                    name=record.name,
                    start_time_unix_nano=record.start_ns or 0,
                    end_time_unix_nano=record.end_ns or 0,
                    attributes=attributes,
                )
            )
        else:
            scope_logs = logs.resource_logs.add().scope_logs.add()
            scope_logs.scope.name = record.scope
            scope_logs.log_records.append(
                LogRecord(
                    event_name=record.name,
                    trace_id=bytes.fromhex(record.trace_id or ""),
                    span_id=bytes.fromhex(record.span_id or ""),
                    time_unix_nano=record.time_ns or 0,
                    body=any_value(record.body),
                    attributes=attributes,
                )
            )
    return [traces, logs] if logs.resource_logs else [traces]


def metrics_request() -> ExportMetricsServiceRequest:
    """A request with a metric of each kind, whose names and descriptions are as long as span ids."""
    made = ExportMetricsServiceRequest()
    scope_metrics = made.resource_metrics.add().scope_metrics.add()
    for kind in ("gauge", "sum", "histogram", "exponential_histogram", "summary"):
        metric = scope_metrics.metrics.add(name="http.client.time", description="Duration", unit="s")
        point = getattr(metric, kind).data_points.add(time_unix_nano=START)
        add(point, {"http.route": "/book"})
    return made


def spans_of(made: ExportTraceServiceRequest) -> list[Span]:
    """All spans of a request, which the caller may change in place."""
    return [span for outer in made.resource_spans for inner in outer.scope_spans for span in inner.spans]


def add(span: Any, attributes: dict[str, Any]) -> None:
    """Put plain values on a span."""
    span.attributes.extend(KeyValue(key=key, value=any_value(value)) for key, value in attributes.items())


def any_value(value: Any) -> AnyValue:
    """A plain value as an OTLP AnyValue."""
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


def document(made: Request, *, enum_names: bool = False) -> dict[str, Any]:
    """The same request in OTLP/JSON: the JSON form of protobuf, with hexadecimal ids."""
    plain: dict[str, Any] = MessageToDict(made, use_integers_for_enums=not enum_names)
    return _with_ids(plain, lambda written: base64.b64decode(written).hex())


def line(made: Request) -> bytes:
    """One line of a Collector's file."""
    return json.dumps(document(made), separators=(",", ":")).encode() + b"\n"


def tempo(made: ExportTraceServiceRequest) -> dict[str, Any]:
    """The response of version 1 of the Grafana Tempo API: base64 ids and enum names."""
    return {"batches": MessageToDict(made).get("resourceSpans", [])}


def old_tempo(made: ExportTraceServiceRequest) -> dict[str, Any]:
    """The same response from versions that called scopes instrumentation libraries."""
    text = json.dumps(tempo(made)).replace('"scopeSpans":', '"instrumentationLibrarySpans":')
    old: dict[str, Any] = json.loads(text.replace('"scope":', '"instrumentationLibrary":'))
    return old


def tempo_v2(made: ExportTraceServiceRequest) -> dict[str, Any]:
    """The response of version 2 of the Grafana Tempo API."""
    return {"trace": MessageToDict(made), "metrics": {"inspectedBytes": "1024"}}


def jaeger_v3(made: ExportTraceServiceRequest) -> dict[str, Any]:
    """The response of version 3 of the Jaeger API."""
    return {"result": document(made)}


def jaeger(made: ExportTraceServiceRequest) -> dict[str, Any]:
    """The download of the Jaeger UI, one trace for each resource, in microseconds, without leading zeros of ids."""
    traces = []
    for outer in made.resource_spans:
        resource = {pair.key: pair.value for pair in outer.resource.attributes}
        service = resource.pop("service.name", AnyValue(string_value="OTLPResourceNoServiceName")).string_value
        spans = [_jaeger_span(span, inner.scope.name) for inner in outer.scope_spans for span in inner.spans]
        processes = {"p1": {"serviceName": service, "tags": _tags(resource.items())}}
        traces.append({"traceID": spans[0]["traceID"] if spans else "1", "spans": spans, "processes": processes})
    return {"data": traces, "total": 0, "limit": 0, "offset": 0, "errors": None}


def big_endian(messages: Iterable[bytes]) -> bytes:
    """Messages as the Collector's file exporter writes them with `format: proto`."""
    return b"".join(len(message).to_bytes(4, "big") + message for message in messages)


def varint(messages: Iterable[bytes]) -> bytes:
    """Messages with varint lengths, as the protobuf libraries write them."""
    return b"".join(as_varint(len(message)) + message for message in messages)


def as_varint(number: int) -> bytes:
    """A number as a protobuf varint."""
    written = bytearray()
    while number > 0x7F:
        written.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*written, number])


def _with_ids(part: Any, rewritten: Any) -> Any:
    if isinstance(part, list):
        return [_with_ids(item, rewritten) for item in part]
    if isinstance(part, dict):
        ids = ("traceId", "spanId", "parentSpanId")
        return {key: rewritten(value) if key in ids else _with_ids(value, rewritten) for key, value in part.items()}
    return part


def _jaeger_span(span: Span, scope: str) -> dict[str, Any]:
    trace_id, parent_id = span.trace_id.hex().lstrip("0"), span.parent_span_id.hex().lstrip("0")
    marks: dict[str, Any] = {"otel.scope.name": scope} if scope else {}
    if span.kind:
        marks["span.kind"] = ("internal", "server", "client", "producer", "consumer")[span.kind - 1]
    if span.status.code:
        marks["otel.status_code"] = ("OK", "ERROR")[span.status.code - 1]
        marks["otel.status_description"] = span.status.message
    if span.status.code == 2:
        marks["error"] = True
    if span.dropped_attributes_count:
        marks["otel.dropped_attributes_count"] = span.dropped_attributes_count
    pairs = [(pair.key, pair.value) for pair in span.attributes]
    return {
        "traceID": trace_id,
        "spanID": span.span_id.hex().lstrip("0"),
        "operationName": span.name,
        "references": [{"refType": "CHILD_OF", "traceID": trace_id, "spanID": parent_id}] if parent_id else [],
        "startTime": span.start_time_unix_nano // 1000,
        "duration": (span.end_time_unix_nano - span.start_time_unix_nano) // 1000,
        "tags": _tags([*pairs, *((key, any_value(value)) for key, value in marks.items())]),
        "logs": [
            {
                "timestamp": event.time_unix_nano // 1000,
                "fields": _tags(
                    [("event", any_value(event.name)), *((pair.key, pair.value) for pair in event.attributes)]
                ),
            }
            for event in span.events
        ],
        "processID": "p1",
        "warnings": None,
    }


def _tags(pairs: Iterable[tuple[str, AnyValue]]) -> list[dict[str, Any]]:
    types = {"string_value": "string", "bool_value": "bool", "int_value": "int64", "double_value": "float64"}
    tags = []
    for key, value in pairs:
        kind = value.WhichOneof("value")
        if kind == "bytes_value":
            tags.append({"key": key, "type": "binary", "value": base64.b64encode(value.bytes_value).decode()})
        elif kind is not None:
            tags.append({"key": key, "type": types[kind], "value": getattr(value, kind)})
    return tags
