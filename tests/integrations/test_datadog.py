"""Tests of the integration with Datadog LLM Observability."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given

from goldspan.errors import ConfigurationError
from goldspan.integrations.datadog import Datadog
from goldspan.integrations.product import ProductReply, ProductRequest
from goldspan.integrations.scored_runs import ScoredRun
from integrations.product_checks import assert_errors_are_classified, run_lists, schema_of, sent_requests
from integrations.recording_server import Answer, delivery_to, recording_server
from integrations.scored_run_strategies import a_run, a_score

SCHEMA = schema_of("datadog")


def datadog(url: str = "http://datadog.test", now: float = 1_760_000_100.5) -> Datadog:
    return Datadog(url, api_key="datadog-key", ml_app="travel", clock=lambda: now)


def metrics_of(runs: list[ScoredRun]) -> list[dict[str, Any]]:
    (request,) = sent_requests(datadog(), runs)
    metrics: list[dict[str, Any]] = request.body["data"]["attributes"]["metrics"]
    return metrics


@given(run_lists)
def test_every_request_is_valid_and_holds_every_known_score_of_a_span(runs: list[ScoredRun]) -> None:
    sent: list[ProductRequest] = []

    def send(request: ProductRequest) -> ProductReply:
        sent.append(request)
        return ProductReply(202, None)

    refused = datadog().write(runs, send)
    assert len(refused) == sum(run.span_id is None for run in runs)
    of_spans = [run for run in runs if run.span_id is not None]
    assert len(sent) == bool(of_spans)
    for request in sent:
        assert (request.method, request.path) == ("POST", "/api/intake/llm-obs/v2/eval-metric")
        SCHEMA.validate(request.body)
        metrics = request.body["data"]["attributes"]["metrics"]
        expected = [score for run in of_spans for score in run.scores if score.is_verdict or score.value is not None]
        for metric, score in zip(metrics, expected, strict=True):
            assert metric.get("score_value", score.value) == score.value
            assert metric.get("assessment") == (score.label if score.label in ("pass", "fail") else None)


def test_a_run_becomes_a_category_and_numbers_with_decimal_ids() -> None:
    verdict, above, without = metrics_of([a_run()])
    assert verdict == {
        "event_kind": "evaluation",
        "join_on": {
            "span": {"span_id": "67667974448284343", "trace_id": "100985939111033328018442752961257817910"},
        },
        "eval_scope": "span",
        "ml_app": "travel",
        "timestamp_ms": 1_760_000_100_500,
        "label": "goldspan_passed",
        "metric_type": "categorical",
        "categorical_value": "fail",
        "assessment": "fail",
        "reasoning": "missing call: book_hotel",
        "tags": ["ml_app:travel", "source:otel"],
        "metadata": {"goldspan.run.id": "run-1", "goldspan.revision": 1},
    }
    assert (above["label"], above["metric_type"], above["score_value"], above["assessment"]) == (
        *("goldspan_tool_f1", "score", 0.666666666666),
        "pass",
    )
    assert without["label"] == "goldspan_args_match"
    assert {"assessment", "reasoning"}.isdisjoint(without)


def test_an_unknown_verdict_is_a_category_without_an_assessment() -> None:
    (verdict,) = metrics_of([a_run(scores=(a_score("run-1", "goldspan.passed", None, "not_evaluated", "no_golden"),))])
    assert (verdict["categorical_value"], verdict["reasoning"]) == ("not_evaluated", "no_golden")
    assert "assessment" not in verdict


def test_a_label_has_no_other_characters_and_at_most_200() -> None:
    names = ("goldspan.größe und ß", "goldspan." + "x" * 300)
    scores = tuple(a_score("run-1", name, 1.0, None) for name in names)
    first, second = metrics_of([a_run(scores=scores)])
    assert first["label"] == "goldspan_gr__e_und__"
    assert len(second["label"]) == 200


def test_a_revision_has_the_labels_of_the_first_and_a_later_time() -> None:
    (first,) = datadog(now=1.0).requests([a_run()])
    (second,) = datadog(now=2.0).requests([a_run(revision=2)])
    first_metrics, second_metrics = (each.body["data"]["attributes"]["metrics"] for each in (first, second))
    assert [metric["label"] for metric in first_metrics] == [metric["label"] for metric in second_metrics]
    assert {metric["timestamp_ms"] for metric in second_metrics} == {2000}


def test_a_run_without_a_span_is_refused_and_the_others_are_written() -> None:
    with recording_server(lambda _: Answer(202)) as (url, requests), delivery_to(datadog(url)) as delivery:
        result = delivery.deliver([a_run("a"), a_run("b", span_id=None)])
    assert (result.written_count, result.pending) == (1, [])
    assert result.refused == ["datadog has evaluations of spans only, and run b has no span"]
    assert requests[0].headers["dd-api-key"] == "datadog-key"


def test_errors_lead_to_the_outcomes_of_the_delivery() -> None:
    assert_errors_are_classified(datadog)


def test_the_variables_of_datadog_configure_it() -> None:
    given_variables = {"DD_API_KEY": "key", "DD_SERVICE": "service"}
    assert Datadog.from_environment(None, given_variables).base_url == "https://api.datadoghq.com"
    site = {**given_variables, "DD_SITE": "datadoghq.eu", "DD_LLMOBS_ML_APP": "app"}
    product = Datadog.from_environment(None, site)
    assert product.base_url == "https://api.datadoghq.eu"
    assert product.headers == {"dd-api-key": "key"}
    (request,) = product.requests([a_run()])
    assert request.body["data"]["attributes"]["metrics"][0]["ml_app"] == "app"
    assert Datadog.from_environment("http://given.test", site).base_url == "http://given.test"


@pytest.mark.parametrize("number", [0, 1, 2])
def test_the_application_is_the_first_of_three_variables(number: int) -> None:
    names = ("DD_LLMOBS_ML_APP", "DD_SERVICE", "OTEL_SERVICE_NAME")
    product = Datadog.from_environment(None, {"DD_API_KEY": "key", **{name: name for name in names[number:]}})
    (request,) = product.requests([a_run()])
    assert request.body["data"]["attributes"]["metrics"][0]["ml_app"] == names[number]


@pytest.mark.parametrize("missing", ["DD_API_KEY", "DD_LLMOBS_ML_APP"])
def test_a_missing_variable_is_named(missing: str) -> None:
    with pytest.raises(ConfigurationError, match=missing):
        Datadog.from_environment(None, {"DD_API_KEY": "key", "DD_LLMOBS_ML_APP": "app", missing: ""})
