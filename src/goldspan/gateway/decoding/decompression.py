"""Bodies as they were before a client compressed them, piece by piece, with bounds on what comes out.

A few kilobytes can inflate to gigabytes. So output is made in small pieces, and the bounds are looked at before the
next one is made: beyond what the caller keeps there is never much more than a mebibyte, 8 MiB for zstd.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

from goldspan._extras import require_server_extra
from goldspan.gateway.decoding.export_response import ExportResponse, RequestRefused, quote_input, too_large
from goldspan.gateway.resource_limits import MIB, ResourceLimits

with require_server_extra():
    import zstandard

_INPUT_BYTES = 8 * 1024
"""Bytes inflated at once. What zlib has not used yet it copies, for each piece of output and each member."""
_OUTPUT_BYTES = MIB // 4
_MIN_RATIO_CHECK_BYTES = 16 * MIB
"""What inflates to less than this is small, however much smaller it was: a long text of one letter, say."""
_ZSTD_INPUT_BYTES = 256
"""zstd may make 128 KiB of 4 bytes, and its output has no bound of its own."""
_ZSTD_WINDOW_BYTES = 8 * MIB
"""The memory that a frame may ask for. RFC 8878, section 3.1.1.1.2, recommends to allow this much."""
_GZIP_WBITS, _ZLIB_WBITS, _RAW_WBITS = 31, 15, -15
"""How zlib is told what to expect."""


class Decompressor:
    """Inflates one body. Raises `Refused`, also when it is made: 415 for a coding that nobody here knows, 400 for bytes
    that are not in that coding or end too early, 413 at a limit.

    One layer is inflated: "gzip, gzip" is a coding that nobody here knows.
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
        """What the next piece of the body inflates to, in pieces. To be read to its end."""
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
        """What is left when the body has ended. To be read to its end."""
        if not self._decoder.is_complete:
            raise RequestRefused(ExportResponse(400, f"the {self._coding} body is cut off"))
        return iter(())

    def _check_limits(self) -> None:
        limits = self._limits
        if self._decompressed > limits.max_inflated_bytes:
            raise too_large("max_inflated_bytes", f"the body inflates to more than {limits.max_inflated_bytes:,} bytes")
        if self._decompressed > max(_MIN_RATIO_CHECK_BYTES, self._received * limits.max_ratio):
            raise too_large("max_ratio", f"the body inflates to more than {limits.max_ratio:,} times its size")


class _Decoder(Protocol):
    """The state of one body."""

    @property
    def is_complete(self) -> bool:
        """Whether the body may end here."""
        ...

    def decompress(self, piece: bytes) -> Iterator[bytes]: ...


class _IdentityDecoder:
    is_complete = True

    def decompress(self, piece: bytes) -> Iterator[bytes]:
        if piece:
            yield piece


class _MemberDecoder:
    """One or more gzip members or zstd frames, back to back. A body of none is cut off."""

    def __init__(self, step: int, new: Callable[[], Any], output: Callable[[Any, bytes], Iterator[bytes]]) -> None:
        self._step = step
        self._new_member = new
        self._output = output
        self._member: Any = None
        self.is_complete = False

    def decompress(self, piece: bytes) -> Iterator[bytes]:
        for start in range(0, len(piece), self._step):
            rest = piece[start : start + self._step]
            while rest:
                member = self._member = self._member or self._new_member()
                yield from self._output(member, rest)
                rest = member.unused_data
                self.is_complete = member.eof
                if self.is_complete:
                    self._member = None


class _DeflateDecoder:
    """One zlib stream, which is what HTTP calls deflate, or the bare deflate data that some clients send for it.

    See RFC 9110, section 8.4.1.2.
    """

    def __init__(self) -> None:
        self._start = b""
        self._stream: Any = None

    @property
    def is_complete(self) -> bool:
        return self._stream is not None and bool(self._stream.eof)

    def decompress(self, piece: bytes) -> Iterator[bytes]:
        if self._stream is None:
            piece = self._start = self._start + piece
            if len(piece) < 2:
                return
            is_zlib = piece[0] & 0x0F == 8 and (piece[0] << 8 | piece[1]) % 31 == 0  # RFC 1950, section 2.2
            self._stream = zlib.decompressobj(_ZLIB_WBITS if is_zlib else _RAW_WBITS)
        for start in range(0, len(piece), _INPUT_BYTES):
            if self.is_complete:
                raise zlib.error("bytes follow its end")
            yield from _zlib_chunks(self._stream, piece[start : start + _INPUT_BYTES])
        if self._stream.unused_data:
            raise zlib.error("bytes follow its end")


def _zlib_chunks(stream: Any, data: bytes) -> Iterator[bytes]:
    output = stream.decompress(data, _OUTPUT_BYTES)
    yield output
    # A full piece may leave more behind, even where all input is used.
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
