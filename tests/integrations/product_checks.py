"""Checks that the tests of all products share."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from goldspan.integrations.product import Product, ProductReply, ProductRequest
from goldspan.integrations.scored_runs import ScoredRun, latest_revisions
from integrations.recording_server import Answer, delivery_to, recording_server
from integrations.scored_run_strategies import a_run, scored_runs

SCHEMAS = Path(__file__).parent / "schemas"

run_lists = st.lists(scored_runs(), min_size=1, max_size=5).map(latest_revisions)
"""Runs as the delivery passes them to a product: each at most once."""


def schema_of(name: str) -> Draft202012Validator:
    """Return the validator of a file in `schemas`."""
    schema = json.loads((SCHEMAS / f"{name}.json").read_text(encoding="utf-8"))
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)


def sent_requests(
    product: Product, runs: Sequence[ScoredRun], reply: Callable[[ProductRequest], Any] = lambda _: None
) -> list[ProductRequest]:
    """Return the requests of a call of `write`, which are plain JSON."""
    sent: list[ProductRequest] = []

    def send(request: ProductRequest) -> ProductReply:
        json.dumps(request.body, allow_nan=False)
        sent.append(request)
        return ProductReply(200, reply(request))

    assert not product.write(runs, send)
    return sent


def assert_errors_are_classified(product_at: Callable[[str], Product], *, attempts: int = 1) -> None:
    """The documented errors of an API lead to the outcomes of the delivery.

    `attempts` is the number of forms in which a product sends scores that are refused.
    """
    for status, outcome in ((401, "pending"), (403, "pending"), (413, "refused"), (422, "refused"), (500, "pending")):
        with (
            recording_server(lambda _, status=status: Answer(status, {"message": "no"})) as (url, requests),
            delivery_to(product_at(url)) as delivery,
        ):
            result = delivery.deliver([a_run()])
        assert len(requests) == (attempts if outcome == "refused" else 1)
        assert result.written_count == 0
        assert bool(result.pending) == (outcome == "pending"), status
        assert bool(result.refused) == (outcome == "refused"), status
    with (
        recording_server(lambda _: Answer(429, {"message": "slow down"}, {"retry-after": "7"})) as (url, _),
        delivery_to(product_at(url)) as delivery,
    ):
        result = delivery.deliver([a_run()])
    assert result.pending == [a_run()]
    assert result.pause == 7
