"""Between a client and a server: what passes is kept as it came, byte by byte, and so is the answer handed back."""

from __future__ import annotations

import gzip
import http.client
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent import futures
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import grpc

Bodies = Counter[bytes]
"""Bodies of trace requests without their compression, and how often each passed and was acknowledged."""

_METHOD = "opentelemetry.proto.collector.trace.v1.TraceService"


@contextmanager
def http_relay(port: int) -> Iterator[tuple[str, Bodies]]:
    """The address of a relay to the OTLP/HTTP server on a port of this machine, and what passed."""
    passed: Bodies = Counter()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_POST(self) -> None:
            body = self._body()
            onward = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            framing = ("content-length", "transfer-encoding")
            headers = {name: value for name, value in self.headers.items() if name.lower() not in framing}
            onward.request("POST", self.path, body, headers)
            answer = onward.getresponse()
            said = answer.read()
            if answer.status == 200:
                passed[gzip.decompress(body) if self.headers["Content-Encoding"] == "gzip" else body] += 1
            self.send_response(answer.status)
            self.send_header("Content-Type", answer.headers["Content-Type"] or "application/octet-stream")
            self.send_header("Content-Length", str(len(said)))
            self.end_headers()
            self.wfile.write(said)
            onward.close()

        def _body(self) -> bytes:
            if self.headers["Transfer-Encoding"] != "chunked":
                return self.rfile.read(int(self.headers["Content-Length"]))
            pieces = []
            while length := int(self.rfile.readline(), 16):
                pieces.append(self.rfile.read(length))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(pieces)

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", passed
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def grpc_relay(port: int) -> Iterator[tuple[str, Bodies]]:
    """The same for OTLP/gRPC. With port 0 there is no server behind it: it keeps what comes, and takes all of it."""
    passed: Bodies = Counter()
    channel = grpc.insecure_channel(f"127.0.0.1:{port}")
    onward = channel.unary_unary(f"/{_METHOD}/Export")

    def export(body: bytes, context: Any) -> bytes:
        answer: bytes = onward(body, timeout=60) if port else b""
        passed[body] += 1
        return answer

    handler = grpc.method_handlers_generic_handler(_METHOD, {"Export": grpc.unary_unary_rpc_method_handler(export)})
    server = grpc.server(futures.ThreadPoolExecutor(2), handlers=(handler,))
    own = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"http://127.0.0.1:{own}", passed
    finally:
        server.stop(grace=1).wait()
        channel.close()
