"""JSON documents of every kind, recognized by their structure."""

from __future__ import annotations

import base64

import pytest

from goldspan.otlp import json_documents
from goldspan.otlp.decode_results import DecodeError
from otlp.payloads import (
    START,
    document,
    jaeger,
    jaeger_v3,
    logs_request,
    old_tempo,
    request,
    spans_of,
    tempo,
    tempo_v2,
)

MADE = request("a1", "a2")
SPANS = json_documents.decode_document(document(MADE)).records


@pytest.mark.parametrize(
    "written",
    [
        pytest.param(tempo(MADE), id="Tempo"),
        pytest.param(old_tempo(MADE), id="Tempo before 2022"),
        pytest.param(tempo_v2(MADE), id="Tempo, version 2 of the API"),
        pytest.param({"trace": tempo(MADE)}, id="Tempo, version 2 with the first one's batches"),
        pytest.param({"batches": document(MADE)["resourceSpans"]}, id="Tempo's batches with hexadecimal ids"),
        pytest.param(jaeger_v3(MADE), id="Jaeger, version 3 of the API"),
        pytest.param({"resourceSpans": tempo(MADE)["batches"]}, id="OTLP as plain proto3 JSON"),
    ],
)
def test_otlp_json_is_recognized_under_every_top_level_key(written):
    assert json_documents.is_complete_document(written)
    assert json_documents.decode_document(written).records == SPANS
    assert len(SPANS) == 2


def test_jaeger_responses_and_traces_are_decoded_but_only_a_response_is_a_complete_document():
    answer = jaeger(MADE)
    (trace,) = answer["data"]
    for written in (answer, trace):
        assert [span.name for span in json_documents.decode_document(written).records] == ["a1", "a2"]
    assert json_documents.is_complete_document(answer)
    assert not json_documents.is_complete_document(trace)


def test_a_document_may_contain_spans_and_logs():
    both = {**document(logs_request("asked")), **document(MADE)}
    assert [record.name for record in json_documents.decode_document(both).records] == ["a1", "a2", "asked"]


@pytest.mark.parametrize("alphabet", [base64.b64encode, base64.urlsafe_b64encode])
def test_base64_ids_are_decoded_to_the_bytes_they_encode(alphabet):
    made = request("work")
    (span,) = spans_of(made)
    span.trace_id, span.span_id, span.parent_span_id = b"\xfb\xff" * 8, b"\xfb\xff" * 4, b"\xfb\xfe" * 4
    written = document(made)
    (plain,) = written["resourceSpans"][0]["scopeSpans"][0]["spans"]
    for field, value in (("traceId", span.trace_id), ("spanId", span.span_id), ("parentSpanId", span.parent_span_id)):
        plain[field] = alphabet(value).decode()
    (record,) = json_documents.decode_document(written).records
    assert (record.trace_id, record.span_id, record.parent_id) == ("fbff" * 8, "fbff" * 4, "fbfe" * 4)


@pytest.mark.parametrize("wrong", ["W47/95gDgQPSabYzgT/G", "W47/95gDgQPSabYzgT/GDA", "?" * 22 + "==", "abc"])
def test_a_span_whose_id_is_neither_hexadecimal_nor_base64_is_rejected(wrong):
    made = tempo(MADE)
    made["batches"][0]["scopeSpans"][0]["spans"][0]["traceId"] = wrong
    batch = json_documents.decode_document(made)
    assert [span.name for span in batch.records] == ["a2"]
    assert batch.rejected == 1


def test_base64_ids_of_logs_are_decoded():
    log = {"traceId": base64.b64encode(b"\x01" * 16).decode(), "timeUnixNano": START}
    batch = json_documents.decode_document({"resourceLogs": [{"scopeLogs": [{"logRecords": [log]}]}]})
    assert batch.records[0].trace_id == "01" * 16


@pytest.mark.parametrize(
    "written",
    [{}, {"resourceSpans": []}, {"resourceMetrics": [{"scopeMetrics": []}]}, {"batches": []}],
    ids=str,
)
def test_a_recognized_document_without_records_is_not_an_error(written):
    assert json_documents.decode_document(written).records == []


@pytest.mark.parametrize(
    "other",
    [
        None,
        [],
        5,
        {"name": "package", "version": 1},
        {"batches": [{"id": 1}]},
        {"batches": 3},
        {"trace": {"id": 1}},
        {"trace": []},
        {"result": {"rows": []}},
        {"data": [1]},
        {"spans": []},
    ],
    ids=str,
)
def test_documents_of_other_kinds_are_not_recognized(other):
    assert json_documents.decode_document(other) is None
    assert not json_documents.is_complete_document(other)


def test_a_recognized_document_with_an_invalid_structure_is_refused():
    with pytest.raises(DecodeError, match="scopeSpans is not a list"):
        json_documents.decode_document({"batches": [{"scopeSpans": "x"}]})
