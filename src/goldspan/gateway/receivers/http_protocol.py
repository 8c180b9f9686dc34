"""One HTTP connection of the gateway: uvicorn's protocol with deadlines and size limits.

uvicorn implements HTTP and leaves some protection to a reverse proxy. This module adds it: a deadline and a size limit
for the headers, a limit for pipelined requests, and a response to clients that request a protocol upgrade.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from goldspan import semconv
from goldspan._extras import require_extra

with require_extra("server"):
    import httptools
    from uvicorn.config import Config
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
    from uvicorn.server import ServerState

if TYPE_CHECKING:
    from goldspan.gateway.gateway_counters import GatewayCounters
    from goldspan.gateway.resource_limits import ResourceLimits

HEADER_OVERHEAD_BYTES = 32
"""Bytes that each header field counts in addition to its name and value, as in HTTP/2 (RFC 9113, section 6.5.2)."""
MAX_PIPELINED_REQUESTS = 100
"""Requests that a connection may pipeline. Exporters pipeline none; each holds some kilobytes while it waits."""
RETRY_AFTER_SECONDS = 2
"""Seconds after which a refused connection may retry."""
MAX_SENDING_SECONDS = 120.0
"""Seconds within which a client must have read a response, because other clients wait for the connection."""
_TRANSFER_ENCODING = b"transfer-encoding"
_HOP_BY_HOP_HEADERS = frozenset({b"connection", b"upgrade", b"http2-settings"})


def _final_response(status: str, code: int, message: str, *headers: str) -> bytes:
    """Encode a response without a parsed request, after which the connection is closed."""
    body = f'{{"code":{code},"message":"{message}"}}'
    lines = ["content-type: application/json", f"content-length: {len(body)}", "connection: close", *headers]
    return "\r\n".join([f"HTTP/1.1 {status}", *lines, "", body]).encode()


TOO_MANY_CONNECTIONS = _final_response(
    "503 Service Unavailable", 14, "too many connections", f"retry-after: {RETRY_AFTER_SECONDS}"
)
"""The response to a connection beyond the limit."""
_BAD_REQUEST = _final_response("400 Bad Request", 3, "this is not HTTP/1.1")
_HEADERS_TOO_LARGE = _final_response("431 Request Header Fields Too Large", 8, "the headers are too long")
_UNSUPPORTED_TRANSFER_ENCODING = _final_response(
    "501 Not Implemented", 12, "the only supported transfer coding is chunked"
)


class _ProtocolRefusal(Exception):  # noqa: N818 - an outcome, not an error of the gateway
    """Too many header bytes or pipelined requests, or an unsupported transfer coding.

    Holds the final response. The parser wraps it in an error of its own.
    """

    def __init__(self, response: bytes) -> None:
        self.response = response


class HttpConnection(HttpToolsProtocol):
    """One connection of a client, with the deadlines and size limits of the gateway."""

    def __init__(
        self,
        config: Config,
        state: ServerState,
        limits: ResourceLimits,
        counters: GatewayCounters,
        *,
        on_lost: Callable[[], None],
        idle_connections: dict[HttpConnection, None],
    ) -> None:
        super().__init__(config, state, {}, _loop=asyncio.get_running_loop())
        self._limits = limits
        self._counters = counters
        self._on_lost: Callable[[], None] | None = on_lost
        self._idle_connections = idle_connections
        self._chunk_bytes = 0
        self._header_bytes = 0
        self._header_bytes_left = limits.max_header_bytes
        self._in_headers = True
        self._is_between_requests = False
        self._header_timer: asyncio.TimerHandle | None = None
        self._stall_timer: asyncio.TimerHandle | None = None
        self._send_timer: asyncio.TimerHandle | None = None
        self._unsent_bytes = 0
        self.opening_task: asyncio.Task[None] | None = None
        """The task that opens the connection, including the TLS handshake; None once it is open."""
        idle_connections[self] = None

    @property
    def _is_response_pending(self) -> bool:
        """Whether the response of the latest request is incomplete."""
        latest: RequestResponseCycle | None = self.cycle
        return latest is not None and not latest.response_complete

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the deadline of the first headers when the connection is open."""
        self.opening_task = None
        super().connection_made(transport)
        self._start_header_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop all timers when the connection is closed, by either side."""
        self._stop_header_timer()
        self._stop_stall_timer()
        self._stop_send_timer()
        self._unset_keepalive_if_required()
        super().connection_lost(exc)
        self.release()

    def release(self) -> None:
        """Stop counting it as an open connection."""
        self._idle_connections.pop(self, None)
        if self._on_lost is not None:
            self._on_lost()
            self._on_lost = None

    def evict(self) -> None:
        """Close an idle connection, to make room for another client."""
        self.release()
        if self.opening_task is not None:
            self.opening_task.cancel()
        else:
            self.transport.abort()

    def data_received(self, data: bytes) -> None:
        """Parse received data. The connection has a deadline afterwards, whatever the data is."""
        self._unset_keepalive_if_required()
        self._chunk_bytes = len(data)
        self._is_between_requests = False
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._parse_without_upgrade(data[upgrade.args[0] :])
        except httptools.HttpParserError as error:
            refusal = error.__context__
            self._refuse(refusal.response if isinstance(refusal, _ProtocolRefusal) else _BAD_REQUEST)
        else:
            if self._in_headers:
                self._await_headers()

    def _await_headers(self) -> None:
        """Count bytes of incomplete headers, which the parser buffers without reporting them, and set a deadline."""
        self._header_bytes += self._chunk_bytes
        if self._header_bytes > 2 * self._limits.max_header_bytes:
            self._refuse(_HEADERS_TOO_LARGE)
        elif self._is_response_pending:
            return
        elif self._is_between_requests:
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )
        elif self._header_timer is None:
            self._start_header_timer()

    def eof_received(self) -> bool | None:  # type: ignore[override]
        """Keep a half-closed connection open until its response is sent. TLS has no half-closed state."""
        if not self._is_response_pending or self.cycle.more_body or self.scheme == "https":
            return None
        self.cycle.keep_alive = False
        return True

    def pause_writing(self) -> None:
        """Start the deadlines of a client that does not read, and of one that reads too slowly."""
        super().pause_writing()
        self._await_reader()
        if self._send_timer is None:
            self._send_timer = self.loop.call_later(MAX_SENDING_SECONDS, self.transport.abort)

    def _await_reader(self) -> None:
        self._unsent_bytes = self.transport.get_write_buffer_size()
        self._stall_timer = self.loop.call_later(self._limits.keep_alive_seconds, self._check_stalled)

    def _check_stalled(self) -> None:
        """Close the connection if the client has read nothing since the last check."""
        if self.transport.get_write_buffer_size() < self._unsent_bytes:
            self._await_reader()
        else:
            self.transport.abort()

    def resume_writing(self) -> None:
        """Stop the stall deadline when the client reads again."""
        super().resume_writing()
        self._stop_stall_timer()

    def on_message_begin(self) -> None:
        """Reset the header limits at the first byte of a request."""
        super().on_message_begin()
        self._in_headers, self._is_between_requests = True, False
        self._header_bytes = -self._chunk_bytes  # exclude other bytes of the same chunk
        self._header_bytes_left = self._limits.max_header_bytes

    def on_url(self, url: bytes) -> None:
        """Count a part of the URL."""
        self._count_header_bytes(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Handle one header field. Trailer fields are counted and dropped (RFC 9110, section 6.5.1)."""
        self._count_header_bytes(len(name) + len(value) + HEADER_OVERHEAD_BYTES)
        if not self._in_headers:
            return
        if len(name) == len(_TRANSFER_ENCODING) and name.lower() == _TRANSFER_ENCODING and value.lower() != b"chunked":
            raise _ProtocolRefusal(_UNSUPPORTED_TRANSFER_ENCODING)  # RFC 9112, section 6.1
        super().on_header(name, value)

    def _count_header_bytes(self, length: int) -> None:
        self._header_bytes_left -= length
        if self._header_bytes_left < 0:
            raise _ProtocolRefusal(_HEADERS_TOO_LARGE)

    def on_headers_complete(self) -> None:
        """Start the request, or queue it behind the previous one."""
        if self.parser.should_upgrade():
            return
        self._in_headers = False
        self._stop_header_timer()
        if len(self.pipeline) >= MAX_PIPELINED_REQUESTS:
            raise _ProtocolRefusal(_HEADERS_TOO_LARGE)
        if not self._is_response_pending:  # from here on it waits for the body
            self._idle_connections.pop(self, None)
            self._idle_connections[self] = None
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """Prepare for the next request after the last byte of this one."""
        if self.parser.should_upgrade():
            return
        self._in_headers = self._is_between_requests = True
        self._header_bytes = -self._chunk_bytes
        self._stop_header_timer()
        if self._is_response_pending:
            self._idle_connections.pop(self, None)
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Make the connection idle after a response, which may be sent before the whole request has arrived."""
        self._stop_send_timer()
        super().on_response_complete()
        if self._on_lost is not None and not self.pipeline and (not self._is_response_pending or self.cycle.more_body):
            self._idle_connections[self] = None
        if not self._in_headers and not self._is_response_pending and not self.transport.is_closing():
            self._start_header_timer()  # the rest of the body is dropped, within a deadline

    def _start_header_timer(self) -> None:
        self._stop_header_timer()
        self._header_timer = self.loop.call_later(self._limits.header_seconds, self._on_header_timeout)

    def _stop_header_timer(self) -> None:
        if self._header_timer is not None:
            self._header_timer.cancel()
            self._header_timer = None

    def _stop_stall_timer(self) -> None:
        if self._stall_timer is not None:
            self._stall_timer.cancel()
            self._stall_timer = None

    def _stop_send_timer(self) -> None:
        if self._send_timer is not None:
            self._send_timer.cancel()
            self._send_timer = None

    def _on_header_timeout(self) -> None:
        self._header_timer = None
        if self._in_headers:
            self._counters.add(semconv.GATEWAY_REFUSED, limit="header_seconds")
        self.transport.abort()

    def _parse_without_upgrade(self, rest: bytes) -> None:
        """Parse a request again without its upgrade headers, which RFC 9110, section 7.8, allows a server to ignore.

        Java's HTTP client requests HTTP/2 with its first request, body included. The parser ignores the body then.
        """
        method = self.parser.get_method()
        if method == b"CONNECT":
            self._refuse(_BAD_REQUEST)
            return
        lines = [b"%s %s HTTP/%s" % (method, self.url, self.parser.get_http_version().encode())]
        lines += [name + b": " + value for name, value in self.headers if name not in _HOP_BY_HOP_HEADERS]
        self.parser = httptools.HttpRequestParser(self)
        self.data_received(b"\r\n".join([*lines, b"", rest]))

    def _refuse(self, response: bytes) -> None:
        """Send a final response and close the connection. A pending response takes its place."""
        if response is _HEADERS_TOO_LARGE:
            self._counters.add(semconv.GATEWAY_REFUSED, limit="max_header_bytes")
        if self._is_response_pending and not self.cycle.more_body:
            self.cycle.keep_alive = False
            return
        if not (self._is_response_pending and (self.cycle.response_started or self.pipeline)):
            self.transport.write(response)
        self.transport.close()
