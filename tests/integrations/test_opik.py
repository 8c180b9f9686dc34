"""Tests of the integration with Opik."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given

from goldspan.errors import ConfigurationError
from goldspan.integrations import opik as opik_module
from goldspan.integrations.opik import Opik
from goldspan.integrations.product import ProductReply, ProductRequest
from goldspan.integrations.scored_runs import ScoredRun
from integrations.product_checks import assert_errors_are_classified, run_lists, schema_of
from integrations.recording_server import Answer, Request, delivery_to, recording_server
from integrations.scored_run_strategies import SPAN_ID, TRACE_ID, a_run, a_score

SCHEMA = schema_of("opik")
FIRST_SEEN_MS = 0x0199C8F2A1B3


def opik_id(otlp_id: str, time_ms: int = FIRST_SEEN_MS) -> str:
    """Opik's id, written as its backend computes it: as numbers, not as bytes."""
    digest = int.from_bytes(hashlib.sha256(bytes.fromhex(otlp_id)).digest()[:10], "big")
    value = (time_ms << 80) | digest
    value = (value & ~(0xF << 76)) | (7 << 76)
    value = (value & ~(3 << 62)) | (2 << 62)
    return str(UUID(int=value))


def opik(url: str = "http://opik.test/api") -> Opik:
    return Opik(url, api_key="opik-key", workspace="team", project="travel")


class Backend:
    """Opik's API over traces that it knows."""

    def __init__(self, *otlp_trace_ids: str, repeats: bool = True) -> None:
        self.trace_ids = [opik_id(trace_id) for trace_id in otlp_trace_ids]
        self.scores: dict[tuple[str, str], dict[str, Any]] = {}
        self.sent: list[ProductRequest] = []

    def send(self, request: ProductRequest) -> ProductReply:
        self.sent.append(request)
        answer = self.answer(request.method, request.path, dict(request.query), request.body)
        return ProductReply(answer.status, answer.body)

    def answer(self, method: str, path: str, query: dict[str, str], body: Any) -> Answer:
        if method == "GET":
            assert path == "/v1/private/traces"
            assert query["project_name"] == "travel"
            ((condition),) = json.loads(query["filters"])
            assert (condition["field"], condition["operator"]) == ("id", "ends_with")
            found = [{"id": each} for each in self.trace_ids if each.endswith(condition["value"])]
            return Answer(200, {"page": 1, "size": 1, "total": len(found), "content": found[:1]})
        if method == "PUT":
            SCHEMA.validate(body)
            self.scores |= {(score["id"], score["name"]): score for score in body["scores"]}
            return Answer(204)
        assert (method, path.rsplit("/", 1)[-1]) == ("POST", "delete")
        self.scores.pop((path.split("/")[4], body["name"]), None)
        return Answer(204)


@given(run_lists)
def test_every_request_is_valid_and_holds_every_known_score(runs: list[ScoredRun]) -> None:
    backend = Backend(*(run.trace_id for run in runs))
    assert opik().write(runs, backend.send) == {}
    sent = Counter(
        (score["id"], score["name"]) for request in backend.sent for score in (request.body or {}).get("scores", ())
    )
    expected = Counter(
        (opik_id(run.span_id or run.trace_id), score.name)
        for run in runs
        for score in run.scores
        if score.value is not None
    )
    assert sent == expected
    deleted = [request for request in backend.sent if request.path.endswith("/delete")]
    assert len(deleted) == sum(score.value is None for run in runs if run.revision > 1 for score in run.scores)


def test_a_run_becomes_numbers_with_a_category_and_a_reason() -> None:
    backend = Backend(TRACE_ID)
    opik().write([a_run()], backend.send)
    search, put = backend.sent
    assert (put.method, put.path) == ("PUT", "/v1/private/spans/feedback-scores")
    assert put.body["scores"] == [
        {
            "id": opik_id(SPAN_ID),
            "project_name": "travel",
            "name": "goldspan.passed",
            "value": 0.0,
            "source": "sdk",
            "category_name": "fail",
            "reason": "missing call: book_hotel",
        },
        {
            "id": opik_id(SPAN_ID),
            "project_name": "travel",
            "name": "goldspan.tool_f1",
            "value": 0.666666666666,
            "source": "sdk",
            "category_name": "pass",
            "reason": "missing call: book_hotel",
        },
        {
            "id": opik_id(SPAN_ID),
            "project_name": "travel",
            "name": "goldspan.args_match",
            "value": 1.0,
            "source": "sdk",
        },
    ]
    assert search.query["size"] == "1"


def test_a_run_without_a_span_scores_its_trace() -> None:
    backend = Backend(TRACE_ID)
    opik().write([a_run(span_id=None)], backend.send)
    assert backend.sent[-1].path == "/v1/private/traces/feedback-scores"
    assert {target for target, _ in backend.scores} == {opik_id(TRACE_ID)}


def test_an_id_is_the_time_and_then_the_hash_of_the_otlp_id() -> None:
    digest = hashlib.sha256(bytes.fromhex(SPAN_ID)).hexdigest()
    identifier = str(opik_module._uuid7(bytes.fromhex("010203040506") + bytes(10), SPAN_ID))
    assert identifier.startswith("01020304-0506-7")
    assert identifier[15:18] == digest[1:4]
    assert identifier[19] in "89ab"
    assert identifier[20:23] == digest[5:8]
    assert identifier[24:] == digest[8:20]
    assert identifier == opik_id(SPAN_ID, 0x010203040506)


def test_a_revision_replaces_scores_and_deletes_those_that_became_unknown() -> None:
    backend = Backend(TRACE_ID)
    product = opik()
    product.write([a_run()], backend.send)
    unknown = a_score("run-1", "goldspan.tool_f1", None, "not_evaluated")
    known = a_score("run-1", "goldspan.passed", 1.0, "pass")
    product.write([a_run(revision=2, scores=(known, unknown))], backend.send)
    assert {name: score["value"] for (_, name), score in backend.scores.items()} == {
        "goldspan.passed": 1.0,
        "goldspan.args_match": 1.0,
    }
    assert [request.method for request in backend.sent] == ["GET", "PUT", "PUT", "POST"]


def test_a_run_without_a_known_score_sends_no_score() -> None:
    backend = Backend(TRACE_ID)
    opik().write([a_run(scores=(a_score("run-1", "goldspan.passed", None, "not_evaluated"),))], backend.send)
    assert [request.method for request in backend.sent] == ["GET"]


def test_the_requests_without_the_state_of_opik_have_ids_without_a_time() -> None:
    backend = Backend(TRACE_ID)
    product = opik()
    runs = [a_run("a"), a_run("b", revision=2)]
    product.write(runs, backend.send)
    requests = list(product.requests(runs))
    assert [(request.method, request.query) for request in requests] == [
        (request.method, request.query) for request in backend.sent
    ]
    known, shown = (
        json.dumps([(request.path, request.body) for request in all_requests])
        for all_requests in (backend.sent, requests)
    )
    assert shown == known.replace(opik_id(SPAN_ID), opik_id(SPAN_ID, 0))
    assert opik_id(SPAN_ID, 0) in shown


def test_at_most_a_fixed_number_of_traces_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opik_module, "_MAX_KNOWN_TRACES", 2)
    traces = [f"{number:032x}" for number in range(1, 6)]
    backend = Backend(*traces)
    product = opik()
    for trace_id in traces:
        product.write([a_run(trace_id=trace_id)], backend.send)
    assert len(product._known_traces) <= 2
    assert len(backend.scores) == 3  # of one span: its id has the same time in each of these traces


@pytest.mark.parametrize(
    "body",
    [
        *(None, [], {}, {"content": None}, {"content": []}),
        {"content": [{}, None, {"id": 3}, {"id": "x"}]},
        {"content": [{"id": opik_id("ab" * 16)}]},
    ],
)
def test_a_trace_that_is_not_found_is_repeated_later(body: Any) -> None:
    with recording_server(lambda _: Answer(200, body)) as (url, requests), delivery_to(opik(url)) as delivery:
        result = delivery.deliver([a_run()])
    assert result.not_found == [a_run()]
    assert [request.method for request in requests] == ["GET"]


def test_of_several_runs_those_with_a_known_trace_are_written() -> None:
    known, unknown = [a_run(f"run-{number}", trace_id=f"{number:032x}") for number in (1, 2)]
    backend = Backend(known.trace_id)

    def answer(request: Request) -> Answer:
        return backend.answer(request.method, request.path, request.query, request.body)

    with recording_server(answer) as (url, requests), delivery_to(opik(url)) as delivery:
        result = delivery.deliver([known, unknown])
    assert (result.written_count, result.not_found, result.refused) == (1, [unknown], [])
    assert requests[0].headers["authorization"] == "opik-key"
    assert requests[0].headers["comet-workspace"] == "team"


def test_errors_lead_to_the_outcomes_of_the_delivery() -> None:
    assert_errors_are_classified(opik)


def test_the_variables_of_opik_configure_it() -> None:
    cloud = Opik.from_environment(None, {"OPIK_API_KEY": "key"})
    assert cloud.base_url == "https://www.comet.com/opik/api"
    assert cloud.headers == {"authorization": "key"}
    own = {"OPIK_URL_OVERRIDE": "http://localhost:5173/api/", "OPIK_PROJECT_NAME": "p", "OPIK_WORKSPACE": "w"}
    local = Opik.from_environment(None, own)
    assert local.base_url == "http://localhost:5173/api"
    assert local.headers == {"comet-workspace": "w"}
    assert next(iter(local.requests([a_run()]))).query["project_name"] == "p"
    assert next(iter(cloud.requests([a_run()]))).query["project_name"] == "Default Project"
    assert Opik.from_environment("http://given.test", own).base_url == "http://given.test"


def test_a_missing_key_for_the_cloud_is_named() -> None:
    with pytest.raises(ConfigurationError, match="OPIK_API_KEY"):
        Opik.from_environment(None, {})
