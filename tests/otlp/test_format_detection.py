"""Every format decodes to the spans that were encoded, and damage costs only a loss or an error."""

from __future__ import annotations

import gzip
import json
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goldspan.errors import GoldspanError
from goldspan.otlp import json_documents, otlp_protobuf, read_records
from goldspan.otlp.decode_results import DecodeError
from otlp import payloads
from otlp.payloads import document, line, logs_request, request
from otlp.strategies import requests
from support.laws import examples

FORMATS = {
    "protobuf": lambda made: made.SerializeToString(),
    "length in four bytes": lambda made: payloads.big_endian([made.SerializeToString()]),
    "length as a varint": lambda made: payloads.varint([made.SerializeToString()]),
    "OTLP/JSON": line,
    "Tempo": lambda made: json.dumps(payloads.tempo(made), indent=2).encode(),
    "Tempo before 2022": lambda made: json.dumps(payloads.old_tempo(made)).encode(),
    "Tempo v2": lambda made: json.dumps(payloads.tempo_v2(made)).encode(),
    "Jaeger": lambda made: json.dumps(payloads.jaeger(made)).encode(),
    "Jaeger v3": lambda made: json.dumps(payloads.jaeger_v3(made), ensure_ascii=False).encode(),
}
MADE = request("a1", "a2", "a3")
FIXTURES = Path(__file__).parents[1] / "fixtures" / "otlp"
SDK_LINES = (FIXTURES / "sdk-js2-whole.jsonl").read_bytes()
SAMPLES = {
    **{name: written(MADE) for name, written in FORMATS.items()},
    "logs": line(logs_request("asked", "told")),
    "logs in protobuf": logs_request("asked", "told").SerializeToString(),
    "lines": line(MADE) + line(logs_request("asked")) + line(MADE),
    "spans of an SDK": SDK_LINES,
    "spans of an SDK over many lines": json.dumps(json.loads(SDK_LINES.splitlines()[0]), indent=4).encode() * 2,
    "gzip": gzip.compress(line(MADE)),
}
DOCUMENTS = [
    document(MADE),
    document(logs_request("asked")),
    payloads.old_tempo(MADE),
    payloads.tempo_v2(MADE),
    payloads.jaeger(MADE),
    payloads.jaeger(MADE)["data"][0],
    *map(json.loads, SDK_LINES.splitlines()),
    *map(json.loads, (FIXTURES / "sdk-js2-logs.jsonl").read_bytes().splitlines()),
]
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


def read(path, data):
    """The records of a file with these contents; of something else, all that came before the error."""
    path.write_bytes(data)
    records = []
    with suppress(GoldspanError):
        records.extend(read_records([path], on_loss=lambda loss: None))
    return records


@pytest.mark.parametrize("name", FORMATS)
@examples(0.4)
@given(made=requests(plain=True))
def test_every_format_decodes_to_the_same_spans(tmp_path_factory, name, made):
    path = tmp_path_factory.getbasetemp() / "same"
    assert read(path, FORMATS[name](made)) == otlp_protobuf.decode_traces(made.SerializeToString()).spans


@pytest.mark.parametrize("name", SAMPLES)
@examples(0.4)
@given(data=st.data())
def test_a_truncated_file_yields_a_prefix_of_its_records(tmp_path_factory, name, data):
    path = tmp_path_factory.getbasetemp() / "cut"
    sample = SAMPLES[name]
    whole = [(record.name, record.trace_id, record.span_id) for record in read(path, sample)]
    size = data.draw(st.integers(0, len(sample)))
    found = [(record.name, record.trace_id, record.span_id) for record in read(path, sample[:size])]
    assert found == whole[: len(found)]


@pytest.mark.parametrize("name", SAMPLES)
@examples(0.4)
@given(data=st.data())
def test_a_damaged_file_causes_only_losses_or_an_error_that_names_the_file(tmp_path_factory, name, data):
    sample = SAMPLES[name]
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(sample)))
        gone = data.draw(st.integers(0, 4) | st.integers(0, len(sample)))
        sample = sample[:at] + data.draw(st.binary(max_size=6)) + sample[at + gone :]
    read(tmp_path_factory.getbasetemp() / "damaged", sample)


@given(st.binary(max_size=200))
def test_random_bytes_cause_only_a_trace_file_error(tmp_path_factory, noise):
    read(tmp_path_factory.getbasetemp() / "noise", noise)


@given(st.sampled_from(DOCUMENTS), st.data())
def test_a_document_with_arbitrary_values_in_any_place_is_decoded_or_refused(sample, data):
    made = json.loads(json.dumps(sample))
    for _ in range(data.draw(st.integers(1, 3))):
        part, key = data.draw(st.sampled_from(list(places(made))))
        part[key] = data.draw(json_values)
    try:
        batch = json_documents.decode_document(made)
    except DecodeError:
        return
    assert batch is None or len(batch.records) + batch.rejected <= 4


def places(part):
    """Every container and key in a document at which a value is stored."""
    keys = part if isinstance(part, dict) else range(len(part)) if isinstance(part, list) else ()
    for key in keys:
        yield part, key
        yield from places(part[key])
