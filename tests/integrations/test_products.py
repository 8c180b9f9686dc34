"""The requests of each product, against servers that answer as Phoenix 20.26 and MLflow 3.17 do."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goldspan import ConfigurationError, Evaluation
from goldspan.integrations.catalog import CATALOG, create_product, create_product_sink
from goldspan.integrations.http_client import DeliveryError
from goldspan.integrations.mlflow import MLflow
from goldspan.integrations.phoenix import Phoenix
from goldspan.integrations.product import Product
from goldspan.integrations.score_delivery import DeliveryResult, ScoreDelivery
from goldspan.integrations.scored_runs import ScoredRun, scored_run
from support.evaluation_builders import evaluation
from support.model_endpoint import Whole, raw
from support.product_server import Request, accepted, client_of, failed, product_server


def scored(one: Evaluation) -> ScoredRun:
    run = scored_run(one)
    assert run is not None
    return run


def without_span(number: int) -> ScoredRun:
    one = evaluation(number)
    return scored(replace(one, run=replace(one.run, span_id=None)))


def deliver(product: Product, *runs: ScoredRun) -> DeliveryResult:
    with client_of(product) as client:
        return ScoreDelivery(product, client).deliver(runs)


# --- Phoenix ----------------------------------------------------------------------------------------------------------


class PhoenixState:
    """The annotations of a Phoenix that knows some spans and traces."""

    def __init__(self, *known: str) -> None:
        self.known = set(known)
        self.annotations: dict[tuple[str, str, str], Any] = {}

    def answer(self, request: Request) -> Whole:
        target, noun = {
            "/v1/span_annotations": ("span_id", "Spans"),
            "/v1/trace_annotations": ("trace_id", "Traces"),
        }[request.path]
        assert (request.method, request.query) == ("POST", {"sync": "true"})
        rows = request.body["data"]
        missing = {row[target] for row in rows} - self.known
        if missing:
            return raw(f"{noun} with IDs {', '.join(missing)} do not exist.".encode(), 404)
        for row in rows:
            self.annotations[row[target], row["name"], row["identifier"]] = row
        return accepted({"data": []})


def test_phoenix_gets_one_annotation_for_each_score_of_a_span():
    run = scored(evaluation(1))
    state = PhoenixState(run.span_id or "")
    with product_server(state.answer) as server:
        assert deliver(Phoenix(server.url), run).written_count == 1
    assert len(state.annotations) == len(run.scores) > 5
    verdict = state.annotations[run.span_id or "", "goldspan.passed", f"goldspan:{run.run_id}"]
    assert verdict == {
        "span_id": "0000000000000001",
        "name": "goldspan.passed",
        "annotator_kind": "CODE",
        "result": {"score": 1.0, "label": "pass", "explanation": verdict["result"]["explanation"]},
        "metadata": {
            "goldspan.run.id": run.run_id,
            "goldspan.unit": "request",
            "goldspan.revision": 1,
            "goldspan.scoring.version": run.metadata["goldspan.scoring.version"],
            "goldspan.golden.id": "given",
            "goldspan.golden.match": "given",
        },
        "identifier": f"goldspan:{run.run_id}",
    }
    unknown = [row["result"] for row in state.annotations.values() if row["result"]["score"] is None]
    assert unknown
    assert {result["label"] for result in unknown} == {"not_evaluated"}


def test_phoenix_replaces_the_annotations_of_an_earlier_revision():
    first, second = scored(evaluation(1)), scored(replace(evaluation(1, "book"), revision=2))
    state = PhoenixState(first.span_id or "")
    with product_server(state.answer) as server:
        deliver(Phoenix(server.url), first)
        deliver(Phoenix(server.url), second)
    assert len(state.annotations) == len(second.scores)
    assert {row["metadata"]["goldspan.revision"] for row in state.annotations.values()} == {2}


def test_phoenix_annotates_the_trace_of_a_run_without_a_span():
    run = without_span(1)
    state = PhoenixState(run.trace_id)
    with product_server(state.answer) as server:
        assert deliver(Phoenix(server.url), run).written_count == 1
    assert {key[0] for key in state.annotations} == {run.trace_id}


def test_phoenix_gets_the_scores_of_known_spans_in_spite_of_unknown_ones():
    known = [scored(evaluation(number)) for number in (1, 3)]
    unknown = [scored(evaluation(2)), without_span(4)]
    state = PhoenixState(*(run.span_id or "" for run in known))
    with product_server(state.answer) as server:
        result = deliver(Phoenix(server.url), known[0], unknown[0], known[1], unknown[1])
        assert len(server.received) == 4  # all, without one span, its rest, without one trace
    assert (result.written_count, result.not_found) == (2, unknown)
    assert "do not exist" in (result.error or "")


def test_phoenix_may_name_unknown_spans_in_json():
    known, unknown = (scored(evaluation(number)) for number in (1, 2))

    def answer(request: Request) -> Whole:
        is_known = all(row["span_id"] == known.span_id for row in request.body["data"])
        return accepted() if is_known else failed(404, f"Spans with IDs {unknown.span_id} do not exist.")

    with product_server(answer) as server:
        result = deliver(Phoenix(server.url), known, unknown)
    assert (result.written_count, result.not_found) == (1, [unknown])


@pytest.mark.parametrize("reply", [failed(404, "Not Found"), raw(b"<html>", 404), raw(b"[1]", 404)])
def test_an_unknown_path_of_phoenix_is_a_wrong_address(reply):
    with product_server(lambda _: reply) as server:
        result = deliver(Phoenix(server.url), scored(evaluation(1)))
    assert (result.failure, len(result.pending)) == ("misconfigured", 1)


def test_phoenix_refuses_only_what_it_cannot_store():
    def answer(request: Request) -> Whole:
        return failed(422) if any("2" in row["span_id"] for row in request.body["data"]) else accepted()

    with product_server(answer) as server:
        result = deliver(Phoenix(server.url), *(scored(evaluation(number)) for number in (1, 2, 3)))
    assert (result.written_count, len(result.refused)) == (2, 1)


# --- MLflow -----------------------------------------------------------------------------------------------------------


class MLflowState:
    """The assessments of an MLflow server that knows some traces."""

    PREFIX = "/api/3.0/mlflow/traces"

    def __init__(self, *known: str) -> None:
        self.traces: dict[str, dict[str, Any]] = {f"tr-{trace_id}": {} for trace_id in known}
        self.writes: list[str] = []

    def answer(self, request: Request) -> Whole:
        if (request.method, request.path) == ("POST", f"{self.PREFIX}/batchGetInfos"):
            ids = [each for each in request.body["trace_ids"] if each in self.traces]
            return accepted(
                {"trace_infos": [{"trace_id": each, "assessments": [*self.traces[each].values()]} for each in ids]}
            )
        assert request.path.startswith(f"{self.PREFIX}/tr-")
        trace_id, _, assessment_id = request.path.removeprefix(f"{self.PREFIX}/").partition("/assessments")
        assessments = self.traces[trace_id]
        self.writes.append(request.method)
        if request.method == "DELETE":
            return accepted() if assessments.pop(assessment_id[1:], None) else failed(404)
        new = request.body["assessment"]
        if request.method == "POST":
            new_id = f"a-{sum(map(len, self.traces.values()))}-{len(self.writes)}"
            assessments[new_id] = new | {"assessment_id": new_id}
        else:
            old = assessments[assessment_id[1:]]
            for name in request.body["update_mask"].split(","):
                old[name] = old["metadata"] | new[name] if name == "metadata" else new[name]
        return accepted({"assessment": {}})

    def by_name(self, run: ScoredRun) -> dict[str, dict[str, Any]]:
        found = [
            one
            for one in self.traces[f"tr-{run.trace_id}"].values()
            if one["metadata"]["goldspan.run.id"] == run.run_id
        ]
        assert len({one["assessment_name"] for one in found}) == len(found)
        return {one["assessment_name"]: one for one in found}


def test_mlflow_gets_feedback_and_the_expected_tools():
    run = scored(evaluation(1))
    state = MLflowState(run.trace_id)
    with product_server(state.answer) as server:
        assert deliver(MLflow(server.url), run).written_count == 1
    shown = state.by_name(run)
    assert shown.keys() == {score.name for score in run.scores if score.value is not None} | {"goldspan.expected_tools"}
    verdict = shown["goldspan.passed"]
    assert verdict["feedback"] == {"value": True}
    assert type(shown["goldspan.tool_correctness"]["feedback"]["value"]) is float
    assert (verdict["source"], verdict["valid"]) == ({"source_type": "CODE", "source_id": "goldspan"}, True)
    assert (verdict["trace_id"], verdict["span_id"]) == (f"tr-{run.trace_id}", run.span_id)
    assert verdict["metadata"]["goldspan.revision"] == "1"
    expectation = shown["goldspan.expected_tools"]["expectation"]["serialized_value"]
    assert (expectation["serialization_format"], json.loads(expectation["value"])) == ("JSON_FORMAT", ["search"])


def test_mlflow_updates_what_a_revision_changed_and_deletes_what_became_unknown():
    one = evaluation(1)
    known = scored(one)
    unknown = scored(
        replace(
            one,
            golden=None,
            match=None,
            passed=None,
            scores=tuple(replace(score, value=None, passed=None) for score in one.scores),
            revision=2,
        )
    )
    state = MLflowState(known.trace_id)
    with product_server(state.answer) as server:
        product = MLflow(server.url)
        deliver(product, known)
        before = {name: each["assessment_id"] for name, each in state.by_name(known).items()}
        deliver(product, unknown)
        (verdict,) = state.by_name(unknown).values()
        assert verdict["assessment_id"] == before["goldspan.passed"]
        assert verdict["feedback"]["error"]["error_code"] == "NOT_EVALUATED"
        assert verdict["metadata"]["goldspan.golden.id"] == ""
        deliver(product, replace(known, revision=3))
        assert state.by_name(known).keys() == before.keys()


def test_mlflow_gets_no_request_for_what_it_has_already():
    run = scored(evaluation(1))
    state = MLflowState(run.trace_id)
    with product_server(state.answer) as server:
        product = MLflow(server.url)
        deliver(product, run)
        state.writes.clear()
        assert deliver(product, run).written_count == 1
    assert state.writes == []


@pytest.mark.e2e
@given(lost=st.lists(st.sampled_from(["no", "reply", "request"]), max_size=40))
def test_mlflow_has_each_assessment_once_although_requests_and_replies_are_lost(lost):
    runs = [scored(evaluation(number)) for number in (1, 2, 3)]
    state, script = MLflowState(*(run.trace_id for run in runs)), list(lost)

    def answer(request: Request) -> Whole:
        what = script.pop(0) if script else "no"
        if what == "request":
            return failed(503)
        reply = state.answer(request)
        return raw(b"{", headers={"content-length": "2"}) if what == "reply" else reply

    with product_server(answer) as server:
        product = MLflow(server.url)
        with client_of(product) as client:
            delivery, pending, complete = ScoreDelivery(product, client), runs, 0
            while pending:
                result = delivery.deliver(pending)
                pending, complete = result.pending, complete + result.written_count
    assessments = sum(score.value is not None for score in runs[0].scores) + 1
    # A run that failed again and again while others were accepted is refused, perhaps with some of its assessments.
    assert complete <= [len(state.by_name(run)) for run in runs].count(assessments)
    assert complete == len(runs) or len(lost) > 3


def test_mlflow_keeps_the_assessments_of_others_and_of_other_runs_of_the_trace():
    run = scored(evaluation(1))
    component = replace(run, run_id=f"{run.run_id}:component", metadata={"goldspan.run.id": f"{run.run_id}:component"})
    human = {
        "assessment_id": "a-human",
        "assessment_name": "goldspan.passed",
        "source": {"source_type": "HUMAN", "source_id": "ann"},
        "feedback": {"value": False},
    }
    state = MLflowState(run.trace_id)
    state.traces[f"tr-{run.trace_id}"]["a-human"] = dict(human)
    with product_server(state.answer) as server:
        deliver(MLflow(server.url), run, component)
        deliver(MLflow(server.url), run, component)
    assessments = state.traces[f"tr-{run.trace_id}"]
    assert assessments.pop("a-human") == human
    assert state.by_name(run).keys() == state.by_name(component).keys()


def test_mlflow_gets_the_scores_of_known_traces_in_spite_of_unknown_ones():
    runs = [scored(evaluation(1)), scored(evaluation(2)), without_span(3)]
    state = MLflowState(runs[0].trace_id, runs[2].trace_id)
    with product_server(state.answer) as server:
        result = deliver(MLflow(server.url), *runs)
    assert (result.written_count, result.not_found) == (2, [runs[1]])
    assert f"does not know the trace tr-{runs[1].trace_id}" in (result.error or "")
    assert not any("span_id" in one for one in state.by_name(runs[2]).values())


@pytest.mark.parametrize("reply", [failed(404), raw(b"<html>"), accepted([])])
def test_another_server_than_mlflow_is_a_wrong_address(reply):
    with product_server(lambda _: reply) as server:
        result = deliver(MLflow(server.url), scored(evaluation(1)))
    assert (result.failure, len(result.pending)) == ("misconfigured", 1)


def test_an_error_of_mlflow_is_no_wrong_address():
    with (
        product_server(lambda _: failed(503)) as server,
        client_of(MLflow(server.url)) as client,
        pytest.raises(DeliveryError) as caught,
    ):
        MLflow(server.url).write([scored(evaluation(1))], client.send)
    assert caught.value.kind == "overloaded"


def test_the_requests_of_mlflow_can_be_listed_without_a_server():
    requests = list(MLflow().requests([scored(evaluation(1))]))
    assert {request.method for request in requests} == {"POST"}
    assert requests[0].body["assessment"]["assessment_name"] == "goldspan.passed"


# --- configuration ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "environment", "url", "authorization"),
    [
        ("phoenix", {}, "http://localhost:6006", None),
        ("phoenix", {"PHOENIX_COLLECTOR_ENDPOINT": "https://p/v1/traces"}, "https://p", None),
        ("phoenix:https://x:1/y", {"PHOENIX_COLLECTOR_ENDPOINT": "https://p"}, "https://x:1/y", None),
        ("phoenix", {"PHOENIX_API_KEY": "key"}, "http://localhost:6006", "Bearer key"),
        ("mlflow", {}, "http://localhost:5000", None),
        ("mlflow", {"MLFLOW_TRACKING_URI": "https://m", "MLFLOW_TRACKING_TOKEN": "t"}, "https://m", "Bearer t"),
        (
            "mlflow:https://x",
            {
                "MLFLOW_TRACKING_URI": "https://m",
                "MLFLOW_TRACKING_TOKEN": "t",
                "MLFLOW_TRACKING_USERNAME": "ann",
                "MLFLOW_TRACKING_PASSWORD": "pass:wörd",
            },
            "https://x",
            "Basic " + base64.b64encode("ann:pass:wörd".encode()).decode(),
        ),
    ],
)
def test_a_product_is_configured_by_its_name_and_its_own_variables(name, environment, url, authorization):
    product = create_product(name, environment)
    assert product.name == name.partition(":")[0]
    assert product.base_url == url
    assert product.headers.get("authorization") == authorization


def test_every_product_of_the_catalog_reads_the_variables_that_it_lists():
    for name, entry in CATALOG.items():
        read: set[str] = set()

        class Recording(dict[str, str]):
            def get(self, key, default=None, read=read):
                read.add(key)
                return super().get(key, default)

        needed = [key for key in entry.variables if key.endswith(("_KEY", "OTEL_SERVICE_NAME"))]
        assert create_product(name, Recording(dict.fromkeys(needed, "value"))).name == name
        # LangSmith's client also reads its variables by their earlier prefix.
        earlier = {key for key in read if key.startswith("LANGCHAIN_")} | {"LANGSMITH_SESSION"}
        assert read - earlier == set(entry.variables)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("phonix", "there is no product 'phonix'; the products are .*phoenix.* Did you mean 'phoenix'"),
        ("http://host", "there is no product 'http'"),
        ("mlflow:", "the product 'mlflow:' lacks an address; write mlflow or mlflow:https://host"),
    ],
)
def test_a_wrong_name_of_a_product_is_a_configuration_error(name, message):
    with pytest.raises(ConfigurationError, match=message):
        create_product(name, {})


def test_a_tracking_uri_that_is_no_address_is_a_configuration_error(monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "sqlite:///mlflow.db")
    with pytest.raises(ConfigurationError, match="the address of mlflow is written as https://host/path"):
        create_product_sink("mlflow")
