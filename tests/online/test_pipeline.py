"""A run that is complete is judged once, and every sink hears of it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
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
from goldspan.online.pipeline import SessionRequests
from goldspan.online.sampling import Sampling, SamplingRule
from goldspan.sinks import BackgroundSink
from support.span_builders import agent, in_trace, inside, model, says, span, tool, trace_id

GOLDENS = Goldens([Golden("g", tools=(ExpectedTool("search"),))])
RUN = Run(run_id="r", golden_id="g", tool_calls=(ToolCall("search"),))


class Kept:
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


def test_every_sink_gets_the_evaluation_even_where_another_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOLDSPAN_STRICT", "0")
    before, after = Kept(), Kept()
    evaluation = Pipeline(GOLDENS, sinks=[before, Raising(), after]).evaluate_and_submit(RUN)
    assert evaluation.passed
    assert before.evaluations == after.evaluations == [evaluation]
    assert _guard.failure_counts == {"submit to Raising": 1}


def test_only_the_metrics_asked_for_are_read() -> None:
    evaluation = Pipeline(GOLDENS, metrics=["tool_recall"], thresholds={"tool_recall": 1.0}).evaluate_and_submit(RUN)
    assert [(score.metric, score.passed) for score in evaluation.scores] == [("tool_recall", True)]


def test_without_goldens_a_run_is_not_evaluated_but_told() -> None:
    evaluation = Pipeline().evaluate_and_submit(RUN)
    assert (evaluation.status, evaluation.run.tools_used) == ("not_evaluated", ("search",))


def test_making_one_tells_no_sink_of_anything() -> None:
    kept = Kept()
    Pipeline(GOLDENS, sinks=[kept])
    assert kept.evaluations == []


def test_a_wrong_metric_of_a_golden_is_found_when_the_pipeline_is_made() -> None:
    asking = Goldens([Golden("g", metrics=("tool_recal",))])
    with pytest.raises(ConfigurationError, match="golden 'g': unknown metric 'tool_recal'"):
        Pipeline(asking)
    assert Pipeline(asking, metrics=["tool_f1"])


def test_a_wrong_metric_is_found_when_the_pipeline_is_made() -> None:
    with pytest.raises(ConfigurationError, match="tool_recal"):
        Pipeline(GOLDENS, metrics=["tool_recal"])


@pytest.mark.parametrize(("given", "told"), [(frozenset(), 1), (frozenset({"0" * 15 + "a"}), 0)])
def test_a_run_that_was_given_out_before_is_not_judged_again(given: frozenset[str], told: int) -> None:
    root = agent(span_id="0" * 15 + "a")
    spans = (root, tool("search", parent_id=root.span_id))
    assert len(Pipeline(GOLDENS).evaluate_spans(CompletedSpans("request", spans, released_span_ids=given))) == told


def test_the_attribute_that_names_the_golden_can_be_chosen() -> None:
    root = agent(my__case="g")
    (evaluation,) = Pipeline(GOLDENS, golden_id_attributes=["my.case"]).evaluate_spans(
        CompletedSpans("request", (root,))
    )
    assert evaluation.match is not None
    assert evaluation.match.how == "id"


# --- what may leave, and what is left out -----------------------------------------------------------------------------


def withhold(evaluation: Evaluation) -> None:
    return None


def stumble(evaluation: Evaluation) -> Evaluation:
    raise ValueError(evaluation.run.input)


@pytest.mark.parametrize("redact", [withhold, stumble])
def test_what_may_not_leave_reaches_nobody_and_is_known_to_the_pipeline(
    redact: Callable[[Evaluation], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GOLDSPAN_STRICT", "0")
    kept = Kept()
    seen: list[Run] = []
    pipeline = Pipeline(GOLDENS, sinks=[kept], redact=redact)
    root = agent(asked="a secret")
    assert pipeline.evaluate_spans(CompletedSpans("request", (root,)), seen.append) == kept.evaluations == []
    assert [run.input for run in seen] == ["a secret"]
    assert sum(_guard.failure_counts.values()) == (redact is stumble)


def test_a_revision_of_what_may_not_leave_may_not_leave_either() -> None:
    kept = Kept()
    pipeline = Pipeline(sinks=[kept], redact=withhold)
    root = agent()
    late = RevisedSpans((root,), (root, tool("search", **inside(root))), frozenset({root.span_id}), RunRevisions())
    assert pipeline.evaluate_spans(late) == kept.evaluations == []


def test_runs_that_the_sampling_leaves_out_are_counted_once_each() -> None:
    kept = Kept()
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


def test_metrics_for_which_no_time_is_left_say_so_and_are_counted() -> None:
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


def test_runs_whose_calls_do_not_show_are_counted_and_told_once_for_the_same_conventions(
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


def of_a_session(number: int, *tools: str) -> tuple[SpanRecord, ...]:
    """The spans of one request of a conversation, in a trace of its own."""
    root = agent(asked=f"question {number}", trace_id=trace_id(number), gen_ai__conversation__id="c")
    return (root, *[tool(name, {"n": number}, **inside(root)) for name in tools])


def test_only_components_where_only_these_are_asked_for() -> None:
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
def test_each_request_makes_a_revision_of_its_conversation_and_the_last_is_the_one_of_a_file(units: Any) -> None:
    kept, goldens = Kept(), Goldens([Golden("c", input="question 1", tools=(ExpectedTool("search"),) * 3)])
    pipeline = Pipeline(goldens, sinks=[kept], units=check_units(units))
    spans: tuple[SpanRecord, ...] = ()
    for number, tools in ((1, ("search",)), (2, ("search", "book")), (3, ("search",))):
        request = of_a_session(number, *tools)
        spans += request
        told = pipeline.evaluate_spans(CompletedSpans("request", request, request[0].span_id))
        assert [each.run.unit for each in told] == ["request"] * ("request" in units)
    said = [each for each in kept.evaluations if each.run.unit == "conversation"]
    assert [each.revision for each in said] == [1, 2, 3]
    (whole,) = extract(spans, unit="conversation")
    from_file = evaluate(whole, goldens)
    assert (said[-1].run, said[-1].scores, said[-1].digest) == (whole, from_file.scores, from_file.digest)
    assert len(said[-1].run.tool_calls) == 4


@pytest.mark.parametrize("units", [("conversation",), ("request", "conversation")])
def test_a_request_that_became_more_makes_a_revision_of_its_conversation_and_one_that_did_not_makes_none(
    units: Any,
) -> None:
    kept, known = Kept(), RunRevisions()
    pipeline = Pipeline(sinks=[kept], units=check_units(units))
    spans = of_a_session(1, "search", "book")
    there = frozenset(each.span_id for each in spans)
    pipeline.evaluate_spans(CompletedSpans("request", spans[:2], spans[0].span_id, unended=1, revisions=known))
    for _ in range(2):
        pipeline.evaluate_spans(RevisedSpans(spans[:2], spans, there, known))
    said = [(each.revision, each.run.tools_used) for each in kept.evaluations if each.run.unit == "conversation"]
    assert said == [(1, ("search",)), (2, ("search", "book"))]


def test_a_conversation_has_all_its_requests_whatever_the_sampling_says_of_these() -> None:
    kept = Kept()
    sampling = Sampling(0, [SamplingRule(1, unit="conversation")])
    pipeline = Pipeline(sinks=[kept], units=["request", "conversation"], sampling=sampling)
    for number in (1, 2):
        spans = of_a_session(number, "search")
        assert pipeline.evaluate_spans(CompletedSpans("request", spans, spans[0].span_id)) == []
    assert [(each.run.unit, len(each.run.tool_calls)) for each in kept.evaluations] == [
        ("conversation", 1),
        ("conversation", 2),
    ]
    assert pipeline.sampled_out == 2


def test_a_conversation_may_be_left_out_by_itself_and_counts_once() -> None:
    kept = Kept()
    sampling = Sampling(1, [SamplingRule(0, unit="conversation")])
    pipeline = Pipeline(sinks=[kept], units=["request", "conversation"], sampling=sampling)
    for number in (1, 2):
        spans = of_a_session(number, "search")
        pipeline.evaluate_spans(CompletedSpans("request", spans, spans[0].span_id))
    assert [each.run.unit for each in kept.evaluations] == ["request", "request"]
    assert pipeline.sampled_out == 1


def test_a_request_of_no_session_is_no_conversation() -> None:
    kept = Kept()
    Pipeline(sinks=[kept], units=["conversation"]).evaluate_spans(CompletedSpans("request", (agent(),)))
    assert kept.evaluations == []


def test_of_very_many_sessions_and_requests_the_latest_are_kept() -> None:
    sessions = SessionRequests(max_sessions=2)

    def added(session: str, number: int) -> tuple[int, int]:
        conversation = sessions.add_request(
            Run(f"{session} {number}", session_id=session, tool_calls=(ToolCall("search"),))
        )
        assert conversation is not None
        return len(conversation[0].tool_calls), conversation[1]

    assert [added("a", 1), added("b", 1), added("a", 2), added("c", 1)] == [(1, 1), (1, 1), (2, 2), (1, 1)]
    assert added("b", 2) == (1, 1)  # it was idle for longest
    for number in range(300):
        latest = added("d", number)
    assert latest == (200, 300)


@pytest.mark.parametrize("units", [(), ("trace",), ("request", "requests")])
def test_units_that_do_not_exist_are_refused(units: tuple[str, ...]) -> None:
    with pytest.raises(ConfigurationError, match="units must be some of request, component, conversation, not "):
        check_units(units)


def test_units_may_be_named_in_any_order_and_twice() -> None:
    assert check_units(["conversation", "request", "request"]) == ("request", "conversation")


# --- goldens that change ----------------------------------------------------------------------------------------------


def written(path: Path, text: str) -> None:
    path.with_suffix(".new").write_text(text)
    path.with_suffix(".new").replace(path)


def test_goldens_that_were_read_again_are_taken_up_with_the_next_run_and_told_to_the_sinks(tmp_path: Path) -> None:
    path = tmp_path / "goldens.yaml"
    written(path, "goldens: [{id: g, tools: [search]}]")
    source = ReloadingGoldens([path], interval=3_600)
    plain, behind = Kept(), Kept()
    pipeline = Pipeline(source, sinks=[plain, BackgroundSink(behind), Raising()])
    assert plain.adopted == behind.adopted == [["g"]]
    written(path, "goldens: [{id: g, tools: [search, book]}, {id: other, tools: []}]")
    assert source.check_now()
    assert plain.adopted == [["g"]]
    root = agent(goldspan__golden__id="g")
    with pytest.raises(OSError, match="disk full"):  # sinks fail aloud here
        pipeline.evaluate_spans(CompletedSpans("request", (root, model(answered=[says("Done.")], **inside(root)))))
    assert plain.adopted == behind.adopted == [["g"], ["g", "other"]]
    assert plain.evaluations[0].score("tool_recall").value == 0.0  # type: ignore[union-attr]
    assert len(plain.evaluations[0].golden.tools) == 2  # type: ignore[union-attr]
    pipeline.close()


def test_goldens_that_cannot_be_used_are_counted_and_the_earlier_ones_stay(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path, kept = tmp_path / "goldens.yaml", Kept()
    written(path, "goldens: [{id: g, tools: [search]}]")
    source = ReloadingGoldens([path], interval=3_600)
    pipeline = Pipeline(source, sinks=[kept])
    for broken in ("goldens: [{id: g, tols: []}]", "goldens: [{id: new, tools: [], metrics: [no_such_metric]}]"):
        written(path, broken)
        source.check_now()
        for _ in range(2):
            pipeline.evaluate_spans(CompletedSpans("request", (agent(),)))
    assert [golden.id for golden in pipeline.goldens] == ["g"]
    assert (pipeline.reload_failures, kept.adopted) == (2, [["g"]])
    assert "goldspan keeps the previous goldens" in caplog.text
    source.close()


def test_a_sink_that_stumbles_over_goldens_is_counted_and_gets_evaluations_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("GOLDSPAN_STRICT", "0")

    class Stumbling(Kept):
        def adopt(self, goldens: Goldens) -> None:
            raise KeyError("search")

    kept = Stumbling()
    Pipeline(GOLDENS, sinks=[kept]).evaluate_and_submit(RUN)
    assert len(kept.evaluations) == 1
    assert _guard.failure_counts == {"pass goldens to Stumbling": 1}


def test_threads_that_find_new_goldens_at_once_take_them_up_once(tmp_path: Path) -> None:
    path, kept = tmp_path / "goldens.yaml", Kept()
    written(path, "goldens: [{id: g, tools: [search]}]")
    source = ReloadingGoldens([path], interval=3_600)
    pipeline = Pipeline(source, sinks=[kept])
    written(path, "goldens: [{id: h, tools: [search]}]")
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


def test_what_was_seen_earlier_changes_nothing_that_another_thread_has_concluded_meanwhile() -> None:
    pipeline, known = Pipeline(), RunRevisions()
    root = agent()
    tools = tool("search", **inside(root)), tool("book", **inside(root))
    there = frozenset(each.span_id for each in (root, *tools))
    early = RevisedSpans((root,), (root, tools[0]), there, known, sequence=1)
    later = RevisedSpans((root, tools[0]), (root, *tools), there, known, sequence=2)
    assert [each.run.tools_used for each in pipeline.evaluate_spans(later)] == [("search", "book")]
    assert pipeline.evaluate_spans(early) == []
    assert pipeline.evaluate_spans(CompletedSpans("request", (root,), root.span_id, revisions=known)) == []


class Meanwhile:
    """A metric that takes so long that another thread concludes something of the same run while it is at it."""

    def __init__(self) -> None:
        self.what: Callable[[], object] | None = None

    def __call__(self, comparison: Comparison) -> float:
        if (what := self.what) is not None:
            self.what = None
            other = threading.Thread(target=what)
            other.start()
            other.join()
        return 1.0


def concluded_while_judging(slow_one: AssembledSpans, other: AssembledSpans) -> list[tuple[int, tuple[str, ...]]]:
    """What the sinks receive if runs are evaluated while runs of the same trace are evaluated on another thread."""
    kept, meanwhile = Kept(), Meanwhile()
    pipeline = Pipeline(GOLDENS, sinks=[kept], metrics=["tool_correctness", ("meanwhile", meanwhile)])
    meanwhile.what = lambda: pipeline.evaluate_spans(other)
    pipeline.evaluate_spans(slow_one)
    assert meanwhile.what is None
    return [(each.revision, each.run.tools_used) for each in kept.evaluations]


def of_a_request() -> tuple[SpanRecord, SpanRecord, SpanRecord, frozenset[str]]:
    root = agent(goldspan__golden__id="g")
    search, book = tool("search", **inside(root)), tool("book", **inside(root))
    return root, search, book, frozenset(each.span_id for each in (root, search, book))


@pytest.mark.parametrize("unended", [0, 1])
def test_what_came_late_while_a_run_was_judged_is_all_that_is_given_out(unended: int) -> None:
    (root, search, book, there), known = of_a_request(), RunRevisions()
    first = CompletedSpans("request", (root, search), root.span_id, unended=unended, revisions=known)
    late = RevisedSpans((root, search), (root, search, book), there, known, sequence=1)
    assert concluded_while_judging(first, late) == [(1, ("search", "book"))]


@pytest.mark.parametrize("unended", [0, 1])
def test_a_run_that_turns_out_the_same_while_it_is_judged_is_given_out_all_the_same(unended: int) -> None:
    (root, search, _, there), known = of_a_request(), RunRevisions()
    first = CompletedSpans("request", (root, search), root.span_id, unended=unended, revisions=known)
    late = RevisedSpans((root, search), (root, search), there, known, sequence=1)
    assert concluded_while_judging(first, late) == [(1, ("search",))]


@pytest.mark.parametrize("unended", [0, 1])
def test_a_run_that_is_given_out_while_more_of_it_is_judged_makes_that_the_next_revision(unended: int) -> None:
    (root, search, book, there), known = of_a_request(), RunRevisions()
    first = CompletedSpans("request", (root, search), root.span_id, unended=unended, revisions=known)
    late = RevisedSpans((root, search), (root, search, book), there, known, sequence=1)
    assert concluded_while_judging(late, first) == [(1, ("search",)), (2, ("search", "book"))]
