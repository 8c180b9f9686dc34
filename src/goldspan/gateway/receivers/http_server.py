"""The door of HTTP: where it listens, how many connections there may be, and how they end.

uvicorn speaks HTTP here, and is not its own server: the cap on connections has to hold before TLS is spoken.
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
from goldspan._extras import require_server_extra
from goldspan.errors import ConfigurationError
from goldspan.gateway.receivers.http_protocol import TOO_MANY_CONNECTIONS, HttpConnection

if TYPE_CHECKING:
    from goldspan.gateway.gateway_counters import GatewayCounters
    from goldspan.gateway.resource_limits import ResourceLimits

RESERVED_FILES = 256
"""Open files of a worker that are no connections over HTTP: journal, store, back ends, gRPC."""
LISTEN_BACKLOG = 2_048
"""Connections that may wait to be taken."""
_UNAVAILABLE_ADDRESS_ERRORS = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)
"""An address that this machine lacks is no fault of the others of its name: `localhost` where there is no IPv6."""


def open_listening_sockets(host: str, port: int, *, reuse_port: bool = False) -> list[socket.socket]:
    """Sockets that listen on all addresses of a host: IPv4, IPv6, or a name; port 0 takes one that is free.

    `::` takes IPv4 as well where the system does that, as gRPC's does. Raises `ConfigurationError`.
    """
    listening: list[socket.socket] = []
    failure: OSError | None = None
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise ConfigurationError(f"cannot listen on {host!r}: {error}") from None
    for family, kind, protocol, _, address in dict.fromkeys(found):
        if listening and port == 0:
            address = (address[0], listening[0].getsockname()[1], *address[2:])
        try:
            listening.append(_bind_and_listen(socket.socket(family, kind, protocol), address, reuse_port=reuse_port))
        except OSError as error:
            failure = error
            if error.errno not in _UNAVAILABLE_ADDRESS_ERRORS:
                break
    if listening and (failure is None or failure.errno in _UNAVAILABLE_ADDRESS_ERRORS):
        return listening
    for one in listening:
        one.close()
    raise ConfigurationError(f"cannot listen on {host}, port {port}: {failure}")


def _bind_and_listen(one: socket.socket, address: tuple[Any, ...], *, reuse_port: bool) -> socket.socket:
    try:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if reuse_port:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if one.family == socket.AF_INET6:
            one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, address[0] != "::")
        one.bind(address)
        one.listen(LISTEN_BACKLOG)
        one.setblocking(False)
    except OSError:
        one.close()
        raise
    return one


def raise_open_file_limit(wanted: int) -> int:
    """Raise this process's soft limit of open files to what is wanted, as far as the hard one goes; what it is then."""
    try:
        import resource  # not on Windows, where there is no such limit
    except ImportError:
        return wanted
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        with suppress(ValueError, OSError):  # some systems have a lower bound of their own
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return wanted if soft == resource.RLIM_INFINITY else soft


with require_server_extra():
    from uvicorn.config import Config
    from uvicorn.server import ServerState

_log = logging.getLogger("goldspan.gateway")

_MAX_LINGERING = 100
_LINGER_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class TlsConfig:
    """A certificate with its chain, and its key, both in PEM."""

    cert_file: Path
    key_file: Path

    def create_context(self) -> ssl.SSLContext:
        """For a server that speaks TLS 1.2 or later. Raises `ConfigurationError` where the files are of no use."""
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
    """The listening side of HTTP, in the running event loop: `await start()`, and `await stop(seconds)` in the end."""

    def __init__(
        self,
        app: Any,
        limits: ResourceLimits,
        counting: GatewayCounters,
        *,
        host: str,
        port: int,
        tls: TlsConfig | None = None,
        reuse_port: bool = False,
    ) -> None:
        self.limits = limits
        self.counters = counting
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
        """The connections that wait for a request or the rest of one: whoever does for longest, first."""
        self.open_connections = 0
        self._lingering: deque[socket.socket] = deque()
        self._date_timer: asyncio.TimerHandle | None = None
        self._max_connections = limits.max_connections

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """Where it listens: hosts and ports."""
        return [one.getsockname()[:2] for one in self._sockets]

    @property
    def port(self) -> int:
        """The port that it listens on, the one that was free where 0 was asked for."""
        return self.addresses[0][1]

    async def start(self) -> None:
        """Listen and serve. Raises `ConfigurationError` for an address, a port or a certificate that cannot be used."""
        self.loop = asyncio.get_running_loop()
        self._ssl_context = self._tls.create_context() if self._tls else None
        self._sockets = open_listening_sockets(self._host, self._port, reuse_port=self._reuse_port)
        self._max_connections = self._connection_limit()
        self.config.load()
        self._update_date_header()
        self._accept_tasks = [self.loop.create_task(self._accept(one)) for one in self._sockets]

    async def stop(self, timeout: float) -> None:
        """Take no more connections, close those that wait, finish requests under way, and after so long end all.

        New connections are refused by the system from the start: another worker or machine takes them.
        """
        for task in self._accept_tasks:
            task.cancel()
        await asyncio.gather(*self._accept_tasks, return_exceptions=True)
        for one in self._sockets:
            one.close()
        self._close_lingering(0)
        for connection in list(self.state.connections):
            connection.shutdown()
        await self._wait_until_closed(timeout)
        for left in (*self.state.tasks, *self._opening_tasks):
            left.cancel()
        for connection in list(self.state.connections):
            connection.transport.abort()
        await self._wait_until_closed(1.0)
        if self._date_timer is not None:
            self._date_timer.cancel()

    async def _wait_until_closed(self, seconds: float) -> None:
        """Wait so long for requests to be answered and connections to be closed."""
        deadline = time.monotonic() + seconds
        while (self.state.connections or self.state.tasks or self._opening_tasks) and time.monotonic() < deadline:
            await asyncio.sleep(0.01)

    def _connection_limit(self) -> int:
        """How many connections there may be: as many as the limits and the system allow."""
        files = raise_open_file_limit(2 * self.limits.max_connections + RESERVED_FILES)
        fitting = max(1, min(self.limits.max_connections, files - RESERVED_FILES))
        if fitting < self.limits.max_connections:
            _log.warning("only %d connections: the system allows %d open files (ulimit -n)", fitting, files)
        return fitting

    def _update_date_header(self) -> None:
        """Once a second: what the header Date says."""
        assert self.loop is not None
        self.state.default_headers = [(b"date", formatdate(time.time(), usegmt=True).encode())]
        self._date_timer = self.loop.call_later(1.0, self._update_date_header)

    async def _accept(self, listening: socket.socket) -> None:
        assert self.loop is not None
        while True:
            try:
                accepted, _ = await self.loop.sock_accept(listening)
            except OSError as error:  # no file is left to open, or the client went away between
                _guard.report_error("take a connection", error, with_traceback=False)
                await asyncio.sleep(0.1)
                continue
            full = self.open_connections >= self._max_connections
            if full and not self._evict_idle_connection():
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
            if full:
                await asyncio.sleep(0)  # so that the file of the one that went is closed, however many come at once

    def _on_opened(self, connection: HttpConnection, accepted: socket.socket, opening: asyncio.Task[None]) -> None:
        self._opening_tasks.discard(opening)
        if connection.opening_task is not None:  # it never was a connection, so it is not lost either
            accepted.close()
            connection.release()

    def _evict_idle_connection(self) -> bool:
        """Close the connection that has waited for its client for longest; False where all are waited for themselves.

        So whoever only holds connections open keeps nobody out.
        """
        longest = next(iter(self._idle_connections), None)
        if longest is None:
            return False
        longest.evict()
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
        except OSError:  # gone, or no TLS was spoken, or not in time: nobody is left to tell
            accepted.close()

    def _on_connection_lost(self) -> None:
        self.open_connections -= 1

    def _refuse_connection(self, accepted: socket.socket) -> None:
        """Say that there is no room. Closing at once could take the answer back, where the client is still sending."""
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
