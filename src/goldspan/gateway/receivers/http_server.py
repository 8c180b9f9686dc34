"""The HTTP server of the gateway: listening sockets, TLS, the connection limit and the shutdown.

uvicorn provides the HTTP protocol but not the server, because the connection limit must apply before the TLS handshake.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import ssl
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from email.utils import formatdate
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from goldspan import _guard, semconv
from goldspan._extras import require_extra
from goldspan.errors import ConfigurationError
from goldspan.gateway.receivers.http_protocol import TOO_MANY_CONNECTIONS, HttpConnection

with require_extra("server"):
    from uvicorn.config import Config
    from uvicorn.server import ServerState

if TYPE_CHECKING:
    from goldspan.gateway.gateway_counters import GatewayCounters
    from goldspan.gateway.resource_limits import ResourceLimits

RESERVED_FILES = 256
"""Open files of a worker for other purposes than HTTP connections: journal, store, back ends, gRPC."""
LISTEN_BACKLOG = 2_048
"""Connections that may wait to be accepted."""
_UNAVAILABLE_ADDRESS_ERRORS = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)
"""Errors for an address that this machine lacks, such as the IPv6 address of `localhost`. They are ignored if another
address of the host works."""
_MAX_LINGERING = 100
_LINGER_SECONDS = 1.0

_log = logging.getLogger("goldspan.gateway")


@dataclass(frozen=True, slots=True)
class TlsConfig:
    """The files of a certificate with its chain, and of its key, both in PEM."""

    cert_file: Path
    key_file: Path

    def create_context(self) -> ssl.SSLContext:
        """Return a server context for TLS 1.2 or later. Raises `ConfigurationError` if the files cannot be used."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            context.load_cert_chain(self.cert_file, self.key_file)
        except OSError as error:  # ssl.SSLError is one
            raise ConfigurationError(
                f"cannot use the certificate {self.cert_file} with {self.key_file}: {error}"
            ) from None
        return context


class HttpServer:
    """An HTTP server in the running event loop: `await start()`, and finally `await stop(seconds)`."""

    def __init__(
        self,
        app: Any,
        limits: ResourceLimits,
        counters: GatewayCounters,
        *,
        host: str,
        port: int,
        tls: TlsConfig | None = None,
        reuse_port: bool = False,
    ) -> None:
        self.limits = limits
        self.counters = counters
        self.loop: asyncio.AbstractEventLoop | None = None
        self.state = ServerState()
        self.config = Config(
            app, interface="asgi3", http=HttpConnection, ws="none", lifespan="off", loop="none", log_config=None,
            access_log=False, proxy_headers=False, server_header=False, timeout_keep_alive=limits.keep_alive_seconds,  # type: ignore[arg-type]
        )  # fmt: skip
        self._host, self._port, self._reuse_port = host, port, reuse_port
        self._tls = tls
        self._ssl_context: ssl.SSLContext | None = None
        self._sockets: list[socket.socket] = []
        self._accept_tasks: list[asyncio.Task[None]] = []
        self._opening_tasks: set[asyncio.Task[None]] = set()
        self._idle_connections: dict[HttpConnection, None] = {}
        """The connections that wait for a request or the rest of one from their client; the longest idle first."""
        self.open_connections = 0
        self._lingering: deque[socket.socket] = deque()
        self._date_timer: asyncio.TimerHandle | None = None
        self._max_connections = limits.max_connections

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """The hosts and ports that the server listens on."""
        return [listener.getsockname()[:2] for listener in self._sockets]

    @property
    def port(self) -> int:
        """The port that the server listens on; the chosen one if 0 was requested."""
        return self.addresses[0][1]

    async def start(self) -> None:
        """Listen and serve. Raises `ConfigurationError` if the address, the port or the certificate cannot be used."""
        self.loop = asyncio.get_running_loop()
        self._ssl_context = self._tls.create_context() if self._tls else None
        self._sockets = open_listening_sockets(self._host, self._port, reuse_port=self._reuse_port)
        self._max_connections = self._connection_limit()
        self.config.load()
        self._update_date_header()
        self._accept_tasks = [self.loop.create_task(self._accept(listener)) for listener in self._sockets]

    async def stop(self, timeout: float) -> None:
        """Close sockets and idle connections, and finish running requests, which are aborted after `timeout` seconds.

        The system refuses new connections at once, so that another worker or machine accepts them.
        """
        for task in self._accept_tasks:
            task.cancel()
        await asyncio.gather(*self._accept_tasks, return_exceptions=True)
        for listener in self._sockets:
            listener.close()
        self._close_lingering(0)
        for connection in list(self.state.connections):
            connection.shutdown()
        await self._wait_until_closed(timeout)
        for unfinished in (*self.state.tasks, *self._opening_tasks):
            unfinished.cancel()
        for connection in list(self.state.connections):
            connection.transport.abort()
        await self._wait_until_closed(1.0)
        if self._date_timer is not None:
            self._date_timer.cancel()

    async def _wait_until_closed(self, seconds: float) -> None:
        """Wait until all requests are finished and all connections closed, at most for this time."""
        deadline = time.monotonic() + seconds
        while (self.state.connections or self.state.tasks or self._opening_tasks) and time.monotonic() < deadline:
            await asyncio.sleep(0.01)

    def _connection_limit(self) -> int:
        """Return the maximum of connections that the limits and the system allow."""
        files = raise_open_file_limit(2 * self.limits.max_connections + RESERVED_FILES)
        allowed = max(1, min(self.limits.max_connections, files - RESERVED_FILES))
        if allowed < self.limits.max_connections:
            _log.warning("only %d connections: the system allows %d open files (ulimit -n)", allowed, files)
        return allowed

    def _update_date_header(self) -> None:
        """Update the Date header, once a second."""
        assert self.loop is not None
        self.state.default_headers = [(b"date", formatdate(time.time(), usegmt=True).encode())]
        self._date_timer = self.loop.call_later(1.0, self._update_date_header)

    async def _accept(self, listener: socket.socket) -> None:
        assert self.loop is not None
        while True:
            try:
                accepted, _ = await self.loop.sock_accept(listener)
            except OSError as error:  # too many open files, or the client has disconnected
                _guard.report_error("accept a connection", error, with_traceback=False)
                await asyncio.sleep(0.1)
                continue
            is_full = self.open_connections >= self._max_connections
            if is_full and not self._evict_idle_connection():
                self._refuse_connection(accepted)
                continue
            self.open_connections += 1
            connection = HttpConnection(
                self.config,
                self.state,
                self.limits,
                self.counters,
                on_lost=self._on_connection_lost,
                idle_connections=self._idle_connections,
            )
            connection.opening_task = opening = self.loop.create_task(self._open_connection(accepted, connection))
            self._opening_tasks.add(opening)
            opening.add_done_callback(partial(self._on_opened, connection, accepted))
            if is_full:
                await asyncio.sleep(0)  # closes the socket of the evicted connection, even if many arrive at once

    def _on_opened(self, connection: HttpConnection, accepted: socket.socket, opening: asyncio.Task[None]) -> None:
        self._opening_tasks.discard(opening)
        if connection.opening_task is not None:  # it was never open, so `connection_lost` is not called
            accepted.close()
            connection.release()

    def _evict_idle_connection(self) -> bool:
        """Close the longest idle connection, so that idle clients block no others. Returns False if none is idle."""
        oldest = next(iter(self._idle_connections), None)
        if oldest is None:
            return False
        oldest.evict()
        self.counters.add(semconv.GATEWAY_REFUSED, limit="max_connections")
        return True

    async def _open_connection(self, accepted: socket.socket, connection: HttpConnection) -> None:
        assert self.loop is not None
        seconds = self.limits.header_seconds if self._ssl_context else None
        try:
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await self.loop.connect_accepted_socket(
                lambda: connection, accepted, ssl=self._ssl_context, ssl_handshake_timeout=seconds
            )
        except OSError:  # the client disconnected, or its TLS handshake failed or timed out
            accepted.close()

    def _on_connection_lost(self) -> None:
        self.open_connections -= 1

    def _refuse_connection(self, accepted: socket.socket) -> None:
        """Respond with 503 (without TLS), and close later: a client that is still sending could lose the response."""
        self.counters.add(semconv.GATEWAY_REFUSED, limit="max_connections")
        if self._ssl_context is not None:
            accepted.close()
            return
        assert self.loop is not None
        with suppress(OSError):
            accepted.send(TOO_MANY_CONNECTIONS)
            accepted.shutdown(socket.SHUT_WR)
        self._lingering.append(accepted)
        self.loop.call_later(_LINGER_SECONDS, accepted.close)
        self._close_lingering(_MAX_LINGERING)

    def _close_lingering(self, keep: int) -> None:
        while len(self._lingering) > keep:
            self._lingering.popleft().close()


def open_listening_sockets(host: str, port: int, *, reuse_port: bool = False) -> list[socket.socket]:
    """Return listening sockets for all addresses of a host: IPv4, IPv6, or a name. Port 0 chooses a free port.

    `::` also accepts IPv4 if the system supports that, as in gRPC. Raises `ConfigurationError`.
    """
    sockets: list[socket.socket] = []
    failure: OSError | None = None
    try:
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise ConfigurationError(f"cannot listen on {host!r}: {error}") from None
    for family, kind, protocol, _, address in dict.fromkeys(addresses):
        if sockets and port == 0:
            address = (address[0], sockets[0].getsockname()[1], *address[2:])
        try:
            sockets.append(_bind_and_listen(socket.socket(family, kind, protocol), address, reuse_port=reuse_port))
        except OSError as error:
            failure = error
            if error.errno not in _UNAVAILABLE_ADDRESS_ERRORS:
                break
    if sockets and (failure is None or failure.errno in _UNAVAILABLE_ADDRESS_ERRORS):
        return sockets
    for listener in sockets:
        listener.close()
    raise ConfigurationError(f"cannot listen on {host}, port {port}: {failure}")


def _bind_and_listen(listener: socket.socket, address: tuple[Any, ...], *, reuse_port: bool) -> socket.socket:
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if reuse_port:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if listener.family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, address[0] != "::")
        listener.bind(address)
        listener.listen(LISTEN_BACKLOG)
        listener.setblocking(False)
    except OSError:
        listener.close()
        raise
    return listener


def raise_open_file_limit(wanted: int) -> int:
    """Raise the soft limit of open files towards `wanted`, within the hard limit. Returns the resulting limit."""
    try:
        import resource  # not on Windows, which has no such limit
    except ImportError:
        return wanted
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        with suppress(ValueError, OSError):  # some systems have a lower maximum of their own
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return wanted if soft == resource.RLIM_INFINITY else soft
