"""Spans decoded from OTLP/JSON: equal to the spans from protobuf."""

from __future__ import annotations

import base64
import json
import math

import pytest
from google.protobuf.json_format import MessageToDict
from hypothesis import example, given
from hypothesis import strategies as st

from goldspan.otlp import otlp_json, otlp_protobuf
from goldspan.otlp.decode_results import DecodeError
from goldspan.otlp.json_fields import parse_json
from goldspan.otlp.otlp_json import decode_traces
from otlp.payloads import START, document, request
from otlp.strategies import requests


@given(requests(), st.booleans())
def test_json_and_protobuf_decode_to_equal_spans(made, enum_names):
    text = json.dumps(document(made, enum_names=enum_names))
    from_json = decode_traces(parse_json(text)[0])
    from_protobuf = otlp_protobuf.decode_traces(made.SerializeToString())
    assert from_json == from_protobuf


@given(requests())
def test_snake_case_field_names_are_ignored_as_unknown_fields(made):
    assert decode_traces(MessageToDict(made, preserving_proto_field_name=True)).spans == []


def one(**fields):
    """The record of a span written in JSON with these fields."""
    decoded = decode_traces(written(**fields))
    assert decoded.rejected == 0, decoded.reason
    return decoded.spans[0]


def written(**fields):
    span = {"traceId": "5b8efff798038103d269b633813fc60c", "spanId": "eee19b7ec3c1b174", **fields}
    return {"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}


def test_instrumentationlibrary_names_the_scope_as_before_2022():
    made = written()["resourceSpans"][0]["scopeSpans"]
    made[0]["instrumentationLibrary"] = {"name": "shop.tracer"}
    (span,) = decode_traces({"resourceSpans": [{"instrumentationLibrarySpans": made}]}).spans
    assert span.scope == "shop.tracer"


def test_uppercase_ids_are_decoded_to_lowercase():
    span = one(traceId="5B8EFFF798038103D269B633813FC60C", spanId="EEE19B7EC3C1B174", parentSpanId="EEE19B7EC3C1B173")
    assert span.trace_id == "5b8efff798038103d269b633813fc60c"
    assert (span.span_id, span.parent_id) == ("eee19b7ec3c1b174", "eee19b7ec3c1b173")


@pytest.mark.parametrize("start", [START + 1, str(START + 1)])
def test_integers_are_exact_in_text_and_in_numbers(start):
    value = 9007199254740993 if isinstance(start, int) else "9007199254740993"
    span = one(startTimeUnixNano=start, attributes=[{"key": "n", "value": {"intValue": value}}])
    assert span.start_ns == START + 1
    assert span.attributes == {"n": 9007199254740993}


def test_unknown_fields_and_nulls_are_ignored_at_every_level():
    decoded = decode_traces(
        {
            "new": 1,
            "resourceSpans": [
                None,
                {"resource": None, "scopeSpans": None},
                {
                    "resource": {"attributes": None, "new": {}},
                    "scopeSpans": [
                        {
                            "scope": None,
                            "spans": [
                                {
                                    **written()["resourceSpans"][0]["scopeSpans"][0]["spans"][0],
                                    **dict.fromkeys(
                                        ["parentSpanId", "name", "kind", "startTimeUnixNano", "status", "events"]
                                    ),
                                    "attributes": [
                                        None,
                                        {"key": "a", "value": None},
                                        {"key": "b", "value": {"stringValue": None, "new": 2}},
                                        {"key": None, "value": {"new": 3, "intValue": 4}},
                                        {"key": "c"},
                                    ],
                                }
                            ],
                        }
                    ],
                },
            ],
        }
    )
    assert (len(decoded.spans), decoded.rejected) == (1, 0)
    assert decoded.spans[0].attributes == {"a": None, "b": None, "": 4, "c": None}


@pytest.mark.parametrize(
    ("value", "read"),
    [
        pytest.param({"doubleValue": "Infinity"}, math.inf, id="infinity"),
        pytest.param({"doubleValue": "-Infinity"}, -math.inf, id="minus infinity"),
        pytest.param({"doubleValue": 2}, 2.0, id="a whole double"),
        pytest.param({"doubleValue": "0.5"}, 0.5, id="a double as text"),
        pytest.param({"intValue": 3.0}, 3, id="an integer with a point"),
        pytest.param({"bytesValue": base64.urlsafe_b64encode(b"\xfb\xff").decode().rstrip("=")}, b"\xfb\xff", id="url"),
        pytest.param({"bytesValue": "+/8="}, b"\xfb\xff", id="base64"),
        pytest.param({"bytesValue": "w7w="}, "ü", id="text in base64"),
        pytest.param({"arrayValue": {}}, [], id="empty list"),
        pytest.param({"kvlistValue": {"values": [{"key": "a", "value": {"boolValue": True}}]}}, {"a": True}, id="kv"),
    ],
)
def test_an_attribute_value_is_decoded_to_its_plain_value(value, read):
    assert one(attributes=[{"key": "key", "value": value}]).attributes == {"key": read}


def test_nan_is_decoded_to_a_float():
    assert math.isnan(one(attributes=[{"key": "x", "value": {"doubleValue": "NaN"}}]).attributes["x"])


@pytest.mark.parametrize(
    ("fields", "status", "kind"),
    [
        pytest.param({"status": {"code": 2}, "kind": 3}, "error", 3, id="numbers"),
        pytest.param({"status": {"code": "STATUS_CODE_ERROR"}, "kind": "SPAN_KIND_CLIENT"}, "error", 3, id="names"),
        pytest.param({"status": {"code": "1"}, "kind": "2"}, "ok", 2, id="numbers as text"),
        pytest.param({"status": {"code": "STATUS_CODE_NEW"}, "kind": "SPAN_KIND_NEW"}, "unset", 0, id="unknown names"),
        pytest.param({"status": {"code": 9}, "kind": 9}, "unset", 9, id="unknown numbers"),
    ],
)
def test_enums_are_accepted_as_numbers_or_names(fields, status, kind):
    span = one(**fields)
    assert (span.status, span.kind) == (status, kind)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        pytest.param({"traceId": "W47/95gDgQPSabYzgT/GDA=="}, "traceId is not hexadecimal", id="base64 trace id"),
        pytest.param({"traceId": None}, "the trace id is not 16 bytes", id="no trace id"),
        pytest.param({"traceId": 5}, "traceId is not text", id="trace id is a number"),
        pytest.param({"spanId": "00" * 8}, "the span id is not 8 bytes", id="span id of zeros"),
        pytest.param({"parentSpanId": "none"}, "parentSpanId is not hexadecimal", id="parent is a word"),
        pytest.param({"startTimeUnixNano": 2**64}, "startTimeUnixNano is not a whole number", id="time too big"),
        pytest.param({"startTimeUnixNano": "soon"}, "startTimeUnixNano is not a whole number", id="time is a word"),
        pytest.param({"startTimeUnixNano": 0.5}, "startTimeUnixNano is not a whole number", id="time is a fraction"),
        pytest.param({"endTimeUnixNano": True}, "endTimeUnixNano is not a whole number", id="time is a boolean"),
        pytest.param({"endTimeUnixNano": []}, "endTimeUnixNano is not a whole number", id="time is a list"),
        pytest.param({"status": "ok"}, "status is not a JSON object", id="status is a word"),
        pytest.param({"events": {"name": "x"}}, "events is not a list", id="events are no list"),
        pytest.param({"attributes": ["key"]}, "attributes is not a list of JSON objects", id="attribute is a word"),
    ],
)
def test_a_span_with_an_invalid_field_is_rejected_with_the_reason(fields, reason):
    decoded = decode_traces(written(**fields))
    assert (decoded.spans, decoded.rejected) == ([], 1)
    assert reason in decoded.reason


@pytest.mark.parametrize(
    "value",
    [
        {"stringValue": 5},
        {"boolValue": "true"},
        {"intValue": 2**63},
        {"intValue": "1.5"},
        {"doubleValue": "much"},
        {"doubleValue": True},
        {"doubleValue": 10**400},
        {"bytesValue": "§"},
        {"arrayValue": []},
    ],
    ids=str,
)
def test_a_value_of_the_wrong_type_rejects_its_span(value):
    assert decode_traces(written(attributes=[{"key": "key", "value": value}])).rejected == 1


def test_valid_spans_beside_a_rejected_span_are_kept():
    made = document(request("one", "two", "three"))
    made["resourceSpans"][0]["scopeSpans"][0]["spans"][1]["spanId"] = "?"
    decoded = decode_traces(made)
    assert [span.name for span in decoded.spans] == ["one", "three"]
    assert decoded.rejected == 1


@pytest.mark.parametrize(
    "made",
    [
        pytest.param(None, id="null"),
        pytest.param([], id="list"),
        pytest.param({"resourceSpans": {}}, id="resourceSpans is an object"),
        pytest.param({"resourceSpans": [{"scopeSpans": "x"}]}, id="scopeSpans is text"),
        pytest.param({"resourceSpans": [{"resource": 1}]}, id="resource is a number"),
        pytest.param({"resourceSpans": [{"scopeSpans": [{"scope": {"name": 1}}]}]}, id="scope name is a number"),
        pytest.param({"resourceSpans": [{"scopeSpans": [{"spans": [1]}]}]}, id="span is a number"),
    ],
)
def test_a_document_with_an_invalid_structure_is_refused(made):
    with pytest.raises(DecodeError):
        decode_traces(made)


@pytest.mark.parametrize("made", [{}, {"resourceSpans": []}, {"resourceSpans": None}, {"resourceSpans": [{}]}], ids=str)
def test_a_request_without_spans_is_not_an_error(made):
    assert decode_traces(made).spans == []


@pytest.mark.parametrize(("levels", "rejected"), [(100, 0), (101, 1)])
def test_an_integer_in_more_than_100_lists_of_attributes_is_nested_too_deeply(levels, rejected):
    value = {"intValue": "5"}
    for _ in range(levels):
        value = {"kvlistValue": {"values": [{"key": "k", "value": value}]}}
    assert decode_traces(written(attributes=[{"key": "key", "value": value}])).rejected == rejected


@pytest.mark.parametrize("kind", ["arrayValue", "kvlistValue"])
def test_a_value_nested_3000_levels_deep_rejects_only_its_span(kind):
    value = {"stringValue": "deep"}
    for _ in range(3000):
        value = {kind: {"values": [value if kind == "arrayValue" else {"key": "k", "value": value}]}}
    decoded = decode_traces(written(attributes=[{"key": "key", "value": value}]))
    assert decoded.rejected == 1
    assert "nested" in decoded.reason


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000, "[" + "9" * 5000 + "]", "{"], ids=len)
def test_hostile_text_raises_only_valueerror(text):
    with pytest.raises(ValueError, match=r"nested too deeply|digits|Expecting"):
        parse_json(text)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        pytest.param(r'"\ud83d\ude00"', "😀", id="a pair"),
        pytest.param(r'"\ud83d!"', "\ufffd!", id="first half alone"),
        pytest.param(r'"\uDE00\ud83d\ude00"', "\ufffd😀", id="second half before a pair"),
        pytest.param(r'"\\ud83d"', r"\ud83d", id="an escaped backslash"),
        pytest.param(r'"\\\ud83d"', "\\\ufffd", id="a backslash before half a pair"),
    ],
)
def test_a_lone_surrogate_in_any_json_text_is_replaced_so_that_the_text_can_be_encoded(text, value):
    parsed, end = parse_json("  " + text, 2)
    assert parsed == value
    assert end == 2 + len(text)
    parsed.encode()


def plain_attributes(parent):
    """What `decode_attributes` returns, computed without its fast path for text and integers."""
    return {
        otlp_json.text_field(pair, "key"): otlp_json._decode_value(otlp_json.object_field(pair, "value"), 0)
        for pair in otlp_json.objects_field(parent, "attributes")
    }


any_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3), lambda inner: st.lists(inner, max_size=2)
)
pairs = st.fixed_dictionaries(
    {},
    optional={
        "key": st.sampled_from(["a", "b"]) | any_json,
        "value": st.dictionaries(st.sampled_from(["stringValue", "boolValue", "intValue"]), any_json) | any_json,
    },
)


def outcome(decode, *arguments):
    try:
        return decode(*arguments)
    except DecodeError as error:
        return str(error)


@given(st.lists(pairs | st.none(), max_size=4) | any_json)
def test_decode_attributes_returns_or_raises_what_the_plain_decoder_does(written_pairs):
    parent = {"attributes": written_pairs}
    assert outcome(otlp_json.decode_attributes, parent) == outcome(plain_attributes, parent)


HEX_IDS = st.sampled_from(
    [
        "5b8efff798038103d269b633813fc60c",
        "EEE19B7EC3C1B174",
        "eee19b7ec3c1b174",
        "0" * 32,
        "0" * 16,
        "",
        "1 0",
        "é" * 16,
    ]
)
BASE64_IDS = st.binary(min_size=8, max_size=16).map(lambda value: base64.b64encode(value).decode())
WHOLE_NUMBERS = st.sampled_from([0, 5, "0", "5", " 5 ", "1_0", "-5", str(2**64 - 1), str(2**64), 2**64 - 1, 5.0, "x"])
EVENTS = st.lists(
    st.fixed_dictionaries({"name": st.just("retry")}, optional={"timeUnixNano": WHOLE_NUMBERS}), max_size=2
)
UNUSUAL_SPANS = st.fixed_dictionaries(
    {"traceId": st.just("5b8efff798038103d269b633813fc60c"), "spanId": st.just("eee19b7ec3c1b174")},
    optional={
        "parentSpanId": HEX_IDS | BASE64_IDS | any_json,
        "name": st.just("work") | any_json,
        "kind": st.sampled_from([0, 3, 6, -1, 2**31, "3", "SPAN_KIND_CLIENT", "other", True]) | any_json,
        "startTimeUnixNano": WHOLE_NUMBERS | any_json,
        "endTimeUnixNano": WHOLE_NUMBERS | any_json,
        "attributes": st.lists(pairs, max_size=2) | any_json,
        "status": st.fixed_dictionaries(
            {}, optional={"code": st.sampled_from([0, 1, 2, 3, "STATUS_CODE_ERROR"]) | any_json, "message": any_json}
        )
        | any_json,
        "events": EVENTS | any_json,
        "droppedAttributesCount": WHOLE_NUMBERS | any_json,
    },
)
USUAL_FIELDS = {
    "traceId": "5b8efff798038103d269b633813fc60c",
    "spanId": "eee19b7ec3c1b174",
    "name": "work",
    "kind": 1,
    "startTimeUnixNano": "5",
    "endTimeUnixNano": "6",
}


@given(
    UNUSUAL_SPANS | UNUSUAL_SPANS.map(lambda fields: {**USUAL_FIELDS, **fields}),
    st.fixed_dictionaries({}, optional=dict.fromkeys(("traceId", "spanId"), HEX_IDS | BASE64_IDS | any_json)),
    st.sampled_from([otlp_json.hex_id, otlp_json.hex_or_base64_id]),
)
@example(
    {**USUAL_FIELDS, "status": {"code": 2}, "droppedAttributesCount": 1, "parentSpanId": "0" * 16}, {}, otlp_json.hex_id
)
def test_decode_span_returns_or_raises_what_the_plain_decoder_does(fields, ids, read_id):
    span = {**fields, **ids}
    assert outcome(otlp_json.decode_span, span, "", {}, read_id) == outcome(
        otlp_json.decode_any_span, span, "", {}, read_id
    )


@given(requests())
def test_every_valid_span_of_an_exporter_is_decoded_in_the_usual_way(made):
    """So that the property above compares two decoders, not one with itself."""
    for resource_spans in document(made)["resourceSpans"]:
        for span in (each for scope in resource_spans.get("scopeSpans", ()) for each in scope.get("spans", ())):
            usual = otlp_json._decode_usual_span({**span, **USUAL_FIELDS}, "", {})
            assert usual == otlp_json.decode_any_span({**span, **USUAL_FIELDS})


@pytest.mark.parametrize(
    "escaped", [r"\ud83d\ude00", r"\uD83D\uDE00", r"\ud83d", r"\uD83D", r"\\ud83d", r"\ude00\ud83d"]
)
def test_a_lone_surrogate_is_replaced_and_a_surrogate_pair_is_kept(escaped):
    value, end = parse_json(f'{{"a": "{escaped}"}}')
    assert end == len(f'{{"a": "{escaped}"}}')
    assert value["a"] == json.loads(f'"{escaped}"').encode("utf-16", "surrogatepass").decode("utf-16", "replace")
