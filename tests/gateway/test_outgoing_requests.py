"""Tests of the conversion and splitting of outgoing requests, without loss."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from goldspan.gateway.exporting.outgoing_requests import OutgoingRequest, json_to_protobuf, split_in_half
from goldspan.otlp.decode_results import DecodeError
from support.faulty_backends import span_names, traces

TRACE, SPAN = "5b8efff798038103d269b633813fc60c", "eee19b7ec3c1b174"


def request_of(*spans: dict[str, Any]) -> bytes:
    return json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}).encode()


def read(body: bytes) -> Any:
    request = ExportTraceServiceRequest.FromString(json_to_protobuf("traces", body))
    return request.resource_spans[0].scope_spans[0].spans


def test_every_field_of_a_json_span_is_converted_to_protobuf() -> None:
    (span,) = read(
        request_of(
            {
                "traceId": TRACE,
                "spanId": SPAN.upper(),
                "parentSpanId": "",
                "traceState": "a=b",
                "flags": 257,
                "name": "agent",
                "kind": 2,
                "startTimeUnixNano": "1544712660000000001",
                "endTimeUnixNano": 1544712661000000001,
                "attributes": [
                    {"key": "snake_case", "value": {"stringValue": "traceId"}},
                    {"key": "traceId", "value": {"intValue": "-9223372036854775808"}},
                    {"key": "n", "value": {"doubleValue": "NaN"}},
                    {"key": "b", "value": {"bytesValue": "AAH/"}},
                    {"key": "empty", "value": {}},
                    {"key": "many", "value": {"arrayValue": {"values": [{"boolValue": False}, {"stringValue": ""}]}}},
                    {"key": "map", "value": {"kvlistValue": {"values": [{"key": "a_b", "value": {"intValue": 1}}]}}},
                ],
                "events": [{"name": "e", "timeUnixNano": "5", "attributes": None}, None],
                "links": [{"traceId": TRACE, "spanId": SPAN}],
                "status": {"code": 2, "message": "no"},
                "droppedAttributesCount": 3,
                "of_the_future": {"traceId": 1},
                "future": {"spanId": "zz"},
            }
        )
    )
    assert (span.trace_id.hex(), span.span_id.hex(), span.parent_span_id) == (TRACE, SPAN, b"")
    assert (span.links[0].trace_id.hex(), span.links[0].span_id.hex()) == (TRACE, SPAN)
    assert (span.start_time_unix_nano, span.end_time_unix_nano) == (1544712660000000001, 1544712661000000001)
    assert (span.name, span.kind, span.flags, span.trace_state) == ("agent", 2, 257, "a=b")
    assert (span.status.code, span.status.message, span.dropped_attributes_count) == (2, "no", 3)
    assert [event.time_unix_nano for event in span.events] == [5]
    values = {attribute.key: attribute.value for attribute in span.attributes}
    assert values["snake_case"].string_value == "traceId"
    assert values["traceId"].int_value == -(2**63)
    assert values["n"].double_value != values["n"].double_value
    assert values["b"].bytes_value == b"\x00\x01\xff"
    assert values["empty"].WhichOneof("value") is None
    assert [item.WhichOneof("value") for item in values["many"].array_value.values] == ["bool_value", "string_value"]
    assert values["map"].kvlist_value.values[0].key == "a_b"


@pytest.mark.parametrize(
    "wrong",
    [
        {"traceId": "not hexadecimal"},
        {"spanId": 17},
        {"parentSpanId": ["ab"]},
        {"startTimeUnixNano": "yesterday"},
        {"attributes": [{"key": "a", "value": {"intValue": "x"}}]},
        {"attributes": 5},
    ],
)
def test_only_an_invalid_item_is_omitted(wrong: dict[str, Any]) -> None:
    right = {"traceId": TRACE, "spanId": SPAN}
    spans = read(request_of({**right, "name": "one"}, {**right, "name": "two", **wrong}, {**right, "name": "three"}))
    assert [span.name for span in spans] == ["one", "three"]


def test_logs_and_metrics_are_converted_to_protobuf() -> None:
    log = {"traceId": TRACE, "spanId": SPAN, "eventName": "e", "body": {"stringValue": "b"}, "severityNumber": 9}
    body = json.dumps({"resourceLogs": [{"scopeLogs": [{"scope": {"name": "s"}, "logRecords": [log]}]}]})
    logs = ExportLogsServiceRequest.FromString(json_to_protobuf("logs", b"\xef\xbb\xbf \n" + body.encode()))
    record = logs.resource_logs[0].scope_logs[0].log_records[0]
    assert (record.trace_id.hex(), record.span_id.hex(), record.event_name) == (TRACE, SPAN, "e")
    point = {"asInt": "3", "timeUnixNano": "1", "exemplars": [{"traceId": TRACE, "spanId": SPAN, "asDouble": 1.5}]}
    metric = {"name": "m", "sum": {"dataPoints": [point], "aggregationTemporality": 2, "isMonotonic": True}}
    metrics = ExportMetricsServiceRequest.FromString(
        json_to_protobuf(
            "metrics", json.dumps({"resourceMetrics": [{"scopeMetrics": [{"metrics": [metric]}]}]}).encode()
        )
    )
    (read_point,) = metrics.resource_metrics[0].scope_metrics[0].metrics[0].sum.data_points
    assert (read_point.as_int, read_point.exemplars[0].trace_id.hex()) == (3, TRACE)


def test_names_used_before_2022_are_converted_to_current_names() -> None:
    spans = [{"traceId": TRACE, "spanId": SPAN, "name": "old"}]
    scope = {"instrumentationLibrary": {"name": "library"}, "spans": spans}
    body = json.dumps({"resourceSpans": [{"instrumentationLibrarySpans": [scope]}]}).encode()
    request = ExportTraceServiceRequest.FromString(json_to_protobuf("traces", body))
    (scope_spans,) = request.resource_spans[0].scope_spans
    assert (scope_spans.scope.name, [span.name for span in scope_spans.spans]) == ("library", ["old"])


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xff\xfe",
        b"no JSON",
        b"[" * 100_000,
        b"[]",
        b'"text"',
        b"{} and more",
        b'{"resourceSpans": 5}',
        b'{"resourceSpans": [{"scopeSpans": 5}]}',
        b'{"resourceSpans": [{"scopeSpans": [{"spans": 5}]}]}',
        b'{"resourceSpans": [{"resource": {"attributes": [5]}, "scopeSpans": [5, {"spans": []}]}]}',
    ],
)
def test_a_body_that_is_no_request_is_a_decode_error(body: bytes) -> None:
    with pytest.raises(DecodeError):
        json_to_protobuf("traces", body)


@given(st.integers(1, 40))
def test_both_halves_together_contain_every_span_of_the_request(count: int) -> None:
    names = [f"span {number}" for number in range(count)]
    waiting = [OutgoingRequest("protobuf", traces(*names))]
    alone: list[OutgoingRequest] = []
    while waiting:
        part = waiting.pop()
        divided = split_in_half("traces", part)
        if divided is None:
            alone.append(part)
        else:
            assert all(len(half.body) < len(part.body) for half in divided)
            waiting.extend(divided)
    assert sorted(name for part in alone for name in span_names(part.body)) == sorted(names)
    assert all(len(span_names(part.body)) == 1 for part in alone)
    whole = ExportTraceServiceRequest.FromString(traces(*names))
    scopes = {scope.scope.name for resource in whole.resource_spans for scope in resource.scope_spans}
    for part in alone:
        (resource,) = ExportTraceServiceRequest.FromString(part.body).resource_spans
        assert resource.schema_url == "https://schema"
        assert resource.scope_spans[0].scope.name in scopes


def test_unknown_fields_stay_in_both_halves() -> None:
    unknown = b"\xfa\x3e\x03new"  # a field that this version of OTLP does not define
    divided = split_in_half("traces", OutgoingRequest("protobuf", traces("one", "two") + unknown))
    assert divided is not None
    assert all(unknown in half.body for half in divided)


@pytest.mark.parametrize(
    "part",
    [
        OutgoingRequest("protobuf", b""),
        OutgoingRequest("protobuf", b"\x0a\x00"),
        OutgoingRequest("protobuf", b"garbage"),
        OutgoingRequest("json", b"garbage"),
        OutgoingRequest("protobuf", traces("one")),
    ],
)
def test_a_request_without_two_items_is_not_split(part: OutgoingRequest) -> None:
    assert split_in_half("traces", part) is None


def test_a_json_request_is_split_into_protobuf_halves() -> None:
    right = {"traceId": TRACE, "spanId": SPAN}
    divided = split_in_half(
        "traces", OutgoingRequest("json", request_of({**right, "name": "one"}, {**right, "name": "two"}))
    )
    assert divided is not None
    assert [(half.media, span_names(half.body)) for half in divided] == [("protobuf", ["one"]), ("protobuf", ["two"])]
