"""Tests of the encoding of evaluations as requests to back ends."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from capture.receivers import plain
from goldspan import ExpectedTool, Golden, Goldens, Run, evaluate, semconv
from goldspan.errors import ConfigurationError
from goldspan.gateway.journal.journal import NewEntry
from goldspan.gateway.scoring import results_queue
from goldspan.gateway.scoring.results_queue import ResultEncoder
from support.evaluation_builders import evaluation

_REQUESTS: dict[str, Any] = {
    "traces": (ExportTraceServiceRequest, "resource_spans", "scope_spans", "spans"),
    "logs": (ExportLogsServiceRequest, "resource_logs", "scope_logs", "log_records"),
    "metrics": (ExportMetricsServiceRequest, "resource_metrics", "scope_metrics", "metrics"),
}


def scopes(item: NewEntry) -> list[tuple[dict[str, Any], str, list[Any]]]:
    """Returns the resource attributes, the name and the items of each scope of a request."""
    message, resources, scopes, items = _REQUESTS[item.signal]
    return [
        (plain(resource.resource.attributes), scope.scope.name, list(getattr(scope, items)))
        for resource in getattr(message.FromString(item.body), resources)
        for scope in getattr(resource, scopes)
    ]


def encoded_items(kind: str, *evaluations: Any) -> list[Any]:
    made = ResultEncoder([kind])  # type: ignore[list-item]
    for one in evaluations:
        made.submit(one)
    return [each for item in made.drain(is_final=True) for _, _, items in scopes(item) for each in items]


def test_events_have_the_ids_of_the_evaluated_run() -> None:
    one = evaluation(7, "search", "book")
    events = encoded_items("events", one)
    assert len(events) == len(one.scores) > 1
    assert {event.trace_id.hex() for event in events} == {f"{7:032x}"}
    assert {event.span_id.hex() for event in events} == {f"{7:016x}"}
    assert {event.event_name for event in events} == {"gen_ai.evaluation.result"}
    assert {event.time_unix_nano for event in events} == {1_000}
    told = {plain(event.attributes)["gen_ai.evaluation.name"]: plain(event.attributes) for event in events}
    assert told["tool_precision"]["gen_ai.evaluation.score.value"] == 0.5
    assert told["tool_precision"]["goldspan.run.id"] == f"{7:032x}:{7:016x}"


def test_evaluation_spans_are_children_of_the_evaluated_run() -> None:
    (span,) = encoded_items("spans", evaluation(7))
    assert (span.trace_id.hex(), span.parent_span_id.hex()) == (f"{7:032x}", f"{7:016x}")
    assert plain(span.attributes)["goldspan.evaluation"] is True


def test_metrics_are_cumulative_since_the_start_of_the_process() -> None:
    made = ResultEncoder(["metrics"])
    for number in (1, 2):
        made.submit(evaluation(number))
        (item,) = made.drain(is_final=True)
        metrics = {metric.name: metric for _, _, items in scopes(item) for metric in items}
        (point,) = metrics[semconv.EVALUATIONS_COUNTER].sum.data_points
        assert point.as_int == number
        assert metrics[semconv.EVALUATIONS_COUNTER].sum.is_monotonic
        assert semconv.SCORE_HISTOGRAM in metrics


def test_tool_metrics_name_only_tools_of_the_adopted_goldens() -> None:
    made = ResultEncoder(["metrics", "events"])
    made.adopt(Goldens([Golden("flight", tools=[ExpectedTool("search")])]))
    made.submit(evaluation(1, "search", "book"))
    metrics = [metric for item in made.drain(is_final=True) for _, _, items in scopes(item) for metric in items]
    (tools,) = [metric for metric in metrics if getattr(metric, "name", "") == semconv.TOOLS_COUNTER]
    points = tools.sum.data_points
    assert {plain(point.attributes)[semconv.TOOL_LABEL] for point in points} == {"search", "other"}


def test_all_results_are_in_the_scope_of_the_gateway() -> None:
    made = ResultEncoder(["events", "metrics", "spans"])
    made.submit(evaluation())
    items = made.drain(is_final=True)
    assert [item.signal for item in items] == ["logs", "traces", "metrics"]
    assert {(item.media, item.origin) for item in items} == {("protobuf", "result")}
    seen = [scope for item in items for scope in scopes(item)]
    assert {name for _, name, _ in seen} == {semconv.GATEWAY_SCOPE}
    assert {resource["service.name"] for resource, _, _ in seen} == {"goldspan-gateway"}
    assert len({resource["service.instance.id"] for resource, _, _ in seen}) == 1


def test_each_encoder_has_its_own_service_instance_id() -> None:
    instances = set()
    for _ in range(2):
        made = ResultEncoder(["events"])
        made.submit(evaluation())
        instances |= {resource["service.instance.id"] for item in made.drain() for resource, _, _ in scopes(item)}
    assert len(instances) == 2


def test_drained_results_are_not_returned_again() -> None:
    made = ResultEncoder(["events", "spans"])
    made.submit(evaluation(1))
    assert len(made.drain()) == 2
    assert made.drain() == []
    made.submit(evaluation(2))
    (logs, _) = made.drain()
    assert {event.trace_id.hex() for _, _, events in scopes(logs) for event in events} == {f"{2:032x}"}


def test_metrics_are_collected_at_the_configured_interval() -> None:
    now = [0.0]
    made = ResultEncoder(["metrics"], metrics_seconds=10, clock=lambda: now[0])
    made.submit(evaluation())
    found = []
    for moment in (0, 9.9, 10, 11, 19.9, 20, 45, 46):
        now[0] = moment
        found.append(len(made.drain()))
    assert found == [0, 0, 1, 0, 0, 1, 1, 0]


def test_without_evaluations_nothing_is_drained() -> None:
    assert ResultEncoder(["metrics", "events", "spans"]).drain(is_final=True) == []


def test_the_number_of_items_per_request_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results_queue, "MAX_ITEMS_PER_REQUEST", 50)
    made = ResultEncoder(["spans"])
    for number in range(1, 121):
        made.submit(evaluation(number))
    assert [len(items) for item in made.drain() for _, _, items in scopes(item)] == [50, 50, 20]


def test_a_run_without_a_span_has_events_without_a_trace_id() -> None:
    one = evaluate(Run("conversation-1", unit="conversation"), ["search"])
    events = encoded_items("events", one)
    assert {event.trace_id for event in events} == {b""}
    assert {plain(event.attributes)["goldspan.run.id"] for event in events} == {"conversation-1"}


def test_concurrent_submissions_lose_no_event() -> None:
    made = ResultEncoder(["events"])
    one = evaluation()
    done = threading.Event()

    def submit() -> None:
        for _ in range(200):
            made.submit(one)

    threads = [threading.Thread(target=submit) for _ in range(4)]
    items: list[NewEntry] = []

    def take() -> None:
        while not done.is_set():
            items.extend(made.drain())

    taker = threading.Thread(target=take)
    for thread in (*threads, taker):
        thread.start()
    for thread in threads:
        thread.join()
    done.set()
    taker.join()
    items += made.drain()
    assert sum(len(events) for item in items for _, _, events in scopes(item)) == 800 * len(one.scores)


def test_sdk_sampling_and_service_name_in_the_environment_are_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "always_off")
    monkeypatch.setenv("OTEL_METRICS_EXEMPLAR_FILTER", "always_off")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test,service.name=app")
    made = ResultEncoder(["spans", "events"])
    made.submit(replace(evaluation(), revision=2))
    for item in made.drain():
        for resource, _, items in scopes(item):
            assert items
            assert resource["service.name"] == "goldspan-gateway"
            assert resource["deployment.environment.name"] == "test"


def test_an_unknown_kind_of_result_is_a_configuration_error() -> None:
    with pytest.raises(ConfigurationError, match="results must be events, metrics or spans, not 'attributes'"):
        ResultEncoder(["attributes"])  # type: ignore[list-item]
