"""Decompresses request bodies for the receivers in small chunks, with limits on the output size.

A few kilobytes can inflate to gigabytes. The decompressor therefore produces output in small chunks and checks the
limits before it produces the next one. Beyond the output that the caller keeps, it uses about 1 MiB of memory, or
8 MiB for zstd.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

from goldspan._extras import require_extra
from goldspan.gateway.decoding.export_response import ExportResponse, RequestRefused, quote_input, too_large
from goldspan.gateway.resource_limits import MIB, ResourceLimits

with require_extra("server"):
    import zstandard

_INPUT_BYTES = 8 * 1024
"""Input bytes per call. zlib copies the unused input for each chunk of output and for each member."""
_OUTPUT_BYTES = MIB // 4
_MIN_RATIO_CHECK_BYTES = 16 * MIB
"""The ratio is not checked below this output size: short repetitive bodies have a high ratio and do no harm."""
_ZSTD_INPUT_BYTES = 256
"""4 bytes of zstd can expand to 128 KiB, and the zstd decoder has no output limit."""
_ZSTD_WINDOW_BYTES = 8 * MIB
"""Maximum window size of a frame. RFC 8878, section 3.1.1.1.2, recommends that decoders support this size."""
_GZIP_WBITS, _ZLIB_WBITS, _RAW_WBITS = 31, 15, -15
"""Values of zlib's `wbits` parameter, which selects the container format."""


class Decompressor:
    """Decompresses one body.

    The constructor and the methods raise `RequestRefused`: 415 for an unsupported coding, 400 for bytes that are not
    in that coding or are truncated, 413 above a limit. Only one coding is supported: "gzip, gzip" is refused with 415.
    """

    def __init__(self, encoding: str | None, limits: ResourceLimits) -> None:
        coding = (encoding or "identity").strip().lower()
        if coding not in _DECODERS:
            known = ", ".join(sorted(_DECODERS))
            raise RequestRefused(ExportResponse(415, f"Content-Encoding {quote_input(coding)} is not one of {known}"))
        self._coding = coding
        self._decoder = _DECODERS[coding]()
        self._limits = limits
        self._received = 0
        self._decompressed = 0

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """Yield the decompressed output of the next chunk. The caller must exhaust the iterator."""
        self._received += len(chunk)
        if self._received > self._limits.max_body_bytes:
            raise too_large("max_body_bytes", f"the body is longer than {self._limits.max_body_bytes:,} bytes")
        try:
            for inflated in self._decoder.decompress(chunk):
                self._decompressed += len(inflated)
                self._check_limits()
                yield inflated
        except (zlib.error, zstandard.ZstdError) as error:
            raise RequestRefused(ExportResponse(400, f"the body is not {self._coding} ({error})")) from error

    def finish(self) -> Iterator[bytes]:
        """Yield the remaining output at the end of the body. The caller must exhaust the iterator."""
        if not self._decoder.is_complete:
            raise RequestRefused(ExportResponse(400, f"the {self._coding} body is truncated"))
        return iter(())

    def _check_limits(self) -> None:
        limits = self._limits
        if self._decompressed > limits.max_inflated_bytes:
            raise too_large("max_inflated_bytes", f"the body inflates to more than {limits.max_inflated_bytes:,} bytes")
        if self._decompressed > max(_MIN_RATIO_CHECK_BYTES, self._received * limits.max_ratio):
            raise too_large("max_ratio", f"the body inflates to more than {limits.max_ratio:,} times its size")


class _Decoder(Protocol):
    """Decompresses one body in one coding, without limits."""

    @property
    def is_complete(self) -> bool:
        """Whether the input so far is a complete body."""
        ...

    def decompress(self, chunk: bytes) -> Iterator[bytes]: ...


class _IdentityDecoder:
    is_complete = True

    def decompress(self, chunk: bytes) -> Iterator[bytes]:
        if chunk:
            yield chunk


class _MemberDecoder:
    """Decodes one or more concatenated gzip members or zstd frames. An empty body is incomplete."""

    def __init__(
        self, input_bytes: int, new_member: Callable[[], Any], output_chunks: Callable[[Any, bytes], Iterator[bytes]]
    ) -> None:
        self._input_bytes = input_bytes
        self._new_member = new_member
        self._output_chunks = output_chunks
        self._member: Any = None
        self.is_complete = False

    def decompress(self, chunk: bytes) -> Iterator[bytes]:
        for start in range(0, len(chunk), self._input_bytes):
            rest = chunk[start : start + self._input_bytes]
            while rest:
                member = self._member = self._member or self._new_member()
                yield from self._output_chunks(member, rest)
                rest = member.unused_data
                self.is_complete = member.eof
                if self.is_complete:
                    self._member = None


class _DeflateDecoder:
    """Decodes one zlib stream, which HTTP calls deflate, or the raw deflate data that some clients send instead.

    See RFC 9110, section 8.4.1.2.
    """

    def __init__(self) -> None:
        self._start = b""
        self._stream: Any = None

    @property
    def is_complete(self) -> bool:
        return self._stream is not None and bool(self._stream.eof)

    def decompress(self, chunk: bytes) -> Iterator[bytes]:
        if self._stream is None:
            chunk = self._start = self._start + chunk
            if len(chunk) < 2:
                return
            is_zlib = chunk[0] & 0x0F == 8 and (chunk[0] << 8 | chunk[1]) % 31 == 0  # RFC 1950, section 2.2
            self._stream = zlib.decompressobj(_ZLIB_WBITS if is_zlib else _RAW_WBITS)
        for start in range(0, len(chunk), _INPUT_BYTES):
            if self.is_complete:
                raise zlib.error("bytes follow its end")
            yield from _zlib_chunks(self._stream, chunk[start : start + _INPUT_BYTES])
        if self._stream.unused_data:
            raise zlib.error("bytes follow its end")


def _zlib_chunks(stream: Any, data: bytes) -> Iterator[bytes]:
    output = stream.decompress(data, _OUTPUT_BYTES)
    yield output
    # After a full chunk, zlib may hold more output even if it has consumed all input.
    while not stream.eof and (stream.unconsumed_tail or len(output) == _OUTPUT_BYTES):
        output = stream.decompress(stream.unconsumed_tail, _OUTPUT_BYTES)
        yield output


def _zstd_chunks(frame: Any, data: bytes) -> Iterator[bytes]:
    yield frame.decompress(data)


def _gzip_decoder() -> _Decoder:
    return _MemberDecoder(_INPUT_BYTES, lambda: zlib.decompressobj(_GZIP_WBITS), _zlib_chunks)


def _zstd_decoder() -> _Decoder:
    decompressor = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW_BYTES)
    return _MemberDecoder(_ZSTD_INPUT_BYTES, decompressor.decompressobj, _zstd_chunks)


_DECODERS: Mapping[str, Callable[[], _Decoder]] = {
    "identity": _IdentityDecoder,
    "gzip": _gzip_decoder,
    "x-gzip": _gzip_decoder,
    "deflate": _DeflateDecoder,
    "zstd": _zstd_decoder,
}
