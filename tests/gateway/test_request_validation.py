"""Tests of the validation of requests: which are accepted, which items are rejected, which requests are refused."""

from __future__ import annotations

import gc
import json
import tracemalloc
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any

import pytest
from google.protobuf.message import DecodeError as ProtobufError
from hypothesis import given
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue, KeyValueList

from goldspan.gateway.decoding.export_response import ExportResponse, RequestRefused
from goldspan.gateway.decoding.json_validation import estimate_parsed_bytes, exclusive_parsing
from goldspan.gateway.decoding.request_validation import ValidatedRequest, validate_request
from goldspan.gateway.resource_limits import ALL_PARTITIONS, MIB, ResourceLimits, partition_of
from goldspan.otlp import otlp_json, otlp_protobuf
from goldspan.otlp.json_fields import replace_lone_surrogates
from goldspan.semconv import GATEWAY_SCOPE
from otlp.payloads import add, as_varint, document, logs_request, metrics_request, request, spans_of
from otlp.strategies import logs_requests, requests

LIMITS = ResourceLimits()
TRACE_1 = (1).to_bytes(16, "big")


def validate(
    body: Any, signal: str = "traces", *, limits: ResourceLimits = LIMITS, partitioned: bool = False
) -> ValidatedRequest:
    """Validates a protobuf message, a JSON document, or text or bytes as JSON."""
    if isinstance(body, dict | list | int | None):
        body = json.dumps(body)
    if isinstance(body, str):
        return validate_request(signal, "json", body.encode(), limits, partitioned=partitioned)
    data = body if isinstance(body, bytes) else body.SerializeToString()
    return validate_request(signal, "protobuf", data, limits, partitioned=partitioned)


def refusal(body: Any, signal: str = "traces", **options: Any) -> ExportResponse:
    with pytest.raises(RequestRefused) as caught:
        validate(body, signal, **options)
    return caught.value.response


def names_in(reception: ValidatedRequest) -> list[str]:
    """Returns the names of the remaining spans."""
    if reception.body.startswith(b"{"):
        return [span.name for span in otlp_json.decode_traces(json.loads(reception.body)).spans]
    return [span.name for span in spans_of(ExportTraceServiceRequest.FromString(reception.body))]


def field(tag: int, content: bytes) -> bytes:
    return bytes([tag]) + as_varint(len(content)) + content


def in_scope(items: bytes) -> bytes:
    """Returns a request with these items in one scope."""
    return field(0x0A, field(0x12, items))


@pytest.mark.parametrize(
    ("made", "signal"),
    [(request("a", "b"), "traces"), (logs_request("a", "b"), "logs"), (metrics_request(), "metrics")],
    ids=["traces", "logs", "metrics"],
)
def test_a_valid_request_is_accepted_unchanged(made, signal):
    body = made.SerializeToString()
    items = 5 if signal == "metrics" else 2
    assert validate(body, signal) == ValidatedRequest(body, items)
    written = json.dumps(document(made), indent=1)
    assert validate(written, signal) == ValidatedRequest(written.encode(), items)


@pytest.mark.parametrize("signal", ["traces", "logs", "metrics"])
@pytest.mark.parametrize("body", [b"", b"\x0a\x00", in_scope(b""), {}, {"resourceSpans": []}, {"resourceSpans": None}])
def test_an_empty_request_is_accepted_with_an_empty_body(body, signal):
    assert validate(body, signal, partitioned=True).body == b""
    assert validate(body, signal).item_count == 0


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"{}", id="JSON"),
        pytest.param(request("a").SerializeToString()[:-3], id="cut off"),
        pytest.param(b"\x9a\x06\x01a", id="unknown fields only"),
        pytest.param(b"\xff" * 30, id="noise"),
        pytest.param(in_scope(field(0x1A, b"\xff")), id="a URL that is not UTF-8"),
    ],
)
def test_an_invalid_protobuf_request_is_refused(body):
    for signal in ("traces", "logs", "metrics"):
        assert refusal(body, signal) == ExportResponse(400, f"the body is not an OTLP {signal} request in protobuf")


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("", "Expecting value at character 0"),
        ("\ufeff{}", "Expecting value at character 0"),
        ("{} {}", "Extra data at character 3"),
        ('{"resourceSpans": [', "Expecting value at character 19"),
        ('{"a": NaN}', "NaN is not a JSON number"),
        ('{"a": -Infinity}', "-Infinity is not a JSON number"),
        ("null", "not a JSON object"),
        ("[]", "not a JSON object"),
        ("[" * 100_000, "is nested too deeply"),
        ('{"resourceSpans": {}}', "resourceSpans is not a list of JSON objects"),
        ('{"resourceSpans": [1]}', "resourceSpans is not a list of JSON objects"),
        ('{"resourceSpans": [{"resource": 1}]}', "resource is not a JSON object"),
        ('{"resourceSpans": [{"scopeSpans": [{"scope": {"name": 5}}]}]}', "name is not text"),
        ('{"resourceSpans": [{"scopeSpans": [{"spans": "a"}]}]}', "spans is not a list of JSON objects"),
    ],
)
def test_an_invalid_json_request_is_refused_with_a_reason(body, told):
    answer = refusal(body)
    assert answer.http_status == 400
    assert told in answer.message
    assert answer.limit == ("max_depth" if "deeply" in told else None)


def test_json_that_is_not_utf_8_is_refused():
    with pytest.raises(RequestRefused, match="invalid start byte at byte 2"):
        validate_request("traces", "json", b'{"\xff": 1}', LIMITS, partitioned=False)


BROKEN: dict[str, Callable[[Any], None]] = {
    "no trace id": lambda span: span.ClearField("trace_id"),
    "a trace id of zeros": lambda span: setattr(span, "trace_id", bytes(16)),
    "a short trace id": lambda span: setattr(span, "trace_id", b"\1" * 8),
    "no span id": lambda span: span.ClearField("span_id"),
    "a span id of zeros": lambda span: setattr(span, "span_id", bytes(8)),
    "a long span id": lambda span: setattr(span, "span_id", b"\1" * 9),
}


@pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN)
@pytest.mark.parametrize("media", ["protobuf", "json"])
def test_only_a_span_without_valid_ids_is_rejected(broken, media):
    made = request("first", "second", "third")
    broken(spans_of(made)[1])
    reception = validate(made if media == "protobuf" else document(made))
    assert (reception.item_count, reception.rejected_count) == (2, 1)
    assert "all of them are zero" in reception.rejection_reason
    assert names_in(reception) == ["first", "third"]


def nested(depth: int) -> AnyValue:
    """Returns nested arrays, each of which takes two messages."""
    value = AnyValue(string_value="inside")
    for _ in range(depth):
        value = AnyValue(array_value=ArrayValue(values=[value]))
    return value


def kvlists(depth: int) -> AnyValue:
    value = AnyValue(string_value="inside")
    for _ in range(depth):
        value = AnyValue(kvlist_value=KeyValueList(values=[KeyValue(key="in", value=value)]))
    return value


@pytest.mark.parametrize("value", [nested(40), kvlists(28)], ids=["arrays", "lists of pairs"])
def test_values_may_be_nested_as_deep_as_protobuf_allows(value):
    made = request("deep")
    spans_of(made)[0].attributes.add(key="deep").value.CopyFrom(value)
    assert validate(made).item_count == validate(document(made)).item_count == 1


def with_value(raw: bytes) -> bytes:
    """Returns a request with two valid spans, and between them one with an attribute of these bytes."""
    spans = [span.SerializeToString() for span in spans_of(request("first", "bad", "last"))]
    spans[1] += field(0x4A, field(0x0A, b"key") + field(0x12, raw))
    return in_scope(b"".join(field(0x12, span) for span in spans))


def arrays(depth: int) -> bytes:
    raw = b""
    for _ in range(depth):
        raw = field(0x2A, field(0x0A, raw))
    return raw


@pytest.mark.parametrize("raw", [arrays(60), arrays(1000), field(0x0A, b"\xff"), b"\x0a\xff\x01", b"\x0b\x08"])
def test_only_a_malformed_or_too_deeply_nested_span_is_rejected(raw):
    reception = validate(with_value(raw))
    assert (reception.item_count, reception.rejected_count) == (2, 1)
    assert reception.rejection_reason == "a span is malformed or nested too deeply, or text in it is not UTF-8"
    assert names_in(reception) == ["first", "last"]


@pytest.mark.parametrize("depth", range(44, 52))
def test_accepted_spans_can_be_parsed_with_protobuf(depth):
    body = with_value(arrays(depth))
    try:
        ExportTraceServiceRequest.FromString(body)
    except ProtobufError:
        assert validate(body).rejected_count == 1
    else:
        assert validate(body) == ValidatedRequest(body, 3)


def test_only_a_json_span_that_is_nested_too_deeply_is_rejected():
    made = document(request("first", "deep"))
    deep: dict[str, Any] = {"stringValue": "inside"}
    for _ in range(150):
        deep = {"arrayValue": {"values": [deep]}}
    made["resourceSpans"][0]["scopeSpans"][0]["spans"][1]["attributes"] = [{"key": "deep", "value": deep}]
    reception = validate(made)
    assert (names_in(reception), reception.rejection_reason) == (["first"], "a value is nested too deeply")


@pytest.mark.parametrize("part", ["resource", "scope"])
def test_an_invalid_resource_or_scope_rejects_only_its_own_spans(part):
    made = request("first")
    path = field(0x0A, field(0x0A, field(0x0A, b"\xff" * 3)))
    if part == "scope":
        path = field(0x0A, field(0x0A, b"\xff"))
    spans = b"".join(field(0x12, span.SerializeToString()) for span in spans_of(request("a", "b")))
    broken = field(0x0A, path[2:] + field(0x12, spans)) if part == "resource" else in_scope(path[2:] + spans)
    reception = validate(made.SerializeToString() + broken)
    assert (reception.item_count, reception.rejected_count) == (1, 2)
    assert "resource or scope of a span" in reception.rejection_reason
    assert names_in(reception) == ["first"]


@pytest.mark.parametrize(
    ("signal", "made"),
    [
        pytest.param("traces", logs_request("a"), id="logs to traces"),
        pytest.param("traces", in_scope(field(0x12, field(0x0A, b"http.time"))), id="metrics to traces"),
        pytest.param("logs", request("a"), id="traces to logs"),
        pytest.param("metrics", logs_request("a"), id="logs to metrics"),
    ],
)
def test_a_request_of_another_signal_is_refused(signal, made):
    assert refusal(made, signal).http_status == 400


def test_logs_without_trace_context_are_refused_as_traces():
    made = logs_request("a")
    for log in made.resource_logs[0].scope_logs[0].log_records:
        log.ClearField("trace_id")
        log.ClearField("span_id")
    assert refusal(made).http_status == 400


def test_base64_ids_are_refused():
    written = json.dumps(document(request("a")))
    assert refusal(written.replace(f"{1:032x}", "AAAAAAAAAAAAAAAAAAAAAQ==")).message == "traceId is not hexadecimal"


def test_upper_case_ids_and_numbers_in_any_form_are_accepted():
    made = document(request("a"))
    span = made["resourceSpans"][0]["scopeSpans"][0]["spans"][0]
    span |= {"spanId": "ABCDEF0123456789", "startTimeUnixNano": 9007199254740993, "unknown": [{}], "kind": None}
    span["attributes"] = [{"key": "rate", "value": {"doubleValue": "NaN"}}]
    assert validate(made).item_count == 1


@pytest.mark.parametrize("time", [2**64, -1, "soon", 1.5, [], True])
def test_only_a_json_span_with_an_invalid_time_is_rejected(time):
    made = document(request("first", "second"))
    made["resourceSpans"][0]["scopeSpans"][0]["spans"][0]["startTimeUnixNano"] = time
    reception = validate(made)
    assert (names_in(reception), reception.rejected_count) == (["second"], 1)
    assert reception.rejection_reason == "startTimeUnixNano is not a whole number in its range"


def test_names_in_snake_case_are_unknown_fields():
    made = request("a")
    written = json.dumps(document(made)).replace("resourceSpans", "resource_spans")
    assert validate(written) == ValidatedRequest(b"", 0)
    assert otlp_json.decode_traces(json.loads(written), old_names=False).spans == []
    logs = json.loads(json.dumps(document(logs_request("a"))).replace("resourceLogs", "resource_logs"))
    assert (len(otlp_json.decode_logs(dict(logs), old_names=False).records)) == 0
    old = json.loads(json.dumps(document(made)).replace("scopeSpans", "instrumentationLibrarySpans"))
    assert otlp_json.decode_traces(old, old_names=False).spans == []
    assert validate(old).item_count == 0


def test_a_lone_surrogate_is_replaced_by_a_valid_character():
    written = json.dumps(document(request("X", "smile \U0001f600"))).replace('"X"', '"\\ud83d"')
    reception = validate(written)
    assert names_in(reception) == ["\ufffd", "smile \U0001f600"]
    assert reception.rejected_count == 0


def test_a_request_to_be_rewritten_with_a_number_beyond_json_is_refused():
    made = document(request("a", "b"))
    made["resourceSpans"][0]["scopeSpans"][0]["spans"][0]["traceId"] = ""
    written = json.dumps(made | {"unknown": 0}).replace('"unknown": 0', '"unknown": 1e999')
    assert refusal(written).http_status == 400


@pytest.mark.parametrize("media", ["protobuf", "json"])
@pytest.mark.parametrize("signal", ["traces", "logs", "metrics"])
def test_items_in_the_scope_of_the_gateway_are_removed(media, signal):
    made = {"traces": request("theirs"), "logs": logs_request("theirs"), "metrics": metrics_request()}[signal]
    own = type(made).FromString(made.SerializeToString())
    ((_, resources),) = own.ListFields()
    ((_, scopes),) = [found for found in resources[0].ListFields() if found[0].name.startswith("scope")]
    scopes[0].scope.name = GATEWAY_SCOPE
    as_sent = (lambda it: it) if media == "protobuf" else document
    assert validate(as_sent(own), signal) == ValidatedRequest(b"", 0)
    both = type(made).FromString(own.SerializeToString() + made.SerializeToString())
    reception = validate(as_sent(both), signal)
    assert (reception.item_count, reception.rejected_count) == (5 if signal == "metrics" else 1, 0)
    assert GATEWAY_SCOPE.encode() not in reception.body
    again = validate_request(signal, media, reception.body, ResourceLimits(), partitioned=False)
    assert again == reception


def test_items_in_scopes_with_similar_names_are_accepted():
    made = request("about goldspan.gateway")
    made.resource_spans[0].scope_spans[0].scope.name = "goldspan.gateway.tests"
    body = made.SerializeToString()
    assert validate(body) == ValidatedRequest(body, 1)


def test_the_partitions_of_a_request_are_those_of_its_traces():
    made = request("a", "b", trace=1)
    made.MergeFrom(request("c", trace=2))
    made.MergeFrom(request("d", trace=0))
    wanted = 1 << partition_of(TRACE_1) | 1 << partition_of((2).to_bytes(16, "big"))
    assert validate(made, partitioned=True).partitions == wanted
    assert validate(made).partitions == ALL_PARTITIONS
    assert validate(document(made), partitioned=True).partitions == ALL_PARTITIONS


def test_logs_belong_to_all_partitions():
    assert validate(logs_request("a", trace=1), "logs", partitioned=True).partitions == ALL_PARTITIONS


def test_only_a_log_record_with_an_invalid_id_is_rejected():
    made = logs_request("first", "second", "third")
    made.resource_logs[0].scope_logs[0].log_records[1].span_id = b"\1"
    for body in (made, document(made)):
        reception = validate(body, "logs")
        assert (reception.item_count, reception.rejected_count) == (2, 1)
        assert reception.rejection_reason == "the span id of a log record is not 8 bytes"


@pytest.mark.parametrize("made", [request("a", "b", "c"), document(request("a", "b", "c"))], ids=["protobuf", "json"])
def test_the_number_of_spans_of_a_request_is_limited(made):
    assert validate(made, limits=ResourceLimits(max_spans=3)).item_count == 3
    assert refusal(made, limits=ResourceLimits(max_spans=2)).limit == "max_spans"


def test_rejected_spans_count_towards_max_spans():
    made = request("a", "b", "c")
    for span in spans_of(made)[:2]:
        span.ClearField("trace_id")
    assert refusal(made, limits=ResourceLimits(max_spans=2)).limit == "max_spans"
    assert refusal(document(made), limits=ResourceLimits(max_spans=1)).limit == "max_spans"


@pytest.mark.parametrize("signal", ["traces", "logs"])
def test_the_number_of_attributes_of_an_item_is_limited(signal):
    made = request("a") if signal == "traces" else logs_request("a")
    item = spans_of(made)[0] if signal == "traces" else made.resource_logs[0].scope_logs[0].log_records[0]
    add(item, {f"key {number}": number for number in range(5)})
    for body in (made, document(made)):
        assert validate(body, signal, limits=ResourceLimits(max_attributes=5)).item_count == 1
        assert refusal(body, signal, limits=ResourceLimits(max_attributes=4)).limit == "max_attributes"


@pytest.mark.parametrize("place", ["name", "attribute", "nested", "resource", "scope"])
def test_the_size_of_a_text_is_limited(place):
    text = "ü" * 500
    made = request(text if place == "name" else "short")
    if place == "attribute":
        add(spans_of(made)[0], {"key": text})
    if place == "nested":
        add(spans_of(made)[0], {"key": [{"in": text}]})
    if place == "resource":
        add(made.resource_spans[0].resource, {"key": text})
    if place == "scope":
        made.resource_spans[0].scope_spans[0].scope.name = text
    for body in (made, document(made)):
        assert validate(body, limits=ResourceLimits(max_value_bytes=1000)).item_count == 1
        assert refusal(body, limits=ResourceLimits(max_value_bytes=999)).limit == "max_value_bytes"


def test_the_size_of_a_json_key_is_limited():
    assert refusal({"k" * 1000: 1}, limits=ResourceLimits(max_value_bytes=999)).limit == "max_value_bytes"


def test_the_number_of_json_values_is_limited():
    body = {"numbers": [0.5] * 1000}  # 2 brackets, 999 commas
    assert validate(body, limits=ResourceLimits(max_values=1001)).item_count == 0
    assert refusal(body, limits=ResourceLimits(max_values=1000)).limit == "max_values"


def test_the_estimated_memory_of_parsed_json_is_limited():
    body = json.dumps({"numbers": [0.5] * 1000})
    estimate = estimate_parsed_bytes(body.encode())
    assert validate(body, limits=ResourceLimits(max_parsed_bytes=estimate)).item_count == 0
    assert refusal(body, limits=ResourceLimits(max_parsed_bytes=estimate - 1)).limit == "max_parsed_bytes"


def repeated(*values: str, times: int = 20_000) -> str:
    return f"[{','.join(values * times)}]"


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(repeated("1000", "-2.5"), id="numbers"),
        pytest.param(repeated("[]", "{}"), id="nothing"),
        pytest.param(repeated("[1]"), id="lists"),
        pytest.param(repeated('{"a":1}'), id="objects"),
        pytest.param(repeated('{"key":1,"value":1,"name":1,"kind":1,"status":1,"code":1}'), id="known keys"),
        pytest.param(repeated('{"key":"a","value":{"stringValue":"b"}}'), id="attributes"),
        pytest.param(repeated('{"":' * 90 + "1" + "}" * 90, times=300), id="nested"),
        pytest.param(json.dumps({f"{number:x}": number for number in range(20_000)}), id="keys"),
        pytest.param(json.dumps([f"{number} größer" for number in range(20_000)], ensure_ascii=False), id="latin"),
        pytest.param(json.dumps([f"{number} больше" for number in range(20_000)], ensure_ascii=False), id="cyrillic"),
        pytest.param(json.dumps([f"{number} больше" for number in range(20_000)]), id="cyrillic, escaped"),
        pytest.param(json.dumps(["x" * 500_000 + "\U0001f300"], ensure_ascii=False), id="emoji"),
        pytest.param(json.dumps(["x" * 500_000 + "\U0001f300"]), id="emoji, escaped"),
        pytest.param(json.dumps(["\\" * 50_000 + "\ud83d"]), id="half a pair among backslashes"),
        pytest.param(json.dumps([f"{number}\\" for number in range(20_000)]), id="backslashes before quotes"),
    ],
)
def test_the_estimate_of_parsed_json_approximates_the_measured_memory(text):
    body = text.encode()
    tracemalloc.start()
    try:
        whole = body.decode()
        parsed = json.loads(replace_lone_surrogates(whole))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    del parsed
    assert (
        0.7 * peak < estimate_parsed_bytes(body) < 6 * peak
    )  # sizes of objects differ slightly between versions of Python


def test_large_json_documents_are_parsed_one_at_a_time():
    body = json.dumps({"unknown": "x" * MIB}).encode()
    with ThreadPoolExecutor(1) as threads:
        with exclusive_parsing(body):
            assert not gc.isenabled()
            waiting = threads.submit(validate_request, "traces", "json", body, LIMITS, partitioned=False)
            assert validate({"small": 1}).item_count == 0
            assert wait([waiting], timeout=0.2).not_done
        assert waiting.result(60).item_count == 0
    assert gc.isenabled()


def test_garbage_collection_stays_disabled_after_exclusive_parsing():
    gc.disable()
    try:
        with exclusive_parsing(bytes(2 * MIB)):
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def long_request(spans: int, text: int) -> ExportTraceServiceRequest:
    made = request(*(f"span {number}" for number in range(spans)))
    for span in spans_of(made):
        add(span, {"text": "x" * text})
    return made


def test_a_large_request_is_validated_in_parts_with_the_same_checks():
    made = long_request(300, 10_000)
    body = made.SerializeToString()
    assert len(body) > 2 * MIB
    assert validate(body, partitioned=True) == ValidatedRequest(body, 300, partitions=1 << partition_of(TRACE_1))
    for position in (0, 100, 299):
        spans_of(made)[position].span_id = b""
    reception = validate(made)
    assert (reception.item_count, reception.rejected_count) == (297, 3)
    assert len(names_in(reception)) == 297
    assert "span 100" not in names_in(reception)


def test_a_truncated_large_request_is_refused():
    body = long_request(300, 10_000).SerializeToString()
    assert refusal(body[:-1]).http_status == 400
    assert refusal(body + b"\x0b").http_status == 400
    assert refusal(body + b"\x08").http_status == 400
    assert refusal(body + b"\x0d\x00").http_status == 400


def test_unknown_fields_of_every_type_are_accepted_in_a_large_request():
    body = long_request(300, 10_000).SerializeToString()
    unknown = b"\x98\x06\x01" + b"\x9d\x06abcd" + b"\x99\x06abcdefgh" + b"\x9a\x06\x01a"
    assert validate(body + unknown + field(0x0A, unknown + field(0x12, unknown))).item_count == 300


@pytest.mark.e2e
@pytest.mark.parametrize(
    ("items", "limit"),
    [
        pytest.param(in_scope(b"\x12\x00" * 3 * MIB), "max_spans", id="empty spans"),
        pytest.param(field(0x0A, b"\x12\x00" * 3 * MIB), "max_spans", id="empty scopes"),
        pytest.param(b"\x0a\x00" * 3 * MIB, "max_spans", id="empty resources"),
        pytest.param(in_scope(b"\x08\x01" * 3 * MIB), "max_spans", id="unknown fields"),
        pytest.param(in_scope(field(0x12, b"\x5a\x00" * 3 * MIB)), "max_values", id="empty events"),
        pytest.param(with_value(field(0x2A, b"\x0a\x00" * 3 * MIB)), "max_values", id="empty values"),
        pytest.param(field(0x0A, field(0x0A, b"\x0a\x00" * 3 * MIB)), "max_values", id="empty attributes"),
        pytest.param(field(0x0A, field(0x12, field(0x0A, b"\x1a\x00" * 3 * MIB))), "max_values", id="of a scope"),
    ],
)
def test_a_request_that_needs_gigabytes_is_refused_before_it_is_parsed(items, limit):
    assert refusal(items).limit == limit


def test_a_large_text_is_accepted_up_to_the_limit():
    made = long_request(1, 5 * MIB)
    body = made.SerializeToString()
    assert validate(body) == ValidatedRequest(body, 1)
    assert refusal(body, limits=ResourceLimits(max_value_bytes=5 * MIB - 1)).limit == "max_value_bytes"


def test_only_a_span_with_large_values_nested_too_deeply_is_rejected():
    deep = with_value(arrays(1000) + field(0x0A, b"x" * 3 * MIB))
    reception = validate(deep)
    assert (reception.item_count, reception.rejected_count) == (2, 1)


@given(requests())
def test_accepted_spans_of_any_request_are_those_that_the_decoder_finds(made):
    try:
        reception = validate(made)
    except RequestRefused:
        assert otlp_protobuf.decode_traces(made.SerializeToString()).spans == []
        return
    before = otlp_protobuf.decode_traces(made.SerializeToString())
    after = otlp_protobuf.decode_traces(reception.body)
    assert (reception.item_count, reception.rejected_count) == (len(before.spans), before.rejected)
    assert (after.spans, after.rejected) == (before.spans, 0)
    assert validate(reception.body).body == reception.body


@given(requests())
def test_protobuf_and_json_are_validated_alike(made):
    def outcome(body: Any) -> Any:
        try:
            reception = validate(body)
        except RequestRefused as refused:
            return refused.response.http_status
        return reception.item_count, reception.rejected_count

    assert outcome(made) == outcome(document(made))


@given(logs_requests())
def test_accepted_log_records_are_accepted_again(made):
    try:
        reception = validate(made, "logs")
    except RequestRefused:
        return
    again = validate(reception.body, "logs")
    assert (again.body, again.item_count, again.rejected_count) == (reception.body, reception.item_count, 0)
    ExportLogsServiceRequest.FromString(reception.body)


def test_only_an_invalid_metric_is_rejected():
    made = metrics_request()
    body = made.SerializeToString() + in_scope(field(0x12, field(0x0A, b"\xff")))
    reception = validate(body, "metrics")
    assert (reception.item_count, reception.rejected_count) == (5, 1)
    assert len(ExportMetricsServiceRequest.FromString(reception.body).resource_metrics[0].scope_metrics[0].metrics) == 5
