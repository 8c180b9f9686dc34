"""A product over real sockets that can be down, be slow, refuse, fail or break off, and keeps its scores."""

from __future__ import annotations

import json
import socket
import threading
import time
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal, get_args

Behaviour = Literal["healthy", "down", "slow", "401", "413", "429", "500", "half-answered"]
FAILURES: tuple[Behaviour, ...] = tuple(each for each in get_args(Behaviour) if each != "healthy")
_PIECES = 40
"""The number of parts of a slow reply."""

Revision = tuple[str, int]
"""The id of a run and the revision of its scores."""


class FailingProduct:
    """A server with the API of Phoenix. Its port stays reserved while it is down.

    Args:
        slow_seconds: How long a slow reply takes. Nothing is stored before its end.
        retry_after: The seconds that it asks to wait with the status 429.
    """

    def __init__(self, *, slow_seconds: float = 40.0, retry_after: int = 2) -> None:
        self.behaviour: Behaviour = "healthy"
        self.requests: dict[Behaviour, int] = {}
        """The number of requests during each behaviour."""
        self.acknowledged: dict[Revision, int] = {}
        """How often the client got a whole reply that says that a revision is stored."""
        self.unacknowledged: dict[Revision, int] = {}
        """How often a revision was stored, and the reply broke off."""
        self.stored: dict[str, int] = {}
        """The stored revision of each run, as a product that replaces scores has it."""
        self.faults: list[str] = []
        """Requests that a correct client does not send."""
        self._slow_seconds = slow_seconds
        self._retry_after = retry_after
        self._lock = threading.Lock()
        self._connections: set[socket.socket] = set()
        self._reservation: socket.socket | None = None
        self._server = self._listen(0)
        self.port = int(self._server.server_port)
        self.url = f"http://127.0.0.1:{self.port}"

    def play(self, behaviour: Behaviour) -> None:
        """Behave so from now on. Open connections are closed when the product goes down."""
        was_down, self.behaviour = self.behaviour == "down", behaviour
        if behaviour == "down" and not was_down:
            self._stop()
            self._reservation = _bound_socket(self.port)
        elif was_down and behaviour != "down":
            assert self._reservation is not None
            self._reservation.close()
            self._server = self._listen(self.port)

    def close(self) -> None:
        """End the server and its connections."""
        if self.behaviour == "down":
            assert self._reservation is not None
            self._reservation.close()
        else:
            self._stop()

    def _listen(self, port: int) -> _Server:
        server = _Server(("127.0.0.1", port), _handler(self))
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        return server

    def _stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        with self._lock:
            for connection in self._connections:
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)

    # --- on the threads of the server ---------------------------------------------------------------------------------

    def _answer(self, handler: BaseHTTPRequestHandler, body: bytes) -> None:
        behaviour = self.behaviour
        with self._lock:
            self.requests[behaviour] = self.requests.get(behaviour, 0) + 1
        match behaviour:
            case "healthy":
                self._store(body, is_acknowledged=True)
                _reply(handler, 200, {"data": []})
            case "slow":
                self._reply_slowly(handler)
            case "half-answered":
                self._store(body, is_acknowledged=False)
                content = json.dumps({"data": ["x" * 200]}).encode()
                _start(handler, 200, len(content))
                handler.wfile.write(content[: len(content) // 2])
                handler.close_connection = True
            case "429":
                _reply(handler, 429, {"detail": "slow down"}, {"retry-after": str(self._retry_after)})
            case "401" | "413" | "500":
                _reply(handler, int(behaviour), {"detail": f"the product answers {behaviour}"})
            case "down":  # the request arrived before
                handler.close_connection = True

    def _reply_slowly(self, handler: BaseHTTPRequestHandler) -> None:
        """Send a reply in small parts, until the client gives up or the behaviour changes."""
        _start(handler, 500, _PIECES)
        for _ in range(_PIECES):
            time.sleep(self._slow_seconds / _PIECES)
            if self.behaviour != "slow":
                handler.close_connection = True
                return
            handler.wfile.write(b" ")

    def _store(self, body: bytes, *, is_acknowledged: bool) -> None:
        revisions = {
            (one["metadata"]["goldspan.run.id"], one["metadata"]["goldspan.revision"])
            for one in json.loads(body)["data"]
        }
        counts = self.acknowledged if is_acknowledged else self.unacknowledged
        with self._lock:
            for run_id, revision in revisions:
                if self.stored.get(run_id, 0) > revision:
                    self.faults.append(f"revision {revision} of {run_id} follows {self.stored[run_id]}")
                self.stored[run_id] = revision
                counts[run_id, revision] = counts.get((run_id, revision), 0) + 1


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 128

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore clients that disconnect."""


def _handler(product: FailingProduct) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def handle(self) -> None:
            with product._lock:
                product._connections.add(self.connection)
            try:
                with suppress(OSError):
                    super().handle()
            finally:
                with product._lock:
                    product._connections.discard(self.connection)

        def do_POST(self) -> None:
            product._answer(self, self.rfile.read(int(self.headers["content-length"])))

        def log_message(self, *_: Any) -> None:
            pass

    return Handler


def _start(handler: BaseHTTPRequestHandler, status: int, length: int, headers: dict[str, str] | None = None) -> None:
    handler.send_response_only(status)
    for name, value in {"content-type": "application/json", "content-length": str(length), **(headers or {})}.items():
        handler.send_header(name, value)
    handler.end_headers()


def _reply(handler: BaseHTTPRequestHandler, status: int, body: Any, headers: dict[str, str] | None = None) -> None:
    content = json.dumps(body).encode()
    _start(handler, status, len(content), headers)
    handler.wfile.write(content)


def _bound_socket(port: int) -> socket.socket:
    """Return a socket that keeps a port reserved: it does not listen, so connections are refused."""
    reservation = socket.socket()
    reservation.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    reservation.bind(("127.0.0.1", port))
    return reservation
