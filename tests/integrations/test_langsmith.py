"""Tests of the integration with LangSmith."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given

from goldspan.errors import ConfigurationError
from goldspan.integrations.langsmith import LangSmith
from goldspan.integrations.product import ProductReply, ProductRequest
from goldspan.integrations.scored_runs import ScoredRun
from integrations.product_checks import assert_errors_are_classified, run_lists, schema_of
from integrations.recording_server import Answer, Request, delivery_to, recording_server
from integrations.scored_run_strategies import a_run, a_score

SCHEMA = schema_of("langsmith")
PROJECT_ID = "9b2f3a64-6d0e-4f5c-8f1b-1f1f1f1f1f1f"
SEARCH = ("GET", "/sessions")


def langsmith(url: str = "http://langsmith.test") -> LangSmith:
    return LangSmith(url, api_key="langsmith-key", project="travel")


class Backend:
    """LangSmith's API: a project, and the feedback that it holds."""

    def __init__(self) -> None:
        self.feedback: dict[str, dict[str, Any]] = {}
        self.sent: list[tuple[str, str]] = []

    def send(self, request: ProductRequest) -> ProductReply:
        answer = self.answer(request.method, request.path, request.body)
        assert answer.status != 404 or request.absent_is_success
        return ProductReply(answer.status, answer.body)

    def answer(self, method: str, path: str, body: Any) -> Answer:
        self.sent.append((method, path))
        if (method, path) == SEARCH:
            return Answer(200, [{"id": PROJECT_ID, "name": "travel"}])
        SCHEMA.validate(body)
        if method == "POST":
            self.feedback[body["id"]] = body
            return Answer(200, body)
        key = path.removeprefix("/feedback/")
        if key not in self.feedback:
            return Answer(404, {"detail": "Feedback not found"})
        self.feedback[key] |= body
        return Answer(200, {})


@given(run_lists)
def test_every_request_is_valid_and_holds_every_score_of_a_span(runs: list[ScoredRun]) -> None:
    backend = Backend()
    refused = langsmith().write(runs, backend.send)
    assert len(refused) == sum(run.span_id is None for run in runs)
    expected = {score.key: score for run in runs if run.span_id for score in run.scores}
    assert backend.feedback.keys() == expected.keys()
    for key, score in expected.items():
        sent = backend.feedback[key]
        assert sent.get("score") == (None if score.value is None else pytest.approx(score.value, abs=0.00005))
        assert sent.get("score") is None or round(sent["score"], 4) == sent["score"]
        assert sent.get("value") == score.label
        assert sent["session_id"] == PROJECT_ID


def test_a_run_becomes_feedback_on_the_run_of_its_span() -> None:
    backend = Backend()
    langsmith().write([a_run()], backend.send)
    verdict, above, without, unknown = backend.feedback.values()
    assert verdict == {
        "id": a_run().scores[0].key,
        "run_id": "00000000-0000-0000-00f0-67aa0ba902b7",
        "session_id": PROJECT_ID,
        "key": "goldspan.passed",
        "score": 0.0,
        "value": "fail",
        "comment": "missing call: book_hotel",
        "feedback_source": {"type": "api", "metadata": {"goldspan.run.id": "run-1", "goldspan.revision": 1}},
        "extend_trace_retention": False,
    }
    assert (above["score"], above["value"]) == (0.6667, "pass")
    assert "value" not in without
    assert unknown["value"] == "not_evaluated"
    assert "score" not in unknown


def test_the_project_is_searched_once() -> None:
    backend = Backend()
    product = langsmith()
    product.write([a_run("a")], backend.send)
    product.write([a_run("b")], backend.send)
    assert backend.sent.count(SEARCH) == 1


def test_a_revision_updates_feedback_and_creates_what_is_missing() -> None:
    backend = Backend()
    product = langsmith()
    product.write([a_run()], backend.send)
    unknown = a_score("run-1", "goldspan.passed", None, "not_evaluated", "no_golden")
    added = a_score("run-1", "goldspan.added", 1.0, "pass")
    backend.sent.clear()
    product.write([a_run(revision=2, scores=(unknown, added))], backend.send)
    assert backend.sent == [
        ("PATCH", f"/feedback/{unknown.key}"),
        ("PATCH", f"/feedback/{added.key}"),
        ("POST", "/feedback"),
    ]
    verdict = backend.feedback[unknown.key]
    assert (verdict["score"], verdict["value"], verdict["comment"]) == (None, "not_evaluated", "no_golden")
    assert backend.feedback[added.key]["score"] == 1.0


def test_a_run_without_a_span_is_refused_and_needs_no_request() -> None:
    with (
        recording_server(lambda _: Answer(500)) as (url, requests),
        delivery_to(langsmith(url)) as delivery,
    ):
        result = delivery.deliver([a_run("b", span_id=None)])
    assert result.refused == ["langsmith has feedback on spans only, and run b has no span"]
    assert requests == []


@pytest.mark.parametrize("body", [None, [], {}, ["x"], [{}], [{"id": 3}]])
def test_a_project_that_does_not_exist_yet_is_searched_later(body: Any) -> None:
    with recording_server(lambda _: Answer(200, body)) as (url, requests), delivery_to(langsmith(url)) as delivery:
        result = delivery.deliver([a_run()])
    assert result.not_found == [a_run()]
    assert [(request.method, request.path) for request in requests] == [SEARCH]
    assert requests[0].query == {"name": "travel", "limit": "1", "include_stats": "false"}
    assert requests[0].headers["x-api-key"] == "langsmith-key"


@pytest.mark.parametrize("has_spans", [True, False])
def test_a_span_that_has_not_arrived_is_repeated_later(has_spans: bool) -> None:
    backend = Backend()

    def answer(request: Request) -> Answer:
        if request.method == "POST" and request.body["run_id"].endswith("0000000000ab"):
            return Answer(404, {"detail": "Run not found"})
        return backend.answer(request.method, request.path, request.body)

    runs = [a_run("a"), a_run("b", span_id=f"{0xAB:016x}", revision=2), a_run("c"), a_run("d")]
    if not has_spans:
        runs[3] = a_run("d", span_id=None)
    with recording_server(answer) as (url, _), delivery_to(langsmith(url)) as delivery:
        result = delivery.deliver(runs)
    assert (result.written_count, result.not_found, len(result.refused)) == (
        3 if has_spans else 2,
        [runs[1]],
        not has_spans,
    )


@pytest.mark.parametrize("status", [400, 409])
def test_an_id_that_exists_is_updated(status: int) -> None:
    """As if the reply to the first request was lost, and LangSmith refused to create the feedback again."""
    backend = Backend()
    langsmith().write([a_run()], backend.send)

    def answer(request: Request) -> Answer:
        if request.method == "POST":
            return Answer(status, {"detail": "feedback exists"})
        return backend.answer(request.method, request.path, request.body)

    with recording_server(answer) as (url, _), delivery_to(langsmith(url)) as delivery:
        assert delivery.deliver([a_run()]).written_count == 1
        refused = delivery.deliver([a_run("new")]).refused
    assert refused == [f"langsmith answered {status} to POST /feedback: feedback exists"]


def test_errors_lead_to_the_outcomes_of_the_delivery() -> None:
    assert_errors_are_classified(langsmith)


def test_the_requests_without_the_state_of_langsmith_have_no_project() -> None:
    requests = list(langsmith().requests([a_run(), a_run("b", span_id=None)]))
    assert [request.body["key"] for request in requests] == [score.name for score in a_run().scores]
    assert all("session_id" not in request.body for request in requests)


def test_the_variables_of_langsmith_configure_it() -> None:
    assert LangSmith.from_environment(None, {"LANGSMITH_API_KEY": "k"}).base_url == "https://api.smith.langchain.com"
    old = {"LANGCHAIN_API_KEY": "old", "LANGCHAIN_ENDPOINT": "http://old.test", "LANGCHAIN_SESSION": "old"}
    assert LangSmith.from_environment(None, old)._project == "old"
    new = {
        **old,
        "LANGSMITH_API_KEY": "new",
        "LANGSMITH_ENDPOINT": "http://new.test",
        "LANGSMITH_PROJECT": "new",
        "LANGSMITH_WORKSPACE_ID": "team",
    }
    product = LangSmith.from_environment(None, new)
    assert (product.base_url, product._project) == ("http://new.test", "new")
    assert product.headers == {"x-api-key": "new", "x-tenant-id": "team"}
    assert LangSmith.from_environment("http://given.test", new).base_url == "http://given.test"


def test_a_missing_key_is_named() -> None:
    with pytest.raises(ConfigurationError, match="LANGSMITH_API_KEY"):
        LangSmith.from_environment(None, {"LANGSMITH_API_KEY": ""})
