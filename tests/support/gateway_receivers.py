"""Runs the HTTP and gRPC receivers of a worker on real sockets, a real journal and a loop in a thread; and clients."""

from __future__ import annotations

import asyncio
import http.client
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import uvloop
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from starlette.routing import Route

from goldspan.gateway.gateway_counters import GatewayCounters
from goldspan.gateway.journal.journal import Journal, JournalEntry
from goldspan.gateway.receivers.authorization import Authorizer
from goldspan.gateway.receivers.grpc import start_grpc_server
from goldspan.gateway.receivers.http import HttpApplication, create_application
from goldspan.gateway.receivers.http_server import HttpServer, TlsConfig
from goldspan.gateway.receivers.ingest import Receiver
from goldspan.gateway.resource_limits import ResourceLimits
from support.metric_readers import Meter

PATIENCE = 30.0
"""The longest wait for what must happen, in seconds."""


def until(true: Callable[[], Any], what: str = "what was waited for") -> Any:
    """Poll until the condition is true, and return its value."""
    deadline = time.monotonic() + PATIENCE
    while not (found := true()):
        assert time.monotonic() < deadline, f"{what} did not happen"
        time.sleep(0.01)
    return found


def export_request(spans: int = 1, name: str = "a span", trace: int = 1) -> bytes:
    """Build an OTLP request with `spans` spans of one trace."""
    request = ExportTraceServiceRequest()
    scope = request.resource_spans.add().scope_spans.add()
    for number in range(1, spans + 1):
        scope.spans.add(
            trace_id=trace.to_bytes(16, "big"),
            span_id=number.to_bytes(8, "big"),
            name=name,
            start_time_unix_nano=1_700_000_000_000_000_000 + number,
            end_time_unix_nano=1_700_000_001_000_000_000 + number,
        )
    return request.SerializeToString()


@dataclass
class Reply:
    """An HTTP response."""

    status: int
    headers: dict[str, str]
    body: bytes


class Wire:
    """A client connection over which a test sends any bytes at any time."""

    def __init__(self, port: int, host: str = "127.0.0.1", context: ssl.SSLContext | None = None) -> None:
        self.socket: socket.socket = socket.create_connection((host, port), timeout=PATIENCE)
        if context is not None:
            self.socket = context.wrap_socket(self.socket, server_hostname="localhost")

    def send(self, *pieces: bytes) -> None:
        for piece in pieces:
            self.socket.sendall(piece)

    def reply(self, method: str = "POST") -> Reply:
        """Read the next response, and no byte of the one after it."""
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            byte = self.socket.recv(1)
            assert byte, f"the connection was closed after {head!r}"
            head += byte
        status, *lines = head.decode().split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines if line)}
        body = bytearray()
        length = 0 if method == "HEAD" else int(headers.get("content-length", 0))
        while len(body) < length:
            piece = self.socket.recv(min(length - len(body), 2**16))
            assert piece, f"the connection was closed after {len(body)} of {length} bytes"
            body += piece
        return Reply(int(status.split()[1]), headers, bytes(body))

    def is_closed(self) -> bool:
        """Wait for the next byte or the end of the connection; return whether it was closed."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionError:
            return True

    def close(self) -> None:
        self.socket.close()


def head(path: str = "/v1/traces", *lines: str, method: str = "POST", media: str = "application/x-protobuf") -> bytes:
    """Build the head of a request."""
    content = [f"content-type: {media}"] if media else []
    return "\r\n".join([f"{method} {path} HTTP/1.1", "host: localhost", *content, *lines, "", ""]).encode()


def whole(body: bytes, path: str = "/v1/traces", *lines: str, **options: str) -> bytes:
    """Build a request with its body."""
    return head(path, f"content-length: {len(body)}", *lines, **options) + body


@dataclass
class RunningReceivers:
    """The HTTP and gRPC receivers of a worker, with its journal."""

    path: Path
    limits: ResourceLimits = field(default_factory=ResourceLimits)
    authority: Authorizer = field(default_factory=lambda: Authorizer(allowed_hosts=("localhost", "127.0.0.1", "::1")))
    routes: Sequence[Route] = ()
    tls: TlsConfig | None = None
    host: str = "127.0.0.1"
    loop: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    grpc_port: int = 0
    why_not_ready: str | None = None
    journal_bytes: int = 2**30

    def __post_init__(self) -> None:
        self.meter = Meter()
        self.wires: list[Wire] = []
        self.journal = Journal(self.path, max_bytes=self.journal_bytes)
        self.failure: BaseException | None = None
        self._started = threading.Event()
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name="receivers")

    def start(self) -> RunningReceivers:
        self._thread.start()
        self._started.wait(PATIENCE)
        if self.failure is not None:
            self._thread.join(PATIENCE)
            self.journal.close(PATIENCE)
            self.meter.provider.shutdown()
            raise self.failure
        return self

    def stop(self, seconds: float = 5.0) -> None:
        """Stop as a worker does: accept no further request, and answer the pending ones within `seconds`."""
        if self._stopped:
            return
        self._stopped = True
        if self._thread.is_alive():
            self.running.call_soon_threadsafe(self._stopping.set_result, seconds)
            self._thread.join(PATIENCE)
        assert not self._thread.is_alive()
        self.journal.close(PATIENCE)
        for wire in self.wires:
            wire.close()
        self.meter.provider.shutdown()

    def _run(self) -> None:
        self.running = self.loop()
        try:
            self.running.run_until_complete(self._serve())
        except BaseException as failure:  # noqa: BLE001 - `start` raises it in the test
            self.failure = failure
        finally:
            self._started.set()
            self.running.run_until_complete(self.running.shutdown_asyncgens())
            self.running.close()

    async def _serve(self) -> None:
        self._stopping: asyncio.Future[float] = self.running.create_future()
        counting = GatewayCounters(self.meter.provider)
        self.receiver = Receiver(self.journal, self.limits, counting, partitioned=False)
        self.app: HttpApplication = create_application(
            self.receiver, self.authority, routes=self.routes, not_ready_reason=lambda: self.why_not_ready
        )
        self.http = HttpServer(self.app, self.limits, counting, host=self.host, port=0, tls=self.tls)
        await self.http.start()
        try:
            server, self.grpc_port = await start_grpc_server(
                self.receiver, self.authority, self.limits, host=self.host, port=self.grpc_port, tls=self.tls
            )
        except BaseException:
            await self.http.stop(0)
            raise
        self._started.set()
        seconds = await self._stopping
        self.receiver.drain()
        await asyncio.gather(self.http.stop(seconds), server.stop(seconds))
        self.receiver.close()

    @property
    def url(self) -> str:
        return f"{'https' if self.tls else 'http'}://localhost:{self.http.port}"

    def entries(self) -> list[JournalEntry]:
        """Return the acknowledged requests."""
        return self.journal.read(0, max_bytes=2**30, max_entries=100_000)

    def count(self, name: str, *labels: str) -> dict[tuple[Any, ...], Any]:
        """Return the values of a counter by its labels, which are given without the prefix `goldspan.`."""
        return self.meter.counts(name, *(f"goldspan.{label}" for label in labels))

    def wire(self) -> Wire:
        self.wires.append(Wire(self.http.port))
        return self.wires[-1]

    def ask(self, method: str, path: str, body: bytes | None = None, **headers: str) -> Reply:
        """Send one request on a new connection."""
        connection = http.client.HTTPConnection("localhost", self.http.port, timeout=PATIENCE)
        try:
            given = {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request(method, path, body, given)
            response = connection.getresponse()
            return Reply(response.status, {k.lower(): v for k, v in response.getheaders()}, response.read())
        finally:
            connection.close()

    def post(self, body: bytes, path: str = "/v1/traces", media: str = "application/x-protobuf", **more: str) -> Reply:
        return self.ask("POST", path, body, content_type=media, **more)


LONG_TO_READ = export_request(1, "x" * 600_000)
"""A request so large that the receiver validates it in a thread."""


@contextmanager
def readers_busy(receivers: RunningReceivers) -> Iterator[None]:
    """Keep all threads that validate large requests busy until the block ends."""
    done = threading.Event()
    for _ in range(2):
        receivers.receiver._validators.submit(done.wait)
    try:
        yield
    finally:
        done.set()


OpenDoors = Callable[..., RunningReceivers]
