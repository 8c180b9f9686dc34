"""The door of HTTP: where it listens, how many connections there may be, and how they end.

uvicorn speaks HTTP here, and is not its own server: the cap on connections has to hold before TLS is spoken.
"""

from __future__ import annotations

import asyncio
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
from goldspan.errors import ConfigurationError
from goldspan.gateway.doors.http_connection import TOO_MANY, HttpConnection
from goldspan.gateway.doors.listening import FILES_BESIDE, allow_open_files, listen
from goldspan.gateway.extra import needed

with needed():
    from uvicorn.config import Config
    from uvicorn.server import ServerState

if TYPE_CHECKING:
    from goldspan.gateway.counting import Counting
    from goldspan.gateway.limits import Limits

_log = logging.getLogger("goldspan.gateway")

_LINGERING = 100
_LINGER_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Tls:
    """A certificate with its chain, and its key, both in PEM."""

    cert_file: Path
    key_file: Path

    def context(self) -> ssl.SSLContext:
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


class HttpDoor:
    """The listening side of HTTP, in the running event loop: `await start()`, and `await stop(seconds)` in the end."""

    def __init__(
        self,
        app: Any,
        limits: Limits,
        counting: Counting,
        *,
        host: str,
        port: int,
        tls: Tls | None = None,
        reuse_port: bool = False,
    ) -> None:
        self.limits = limits
        self.counting = counting
        self.loop: asyncio.AbstractEventLoop | None = None
        self.state = ServerState()
        self.config = Config(
            app, interface="asgi3", http=HttpConnection, ws="none", lifespan="off", loop="none", log_config=None,
            access_log=False, proxy_headers=False, server_header=False, timeout_keep_alive=limits.keep_alive_seconds,  # type: ignore[arg-type]
        )  # fmt: skip
        self._host, self._port, self._reuse_port = host, port, reuse_port
        self._tls = tls
        self._context: ssl.SSLContext | None = None
        self._listening: list[socket.socket] = []
        self._accepting: list[asyncio.Task[None]] = []
        self._opening: set[asyncio.Task[None]] = set()
        self._waiting: dict[HttpConnection, None] = {}
        """The connections that wait for a request or the rest of one: whoever does for longest, first."""
        self.open = 0
        self._lingering: deque[socket.socket] = deque()
        self._clock: asyncio.TimerHandle | None = None
        self._max_connections = limits.max_connections

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """Where it listens: hosts and ports."""
        return [one.getsockname()[:2] for one in self._listening]

    @property
    def port(self) -> int:
        """The port that it listens on, the one that was free where 0 was asked for."""
        return self.addresses[0][1]

    async def start(self) -> None:
        """Listen and serve. Raises `ConfigurationError` for an address, a port or a certificate that cannot be used."""
        self.loop = asyncio.get_running_loop()
        self._context = self._tls.context() if self._tls else None
        self._listening = listen(self._host, self._port, reuse_port=self._reuse_port)
        self._max_connections = self._fitting()
        self.config.load()
        self._tick()
        self._accepting = [self.loop.create_task(self._accept(one)) for one in self._listening]

    async def stop(self, seconds: float) -> None:
        """Take no more connections, close those that wait, finish requests under way, and after so long end all.

        New connections are refused by the system from the start: another worker or machine takes them.
        """
        for task in self._accepting:
            task.cancel()
        await asyncio.gather(*self._accepting, return_exceptions=True)
        for one in self._listening:
            one.close()
        self._forget_lingering(0)
        for connection in list(self.state.connections):
            connection.shutdown()
        await self._finish(seconds)
        for left in (*self.state.tasks, *self._opening):
            left.cancel()
        for connection in list(self.state.connections):
            connection.transport.abort()
        await self._finish(1.0)
        if self._clock is not None:
            self._clock.cancel()

    async def _finish(self, seconds: float) -> None:
        """Wait so long for requests to be answered and connections to be closed."""
        deadline = time.monotonic() + seconds
        while (self.state.connections or self.state.tasks or self._opening) and time.monotonic() < deadline:
            await asyncio.sleep(0.01)

    def _fitting(self) -> int:
        """How many connections there may be: as many as the limits and the system allow."""
        files = allow_open_files(2 * self.limits.max_connections + FILES_BESIDE)
        fitting = max(1, min(self.limits.max_connections, files - FILES_BESIDE))
        if fitting < self.limits.max_connections:
            _log.warning("only %d connections: the system allows %d open files (ulimit -n)", fitting, files)
        return fitting

    def _tick(self) -> None:
        """Once a second: what the header Date says."""
        assert self.loop is not None
        self.state.default_headers = [(b"date", formatdate(time.time(), usegmt=True).encode())]
        self._clock = self.loop.call_later(1.0, self._tick)

    async def _accept(self, listening: socket.socket) -> None:
        assert self.loop is not None
        while True:
            try:
                accepted, _ = await self.loop.sock_accept(listening)
            except OSError as error:  # no file is left to open, or the client went away between
                _guard.report("take a connection", error, traceback=False)
                await asyncio.sleep(0.1)
                continue
            full = self.open >= self._max_connections
            if full and not self._make_room():
                self._turn_away(accepted)
                continue
            self.open += 1
            connection = HttpConnection(
                self.config, self.state, self.limits, self.counting, on_lost=self._lose, waiting=self._waiting
            )
            connection.opening = opening = self.loop.create_task(self._connect(accepted, connection))
            self._opening.add(opening)
            opening.add_done_callback(partial(self._opened, connection, accepted))
            if full:
                await asyncio.sleep(0)  # so that the file of the one that went is closed, however many come at once

    def _opened(self, connection: HttpConnection, accepted: socket.socket, opening: asyncio.Task[None]) -> None:
        self._opening.discard(opening)
        if connection.opening is not None:  # it never was a connection, so it is not lost either
            accepted.close()
            connection.lose()

    def _make_room(self) -> bool:
        """Close the connection that has waited for its client for longest; False where all are waited for themselves.

        So whoever only holds connections open keeps nobody out.
        """
        longest = next(iter(self._waiting), None)
        if longest is None:
            return False
        longest.make_room()
        self.counting.add(semconv.GATEWAY_REFUSED, limit="max_connections")
        return True

    async def _connect(self, accepted: socket.socket, connection: HttpConnection) -> None:
        assert self.loop is not None
        seconds = self.limits.header_seconds if self._context else None
        try:
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await self.loop.connect_accepted_socket(
                lambda: connection, accepted, ssl=self._context, ssl_handshake_timeout=seconds
            )
        except OSError:  # gone, or no TLS was spoken, or not in time: nobody is left to tell
            accepted.close()

    def _lose(self) -> None:
        self.open -= 1

    def _turn_away(self, accepted: socket.socket) -> None:
        """Say that there is no room. Closing at once could take the answer back, where the client is still sending."""
        self.counting.add(semconv.GATEWAY_REFUSED, limit="max_connections")
        if self._context is not None:
            accepted.close()
            return
        assert self.loop is not None
        with suppress(OSError):
            accepted.send(TOO_MANY)
            accepted.shutdown(socket.SHUT_WR)
        self._lingering.append(accepted)
        self.loop.call_later(_LINGER_SECONDS, accepted.close)
        self._forget_lingering(_LINGERING)

    def _forget_lingering(self, most: int) -> None:
        while len(self._lingering) > most:
            self._lingering.popleft().close()
