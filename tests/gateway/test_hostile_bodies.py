"""Tests with arbitrary bodies: each is accepted or refused, within the memory limit of a request."""

from __future__ import annotations

import gzip
import json
import os
import random
import resource
import subprocess
import sys
import zlib
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from goldspan.gateway.decoding.decompression import Decompressor
from goldspan.gateway.decoding.export_response import RequestRefused, grpc_response, http_response
from goldspan.gateway.decoding.request_validation import validate_request
from goldspan.gateway.resource_limits import LIMITS, MIB, ResourceLimits
from otlp.payloads import add, document, logs_request, metrics_request, request, spans_of
from otlp.strategies import logs_requests, requests
from support.laws import examples

BODIES = int(1_000_000 * float(os.environ.get("STRESS", "1")))
"""Number of bodies in the long test; `STRESS=0.01` shortens it."""
STRICT = ResourceLimits(
    max_body_bytes=20_000, max_inflated_bytes=40_000, max_spans=20, max_attributes=20, max_value_bytes=250,
    max_values=100,
)  # fmt: skip
"""Limits that small bodies exceed."""
PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "identity": bytes,
    "gzip": lambda data: gzip.compress(data, 1),
    "deflate": lambda data: zlib.compress(data, 1),
    "zstd": lambda data: zstandard.ZstdCompressor().compress(data),
}
SIGNALS, MEDIA = ("traces", "logs", "metrics"), ("protobuf", "json")
NAMES = {limit.name for limit in LIMITS}


def outcome(signal: Any, media: Any, encoding: str | None, body: bytes, limits: ResourceLimits) -> int:
    """Returns the status of the response to a request. Only `RequestRefused` may be raised."""
    try:
        inflater = Decompressor(encoding, limits)
        pieces = [inflated for at in range(0, len(body), 4096) for inflated in inflater.feed(body[at : at + 4096])]
        whole = b"".join([*pieces, *inflater.finish()])
        reception = validate_request(signal, media, whole, limits, partitioned=True)
    except RequestRefused as refused:
        answer = refused.response
        assert answer.http_status in (400, 413, 415)
        assert answer.limit is None or answer.limit in NAMES
        assert answer.retry_after is None
        assert len(answer.message) < 1000
        http_response(answer, signal, media)
        grpc_response(answer, signal)
        return answer.http_status
    assert bool(reception.body) == bool(reception.item_count)
    assert reception.item_count or not reception.rejected_count
    if reception.rejected_count or reception.body != whole:  # a rewritten body is valid without changes
        again = (
            validate_request(signal, media, reception.body, limits, partitioned=True)
            if reception.item_count
            else reception
        )
        assert again.item_count == reception.item_count
        assert again.body == reception.body
        assert reception.item_count == 0 or again.rejected_count == 0
    return 200


signals, media = st.sampled_from(SIGNALS), st.sampled_from(MEDIA)
encodings = st.sampled_from(list(PACKERS))
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=10,
)


@given(signals, media, st.sampled_from([None, "br", *PACKERS]), st.binary(max_size=300))
def test_random_bytes_are_accepted_or_refused(signal, medium, encoding, body):
    outcome(signal, medium, encoding, body, STRICT)


@given(signals, media, encodings, st.binary(max_size=300))
def test_compressed_random_bytes_are_accepted_or_refused(signal, medium, encoding, body):
    outcome(signal, medium, encoding, PACKERS[encoding](body), STRICT)


@given(signals, json_values, st.data())
def test_a_document_with_any_value_in_any_place_is_accepted_or_refused(signal, value, data):
    made = document({"traces": request("a"), "logs": logs_request("a"), "metrics": metrics_request()}[signal])
    part: Any = made
    while isinstance(part, dict | list) and part:
        key = data.draw(st.sampled_from(sorted(part) if isinstance(part, dict) else range(len(part))))
        if data.draw(st.booleans()):
            part[key] = value
            break
        part = part[key]
    outcome(signal, "json", None, json.dumps(made).encode(), ResourceLimits())


@given(requests() | logs_requests(), signals, encodings, st.data())
def test_a_corrupted_request_is_accepted_or_refused(made, signal, encoding, data):
    body = bytearray(made.SerializeToString())
    for _ in range(data.draw(st.integers(0, 4))):
        if body:
            at = data.draw(st.integers(0, len(body) - 1))
            body[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
    assert outcome(signal, "protobuf", encoding, PACKERS[encoding](bytes(body)), ResourceLimits()) in (200, 400)


@given(st.integers(0, 5000), st.sampled_from(['{"a":', "[", '{"resourceSpans":[', '{"arrayValue":{"values":[']))
@examples(0.3)
def test_json_of_any_depth_is_accepted_or_refused(depth, opening):
    closing = "".join({"{": "}", "[": "]"}[mark] for mark in reversed(opening) if mark in "{[")
    body = (opening * depth + "1" + closing * depth).encode()
    assert outcome("traces", "json", None, body, ResourceLimits()) in (200, 400)


def seeds() -> list[tuple[str, str, bytes]]:
    """Valid requests of all kinds, which the long test corrupts."""
    rich = request("invoke_agent helper", "chat", "execute_tool search")
    for span in spans_of(rich):
        values = {"text": "größe \U0001f600", "list": [1, 2.5, True, None, b"\xff"], "object": {"in": {"deep": ["x"]}}}
        add(span, {**values, "long": "x" * 300})
        add(span.events.add(name="event"), values)
        span.links.add(trace_id=b"\1" * 16, span_id=b"\2" * 8)
    made = [("traces", rich), ("logs", logs_request("a", "b")), ("metrics", metrics_request())]
    found = [(signal, "protobuf", message.SerializeToString()) for signal, message in made]
    return found + [(signal, "json", json.dumps(document(message)).encode()) for signal, message in made]


TOKENS = (
    b"\x00", b"\xff", b"\x0a", b"\x12", b"\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01", b"\xff\xff\xff\xff\x0f", b"\x0b",
    b"{", b"}", b"[", b"]", b'"', b",", b":", b"null", b"NaN", b"1e999", b'"\\ud800"', b"9" * 30, b"-1", b"[[[[[[[[",
    b"goldspan.gateway", b'"name":"goldspan.gateway"', b"\xc3", b"\xed\xa0\x80", b"resource_spans",
)  # fmt: skip


def corrupt(body: bytes, chance: random.Random) -> bytes:
    """Returns a corrupted body: truncated, repeated, overwritten or mixed."""
    for _ in range(chance.choice((0, 1, 1, 2, 3, 8))):
        at = chance.randrange(len(body) + 1)
        to = min(len(body), at + chance.choice((0, 1, 1, 2, 5, 40)))
        match chance.randrange(6):
            case 0:
                body = body[:at] + chance.randbytes(max(1, to - at)) + body[to:]
            case 1:
                body = body[:at] + body[to:]
            case 2:
                body = body[:at] + chance.choice(TOKENS) + body[to:]
            case 3:
                body = body[:at] + body[at:to] * chance.choice((2, 3, 50)) + body[to:]
            case 4 if at < len(body):
                body = body[:at] + bytes([body[at] ^ 1 << chance.randrange(8)]) + body[at + 1 :]
            case _:
                body = body[:at]
    return body


def read_bodies(number: int, seed: int) -> Counter[int]:
    chance = random.Random(seed)
    good = seeds()
    packers = [*PACKERS.items(), *[("identity", bytes)] * 8]
    statuses = Counter[int]()
    for _ in range(number):
        signal, medium, body = chance.choice(good)
        body = corrupt(body, chance)
        if chance.random() < 0.1:
            signal, medium = chance.choice(SIGNALS), chance.choice(MEDIA)
        encoding, pack = chance.choice(packers)
        sent = pack(body)
        if encoding != "identity" and chance.random() < 0.5:
            sent = corrupt(sent, chance)
        encoding = chance.choice((encoding,) * 20 + ("br", "gzip", "zstd", "deflate"))
        statuses[outcome(signal, medium, encoding, sent, chance.choice((STRICT, ResourceLimits())))] += 1
    return statuses


def test_a_few_thousand_corrupted_bodies_are_accepted_or_refused():
    assert set(read_bodies(3000, 1)) == {200, 400, 413, 415}


def exported(spans: int, unknown: str = "0", text: str = "value") -> bytes:
    """Returns a document as exporters write it, with an unknown field at the start."""
    attributes = [{"key": f"gen_ai.attribute.{n}", "value": {"stringValue": f"{text} {n}"}} for n in range(12)]
    times = {"startTimeUnixNano": "1750000000000000000", "endTimeUnixNano": "1750000000500000000"}
    made = [
        {"traceId": f"{n // 4 + 1:032x}", "spanId": f"{n + 1:016x}", "name": "chat", "kind": 3, "status": {"code": 1}}
        | times
        | {"attributes": attributes}
        for n in range(spans)
    ]
    whole = json.dumps(
        {"resourceSpans": [{"scopeSpans": [{"spans": made}]}]}, ensure_ascii=False, separators=(",", ":")
    )
    return f'{{"unknown":{unknown},{whole[1:]}'.encode()


def nested(keys: int, first: str) -> str:
    """Returns nested objects, ninety deep, each with one different key."""
    chains = []
    for start in range(0, keys, 90):
        names = "".join(f'{{"{first}{start + n:x}":' for n in range(90))
        chains.append(f"{names}1{'}' * 90}")
    return f"[{','.join(chains)}]"


def repeated(value: str, times: int) -> str:
    return f"[{','.join([value] * times)}]"


HEAVY: dict[str, Callable[[], bytes]] = {
    "nested objects with emoji in their keys": lambda: exported(1, nested(1_960_000, "\U0001f300")),
    "nested objects": lambda: exported(1, nested(1_960_000, "k")),
    "whole numbers as attributes have them": lambda: exported(1, repeated('{"intValue":"1"}', 900_000)),
    "objects": lambda: exported(1, repeated('{"":0}', 990_000)),
    "texts in other letters": lambda: exported(1, repeated('"\U0001f300"', 1_900_000)),
    "one long text with an emoji": lambda: exported(1, f'"{"x" * 60_000_000}\U0001f300"'),
    "escaped backslashes beside half a surrogate pair": lambda: exported(1, f'"{chr(92) * 30_000_000}{chr(92)}ud83d"'),
    "very many spans": lambda: exported(28_000),
}


@pytest.mark.e2e
@pytest.mark.parametrize("name", HEAVY)
def test_json_that_exceeds_max_parsed_bytes_is_refused_before_parsing(name):
    body = HEAVY[name]()
    assert len(body) < ResourceLimits().max_inflated_bytes
    with pytest.raises(
        RequestRefused, match=r"^the JSON takes more than 201,326,592 bytes when it is parsed$"
    ) as caught:
        validate_request("traces", "json", body, ResourceLimits(), partitioned=False)
    assert (caught.value.response.http_status, caught.value.response.limit) == (413, "max_parsed_bytes")


@pytest.mark.e2e
@pytest.mark.parametrize(("spans", "text"), [(20_000, "value"), (12_000, "\U0001f300")])
def test_large_exports_of_usual_spans_are_accepted(spans, text):
    body = exported(spans, text=text)
    assert validate_request("traces", "json", body, ResourceLimits(), partitioned=False).item_count == spans


def status(body: bytes) -> int:
    try:
        return 200 if validate_request("traces", "json", body, ResourceLimits(), partitioned=False).item_count else 204
    except RequestRefused as refused:
        return refused.response.http_status


def print_growth(*paths: str) -> None:
    """Measures the memory for decoding files, each four times concurrently; runs in a separate process."""
    bodies = [Path(path).read_bytes() for path in paths] * 4
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with ThreadPoolExecutor(len(bodies)) as threads:
        statuses = list(threads.map(status, bodies))
    print(json.dumps([statuses, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before]))


@pytest.mark.e2e
@pytest.mark.skipif(sys.platform != "linux", reason="counted in KiB on Linux only")
def test_concurrent_heavy_documents_take_the_memory_of_one(tmp_path):
    (tmp_path / "taken").write_bytes(exported(12_000))
    (tmp_path / "refused").write_bytes(HEAVY["nested objects with emoji in their keys"]())
    code = "import runpy, sys; runpy.run_path(sys.argv[1])['print_growth'](*sys.argv[2:])"
    done = subprocess.run(
        [sys.executable, "-c", code, __file__, str(tmp_path / "taken"), str(tmp_path / "refused")],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        stdout=subprocess.PIPE,
        check=True,
    )
    statuses, kibibytes = json.loads(done.stdout)
    assert statuses == [200, 413] * 4
    assert kibibytes < 300 * 1024


@pytest.mark.stress
@pytest.mark.skipif(sys.platform == "win32", reason="there is no resource module on Windows")
def test_a_million_corrupted_bodies_are_accepted_or_refused_with_bounded_memory() -> None:
    statuses = read_bodies(min(BODIES, 10_000), 2)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    for seed in range(10):
        statuses += read_bodies(BODIES // 10, 3 + seed)
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before
        print(f"{statuses.total():>9,} bodies, {dict(statuses)}, {grown / MIB:.0f} MiB more at the most", flush=True)
        assert grown < 64 * MIB
    assert set(statuses) == {200, 400, 413, 415}
