"""Spans decoded from the Jaeger trace JSON."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest

from goldspan.model import SpanEvent, SpanRecord
from goldspan.otlp import load_runs, read_records
from goldspan.otlp.decode_results import DecodeError
from goldspan.otlp.jaeger_json import decode_traces, is_api_response, is_trace_document

FIXTURES = Path(__file__).parents[1] / "fixtures" / "otlp"


def one(*tags, **fields):
    """The record of a span written with these tags and fields."""
    decoded = decode_traces(trace(*tags, **fields))
    assert decoded.rejected == 0, decoded.reason
    return decoded.spans[0]


def trace(*tags, **fields):
    span = {"traceID": "abc", "spanID": "1", "tags": [tag(*each) for each in tags], **fields}
    return {"traceID": "abc", "spans": [span], "processes": {"p1": {"serviceName": "shop"}}}


def tag(key, value, kind="string"):
    return {"key": key, "type": kind, "value": value}


def test_a_span_from_jaeger_json_equals_the_span_before_its_export_to_jaeger():
    span = one(
        ("otel.scope.name", "shop.tracer"),
        ("otel.scope.version", "1.2"),
        ("span.kind", "client"),
        ("otel.status_code", "ERROR"),
        ("otel.status_description", "too slow"),
        ("error", True, "bool"),
        ("gen_ai.tool.name", "search"),
        operationName="execute_tool search",
        references=[{"refType": "CHILD_OF", "traceID": "abc", "spanID": "f00"}],
        startTime=1_700_000_000_000_001,
        duration=25,
        logs=[
            {
                "timestamp": 1_700_000_000_000_020,
                "fields": [tag("event", "exception"), tag("exception.type", "Timeout")],
            }
        ],
        processID="p1",
        warnings=["clock skew"],
    )
    assert span == SpanRecord(
        trace_id="0" * 29 + "abc",
        span_id="0" * 15 + "1",
        parent_id="0" * 13 + "f00",
        name="execute_tool search",
        attributes={"gen_ai.tool.name": "search"},
        start_ns=1_700_000_000_000_001_000,
        end_ns=1_700_000_000_000_026_000,
        status="error",
        status_message="too slow",
        events=(SpanEvent("exception", {"exception.type": "Timeout"}, 1_700_000_000_000_020_000),),
        kind=3,
        scope="shop.tracer",
        resource={"service.name": "shop"},
    )


def test_an_api_response_yields_its_runs():
    (run,) = load_runs(FIXTURES / "jaeger.json")
    assert run.tools_used == ("search_hotels", "book_hotel")
    assert run.tool_calls[1].arguments == {"hotel": "Ritz", "nights": 2}
    assert run.tool_calls[1].error == "no room left"
    assert (run.input, run.service, run.agent) == ("Book a hotel in Paris.", "travel", "planner")


@pytest.mark.parametrize(
    ("value", "kind", "read"),
    [
        pytest.param("text", "string", "text", id="text"),
        pytest.param('["a", "b"]', "string", '["a", "b"]', id="a list stays text"),
        pytest.param(True, "bool", True, id="truth value"),
        pytest.param("false", "bool", False, id="truth value as text"),
        pytest.param(9007199254740993, "int64", 9007199254740993, id="integer"),
        pytest.param("-5", "int64", -5, id="integer as text"),
        pytest.param(0.5, "float64", 0.5, id="float"),
        pytest.param("0.5", "float64", 0.5, id="float as text"),
        pytest.param(base64.b64encode(b"\xfb\xff").decode(), "binary", b"\xfb\xff", id="bytes"),
        pytest.param(base64.b64encode("ü".encode()).decode(), "binary", "ü", id="text as bytes"),
        pytest.param(None, "string", None, id="null"),
        pytest.param(5, None, 5, id="no type"),
        pytest.param("5s", "duration", "5s", id="a type from the future"),
    ],
)
def test_a_tag_is_decoded_to_a_value_of_its_declared_type(value, kind, read):
    attribute = one(("key", value, kind)).attributes["key"]
    assert attribute == read
    assert type(attribute) is type(read)


@pytest.mark.parametrize(
    ("tags", "status", "left"),
    [
        pytest.param([], "unset", {}, id="none"),
        pytest.param([("otel.status_code", "OK")], "ok", {}, id="ok"),
        pytest.param([("otel.status_code", "Error")], "error", {}, id="error"),
        pytest.param([("otel.status_code", "UNSET")], "unset", {}, id="unset"),
        pytest.param([("error", True, "bool")], "error", {}, id="a mark of OpenTracing"),
        pytest.param([("error", "true")], "error", {}, id="a mark as text"),
        pytest.param([("error", False, "bool")], "unset", {"error": False}, id="explicitly no error"),
        pytest.param(
            [("error", "no room left")], "unset", {"error": "no room left"}, id="a message of the application"
        ),
        pytest.param([("error", True, "bool"), ("otel.status_code", "OK")], "error", {}, id="the mark comes first"),
    ],
)
def test_the_span_status_is_restored_from_tags(tags, status, left):
    span = one(*tags)
    assert (span.status, span.attributes) == (status, left)


def test_the_otel_library_tags_of_before_2022_name_the_scope():
    span = one(("otel.library.name", "old"), ("otel.library.version", "1"))
    assert (span.scope, span.attributes) == ("old", {})


def test_tags_of_jaeger_and_of_the_protocol_are_not_attributes():
    span = one(
        ("internal.span.format", "otlp"), ("w3c.tracestate", "a=b"), ("otel.dropped_attributes_count", 3, "int64")
    )
    assert (span.attributes, span.dropped_attributes) == ({}, 3)


@pytest.mark.parametrize(
    ("references", "parent"),
    [
        pytest.param([], None, id="none"),
        pytest.param(None, None, id="null"),
        pytest.param([("FOLLOWS_FROM", "abc", "2"), ("CHILD_OF", "abc", "3")], "3", id="child before follower"),
        pytest.param([("FOLLOWS_FROM", "abc", "2")], "2", id="only a follower"),
        pytest.param([("CHILD_OF", "def", "2"), ("CHILD_OF", "0abc", "3")], "3", id="not out of another trace"),
        pytest.param([("CHILD_OF", "abc", "0")], None, id="zero"),
    ],
)
def test_the_parent_is_the_span_of_the_child_of_reference(references, parent):
    written = references and [dict(zip(("refType", "traceID", "spanID"), each, strict=True)) for each in references]
    assert one(references=written).parent_id == (parent and parent.zfill(16))


def test_parentspanid_of_the_first_versions_gives_the_parent():
    assert one(parentSpanID="2").parent_id == "0" * 15 + "2"


def test_a_span_may_contain_its_process_and_take_the_trace_id_from_its_trace():
    made = trace(process={"serviceName": "own", "tags": [tag("host.name", "h")]})
    del made["spans"][0]["traceID"]
    (span,) = decode_traces(made).spans
    assert span.resource == {"service.name": "own", "host.name": "h"}
    assert span.trace_id.endswith("abc")


def test_a_message_field_names_the_event_of_an_older_collector():
    (event,) = one(logs=[{"timestamp": 1, "fields": [tag("message", "exception")]}]).events
    assert event == SpanEvent("exception", {}, 1000)


def test_the_placeholder_for_a_missing_service_name_is_not_a_service():
    made = trace(processID="p1")
    made["processes"]["p1"]["serviceName"] = "OTLPResourceNoServiceName"
    assert decode_traces(made).spans[0].service is None


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        pytest.param({"traceID": "xyz"}, "traceID is not hexadecimal", id="trace id is a word"),
        pytest.param({"traceID": "0"}, "the trace id is not 16 bytes", id="trace id is zero"),
        pytest.param({"traceID": "1" * 34}, "the trace id is not 16 bytes", id="trace id too long"),
        pytest.param({"spanID": ""}, "the span id is not 8 bytes", id="no span id"),
        pytest.param({"spanID": 7}, "spanID is not text", id="span id is a number"),
        pytest.param({"startTime": "soon"}, "startTime is not a whole number", id="time is a word"),
        pytest.param({"startTime": 1, "duration": 0.5}, "duration is not a whole number", id="half a microsecond"),
        pytest.param({"tags": [tag("n", "many", "int64")]}, "value is not a whole number", id="integer is a word"),
        pytest.param({"tags": [tag("b", 1, "bool")]}, "value is not true or false", id="truth value is a number"),
        pytest.param({"tags": {"a": 1}}, "tags is not a list", id="tags are no list"),
        pytest.param({"references": [{"traceID": "?"}]}, "traceID is not hexadecimal", id="a broken reference"),
    ],
)
def test_a_span_with_an_invalid_field_is_rejected_alone_with_the_reason(fields, reason):
    made = trace()
    made["spans"].insert(0, {**made["spans"][0], **fields})
    decoded = decode_traces(made)
    assert len(decoded.spans) == 1
    assert decoded.rejected == 1
    assert reason in decoded.reason


@pytest.mark.parametrize(
    ("document", "known"),
    [
        pytest.param({"data": [trace()], "errors": None}, True, id="an answer"),
        pytest.param({"data": [], "total": 0, "limit": 0, "offset": 0, "errors": None}, True, id="an empty answer"),
        pytest.param({"data": []}, False, id="somebody else's empty answer"),
        pytest.param({"data": [{"id": 1}]}, False, id="somebody else's answer"),
        pytest.param({"data": {"spans": []}}, False, id="an object"),
        pytest.param({"data": None, "errors": [{"code": 404}]}, False, id="an error"),
        pytest.param(trace(), True, id="a trace"),
        pytest.param({"traceID": "1", "spans": []}, True, id="a trace without spans"),
        pytest.param({"spans": [{"start": 1, "end": 2}]}, False, id="spans of a text"),
        pytest.param({"traceID": "1", "spans": 3}, False, id="a number of spans"),
    ],
)
def test_jaeger_documents_are_recognized_by_their_structure(document, known):
    assert (is_api_response(document) or is_trace_document(document)) is known


def test_a_trace_whose_processes_are_not_objects_is_refused():
    with pytest.raises(DecodeError, match="p1 is not a JSON object"):
        decode_traces({**trace(), "processes": {"p1": "shop"}})


@pytest.mark.parametrize(
    "cut", ['"2000000000000003"', '"processes"'], ids=["in the second span", "before the processes"]
)
def test_a_truncated_api_response_yields_its_complete_spans(tmp_path, cut):
    text = (FIXTURES / "jaeger.json").read_text()
    (tmp_path / "cut.json").write_text(text[: text.index(cut)])
    losses = []
    (run,) = load_runs(tmp_path / "cut.json", on_loss=losses.append)
    assert run.tools_used[:1] == ("search_hotels",)
    assert [loss.what for loss in losses] == ["the JSON that begins here is cut off"]


def test_jaeger_traces_in_json_lines_are_read_even_if_one_line_is_truncated(tmp_path):
    lines = [json.dumps(trace(operationName=name)) for name in ("a", "b", "c")]
    (tmp_path / "traces.jsonl").write_text(lines[0] + "\n" + lines[1][:80] + "\n" + lines[2] + "\n")
    losses = []
    assert [span.name for span in read_records([tmp_path / "traces.jsonl"], on_loss=losses.append)] == ["a", "c"]
    assert [loss.where for loss in losses] == ["line 2"]
