"""Tests of the integration with Braintrust."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given

from goldspan.errors import ConfigurationError
from goldspan.integrations.braintrust import Braintrust
from goldspan.integrations.product import ProductReply, ProductRequest
from goldspan.integrations.scored_runs import ScoredRun
from integrations.product_checks import assert_errors_are_classified, run_lists, schema_of
from integrations.recording_server import Answer, Request, delivery_to, recording_server
from integrations.scored_run_strategies import SPAN_ID, TRACE_ID, a_run, a_score

SCHEMA = schema_of("braintrust")
PROJECT_ID = "5d3b8a10-0b6c-4a55-9f0e-3f3f3f3f3f3f"
FEEDBACK = f"/v1/project_logs/{PROJECT_ID}/feedback"


def braintrust(url: str = "http://braintrust.test") -> Braintrust:
    return Braintrust(url, api_key="braintrust-key", parent=f"project_id:{PROJECT_ID}")


def row_of(trace_id: str, span_id: str, *, is_root: bool = False) -> dict[str, Any]:
    return {"id": f"row-{trace_id}-{span_id}", "span_id": span_id, "root_span_id": trace_id, "is_root": is_root}


class Backend:
    """Braintrust's API: the rows of a project, and their scores."""

    def __init__(self, *rows: dict[str, Any]) -> None:
        self.rows = rows
        self.scores: dict[str, dict[str, float]] = {}
        self.sent: list[ProductRequest] = []

    def send(self, request: ProductRequest) -> ProductReply:
        self.sent.append(request)
        return ProductReply(200, self.answer(request.path, request.body))

    def answer(self, path: str, body: Any) -> Any:
        if path == "/v1/project":
            return {"objects": [{"id": PROJECT_ID, "name": "travel"}]}
        if path == "/btql":
            return {"data": [row for row in self.rows if self._is_selected(row, body["query"])]}
        assert path == FEEDBACK
        SCHEMA.validate(body)
        for item in body["feedback"]:
            merged = {**self.scores.get(item["id"], {}), **item["scores"]}
            self.scores[item["id"]] = {name: value for name, value in merged.items() if value is not None}
        return None

    @staticmethod
    def _is_selected(row: dict[str, Any], query: str) -> bool:
        match = re.fullmatch(
            rf"SELECT id, span_id, root_span_id, is_root FROM project_logs\('{PROJECT_ID}', shape => 'spans'\)"
            r" WHERE (.*) LIMIT 1000",
            query,
        )
        assert match is not None, query
        trace = f"(root_span_id = '{row['root_span_id']}' AND "
        wanted = match[1].split(" OR ")
        return f"{trace}span_id = '{row['span_id']}')" in wanted or (
            row["is_root"] and f"{trace}is_root = true)" in wanted
        )


def backend_of(runs: list[ScoredRun]) -> Backend:
    rows = {
        (run.trace_id, run.span_id): row_of(run.trace_id, run.span_id or "f" * 16, is_root=run.span_id is None)
        for run in runs
    }
    return Backend(*rows.values())


@given(run_lists)
def test_every_request_is_valid_and_holds_every_known_score(runs: list[ScoredRun]) -> None:
    backend = backend_of(runs)
    assert braintrust().write(runs, backend.send) == {}
    items = [item for request in backend.sent for item in request.body.get("feedback", ())]
    expected = []
    for run in runs:
        scores = {score.name: score.value for score in run.scores if score.value is not None or run.revision > 1}
        if scores:
            expected.append((f"row-{run.trace_id}-{run.span_id or 'f' * 16}", scores))
    assert [(item["id"], item["scores"]) for item in items] == expected
    assert all("comment" not in item for item in items)


def test_a_run_becomes_scores_of_the_row_of_its_span() -> None:
    backend = Backend(row_of(TRACE_ID, "a" * 16), row_of(TRACE_ID, SPAN_ID))
    braintrust().write([a_run()], backend.send)
    _, request = backend.sent
    assert (request.method, request.path) == ("POST", FEEDBACK)
    assert request.body["feedback"] == [
        {
            "id": f"row-{TRACE_ID}-{SPAN_ID}",
            "scores": {"goldspan.passed": 0.0, "goldspan.tool_f1": 0.666666666666, "goldspan.args_match": 1.0},
            "metadata": {
                "goldspan.run.id": "run-1",
                "goldspan.revision": 1,
                "scores": {
                    "goldspan.passed": {"label": "fail", "reason": "missing call: book_hotel"},
                    "goldspan.tool_f1": {"label": "pass", "reason": "missing call: book_hotel"},
                    "goldspan.args_match": {},
                    "goldspan.order": {"label": "not_evaluated", "reason": "no_golden"},
                },
            },
            "source": "external",
        }
    ]


def test_a_run_without_a_span_scores_the_root_of_its_trace() -> None:
    backend = Backend(row_of(TRACE_ID, SPAN_ID), row_of(TRACE_ID, "b" * 16, is_root=True))
    braintrust().write([a_run(span_id=None)], backend.send)
    assert backend.scores.keys() == {f"row-{TRACE_ID}-{'b' * 16}"}


@pytest.mark.parametrize("is_first", [True, False])
def test_of_several_rows_of_a_span_the_one_with_its_id_is_scored(is_first: bool) -> None:
    span, event = {**row_of(TRACE_ID, SPAN_ID), "id": SPAN_ID}, row_of(TRACE_ID, SPAN_ID)
    backend = Backend(*((span, event) if is_first else (event, span)))
    braintrust().write([a_run()], backend.send)
    assert backend.scores.keys() == {SPAN_ID}


def test_a_revision_replaces_scores_and_removes_those_that_became_unknown() -> None:
    backend = Backend(row_of(TRACE_ID, SPAN_ID))
    product = braintrust()
    product.write([a_run()], backend.send)
    unknown = a_score("run-1", "goldspan.tool_f1", None, "not_evaluated")
    known = a_score("run-1", "goldspan.passed", 1.0, "pass")
    revision = a_run(revision=2, scores=(known, unknown))
    product.write([revision], backend.send)
    product.write([revision], backend.send)  # the reply was lost
    assert backend.scores == {f"row-{TRACE_ID}-{SPAN_ID}": {"goldspan.passed": 1.0, "goldspan.args_match": 1.0}}


def test_a_run_without_a_known_score_sends_no_feedback() -> None:
    backend = Backend(row_of(TRACE_ID, SPAN_ID))
    braintrust().write([a_run(scores=(a_score("run-1", "goldspan.passed", None, "not_evaluated"),))], backend.send)
    assert [request.path for request in backend.sent] == ["/btql"]


def test_a_project_is_searched_by_its_name_once() -> None:
    backend = Backend(row_of(TRACE_ID, SPAN_ID))
    product = Braintrust(api_key="key", parent="project_name:travel: ß")
    search, query, feedback = product.requests([a_run()])
    product.write([a_run()], backend.send)
    product.write([a_run()], backend.send)
    assert [request.path for request in backend.sent] == ["/v1/project", "/btql", FEEDBACK, "/btql", FEEDBACK]
    assert backend.sent[0] == search
    assert search.query == {"project_name": "travel: ß", "limit": "1"}
    assert "project_logs('<project>'" in query.body["query"]
    assert feedback.path == "/v1/project_logs/<project>/feedback"


def test_the_requests_without_the_state_of_braintrust_have_placeholders_for_rows() -> None:
    backend = Backend(row_of(TRACE_ID, SPAN_ID))
    product = braintrust()
    product.write([a_run()], backend.send)
    query, feedback = product.requests([a_run()])
    assert query == backend.sent[0]
    (shown,), (sent,) = (request.body["feedback"] for request in (feedback, backend.sent[1]))
    assert shown == {**sent, "id": f"<row of {SPAN_ID}>"}


def test_a_quote_in_the_id_of_a_project_stays_within_the_query() -> None:
    request, _ = Braintrust(api_key="key", parent="project_id:x', 'y").requests([a_run()])
    assert "project_logs('x'', ''y', shape => 'spans')" in request.body["query"]


@pytest.mark.parametrize("body", [None, [], {}, {"objects": None}, {"objects": []}, {"objects": [{"id": 3}]}])
def test_a_project_that_does_not_exist_yet_is_searched_later(body: Any) -> None:
    with (
        recording_server(lambda _: Answer(200, body)) as (url, requests),
        delivery_to(Braintrust(url, api_key="braintrust-key", parent="project_name:travel")) as delivery,
    ):
        result = delivery.deliver([a_run()])
    assert result.not_found == [a_run()]
    assert [request.path for request in requests] == ["/v1/project"]
    assert requests[0].headers["authorization"] == "Bearer braintrust-key"


@pytest.mark.parametrize("data", [None, [], "row", [None, {}, {"id": 3}], [row_of("c" * 32, SPAN_ID)]])
def test_a_row_that_has_not_arrived_is_searched_later(data: Any) -> None:
    with recording_server(lambda _: Answer(200, {"data": data})) as (url, _), delivery_to(braintrust(url)) as delivery:
        assert delivery.deliver([a_run()]).not_found == [a_run()]


def test_of_several_runs_those_with_a_row_are_written() -> None:
    known, unknown = [a_run(f"run-{number}", trace_id=f"{number:032x}") for number in (1, 2)]
    backend = Backend(row_of(known.trace_id, SPAN_ID))

    def answer(request: Request) -> Answer:
        return Answer(200, backend.answer(request.path, request.body))

    with recording_server(answer) as (url, _), delivery_to(braintrust(url)) as delivery:
        result = delivery.deliver([known, unknown])
    assert (result.written_count, result.not_found, result.refused) == (1, [unknown], [])


def test_errors_lead_to_the_outcomes_of_the_delivery() -> None:
    assert_errors_are_classified(braintrust)


def test_the_variables_of_braintrust_configure_it() -> None:
    cloud = Braintrust.from_environment(None, {"BRAINTRUST_API_KEY": "key"})
    assert cloud.base_url == "https://api.braintrust.dev"
    assert cloud.headers == {"authorization": "Bearer key"}
    search = next(iter(cloud.requests([a_run()])))
    assert search.query["project_name"] == "default-otel-project"
    own = {"BRAINTRUST_API_KEY": "k", "BRAINTRUST_API_URL": "http://own.test", "BRAINTRUST_PARENT": "project_id:p"}
    product = Braintrust.from_environment(None, own)
    assert product.base_url == "http://own.test"
    query = next(iter(product.requests([a_run()])))
    assert "project_logs('p'," in query.body["query"]
    assert Braintrust.from_environment("http://given.test", own).base_url == "http://given.test"


def test_a_missing_key_is_named() -> None:
    with pytest.raises(ConfigurationError, match="BRAINTRUST_API_KEY"):
        Braintrust.from_environment(None, {})


@pytest.mark.parametrize("parent", ["experiment_id:x", "project_name:", "travel"])
def test_a_parent_that_is_no_project_is_refused(parent: str) -> None:
    with pytest.raises(ConfigurationError, match="BRAINTRUST_PARENT"):
        Braintrust(api_key="key", parent=parent)
