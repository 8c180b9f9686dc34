"""Tests that the models of the products' official clients accept what goldspan sends."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings

from goldspan.integrations.braintrust import Braintrust
from goldspan.integrations.datadog import Datadog
from goldspan.integrations.langfuse import Langfuse
from goldspan.integrations.langsmith import LangSmith
from goldspan.integrations.opik import Opik
from goldspan.integrations.product import Product, ProductRequest
from goldspan.integrations.scored_runs import ScoredRun
from integrations.product_checks import run_lists, sent_requests
from integrations.scored_run_strategies import SPAN_ID, a_run
from recipes.environments import is_built, python_of

pytestmark = pytest.mark.e2e

ENVIRONMENT = "product_clients"
Check = Callable[[str, list[tuple[str, Any]]], str]


def found_trace(request: ProductRequest) -> Any:
    """Answer a search of Opik for the end of an id."""
    if request.method != "GET":
        return None
    ((condition),) = json.loads(request.query["filters"])
    return {"content": [{"id": f"0199c8f2-a1b3-{condition['value']}"}]}


def found_rows(request: ProductRequest) -> Any:
    """Answer a search of Braintrust for rows."""
    if request.path != "/btql":
        return None
    found = re.findall(r"root_span_id = '(\w+)' AND (?:span_id = '(\w+)'|is_root)", request.body["query"])
    return {
        "data": [
            {"id": f"row-{trace_id}-{span_id}", "root_span_id": trace_id, "span_id": span_id, "is_root": not span_id}
            for trace_id, span_id in found
        ]
    }


PRODUCTS: dict[str, tuple[Product, Callable[[ProductRequest], Any]]] = {
    "braintrust": (Braintrust(api_key="key", parent="project_id:project"), found_rows),
    "datadog": (Datadog(api_key="key", ml_app="travel"), lambda _: None),
    "langfuse": (Langfuse(public_key="pk", secret_key="sk"), lambda _: None),
    "langsmith": (LangSmith(api_key="key"), lambda _: [{"id": str(UUID(int=1))}]),
    "opik": (Opik(), found_trace),
}
"""Each product, and the body of the reply to a request."""
SPANS_ONLY = {"datadog", "langsmith"}
"""The products that refuse a run without a span."""


@pytest.fixture(scope="module")
def check() -> Iterator[Check]:
    """Send requests to a process that has the clients, and return what they say."""
    if not is_built(ENVIRONMENT):
        pytest.skip(f"{ENVIRONMENT}'s environment is missing: make recipes")
    program = Path(__file__).with_name("official_clients.py")
    with subprocess.Popen(
        [python_of(ENVIRONMENT), str(program)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8"
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None

        def ask(product: str, requests: list[tuple[str, Any]]) -> str:
            process.stdin.write(json.dumps([product, requests]) + "\n")
            process.stdin.flush()
            return str(json.loads(process.stdout.readline()))

        yield ask
        process.stdin.close()


@pytest.mark.parametrize("name", PRODUCTS)
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(runs=run_lists)
def test_the_client_of_a_product_accepts_every_request(name: str, check: Check, runs: list[ScoredRun]) -> None:
    product, reply = PRODUCTS[name]
    with_spans = [run if run.span_id else replace(run, span_id=SPAN_ID) for run in runs] if name in SPANS_ONLY else runs
    requests = [(request.path, request.body) for request in sent_requests(product, with_spans, reply)]
    assert check(name, requests) == ""


@pytest.mark.parametrize("name", PRODUCTS)
def test_the_client_of_a_product_refuses_a_member_that_it_does_not_know(name: str, check: Check) -> None:
    product, reply = PRODUCTS[name]
    request = sent_requests(product, [a_run()], reply)[-1]
    body = deepcopy(request.body)
    first_score(body)["unknownMember"] = 1
    assert "unknownMember" in check(name, [(request.path, body)])


def first_score(body: Any) -> dict[str, Any]:
    """Return the first object of the list in a body, or the body itself if it is one score."""
    parts = [value for value in body.values() if isinstance(value, list | dict)] if isinstance(body, dict) else []
    if len(parts) == 1 and "key" not in body:
        return first_score(parts[0])
    score: dict[str, Any] = body[0] if isinstance(body, list) else body
    return score
