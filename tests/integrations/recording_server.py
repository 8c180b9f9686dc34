"""A small HTTP server that records the requests to the API of a product, and answers as the test says."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from goldspan.integrations.http_client import ProductClient
from goldspan.integrations.product import Product
from goldspan.integrations.score_delivery import ScoreDelivery


@dataclass(frozen=True)
class Recorded:
    """A received request."""

    method: str
    path: str
    query: dict[str, list[str]]
    headers: dict[str, str]
    """By their names in lower case."""
    body: Any
    """The JSON value, or None."""


@dataclass(frozen=True)
class Answer:
    """What the server answers."""

    status: int = 200
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)


@contextmanager
def recording_server(answer: Callable[[Recorded], Answer]) -> Iterator[tuple[str, list[Recorded]]]:
    """Yield the address of the server, and the list of its requests."""
    recorded: list[Recorded] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _handle(self) -> None:
            content = self.rfile.read(int(self.headers.get("content-length", 0)))
            url = urlsplit(self.path)
            headers = {name.lower(): value for name, value in self.headers.items()}
            request = Recorded(
                self.command, url.path, parse_qs(url.query), headers, json.loads(content) if content else None
            )
            recorded.append(request)
            reply = answer(request)
            body = b"" if reply.body is None else json.dumps(reply.body).encode()
            self.send_response(reply.status)
            for name, value in {**reply.headers, "content-length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        do_GET = _handle  # noqa: N815 - the base class calls it by this name
        do_POST = _handle  # noqa: N815
        do_PUT = _handle  # noqa: N815
        do_PATCH = _handle  # noqa: N815
        do_DELETE = _handle  # noqa: N815

        def log_message(self, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", recorded
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def delivery_to(product: Product) -> Iterator[ScoreDelivery]:
    """Yield a delivery to a product whose pauses are not random."""
    client = ProductClient(product)
    try:
        yield ScoreDelivery(product, client, random_fraction=lambda: 1.0)
    finally:
        client.close()
