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


class Asked:
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
def asked() -> Asked:
    return Asked()


@contextmanager
def lined(folder: Path, asked: Asked, *, judge: Judge | None = None, **options: Any) -> Iterator[ScoringHarness]:
    line = ScoringHarness(folder, judge=judge or asked.judge(), goldens=GOLDENS, results=["events"], **options)
    try:
        yield line
    finally:
        line.close()


@pytest.fixture
def line(tmp_path: Path, asked: Asked) -> Iterator[ScoringHarness]:
    with lined(tmp_path, asked) as made:
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


def test_a_verdict_is_stored_as_the_next_revision_and_told_to_back_ends(line: ScoringHarness) -> None:
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


def test_before_a_verdict_comes_everything_else_stands_already(line: ScoringHarness, asked: Asked) -> None:
    asked.free.clear()
    line.post(request(*trip(0, "search")))
    line.wait(1.0)
    key = line.post(request(*trip(1, "book")))
    line.wait(1.0)
    line.wait(60.0)
    line.wait()
    assert [len(revisions(line, number)) for number in (0, 1)] == [1, 1]
    assert line.cursor() >= key  # the journal does not wait for the model
    asked.free.set()
    line.answered()
    assert [len(revisions(line, number)) for number in (0, 1)] == [2, 2]


def test_what_the_judge_combines_is_stored_combined(tmp_path: Path, asked: Asked) -> None:
    with lined(tmp_path, asked, judge=asked.judge(combination="min")) as line:
        line.post(request(*trip(0, "search", "book")))
        line.wait(1.0)
        line.answered()
        (run,) = line.runs().values()
        before, after = (each.document for each in line.store.evaluations(run.run_id))
        assert (value_of(before, "tool_correctness"), value_of(after, "tool_correctness")) == (1.0, 0.25)
        assert after["digest"] == before["digest"]


def test_words_of_the_model_are_not_stored_with_names_only(line: ScoringHarness) -> None:
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


def test_late_spans_after_a_verdict_make_the_next_revision_and_are_judged_again(line: ScoringHarness) -> None:
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


def test_a_verdict_about_what_is_no_longer_so_is_thrown_away(line: ScoringHarness, asked: Asked) -> None:
    asked.free.clear()
    root, *calls = trip(0, "search")
    line.post(request(root, *calls))
    line.wait(1.0)
    eventually(lambda: len(asked.questions) == 1, "it is not asked")
    line.post(late(root, "book"))
    line.wait(2.0)
    asked.free.set()
    line.answered()
    both = ["search", "book"]
    assert revisions(line) == [(1, ["search"], None), (2, both, None), (3, both, 0.25)]
    assert outdated(line) == 1
    assert len(events(line)) == 1


def test_a_verdict_that_waits_to_be_stored_when_late_spans_come_is_stored_before_them(line: ScoringHarness) -> None:
    root, *calls = trip(0, "search")
    line.post(request(root, *calls))
    line.wait(1.0)
    assert line.pipeline.flush_verdicts(60_000)  # it has arrived and was not read yet
    line.post(late(root, "book"))
    line.wait(2.0)
    line.answered()
    both = ["search", "book"]
    assert revisions(line) == [(1, ["search"], None), (2, ["search"], 0.25), (3, both, None), (4, both, 0.25)]


def test_spans_that_come_twice_ask_nobody_and_make_no_revision(line: ScoringHarness, asked: Asked) -> None:
    spans = trip(0, "search")
    line.post(request(*spans))
    line.wait(1.0)
    line.answered()
    for _ in range(2):
        line.post(request(*spans))
        line.wait(5.0)
        line.answered()
    assert len(revisions(line)) == 2
    assert len(asked.questions) == 1


@pytest.mark.parametrize("how", ["the same spans", "a late one"])
def test_it_goes_on_after_a_new_start_as_if_there_had_been_none(tmp_path: Path, asked: Asked, how: str) -> None:
    root, *calls = trip(0, "search")
    with lined(tmp_path, asked) as line:
        line.post(request(root, *calls))
        line.wait(1.0)
        line.answered()
        now = line.now
    with lined(tmp_path, asked, now=now) as line:
        line.wait()
        line.post(request(root, *calls) if how == "the same spans" else late(root, "book"))
        line.wait(5.0)
        line.answered()
        known = [(1, ["search"], None), (2, ["search"], 0.25)]
        both = ["search", "book"]
        if how == "a late one":
            known += [(3, both, None), (4, both, 0.25)]
        assert revisions(line) == known
        assert len(asked.questions) == len(known) // 2


def test_a_question_that_was_under_way_at_a_kill_is_not_asked_again_and_nothing_is_doubled(
    tmp_path: Path, asked: Asked
) -> None:
    spans = trip(0, "search")
    asked.free.clear()
    with lined(tmp_path, asked) as line:
        line.post(request(*spans))
        line.wait(1.0)
        eventually(lambda: len(asked.questions) == 1, "it is not asked")
        now = line.now
    asked.free.set()
    with lined(tmp_path, asked, now=now) as line:
        line.post(request(*spans))
        line.wait(5.0)
        line.answered()
        assert revisions(line) == [(1, ["search"], None)]
        assert len(asked.questions) == 1


# --- deletions and storage errors ------------------------------------------------------------------------------------


def test_a_verdict_about_a_trace_that_was_deleted_brings_nothing_back(line: ScoringHarness, asked: Asked) -> None:
    asked.free.clear()
    line.post(request(*trip(0, "search")))
    line.wait(1.0)
    line.store.delete_trace(trace_id(0))
    asked.free.set()
    line.answered()
    assert line.runs() == {}
    assert events(line) == []
    assert outdated(line) == 1


def test_a_verdict_about_a_part_that_was_taken_back_is_thrown_away(line: ScoringHarness, asked: Asked) -> None:
    asked.free.clear()
    root, first = trip(0, "search")
    line.post(request(first))
    line.wait(10.0)
    line.post(request(root))
    line.wait(1.0)
    asked.free.set()
    line.answered()
    assert [run.revision for run in (each.current for each in line.runs().values())] == [2]
    assert revisions(line) == [(1, ["search"], None), (2, ["search"], 0.25)]


def test_a_verdict_is_kept_until_the_store_can_be_written(tmp_path: Path, asked: Asked) -> None:
    with lined(tmp_path, asked, timeout=0.05) as line:
        asked.free.clear()
        for number in range(3):
            line.post(request(*trip(number, "search")))
        line.wait(1.0)
        asked.free.set()
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


def test_a_run_that_was_rescored_meanwhile_keeps_what_was_said_last(line: ScoringHarness, asked: Asked) -> None:
    asked.free.clear()
    line.post(request(*trip(0, "search")))
    line.wait(1.0)
    (run,) = line.runs().values()
    told = evaluate(run_from_document(run.current.document), Goldens([Golden("other", "Book a trip")]))
    assert line.store.replace_if_current(replace(told, revision=2), (1, run.current.digest))
    asked.free.set()
    line.answered()
    assert [each.document["golden_id"] for each in line.store.evaluations(run.run_id)] == ["g", "other"]
    assert outdated(line) == 1
