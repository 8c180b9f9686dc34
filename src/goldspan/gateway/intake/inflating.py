"""Bodies as they were before a client compressed them, piece by piece, with bounds on what comes out.

A few kilobytes can inflate to gigabytes. So output is made in small pieces, and the bounds are looked at before the
next one is made: beyond what the caller keeps there is never much more than a mebibyte, 8 MiB for zstd.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

from goldspan.gateway.extra import needed
from goldspan.gateway.intake.answers import Answer, Refused, quoted, too_large
from goldspan.gateway.limits import MIB, Limits

with needed():
    import zstandard

_INPUT = 8 * 1024
"""Bytes inflated at once. What zlib has not used yet it copies, for each piece of output and each member."""
_OUTPUT = MIB // 4
_RATIO_FROM = 16 * MIB
"""What inflates to less than this is small, however much smaller it was: a long text of one letter, say."""
_ZSTD_INPUT = 256
"""zstd may make 128 KiB of 4 bytes, and its output has no bound of its own."""
_ZSTD_WINDOW = 8 * MIB
"""The memory that a frame may ask for. RFC 8878, section 3.1.1.1.2, recommends to allow this much."""
_GZIP, _ZLIB, _RAW = 31, 15, -15
"""How zlib is told what to expect."""


class Inflater:
    """Inflates one body. Raises `Refused`, also when it is made: 415 for a coding that nobody here knows, 400 for bytes
    that are not in that coding or end too early, 413 at a limit.

    One layer is inflated: "gzip, gzip" is a coding that nobody here knows.
    """

    def __init__(self, encoding: str | None, limits: Limits) -> None:
        coding = (encoding or "identity").strip().lower()
        if coding not in _CODINGS:
            known = ", ".join(sorted(_CODINGS))
            raise Refused(Answer(415, f"Content-Encoding {quoted(coding)} is not one of {known}"))
        self._coding = coding
        self._coded = _CODINGS[coding]()
        self._limits = limits
        self._received = 0
        self._inflated = 0

    def feed(self, piece: bytes) -> Iterator[bytes]:
        """What the next piece of the body inflates to, in pieces. To be read to its end."""
        self._received += len(piece)
        if self._received > self._limits.max_body_bytes:
            raise too_large("max_body_bytes", f"the body is longer than {self._limits.max_body_bytes:,} bytes")
        try:
            for inflated in self._coded.inflate(piece):
                self._inflated += len(inflated)
                self._check()
                yield inflated
        except (zlib.error, zstandard.ZstdError) as error:
            raise Refused(Answer(400, f"the body is not {self._coding} ({error})")) from error

    def finish(self) -> Iterator[bytes]:
        """What is left when the body has ended. To be read to its end."""
        if not self._coded.complete:
            raise Refused(Answer(400, f"the {self._coding} body is cut off"))
        return iter(())

    def _check(self) -> None:
        limits = self._limits
        if self._inflated > limits.max_inflated_bytes:
            raise too_large("max_inflated_bytes", f"the body inflates to more than {limits.max_inflated_bytes:,} bytes")
        if self._inflated > max(_RATIO_FROM, self._received * limits.max_ratio):
            raise too_large("max_ratio", f"the body inflates to more than {limits.max_ratio:,} times its size")


class _Coded(Protocol):
    """The state of one body."""

    @property
    def complete(self) -> bool:
        """Whether the body may end here."""
        ...

    def inflate(self, piece: bytes) -> Iterator[bytes]: ...


class _Plain:
    complete = True

    def inflate(self, piece: bytes) -> Iterator[bytes]:
        if piece:
            yield piece


class _Members:
    """One or more gzip members or zstd frames, back to back. A body of none is cut off."""

    def __init__(self, step: int, new: Callable[[], Any], output: Callable[[Any, bytes], Iterator[bytes]]) -> None:
        self._step = step
        self._new = new
        self._output = output
        self._member: Any = None
        self.complete = False

    def inflate(self, piece: bytes) -> Iterator[bytes]:
        for start in range(0, len(piece), self._step):
            rest = piece[start : start + self._step]
            while rest:
                member = self._member = self._member or self._new()
                yield from self._output(member, rest)
                rest = member.unused_data
                self.complete = member.eof
                if self.complete:
                    self._member = None


class _Deflated:
    """One zlib stream, which is what HTTP calls deflate, or the bare deflate data that some clients send for it.

    See RFC 9110, section 8.4.1.2.
    """

    def __init__(self) -> None:
        self._start = b""
        self._stream: Any = None

    @property
    def complete(self) -> bool:
        return self._stream is not None and bool(self._stream.eof)

    def inflate(self, piece: bytes) -> Iterator[bytes]:
        if self._stream is None:
            piece = self._start = self._start + piece
            if len(piece) < 2:
                return
            is_zlib = piece[0] & 0x0F == 8 and (piece[0] << 8 | piece[1]) % 31 == 0  # RFC 1950, section 2.2
            self._stream = zlib.decompressobj(_ZLIB if is_zlib else _RAW)
        for start in range(0, len(piece), _INPUT):
            if self.complete:
                raise zlib.error("bytes follow its end")
            yield from _zlib_output(self._stream, piece[start : start + _INPUT])
        if self._stream.unused_data:
            raise zlib.error("bytes follow its end")


def _zlib_output(stream: Any, data: bytes) -> Iterator[bytes]:
    output = stream.decompress(data, _OUTPUT)
    yield output
    # A full piece may leave more behind, even where all input is used.
    while not stream.eof and (stream.unconsumed_tail or len(output) == _OUTPUT):
        output = stream.decompress(stream.unconsumed_tail, _OUTPUT)
        yield output


def _zstd_output(frame: Any, data: bytes) -> Iterator[bytes]:
    yield frame.decompress(data)


def _gzip() -> _Coded:
    return _Members(_INPUT, lambda: zlib.decompressobj(_GZIP), _zlib_output)


def _zstd() -> _Coded:
    decompressor = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW)
    return _Members(_ZSTD_INPUT, decompressor.decompressobj, _zstd_output)


_CODINGS: Mapping[str, Callable[[], _Coded]] = {
    "identity": _Plain,
    "gzip": _gzip,
    "x-gzip": _gzip,
    "deflate": _Deflated,
    "zstd": _zstd,
}
