"""Protobuf messages that do not state which signal they contain."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from goldspan.model import LogRecord, SpanRecord
from goldspan.otlp.decode_results import DecodeError
from goldspan.otlp.protobuf_signals import decode_signals
from otlp.payloads import any_value, logs_request, metrics_request, request, spans_of
from otlp.strategies import logs_requests, requests

FIXTURES = Path(__file__).parents[1] / "fixtures" / "otlp"


def nothing_lost(where, what):
    raise AssertionError(f"{where}: {what}")


def kinds_and_names(data, report=nothing_lost):
    batch = decode_signals(data, report)
    return [("Span" if isinstance(record, SpanRecord) else "LogRecord", record.name) for record in batch.records]


@given(requests())
def test_spans_are_never_decoded_as_logs(made):
    """This holds with invalid ids, without times and without attributes."""
    batch = decode_signals(made.SerializeToString(), nothing_lost)
    assert all(isinstance(record, SpanRecord) for record in batch.records)
    assert len(batch.records) + batch.rejected == len(spans_of(made))


@given(logs_requests())
def test_logs_are_never_decoded_as_spans(made):
    batch = decode_signals(made.SerializeToString(), nothing_lost)
    assert all(isinstance(record, LogRecord) for record in batch.records)
    assert len(batch.records) + batch.rejected == len(made.resource_logs[0].scope_logs[0].log_records)


def test_a_log_record_with_only_a_body_is_decoded_as_a_log_record():
    """Its one field has the number and the type of a span's name and of a metric's gauge."""
    made = ExportLogsServiceRequest()
    made.resource_logs.add().scope_logs.add().log_records.add().body.CopyFrom(any_value("hello"))
    assert [record.body for record in decode_signals(made.SerializeToString(), nothing_lost).records] == ["hello"]


def test_metrics_are_ignored_even_where_their_texts_are_as_long_as_ids():
    made = metrics_request()
    assert kinds_and_names(made.SerializeToString()) == []
    kinds = made.resource_metrics[0].scope_metrics[0].metrics
    for kind in kinds:
        alone = ExportMetricsServiceRequest()
        alone.resource_metrics.add().scope_metrics.add().metrics.append(kind)
        assert kinds_and_names(alone.SerializeToString()) == []


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2)], ids=str)
def test_concatenated_messages_of_different_signals_are_distinguished(order):
    data = [
        request("a1", "a2").SerializeToString(),
        logs_request("asked", "told").SerializeToString(),
        metrics_request().SerializeToString(),
    ]
    names = [[("Span", "a1"), ("Span", "a2")], [("LogRecord", "asked"), ("LogRecord", "told")], []]
    expected = [name for position in order for name in names[position]]
    written = b"".join(data[position] for position in order)
    assert kinds_and_names(written) == expected


def test_spans_without_ids_and_times_are_rejected_as_spans_and_not_decoded_as_logs():
    made = request("one", "two")
    for span in spans_of(made):
        span.ClearField("trace_id")
        span.ClearField("start_time_unix_nano")
        span.ClearField("end_time_unix_nano")
    batch = decode_signals(made.SerializeToString(), nothing_lost)
    assert (batch.records, batch.rejected) == ([], 2)


def test_a_recorded_logs_export_is_decoded_as_log_records():
    data = gzip.decompress((FIXTURES / "logs.pb.gz").read_bytes())
    assert {kind for kind, _ in kinds_and_names(data)} == {"LogRecord"}


@given(st.data())
def test_logs_truncated_anywhere_yield_their_complete_records(data):
    names = [f"event {number}" for number in range(5)]
    whole = logs_request(*names).SerializeToString()
    ends = [whole.index(name.encode(), whole.index(f"body of {name}".encode()) + 20) + len(name) for name in names]
    at = data.draw(st.integers(ends[0], len(whole) - 1))
    losses = []
    read = [name for _, name in kinds_and_names(whole[:at], lambda where, what: losses.append((where, what)))]
    assert read == names[: sum(end <= at for end in ends)]
    assert losses == [("end of file", "the protobuf message is cut off")]


def test_a_broken_part_does_not_affect_the_other_parts():
    broken = b"\x0a\x08\x12\x06\x12\x04\xff\xff\xff\xff"
    losses = []
    data = request("a1").SerializeToString() + broken + logs_request("asked").SerializeToString()
    assert [name for _, name in kinds_and_names(data, lambda where, what: losses.append((where, what)))] == [
        "a1",
        "asked",
    ]
    ((where, what),) = losses
    assert where == "whole file"
    assert "1 of 3 parts cannot be read" in what


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"\x0a\x05hello", id="a message of something else"),
        pytest.param(b"\x7a\x02hi", id="only unknown fields"),
        pytest.param(b"\xff" * 50, id="noise"),
        pytest.param(request("a").SerializeToString()[:30], id="cut off before the first record"),
        pytest.param(b"\x0a\x0f\x12\x0d\x12\x0b\x9a\x06\x08whatever", id="items that nobody knows"),
    ],
)
def test_bytes_that_are_not_an_otlp_signal_are_refused(data):
    with pytest.raises(DecodeError, match="neither JSON nor OTLP in protobuf"):
        decode_signals(data, nothing_lost)
