"""Spans and log records in the JSON that the OpenTelemetry SDKs write.

The Python SDK writes its JSON in these tests. The fixtures `sdk-js*` hold one request, written by the JavaScript SDK,
versions 1 and 2: each span serialized whole (without its processor, which refers to itself), as the console exporter
prints it, in fields that a custom exporter selects, and by its OTLP exporter.
"""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry._logs import LogRecord as SDKLogRecord
from opentelemetry._logs import SeverityNumber
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import ConsoleLogRecordExporter, SimpleLogRecordProcessor
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import ConsoleMetricExporter, PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, set_span_in_context

from goldspan.errors import TraceFileError
from goldspan.model import LogRecord, SpanEvent, SpanRecord
from goldspan.otlp import json_documents, load_runs, otlp_protobuf, read_records, sdk_json
from otlp.strategies import keys, span_ids, texts, trace_ids

FIXTURES = Path(__file__).parents[1] / "fixtures" / "otlp"
START = 1_700_000_000_000_000_000
RESOURCE = Resource({"service.name": "hotel"})

SPAN = {
    "type": "span",
    "traceId": "5B8EFFF798038103D269B633813FC60C",
    "spanId": "eee19b7ec3c1b174",
    "parentSpanId": "eee19b7ec3c1b173",
    "name": "execute_tool search",
    "kind": 2,
    "startTime": [1_700_000_000, 1],
    "endTime": [1_700_000_000, 5],
    "attributes": {"gen_ai.tool.name": "search", "tags": ["a", 1, None, {"deep": [True]}]},
    "status": {"code": 2, "message": "too slow"},
    "events": [{"name": "exception", "attributes": {"exception.type": "Timeout"}, "time": [1_700_000_000, 4]}],
    "droppedAttributesCount": 3,
    "resource": {"attributes": {"service.name": "shop"}, "schemaUrl": ""},
    "instrumentationScope": {"name": "shop.tracer", "version": "1"},
}
RECORD = SpanRecord(
    trace_id="5b8efff798038103d269b633813fc60c",
    span_id="eee19b7ec3c1b174",
    parent_id="eee19b7ec3c1b173",
    name="execute_tool search",
    attributes={"gen_ai.tool.name": "search", "tags": ["a", 1, None, {"deep": [True]}]},
    start_ns=START + 1,
    end_ns=START + 5,
    status="error",
    status_message="too slow",
    events=(SpanEvent("exception", {"exception.type": "Timeout"}, START + 4),),
    kind=3,
    scope="shop.tracer",
    resource={"service.name": "shop"},
    dropped_attributes=3,
)
LOG = {"resource": {"attributes": {}}, "timestamp": START // 1000, "body": "text", "attributes": {}}


def one(document):
    """The record of a document that contains only one record."""
    assert sdk_json.is_sdk_record(document)
    batch = sdk_json.decode_record(document)
    assert batch.rejected == 0, batch.reason
    (record,) = batch.records
    return record


def booking(tracer):
    """Trace a request in which an agent calls a search tool, then a booking tool that fails."""

    def span(name, start, end, parent=None, *, error="", **attributes):
        context = set_span_in_context(parent) if parent else None
        made = tracer.start_span(name, context, start_time=START + start * 1000, attributes=attributes)
        if error:
            made.record_exception(ValueError(error), timestamp=START + start * 1000 + 1000)
            made.set_status(Status(StatusCode.ERROR, error))
        made.end(START + end * 1000)
        return made

    def tool(name, start, parent, **more):
        key = "gen_ai.tool.name"
        span(
            f"execute_tool {name}",
            start,
            start + 50,
            parent,
            **{"gen_ai.operation.name": "execute_tool", key: name},
            **more,
        )

    agent = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "planner"}
    asked = '[{"role":"user","parts":[{"type":"text","content":"Book a room – ein „Zimmer“."}]}]'
    root = tracer.start_span(
        "invoke_agent planner", start_time=START, attributes={**agent, "gen_ai.input.messages": asked}
    )
    tool("search_hotels", 100, root, **{"gen_ai.tool.call.arguments": '{"stars": [4, 5]}', "tags": ["a", "b"]})
    tool("book_hotel", 200, root, error="no room left", **{"gen_ai.tool.call.arguments": '{"hotel": "Ritz"}'})
    root.end(START + 900_000)


def written_by_the_sdk(**options):
    """The output of the console exporter for two requests, and the same spans in OTLP protobuf."""
    out, memory = io.StringIO(), InMemorySpanExporter()
    provider = TracerProvider(resource=RESOURCE)
    for exporter in (ConsoleSpanExporter(out=out, **options), memory):
        provider.add_span_processor(SimpleSpanProcessor(exporter))
    booking(provider.get_tracer("hotel.tracer"))
    booking(provider.get_tracer("hotel.tracer"))
    return out.getvalue(), encode_spans(memory.get_finished_spans()).SerializeToString()


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({}, id="one below the other over many lines"),
        pytest.param({"formatter": lambda span: span.to_json(indent=None) + "\n"}, id="one a line"),
    ],
)
def test_the_output_of_the_python_console_exporter_yields_the_same_runs_as_otlp(tmp_path, options):
    text, request = written_by_the_sdk(**options)
    (tmp_path / "console.txt").write_text(text, encoding="utf-8")
    (tmp_path / "request.pb").write_bytes(request)
    runs = list(load_runs(tmp_path / "console.txt"))
    assert runs == list(load_runs(tmp_path / "request.pb"))
    assert [run.tools_used for run in runs] == [("search_hotels", "book_hotel")] * 2
    assert runs[0].tool_calls[1].error == "no room left"


def test_text_that_the_application_prints_between_spans_is_only_a_loss(tmp_path):
    spans, _ = written_by_the_sdk()
    (tmp_path / "console.txt").write_text(
        "Booking...\n" + spans.replace("\n}\n{", "\n}\nStill at it.\n{", 1) + "Done.\n"
    )
    losses = []
    assert len(list(read_records([tmp_path / "console.txt"], on_loss=losses.append))) == 6
    assert [loss.what.partition(" (")[0] for loss in losses] == ["not JSON: no object begins here"] * 3


values = texts | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False)
attributes = st.dictionaries(keys, values | st.lists(texts, max_size=3), max_size=4)
microseconds = st.integers(1, 2**50).map(lambda count: count * 1000)


@st.composite
def sdk_spans(draw):
    """Any span of the Python SDK with times in whole microseconds, the precision of its JSON."""
    trace_id = int.from_bytes(draw(trace_ids.filter(any)), "big")
    own, parent = (
        SpanContext(trace_id, int.from_bytes(draw(span_ids.filter(any)), "big"), is_remote=False) for _ in range(2)
    )
    events = [Event(draw(texts), draw(attributes), draw(microseconds)) for _ in range(draw(st.integers(0, 2)))]
    code = draw(st.sampled_from(StatusCode))
    return ReadableSpan(
        draw(texts),
        own,
        draw(st.sampled_from([None, parent])),
        Resource(draw(attributes)),
        draw(attributes),
        events,
        kind=draw(st.sampled_from(SpanKind)),
        status=Status(code, draw(texts) if code is StatusCode.ERROR else None),
        start_time=draw(microseconds),
        end_time=draw(microseconds),
        instrumentation_scope=InstrumentationScope("hotel.tracer"),
    )


@given(sdk_spans())
def test_a_python_sdk_span_is_equal_in_json_and_in_protobuf_except_for_its_scope(span):
    (sent,) = otlp_protobuf.decode_traces(encode_spans([span]).SerializeToString()).spans
    sent.scope = ""
    assert one(json.loads(span.to_json())) == sent


@pytest.mark.parametrize(
    "name",
    [
        "sdk-js1-whole.jsonl",
        "sdk-js1-console.jsonl",
        "sdk-js2-whole.jsonl",
        "sdk-js2-console.jsonl",
        "sdk-js2-own.json",
    ],
)
def test_javascript_sdk_json_yields_the_same_spans_and_runs_as_otlp(name):
    spans, sent = ([*read_records([FIXTURES / each])] for each in (name, "sdk-js2-otlp.json"))
    for span in spans:  # version 1 records its own SDK attributes
        span.resource = {key: value for key, value in span.resource.items() if not key.startswith("telemetry.sdk")}
    assert spans == sent
    assert list(load_runs(FIXTURES / name)) == list(load_runs(FIXTURES / "sdk-js2-otlp.json"))


def test_a_github_copilot_file_yields_its_run():
    losses = []
    (run,) = load_runs(FIXTURES / "copilot-file.jsonl", on_loss=losses.append)
    assert losses == []
    assert run.tools_used == ("view", "bash", "bash", "view")
    assert run.tool_calls[3].error == "Path does not exist"
    assert (run.input, run.output) == ("Find out how many rooms are free.", "Two rooms are free.")
    assert run.service == "github-copilot"


def test_a_damaged_line_is_a_loss_and_the_lines_around_it_are_read(tmp_path):
    lines = (FIXTURES / "copilot-file.jsonl").read_text().splitlines()
    lines[1] = lines[1][:300]
    lines[3] = lines[3].replace('"traceId":"', '"traceId":"?')
    (tmp_path / "otel.jsonl").write_text("\n".join(lines))
    losses = []
    spans = list(read_records([tmp_path / "otel.jsonl"], on_loss=losses.append))
    assert [span.name for span in spans] == [
        *("execute_tool view", "execute_tool bash bash", "execute_tool bash bash", "invoke_agent")
    ]
    assert [(loss.where, loss.what) for loss in losses] == [
        ("line 2", "the JSON that begins here is cut off"),
        ("line 4", "1 record rejected: traceId is not hexadecimal"),
    ]


def test_a_span_keeps_every_field_that_a_span_record_has():
    assert one(SPAN) == RECORD


@pytest.mark.parametrize(
    ("changes", "fields"),
    [
        pytest.param({"kind": 0}, {"kind": 1}, id="internal"),
        pytest.param({"kind": "SpanKind.SERVER"}, {"kind": 2}, id="kind as Python writes it"),
        pytest.param({"kind": "producer"}, {"kind": 4}, id="kind in a word"),
        pytest.param({"kind": None}, {"kind": 0}, id="no kind"),
        pytest.param({"kind": 9}, {"kind": 0}, id="a kind from the future"),
        pytest.param({"kind": -1}, {"kind": 0}, id="a kind that never was"),
        pytest.param({"status": {"code": 0}}, {"status": "unset", "status_message": ""}, id="unset"),
        pytest.param({"status": {"status_code": "OK"}}, {"status": "ok", "status_message": ""}, id="status of Python"),
        pytest.param(
            {"status": {"code": "StatusCode.ERROR", "description": "no"}},
            {"status_message": "no"},
            id="an enum's member",
        ),
        pytest.param({"status": {"code": "STRANGE"}}, {"status": "unset", "status_message": ""}, id="a strange status"),
        pytest.param({"status": None}, {"status": "unset", "status_message": ""}, id="no status"),
        pytest.param({"parentSpanId": None}, {"parent_id": None}, id="no parent"),
        pytest.param({"parentSpanId": "0" * 16}, {"parent_id": None}, id="zeros for a parent"),
        pytest.param({"parentSpanContext": {"spanId": "0A" * 8}}, {"parent_id": "0a" * 8}, id="the parent's context"),
        pytest.param({"traceId": "0x" + "0A" * 16}, {"trace_id": "0a" * 16}, id="an id as Python writes it"),
        pytest.param({"endTime": None, "duration": [0, 7]}, {"end_ns": START + 8}, id="a duration"),
        pytest.param({"endTime": None}, {"end_ns": None}, id="no end"),
        pytest.param({"startTime": None, "duration": [0, 7]}, {"start_ns": None}, id="no start"),
        pytest.param({"attributes": None, "events": None}, {"attributes": {}, "events": ()}, id="null"),
        pytest.param({"instrumentationScope": None}, {"scope": ""}, id="no scope"),
        pytest.param(
            {"resource": {"_rawAttributes": [["a", 1], ["b", 2], ["a", 3]]}}, {"resource": {"a": 1, "b": 2}}, id="pairs"
        ),
        pytest.param({"_attributes": {"hidden": 1}}, {}, id="the public field comes before the private one"),
        pytest.param({"context": {"user": "me"}}, {}, id="a context of the application's own"),
    ],
)
def test_variants_of_the_json_fields_are_decoded_to_the_same_record_fields(changes, fields):
    expected = {name: getattr(RECORD, name) for name in RECORD.__dataclass_fields__} | fields
    assert one(SPAN | changes) == SpanRecord(**expected)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        pytest.param({"traceId": "xyz"}, "traceId is not hexadecimal", id="trace id is a word"),
        pytest.param({"traceId": "0" * 32}, "the trace id is not 16 bytes", id="trace id is zero"),
        pytest.param({"spanId": 7}, "spanId is not text", id="span id is a number"),
        pytest.param({"spanId": "ab"}, "the span id is not 8 bytes", id="span id is short"),
        pytest.param({"startTime": "soon"}, "startTime is neither", id="time is a word"),
        pytest.param({"endTime": None, "duration": "long"}, "duration is neither", id="duration is a word"),
        pytest.param({"attributes": [1]}, "attributes is not a JSON object", id="attributes are a list"),
        pytest.param({"events": {}}, "events is not a list", id="events are no list"),
        pytest.param({"status": "OK"}, "status is not a JSON object", id="status is a word"),
        pytest.param({"kind": 0.5}, "kind is not a whole number", id="half a kind"),
        pytest.param({"resource": {"_rawAttributes": 5}}, "the resource's attributes", id="resource is a number"),
        pytest.param(
            {"resource": {"_rawAttributes": [[{}, 1]]}}, "the resource's attributes", id="resource has no keys"
        ),
        pytest.param({"parentSpanContext": {"spanId": "?"}}, "spanId is not hexadecimal", id="parent is a word"),
    ],
)
def test_a_span_with_an_invalid_field_is_rejected_with_the_reason(changes, reason):
    batch = sdk_json.decode_record(SPAN | changes)
    assert (batch.records, batch.rejected) == ([], 1)
    assert reason in batch.reason


@pytest.mark.parametrize("field", ["attributes", "body"])
def test_values_are_nested_at_most_as_deep_as_in_otlp(field):
    def nested(depth):
        value = {}
        for _ in range(depth):
            value = {"a": value}
        return value

    assert one({**LOG, field: nested(99)})
    assert sdk_json.decode_record({**LOG, field: nested(100)}).reason == f"{field} is nested too deeply"


def test_logs_of_the_python_console_exporter_are_decoded(tmp_path):
    with (tmp_path / "logs.json").open("w") as out:
        provider = LoggerProvider(resource=RESOURCE)
        provider.add_log_record_processor(SimpleLogRecordProcessor(ConsoleLogRecordExporter(out=out)))
        logger = provider.get_logger("hotel.logger")
        logger.emit(
            SDKLogRecord(
                timestamp=START,
                body={"content": "Book a room."},
                event_name="gen_ai.user.message",
                attributes={"gen_ai.system": "hotel"},
                severity_number=SeverityNumber.INFO,
            )
        )
        logger.emit(SDKLogRecord(observed_timestamp=START + 1000, body="room booked"))
    asked, told = read_records([tmp_path / "logs.json"])
    resource = dict(RESOURCE.attributes)
    assert asked == LogRecord(
        "gen_ai.user.message",
        {"gen_ai.system": "hotel"},
        {"content": "Book a room."},
        time_ns=START,
        resource=resource,
    )
    assert told == LogRecord("", {}, "room booked", time_ns=START + 1000, resource=resource)


def test_javascript_sdk_logs_are_decoded_in_serialized_form_and_in_console_exporter_form():
    records = list(read_records([FIXTURES / "sdk-js2-logs.jsonl"]))
    asked = LogRecord(
        "gen_ai.user.message",
        {"gen_ai.system": "hotel"},
        {"content": "Book a room.", "tags": ["a"]},
        "5b8efff798038103d269b633813fc60c",
        "eee19b7ec3c1b171",
        1_795_186_056_475_100_000,
        "hotel.logger",
        {"service.name": "hotel"},
    )
    told = replace(
        asked,
        name="",
        attributes={},
        body="room booked",
        trace_id=None,
        span_id=None,
        time_ns=1_795_186_056_475_200_000,
    )
    assert records[:2] == records[2:] == [asked, told]


def test_metrics_of_the_python_console_exporter_are_ignored(tmp_path):
    with (tmp_path / "metrics.json").open("w") as out:
        reader = PeriodicExportingMetricReader(ConsoleMetricExporter(out=out))
        provider = MeterProvider([reader])
        provider.get_meter("hotel").create_counter("rooms").add(1)
        provider.shutdown()
    assert (tmp_path / "metrics.json").stat().st_size
    assert list(read_records([tmp_path / "metrics.json"])) == []


def test_metrics_of_the_javascript_sdk_are_ignored():
    assert json_documents.decode_document({"resource": {"attributes": {}}, "scopeMetrics": []}).records == []


@pytest.mark.parametrize(
    "other",
    [
        pytest.param({"name": "package", "version": "1"}, id="a package"),
        pytest.param({"traceId": "1", "id": "2", "timestamp": 1, "duration": 2, "tags": {}}, id="Zipkin"),
        pytest.param({key: value for key, value in SPAN.items() if key != "traceId"}, id="a span without a trace"),
        pytest.param({key: value for key, value in SPAN.items() if key != "spanId"}, id="a span without an id"),
        pytest.param({"timestamp": "2026-11-20T14:47:36Z", "body": "text", "level": "info"}, id="an application's log"),
        pytest.param({"resource": {}, "timestamp": 1, "attributes": {}, "traceId": "1"}, id="neither span nor log"),
        pytest.param({"context": "production", "attributes": {}, "startTime": 1}, id="a word for a context"),
        pytest.param({"": 1, "_": 2}, id="fields without a name"),
    ],
)
def test_documents_of_other_kinds_are_not_sdk_records(other):
    assert not sdk_json.is_sdk_record(other)


def test_the_output_of_the_javascript_console_exporter_is_not_json_and_raises(tmp_path):
    (tmp_path / "console.txt").write_text("{\n  traceId: '5b8efff798038103d269b633813fc60c',\n  kind: 0\n}\n")
    with pytest.raises(TraceFileError, match="not JSON: Expecting property name"):
        list(read_records([tmp_path / "console.txt"]))
