"""Tests of the decompression of valid and hostile bodies, in chunks of any size."""

from __future__ import annotations

import gzip
import tracemalloc
import zlib
from collections import deque
from itertools import chain

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from goldspan.gateway.decoding.decompression import Decompressor
from goldspan.gateway.decoding.export_response import RequestRefused
from goldspan.gateway.resource_limits import MIB, ResourceLimits

TEXT = bytes(range(256)) * 8 + b"a long text of one letter: " + b"x" * 300_000

LIMITS = ResourceLimits()


def raw_deflate(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-15)
    return packer.compress(data) + packer.flush()


def zstd(data: bytes) -> bytes:
    return zstandard.ZstdCompressor().compress(data)


PACKED = {
    "identity": TEXT,
    "gzip": gzip.compress(TEXT),
    "deflate": zlib.compress(TEXT),
    "raw deflate": raw_deflate(TEXT),
    "zstd": zstd(TEXT),
}
SEVERAL = {"gzip": gzip.compress(b"") + gzip.compress(TEXT) * 2, "zstd": zstd(b"") + zstd(TEXT) * 2}


def coding(name: str) -> str:
    return name.removeprefix("raw ")


def inflate(encoding: str | None, body: bytes, *, step: int = 65536, limits: ResourceLimits = LIMITS) -> bytes:
    inflater = Decompressor(encoding, limits)
    pieces = [inflated for at in range(0, len(body), step) for inflated in inflater.feed(body[at : at + step])]
    return b"".join([*pieces, *inflater.finish()])


def refused(encoding: str | None, body: bytes, **options) -> tuple[int, str | None]:
    with pytest.raises(RequestRefused) as caught:
        inflate(encoding, body, **options)
    return caught.value.response.http_status, caught.value.response.limit


@pytest.mark.parametrize("name", PACKED)
@pytest.mark.parametrize("step", [1, 7, 4096, 10**6])
def test_a_body_comes_out_as_it_was_however_it_arrives(name, step):
    assert inflate(coding(name), PACKED[name], step=step) == TEXT


@pytest.mark.parametrize("encoding", [None, "", "identity", " Identity "])
def test_a_body_that_is_not_compressed_is_left_alone(encoding):
    assert inflate(encoding, b"plain") == b"plain"
    assert inflate(encoding, b"") == b""


@pytest.mark.parametrize("encoding", ["GZIP", "x-gzip", " gzip "])
def test_the_name_of_a_coding_may_be_written_in_any_way(encoding):
    assert inflate(encoding, PACKED["gzip"]) == TEXT


@pytest.mark.parametrize("encoding", ["br", "gzip, gzip", "gzip,identity", "\ud800", "x" * 10_000])
def test_an_unknown_coding_is_not_supported_and_one_layer_is_enough(encoding):
    assert refused(encoding, b"") == (415, None)


@pytest.mark.parametrize("name", SEVERAL)
@pytest.mark.parametrize("step", [1, 4096, 10**6])
def test_several_members_are_one_body(name, step):
    assert inflate(name, SEVERAL[name], step=step) == TEXT * 2


@pytest.mark.parametrize("name", [name for name in PACKED if name != "identity"])
def test_a_body_that_is_cut_off_anywhere_is_wrong(name):
    for length in {*range(12), *range(len(PACKED[name]) - 12, len(PACKED[name]))}:
        assert refused(coding(name), PACKED[name][:length]) == (400, None)


@pytest.mark.parametrize("name", [name for name in PACKED if name != "identity"])
def test_a_body_with_something_behind_it_is_wrong(name):
    for step in (1, 10**6):
        assert refused(coding(name), PACKED[name] + b"more", step=step) == (400, None)


@pytest.mark.parametrize("name", ["gzip", "deflate"])
def test_a_body_whose_checksum_differs_is_wrong(name):
    body = bytearray(PACKED[name])
    body[-6 if name == "gzip" else -1] ^= 1
    assert refused(name, bytes(body)) == (400, None)


@pytest.mark.parametrize("name", ["gzip", "deflate", "zstd"])
def test_a_body_that_is_not_compressed_at_all_is_wrong(name):
    assert refused(name, b"\x0a\x94\x07 this is protobuf, say") == (400, None)


def test_only_so_many_bytes_may_be_sent():
    limits = ResourceLimits(max_body_bytes=1000)
    assert inflate(None, b"a" * 1000, limits=limits) == b"a" * 1000
    assert refused(None, b"a" * 1001, limits=limits) == (413, "max_body_bytes")


@pytest.mark.parametrize("name", PACKED)
def test_only_so_many_bytes_may_come_out(name):
    assert inflate(coding(name), PACKED[name], limits=ResourceLimits(max_inflated_bytes=len(TEXT))) == TEXT
    limits = ResourceLimits(max_inflated_bytes=len(TEXT) - 1)
    assert refused(coding(name), PACKED[name], limits=limits) == (413, "max_inflated_bytes")


@pytest.mark.parametrize("name", ["gzip", "deflate", "zstd"])
def test_a_long_text_of_one_letter_is_no_bomb_and_a_very_long_one_is(name):
    pack = {"gzip": gzip.compress, "deflate": zlib.compress, "zstd": zstd}[name]
    assert len(inflate(name, pack(b"x" * 8 * MIB))) == 8 * MIB
    assert refused(name, pack(b"x" * 17 * MIB)) == (413, "max_ratio")


def bomb(name: str) -> bytes:
    """Yields a mebibyte of zeros repeatedly, 1 GiB in total."""
    if name == "gzip":
        return gzip.compress(bytes(MIB)) * 1024
    if name == "zstd":
        return zstd(bytes(MIB)) * 1024
    packer = zlib.compressobj()
    return b"".join([*(packer.compress(bytes(MIB)) for _ in range(1024)), packer.flush()])


@pytest.mark.e2e
@pytest.mark.parametrize("name", ["gzip", "deflate", "zstd"])
@pytest.mark.parametrize("ratio", [200, 10**9])
def test_a_bomb_of_a_gibibyte_takes_little_memory(name, ratio):
    body = bomb(name)
    pieces = [body[at : at + 65536] for at in range(0, len(body), 65536)]
    inflater = Decompressor(name, ResourceLimits(max_ratio=ratio))
    tracemalloc.start()
    try:
        with pytest.raises(RequestRefused) as caught:
            deque(chain.from_iterable(inflater.feed(piece) for piece in pieces), maxlen=0)  # output discarded
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert caught.value.response.http_status == 413
    assert peak < 10 * MIB


def test_a_zstd_frame_cannot_ask_for_more_memory_than_is_usual():
    parameters = zstandard.ZstdCompressionParameters(window_log=27)
    packer = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    assert refused("zstd", packer.compress(b"a" * 100) + packer.flush()) == (400, None)


@given(st.binary(max_size=2000), st.sampled_from([*PACKED]), st.integers(1, 300))
def test_whatever_was_packed_comes_out(data, name, step):
    pack = {
        "identity": bytes, "gzip": gzip.compress, "deflate": zlib.compress, "raw deflate": raw_deflate, "zstd": zstd,
    }[name]  # fmt: skip
    assert inflate(coding(name), pack(data), step=step) == data


def test_raw_deflate_that_ends_exactly_with_a_full_piece_is_whole():
    for size in range(MIB // 4 - 3, MIB // 4 + 4):
        assert len(inflate("deflate", raw_deflate(b"ab" * (size // 2) + b"c" * (size % 2)))) == size
