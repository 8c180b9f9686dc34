"""A back end that keeps the request bodies of OTLP/HTTP, and can simulate faults."""

from __future__ import annotations

import gzip
import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

Mood = Literal["takes", "refuses", "hangs", "hangs up", "forgets to answer"]
"""The reaction to a request: keep and acknowledge it; answer 503; answer nothing until the mood changes, and then close
the connection; close it in the middle of the body; keep the request, and close in the middle of the answer."""


def span_names(body: bytes) -> Iterator[str]:
    """Yield `TRACE_ID SPAN_ID` of each span in a request, in protobuf or JSON."""
    if body.startswith(b"{"):
        for resource in json.loads(body)["resourceSpans"]:
            for scope in resource["scopeSpans"]:
                yield from (f"{span['traceId']} {span['spanId']}" for span in scope["spans"])
        return
    for resource_spans in ExportTraceServiceRequest.FromString(body).resource_spans:
        for scope_spans in resource_spans.scope_spans:
            yield from (f"{span.trace_id.hex()} {span.span_id.hex()}" for span in scope_spans.spans)


class BackEnd:
    """Keeps the accepted requests. It can go down, and come up again on the same port."""

    def __init__(self) -> None:
        self.bodies: dict[str, list[bytes]] = {"/v1/traces": [], "/v1/logs": [], "/v1/metrics": []}
        """The accepted bodies, uncompressed, by path."""
        self.refused = 0
        """The number of requests that it did not acknowledge."""
        self._mood: Mood = "takes"
        self._changed = threading.Condition()
        self._server: ThreadingHTTPServer | None = None
        self.port = 0
        self.come_up()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def spans(self) -> Counter[str]:
        """`TRACE_ID SPAN_ID` of every accepted span, and how often it was accepted."""
        return Counter(name for body in list(self.bodies["/v1/traces"]) for name in span_names(body))

    @property
    def events(self) -> list[Any]:
        """All accepted log records."""
        return [
            record
            for body in list(self.bodies["/v1/logs"])
            for resource_logs in ExportLogsServiceRequest.FromString(body).resource_logs
            for scope_logs in resource_logs.scope_logs
            for record in scope_logs.log_records
        ]

    def behave(self, mood: Mood) -> None:
        """Set the reaction to further requests."""
        with self._changed:
            self._mood = mood
            self._changed.notify_all()

    def come_up(self) -> None:
        """Listen on the same port as before, unless it already does."""
        if self._server:
            return
        self._server = _Server(("127.0.0.1", self.port), self._handler())
        self.port = self._server.server_port
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()

    def go_down(self) -> None:
        """Refuse further connections."""
        self.behave("takes")  # release the requests that hang
        if self._server:
            self._server.shutdown()
            self._thread.join()
            self._server.server_close()
            self._server = None

    def _take(self, path: str, body: bytes) -> None:
        with self._changed:
            self.bodies[path].append(body)

    def _handler(self) -> Callable[..., BaseHTTPRequestHandler]:
        owner = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True
            timeout = 30

            def do_POST(self) -> None:
                mood: Mood = owner._mood if owner._server else "hangs up"
                length = int(self.headers["Content-Length"])
                if mood == "hangs up":
                    self.rfile.read(length // 2)
                    return self._hang_up()
                body = self.rfile.read(length)
                if mood == "hangs":
                    with owner._changed:
                        owner._changed.wait_for(lambda: owner._mood != "hangs", timeout=60)
                    return self._hang_up()
                if mood == "refuses":
                    owner.refused += 1
                    return self._answer(503)
                if len(body) == length:
                    owner._take(self.path, gzip.decompress(body) if self.headers["Content-Encoding"] else body)
                if mood == "forgets to answer":
                    self.wfile.write(b"HTTP/1.")
                    return self._hang_up()
                return self._answer(200)

            def _answer(self, status: int) -> None:
                self.send_response(status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def _hang_up(self) -> None:
                owner.refused += 1
                self.close_connection = True

            def log_message(self, *_: object) -> None: ...

        return Handler


class _Server(ThreadingHTTPServer):
    allow_reuse_address = True
    daemon_threads = True  # connections that a client keeps open must not block the end of a test

    def handle_error(self, *_: object) -> None:
        """Ignore clients that are killed in the middle of a request: tests do that on purpose."""


@contextmanager
def back_end() -> Iterator[BackEnd]:
    """Run a back end that accepts every request."""
    kept = BackEnd()
    try:
        yield kept
    finally:
        kept.go_down()
