"""Tests of reading traces out of MLflow."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from goldspan.errors import ConfigurationError, TraceFileError
from goldspan.sources.mlflow_source import _otlp_span
from goldspan.sources.time_window import TimeWindow, nanoseconds
from support.model_endpoint import Whole
from support.product_server import ProductServer, accepted, failed, product_server
from support.pulls import captured_runs, contents_of, pull, runs_of, spans_by_trace
from support.recorded_products import MLflowApi, whole_window
from support.trace_servers import HTML


def mlflow(server: ProductServer, query: str = "") -> str:
    return f"mlflow+{server.url}{query}"


def without_services(runs: dict[str, Any]) -> dict[str, Any]:
    """Return what MLflow keeps of runs, which is not the service."""
    return {run_id: (*content[:2], *content[3:]) for run_id, content in contents_of(runs).items()}


def restored(*pairs: tuple[str, Any]) -> dict[str, Any]:
    """Return the attributes of a span that MLflow returned with some attributes."""
    span = _otlp_span({"attributes": [{"key": key, "value": value} for key, value in pairs]})
    return {pair["key"]: pair["value"] for pair in span["attributes"]}


@pytest.mark.parametrize("page_size", [1, 5, 100])
def test_the_runs_read_from_mlflow_are_those_of_the_files(page_size: int, tmp_path: Path) -> None:
    with product_server(MLflowApi()) as server:
        assert pull(mlflow(server), tmp_path, whole_window(), page_size=page_size) == []
    assert without_services(runs_of(tmp_path)) == without_services(captured_runs())


def test_only_traces_that_began_in_the_window_are_read(tmp_path: Path) -> None:
    api = MLflowApi()
    starts = sorted(nanoseconds(trace["request_time"]) for trace in api.traces)
    with product_server(api) as server:
        pull(mlflow(server), tmp_path, TimeWindow(starts[2], starts[5]))
    wanted = [trace for trace in api.traces if starts[2] <= nanoseconds(trace["request_time"]) < starts[5]]
    assert set(spans_by_trace(tmp_path)) == {trace["trace_id"].removeprefix("tr-") for trace in wanted}


def test_a_notice_counts_the_traces_without_spans(tmp_path: Path) -> None:
    api = MLflowApi()
    api.incomplete = {trace["trace_id"] for trace in api.traces[:2]}
    with product_server(api) as server:
        notices = pull(mlflow(server), tmp_path, whole_window())
    assert notices == [
        "MLflow returned no spans of 2 traces: they are not complete, or are not in its store",
    ]
    assert len(spans_by_trace(tmp_path)) == len(api.traces) - 2


@pytest.mark.parametrize(
    ("query", "environment", "asked"),
    [
        ("", {}, None),
        ("?experiment=0", {"MLFLOW_EXPERIMENT_NAME": "other"}, None),
        ("", {"MLFLOW_EXPERIMENT_ID": "0", "MLFLOW_EXPERIMENT_NAME": "other"}, None),
        ("?experiment=shop", {}, "shop"),
        ("", {"MLFLOW_EXPERIMENT_NAME": "shop"}, "shop"),
    ],
)
def test_the_experiment(query: str, environment: dict[str, str], asked: str | None, tmp_path: Path) -> None:
    with product_server(MLflowApi()) as server:
        pull(mlflow(server, query), tmp_path, whole_window(), environment=environment, page_size=4)
    names = [request.query["experiment_name"] for request in server.received if "experiment_name" in request.query]
    assert names == ([asked] if asked else [])


def test_an_experiment_that_does_not_exist_is_an_error(tmp_path: Path) -> None:
    with (
        product_server(MLflowApi()) as server,
        pytest.raises(ConfigurationError, match="MLflow has no experiment 'shops'"),
    ):
        pull(mlflow(server, "?experiment=shops"), tmp_path)


def test_a_rejected_token_is_an_error_that_names_the_variable(tmp_path: Path) -> None:
    for query in ("", "?experiment=shop"):
        with (
            product_server(lambda request: failed(401, "no")) as server,
            pytest.raises(ConfigurationError, match="MLFLOW_TRACKING_TOKEN") as caught,
        ):
            pull(mlflow(server, query), tmp_path, environment={"MLFLOW_TRACKING_TOKEN": "a-token"})
        assert "a-token" not in str(caught.value)
        assert {request.headers["authorization"] for request in server.received} == {"Bearer a-token"}


@pytest.mark.parametrize(
    "answer", [HTML, accepted([]), accepted({"traces": "none"}), accepted({"traces": [{"id": "x"}]})]
)
def test_a_reply_of_another_form_is_an_error(answer: Whole, tmp_path: Path) -> None:
    with (
        product_server(lambda request: answer) as server,
        pytest.raises(TraceFileError, match=f"^{server.url} does not answer as the API of mlflow does$"),
    ):
        pull(mlflow(server), tmp_path)


def test_ids_are_hexadecimal() -> None:
    span = {"trace_id": "AAECAwQFBgcICQoLDA0ODw==", "span_id": "AAECAwQFBgc=", "parent_span_id": "not base64"}
    assert _otlp_span(span) == {
        "traceId": "000102030405060708090a0b0c0d0e0f",
        "spanId": "0001020304050607",
        "parentSpanId": "",
        "attributes": [],
    }


def test_a_value_that_mlflow_parsed_is_text_again() -> None:
    mapping = {"kvlist_value": {"values": [{"key": "city", "value": {"string_value": "Zürich"}}]}}
    texts = {"array_value": {"values": [{"string_value": "a"}, {"string_value": "b"}]}}
    numbers = {"array_value": {"values": [{"int_value": "1"}]}}
    found = restored(
        ("gen_ai.tool.call.arguments", mapping),
        ("gen_ai.response.finish_reasons", texts),
        ("gen_ai.tool.call.result", texts),
        ("output.value", texts),
        ("numbers", numbers),
        ("plain", {"string_value": "text"}),
    )
    assert found == {
        "gen_ai.tool.call.arguments": {"stringValue": '{"city": "Zürich"}'},
        "gen_ai.response.finish_reasons": {"arrayValue": {"values": [{"stringValue": "a"}, {"stringValue": "b"}]}},
        "gen_ai.tool.call.result": {"stringValue": '["a", "b"]'},
        "output.value": {"stringValue": '["a", "b"]'},
        "numbers": {"stringValue": "[1]"},
        "plain": {"stringValue": "text"},
    }


def test_the_attributes_that_mlflow_derives_are_removed() -> None:
    derived = ("mlflow.spanType", {"string_value": '"TOOL"'})
    assert set(restored(derived, ("gen_ai.operation.name", {"string_value": "execute_tool"}))) == {
        "gen_ai.operation.name"
    }


def test_the_attributes_of_a_span_of_mlflow_are_kept() -> None:
    own = ("mlflow.spanType", {"string_value": '"TOOL"'}), ("mlflow.spanInputs", {"string_value": "{}"})
    assert set(restored(*own)) == {"mlflow.spanType", "mlflow.spanInputs"}
