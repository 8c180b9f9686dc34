"""Tests of the judge's verdicts: each arrives later, from another thread, and is stored once as the next revision."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.logs.v1.logs_pb2 import LogsData

from goldspan import ExpectedTool, Golden, Goldens, evaluate, semconv
from goldspan.judge import Assessment, Judge, JudgePrompt
from goldspan.model import SpanRecord
from goldspan.store.run_records import run_from_document
from support.gateway_process import PATIENCE_S, eventually
from support.gateway_scoring_harness import ScoringHarness, asking, request
from support.span_builders import tool, trace_id

OFFERED = json.dumps([{"type": "function", "name": name} for name in ("search", "book")])
GOLDENS = Goldens([Golden("g", "Book a trip", (ExpectedTool("search"), ExpectedTool("book")))])


class BlockableJudge:
    """A judge with the same verdict for every run, which a test can block."""

    def __init__(self, score: float = 0.25) -> None:
        self.questions: list[JudgePrompt] = []
        self.free = threading.Event()
        self.free.set()
        self._opinion = Assessment(score, "There was another one.", "book")

    async def __call__(self, question: JudgePrompt) -> Assessment:
        self.questions.append(question)
        while not self.free.is_set():
            await asyncio.sleep(0.005)
        return self._opinion

    def judge(self, **options: Any) -> Judge:
        """Created for each simulated process; it waits as long as the test."""
        return Judge(self, model="tiny", drain_timeout=PATIENCE_S, **options)


@pytest.fixture
def judge_stub() -> BlockableJudge:
    return BlockableJudge()


@contextmanager
def open_harness(
    folder: Path, judge_stub: BlockableJudge, *, judge: Judge | None = None, **options: Any
) -> Iterator[ScoringHarness]:
    line = ScoringHarness(folder, judge=judge or judge_stub.judge(), goldens=GOLDENS, results=["events"], **options)
    try:
        yield line
    finally:
        line.close()


@pytest.fixture
def line(tmp_path: Path, judge_stub: BlockableJudge) -> Iterator[ScoringHarness]:
    with open_harness(tmp_path, judge_stub) as made:
        yield made


def trip(number: int = 0, *tools: str) -> list[SpanRecord]:
    """Returns the spans of an agent with a request for a trip and its offered tools."""
    return asking(number, *tools, asked="Book a trip", gen_ai__tool__definitions=OFFERED)


def revisions(line: ScoringHarness, number: int = 0) -> list[tuple[int, list[str], float | None]]:
    """Returns the number, the tools and the judge's verdict of each revision of a run."""
    return [
        (each.revision, each.document["tools_used"], value_of(each.document, "tool_selection"))
        for run in line.runs().values()
        if trace_id(number) in run.run_id
        for each in line.store.evaluations(run.run_id)
    ]


def value_of(document: Any, metric: str) -> float | None:
    return next((score["value"] for score in document["scores"] if score["metric"] == metric), None)


def score_of(document: Any, metric: str) -> Any:
    return next(score for score in document["scores"] if score["metric"] == metric)


def events(line: ScoringHarness) -> list[dict[str, Any]]:
    """Returns the exported events of the judge's metric."""
    found = []
    for entry in line.entries("result"):
        for resource in LogsData.FromString(entry.body).resource_logs:
            for scope in resource.scope_logs:
                for record in scope.log_records:
                    told = {pair.key: pair.value for pair in record.attributes}
                    if told[semconv.EVALUATION_NAME].string_value == "tool_selection":
                        found.append({key: value.WhichOneof("value") for key, value in told.items()})
    return found


def outdated(line: ScoringHarness) -> int:
    assert line.judge is not None
    return line.judge.usage.outdated


# --- a verdict --------------------------------------------------------------------------------------------------------


def test_a_verdict_is_stored_as_the_next_revision_and_exported(line: ScoringHarness) -> None:
    line.post(request(*trip(0, "search")))
    line.wait(1.0)
    assert revisions(line)[:1] == [(1, ["search"], None)]
    line.answered()
    assert revisions(line) == [(1, ["search"], None), (2, ["search"], 0.25)]
    (event,) = events(line)
    assert {"goldspan.judge.model", "goldspan.judge.better_tool", semconv.EVALUATION_VALUE} <= event.keys()
    line.wait(30.0)
    assert len(revisions(line)) == 2
    assert len(events(line)) == 1


def test_evaluations_and_cursor_do_not_wait_for_a_verdict(line: ScoringHarness, judge_stub: BlockableJudge) -> None:
    judge_stub.free.clear()
    line.post(request(*trip(0, "search")))
    line.wait(1.0)
    key = line.post(request(*trip(1, "book")))
    line.wait(1.0)
    line.wait(60.0)
    line.wait()
    assert [len(revisions(line, number)) for number in (0, 1)] == [1, 1]
    assert line.cursor() >= key  # the journal does not wait for the model
    judge_stub.free.set()
    line.answered()
    assert [len(revisions(line, number)) for number in (0, 1)] == [2, 2]


def test_a_combined_score_is_stored_with_the_same_digest(tmp_path: Path, judge_stub: BlockableJudge) -> None:
    with open_harness(tmp_path, judge_stub, judge=judge_stub.judge(combination="min")) as line:
        line.post(request(*trip(0, "search", "book")))
        line.wait(1.0)
        line.answered()
        (run,) = line.runs().values()
        before, after = (each.document for each in line.store.evaluations(run.run_id))
        assert (value_of(before, "tool_correctness"), value_of(after, "tool_correctness")) == (1.0, 0.25)
        assert after["digest"] == before["digest"]


def test_the_explanation_of_the_judge_is_not_stored_without_keep_arguments(line: ScoringHarness) -> None:
    line.post(request(*trip(0, "search")))
    line.wait(1.0)
    line.answered()
    (run,) = line.runs().values()
    judgement = score_of(run.current.document, "tool_selection")["judgement"]
    assert (judgement["model"], judgement["better_tool"], judgement["votes"]) == ("tiny", "book", [0.25])
    assert "words" not in judgement
    assert "another one" not in json.dumps(run.current.document)


# --- late spans -------------------------------------------------------------------------------------------------------


def late(root: SpanRecord, name: str) -> bytes:
    return request(tool(name, parent_id=root.span_id, trace_id=root.trace_id))


def test_late_spans_after_a_verdict_cause_a_revision_and_another_verdict(line: ScoringHarness) -> None:
    root, *calls = trip(0, "search")
    line.post(request(root, *calls))
    line.wait(1.0)
    line.answered()
    line.post(late(root, "book"))
    line.wait(2.0)
    line.answered()
    both = ["search", "book"]
    assert revisions(line) == [(1, ["search"], None), (2, ["search"], 0.25), (3, both, None), (4, both, 0.25)]
    assert len(events(line)) == 2
    assert outdated(line) == 0


def test_a_verdict_on_an_outdated_revision_is_discarded(line: ScoringHarness, judge_stub: BlockableJudge) -> None:
    judge_stub.free.clear()
    root, *calls = trip(0, "search")
    line.post(request(root, *calls))
    line.wait(1.0)
    eventually(lambda: len(judge_stub.questions) == 1, "it is not asked")
    line.post(late(root, "book"))
    line.wait(2.0)
    judge_stub.free.set()
    line.answered()
    both = ["search", "book"]
    assert revisions(line) == [(1, ["search"], None), (2, both, None), (3, both, 0.25)]
    assert outdated(line) == 1
    assert len(events(line)) == 1


def test_a_pending_verdict_is_stored_before_the_revision_of_late_spans(line: ScoringHarness) -> None:
    root, *calls = trip(0, "search")
    line.post(request(root, *calls))
    line.wait(1.0)
    assert line.pipeline.flush_verdicts(60_000)  # it has arrived and was not read yet
    line.post(late(root, "book"))
    line.wait(2.0)
    line.answered()
    both = ["search", "book"]
    assert revisions(line) == [(1, ["search"], None), (2, ["search"], 0.25), (3, both, None), (4, both, 0.25)]


def test_repeated_spans_cause_no_judge_request_and_no_revision(
    line: ScoringHarness, judge_stub: BlockableJudge
) -> None:
    spans = trip(0, "search")
    line.post(request(*spans))
    line.wait(1.0)
    line.answered()
    for _ in range(2):
        line.post(request(*spans))
        line.wait(5.0)
        line.answered()
    assert len(revisions(line)) == 2
    assert len(judge_stub.questions) == 1


@pytest.mark.parametrize("how", ["the same spans", "a late one"])
def test_a_restart_does_not_change_revisions_and_judge_requests(
    tmp_path: Path, judge_stub: BlockableJudge, how: str
) -> None:
    root, *calls = trip(0, "search")
    with open_harness(tmp_path, judge_stub) as line:
        line.post(request(root, *calls))
        line.wait(1.0)
        line.answered()
        now = line.now
    with open_harness(tmp_path, judge_stub, now=now) as line:
        line.wait()
        line.post(request(root, *calls) if how == "the same spans" else late(root, "book"))
        line.wait(5.0)
        line.answered()
        known = [(1, ["search"], None), (2, ["search"], 0.25)]
        both = ["search", "book"]
        if how == "a late one":
            known += [(3, both, None), (4, both, 0.25)]
        assert revisions(line) == known
        assert len(judge_stub.questions) == len(known) // 2


def test_a_judge_request_lost_at_a_kill_is_not_repeated(tmp_path: Path, judge_stub: BlockableJudge) -> None:
    spans = trip(0, "search")
    judge_stub.free.clear()
    with open_harness(tmp_path, judge_stub) as line:
        line.post(request(*spans))
        line.wait(1.0)
        eventually(lambda: len(judge_stub.questions) == 1, "it is not asked")
        now = line.now
    judge_stub.free.set()
    with open_harness(tmp_path, judge_stub, now=now) as line:
        line.post(request(*spans))
        line.wait(5.0)
        line.answered()
        assert revisions(line) == [(1, ["search"], None)]
        assert len(judge_stub.questions) == 1


# --- deletions and storage errors ------------------------------------------------------------------------------------


def test_a_verdict_on_a_deleted_trace_is_discarded(line: ScoringHarness, judge_stub: BlockableJudge) -> None:
    judge_stub.free.clear()
    line.post(request(*trip(0, "search")))
    line.wait(1.0)
    line.store.delete_trace(trace_id(0))
    judge_stub.free.set()
    line.answered()
    assert line.runs() == {}
    assert events(line) == []
    assert outdated(line) == 1


def test_a_verdict_on_a_superseded_partial_run_is_discarded(line: ScoringHarness, judge_stub: BlockableJudge) -> None:
    judge_stub.free.clear()
    root, first = trip(0, "search")
    line.post(request(first))
    line.wait(10.0)
    line.post(request(root))
    line.wait(1.0)
    judge_stub.free.set()
    line.answered()
    assert [run.revision for run in (each.current for each in line.runs().values())] == [2]
    assert revisions(line) == [(1, ["search"], None), (2, ["search"], 0.25)]


def test_a_verdict_is_stored_after_a_lock_on_the_store_is_released(tmp_path: Path, judge_stub: BlockableJudge) -> None:
    with open_harness(tmp_path, judge_stub, timeout=0.05) as line:
        judge_stub.free.clear()
        for number in range(3):
            line.post(request(*trip(number, "search")))
        line.wait(1.0)
        judge_stub.free.set()
        assert line.pipeline.flush_verdicts(60_000)
        with closing(sqlite3.connect(tmp_path / "goldspan.db", isolation_level=None, check_same_thread=False)) as other:
            other.execute("BEGIN IMMEDIATE")
            ending = threading.Timer(0.5, other.execute, ["ROLLBACK"])
            ending.start()
            line.wait()  # which waits for the verdict
            ending.join()
        assert [len(revisions(line, number)) for number in range(3)] == [2, 2, 2]
        line.wait()
        assert len(events(line)) == 3


def test_a_verdict_on_a_run_that_was_rescored_meanwhile_is_discarded(
    line: ScoringHarness, judge_stub: BlockableJudge
) -> None:
    judge_stub.free.clear()
    line.post(request(*trip(0, "search")))
    line.wait(1.0)
    (run,) = line.runs().values()
    told = evaluate(run_from_document(run.current.document), Goldens([Golden("other", "Book a trip")]))
    assert line.store.replace_if_current(replace(told, revision=2), (1, run.current.digest))
    judge_stub.free.set()
    line.answered()
    assert [each.document["golden_id"] for each in line.store.evaluations(run.run_id)] == ["g", "other"]
    assert outdated(line) == 1
