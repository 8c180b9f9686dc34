"""Files of length-prefixed messages."""

from __future__ import annotations

import gzip
import json

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from goldspan.errors import TraceFileError
from goldspan.otlp import read_records
from goldspan.otlp.wire_format import (
    read_big_endian,
    read_varint,
    split_messages,
    starts_with_big_endian_length,
    starts_with_varint_length,
)
from otlp import payloads
from otlp.payloads import document, line, logs_request, metrics_request, request

MADE = [request("a1", "a2", trace=1), request("b1", trace=2), logs_request("asked"), request("c1", trace=3)]
PARTS = [made.SerializeToString() for made in MADE]
NAMES = ["a1", "a2", "b1", "asked", "c1"]
FRAMINGS = pytest.mark.parametrize("framed", [payloads.big_endian, payloads.varint])


@pytest.fixture
def read(tmp_path):
    """The names of the records in a file with these contents, and the losses."""

    def read_file(data):
        path = tmp_path / "traces.binpb"
        path.write_bytes(data)
        losses = []
        found = [record.name for record in read_records([path], on_loss=losses.append)]
        return found, [f"{loss.where}: {loss.what}" for loss in losses]

    return read_file


@FRAMINGS
@pytest.mark.parametrize(
    "parts",
    [
        pytest.param(PARTS, id="traces and logs"),
        pytest.param([b"", *PARTS, b"", b""], id="empty messages between them"),
        pytest.param([PARTS[0], metrics_request().SerializeToString(), *PARTS[1:]], id="metrics between them"),
        pytest.param([b"\x0a\x00", *PARTS], id="a request of an empty resource first"),
    ],
)
def test_every_message_is_read_in_plain_and_in_gzip_files(read, framed, parts):
    assert read(framed(parts)) == (NAMES, [])
    assert read(gzip.compress(framed(parts))) == (NAMES, [])


@pytest.mark.parametrize("size", [*range(115, 135), 16_383, 20_000])
def test_messages_of_every_size_are_read_even_if_the_length_looks_like_json(read, size):
    """123 and 91 are the codes of the brackets that begin a JSON document."""
    name = "x" * (size - len(request("").SerializeToString()))
    for framed in (payloads.big_endian, payloads.varint):
        assert read(framed([request(name).SerializeToString(), PARTS[1]]))[0][1] == "b1"


@pytest.mark.parametrize(
    "packed",
    [
        pytest.param([zstandard.compress(part) for part in PARTS], id="packed protobuf"),
        pytest.param([zstandard.compress(line(made)) for made in MADE], id="packed JSON"),
        pytest.param([line(made) for made in MADE], id="JSON"),
        pytest.param([PARTS[0], zstandard.compress(PARTS[1]), *PARTS[2:]], id="packed or not"),
    ],
)
def test_messages_that_are_compressed_one_by_one_are_read(read, packed):
    assert read(payloads.big_endian(packed)) == (NAMES, [])


@FRAMINGS
def test_a_truncated_message_yields_its_complete_spans_and_a_loss_with_its_number(read, framed):
    data = framed([PARTS[1], PARTS[2], PARTS[0]])
    found, lost = read(data[:-5])
    assert found == ["b1", "asked", "a1"]
    assert lost == ["message 3: cut off, 5 bytes are missing"]


@pytest.mark.parametrize("size", [1, 2, 3])
def test_a_truncated_length_is_a_loss(read, size):
    found, lost = read(payloads.big_endian(PARTS) + b"\0\0\1"[:size])
    assert found == NAMES
    assert [each.split(":")[0] for each in lost] == ["message 5"]


@FRAMINGS
def test_a_broken_message_does_not_affect_the_other_messages(read, framed):
    found, lost = read(framed([PARTS[0], b"\xff" * 50, PARTS[1]]))
    assert found == ["a1", "a2", "b1"]
    assert lost == ["message 2: neither JSON nor OTLP in protobuf"]


@FRAMINGS
def test_rejected_records_are_reported_with_the_number_of_their_message(read, framed):
    damaged = request("good", "bad")
    payloads.spans_of(damaged)[1].trace_id = b"short"
    found, lost = read(framed([PARTS[1], damaged.SerializeToString()]))
    assert found == ["b1", "good"]
    assert lost == ["message 2: 1 record rejected: the trace id is not 16 bytes, or all of them are zero"]


def test_a_file_with_one_truncated_message_and_no_complete_record_raises(read):
    with pytest.raises(TraceFileError, match="message 1: cut off, 130 bytes are missing"):
        read(payloads.big_endian([PARTS[0]])[:-130])


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(b'{\n\n\n\n"resourceSpans": []}', id="line feeds"),
        pytest.param(b'{\n \n{"resourceSpans":[]}', id="brackets"),
        pytest.param(b"[\n\n{}]", id="a list"),
        pytest.param(b'key {"resourceSpans": []}', id="text before a bracket"),
        pytest.param(bytes(100), id="zeros"),
        pytest.param(bytes(4) + line(MADE[0]), id="zeros before a line"),
        pytest.param(b"", id="nothing"),
    ],
)
def test_text_is_not_read_as_a_length(text):
    assert not starts_with_big_endian_length(text)
    assert not starts_with_varint_length(text)


@given(st.lists(st.sampled_from(["a", "b" * 200, ""]), max_size=3), st.integers(0, 2**63))
def test_unframed_protobuf_is_not_read_as_a_length(names, trace):
    made = request(*names, trace=trace, service="s" * (trace % 20))
    for data in (made.SerializeToString(), b"\x0a\x00" + made.SerializeToString()):
        assert not starts_with_big_endian_length(data)
        assert not starts_with_varint_length(data)


@given(
    st.lists(st.binary(max_size=300), max_size=5),
    st.sampled_from([(payloads.big_endian, read_big_endian), (payloads.varint, read_varint)]),
    st.data(),
)
def test_messages_are_split_equally_however_the_data_is_divided_and_wherever_it_ends(parts, framing, data):
    framed, length_at = framing
    written = framed(parts)
    size = data.draw(st.integers(0, len(written)))
    cuts = sorted(data.draw(st.lists(st.integers(0, size), max_size=4)))
    pieces = [written[start:end] for start, end in zip([0, *cuts], [*cuts, size], strict=True)]
    found = list(split_messages(pieces, length_at))
    whole = [message for message, missing in found if not missing]
    assert whole == parts[: len(whole)]
    if size == len(written):
        assert len(whole) == len(parts)
    else:
        assert all(missing == 0 for _, missing in found[:-1])
        assert b"".join(message for message, _ in found) in b"".join(parts)


def test_an_unterminated_length_is_a_truncated_message():
    ((message, missing),) = split_messages([b"\x80" * 5000] * 20, read_varint)
    assert message == b""
    assert missing > 0


def test_a_length_of_gigabytes_is_a_truncated_message_and_the_data_after_it_is_read(read):
    whole = payloads.big_endian([PARTS[0]])
    found, lost = read(whole + (2**32 - 1).to_bytes(4, "big") + PARTS[1])
    assert found == ["a1", "a2", "b1"]
    assert lost[0].startswith("message 2: cut off")


def test_truncated_json_in_a_message_yields_its_complete_spans_and_a_loss(read):
    half = json.dumps(document(MADE[0])).encode()[:-30]
    found, lost = read(payloads.big_endian([line(MADE[1]), half]))
    assert found[0] == "b1"
    assert lost[0].startswith("message 2: ")
