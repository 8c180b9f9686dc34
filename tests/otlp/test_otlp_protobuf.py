"""Spans decoded from OTLP protobuf."""

from __future__ import annotations

import copy
import math
import pickle
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from goldspan.model import SpanEvent, SpanRecord
from goldspan.otlp.decode_results import DecodeError
from goldspan.otlp.otlp_protobuf import decode_traces
from goldspan.otlp.wire_format import complete_prefix
from otlp.payloads import START, TRACE_ID, add, request, spans_of


def test_a_decoded_span_equals_the_span_that_the_standard_exporter_encoded():
    memory = InMemorySpanExporter()
    provider = TracerProvider(resource=Resource({"service.name": "shop"}))
    provider.add_span_processor(SimpleSpanProcessor(memory))
    tracer = provider.get_tracer("shop.agent")
    with tracer.start_as_current_span("invoke_agent", start_time=START) as parent:
        child = tracer.start_span("execute_tool", kind=SpanKind.CLIENT, start_time=START + 1)
        child.set_attributes(
            {"gen_ai.tool.name": "search", "tries": 2, "share": 0.5, "cached": True, "ids": ["a", "b"]}
        )
        child.add_event("exception", {"exception.type": "Timeout"}, timestamp=START + 2)
        child.set_status(StatusCode.ERROR, "too slow")
        child.end(end_time=START + 3)

    decoded = decode_traces(encode_spans(memory.get_finished_spans()).SerializeToString())

    context, above = child.get_span_context(), parent.get_span_context()
    assert decoded.spans[0] == SpanRecord(
        trace_id=f"{context.trace_id:032x}",
        span_id=f"{context.span_id:016x}",
        parent_id=f"{above.span_id:016x}",
        name="execute_tool",
        attributes={"gen_ai.tool.name": "search", "tries": 2, "share": 0.5, "cached": True, "ids": ["a", "b"]},
        start_ns=START + 1,
        end_ns=START + 3,
        status="error",
        status_message="too slow",
        events=(SpanEvent("exception", {"exception.type": "Timeout"}, START + 2),),
        kind=3,
        scope="shop.agent",
        resource={"service.name": "shop"},
    )
    assert decoded.spans[1].parent_id is None
    assert (decoded.rejected, decoded.reason) == (0, "")


@pytest.mark.parametrize(
    ("written", "read"),
    [
        pytest.param("text", "text", id="text"),
        pytest.param("", "", id="empty text"),
        pytest.param(0, 0, id="zero"),
        pytest.param(-(2**63), -(2**63), id="least integer"),
        pytest.param(False, False, id="false"),
        pytest.param(-math.inf, -math.inf, id="infinity"),
        pytest.param(None, None, id="a value that is not there"),
        pytest.param("größe".encode(), "größe", id="text written as bytes"),
        pytest.param(b"\xff\x00", b"\xff\x00", id="bytes that are no text"),
        pytest.param([], [], id="empty list"),
        pytest.param({}, {}, id="empty mapping"),
        pytest.param([{"a": [1, ""]}, None], [{"a": [1, ""]}, None], id="nested"),
    ],
)
def test_an_attribute_value_is_decoded_to_its_plain_value(written, read):
    made = request("work")
    add(spans_of(made)[0], {"key": written})
    value = decode_traces(made.SerializeToString()).spans[0].attributes["key"]
    assert value == read
    assert type(value) is type(read)


def test_the_last_value_of_a_repeated_attribute_key_is_kept():
    made = request("work")
    add(spans_of(made)[0], {"key": "first"})
    add(spans_of(made)[0], {"key": "second"})
    assert decode_traces(made.SerializeToString()).spans[0].attributes == {"key": "second"}


def test_zero_times_and_a_zero_parent_id_are_decoded_to_none():
    made = request("work")
    span = spans_of(made)[0]
    span.start_time_unix_nano = span.end_time_unix_nano = 0
    span.parent_span_id = bytes(8)
    record = decode_traces(made.SerializeToString()).spans[0]
    assert (record.start_ns, record.end_ns, record.parent_id) == (None, None, None)


def test_spans_of_one_process_share_one_resource_object():
    first, second = decode_traces(request("one", "two").SerializeToString()).spans
    assert first.resource == {"service.name": "shop"}
    assert first.resource is second.resource


def test_the_dropped_attributes_count_is_decoded():
    made = request("work")
    spans_of(made)[0].dropped_attributes_count = 7
    assert decode_traces(made.SerializeToString()).spans[0].dropped_attributes == 7


def test_an_unknown_status_code_is_decoded_to_unset():
    made = request("work")
    spans_of(made)[0].status.code = 9
    assert decode_traces(made.SerializeToString()).spans[0].status == "unset"


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        pytest.param("trace_id", b"", "trace id", id="no trace id"),
        pytest.param("trace_id", bytes(16), "trace id", id="trace id of zeros"),
        pytest.param("trace_id", b"\x01" * 8, "trace id", id="trace id too short"),
        pytest.param("span_id", b"", "span id", id="no span id"),
        pytest.param("span_id", bytes(8), "span id", id="span id of zeros"),
        pytest.param("span_id", b"\x01" * 16, "span id", id="span id too long"),
    ],
)
def test_a_span_with_an_invalid_id_is_rejected_and_counted_alone(field, value, reason):
    made = request("good", "bad", "also bad")
    for span in spans_of(made)[1:]:
        setattr(span, field, value)
    decoded = decode_traces(made.SerializeToString())
    assert [span.name for span in decoded.spans] == ["good"]
    assert decoded.rejected == 2
    assert reason in decoded.reason


def test_empty_data_yields_no_spans():
    assert decode_traces(b"").spans == []


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"\xff" * 50, id="noise"),
        pytest.param(request("work").SerializeToString()[:-3], id="cut off"),
        pytest.param(b"\x7a\x02hi", id="a message whose fields are all unknown"),
    ],
)
def test_bytes_that_are_not_a_trace_request_are_refused(data):
    with pytest.raises(DecodeError):
        decode_traces(data)


@pytest.mark.parametrize(
    ("broken", "whole"),
    [
        pytest.param(b"a\xffname", b"another name", id="name"),
        pytest.param(b"a\xffkey", b"another key", id="key of an attribute"),
        pytest.param(b"a\xffmessage", b"another text", id="status message"),
    ],
)
def test_a_span_with_text_that_is_not_utf_8_is_rejected_alone(broken, whole):
    made = request("good", whole.decode())
    span = spans_of(made)[1]
    add(span, {whole.decode(): 1})
    span.status.message = whole.decode()
    assert len(broken) < len(whole)
    decoded = decode_traces(made.SerializeToString().replace(whole, broken.ljust(len(whole)), 1))
    assert [span.name for span in decoded.spans] == ["good"]
    assert decoded.rejected == 1
    assert "UTF-8" in decoded.reason


def test_a_request_without_a_readable_span_is_refused():
    data = request("work").SerializeToString().replace(b"work", b"w\xffrk")
    with pytest.raises(DecodeError):
        decode_traces(data)


def test_a_value_nested_deeper_than_protobuf_allows_is_none_and_costs_no_other_attribute():
    value = b""
    for _ in range(3000):
        value = field(0x2A, field(0x0A, value))  # AnyValue.array_value, ArrayValue.values
    deep = field(0x4A, field(0x0A, b"deep") + field(0x12, value))
    flat = field(0x4A, field(0x0A, b"flat") + field(0x12, field(0x0A, b"text")))
    span = field(0x0A, TRACE_ID) + field(0x12, b"\x01" * 8) + deep + flat
    (record,) = decode_traces(field(0x0A, field(0x12, field(0x12, span)))).spans
    assert record.attributes == {"deep": None, "flat": "text"}


def test_attribute_names_includes_the_attributes_of_a_span():
    made = request("work")
    add(spans_of(made)[0], {"gen_ai.tool.name": "search", "city": "Paris"})
    (decoded,) = decode_traces(made.SerializeToString()).spans
    for record in (decoded, replace(decoded, name="renamed"), SpanRecord("", "", None, "", {"city": 1})):
        assert record.attribute_names() >= {"city"}


def test_decode_attributes_returns_the_requested_attributes():
    made = request("work")
    add(spans_of(made)[0], {"gen_ai.tool.name": "search", "city": "Paris"})
    (decoded,) = decode_traces(made.SerializeToString()).spans
    for record in (decoded, decoded, replace(decoded, name="renamed"), SpanRecord("", "", None, "", {"city": "Paris"})):
        assert record.decode_attributes(["city"])["city"] == "Paris"


@pytest.mark.parametrize(
    "copied",
    [
        pytest.param(lambda span: pickle.loads(pickle.dumps(span)), id="pickle"),
        pytest.param(copy.deepcopy, id="deep copy"),
        pytest.param(copy.copy, id="copy"),
        pytest.param(replace, id="replace"),
    ],
)
def test_a_decoded_span_behaves_like_any_other_span_record(copied):
    (span,) = decode_traces(busy_request().SerializeToString()).spans
    again = copied(span)
    assert again == span
    assert repr(again).partition("(")[2] == repr(span).partition("(")[2]
    assert replace(again, name="renamed") != span
    assert span != "a span"
    with pytest.raises(AttributeError, match="colour"):
        _ = span.colour


def test_a_pickled_span_keeps_no_reference_to_its_request():
    (span,) = decode_traces(busy_request().SerializeToString()).spans
    again = pickle.loads(pickle.dumps(span))
    assert type(again) is SpanRecord
    assert {type(again.attributes), type(again.resource), type(again.events[0].attributes)} == {dict}


def test_a_span_read_concurrently_by_many_threads_gives_every_thread_the_same_values():
    data = busy_request().SerializeToString()
    expected = repr(decode_traces(data).spans)
    with ThreadPoolExecutor(8) as threads:
        for _ in range(20):
            spans = decode_traces(data).spans
            assert set(threads.map(repr, [spans] * 8)) == {expected}


def busy_request():
    made = request("work")
    (span,) = spans_of(made)
    add(span, {"ids": [1, 2], "text": "x" * 300, "nested": {"a": None}})
    span.status.message = "too slow"
    span.events.add(name="exception", time_unix_nano=START)
    span.events[0].attributes.extend(span.attributes)
    return made


def field(tag: int, body: bytes) -> bytes:
    size, length = len(body), bytearray()
    while size > 0x7F:
        length.append(size & 0x7F | 0x80)
        size >>= 7
    return bytes([tag, *length, size]) + body


@given(st.data())
def test_a_request_truncated_anywhere_yields_its_complete_spans(data):
    made = request(*(f"span {number} {'x' * number * 40}" for number in range(6)))
    whole = made.SerializeToString()
    everything = decode_traces(whole).spans
    written = [field(0x12, span.SerializeToString()) for span in spans_of(made)]
    ends = [len(whole) - sum(map(len, written[number:])) for number in range(1, 7)]
    size = data.draw(st.integers(0, len(whole) - 1))
    assert decode_traces(complete_prefix(whole[:size])).spans == everything[: sum(end <= size for end in ends)]


@given(st.binary(max_size=60))
def test_random_bytes_cause_only_a_decode_error(noise):
    for data in (noise, b"\x0a" + noise, b"\x0a\x20\x12" + noise):
        with suppress(DecodeError):
            assert decode_traces(data).spans == []
