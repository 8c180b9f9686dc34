"""A product over real HTTP that keeps its requests, answers as a test says, and can be down."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qs, parse_qsl, urlsplit

from goldspan.integrations.http_client import ProductClient
from goldspan.integrations.product import Product, ProductRequest
from goldspan.integrations.scored_runs import ScoredRun
from support.model_endpoint import Model, Received, Reply, Whole, raw


@dataclass(frozen=True)
class Request:
    """A received request."""

    method: str
    path: str
    query: dict[str, str]
    """The parameters; of a repeated one, the last value."""
    query_lists: dict[str, list[str]]
    """The parameters with all values of each."""
    headers: dict[str, str]
    body: Any


Answer = Callable[[Request], Reply]


class ProductServer(Model):
    """The server. `answer` may be replaced at any time."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.received: list[Request] = []
        """All requests in order of arrival."""
        self._answering = threading.Lock()
        super().__init__(())
        self.url = self.url.removesuffix("/v1")

    def _reply(self, received: Received, number: int, method: str) -> Reply:
        parts = urlsplit(received.path)
        query = dict(parse_qsl(parts.query)), parse_qs(parts.query)
        request = Request(method, parts.path, *query, received.headers, received.body)
        with self._answering:
            self.received.append(request)
            return self.answer(request)

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        handler: Any = super()._handler()
        handler.do_PUT = handler.do_PATCH = handler.do_DELETE = handler.do_POST
        return handler


@contextmanager
def product_server(answer: Answer) -> Iterator[ProductServer]:
    """Serve a product. At the end of the block, errors of `answer` are raised."""
    server = ProductServer(answer)
    try:
        yield server
    finally:
        server.close()
    for error in server.errors:
        raise error


@contextmanager
def client_of(product: Product, *, timeout: float = 5) -> Iterator[ProductClient]:
    """Return a client that is closed at the end of the block."""
    with closing(ProductClient(product, timeout=timeout)) as client:
        yield client


def accepted(body: Any = None) -> Whole:
    """Reply with a JSON value."""
    return raw(json.dumps({} if body is None else body).encode())


def failed(status: int, message: str = "failed", *, retry_after: str | None = None) -> Whole:
    """Reply with an error and its message."""
    headers = {"retry-after": retry_after} if retry_after else {}
    return raw(json.dumps({"detail": message}).encode(), status, headers)


class ScoreTable(Product):
    """A product with one row for each run: it receives the revisions of some runs in one request."""

    name = "table"

    def __init__(self, base_url: str, *, token: str | None = None, max_runs: int = 4) -> None:
        self.base_url = base_url
        self.max_runs = max_runs
        self._token = token

    @classmethod
    def from_environment(cls, base_url: str | None, environment: Mapping[str, str]) -> ScoreTable:
        return cls(base_url or environment["TABLE_URL"])

    @property
    def headers(self) -> Mapping[str, str]:
        return {"authorization": f"Bearer {self._token}"} if self._token else {}

    def requests(self, runs: Sequence[ScoredRun]) -> list[ProductRequest]:
        return [ProductRequest("POST", "/rows", {"rows": {run.run_id: run.revision for run in runs}})]


class StoredRows:
    """The rows that the server of a `ScoreTable` accepted."""

    def __init__(self) -> None:
        self.revisions: dict[str, int] = {}

    def store(self, request: Request) -> Whole:
        """Store the rows of a request. A revision must not follow a later one."""
        for run_id, revision in request.body["rows"].items():
            assert self.revisions.get(run_id, 0) <= revision, f"revision {revision} follows {self.revisions[run_id]}"
            self.revisions[run_id] = revision
        return accepted()
