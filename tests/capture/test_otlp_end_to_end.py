"""Results of decorated tools arrive at a receiver through the standard OTLP exporters."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import pytest

import goldspan
from capture.receivers import Received, grpc_receiver, http_receiver, plain
from goldspan import ExpectedTool, Golden
from goldspan.sinks.metric_sink import SCORE_BUCKETS

GOLDENS = [
    Golden(
        "refund-42",
        tools=(ExpectedTool("find_order"), ExpectedTool("refund", {"order": "A-42", "amount": 12.5})),
        threshold=0.9,
    )
]
SECRET = "card 4111-1111"

Receiver = Callable[[], AbstractContextManager[tuple[str, Received]]]


@goldspan.trace
def find_order(order: str) -> dict[str, str]:
    return {"order": order, "paid_with": SECRET}


@goldspan.trace
def refund(order: str, amount: float, to: str) -> bool:
    raise PermissionError("limit reached")


@goldspan.trace
def apologize() -> str:
    return "sorry"


@goldspan.trace(kind="agent", golden="refund-42", name="support")
def support(question: str) -> str:
    find_order("A-42")
    try:
        refund("A-42", 99.0, to=SECRET)
    except PermissionError:
        return apologize()
    return "Done."


@pytest.fixture(
    params=[pytest.param(("http/protobuf", http_receiver), id="http"), pytest.param(("grpc", grpc_receiver), id="grpc")]
)
def received(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Received]:
    """The telemetry of one request of an instrumented program."""
    protocol, receiver = request.param
    with receiver() as (endpoint, received):
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", protocol)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)
        running = goldspan.instrument(GOLDENS)
        support("My order A-42 came broken.")
        running.shutdown()
        yield received


def test_results_arrive_over_otlp_as_span_attributes_events_and_metrics(received: Received) -> None:
    _check_spans(received)
    _check_events(received)
    _check_metrics(received)
    _check_that_no_argument_is_exported(received)


def _check_spans(received: Received) -> None:
    assert list(received.spans) == [
        "execute_tool find_order", "execute_tool refund", "execute_tool apologize", "invoke_agent support",
    ]  # fmt: skip
    for name, span in received.spans.items():
        assert any(key.startswith("goldspan.score.") for key in plain(span.attributes)) == (
            name == "invoke_agent support"
        )
    results = plain(received.spans["invoke_agent support"].attributes)
    assert results["goldspan.tools_used"] == ["find_order", "refund", "apologize"]
    assert results["goldspan.golden.id"] == "refund-42"
    assert results["goldspan.score.tool_recall"] == 1.0
    assert 0 < results["goldspan.score.argument_correctness"] < 1


def _check_events(received: Received) -> None:
    root = received.spans["invoke_agent support"]
    events = {plain(event.attributes)["gen_ai.evaluation.name"]: event for event in received.events}
    assert {event.event_name for event in received.events} == {"gen_ai.evaluation.result"}
    assert {(event.trace_id, event.span_id) for event in received.events} == {(root.trace_id, root.span_id)}
    assert {event.time_unix_nano for event in received.events} == {root.end_time_unix_nano}
    recall = plain(events["tool_recall"].attributes)
    assert recall["gen_ai.evaluation.score.value"] == 1.0
    correct = plain(events["tool_correctness"].attributes)
    assert correct["gen_ai.evaluation.score.label"] == "pass"
    assert correct["goldspan.run.id"] == f"{root.trace_id.hex()}:{root.span_id.hex()}"


def _check_metrics(received: Received) -> None:
    scores = received.metrics["goldspan.score"]
    assert scores.unit == "1"
    assert {tuple(point.explicit_bounds) for point in scores.histogram.data_points} == {SCORE_BUCKETS}
    recall = _point(scores.histogram.data_points, {"goldspan.metric": "tool_recall"})
    assert (recall.count, recall.sum) == (1, 1.0)
    (exemplar,) = recall.exemplars
    assert exemplar.span_id == received.spans["invoke_agent support"].span_id
    evaluations = received.metrics["goldspan.evaluations"].sum
    assert [(plain(point.attributes), point.as_int) for point in evaluations.data_points] == [
        ({"goldspan.label": "fail", "goldspan.unit": "request", "goldspan.golden.match": "id"}, 1)  # for its arguments
    ]
    tools = {
        (labels["goldspan.tool"], labels["goldspan.verdict"]): point.as_int
        for point in received.metrics["goldspan.tools"].sum.data_points
        if (labels := plain(point.attributes))
    }
    assert tools == {
        ("find_order", "expected"): 1,
        ("refund", "expected"): 1,
        ("refund", "failed"): 1,
        ("other", "unexpected"): 1,
    }


def _point(points: Any, labels: dict[str, str]) -> Any:
    (found,) = [point for point in points if labels.items() <= plain(point.attributes).items()]
    return found


def _check_that_no_argument_is_exported(received: Received) -> None:
    own = {
        key: value
        for span in received.spans.values()
        for key, value in plain(span.attributes).items()
        if key.startswith("goldspan.")
    }
    for exported in (own, [plain(event.attributes) for event in received.events], received.metrics):
        assert SECRET not in str(exported)
        assert "99" not in str([value for value in own.values() if isinstance(value, str)])
