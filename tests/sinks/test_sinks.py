"""Attributes, events and metrics of an evaluation, recorded by the real SDK."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import InMemoryLogRecordExporter, SimpleLogRecordProcessor
from opentelemetry.sdk.metrics import TraceBasedExemplarFilter
from opentelemetry.sdk.trace import TracerProvider

from goldspan import (
    Evaluation,
    ExpectedTool,
    Golden,
    Goldens,
    Health,
    Match,
    Run,
    Score,
    ScoringProcessor,
    Times,
    ToolCall,
    evaluate,
)
from goldspan.sinks import EventSink, MetricSink, result_attributes
from goldspan.sinks.metric_sink import CardinalityLimit, short_label
from support.metric_readers import Meter

GOLDEN = Golden(
    "refund",
    tools=(ExpectedTool("find_order"), ExpectedTool("refund", {"order": "A-42"})),
    forbid=("delete_*",),
)
RUN = Run(
    run_id=f"{1:032x}:{2:016x}",
    trace_ids=(f"{1:032x}",),
    span_id=f"{2:016x}",
    golden_id="refund",
    end_ns=1_000,
    tool_calls=(
        ToolCall("FindOrder", arguments={"order": "A-42"}, error="timeout"),
        ToolCall("delete_order", arguments={"order": "secret-7"}),
        ToolCall("unheard_of"),
    ),
)


@pytest.fixture
def evaluation() -> Evaluation:
    return evaluate(RUN, Goldens([GOLDEN]))


@pytest.fixture
def unmatched() -> Evaluation:
    return evaluate(replace(RUN, golden_id=None), Goldens())


# --- attributes -------------------------------------------------------------------------------------------------------


def test_result_attributes_contain_tools_golden_scores_and_verdict(evaluation: Evaluation) -> None:
    attributes = result_attributes(evaluation)
    assert attributes["goldspan.tools_used"] == ["FindOrder", "delete_order", "unheard_of"]
    assert attributes["goldspan.golden.id"] == "refund"
    assert attributes["goldspan.golden.match"] == "id"
    assert attributes["goldspan.score.tool_recall"] == 0.5
    assert attributes["goldspan.passed"] is False
    assert attributes["goldspan.revision"] == 1
    assert "secret-7" not in str(attributes)


def test_result_attributes_omit_unknown_values(unmatched: Evaluation) -> None:
    attributes = result_attributes(unmatched)
    assert attributes["goldspan.tools_used"] == ["FindOrder", "delete_order", "unheard_of"]
    assert not {"goldspan.golden.id", "goldspan.golden.match", "goldspan.passed"} & set(attributes)
    assert "goldspan.score.tool_recall" not in attributes


def test_result_attributes_have_no_reason_if_reasons_are_disabled() -> None:
    assert "goldspan.reason" not in result_attributes(evaluate(RUN, GOLDEN, reasons=False))


# --- events -----------------------------------------------------------------------------------------------------------


def _events(evaluation: Evaluation) -> dict[str, Any]:
    exporter, provider = InMemoryLogRecordExporter(), LoggerProvider()
    provider.add_log_record_processor(SimpleLogRecordProcessor(exporter))
    EventSink(provider).submit(evaluation)
    provider.shutdown()
    records = [data.log_record for data in exporter.get_finished_logs()]
    assert {record.event_name for record in records} == {"gen_ai.evaluation.result"}
    return {record.attributes["gen_ai.evaluation.name"]: record for record in records}  # type: ignore[index]


def test_every_score_is_emitted_as_an_event_on_the_span_of_the_run(evaluation: Evaluation) -> None:
    events = _events(evaluation)
    assert set(events) == {score.metric for score in evaluation.scores}
    assert {(event.trace_id, event.span_id, event.timestamp) for event in events.values()} == {(1, 2, 1_000)}
    correctness = events["tool_correctness"].attributes
    score = evaluation.score("tool_correctness")
    assert score is not None
    assert correctness["gen_ai.evaluation.score.value"] == score.value
    assert correctness["gen_ai.evaluation.score.label"] == score.label
    assert correctness["gen_ai.evaluation.explanation"] == "Expected but not called: refund."
    assert events["tool_success"].attributes["gen_ai.evaluation.explanation"] == evaluation.reason  # no threshold
    assert correctness["goldspan.run.id"] == RUN.run_id
    assert correctness["goldspan.golden.id"] == "refund"
    assert "secret-7" not in str([event.attributes for event in events.values()])


def test_the_event_of_a_score_without_a_reason_carries_the_reason_of_the_evaluation() -> None:
    right = evaluate(replace(RUN, tool_calls=(ToolCall("find_order"), ToolCall("refund"))), GOLDEN)
    explanations = _events(right)["tool_recall"].attributes
    assert explanations["gen_ai.evaluation.explanation"] == right.reason
    wrong = evaluate(replace(RUN, tool_calls=(ToolCall("find_order"),)), GOLDEN)
    events = _events(wrong)
    assert events["tool_recall"].attributes["gen_ai.evaluation.explanation"] == wrong.reason
    assert events["tool_success"].attributes["gen_ai.evaluation.score.value"] == 1.0
    assert "gen_ai.evaluation.explanation" not in events["tool_success"].attributes
    unknown = evaluate(RUN, None)
    assert "gen_ai.evaluation.explanation" not in _events(unknown)["tool_success"].attributes
    bare = evaluate(RUN, GOLDEN, reasons=False)
    assert not any("gen_ai.evaluation.explanation" in event.attributes for event in _events(bare).values())


def test_a_metric_without_a_value_is_emitted_as_an_event_without_a_value(unmatched: Evaluation) -> None:
    recall = _events(unmatched)["tool_recall"].attributes
    assert recall["gen_ai.evaluation.score.label"] == "not_evaluated"
    assert "gen_ai.evaluation.score.value" not in recall
    assert "goldspan.golden.id" not in recall


def test_the_event_of_a_failed_metric_contains_the_error_type_but_not_its_text(evaluation: Evaluation) -> None:
    failed = replace(evaluation, scores=(Score("mine", error="KeyError: 'secret-7'"),))
    attributes = _events(failed)["mine"].attributes
    assert attributes["error.type"] == "KeyError"
    assert attributes["gen_ai.evaluation.score.label"] == "not_evaluated"
    assert "secret-7" not in str(attributes)


@pytest.mark.parametrize(
    "ids",
    [
        {"span_id": None},
        {"trace_ids": ()},
        {"trace_ids": ("order-17",)},
        {"span_id": "first step"},
        {"trace_ids": ("f" * 33,)},
    ],
    ids=["no span", "no trace", "no trace id", "no span id", "too long"],
)
def test_events_of_a_run_without_a_valid_span_refer_to_no_span(evaluation: Evaluation, ids: dict[str, Any]) -> None:
    without_span = replace(evaluation, run=replace(RUN, **ids))
    with TracerProvider().get_tracer("app").start_as_current_span("something else"):
        events = _events(without_span)
    assert {(event.trace_id, event.span_id) for event in events.values()} == {(0, 0)}
    assert not trace.get_current_span().is_recording()


# --- metrics ----------------------------------------------------------------------------------------------------------


def test_scores_are_recorded_by_metric_in_a_histogram_with_buckets_from_0_to_1(evaluation: Evaluation) -> None:
    meter = Meter()
    MetricSink(meter.provider).submit(evaluation)
    points = meter.points("goldspan.score", "goldspan.metric")
    assert set(points) == {(score.metric,) for score in evaluation.scores if score.value is not None}
    recall = points["tool_recall",]
    assert recall.explicit_bounds == (0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.99, 1)
    assert (recall.sum, recall.count) == (0.5, 1)
    (exemplar,) = recall.exemplars
    assert (exemplar.trace_id, exemplar.span_id) == (1, 2)


def test_tools_in_the_vocabulary_are_counted_by_name_and_all_others_as_other(evaluation: Evaluation) -> None:
    meter = Meter()
    MetricSink(meter.provider, vocabulary=["find_order", "refund"]).submit(evaluation)
    points = meter.points("goldspan.tools", "goldspan.tool", "goldspan.verdict")
    assert {labels: point.value for labels, point in points.items()} == {
        ("find_order", "expected"): 1,
        ("find_order", "failed"): 1,
        ("refund", "expected"): 1,
        ("refund", "missing"): 1,
        ("other", "forbidden"): 1,
        ("other", "unexpected"): 1,
    }


def test_an_optional_tool_is_not_counted_as_expected() -> None:
    meter = Meter()
    golden = Golden("g", tools=(ExpectedTool("a"), ExpectedTool("b", times=Times(0, 1))))
    sink = MetricSink(meter.provider, vocabulary=["a", "b"])
    for called in (["a"], ["a", "b"]):
        sink.submit(evaluate(called, golden))
    counted = meter.points("goldspan.tools", "goldspan.tool", "goldspan.verdict")
    assert {labels: point.value for labels, point in counted.items()} == {("a", "expected"): 2}


def test_tools_that_a_golden_file_declares_without_expecting_them_are_counted_by_name(tmp_path: Path) -> None:
    goldens = tmp_path / "goldens.yaml"
    goldens.write_text("tools: {cancel_trip: {effect: write}}\ngoldens: [{id: trip, tools: [find_trip]}]")
    meter, provider = Meter(), TracerProvider()
    provider.add_span_processor(ScoringProcessor(goldens, meter_provider=meter.provider))
    tracer = provider.get_tracer("app")
    asked = {"gen_ai.operation.name": "invoke_agent", "goldspan.golden.id": "trip"}
    with tracer.start_as_current_span("invoke_agent", attributes=asked):
        for name in ("CancelTrip", "unheard_of"):
            used = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": name}
            tracer.start_span(f"execute_tool {name}", attributes=used).end()
    provider.shutdown()
    assert set(meter.points("goldspan.tools", "goldspan.tool", "goldspan.verdict")) == {
        ("find_trip", "expected"),
        ("find_trip", "missing"),
        ("cancel_trip", "unexpected"),
        ("other", "unexpected"),
    }


def test_tools_of_reloaded_goldens_are_counted_by_name(evaluation: Evaluation) -> None:
    meter = Meter()
    sink = MetricSink(meter.provider, vocabulary=["unheard_of"])
    for goldens in (Goldens([GOLDEN]), Goldens([Golden("new", forbid=(), tools=(ExpectedTool("delete_order"),))])):
        sink.adopt(goldens)
        sink.submit(evaluation)
    counted = meter.counts("goldspan.tools", "goldspan.tool", "goldspan.verdict")
    assert counted["find_order", "expected"] == counted["other", "expected"] - 1 == 1
    assert counted["delete_order", "forbidden"] == counted["other", "forbidden"] == 1
    assert counted["unheard_of", "unexpected"] == 2


def test_runs_are_counted_by_verdict_unit_and_golden_match(evaluation: Evaluation, unmatched: Evaluation) -> None:
    meter = Meter()
    sink = MetricSink(meter.provider)
    for one in (evaluation, evaluation, unmatched):
        sink.submit(one)
    assert meter.counts("goldspan.evaluations", "goldspan.label", "goldspan.unit", "goldspan.golden.match") == {
        ("fail", "request", "id"): 2,
        ("not_evaluated", "request", "none"): 1,
    }


def test_a_run_with_revisions_is_counted_once_and_its_revisions_are_counted_separately(evaluation: Evaluation) -> None:
    meter = Meter()
    sink = MetricSink(meter.provider, vocabulary=["find_order"])
    sink.submit(evaluation)
    before = {name: str(metric.data) for name, metric in meter.metrics().items()}
    sink.submit(replace(evaluation, revision=2, passed=True))
    sink.submit(replace(evaluation, revision=3, passed=None))
    assert meter.counts("goldspan.revisions", "goldspan.label", "goldspan.unit") == {
        ("pass", "request"): 1,
        ("not_evaluated", "request"): 1,
    }
    after = {name: metric.data for name, metric in meter.metrics().items() if name in before}
    assert set(before) == set(after) == {"goldspan.score", "goldspan.evaluations", "goldspan.tools"}
    assert meter.counts("goldspan.evaluations") == {(): 1}
    assert {point.count for point in meter.points("goldspan.score", "goldspan.metric").values()} == {1}
    assert sum(meter.counts("goldspan.tools", "goldspan.tool", "goldspan.verdict").values()) == 6


def test_health_problems_of_runs_are_counted(evaluation: Evaluation) -> None:
    meter = Meter()
    sink = MetricSink(meter.provider)
    for health in (Health(), Health(merged=2), Health(stitched=1, unended=3), Health(stitched=4)):
        sink.submit(replace(evaluation, run=replace(evaluation.run, health=health)))
    assert meter.counts("goldspan.health", "goldspan.problem", "goldspan.unit") == {
        ("stitched", "request"): 2,
        ("unended", "request"): 1,
    }


def test_evaluations_submitted_together_give_the_same_metrics_as_one_by_one(
    evaluation: Evaluation, unmatched: Evaluation
) -> None:
    stitched = replace(evaluation, run=replace(evaluation.run, health=Health(stitched=1), environment="test"))
    many = [evaluation, unmatched, stitched, replace(evaluation, revision=2, passed=True), evaluation]
    single, together = Meter(), Meter()
    one_by_one = MetricSink(single.provider, vocabulary=["find_order"])
    for one in many:
        one_by_one.submit(one)
    MetricSink(together.provider, vocabulary=["find_order"]).submit_many(many)
    names = {"goldspan.score", "goldspan.evaluations", "goldspan.tools", "goldspan.revisions", "goldspan.health"}
    assert set(single.metrics()) == set(together.metrics()) == names
    for name in names:
        assert _values(together, name) == _values(single, name)


def _values(meter: Meter, name: str) -> dict[Any, Any]:
    """Returns the value of each point, of a histogram its buckets, by all labels."""
    return {
        tuple(sorted(point.attributes.items())): getattr(point, "value", None) or (point.sum, point.bucket_counts)
        for point in meter.metrics()[name].data.data_points
    }


def test_an_evaluation_that_cannot_be_recorded_does_not_prevent_the_others(
    evaluation: Evaluation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GOLDSPAN_STRICT", "0")
    broken = replace(evaluation, run=replace(evaluation.run, environment=7))  # type: ignore[arg-type]
    meter = Meter()
    MetricSink(meter.provider).submit_many([evaluation, broken, evaluation])
    assert meter.counts("goldspan.evaluations") == {(): 2}


def test_every_metric_has_an_exemplar_that_refers_to_the_span_of_the_run(evaluation: Evaluation) -> None:
    meter = Meter(exemplar_filter=TraceBasedExemplarFilter())
    sink = MetricSink(meter.provider)
    sink.submit(evaluation)
    sink.submit(replace(evaluation, revision=2))
    recorded = meter.metrics()
    assert set(recorded) == {"goldspan.score", "goldspan.evaluations", "goldspan.tools", "goldspan.revisions"}
    for metric in recorded.values():
        for point in metric.data.data_points:
            assert {(exemplar.trace_id, exemplar.span_id) for exemplar in point.exemplars} == {(1, 2)}, metric.name


def test_metrics_of_a_run_without_a_span_have_no_exemplar(evaluation: Evaluation) -> None:
    meter = Meter()
    with TracerProvider().get_tracer("app").start_as_current_span("something else"):
        MetricSink(meter.provider).submit(replace(evaluation, run=replace(RUN, span_id=None)))
    points = [point for metric in meter.metrics().values() for point in metric.data.data_points]
    assert points
    assert not any(point.exemplars for point in points)


def test_environments_are_distinguished_up_to_a_limit_and_then_counted_as_other(evaluation: Evaluation) -> None:
    meter = Meter()
    sink = MetricSink(meter.provider)
    environment = "deployment.environment.name"
    sink.submit(evaluation)
    for number in (*range(12), 3, 11):
        sink.submit(replace(evaluation, run=replace(RUN, environment=f"preview-{number}")))
    counted = meter.counts("goldspan.evaluations", environment)
    assert counted == {(None,): 1, **{(f"preview-{number}",): 1 for number in range(10) if number != 3},
                       ("preview-3",): 2, ("other",): 3}  # fmt: skip
    for name in ("goldspan.score", "goldspan.tools"):
        assert len(meter.points(name, environment)) == 12


def test_the_similarity_is_emitted_only_if_the_golden_was_found_by_near_text(evaluation: Evaluation) -> None:
    near = replace(evaluation, match=Match(GOLDEN, "near", 0.93))
    assert result_attributes(near)["goldspan.golden.similarity"] == 0.93
    assert {event.attributes["goldspan.golden.similarity"] for event in _events(near).values()} == {0.93}
    assert "goldspan.golden.similarity" not in result_attributes(evaluation)
    assert not any("goldspan.golden.similarity" in event.attributes for event in _events(evaluation).values())


def test_the_events_of_each_revision_carry_its_number(evaluation: Evaluation) -> None:
    assert {event.attributes["goldspan.revision"] for event in _events(evaluation).values()} == {1}
    assert {event.attributes["goldspan.revision"] for event in _events(replace(evaluation, revision=4)).values()} == {4}


def test_a_very_long_name_is_shortened_to_a_unique_label() -> None:
    long, other = "x" * 150_000, "x" * 149_999 + "y"
    assert short_label("helper") == "helper"
    assert len(short_label(long)) == 200
    assert short_label(long) != short_label(other)
    assert short_label(long) == short_label(long)
    assert CardinalityLimit(1)(long) == short_label(long)
