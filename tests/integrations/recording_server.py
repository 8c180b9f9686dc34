"""A product that records the requests to its API and answers as the test says: `support.product_server` in short."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from goldspan.integrations.product import Product
from goldspan.integrations.score_delivery import ScoreDelivery
from support.model_endpoint import raw
from support.product_server import Request, client_of, product_server


@dataclass(frozen=True)
class Answer:
    """What the server answers."""

    status: int = 200
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)


@contextmanager
def recording_server(answer: Callable[[Request], Answer]) -> Iterator[tuple[str, list[Request]]]:
    """Yield the address of the server, and the list of its requests."""

    def reply(request: Request) -> Any:
        given = answer(request)
        return raw(b"" if given.body is None else json.dumps(given.body).encode(), given.status, dict(given.headers))

    with product_server(reply) as server:
        yield server.url, server.received


@contextmanager
def delivery_to(product: Product) -> Iterator[ScoreDelivery]:
    """Yield a delivery to a product whose pauses are not random."""
    with client_of(product) as client:
        yield ScoreDelivery(product, client, random_fraction=lambda: 1.0)
