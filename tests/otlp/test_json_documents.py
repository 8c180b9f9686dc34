"""JSON documents of every kind, recognized by their structure."""

from __future__ import annotations

import base64
import json
import subprocess
import sys

import pydantic_core  # noqa: F401 - `parse_object` uses it for a small document only if it is imported
import pytest
from hypothesis import given
from hypothesis import strategies as st

from goldspan.otlp import json_documents
from goldspan.otlp.decode_results import DecodeError
from goldspan.otlp.json_fields import parse_json, parse_object
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


def parsed(text):
    """What `parse_json` returns for a text that consists of one object, with the types of numbers; else `None`."""
    try:
        value, end = parse_json(text)
    except ValueError:
        return None
    return repr(value) if end == len(text.rstrip("\r")) and isinstance(value, dict) else None


TOKENS = [
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    '"',
    '"a":',
    "\\",
    "\\ud83d",
    "\\ude00",
    "\\u0000",
    "1",
    "-0",
    "0.1",
    "e400",
    "NaN",
]
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=10,
)


@given(st.dictionaries(st.text(), json_values), st.booleans(), st.sampled_from([None, 1]))
def test_parse_object_returns_what_parse_json_returns(value, ascii_only, indent):
    text = json.dumps(value, ensure_ascii=ascii_only, indent=indent)
    try:
        fast = parse_object(text.encode())
    except UnicodeEncodeError:  # a lone surrogate
        return
    assert repr(fast) == parsed(text) or (fast is None and "\\ud" in text)


@given(st.lists(st.sampled_from(TOKENS) | st.text(max_size=2), max_size=8).map("".join))
def test_parse_object_returns_none_for_everything_that_parse_json_must_explain_or_repair(inner):
    text = "{" + inner.encode("utf-8", "replace").decode() + "}"
    fast = parse_object(text.encode())
    assert fast is None or repr(fast) == parsed(text)


@pytest.mark.parametrize(
    "text",
    [
        '{"a": 18446744073709551616, "b": -9223372036854775809, "c": ' + "9" * 4300 + "}",
        '{"a": 1e400, "b": -1e400, "c": -0, "d": -0.0, "e": 9007199254740993.0, "f": 4.9e-324, "g": 1E+2}',
        '{"a": NaN, "b": Infinity, "c": -Infinity}',
        '{"a": 1, "b": 2, "a": 3}',
        '{"a": "\\ud83d\\ude00 \\u0000 \\/ \\" \u2028 \x7f"}\r',
        '{"": {"": []}}',
    ],
    ids=lambda text: text[:12],
)
def test_parse_object_reads_unusual_json_as_parse_json_does(text):
    assert repr(parse_object(text.encode())) == parsed(text) is not None


@pytest.mark.parametrize(
    "text",
    [
        b'{"a": "\\ud83d"}',
        b'{"a": "\xff"}',
        b'{"a": "\0"}',
        b'{"a": ' + b"[" * 500 + b"]" * 500 + b"}",
        b'{"a": ' + b"9" * 5000 + b"}",
        b'{"a": 1}{"a": 2}',
        b'{"a": 1},',
        b'[{"a": 1}]',
        b"",
    ],
    ids=lambda text: str(text[:12]),
)
def test_parse_object_leaves_other_text_to_parse_json(text):
    assert parse_object(text) is None


def test_a_small_document_does_not_import_pydantic_core_and_a_large_one_does():
    program = (
        "import sys; from goldspan.otlp.json_fields import parse_object; "
        "print(parse_object(b'{}'), 'pydantic_core' in sys.modules); "
        "large = b'{\"a\": \"' + b'x' * 100_000 + b'\"}'; "
        "print(parse_object(large) is not None, 'pydantic_core' in sys.modules, parse_object(b'{}'))"
    )
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert done.stdout.split("\n")[:2] == ["None False", "True True {}"]
