"""An OTLP receiver that keeps the received telemetry as one payload of each signal.

Stack traces in exception events are removed: they hold the paths of the machine that recorded.
"""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

_STACK_TRACE = "exception.stacktrace"


class Payloads:
    """The received telemetry, one message of each signal."""

    def __init__(self) -> None:
        self.traces = ExportTraceServiceRequest()
        self.logs = ExportLogsServiceRequest()

    def add(self, path: str, body: bytes) -> None:
        """Add one export in protobuf. Metrics are accepted and dropped."""
        if path.endswith("/traces"):
            message = ExportTraceServiceRequest.FromString(body)
            _remove_stack_traces(message)
            self.traces.MergeFrom(message)
        elif path.endswith("/logs"):
            self.logs.MergeFrom(ExportLogsServiceRequest.FromString(body))


@contextmanager
def receiver() -> Iterator[tuple[str, Payloads]]:
    """Serve a receiver, and yield its endpoint and its payloads."""
    payloads = Payloads()
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = b"".join(self._chunks())
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            with lock:
                payloads.add(self.path, body)
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def _chunks(self) -> Iterator[bytes]:
            """Yield the body, which has a content-length or, from exporters for Node.js, is chunked."""
            length = self.headers.get("Content-Length")
            if length is not None:
                yield self.rfile.read(int(length))
                return
            while size := int(self.rfile.readline(), 16):
                yield self.rfile.read(size)
                self.rfile.readline()

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", payloads
    finally:
        server.shutdown()
        server.server_close()


def _remove_stack_traces(message: ExportTraceServiceRequest) -> None:
    for resource in message.resource_spans:
        for scope in resource.scope_spans:
            for event in (event for span in scope.spans for event in span.events):
                kept = [attribute for attribute in event.attributes if attribute.key != _STACK_TRACE]
                del event.attributes[:]
                event.attributes.extend(kept)
