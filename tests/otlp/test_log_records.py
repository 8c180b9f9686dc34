"""Log records decoded from OTLP, in protobuf and in JSON."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

from goldspan.model import LogRecord
from goldspan.otlp import otlp_json, otlp_protobuf
from goldspan.otlp.decode_results import DecodeError
from otlp.payloads import START, TRACE_ID, add, any_value, document, logs_request
from otlp.strategies import logs_requests


@pytest.fixture(params=["protobuf", "JSON"])
def decode(request):
    """Decodes a request from one of the two wire formats."""
    if request.param == "protobuf":
        return lambda made: otlp_protobuf.decode_logs(made.SerializeToString())
    return lambda made: otlp_json.decode_logs(document(made))


def one(decode, **fields):
    made = logs_request("asked")
    log = made.resource_logs[0].scope_logs[0].log_records[0]
    attributes = fields.pop("attributes", {})
    for name, value in fields.items():
        setattr(log, name, value)
    add(log, attributes)
    batch = decode(made)
    assert batch.rejected == 0, batch.reason
    return batch.records[0]


def test_a_decoded_log_record_equals_the_encoded_one(decode):
    made = logs_request("gen_ai.user.message")
    log = made.resource_logs[0].scope_logs[0].log_records[0]
    log.body.CopyFrom(any_value({"content": "Hello", "parts": [1, None]}))
    add(log, {"gen_ai.system": "openai"})
    assert decode(made).records == [
        LogRecord(
            name="gen_ai.user.message",
            attributes={"gen_ai.system": "openai"},
            body={"content": "Hello", "parts": [1, None]},
            trace_id=TRACE_ID.hex(),
            span_id="0000000000000001",
            time_ns=START + 1,
            scope="shop.logger",
            resource={"service.name": "shop"},
        )
    ]


@given(logs_requests())
def test_json_and_protobuf_decode_to_equal_log_records(made):
    from_json = otlp_json.decode_logs(json.loads(json.dumps(document(made))))
    from_protobuf = otlp_protobuf.decode_logs(made.SerializeToString())
    assert from_json.records == from_protobuf.records
    assert from_json.rejected == from_protobuf.rejected


@pytest.mark.parametrize(
    ("field", "attributes", "name"),
    [
        pytest.param("asked", {}, "asked", id="the field"),
        pytest.param("asked", {"event.name": "older"}, "asked", id="the field before the attribute"),
        pytest.param("", {"event.name": "older"}, "older", id="the attribute where there is no field"),
        pytest.param("", {}, "", id="neither"),
        pytest.param("", {"event.name": 5}, "", id="an attribute that is no text"),
    ],
)
def test_the_event_name_comes_from_the_field_or_else_from_the_attribute(decode, field, attributes, name):
    assert one(decode, event_name=field, attributes=attributes).name == name


@pytest.mark.parametrize("no_ids", [(b"", b""), (bytes(16), bytes(8))], ids=["absent", "zeros"])
def test_a_log_record_outside_a_trace_has_no_ids(decode, no_ids):
    record = one(decode, trace_id=no_ids[0], span_id=no_ids[1])
    assert (record.trace_id, record.span_id) == (None, None)


def test_a_log_record_of_a_trace_may_have_no_span_id(decode):
    record = one(decode, span_id=b"")
    assert (record.trace_id, record.span_id) == (TRACE_ID.hex(), None)


@pytest.mark.parametrize(
    ("happened", "observed", "time"),
    [(START, START + 9, START), (0, START + 9, START + 9), (0, 0, None)],
    ids=["known", "only observed", "unknown"],
)
def test_the_time_of_a_log_record_is_its_event_time_or_else_its_observed_time(decode, happened, observed, time):
    assert one(decode, time_unix_nano=happened, observed_time_unix_nano=observed).time_ns == time


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        pytest.param("trace_id", b"short", "trace id", id="trace id too short"),
        pytest.param("span_id", bytes(9), "span id", id="span id too long"),
    ],
)
def test_a_record_with_an_invalid_id_is_rejected_alone(decode, field, value, reason):
    made = logs_request("good", "bad", "also bad")
    for log in made.resource_logs[0].scope_logs[0].log_records[1:]:
        setattr(log, field, value)
    batch = decode(made)
    assert [record.name for record in batch.records] == ["good"]
    assert batch.rejected == 2
    assert reason in batch.reason


def test_a_record_with_text_that_is_not_utf_8_is_rejected_alone():
    data = logs_request("good", "badly broken", "fine").SerializeToString().replace(b"badly", b"bad\xff\xfe")
    batch = otlp_protobuf.decode_logs(data)
    assert [record.name for record in batch.records] == ["good", "fine"]
    assert (batch.rejected, batch.reason) == (1, "a log record is broken, or text in it is not UTF-8")


def test_a_record_with_a_value_of_the_wrong_type_is_rejected_alone():
    made = document(logs_request("good", "bad"))
    made["resourceLogs"][0]["scopeLogs"][0]["logRecords"][1]["timeUnixNano"] = "soon"
    batch = otlp_json.decode_logs(made)
    assert [record.name for record in batch.records] == ["good"]
    assert "timeUnixNano is not a whole number" in batch.reason


def test_an_empty_request_is_not_an_error(decode):
    assert decode(ExportLogsServiceRequest()).records == []


@pytest.mark.parametrize("data", [b"\xff" * 50, b"\x7a\x02hi", b"\x0a\x05hello"], ids=["noise", "unknown", "text"])
def test_bytes_that_are_not_a_logs_request_are_refused(data):
    with pytest.raises(DecodeError):
        otlp_protobuf.decode_logs(data)
