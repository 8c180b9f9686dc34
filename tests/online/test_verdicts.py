"""Verdicts of the judge arrive later as revisions and block nothing."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goldspan import Evaluation, ExpectedTool, Golden, Goldens, Run, ToolCall, ToolDefinition, _guard, evaluate, sinks
from goldspan.judge import Assessment, BackgroundJudge, Budget, Judge, JudgePrompt
from goldspan.online.judge_revisions import JudgeRevisions
from goldspan.online.pipeline import Pipeline
from goldspan.online.sampling import Sampling
from support.forked_children import fork, forking
from support.metric_readers import Meter

GOLDENS = Goldens([Golden("g", tools=(ExpectedTool("search"),))])
RUN = Run(
    "r",
    input="find it",
    golden_id="g",
    tool_calls=(ToolCall("search", arguments={"query": "secret"}),),
    available_tools=(ToolDefinition("search"), ToolDefinition("look_up")),
)
WAIT_MS = 60_000
"""Timeout in milliseconds that is reached only if a test fails."""
LATER = replace(RUN, tool_calls=(*RUN.tool_calls, ToolCall("look_up")))


class RecordingSink:
    """A sink that records evaluations."""

    def __init__(self) -> None:
        self.evaluations: list[Evaluation] = []

    def submit(self, evaluation: Evaluation) -> None:
        self.evaluations.append(evaluation)

    @property
    def revisions(self) -> list[tuple[int, float | None]]:
        """The revisions, each with the score of the judge."""
        scores = [(each.revision, each.score("tool_selection")) for each in self.evaluations]
        return [(revision, score.value if score else None) for revision, score in scores]


class ScriptedJudge:
    """A scripted judge that answers once `let` is set."""

    def __init__(self, score: float = 0.5, *, waits: bool = False) -> None:
        self.questions: list[JudgePrompt] = []
        self.threads: set[str] = set()
        self.let = threading.Event()
        self.score = score
        if not waits:
            self.let.set()

    async def __call__(self, question: JudgePrompt) -> Assessment:
        self.questions.append(question)
        self.threads.add(threading.current_thread().name)
        while not self.let.is_set():
            await asyncio.sleep(0.005)
        return Assessment(self.score, "it repeats secret", "look_up")


def judge_of(ask: Any, *, drain: float = WAIT_MS / 1000, **options: Any) -> Judge:
    """A judge with a drain timeout that is long enough for slow machines."""
    return Judge(ask, drain_timeout=drain, **options)


@pytest.fixture
def pipelines() -> Iterator[Any]:
    made: list[Pipeline] = []

    def make(judge: Judge, *kept: Any, **options: Any) -> Pipeline:
        made.append(Pipeline(GOLDENS, sinks=kept, judge=judge, **options))
        return made[-1]

    yield make
    for pipeline in made:
        pipeline.close()


def test_a_judge_verdict_is_the_next_revision_and_changes_nothing_else(pipelines: Any) -> None:
    kept, asked = RecordingSink(), ScriptedJudge(0.25)
    pipeline = pipelines(judge_of(asked), kept)
    first = pipeline.evaluate_and_submit(RUN)
    assert pipeline.flush_verdicts(WAIT_MS)
    assert kept.revisions == [(1, None), (2, 0.25)]
    verdict = kept.evaluations[1]
    assert verdict.changes == ("tool_selection",)
    assert verdict.digest == first.digest
    assert verdict.scores[:-1] == first.scores
    assert (verdict.run, verdict.golden, verdict.passed) == (first.run, first.golden, True)
    assert asked.threads == {"goldspan judge"}


def test_reasons_do_not_contain_the_words_of_the_model(pipelines: Any) -> None:
    kept = RecordingSink()
    pipeline = pipelines(judge_of(ScriptedJudge(0.0), threshold=0.5), kept)
    pipeline.evaluate_and_submit(RUN)
    assert pipeline.flush_verdicts(WAIT_MS)
    verdict = kept.evaluations[1]
    score = verdict.score("tool_selection")
    assert score is not None
    assert score.judgement is not None
    assert "secret" in str(score.judgement.words)
    assert "secret" not in f"{score.reason}{verdict.reason}"
    assert "look_up would have been better" in verdict.reason
    assert verdict.passed is False


def test_late_spans_and_verdicts_share_one_sequence_of_revision_numbers(pipelines: Any) -> None:
    kept, asked = RecordingSink(), ScriptedJudge()
    pipeline = pipelines(judge_of(asked), kept)
    pipeline.evaluate_and_submit(RUN)
    assert pipeline.flush_verdicts(WAIT_MS)
    revised = pipeline.evaluate_revision(
        LATER, (1, kept.evaluations[0].digest)
    )  # the caller does not know of the verdict
    assert revised is not None
    assert pipeline.flush_verdicts(WAIT_MS)
    assert kept.revisions == [(1, None), (2, 0.5), (3, None), (4, 0.5)]
    assert revised.revision == 3


def test_a_verdict_about_an_outdated_revision_is_discarded_and_counted(pipelines: Any) -> None:
    kept, asked, meter = RecordingSink(), ScriptedJudge(waits=True), Meter()
    judge = judge_of(asked, meter_provider=meter.provider)
    pipeline = pipelines(judge, kept)
    pipeline.evaluate_and_submit(RUN)
    pipeline.evaluate_revision(LATER, (1, kept.evaluations[0].digest))
    asked.let.set()
    assert pipeline.flush_verdicts(WAIT_MS)
    assert kept.revisions == [(1, None), (2, None), (3, 0.5)]
    assert judge.usage.outdated == 1
    assert meter.counts("goldspan.judge.outdated") == {(): 1}


def test_runs_that_are_not_sampled_are_not_judged_and_keep_their_revision_numbers(pipelines: Any) -> None:
    kept, asked = RecordingSink(), ScriptedJudge()
    pipeline = pipelines(judge_of(asked, sampler=Sampling(0.0).should_sample), kept)
    pipeline.evaluate_and_submit(RUN)
    pipeline.evaluate_revision(LATER, (1, kept.evaluations[0].digest))
    assert pipeline.flush_verdicts(WAIT_MS)
    assert kept.revisions == [(1, None), (2, None)]
    assert asked.questions == []


@pytest.mark.parametrize(
    "run", [replace(RUN, available_tools=()), replace(RUN, input=None)], ids=["no tools offered", "no request"]
)
def test_a_run_without_input_or_offered_tools_is_not_judged(pipelines: Any, run: Run) -> None:
    kept, asked = RecordingSink(), ScriptedJudge()
    judge = judge_of(asked)
    pipeline = pipelines(judge, kept)
    pipeline.evaluate_and_submit(run)
    assert pipeline.flush_verdicts(WAIT_MS)
    assert kept.revisions == [(1, None)]
    assert (judge.usage.not_asked, judge.usage.requests) == (1, 0)


def test_a_spent_budget_creates_no_revision(pipelines: Any) -> None:
    kept = RecordingSink()
    judge = judge_of(ScriptedJudge(), budget=Budget(tokens=10))
    pipeline = pipelines(judge, kept)
    pipeline.evaluate_and_submit(RUN)
    assert pipeline.flush_verdicts(WAIT_MS)
    assert kept.revisions == [(1, None)]
    assert judge.usage.over_budget == 1


def test_a_failing_judge_yields_a_score_with_an_error_and_does_not_change_the_verdict(pipelines: Any) -> None:
    async def failing(question: JudgePrompt) -> Assessment:
        raise RuntimeError("secret")

    kept = RecordingSink()
    pipeline = pipelines(judge_of(failing, combination="min", threshold=0.9), kept)
    pipeline.evaluate_and_submit(RUN)
    assert pipeline.flush_verdicts(WAIT_MS)
    verdict = kept.evaluations[1]
    score = verdict.score("tool_selection")
    assert score is not None
    assert (score.value, score.passed, score.label) == (None, None, "not_evaluated")
    assert score.error == "RuntimeError: secret"
    assert verdict.passed is True
    assert verdict.score("tool_correctness") == kept.evaluations[0].score("tool_correctness")


def test_submit_never_waits_for_the_judge(pipelines: Any) -> None:
    kept, asked = RecordingSink(), ScriptedJudge(waits=True)
    judge = judge_of(asked, max_queue=5, concurrency=2, drain=0.2)
    pipeline = pipelines(judge, kept)
    began = time.monotonic()
    for number in range(20):
        pipeline.evaluate_and_submit(replace(RUN, run_id=f"r{number}"))
    assert time.monotonic() - began < 5
    assert len(kept.evaluations) == 20
    assert judge.usage.dropped == 15  # the queue has five places
    began = time.monotonic()
    pipeline.close()
    assert time.monotonic() - began < 5
    assert judge.usage.dropped == 20
    assert len(kept.evaluations) == 20
    asked.let.set()


def test_a_run_submitted_after_close_is_not_judged_and_is_counted_as_dropped(pipelines: Any) -> None:
    judge = judge_of(ScriptedJudge())
    kept = RecordingSink()
    pipeline = pipelines(judge, kept)
    pipeline.close()
    pipeline.evaluate_and_submit(RUN)
    assert judge.usage.dropped == 1
    assert len(kept.evaluations) == 1


def test_the_judge_sees_only_the_redacted_evaluation_whose_digest_is_kept(pipelines: Any) -> None:
    kept, asked = RecordingSink(), ScriptedJudge()
    pipeline = pipelines(judge_of(asked), kept, redact=sinks.ArgumentFilter())
    first = pipeline.evaluate_and_submit(RUN)
    assert first is not None
    assert pipeline.flush_verdicts(WAIT_MS)
    assert "secret" not in str(asked.questions[0].messages)
    assert [each.digest for each in kept.evaluations] == [first.digest] * 2


def test_a_sink_that_fails_on_a_verdict_does_not_affect_other_sinks(
    pipelines: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GOLDSPAN_STRICT", "0")

    class Failing(RecordingSink):
        def submit(self, evaluation: Evaluation) -> None:
            raise OSError("full")

    kept = RecordingSink()
    pipeline = pipelines(judge_of(ScriptedJudge()), Failing(), kept)
    pipeline.evaluate_and_submit(RUN)
    assert pipeline.flush_verdicts(WAIT_MS)
    assert kept.revisions == [(1, None), (2, 0.5)]
    assert sum(_guard.failure_counts.values()) == 2


def test_the_sampler_is_called_once_per_run(pipelines: Any) -> None:
    """A second decision could discard a verdict that was paid for, or skip the run."""
    kept = RecordingSink()
    decisions = iter([True, False] * 5)
    judge = judge_of(ScriptedJudge(), sampler=lambda _: next(decisions))
    pipeline = pipelines(judge, kept)
    for number in range(10):
        pipeline.evaluate_and_submit(replace(RUN, run_id=f"r{number}"))
    assert pipeline.flush_verdicts(WAIT_MS)
    judged = [each.run.run_id for each in kept.evaluations if each.revision == 2]
    assert sorted(judged) == ["r0", "r2", "r4", "r6", "r8"]
    assert (judge.usage.judged, judge.usage.outdated) == (5, 0)


def test_a_failing_sampler_loses_only_the_verdict(pipelines: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOLDSPAN_STRICT", "0")
    kept, asked = RecordingSink(), ScriptedJudge()
    pipeline = pipelines(judge_of(asked, sampler=lambda _: 1 / 0 > 0), kept)
    pipeline.evaluate_and_submit(RUN)
    assert pipeline.flush_verdicts(WAIT_MS)
    assert (kept.revisions, asked.questions) == ([(1, None)], [])
    assert _guard.failure_counts["decide whether a run is judged"] == 1


def test_a_flush_waits_at_most_for_the_drain_timeout_of_the_judge(pipelines: Any) -> None:
    asked = ScriptedJudge(waits=True)
    pipeline = pipelines(judge_of(asked, drain=0.1))
    pipeline.evaluate_and_submit(RUN)
    began = time.monotonic()
    assert not pipeline.flush_verdicts(60_000)
    assert time.monotonic() - began < 10
    asked.let.set()


@given(st.lists(st.sampled_from(["revised", "verdict"]), max_size=12))
def test_revision_numbers_are_unique_and_increasing(steps: list[str]) -> None:
    numbers: list[int] = []
    verdicts = JudgeRevisions(judge_of(ScriptedJudge()), lambda each: numbers.append(each.revision))
    evaluation = evaluate(RUN, GOLDENS)
    base = 1
    latest = verdicts.assign_revision(evaluation, is_judged=True)
    numbers.append(latest.revision)
    for step in steps:
        if step == "revised":
            base += 1
            latest = verdicts.assign_revision(evaluation.with_revision(base), is_judged=True)
            numbers.append(latest.revision)
        else:
            asyncio.run(_answer(verdicts, latest))
    assert numbers == sorted(set(numbers))
    verdicts.close()


async def _answer(verdicts: JudgeRevisions, evaluation: Evaluation) -> None:
    verdicts._on_judged(replace(evaluation, scores=(*evaluation.scores, replace(evaluation.scores[0], metric="x"))))
    judged = replace(evaluation.scores[0], metric="tool_selection", value=0.5)
    verdicts._on_judged(replace(evaluation, scores=(*evaluation.scores, judged)))


def test_a_flush_on_the_judge_thread_returns_false_instead_of_a_deadlock() -> None:
    asked = ScriptedJudge()
    answers: list[object] = []
    background = BackgroundJudge(judge_of(asked), lambda _: answers.append(background.force_flush(1000)))
    background.submit(evaluate(RUN, GOLDENS))
    assert background.force_flush(WAIT_MS)
    background.shutdown(1.0)
    assert answers == [False]


def test_an_error_in_the_delivery_of_a_verdict_is_counted_and_the_next_is_delivered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    got: list[Evaluation] = []

    def deliver(judged: Evaluation) -> None:
        got.append(judged)
        if len(got) == 1:
            raise ValueError("no")

    background = BackgroundJudge(judge_of(ScriptedJudge()), deliver)
    for number in range(2):
        background.submit(evaluate(replace(RUN, run_id=str(number)), GOLDENS))
        assert background.force_flush(WAIT_MS)
    background.shutdown(1.0)
    assert len(got) == 2
    assert _guard.failure_counts["deliver a verdict"] == 1


@forking
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_has_its_own_judge_and_the_parent_continues() -> None:
    kept, asked = RecordingSink(), ScriptedJudge(waits=True)
    pipeline = Pipeline(GOLDENS, sinks=[kept], judge=judge_of(asked))
    pipeline.evaluate_and_submit(RUN)

    def judges() -> bool:
        pipeline.reset()
        asked.let.set()
        kept.evaluations.clear()
        pipeline.evaluate_and_submit(replace(RUN, run_id="child"))
        pipeline.flush_verdicts(WAIT_MS)
        return kept.revisions == [(1, None), (2, 0.5)]

    child_did = fork(judges)
    asked.let.set()
    assert pipeline.flush_verdicts(WAIT_MS)
    assert child_did()
    assert kept.revisions == [(1, None), (2, 0.5)]
    pipeline.close()
