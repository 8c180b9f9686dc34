"""Records as rows with the columns of OpenTelemetry's ClickHouse exporter."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goldspan.extraction import extract
from goldspan.model import LogRecord, SpanEvent, SpanRecord
from goldspan.otlp import read_records
from goldspan.otlp.decode_results import DecodeError
from goldspan.otlp.span_rows import COLUMNS, TYPED_VALUES, column_names, record_to_row, row_to_record
from support.laws import case

FIXTURES = Path(__file__).parents[1] / "fixtures"
CAPTURES = sorted((FIXTURES / "captures").iterdir())
TRACE, SPAN, PARENT = "0123456789abcdef" * 2, "0123456789abcdef", "fedcba9876543210"

values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3),
    max_leaves=6,
)
attributes = st.dictionaries(st.text(max_size=9) | st.just("service.name"), values, max_size=4)
times = st.none() | st.integers(0, 2**64 - 1)
spans = st.builds(
    SpanRecord,
    st.just(TRACE),
    st.just(SPAN),
    st.none() | st.just(PARENT),
    st.text(),
    attributes,
    times,
    times,
    st.sampled_from(["unset", "ok", "error"]),
    st.text(),
    st.lists(st.builds(SpanEvent, st.text(), attributes, times), max_size=2).map(tuple),
    st.integers(0, 7),
    st.text(),
    attributes,
    st.integers(0, 2**32 - 1),
)
logs = st.builds(
    LogRecord,
    st.text(min_size=1),
    attributes,
    values,
    st.none() | st.just(TRACE),
    st.none() | st.just(SPAN),
    times,
    st.text(),
    attributes,
)


@given(spans | logs)
def test_every_record_becomes_a_row_and_the_same_record_again(record):
    row = record_to_row(record)
    assert list(row) == list(COLUMNS)
    assert row_to_record(row) == record


@pytest.mark.parametrize("capture", CAPTURES, ids=lambda path: path.name)
def test_every_capture_becomes_rows_and_the_same_records_again(capture):
    for record in read_records([capture]):
        with case(record):
            assert row_to_record(record_to_row(record)) == record


def test_without_typed_values_numbers_and_lists_are_text():
    row = record_to_row(SpanRecord(TRACE, SPAN, None, "chat", {"n": 5, "b": True, "x": ["a", 1], "raw": b"\xff"}))
    row[TYPED_VALUES] = None
    assert row_to_record(row).attributes == {"n": "5", "b": "true", "x": '["a",1]', "raw": "/w=="}


@pytest.mark.parametrize("capture", CAPTURES, ids=lambda path: path.name)
def test_a_table_of_the_clickhouse_exporter_yields_the_same_tools(capture):
    records = list(read_records([capture]))
    rows = [{**record_to_row(record), TYPED_VALUES: None} for record in records]
    before, after = extract(records), extract(map(row_to_record, rows))
    assert [run.tools_used for run in after] == [run.tools_used for run in before]


def test_older_spellings_of_kinds_and_states_are_read():
    row = {"TraceId": TRACE, "SpanId": SPAN, "SpanName": "x", "SpanKind": "SPAN_KIND_SERVER"}
    span = row_to_record({**row, "StatusCode": "STATUS_CODE_ERROR"})
    assert (span.kind, span.status) == (2, "error")
    assert row_to_record({**row, "SpanKind": 3, "StatusCode": 1}).kind == 3


def test_ids_may_be_bytes_and_times_may_be_datetimes():
    start = datetime(2026, 1, 2, tzinfo=timezone.utc)
    span = row_to_record(
        {
            "TraceId": bytes.fromhex(TRACE),
            "SpanId": bytes.fromhex(SPAN),
            "ParentSpanId": bytes.fromhex(PARENT),
            "SpanName": "x",
            "Timestamp": start,
            "Duration": timedelta(microseconds=7),
        }
    )
    assert (span.trace_id, span.span_id, span.parent_id) == (TRACE, SPAN, PARENT)
    assert span.start_ns == int(start.timestamp()) * 10**9
    assert span.end_ns == span.start_ns + 7000
    assert row_to_record({"TraceId": TRACE, "SpanId": SPAN, "Timestamp": start.replace(tzinfo=None)}) == SpanRecord(
        TRACE, SPAN, None, "", {}, span.start_ns
    )


def test_events_may_be_one_nested_column():
    events = [{"Timestamp": 5, "Name": "e", "Attributes": [("k", "v")]}]
    span = row_to_record({"TraceId": TRACE, "SpanId": SPAN, "SpanName": "x", "Events": events})
    assert span.events == (SpanEvent("e", {"k": "v"}, 5),)


def test_the_service_column_counts_if_the_resource_names_no_service():
    row = {"TraceId": TRACE, "SpanId": SPAN, "SpanName": "x", "ServiceName": "shop"}
    assert row_to_record(row).service == "shop"
    assert row_to_record({**row, "ResourceAttributes": {"service.name": "cart"}}).service == "cart"


@pytest.mark.parametrize(
    "wrong",
    [
        {"TraceId": "xyz"},
        {"SpanId": ""},
        {"Timestamp": "noon"},
        {"SpanAttributes": 5},
        {"Events.Name": ["a"], "Events.Timestamp": [1, 2]},
        {TYPED_VALUES: "{"},
        {TYPED_VALUES: "[]"},
    ],
    ids=str,
)
def test_a_row_with_a_value_that_cannot_be_read_is_rejected(wrong):
    with pytest.raises(DecodeError):
        row_to_record({"TraceId": TRACE, "SpanId": SPAN, "SpanName": "x", **wrong})


def test_the_columns_of_opentelemetry_arrow_are_recognised():
    found = column_names(["trace_id", "span_id", "parent_span_id", "name", "start_time_unix_nano", "attributes", "x"])
    assert found == {
        "Timestamp": "start_time_unix_nano",
        "TraceId": "trace_id",
        "SpanId": "span_id",
        "ParentSpanId": "parent_span_id",
        "SpanName": "name",
        "SpanAttributes": "attributes",
    }


def test_a_table_with_two_columns_of_the_same_name_is_rejected():
    assert column_names(["TraceId", "SpanId", "SpanName", "Price", "Price"]).keys() == {"TraceId", "SpanId", "SpanName"}
    with pytest.raises(DecodeError, match="two columns have the name Timestamp"):
        column_names(["TraceId", "SpanId", "SpanName", "Timestamp", "Timestamp"])


def test_a_table_of_something_else_is_rejected():
    with pytest.raises(DecodeError, match="no table of spans or logs"):
        column_names(["TraceId", "price"])
    assert "LogAttributes" in column_names(["TraceId", "SpanId", "Body", "LogAttributes"])
