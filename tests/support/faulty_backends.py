"""Back ends on loopback, over HTTP and gRPC, whose answer to each request a test chooses."""

from __future__ import annotations

import gzip
import ssl
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator
from concurrent import futures
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socket import SHUT_RDWR, socket
from typing import Any

import grpc
from google.protobuf.any_pb2 import Any as AnyMessage
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

_SERVICES = {"trace": "traces", "logs": "logs", "metrics": "metrics"}


@dataclass(frozen=True)
class Answer:
    """The answer to a request: a status over HTTP, a code over gRPC."""

    status: int = 200
    code: str = "OK"
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    retry_seconds: float | None = None
    details: str = ""
    half: bool = False
    """Whether the connection closes in the middle of the answer."""

    @property
    def took(self) -> bool:
        return self.status == 200 and not self.half


TAKE = Answer()
BUSY = Answer(503, "UNAVAILABLE", details="come back later")
ABSENT = Answer(404, "UNIMPLEMENTED", details="no such thing here")
UNKNOWN_TOKEN = Answer(401, "UNAUTHENTICATED", details="who are you?")
WRONG = Answer(400, "INVALID_ARGUMENT", details="this is wrong")
TOO_LARGE = Answer(413, "RESOURCE_EXHAUSTED", details="grpc: received message larger than max (9 vs. 4)")
HALF = Answer(half=True)


@dataclass(frozen=True)
class Request:
    """One received request."""

    signal: str
    body: bytes
    headers: dict[str, str]
    path: str


Behaviour = Callable[[Request], Answer]


class BackEnd(ABC):
    """Keeps the received and the accepted requests. The answers are those of `script`, then those of `behave`."""

    scheme = ""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.taken: list[Request] = []
        self.script: deque[Answer] = deque()
        self.behave: Behaviour = lambda _: TAKE
        self.port = 0
        self._lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.port}"

    def bodies(self, signal: str = "traces") -> list[bytes]:
        with self._lock:
            return [request.body for request in self.taken if request.signal == signal]

    def handle(self, request: Request) -> Answer:
        with self._lock:
            self.requests.append(request)
            answer = self.script.popleft() if self.script else None
        answer = answer or self.behave(request)
        if answer.took:
            with self._lock:
                self.taken.append(request)
        return answer

    @abstractmethod
    def start(self) -> None:
        """Listen, on the same port as before."""

    @abstractmethod
    def stop(self) -> None:
        """Stop listening, and close all connections."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, port: int, backend: HttpBackEnd, context: ssl.SSLContext | None) -> None:
        self.backend = backend
        self.connections: set[socket] = set()
        self._context = context
        super().__init__(("127.0.0.1", port), _Handler)

    def get_request(self) -> tuple[socket, Any]:
        connection, address = super().get_request()
        if self._context is None:
            return connection, address
        try:
            connection.getpeername()  # if the client has disconnected, Python's TLS never closes the socket
            return self._context.wrap_socket(connection, server_side=True, do_handshake_on_connect=False), address
        except OSError:
            connection.close()
            raise

    def handle_error(self, *_: Any) -> None:
        """Ignore closed connections: the tests close them on purpose."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Server

    def setup(self) -> None:
        super().setup()
        self.server.connections.add(self.connection)
        self.server.backend.connections += 1

    def finish(self) -> None:
        super().finish()
        self.server.connections.discard(self.connection)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        headers = {name.lower(): value for name, value in self.headers.items()}
        if headers.get("content-encoding") == "gzip":
            body = gzip.decompress(body)
        answer = self.server.backend.handle(Request(self.path.rpartition("/")[2], body, headers, self.path))
        self.send_response(answer.status)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        text = answer.body or (b"" if answer.took else answer.details.encode())
        self.send_header("Content-Length", str(len(text) + (100 if answer.half else 0)))
        self.end_headers()
        self.wfile.write(text)
        if answer.half:
            self.wfile.flush()
            self.connection.shutdown(SHUT_RDWR)
            self.close_connection = True

    def do_GET(self) -> None:
        self.server.backend.handle(Request("", b"", {}, self.path))
        self.send_error(405)

    def log_message(self, *_: object) -> None: ...


class HttpBackEnd(BackEnd):
    """Accepts OTLP/HTTP on persistent connections."""

    scheme = "http"

    def __init__(self) -> None:
        super().__init__()
        self.connections = 0
        self._server: _Server | None = None

    def start(self) -> None:
        self._listen()

    def _listen(self, context: ssl.SSLContext | None = None) -> None:
        self._server = _Server(self.port, self, context)
        self.port = self._server.server_port
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()

    def stop(self) -> None:
        if self._server is None:
            return
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
        for connection in list(self._server.connections):
            try:
                connection.shutdown(SHUT_RDWR)
            except OSError:
                continue  # the client has disconnected
        self._server = None


class TlsHttpBackEnd(HttpBackEnd):
    """Presents a certificate, and requires one from the client."""

    scheme = "https"

    def __init__(self, certificates: Path) -> None:
        super().__init__()
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(certificates / "it.pem", certificates / "it.key")
        self._context.load_verify_locations(certificates / "ca.pem")
        self._context.verify_mode = ssl.CERT_REQUIRED

    def start(self) -> None:
        self._listen(self._context)


class GrpcBackEnd(BackEnd):
    """Accepts OTLP/gRPC, and keeps the received bytes."""

    scheme = "grpc"

    def __init__(self) -> None:
        super().__init__()
        self._server: Any = None

    def start(self) -> None:
        self._pool = futures.ThreadPoolExecutor(8)
        self._server = grpc.server(self._pool, options=[("grpc.max_receive_message_length", -1)])
        self._server.add_generic_rpc_handlers((_Exports(self),))
        self.port = self._bind(f"127.0.0.1:{self.port}")
        self._server.start()

    def _bind(self, address: str) -> int:
        return self._server.add_insecure_port(address)

    def stop(self) -> None:
        if self._server is None:
            return
        self._server.stop(None).wait()
        self._pool.shutdown()
        self._server = None


class TlsGrpcBackEnd(GrpcBackEnd):
    """Presents a certificate, and requires one from the client."""

    scheme = "grpcs"

    def __init__(self, certificates: Path) -> None:
        super().__init__()
        read = [(certificates / name).read_bytes() for name in ("it.key", "it.pem", "ca.pem")]
        self._credentials = grpc.ssl_server_credentials([(read[0], read[1])], read[2], require_client_auth=True)

    def _bind(self, address: str) -> int:
        return self._server.add_secure_port(address, self._credentials)


class _Exports(grpc.GenericRpcHandler):
    def __init__(self, backend: GrpcBackEnd) -> None:
        self._backend = backend

    def service(self, details: Any) -> Any:
        signal = _SERVICES[details.method.split(".")[3]]
        metadata = dict(details.invocation_metadata)

        def export(body: bytes, context: Any) -> bytes:
            answer = self._backend.handle(Request(signal, body, metadata, details.method))
            if answer.half:
                context.abort(grpc.StatusCode.UNAVAILABLE, "Socket closed")
            if answer.code != "OK":
                context.set_trailing_metadata(tuple(trailing(answer)))
                context.abort(getattr(grpc.StatusCode, answer.code), answer.details)
            return answer.body

        return grpc.unary_unary_rpc_method_handler(export)


def trailing(answer: Answer) -> Iterator[tuple[str, bytes]]:
    if answer.retry_seconds is not None:
        info, detail = RetryInfo(), AnyMessage()
        info.retry_delay.FromNanoseconds(int(answer.retry_seconds * 1e9))
        detail.Pack(info)
        yield "grpc-status-details-bin", Status(code=8, details=[detail]).SerializeToString()


@contextmanager
def running(backend: BackEnd) -> Iterator[BackEnd]:
    """Run a back end until the block ends."""
    backend.start()
    try:
        yield backend
    finally:
        backend.stop()


class Gate:
    """Makes requests wait until the gate is opened."""

    def __init__(self, then: Answer = TAKE) -> None:
        self._open = threading.Event()
        self._then = then

    def __call__(self, _: Request) -> Answer:
        assert self._open.wait(60)
        return self._then

    def open(self) -> None:
        self._open.set()


def until(met: Callable[[], object], what: str = "it") -> None:
    """Wait until a condition holds, and fail after a minute."""
    deadline = time.monotonic() + 60
    while not met():
        assert time.monotonic() < deadline, f"{what} did not happen"
        time.sleep(0.01)


def traces(*names: str) -> bytes:
    """Build a request with spans of these names: three in each scope, two scopes in each resource."""
    request = ExportTraceServiceRequest()
    for at, name in enumerate(names):
        if at % 6 == 0:
            request.resource_spans.add(schema_url="https://schema").resource.dropped_attributes_count = at
        if at % 3 == 0:
            request.resource_spans[-1].scope_spans.add().scope.name = f"scope of {name}"
        span = request.resource_spans[-1].scope_spans[-1].spans.add(name=name, trace_id=b"t" * 16, span_id=b"s" * 8)
        span.attributes.add(key="at").value.int_value = at
    return request.SerializeToString()


def span_names(body: bytes) -> list[str]:
    """Return the names of the spans in a request."""
    request = ExportTraceServiceRequest.FromString(body)
    return [span.name for each in request.resource_spans for scope in each.scope_spans for span in scope.spans]
