"""Judge verdicts in sinks: separate events and scores; the words of the judge only where values are allowed."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import InMemoryLogRecordExporter, SimpleLogRecordProcessor
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from goldspan import Evaluation, Score
from goldspan.judge.tool_selection import with_threshold, with_tool_selection
from goldspan.model import Judgement
from goldspan.sinks import ArgumentFilter, EventSink, JsonLinesSink, MetricSink, SpanSink
from goldspan.sinks.serialization import evaluation_document
from goldspan.store import open_store
from support.evaluation_builders import evaluation
from support.metric_readers import Meter

JUDGEMENT = Judgement(
    "tiny-judge",
    votes=(0.2, 0.4, 0.9),
    agreement=2 / 3,
    better_tool="look_up",
    words="the argument was SECRET",
    temperature=0.0,
    seed=7,
    input_tokens=300,
    output_tokens=60,
    cost=0.002,
)
SCORE = Score("tool_selection", 0.4, reason="tiny-judge rates the choice of tools 0.4.", judgement=JUDGEMENT)

GATE = with_threshold(SCORE, 0.5)
"""The same score with a threshold of the judge."""


def verdict(score: Score = SCORE, **options: Any) -> Evaluation:
    return with_tool_selection(evaluation(), score, **options).with_revision(2)


def events_of(judged: Evaluation) -> list[Any]:
    exporter = InMemoryLogRecordExporter()
    provider = LoggerProvider(shutdown_on_exit=False)
    provider.add_log_record_processor(SimpleLogRecordProcessor(exporter))
    EventSink(provider).submit(judged)
    return [record.log_record.attributes for record in exporter.get_finished_logs()]


def test_a_judge_verdict_is_one_event_with_the_parameters_of_the_judge() -> None:
    (event,) = events_of(verdict())
    assert event["gen_ai.evaluation.name"] == "tool_selection"
    assert event["gen_ai.evaluation.score.value"] == 0.4
    assert event["gen_ai.evaluation.explanation"] == "tiny-judge rates the choice of tools 0.4."
    assert event["goldspan.revision"] == 2
    judge_attributes = {name: value for name, value in event.items() if name.startswith("goldspan.judge.")}
    assert judge_attributes == {
        "goldspan.judge.model": "tiny-judge",
        "goldspan.judge.rubric": 1,
        "goldspan.judge.votes": (0.2, 0.4, 0.9),
        "goldspan.judge.agreement": 2 / 3,
        "goldspan.judge.better_tool": "look_up",
        "goldspan.judge.temperature": 0.0,
        "goldspan.judge.seed": 7,
        "goldspan.judge.cached": 0,
        "goldspan.judge.input_tokens": 300,
        "goldspan.judge.output_tokens": 60,
        "goldspan.judge.cost": 0.002,
    }
    assert "SECRET" not in str(event)


def test_unknown_fields_of_a_judgement_are_omitted_from_the_attributes() -> None:
    (event,) = events_of(verdict(replace(SCORE, judgement=Judgement("m", votes=(0.4,)))))
    judge_attributes = {name for name in event if name.startswith("goldspan.judge.")}
    assert judge_attributes == {f"goldspan.judge.{name}" for name in ("model", "rubric", "votes", "cached")}


def test_a_verdict_that_lowers_another_score_emits_events_for_both_scores() -> None:
    events = events_of(verdict(GATE, combination="min"))
    assert [event["gen_ai.evaluation.name"] for event in events] == ["tool_correctness", "tool_selection"]
    assert events[0]["gen_ai.evaluation.score.label"] == "fail"


def test_a_failed_judge_is_an_event_with_the_type_of_the_error_only() -> None:
    (event,) = events_of(verdict(Score("tool_selection", label="not_evaluated", error="Timeout: SECRET")))
    assert event["error.type"] == "Timeout"
    assert event["gen_ai.evaluation.score.label"] == "not_evaluated"
    assert "gen_ai.evaluation.score.value" not in event
    assert "SECRET" not in str(event)


def test_a_verdict_records_its_score_once_and_does_not_count_the_run_again() -> None:
    meter = Meter()
    sink = MetricSink(meter.provider)
    sink.submit(evaluation())
    before = {name: meter.counts(name) for name in ("goldspan.evaluations", "goldspan.tools")}
    sink.submit(verdict(combination="min"))
    points = meter.points("goldspan.score", "goldspan.metric")
    assert (points["tool_selection",].count, points["tool_selection",].sum) == (1, 0.4)
    assert points["tool_correctness",].count == 1
    assert {name: meter.counts(name) for name in before} == before
    assert meter.counts("goldspan.revisions") == {}


def test_the_evaluation_span_of_a_verdict_has_only_the_event_of_tool_selection() -> None:
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    SpanSink(provider).submit(verdict())
    (span,) = exporter.get_finished_spans()
    assert [event.attributes["gen_ai.evaluation.name"] for event in span.events] == ["tool_selection"]  # type: ignore[index]
    assert (span.attributes or {})["goldspan.score.tool_selection"] == 0.4


def test_documents_contain_the_judgement_and_its_words_only_if_arguments_are_included() -> None:
    (score,) = [each for each in evaluation_document(verdict())["scores"] if each["metric"] == "tool_selection"]
    assert score["judgement"]["votes"] == (0.2, 0.4, 0.9)
    assert "words" not in score["judgement"]
    assert all("judgement" not in each for each in evaluation_document(evaluation())["scores"])
    whole = evaluation_document(verdict(), include_arguments=True)["scores"][-1]
    assert whole["judgement"]["words"] == "the argument was SECRET"


def test_json_lines_contain_the_words_of_the_judge_only_if_arguments_are_enabled(tmp_path: Path) -> None:
    for arguments in (False, True):
        path = tmp_path / f"{arguments}.jsonl"
        sink = JsonLinesSink(path, arguments=arguments)
        sink.submit(verdict())
        sink.shutdown()
        line = path.read_text(encoding="utf-8")
        assert ("SECRET" in line) is arguments
        assert json.loads(line)["scores"][-1]["judgement"]["model"] == "tiny-judge"


def test_an_argument_filter_hides_the_words_of_the_judge_and_keeps_the_verdict() -> None:
    filtered = ArgumentFilter()(verdict())
    score = filtered.score("tool_selection")
    assert score is not None
    assert score.judgement == replace(JUDGEMENT, words="[redacted]")
    assert filtered.changes == ("tool_selection",)


def test_a_store_keeps_both_revisions_and_shows_the_verdict_of_the_judge(tmp_path: Path) -> None:
    with open_store(tmp_path / "runs.db") as store:
        store.submit(evaluation())
        store.submit(verdict(GATE, combination="min"))
        (run,) = store.runs().items
        assert (run.evaluation_count, run.current.revision) == (2, 2)
        assert run.current.document["passed"] is False
        assert "tool_selection" in store.metrics()
        assert "SECRET" not in str(run.current.document)
        digests = {each.digest for each in store.evaluations(run.run_id)}
        assert len(digests) == 1
