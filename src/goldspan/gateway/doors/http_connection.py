"""One connection over HTTP: how long it may take, and how much it may send before it is answered.

uvicorn speaks HTTP here. What it leaves to whoever stands in front of it is added: a deadline and a bound for the
headers of a request, an end to what may be sent ahead, and an answer for clients that ask for another protocol.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from goldspan import semconv
from goldspan.gateway.extra import needed

with needed():
    import httptools
    from uvicorn.config import Config
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
    from uvicorn.server import ServerState

if TYPE_CHECKING:
    from goldspan.gateway.counting import Counting
    from goldspan.gateway.limits import Limits

HEADER_OVERHEAD = 32
"""Bytes that a header field costs beside its name and value, as HTTP/2 counts them (RFC 9113, section 6.5.2)."""
MAX_PIPELINED = 100
"""Requests that a connection may send ahead. Exporters send none; each costs some kilobytes until it is its turn."""
RETRY_AFTER = 2
"""Seconds after which a client that found no room may try again."""
SENDING_SECONDS = 120.0
"""Seconds after which an answer has to be sent, however slowly a client reads: others wait for its room."""
_CODING = b"transfer-encoding"
_OF_THIS_HOP = frozenset({b"connection", b"upgrade", b"http2-settings"})


def _last_words(status: str, code: int, message: str, *headers: str) -> bytes:
    """An answer without a request, after which the connection is closed."""
    body = f'{{"code":{code},"message":"{message}"}}'
    lines = ["content-type: application/json", f"content-length: {len(body)}", "connection: close", *headers]
    return "\r\n".join([f"HTTP/1.1 {status}", *lines, "", body]).encode()


TOO_MANY = _last_words("503 Service Unavailable", 14, "too many connections", f"retry-after: {RETRY_AFTER}")
"""For a connection beyond the cap."""
_NOT_HTTP = _last_words("400 Bad Request", 3, "this is not HTTP/1.1")
_TOO_LONG = _last_words("431 Request Header Fields Too Large", 8, "the headers are too long")
_NOT_CHUNKED = _last_words("501 Not Implemented", 12, "chunked is the only transfer coding")


class _Refusal(Exception):  # noqa: N818 - it is an outcome, and no error of ours
    """More headers, or requests sent ahead, than may be, or a body in a way that is not known here.

    Holds the last words. The parser makes an error of its own of it.
    """

    def __init__(self, last_words: bytes) -> None:
        self.last_words = last_words


class HttpConnection(HttpToolsProtocol):
    """One connection of a client, with the deadlines and bounds of the gateway's limits."""

    def __init__(
        self,
        config: Config,
        state: ServerState,
        limits: Limits,
        counting: Counting,
        *,
        on_lost: Callable[[], None],
        waiting: dict[HttpConnection, None],
    ) -> None:
        super().__init__(config, state, {}, _loop=asyncio.get_running_loop())
        self._limits = limits
        self._counting = counting
        self._on_lost: Callable[[], None] | None = on_lost
        self._waiting = waiting
        self._fed = 0
        self._bytes = 0
        self._room = limits.max_header_bytes
        self._in_headers = True
        self._between = False
        self._deadline: asyncio.TimerHandle | None = None
        self._stalled: asyncio.TimerHandle | None = None
        self._sending: asyncio.TimerHandle | None = None
        self._unread = 0
        self.opening: asyncio.Task[None] | None = None
        """Accepts it, and speaks TLS where that is asked for; None once it is open."""
        waiting[self] = None

    @property
    def _owed(self) -> bool:
        """Whether the latest request is not answered."""
        latest: RequestResponseCycle | None = self.cycle
        return latest is not None and not latest.response_complete

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """It is open: the time of its first headers begins."""
        self.opening = None
        super().connection_made(transport)
        self._start_deadline()

    def connection_lost(self, exc: Exception | None) -> None:
        """It is closed, whoever did that."""
        self._stop_deadline()
        self._stop_stalled()
        self._stop_sending()
        self._unset_keepalive_if_required()
        super().connection_lost(exc)
        self.lose()

    def lose(self) -> None:
        """It counts no longer as one of those that are open."""
        self._waiting.pop(self, None)
        if self._on_lost is not None:
            self._on_lost()
            self._on_lost = None

    def make_room(self) -> None:
        """Close it, for it waits for its client, and another client wants to come in."""
        self.lose()
        if self.opening is not None:
            self.opening.cancel()
        else:
            self.transport.abort()

    def data_received(self, data: bytes) -> None:
        """Parse what came; whatever it is, no connection is left without a deadline."""
        self._unset_keepalive_if_required()
        self._fed = len(data)
        self._between = False
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._ignore_upgrade(data[upgrade.args[0] :])
        except httptools.HttpParserError as error:
            refusal = error.__context__
            self._refuse(refusal.last_words if isinstance(refusal, _Refusal) else _NOT_HTTP)
        else:
            if self._in_headers:
                self._wait_for_headers()

    def _wait_for_headers(self) -> None:
        """After data that completed no headers: what a parser holds of them is seen by its length only."""
        self._bytes += self._fed
        if self._bytes > 2 * self._limits.max_header_bytes:
            self._refuse(_TOO_LONG)
        elif self._owed:
            return
        elif self._between:
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )
        elif self._deadline is None:
            self._start_deadline()

    def eof_received(self) -> bool | None:  # type: ignore[override]
        """A client that has sent all it wants to may still read: it gets its answer. TLS has no such half."""
        if not self._owed or self.cycle.more_body or self.scheme == "https":
            return None
        self.cycle.keep_alive = False
        return True

    def pause_writing(self) -> None:
        """A client that does not read is waited for as long as one that is idle, and one that is slow not for ever."""
        super().pause_writing()
        self._wait_for_reading()
        if self._sending is None:
            self._sending = self.loop.call_later(SENDING_SECONDS, self.transport.abort)

    def _wait_for_reading(self) -> None:
        self._unread = self.transport.get_write_buffer_size()
        self._stalled = self.loop.call_later(self._limits.keep_alive_seconds, self._stall)

    def _stall(self) -> None:
        """It still reads, if slowly, or it does not any longer."""
        if self.transport.get_write_buffer_size() < self._unread:
            self._wait_for_reading()
        else:
            self.transport.abort()

    def resume_writing(self) -> None:
        """It reads again."""
        super().resume_writing()
        self._stop_stalled()

    def on_message_begin(self) -> None:
        """The first byte of a request."""
        super().on_message_begin()
        self._in_headers, self._between = True, False
        self._bytes = -self._fed  # what else came with it is not counted
        self._room = self._limits.max_header_bytes

    def on_url(self, url: bytes) -> None:
        """A part of what is asked for."""
        self._take(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """One field before the body, or after one in chunks: those are dropped (RFC 9110, section 6.5.1)."""
        self._take(len(name) + len(value) + HEADER_OVERHEAD)
        if not self._in_headers:
            return
        if len(name) == len(_CODING) and name.lower() == _CODING and value.lower() != b"chunked":
            raise _Refusal(_NOT_CHUNKED)  # RFC 9112, section 6.1
        super().on_header(name, value)

    def _take(self, length: int) -> None:
        self._room -= length
        if self._room < 0:
            raise _Refusal(_TOO_LONG)

    def on_headers_complete(self) -> None:
        """A request may begin, or wait for its turn."""
        if self.parser.should_upgrade():
            return
        self._in_headers = False
        self._stop_deadline()
        if len(self.pipeline) >= MAX_PIPELINED:
            raise _Refusal(_TOO_LONG)
        if not self._owed:  # from here on it waits for its body
            self._waiting.pop(self, None)
            self._waiting[self] = None
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """The last byte of a request."""
        if self.parser.should_upgrade():
            return
        self._in_headers = self._between = True
        self._bytes = -self._fed
        self._stop_deadline()
        if self._owed:
            self._waiting.pop(self, None)
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """A request is answered, perhaps before all of it is here."""
        self._stop_sending()
        super().on_response_complete()
        if self._on_lost is not None and not self.pipeline and (not self._owed or self.cycle.more_body):
            self._waiting[self] = None
        if not self._in_headers and not self._owed and not self.transport.is_closing():
            self._start_deadline()  # answered before its body was all there: the rest is dropped, but only so long

    def _start_deadline(self) -> None:
        self._stop_deadline()
        self._deadline = self.loop.call_later(self._limits.header_seconds, self._expire)

    def _stop_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _stop_stalled(self) -> None:
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None

    def _stop_sending(self) -> None:
        if self._sending is not None:
            self._sending.cancel()
            self._sending = None

    def _expire(self) -> None:
        self._deadline = None
        if self._in_headers:
            self._counting.add(semconv.GATEWAY_REFUSED, limit="header_seconds")
        self.transport.abort()

    def _ignore_upgrade(self, rest: bytes) -> None:
        """Read a request as if it had not asked for another protocol (RFC 9110, section 7.8, allows that).

        Java's client asks for HTTP/2 with the first request that it sends, body and all. The parser takes no body then.
        """
        method = self.parser.get_method()
        if method == b"CONNECT":
            self._refuse(_NOT_HTTP)
            return
        lines = [b"%s %s HTTP/%s" % (method, self.url, self.parser.get_http_version().encode())]
        lines += [name + b": " + value for name, value in self.headers if name not in _OF_THIS_HOP]
        self.parser = httptools.HttpRequestParser(self)
        self.data_received(b"\r\n".join([*lines, b"", rest]))

    def _refuse(self, last_words: bytes) -> None:
        """Answer what cannot become a request, and close. Where other answers are owed, they come first."""
        if last_words is _TOO_LONG:
            self._counting.add(semconv.GATEWAY_REFUSED, limit="max_header_bytes")
        if self._owed and not self.cycle.more_body:
            self.cycle.keep_alive = False
            return
        if not (self._owed and (self.cycle.response_started or self.pipeline)):
            self.transport.write(last_words)
        self.transport.close()
