"""Proxies between a client and an OTLP server that keep each acknowledged request body, byte for byte."""

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
"""The uncompressed bodies of trace requests, and how often each one was forwarded and acknowledged."""

_METHOD = "opentelemetry.proto.collector.trace.v1.TraceService"


@contextmanager
def http_relay(port: int) -> Iterator[tuple[str, Bodies]]:
    """Yield the address of a proxy to the OTLP/HTTP server on a local port, and the bodies that it forwarded."""
    passed: Bodies = Counter()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_POST(self) -> None:
            body = self._body()
            upstream = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            framing = ("content-length", "transfer-encoding")
            headers = {name: value for name, value in self.headers.items() if name.lower() not in framing}
            upstream.request("POST", self.path, body, headers)
            answer = upstream.getresponse()
            content = answer.read()
            if answer.status == 200:
                passed[gzip.decompress(body) if self.headers["Content-Encoding"] == "gzip" else body] += 1
            self.send_response(answer.status)
            self.send_header("Content-Type", answer.headers["Content-Type"] or "application/octet-stream")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)
            upstream.close()

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
    """Do the same for OTLP/gRPC. With port 0 there is no server: the proxy accepts and keeps every request."""
    passed: Bodies = Counter()
    channel = grpc.insecure_channel(f"127.0.0.1:{port}")
    upstream = channel.unary_unary(f"/{_METHOD}/Export")

    def export(body: bytes, context: Any) -> bytes:
        answer: bytes = upstream(body, timeout=60) if port else b""
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
