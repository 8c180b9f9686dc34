"""A complete run is evaluated once, and every sink receives the evaluation."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from goldspan import (
    Comparison,
    ConfigurationError,
    Evaluation,
    ExpectedTool,
    Golden,
    Goldens,
    Health,
    Run,
    ToolCall,
    _guard,
    evaluate,
    extract,
)
from goldspan.goldens.golden_files.hot_reload import ReloadingGoldens
from goldspan.model import SpanRecord
from goldspan.online import CompletedSpans, Pipeline, RevisedSpans, check_units
from goldspan.online.assembled_spans import AssembledSpans, RunRevisions
from goldspan.online.sampling import Sampling, SamplingRule
from goldspan.online.session_requests import SessionRequests
from goldspan.sinks import BackgroundSink
from support.span_builders import agent, in_trace, inside, model, says, span, tool, trace_id

GOLDENS = Goldens([Golden("g", tools=(ExpectedTool("search"),))])
RUN = Run(run_id="r", golden_id="g", tool_calls=(ToolCall("search"),))


class RecordingSink:
    def __init__(self) -> None:
        self.evaluations: list[Evaluation] = []
        self.adopted: list[list[str]] = []

    def adopt(self, goldens: Goldens) -> None:
        self.adopted.append([golden.id for golden in goldens])

    def submit(self, evaluation: Evaluation) -> None:
        self.evaluations.append(evaluation)


class Raising:
    def submit(self, evaluation: Evaluation) -> None:
        raise OSError("disk full")


class BatchSink(RecordingSink):
    def __init__(self) -> None:
        super().__init__()
        self.batches: list[list[str]] = []

    def submit_many(self, evaluations: Sequence[Evaluation]) -> None:
        self.batches.append([evaluation.run.run_id for evaluation in evaluations])


def test_several_runs_are_submitted_together_to_sinks_that_accept_batches() -> None:
    runs = [Run(run_id=name, golden_id="g", tool_calls=(ToolCall("search"),)) for name in "abc"]
    batches, single = BatchSink(), RecordingSink()
    pipeline = Pipeline(GOLDENS, sinks=[batches, single])
    digest = evaluate(runs[1], GOLDENS).digest
    evaluated = pipeline.evaluate_revisions([(runs[0], None), (runs[1], (4, digest)), (runs[2], (1, "other"))])
    assert [each and (each.run.run_id, each.revision) for each in evaluated] == [("a", 1), ("b", 4), ("c", 2)]
    assert batches.batches == [["a", "c"]]
    assert [each.run.run_id for each in single.evaluations] == ["a", "c"]
    pipeline.evaluate_and_submit(RUN)
    assert [each.run.run_id for each in batches.evaluations] == ["r"]


def test_a_run_that_cannot_be_evaluated_does_not_prevent_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOLDSPAN_STRICT", "0")
    runs = [Run(run_id=name) for name in "abc"]
    sink = RecordingSink()

    def fails_for_one(run: Run) -> bool:
        if run.run_id == "b":
            raise OSError("disk full")
        return run.run_id != "c"

    sampling = Sampling(1.0)
    monkeypatch.setattr(Sampling, "should_sample", lambda _, run: fails_for_one(run))
    pipeline = Pipeline(GOLDENS, sinks=[sink], sampling=sampling)
    assert [each and each.run.run_id for each in pipeline.evaluate_revisions([(run, None) for run in runs])] == [
        "a",
        None,
        None,
    ]
    assert [each.run.run_id for each in sink.evaluations] == ["a"]
    assert pipeline.sampled_out == 1


def test_every_sink_receives_the_evaluation_even_if_another_sink_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOLDSPAN_STRICT", "0")
    before, after = RecordingSink(), RecordingSink()
    evaluation = Pipeline(GOLDENS, sinks=[before, Raising(), after]).evaluate_and_submit(RUN)
    assert evaluation.passed
    assert before.evaluations == after.evaluations == [evaluation]
    assert _guard.failure_counts == {"submit to Raising": 1}


def test_only_the_requested_metrics_are_computed() -> None:
    evaluation = Pipeline(GOLDENS, metrics=["tool_recall"], thresholds={"tool_recall": 1.0}).evaluate_and_submit(RUN)
    assert [(score.metric, score.passed) for score in evaluation.scores] == [("tool_recall", True)]


def test_a_run_without_goldens_yields_a_not_evaluated_result_with_its_tools() -> None:
    evaluation = Pipeline().evaluate_and_submit(RUN)
    assert (evaluation.status, evaluation.run.tools_used) == ("not_evaluated", ("search",))


def test_creating_a_pipeline_submits_nothing_to_its_sinks() -> None:
    kept = RecordingSink()
    Pipeline(GOLDENS, sinks=[kept])
    assert kept.evaluations == []


def test_an_unknown_metric_of_a_golden_is_rejected_when_the_pipeline_is_created() -> None:
    asking = Goldens([Golden("g", metrics=("tool_recal",))])
    with pytest.raises(ConfigurationError, match="golden 'g': unknown metric 'tool_recal'"):
        Pipeline(asking)
    assert Pipeline(asking, metrics=["tool_f1"])


def test_an_unknown_metric_is_rejected_when_the_pipeline_is_created() -> None:
    with pytest.raises(ConfigurationError, match="tool_recal"):
        Pipeline(GOLDENS, metrics=["tool_recal"])


@pytest.mark.parametrize(("given", "count"), [(frozenset(), 1), (frozenset({"0" * 15 + "a"}), 0)])
def test_a_run_that_was_already_released_is_not_evaluated_again(given: frozenset[str], count: int) -> None:
    root = agent(span_id="0" * 15 + "a")
    spans = (root, tool("search", parent_id=root.span_id))
    assert len(Pipeline(GOLDENS).evaluate_spans(CompletedSpans("request", spans, released_span_ids=given))) == count


def test_the_golden_id_attribute_is_configurable() -> None:
    root = agent(my__case="g")
    (evaluation,) = Pipeline(GOLDENS, golden_id_attributes=["my.case"]).evaluate_spans(
        CompletedSpans("request", (root,))
    )
    assert evaluation.match is not None
    assert evaluation.match.how == "id"


# --- redaction and sampling -------------------------------------------------------------------------------------------


def withhold(evaluation: Evaluation) -> None:
    return None


def stumble(evaluation: Evaluation) -> Evaluation:
    raise ValueError(evaluation.run.input)


@pytest.mark.parametrize("redact", [withhold, stumble])
def test_a_withheld_evaluation_reaches_no_sink_but_its_run_is_passed_to_the_callback(
    redact: Callable[[Evaluation], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GOLDSPAN_STRICT", "0")
    kept = RecordingSink()
    seen: list[Run] = []
    pipeline = Pipeline(GOLDENS, sinks=[kept], redact=redact)
    root = agent(asked="a secret")
    assert pipeline.evaluate_spans(CompletedSpans("request", (root,)), seen.append) == kept.evaluations == []
    assert [run.input for run in seen] == ["a secret"]
    assert sum(_guard.failure_counts.values()) == (redact is stumble)


def test_a_revision_is_also_withheld_by_the_redaction() -> None:
    kept = RecordingSink()
    pipeline = Pipeline(sinks=[kept], redact=withhold)
    root = agent()
    late = RevisedSpans((root,), (root, tool("search", **inside(root))), frozenset({root.span_id}), RunRevisions())
    assert pipeline.evaluate_spans(late) == kept.evaluations == []


def test_each_run_that_is_not_sampled_is_counted_once() -> None:
    kept = RecordingSink()
    pipeline = Pipeline(sinks=[kept], sampling=Sampling(1, [SamplingRule(0, agent="tester")]))
    known = RunRevisions()
    for root in (agent("tester"), agent("helper"), agent("tester")):
        pipeline.evaluate_spans(CompletedSpans("request", (root,), revisions=known))
    assert [evaluation.run.agent for evaluation in kept.evaluations] == ["helper"]
    assert pipeline.sampled_out == 2
    late = RevisedSpans((root,), (root, tool("search", **inside(root))), frozenset({root.span_id}), known)
    assert pipeline.evaluate_spans(late) == []
    assert pipeline.sampled_out == 2


def slow(comparison: Comparison) -> float:
    time.sleep(0.02)
    return 1.0


def test_metrics_beyond_the_time_budget_state_it_in_their_reason_and_are_counted() -> None:
    pipeline = Pipeline(GOLDENS, metrics=[slow, "tool_recall"], budget=0.01)
    evaluation = pipeline.evaluate_and_submit(RUN)
    assert evaluation is not None
    assert [(score.metric, score.value, score.error) for score in evaluation.scores] == [
        ("slow", 1.0, None),
        ("tool_recall", None, None),
    ]
    assert evaluation.scores[1].reason == "the time budget of the evaluation was used up"
    assert pipeline.over_budget == 1
    assert Pipeline(GOLDENS, metrics=["tool_recall"], budget=60).evaluate_and_submit(RUN) is not None


def test_runs_with_invisible_calls_are_counted_and_logged_once_per_convention(
    caplog: pytest.LogCaptureFixture,
) -> None:
    pipeline = Pipeline()
    for number in range(3):
        root = agent(**in_trace(number))
        pipeline.evaluate_spans(CompletedSpans("request", (root,)))
        seen = tool("search", **inside(root))
        pipeline.evaluate_spans(
            RevisedSpans((root,), (root, seen), frozenset({root.span_id, seen.span_id}), RunRevisions())
        )
    assert pipeline.invisible == 3
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert record.getMessage().startswith(
        "goldspan, for runs read by genai (logged once): no tool calls could have been seen."
    )
    assert "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT=SPAN_AND_EVENT" in record.getMessage()
    health = Health(calls_invisible=True, without_content=("pydantic_ai",))
    pipeline.evaluate_and_submit(Run("other", conventions=("pydantic_ai",), health=health))
    assert "include_content=True" in caplog.records[-1].getMessage()
    assert len(caplog.records) == 2


# --- units ------------------------------------------------------------------------------------------------------------


def session_spans(number: int, *tools: str) -> tuple[SpanRecord, ...]:
    """The spans of one request of a conversation, in a trace of its own."""
    root = agent(asked=f"question {number}", trace_id=trace_id(number), gen_ai__conversation__id="c")
    return (root, *[tool(name, {"n": number}, **inside(root)) for name in tools])


def test_only_components_are_evaluated_if_units_is_component() -> None:
    pipeline = Pipeline(units=["component"])
    root = agent()
    step = span("ranking", goldspan__component__name="ranking", **inside(root))
    found = tool("search", **inside(step))
    spans = (root, step, found)
    seen: list[Run] = []
    assert pipeline.evaluate_spans(CompletedSpans("request", spans, root.span_id), seen.append) == seen == []
    known = RunRevisions()
    (judged,) = pipeline.evaluate_spans(CompletedSpans("component", spans[:2], step.span_id, revisions=known))
    assert (judged.run.component, judged.run.tools_used) == ("ranking", ())
    revised = RevisedSpans(spans[:2], spans, frozenset(each.span_id for each in spans), known)
    assert [(each.run.unit, each.revision) for each in pipeline.evaluate_spans(revised)] == [("component", 2)]


@pytest.mark.parametrize("units", [("conversation",), ("request", "conversation")])
def test_each_request_creates_a_revision_of_its_conversation_and_the_last_equals_the_file(units: Any) -> None:
    kept, goldens = RecordingSink(), Goldens([Golden("c", input="question 1", tools=(ExpectedTool("search"),) * 3)])
    pipeline = Pipeline(goldens, sinks=[kept], units=check_units(units))
    spans: tuple[SpanRecord, ...] = ()
    for number, tools in ((1, ("search",)), (2, ("search", "book")), (3, ("search",))):
        request = session_spans(number, *tools)
        spans += request
        requests = pipeline.evaluate_spans(CompletedSpans("request", request, request[0].span_id))
        assert [each.run.unit for each in requests] == ["request"] * ("request" in units)
    conversations = [each for each in kept.evaluations if each.run.unit == "conversation"]
    assert [each.revision for each in conversations] == [1, 2, 3]
    (whole,) = extract(spans, unit="conversation")
    from_file = evaluate(whole, goldens)
    assert (conversations[-1].run, conversations[-1].scores, conversations[-1].digest) == (
        whole,
        from_file.scores,
        from_file.digest,
    )
    assert len(conversations[-1].run.tool_calls) == 4


@pytest.mark.parametrize("units", [("conversation",), ("request", "conversation")])
def test_a_conversation_is_revised_only_if_its_request_changed(
    units: Any,
) -> None:
    kept, known = RecordingSink(), RunRevisions()
    pipeline = Pipeline(sinks=[kept], units=check_units(units))
    spans = session_spans(1, "search", "book")
    there = frozenset(each.span_id for each in spans)
    pipeline.evaluate_spans(CompletedSpans("request", spans[:2], spans[0].span_id, unended=1, revisions=known))
    for _ in range(2):
        pipeline.evaluate_spans(RevisedSpans(spans[:2], spans, there, known))
    conversations = [
        (each.revision, each.run.tools_used) for each in kept.evaluations if each.run.unit == "conversation"
    ]
    assert conversations == [(1, ("search",)), (2, ("search", "book"))]


def test_a_conversation_contains_all_its_requests_even_if_they_are_not_sampled() -> None:
    kept = RecordingSink()
    sampling = Sampling(0, [SamplingRule(1, unit="conversation")])
    pipeline = Pipeline(sinks=[kept], units=["request", "conversation"], sampling=sampling)
    for number in (1, 2):
        spans = session_spans(number, "search")
        assert pipeline.evaluate_spans(CompletedSpans("request", spans, spans[0].span_id)) == []
    assert [(each.run.unit, len(each.run.tool_calls)) for each in kept.evaluations] == [
        ("conversation", 1),
        ("conversation", 2),
    ]
    assert pipeline.sampled_out == 2


def test_a_conversation_that_is_not_sampled_is_counted_once_and_its_requests_are_scored() -> None:
    kept = RecordingSink()
    sampling = Sampling(1, [SamplingRule(0, unit="conversation")])
    pipeline = Pipeline(sinks=[kept], units=["request", "conversation"], sampling=sampling)
    for number in (1, 2):
        spans = session_spans(number, "search")
        pipeline.evaluate_spans(CompletedSpans("request", spans, spans[0].span_id))
    assert [each.run.unit for each in kept.evaluations] == ["request", "request"]
    assert pipeline.sampled_out == 1


def test_a_request_without_a_session_yields_no_conversation() -> None:
    kept = RecordingSink()
    Pipeline(sinks=[kept], units=["conversation"]).evaluate_spans(CompletedSpans("request", (agent(),)))
    assert kept.evaluations == []


def test_only_the_latest_sessions_and_requests_are_kept() -> None:
    sessions = SessionRequests(max_sessions=2)

    def added(session: str, number: int) -> tuple[int, int]:
        conversation = sessions.add_request(
            Run(f"{session} {number}", session_id=session, tool_calls=(ToolCall("search"),))
        )
        assert conversation is not None
        return len(conversation[0].tool_calls), conversation[1]

    assert [added("a", 1), added("b", 1), added("a", 2), added("c", 1)] == [(1, 1), (1, 1), (2, 2), (1, 1)]
    assert added("b", 2) == (1, 1)  # it was idle longest and evicted
    for number in range(300):
        latest = added("d", number)
    assert latest == (200, 300)


@pytest.mark.parametrize("units", [(), ("trace",), ("request", "requests")])
def test_unknown_units_are_rejected(units: tuple[str, ...]) -> None:
    with pytest.raises(ConfigurationError, match="units must be some of request, component, conversation, not "):
        check_units(units)


def test_units_are_accepted_in_any_order_and_with_duplicates() -> None:
    assert check_units(["conversation", "request", "request"]) == ("request", "conversation")


# --- goldens that change ----------------------------------------------------------------------------------------------


def replace_file(path: Path, text: str) -> None:
    path.with_suffix(".new").write_text(text)
    path.with_suffix(".new").replace(path)


def test_reloaded_goldens_apply_to_the_next_run_and_are_passed_to_the_sinks(tmp_path: Path) -> None:
    path = tmp_path / "goldens.yaml"
    replace_file(path, "goldens: [{id: g, tools: [search]}]")
    source = ReloadingGoldens([path], interval=3_600)
    plain, behind = RecordingSink(), RecordingSink()
    pipeline = Pipeline(source, sinks=[plain, BackgroundSink(behind), Raising()])
    assert plain.adopted == behind.adopted == [["g"]]
    replace_file(path, "goldens: [{id: g, tools: [search, book]}, {id: other, tools: []}]")
    assert source.check_now()
    assert plain.adopted == [["g"]]
    root = agent(goldspan__golden__id="g")
    with pytest.raises(OSError, match="disk full"):  # strict mode raises errors of sinks
        pipeline.evaluate_spans(CompletedSpans("request", (root, model(answered=[says("Done.")], **inside(root)))))
    assert plain.adopted == behind.adopted == [["g"], ["g", "other"]]
    assert plain.evaluations[0].score("tool_recall").value == 0.0  # type: ignore[union-attr]
    assert len(plain.evaluations[0].golden.tools) == 2  # type: ignore[union-attr]
    pipeline.close()


def test_invalid_reloaded_goldens_are_counted_and_the_previous_goldens_stay(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path, kept = tmp_path / "goldens.yaml", RecordingSink()
    replace_file(path, "goldens: [{id: g, tools: [search]}]")
    source = ReloadingGoldens([path], interval=3_600)
    pipeline = Pipeline(source, sinks=[kept])
    for broken in ("goldens: [{id: g, tols: []}]", "goldens: [{id: new, tools: [], metrics: [no_such_metric]}]"):
        replace_file(path, broken)
        source.check_now()
        for _ in range(2):
            pipeline.evaluate_spans(CompletedSpans("request", (agent(),)))
    assert [golden.id for golden in pipeline.goldens] == ["g"]
    assert (pipeline.reload_failures, kept.adopted) == (2, [["g"]])
    assert "goldspan keeps the previous goldens" in caplog.text
    source.close()


def test_a_sink_whose_adopt_fails_is_counted_and_still_receives_evaluations(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("GOLDSPAN_STRICT", "0")

    class Stumbling(RecordingSink):
        def adopt(self, goldens: Goldens) -> None:
            raise KeyError("search")

    kept = Stumbling()
    Pipeline(GOLDENS, sinks=[kept]).evaluate_and_submit(RUN)
    assert len(kept.evaluations) == 1
    assert _guard.failure_counts == {"pass goldens to Stumbling": 1}


def test_concurrent_threads_adopt_reloaded_goldens_only_once(tmp_path: Path) -> None:
    path, kept = tmp_path / "goldens.yaml", RecordingSink()
    replace_file(path, "goldens: [{id: g, tools: [search]}]")
    source = ReloadingGoldens([path], interval=3_600)
    pipeline = Pipeline(source, sinks=[kept])
    replace_file(path, "goldens: [{id: h, tools: [search]}]")
    source.check_now()
    together = threading.Barrier(8)

    def work() -> None:
        together.wait()
        pipeline.evaluate_spans(CompletedSpans("request", (agent(),)))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert kept.adopted == [["g"], ["h"]]
    assert len(kept.evaluations) == 8
    source.close()


def test_an_outdated_revision_does_not_replace_a_newer_one_of_another_thread() -> None:
    pipeline, known = Pipeline(), RunRevisions()
    root = agent()
    tools = tool("search", **inside(root)), tool("book", **inside(root))
    there = frozenset(each.span_id for each in (root, *tools))
    early = RevisedSpans((root,), (root, tools[0]), there, known, sequence=1)
    later = RevisedSpans((root, tools[0]), (root, *tools), there, known, sequence=2)
    assert [each.run.tools_used for each in pipeline.evaluate_spans(later)] == [("search", "book")]
    assert pipeline.evaluate_spans(early) == []
    assert pipeline.evaluate_spans(CompletedSpans("request", (root,), root.span_id, revisions=known)) == []


class ConcurrentMetric:
    """A metric during which another thread evaluates the same run."""

    def __init__(self) -> None:
        self.what: Callable[[], object] | None = None

    def __call__(self, comparison: Comparison) -> float:
        if (what := self.what) is not None:
            self.what = None
            other = threading.Thread(target=what)
            other.start()
            other.join()
        return 1.0


def released_during_evaluation(slow_one: AssembledSpans, other: AssembledSpans) -> list[tuple[int, tuple[str, ...]]]:
    """What the sinks receive if runs are evaluated while runs of the same trace are evaluated on another thread."""
    kept, meanwhile = RecordingSink(), ConcurrentMetric()
    pipeline = Pipeline(GOLDENS, sinks=[kept], metrics=["tool_correctness", ("meanwhile", meanwhile)])
    meanwhile.what = lambda: pipeline.evaluate_spans(other)
    pipeline.evaluate_spans(slow_one)
    assert meanwhile.what is None
    return [(each.revision, each.run.tools_used) for each in kept.evaluations]


def request_spans() -> tuple[SpanRecord, SpanRecord, SpanRecord, frozenset[str]]:
    root = agent(goldspan__golden__id="g")
    search, book = tool("search", **inside(root)), tool("book", **inside(root))
    return root, search, book, frozenset(each.span_id for each in (root, search, book))


@pytest.mark.parametrize("unended", [0, 1])
def test_only_the_newer_revision_is_released_if_it_arrives_during_the_evaluation(unended: int) -> None:
    (root, search, book, there), known = request_spans(), RunRevisions()
    first = CompletedSpans("request", (root, search), root.span_id, unended=unended, revisions=known)
    late = RevisedSpans((root, search), (root, search, book), there, known, sequence=1)
    assert released_during_evaluation(first, late) == [(1, ("search", "book"))]


@pytest.mark.parametrize("unended", [0, 1])
def test_a_run_is_released_once_if_an_identical_revision_arrives_during_its_evaluation(unended: int) -> None:
    (root, search, _, there), known = request_spans(), RunRevisions()
    first = CompletedSpans("request", (root, search), root.span_id, unended=unended, revisions=known)
    late = RevisedSpans((root, search), (root, search), there, known, sequence=1)
    assert released_during_evaluation(first, late) == [(1, ("search",))]


@pytest.mark.parametrize("unended", [0, 1])
def test_a_revision_gets_the_next_number_if_the_first_result_is_released_meanwhile(unended: int) -> None:
    (root, search, book, there), known = request_spans(), RunRevisions()
    first = CompletedSpans("request", (root, search), root.span_id, unended=unended, revisions=known)
    late = RevisedSpans((root, search), (root, search, book), there, known, sequence=1)
    assert released_during_evaluation(late, first) == [(1, ("search",)), (2, ("search", "book"))]
