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
def test_a_body_is_restored_from_chunks_of_any_size(name, step):
    assert inflate(coding(name), PACKED[name], step=step) == TEXT


@pytest.mark.parametrize("encoding", [None, "", "identity", " Identity "])
def test_a_body_without_compression_is_unchanged(encoding):
    assert inflate(encoding, b"plain") == b"plain"
    assert inflate(encoding, b"") == b""


@pytest.mark.parametrize("encoding", ["GZIP", "x-gzip", " gzip "])
def test_the_name_of_a_coding_is_normalized(encoding):
    assert inflate(encoding, PACKED["gzip"]) == TEXT


@pytest.mark.parametrize("encoding", ["br", "gzip, gzip", "gzip,identity", "\ud800", "x" * 10_000])
def test_unknown_and_multiple_codings_are_answered_415(encoding):
    assert refused(encoding, b"") == (415, None)


@pytest.mark.parametrize("name", SEVERAL)
@pytest.mark.parametrize("step", [1, 4096, 10**6])
def test_several_compressed_members_are_one_body(name, step):
    assert inflate(name, SEVERAL[name], step=step) == TEXT * 2


@pytest.mark.parametrize("name", [name for name in PACKED if name != "identity"])
def test_a_truncated_body_is_answered_400(name):
    for length in {*range(12), *range(len(PACKED[name]) - 12, len(PACKED[name]))}:
        assert refused(coding(name), PACKED[name][:length]) == (400, None)


@pytest.mark.parametrize("name", [name for name in PACKED if name != "identity"])
def test_a_body_with_trailing_bytes_is_answered_400(name):
    for step in (1, 10**6):
        assert refused(coding(name), PACKED[name] + b"more", step=step) == (400, None)


@pytest.mark.parametrize("name", ["gzip", "deflate"])
def test_a_body_with_a_wrong_checksum_is_answered_400(name):
    body = bytearray(PACKED[name])
    body[-6 if name == "gzip" else -1] ^= 1
    assert refused(name, bytes(body)) == (400, None)


@pytest.mark.parametrize("name", ["gzip", "deflate", "zstd"])
def test_an_uncompressed_body_with_a_declared_coding_is_answered_400(name):
    assert refused(name, b"\x0a\x94\x07 this is protobuf, say") == (400, None)


def test_the_size_of_a_body_is_limited():
    limits = ResourceLimits(max_body_bytes=1000)
    assert inflate(None, b"a" * 1000, limits=limits) == b"a" * 1000
    assert refused(None, b"a" * 1001, limits=limits) == (413, "max_body_bytes")


@pytest.mark.parametrize("name", PACKED)
def test_the_decompressed_size_is_limited(name):
    assert inflate(coding(name), PACKED[name], limits=ResourceLimits(max_inflated_bytes=len(TEXT))) == TEXT
    limits = ResourceLimits(max_inflated_bytes=len(TEXT) - 1)
    assert refused(coding(name), PACKED[name], limits=limits) == (413, "max_inflated_bytes")


@pytest.mark.parametrize("name", ["gzip", "deflate", "zstd"])
def test_the_compression_ratio_is_limited_only_for_large_bodies(name):
    pack = {"gzip": gzip.compress, "deflate": zlib.compress, "zstd": zstd}[name]
    assert len(inflate(name, pack(b"x" * 8 * MIB))) == 8 * MIB
    assert refused(name, pack(b"x" * 17 * MIB)) == (413, "max_ratio")


def bomb(name: str) -> bytes:
    """Returns 1 GiB of zeros, compressed."""
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


def test_a_zstd_frame_with_an_excessive_window_is_refused():
    parameters = zstandard.ZstdCompressionParameters(window_log=27)
    packer = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    assert refused("zstd", packer.compress(b"a" * 100) + packer.flush()) == (400, None)


@given(st.binary(max_size=2000), st.sampled_from([*PACKED]), st.integers(1, 300))
def test_any_compressed_bytes_are_restored(data, name, step):
    pack = {
        "identity": bytes, "gzip": gzip.compress, "deflate": zlib.compress, "raw deflate": raw_deflate, "zstd": zstd,
    }[name]  # fmt: skip
    assert inflate(coding(name), pack(data), step=step) == data


def test_raw_deflate_that_ends_with_a_full_piece_is_complete():
    for size in range(MIB // 4 - 3, MIB // 4 + 4):
        assert len(inflate("deflate", raw_deflate(b"ab" * (size // 2) + b"c" * (size % 2)))) == size
