"""Tests that the API conforms to its OpenAPI document, with requests that schemathesis generates."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from goldspan import Goldens
from goldspan.gateway.openapi import ERROR_DESCRIPTIONS, OPERATIONS
from goldspan.store import RunFilter, open_store
from recipes.environments import is_built, python_of
from support.api_server import DOCUMENT, ApiServer, serving
from support.evaluation_builders import evaluation

EXAMPLES = 40
PATIENCE_S = 300


def test_the_document_contains_every_operation_with_its_name() -> None:
    named = {
        (method.upper(), path): told["operationId"]
        for path, methods in DOCUMENT["paths"].items()
        for method, told in methods.items()
    }
    assert named == {(each.method, each.path): each.name for each in OPERATIONS}


def test_every_field_of_the_run_filter_is_a_parameter() -> None:
    told = {parameter["name"] for parameter in DOCUMENT["paths"]["/api/v1/runs"]["get"]["parameters"]}
    fields = {name.removesuffix("_ns") for name in RunFilter.__dataclass_fields__}
    assert told == fields | {"limit", "cursor"}


def test_every_error_response_is_described_with_the_same_schema() -> None:
    for methods in DOCUMENT["paths"].values():
        for told in methods.values():
            statuses = set(told["responses"]) - {"200"}
            assert {"400", "401", "403", "405", "503"} <= statuses <= set(map(str, ERROR_DESCRIPTIONS))
            for status in statuses:
                schema = told["responses"][status]["content"]["application/json"]["schema"]
                assert schema == {"$ref": "#/components/schemas/Error"}


def test_the_document_is_served(tmp_path: Path) -> None:
    with open_store(tmp_path / "goldspan.db") as store, serving(ApiServer(store)) as running_api:
        assert running_api.get("/api/v1/openapi.json") == DOCUMENT


@pytest.mark.e2e
@pytest.mark.skipif(not is_built("schemathesis"), reason="schemathesis needs its environment: make recipes")
def test_responses_to_generated_requests_conform_to_the_document(tmp_path: Path) -> None:
    """All checks but one: a schema cannot express which parameters require each other, so valid ones may be refused."""
    with open_store(tmp_path / "goldspan.db") as store, serving(ApiServer(store, Goldens())) as running_api:
        store.submit_many(evaluation(number) for number in range(1, 400))  # more than the test deletes
        command = [
            *(python_of("schemathesis").with_name("st"), "--no-color", "run"),
            *(
                f"http://127.0.0.1:{running_api.port}/api/v1/openapi.json",
                "--exclude-checks",
                "positive_data_acceptance",
            ),
            *("--max-examples", str(EXAMPLES), "--generation-deterministic", "--request-timeout", "60"),
        ]
        done = subprocess.run(
            command, cwd=tmp_path, capture_output=True, encoding="utf-8", timeout=PATIENCE_S, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert running_api.forgotten
        assert store.count().total
        store.check()
