"""Tests of splitting requests by trace."""

from __future__ import annotations

import gzip
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from google.protobuf.message import DecodeError as ProtobufError
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import ScopeSpans, Span
from payloads import SPANS, payload_a

from goldspan.gateway.resource_limits import partition_of
from goldspan.gateway.scoring import trace_splitting
from goldspan.gateway.scoring.trace_splitting import split_logs, split_traces
from goldspan.otlp.decode_results import DecodeError, validated_ids
from goldspan.otlp.otlp_protobuf import decode_logs, decode_traces, trace_message
from otlp.payloads import as_varint, logs_request, request
from otlp.strategies import logs_requests

CAPTURES = sorted((Path(__file__).parents[1] / "fixtures" / "captures").glob("*.pb.gz"))
TRACES = [bytes([number]) * 16 for number in (1, 2, 3)]
SPAN, PARENT = b"spanspan", b"parent.."

Envelopes = trace_message("TracesData", raw_fields=["spans"])


def field(number: int, content: bytes, *, padding: int = 0) -> bytes:
    """Returns a field with a length that is encoded in `padding` more bytes than needed, as some serialisers do."""
    length = as_varint(len(content))
    if padding:
        length = bytes(byte | 0x80 for byte in length) + b"\x80" * (padding - 1) + b"\0"
    return as_varint(number << 3 | 2) + length + content


def around(*spans: bytes) -> bytes:
    """Returns a request with these spans, each with tag and length."""
    return field(1, field(1, b"") + field(2, field(1, b"") + b"".join(spans)))


def span_of(trace: int = 0, *more: bytes, parent: bytes = PARENT, padding: int = 0) -> bytes:
    """Returns a span with tag and length, and its ids where serialisers write them."""
    ids = [field(1, TRACES[trace]), field(2, SPAN)] + [field(4, parent)] * bool(parent)
    return field(2, b"".join((*ids, *more)), padding=padding)


NAME = field(5, b"a name that makes the span so long that its length takes two bytes" * 2)

unknown_fields = st.sampled_from(
    [
        b"",
        as_varint(777 << 3) + as_varint(3),
        as_varint(777 << 3 | 1) + b"eight by",
        as_varint(777 << 3 | 5) + b"four",
        field(777, b"any"),
        as_varint(777 << 3 | 3) + field(1, b"in a group") + as_varint(777 << 3 | 4),
        as_varint(2 << 3) + b"\1",  # a known field number with a wrong type
    ]
)
trace_ids = st.sampled_from([*TRACES, TRACES[0], bytes(16), b"short", b"a trace id too long"])
parents = st.sampled_from([None, b"", bytes(8), PARENT, PARENT, PARENT, b"odd"])


@st.composite
def spans(draw):
    """Generates spans in every valid encoding, of which serialisers use few."""
    ids = [field(1, draw(trace_ids)), field(2, draw(st.sampled_from([SPAN] * 5 + [bytes(8), b"odd"])))]
    parent = draw(parents)
    parts = [*ids, draw(st.sampled_from([b"", b"", field(3, b"key=value")]))]
    parts.append(b"" if parent is None else field(4, parent))
    parts.append(draw(st.sampled_from([b"", field(5, b"short"), NAME, field(5, b"x" * 17_000)])))
    parts.append(draw(unknown_fields))
    if draw(st.integers(0, 4)) == 0:
        parts = draw(st.permutations(parts))
    if draw(st.integers(0, 9)) == 0:
        parts.append(b"\xff")
    return field(2, b"".join(parts), padding=draw(st.sampled_from([0, 0, 0, 1, 2])))


@st.composite
def messages(draw, inner, most):
    """Generates a scope or resource with its content, a schema and unknown fields, in any order."""
    parts = [
        draw(st.sampled_from([b"", field(1, b""), field(1, field(778, b"of itself"))])),
        *draw(st.lists(inner, max_size=most)),
        draw(st.sampled_from([b"", field(3, b"https://example.com/schema")])),
        draw(unknown_fields.filter(lambda part: part != as_varint(2 << 3) + b"\1")),
    ]
    return b"".join(draw(st.permutations(parts)) if draw(st.booleans()) else parts)


scopes = messages(spans(), 5).map(lambda content: field(2, content))
resources = messages(scopes, 2).map(lambda content: field(1, content))
requests = st.lists(resources, max_size=2).map(b"".join)


def spans_with_context(body: bytes) -> Counter[tuple[bytes, bytes, bytes]]:
    """Returns all spans of a request with their resource and scope."""
    found: Counter[tuple[bytes, bytes, bytes]] = Counter()
    for resource_spans in Envelopes.FromString(body).resource_spans:
        inner = list(resource_spans.scope_spans)
        for scope_spans in inner:
            held = list(scope_spans.spans)
            scope_spans.ClearField("spans")
            resource = type(resource_spans)()
            resource.CopyFrom(resource_spans)
            resource.ClearField("scope_spans")
            outline = resource.SerializeToString(deterministic=True), scope_spans.SerializeToString(deterministic=True)
            found.update((*outline, span) for span in held)
    return found


def ids_of(span: bytes) -> tuple[bytes, bytes] | None:
    """Returns the trace and parent ids according to another parser; `None` for an invalid span."""
    try:
        parsed = Span.FromString(span)
        validated_ids(parsed.trace_id, parsed.span_id)
    except (ProtobufError, DecodeError):
        return None
    return parsed.trace_id, parsed.parent_span_id


def is_valid_in_front(span: bytes) -> bool:
    """Whether the only error is at the end of a span, which the splitter does not read."""
    return span.endswith(b"\xff") and ids_of(span[:-1]) is not None


@given(requests)
def test_every_valid_span_is_in_the_piece_of_its_trace_with_its_resource_and_scope(body: bytes) -> None:
    pieces = split_traces(body)

    before = {entry: count for entry, count in spans_with_context(body).items() if not is_valid_in_front(entry[2])}
    wanted = {entry: count for entry, count in before.items() if ids_of(entry[2])}
    got: Counter[tuple[bytes, bytes, bytes]] = Counter()
    for trace_id, piece in pieces.items():
        there = spans_with_context(piece.body)
        sound = {entry: ids for entry in there if (ids := ids_of(entry[2])) is not None}
        assert {trace for trace, _ in sound.values()} <= {trace_id}
        if len(sound) == len(there):
            assert piece.span_count == sum(there.values())
            assert piece.has_root == any(not any(parent) for _, parent in sound.values())
        got += Counter({entry: there[entry] for entry in sound})
    assert got == Counter(wanted)


@given(requests)
def test_the_partitions_of_a_request_are_those_of_its_pieces(body: bytes) -> None:
    mask = 0
    for trace_id in split_traces(body):
        mask |= 1 << partition_of(trace_id)
    assert trace_splitting.partition_mask(body) & mask == mask
    if not any(is_valid_in_front(span) for *_, span in spans_with_context(body)):
        assert trace_splitting.partition_mask(body) == mask


@given(requests)
def test_concatenated_pieces_are_a_request_with_the_same_traces(body: bytes) -> None:
    together = b"".join(piece.body for piece in split_traces(body).values())
    assert set(split_traces(together)) == set(split_traces(body))


@pytest.mark.parametrize("path", CAPTURES, ids=lambda path: path.name)
def test_the_pieces_of_a_capture_contain_the_same_spans(path: Path) -> None:
    body = gzip.decompress(path.read_bytes())
    wanted = decode_traces(body).spans
    got = [span for piece in split_traces(body).values() for span in decode_traces(piece.body).spans]

    def by_id(span):
        return span.trace_id, span.span_id

    assert sorted(got, key=by_id) == sorted(wanted, key=by_id)


def test_a_request_of_many_traces_is_split_into_its_traces() -> None:
    pieces = split_traces(payload_a())
    assert len(pieces) == 16
    assert sum(piece.span_count for piece in pieces.values()) == SPANS
    assert all(piece.has_root for piece in pieces.values())
    for trace_id, piece in pieces.items():
        assert {span.trace_id for span in decode_traces(piece.body).spans} == {trace_id.hex()}


def test_a_request_with_one_trace_is_not_copied() -> None:
    body = request("one", "two").SerializeToString()
    (piece,) = split_traces(body).values()
    assert piece.body is body
    assert (piece.span_count, piece.has_root) == (2, True)


def test_invalid_spans_are_not_in_the_only_piece() -> None:
    body = around(span_of(0, NAME), field(2, field(1, bytes(16)) + field(2, SPAN)))
    (piece,) = split_traces(body).values()
    assert piece.span_count == 1
    assert piece.body == around(span_of(0, NAME))


@pytest.mark.parametrize(
    ("span", "rooted"),
    [
        pytest.param(span_of(0, NAME), False, id="a parent"),
        pytest.param(span_of(0, NAME, parent=b""), True, id="no parent"),
        pytest.param(span_of(0, NAME, parent=bytes(8)), True, id="zeros for no parent"),
        pytest.param(span_of(0, field(4, b""), NAME, parent=b""), True, id="a parent without bytes, as collectors do"),
        pytest.param(span_of(0, field(3, b"a=b"), field(4, PARENT), NAME, parent=b""), False, id="behind a state"),
        pytest.param(span_of(0, NAME, field(4, PARENT), parent=b""), False, id="a parent out of order"),
        pytest.param(span_of(0, NAME, padding=2), False, id="a length in four bytes, as from .NET"),
        pytest.param(span_of(0, NAME, padding=1), False, id="a length in three bytes"),
        pytest.param(span_of(), False, id="a length in one byte"),
        pytest.param(span_of(padding=1), False, id="a short length in two bytes"),
        pytest.param(span_of(0, field(5, b"x" * 20_000)), False, id="very long"),
    ],
)
def test_the_parent_of_a_span_is_detected_in_every_encoding(span: bytes, rooted: bool) -> None:
    pieces = split_traces(around(span, span_of(1, NAME)))
    assert pieces[TRACES[0]].has_root is rooted
    assert pieces[TRACES[0]].body == around(span)
    assert pieces[TRACES[1]].body == around(span_of(1, NAME))


@pytest.mark.parametrize("read", [split_traces, trace_splitting.partition_mask])
def test_a_span_with_an_excessive_length_is_a_decode_error(read: Callable[[bytes], object]) -> None:
    whole = Span(trace_id=TRACES[0], span_id=SPAN, parent_span_id=PARENT, name="n" * 200)
    cut = ScopeSpans(spans=[whole]).SerializeToString()[:-1]
    with pytest.raises(DecodeError):
        read(field(1, field(2, cut)))


@pytest.mark.parametrize("read", [split_traces, split_logs, trace_splitting.partition_mask])
@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"\x0a", id="a tag only"),
        pytest.param(b"\x0a\x05", id="a length and nothing"),
        pytest.param(b"\xff" * 12, id="a number without an end"),
        pytest.param(b"\x02\x00", id="field 0"),
        pytest.param(b"\x0c", id="the end of no group"),
        pytest.param(b"\x0b", id="a group without an end"),
        pytest.param(b"\x0b" * 200 + b"\x0c" * 200, id="groups in groups"),
        pytest.param(b"\x0f", id="a type that does not exist"),
        pytest.param(as_varint(2**32 | 2) + b"\0", id="a number too large for a field"),
        pytest.param(b'{"resourceSpans": []}', id="JSON"),
    ],
)
def test_invalid_protobuf_is_a_decode_error(body: bytes, read: Callable[[bytes], object]) -> None:
    with pytest.raises(DecodeError):
        read(body)


@given(requests | st.binary(max_size=60), st.integers(0, 300))
def test_truncated_or_random_bytes_are_split_or_refused(body: bytes, cut: int) -> None:
    for read in (split_traces, split_logs, trace_splitting.partition_mask):
        for part in (body[cut:], body[: max(len(body) - cut, 0)]):
            with suppress(DecodeError):
                read(part)


@given(logs_requests())
def test_every_valid_log_record_is_in_the_piece_of_its_trace(made: ExportLogsServiceRequest) -> None:
    body = made.SerializeToString()
    pieces = split_logs(body)

    got = []
    for trace_id, piece in pieces.items():
        logs = decode_logs(piece.body).records
        assert {log.trace_id for log in logs} == {trace_id.hex() or None}
        assert piece.span_count == len(logs) or len(pieces) == 1
        assert not piece.has_root
        got += logs
    assert sorted(map(repr, got)) == sorted(map(repr, decode_logs(body).records))


def test_a_log_request_with_one_trace_is_not_copied() -> None:
    body = logs_request("one", "two").SerializeToString()
    (piece,) = split_logs(body).values()
    assert piece.body is body
