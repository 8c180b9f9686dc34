"""Tests of the scoring consumer: each run in the journal is scored exactly once and completely, whatever fails."""

from __future__ import annotations

import gzip
import json
import logging
import random
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.trace.v1.trace_pb2 import TracesData

import goldspan
from goldspan import ExpectedTool, Golden, Goldens, semconv
from goldspan.errors import StoreError
from goldspan.gateway.scoring import journal_reader
from goldspan.gateway.scoring.trace_buffer import FlushPolicy
from goldspan.model import Evaluation
from goldspan.online.pipeline import Pipeline
from support.gateway_process import PATIENCE_S
from support.gateway_scoring_harness import ScoringHarness, asking, json_request, request, shuffled_posts
from support.laws import examples
from support.span_builders import agent, model, span, tool, trace_id

CAPTURES = sorted((Path(__file__).parent.parent / "fixtures" / "captures").glob("*.pb.gz"))


@pytest.fixture
def line(tmp_path: Path) -> Iterator[ScoringHarness]:
    made = ScoringHarness(tmp_path)
    yield made
    made.close()


def only_run(line: ScoringHarness) -> Any:
    (run,) = line.runs().values()
    return run


def count(line: ScoringHarness, name: str) -> int:
    return sum(line.meter.counts(name).values())


# --- grouping ---------------------------------------------------------------------------------------------------------


def test_a_run_is_scored_once_after_the_grace_period_of_its_root(line: ScoringHarness) -> None:
    root, *tools = asking(0, "search", "book")
    line.post(request(*tools))
    line.wait(9.0)
    assert line.runs() == {}
    line.post(request(root))
    line.wait()
    assert line.runs() == {}
    line.wait(1.0)
    line.wait(5.0)
    assert only_run(line).current.document["tools_used"] == ["search", "book"]
    assert line.evaluations() == 1


def test_a_run_whose_calls_are_invisible_is_counted(line: ScoringHarness) -> None:
    line.post(request(*asking(0)))
    line.post(request(*asking(1, "search")))
    line.wait(10.0)
    assert only_invisible(line) == [trace_id(0)]
    assert count(line, "goldspan.runs.calls_invisible") == 1


def only_invisible(line: ScoringHarness) -> list[str]:
    documents = [run.current.document for run in line.runs().values()]
    return [each["trace_ids"][0] for each in documents if each["health"]["calls_invisible"]]


def test_a_run_without_its_root_is_scored_after_the_idle_time(line: ScoringHarness) -> None:
    line.post(request(*asking(0, "search", "book")[1:]))
    line.wait(10.0)
    run = only_run(line)
    assert run.current.document["tools_used"] == ["search", "book"]
    assert run.current.document["health"]["missing_root"]


def test_a_partial_run_is_deleted_when_the_complete_run_is_scored(line: ScoringHarness) -> None:
    root, first = asking(0, "search")
    line.post(request(first))
    line.wait(10.0)
    assert line.tools() == {f"{first.trace_id}:{first.span_id}": ["search"]}
    line.post(request(root))
    line.wait(1.0)
    assert line.tools() == {f"{root.trace_id}:{root.span_id}": ["search"]}


@pytest.mark.parametrize("capture", CAPTURES, ids=lambda path: path.name.partition(".")[0])
def test_the_gateway_evaluates_captures_like_files(tmp_path: Path, capture: Path) -> None:
    path = tmp_path / "traces.pb"
    path.write_bytes(gzip.decompress(capture.read_bytes()))
    goldens = Goldens([Golden("search", tools=(ExpectedTool("search"),), policy=True)])
    wanted = {
        (unit, run.run_id): goldspan.evaluate(run, goldens)
        for unit in ("request", "component")
        for run in goldspan.load_runs(path, unit=unit)
    }
    line = ScoringHarness(tmp_path, goldens=goldens)
    posts = one_by_one(path.read_bytes())
    random.Random(7).shuffle(posts)
    for post in posts:
        line.post(post)
    line.wait(1.0)
    line.wait(10.0)
    stored = {(run.current.document["unit"], run.run_id): run.current for run in line.store.iter_runs()}
    together = {place: each for place, each in wanted.items() if not each.run.health.stitched}
    assert {place: stored[place].digest for place in together} == {p: each.digest for p, each in together.items()}
    for place, each in together.items():
        scores = {score["metric"]: score["value"] for score in stored[place].document["scores"]}
        assert scores == {score.metric: score.value for score in each.scores}
    line.close()


def one_by_one(body: bytes) -> list[bytes]:
    """Returns a request for each span of a request."""
    posts = []
    for resource_spans in TracesData.FromString(body).resource_spans:
        for scope_spans in resource_spans.scope_spans:
            for each in scope_spans.spans:
                alone = TracesData()
                around = alone.resource_spans.add(
                    resource=resource_spans.resource, schema_url=resource_spans.schema_url
                )
                around.scope_spans.add(scope=scope_spans.scope, schema_url=scope_spans.schema_url, spans=[each])
                posts.append(alone.SerializeToString())
    return posts


@examples(0.25)
@given(
    st.lists(st.lists(st.sampled_from(["search", "book", "mail"]), max_size=4), min_size=1, max_size=4),
    st.integers(0, 2**32),
    st.sampled_from([1, 3]),
    st.sampled_from([2**30, 600]),
)
def test_order_batching_workers_and_memory_do_not_change_the_runs(
    requests: list[list[str]], seed: int, workers: int, max_bytes: int
) -> None:
    chance = random.Random(seed)
    spans = [each for number, tools in enumerate(requests) for each in asking(number, *tools)]
    with tempfile.TemporaryDirectory() as folder:
        line = ScoringHarness(Path(folder), workers=workers, max_bytes=max_bytes)
        for post in shuffled_posts(spans, chance):
            line.post(post, journal=chance.randrange(workers))
            if chance.random() < 0.3:
                line.wait()
        line.wait(1.0)
        found = {run_id.partition(":")[0]: tools for run_id, tools in line.tools().items()}
        evaluations = line.evaluations()
        line.close()
    assert found == {trace_id(number): tools for number, tools in enumerate(requests)}
    assert evaluations == len(requests)


def test_spans_in_json_and_protobuf_form_one_run(line: ScoringHarness) -> None:
    root, first, second = asking(0, "search", "book")
    line.post(json_request(first), media="json")
    line.post(request(root))
    line.post(json_request(second), media="json")
    line.wait(1.0)
    assert only_run(line).current.document["tools_used"] == ["search", "book"]


def test_a_poll_with_a_time_limit_continues_with_the_next_poll(line: ScoringHarness) -> None:
    for number in range(5):
        line.post(request(*asking(number, "search")))
    (scoring,) = line.scoring
    scoring.poll()
    line.now += 1.0
    polls = 0
    while scoring.poll(0.0):
        assert scoring.has_more_due
        polls += 1
    assert polls == 5
    assert not scoring.has_more_due
    assert list(line.tools().values()) == [["search"]] * 5


def test_metrics_and_unrelated_logs_are_skipped(line: ScoringHarness) -> None:
    line.post(b"\x0a\x00", signal="metrics")
    logs = '{"resourceLogs": [{"scopeLogs": [{"logRecords": [{"body": {"stringValue": "GET /"}}]}]}]}'
    line.post(logs.encode(), signal="logs", media="json")
    line.wait(10.0)
    assert line.runs() == {}
    assert line.cursor() == 2


def event(name: str, time: int, **attributes: str) -> dict[str, Any]:
    """Returns a log record as a coding agent writes it."""
    told = {"event.name": name, "session.id": "s1", **attributes}
    pairs = [{"key": key, "value": {"stringValue": value}} for key, value in told.items()]
    return {"timeUnixNano": str(10**18 + time), "body": {"stringValue": f"claude_code.{name}"}, "attributes": pairs}


def test_log_events_of_a_session_form_one_run(line: ScoringHarness) -> None:
    for number, record in enumerate(
        (
            event("user_prompt", 0, prompt="Fix it"),
            event("tool_result", 5_000, tool_name="Read", success="true"),
            event("tool_result", 9_000, tool_name="Edit", success="true"),
        )
    ):
        body = {"resourceLogs": [{"scopeLogs": [{"scope": {"name": "com.anthropic.claude_code.events"}}]}]}
        body["resourceLogs"][0]["scopeLogs"][0]["logRecords"] = [record]  # type: ignore[assignment]
        line.post(json.dumps(body).encode(), signal="logs", media="json")
        line.wait(float(number))
    line.wait(10.0)
    assert list(line.tools().values()) == [["Read", "Edit"]]


# --- revisions --------------------------------------------------------------------------------------------------------


def test_a_late_call_causes_a_revision_with_all_calls(line: ScoringHarness) -> None:
    root, first, second = asking(0, "search", "book")
    line.post(request(root, first))
    line.wait(1.0)
    line.post(request(second))
    line.wait(1.0)
    run = only_run(line)
    assert (run.current.revision, run.current.document["tools_used"]) == (2, ["search", "book"])
    assert line.evaluations() == 2


def test_repeated_spans_cause_no_revision(line: ScoringHarness) -> None:
    whole = request(*asking(0, "search"))
    for _ in range(3):
        line.post(whole)
        line.wait(1.0)
    line.wait(200.0)
    line.post(whole)
    line.wait(1.0)
    assert line.evaluations() == 1
    assert count(line, semconv.TOO_LATE_SPANS_COUNTER) == 0


def test_spans_that_arrive_after_their_trace_was_released_are_counted_and_change_nothing(line: ScoringHarness) -> None:
    root, first, late = asking(0, "search", "book")
    line.post(request(root, first))
    line.wait(1.0)
    line.wait(61.0)
    line.post(request(late))
    line.wait(10.0)
    line.wait(61.0)
    line.post(request(root))
    line.wait(1.0)
    run = only_run(line)
    assert (run.current.revision, run.current.document["tools_used"]) == (1, ["search"])
    assert count(line, semconv.TOO_LATE_SPANS_COUNTER) == 2


def test_a_second_run_of_a_released_trace_is_scored(line: ScoringHarness) -> None:
    server = span("server", trace_id=trace_id(0))
    for number in range(2):
        root = agent("helper", trace_id=trace_id(0), parent_id=server.span_id)
        call = tool(f"tool {number}", trace_id=trace_id(0), parent_id=root.span_id)
        line.post(request(root, call))
        line.wait(10.0)
        line.wait(61.0)
    assert sorted(line.tools().values()) == [["tool 0"], ["tool 1"]]


# --- sessions ---------------------------------------------------------------------------------------------------------


def test_detached_calls_are_joined_to_their_run_by_session(line: ScoringHarness) -> None:
    conversation = {"gen_ai__conversation__id": "s1"}
    root = agent("helper", trace_id=trace_id(0), start_ns=1_000, end_ns=9_000, **conversation)
    stray = tool("book", trace_id=trace_id(1), start_ns=2_000, end_ns=3_000, **conversation)
    inside = tool("search", trace_id=trace_id(0), parent_id=root.span_id, start_ns=1_500, end_ns=1_600)
    line.post(request(stray, service="shop"))
    line.post(request(root, inside, service="shop"))
    line.wait(1.0)
    line.wait(10.0)
    assert line.tools() == {f"{root.trace_id}:{root.span_id}": ["search", "book"]}


def test_model_turns_in_separate_traces_form_one_run_of_their_session(line: ScoringHarness) -> None:
    conversation = {"gen_ai__conversation__id": "s1"}
    asked = [{"role": "user", "content": "Book it"}]
    call = {"type": "tool_call", "name": "book", "arguments": {}, "id": "c1"}
    turn = {"role": "assistant", "parts": [call]}
    result = {"role": "tool", "parts": [{"type": "tool_call_response", "id": "c1", "response": "done"}]}
    first = model(asked=asked, answered=[turn], trace_id=trace_id(0), **conversation)
    done = tool("book", {}, trace_id=trace_id(1), gen_ai__tool__call__id="c1", **conversation)
    answer = [{"role": "assistant", "content": "Done"}]
    second = model(asked=[*asked, turn, result], answered=answer, trace_id=trace_id(2), **conversation)
    for each in (first, done, second):
        line.post(request(each, service="shop"))
        line.wait(1.0)
    line.wait(10.0)
    assert list(line.tools().values()) == [["book"]]
    assert only_run(line).evaluation_count == 1


def test_runs_of_one_session_do_not_wait_for_each_other(line: ScoringHarness) -> None:
    for number in range(3):
        line.post(request(*asking(number, "search", gen_ai__conversation__id="s1")))
        line.wait(1.0)
        assert len(line.runs()) == number + 1


# --- restarts ---------------------------------------------------------------------------------------------------------


def test_unscored_spans_are_scored_after_a_restart(tmp_path: Path) -> None:
    line = ScoringHarness(tmp_path)
    root, *tools = asking(0, "search", "book")
    line.post(request(*tools))
    line.wait(2.0)
    line.close()
    again = ScoringHarness(tmp_path, now=line.now)
    again.post(request(root))
    again.wait(1.0)
    assert only_run(again).current.document["tools_used"] == ["search", "book"]
    assert again.evaluations() == 1
    again.close()


@pytest.mark.parametrize("late", [False, True], ids=["as it was", "with a late call"])
def test_a_scored_run_is_not_scored_again_after_a_restart(tmp_path: Path, late: bool) -> None:
    line = ScoringHarness(tmp_path)
    root, first, second = asking(0, "search", "book")
    line.post(request(root, first))
    line.wait(1.0)
    if late:
        line.post(request(second))
    line.close()
    again = ScoringHarness(tmp_path, now=line.now)
    again.wait(1.0)
    run = only_run(again)
    assert run.evaluation_count == run.current.revision == (2 if late else 1)
    assert run.current.document["tools_used"] == (["search", "book"] if late else ["search"])
    again.close()


def test_spans_that_arrived_too_late_change_nothing_after_a_restart(tmp_path: Path) -> None:
    line = ScoringHarness(tmp_path)
    root, first, late = asking(0, "search", "book")
    line.post(request(root, first))
    line.wait(1.0)
    line.wait(61.0)
    line.wait()
    line.post(request(late))
    line.wait()
    line.close()
    again = ScoringHarness(tmp_path, now=line.now)
    again.wait(10.0)
    run = only_run(again)
    assert (run.evaluation_count, run.current.document["tools_used"]) == (1, ["search"])
    assert count(again, semconv.TOO_LATE_SPANS_COUNTER) == 1
    again.close()


def test_the_cursor_advances_despite_frequent_restarts(tmp_path: Path) -> None:
    now = 0.0
    for number in range(30):
        line = ScoringHarness(tmp_path, now=now)
        line.post(request(*asking(number, "search")))
        line.wait(3.0)
        now = line.now
        line.close()
    line = ScoringHarness(tmp_path, now=now)
    line.wait()
    assert line.cursor() >= 8
    assert len(line.runs()) == line.evaluations() == 30
    line.close()


def test_unread_spans_postpone_the_scoring_of_their_trace(line: ScoringHarness) -> None:
    """The consumer does not score a trace while further spans of it, which arrived in time, are unread."""
    root, first, second = asking(0, "search", "book")
    line.post(request(root, first))
    line.now += 0.9
    for number in range(1, 300):  # more than one read returns
        line.post(request(*asking(number, "search")))
    line.post(request(second))
    line.now += 500.0
    line.wait()
    assert {run.evaluation_count for run in line.runs().values()} == {1}
    assert line.tools()[f"{root.trace_id}:{root.span_id}"] == ["search", "book"]


def test_a_trace_with_entries_on_both_sides_of_the_cursor_is_unchanged_after_a_restart(tmp_path: Path) -> None:
    """A released trace has entries before and after the first entry of a held trace."""
    line = ScoringHarness(tmp_path)
    root, first = asking(0, "search")
    line.post(request(first))
    line.wait()
    other = asking(1, "book")
    line.post(request(other[1]))
    line.wait()
    line.post(request(root))
    line.wait(1.0)
    line.wait(61.0)
    assert line.cursor() == 1
    line.close()
    again = ScoringHarness(tmp_path, now=line.now)
    again.wait(1.0)
    again.wait(10.0)
    (run,) = (run for run_id, run in again.runs().items() if run_id.startswith(root.trace_id))
    assert (run.evaluation_count, run.current.document["tools_used"]) == (1, ["search"])
    again.close()


@pytest.mark.parametrize("sent", ["the root once more", "a late call"])
def test_spans_of_a_released_run_that_arrive_after_a_restart_change_nothing(tmp_path: Path, sent: str) -> None:
    line = ScoringHarness(tmp_path)
    root, first, late = asking(0, "search", "book")
    line.post(request(root, first))
    line.wait(1.0)
    line.wait(61.0)
    line.wait()
    line.close()
    again = ScoringHarness(tmp_path, now=line.now)
    again.post(request(root if sent == "the root once more" else late))
    again.wait(1.0)
    again.wait(10.0)
    run = only_run(again)
    assert (run.evaluation_count, run.current.document["tools_used"]) == (1, ["search"])
    assert count(again, semconv.TOO_LATE_SPANS_COUNTER) == 1
    again.close()


def test_a_partial_run_scored_before_a_restart_is_deleted(tmp_path: Path) -> None:
    line = ScoringHarness(tmp_path)
    root, first = asking(0, "search")
    line.post(request(first))
    line.wait(10.0)
    line.close()
    again = ScoringHarness(tmp_path, now=line.now)
    again.post(request(root))
    again.wait(1.0)
    assert again.tools() == {f"{root.trace_id}:{root.span_id}": ["search"]}
    again.close()


def test_downtime_does_not_count_as_idle_time(tmp_path: Path) -> None:
    line = ScoringHarness(tmp_path)
    root, first = asking(0, "search")
    line.post(request(first))
    line.close()
    again = ScoringHarness(tmp_path, now=line.now + 300.0)
    again.wait(5.0)
    assert again.runs() == {}
    again.post(request(root))
    again.wait(1.0)
    assert again.tools() == {f"{root.trace_id}:{root.span_id}": ["search"]}
    again.close()


def test_restarted_workers_continue_at_the_cursors(tmp_path: Path) -> None:
    line = ScoringHarness(tmp_path, workers=3)
    for number in range(12):
        line.post(request(*asking(number, "search")), journal=number % 3)
    line.wait(0.5)
    line.close()
    again = ScoringHarness(tmp_path, workers=3, now=line.now)
    again.wait(1.0)
    assert len(again.runs()) == again.evaluations() == 12
    again.close()


def test_draining_scores_traces_that_have_their_root(line: ScoringHarness) -> None:
    line.post(request(*asking(0, "search")))
    line.post(request(*asking(1, "search")[1:]))
    line.scoring[0].drain()
    assert [run_id.partition(":")[0] for run_id in line.runs()] == [trace_id(0)]


def test_entries_are_released_after_their_runs_are_scored_and_the_late_time_has_passed(line: ScoringHarness) -> None:
    keys = [line.post(request(*asking(number, "search"))) for number in range(2)]
    line.wait(0.5)
    assert line.cursor() == 0
    line.wait(0.5)
    assert line.cursor() == 0
    line.wait(60.0)
    assert line.cursor() == keys[-1]


class BlockingSink:
    """A sink that blocks the submission of the evaluation with that number until it is released."""

    def __init__(self, number: int) -> None:
        self._left = number
        self.reached = threading.Event()
        self.open = threading.Event()

    def submit(self, evaluation: Evaluation) -> None:
        self._left -= 1
        if self._left == 0:
            self.reached.set()
            self.open.wait(PATIENCE_S)


@pytest.mark.e2e
@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("due", [True, False], ids=["while it scores what is due", "while it scores what is left"])
def test_runs_not_scored_before_the_stop_timeout_are_scored_once_after_a_restart(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, due: bool, workers: int
) -> None:
    monkeypatch.delenv("GOLDSPAN_STRICT")  # an uncaught error would end the thread
    checkpoint = BlockingSink(220)  # when a part is written
    line = ScoringHarness(tmp_path, pipeline=Pipeline(None, sinks=[checkpoint]), workers=workers)
    scoring, thread = line.scoring[0], line.thread()
    line.post(b"".join(request(*asking(number, "search")) for number in range(500)))
    if due:
        scoring.poll()
        line.now += 1.0
        thread.start()
    else:
        line.stop.requested.set()  # so that it only has to stop
        thread.start()
    assert checkpoint.reached.wait(PATIENCE_S)
    assert not thread.stop(0.0)
    line.close()
    checkpoint.open.set()
    thread._thread.join(PATIENCE_S)
    assert not thread._thread.is_alive()
    assert not [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]
    again = ScoringHarness(tmp_path, now=line.now, workers=workers)
    assert 0 < len(again.runs()) < 500
    again.wait(2.0)
    assert len(again.runs()) == again.evaluations() == 500
    again.close()


# --- limits -----------------------------------------------------------------------------------------------------------


def test_beyond_max_backlog_bytes_whole_traces_are_shed_and_counted(tmp_path: Path) -> None:
    line = ScoringHarness(tmp_path, max_backlog_bytes=2_000)
    root, first, second = asking(0, "search", "book")
    line.post(request(root, first))
    line.wait()
    for number in range(1, 40):
        line.post(request(*asking(number, "search")))
    line.post(request(second))
    line.wait()
    line.wait(1.0)
    shed = count(line, semconv.GATEWAY_SHED)
    assert shed > 30
    assert trace_id(0) not in {run_id.partition(":")[0] for run_id in line.runs()}
    assert count(line, semconv.UNSCORED_SPANS_COUNTER) == 2 * 39 + 3 - 2 * len(line.runs())
    line.wait(100.0)
    assert line.cursor() == 41
    line.post(request(*asking(99, "book")))
    line.wait(1.0)
    assert ["book"] in line.tools().values()
    line.close()


def test_an_unreadable_entry_is_counted_and_does_not_block_others(line: ScoringHarness) -> None:
    line.post(b"\xff\xff\xff")
    line.post(b"{", media="json")
    line.post(request(*asking(0, "search")))
    line.wait(1.0)
    assert len(line.runs()) == 1
    assert count(line, semconv.GATEWAY_UNREADABLE) == 2


def test_a_dropped_trace_is_not_scored(line: ScoringHarness) -> None:
    line.post(request(*asking(0, "search")))
    line.wait()
    line.scoring[0].drop_trace(trace_id(0))
    line.wait(5.0)
    assert line.runs() == {}


def test_a_trace_that_is_never_idle_is_scored_after_its_lifetime(tmp_path: Path) -> None:
    line = ScoringHarness(tmp_path, patience=FlushPolicy(grace=1.0, idle=10.0, late=60.0, lifetime=5.0))
    root, *tools = asking(0, *(f"tool {number}" for number in range(20)))
    line.post(request(root))
    for each in tools:
        line.post(request(each))
        line.wait(0.5)
    line.wait(1.0)
    run = only_run(line)
    assert run.evaluation_count == run.current.revision == 2
    assert len(run.current.document["tools_used"]) == 20
    line.close()


def test_a_trace_that_is_never_idle_does_not_fill_the_journal(tmp_path: Path) -> None:
    line = ScoringHarness(tmp_path, max_backlog_bytes=5_000)
    root, *tools = asking(0, *(f"tool {number}" for number in range(40)))
    line.post(request(root))
    for number, each in enumerate(tools):
        line.post(request(each))
        line.wait(0.5)
        line.post(request(*asking(number + 1, "search")))
        assert line.journals[0].size_after(line.cursor()) < 6_000
    assert count(line, semconv.EVICTED_COUNTER) >= 1
    assert count(line, semconv.GATEWAY_SHED) == 0
    assert trace_id(0) in {run_id.partition(":")[0] for run_id in line.runs()}
    line.close()


def test_a_log_with_an_invalid_service_name_does_not_stop_scoring(line: ScoringHarness) -> None:
    service = {"key": "service.name", "value": {"arrayValue": {"values": [{"stringValue": "a"}]}}}
    record = event("user_prompt", 0, prompt="Fix it")
    logs = {"resourceLogs": [{"resource": {"attributes": [service]}, "scopeLogs": [{"logRecords": [record]}]}]}
    line.post(json.dumps(logs).encode(), signal="logs", media="json")
    line.post(request(*asking(0, "search")))
    line.wait(1.0)
    assert ["search"] in line.tools().values()


def test_log_sessions_are_complete_across_the_journals_of_workers(tmp_path: Path) -> None:
    line = ScoringHarness(tmp_path, workers=3)
    for session in range(12):
        for place, record in enumerate(
            (event("user_prompt", 0, prompt="Fix it"), event("tool_result", 9, tool_name="Read"))
        ):
            record["attributes"][1]["value"]["stringValue"] = f"s{session}"
            logs = {"resourceLogs": [{"scopeLogs": [{"logRecords": [record]}]}]}
            line.post(json.dumps(logs).encode(), signal="logs", media="json", journal=place)
    line.wait(10.0)
    assert list(line.tools().values()) == [["Read"]] * 12
    line.close()


@pytest.mark.e2e
def test_calls_of_a_session_that_is_never_idle_are_scored(tmp_path: Path) -> None:
    line = ScoringHarness(tmp_path, max_spans_per_group=50)
    for number in range(60):
        conversation = {"gen_ai__conversation__id": "s1", "trace_id": trace_id(number)}
        line.post(request(model(asked=[{"role": "user", "content": f"{number}"}], **conversation), service="shop"))
        line.wait(5.0)
    assert line.runs()
    line.wait(200.0)
    assert len(line.runs()) == 60
    assert count(line, semconv.UNSCORED_SPANS_COUNTER) == 0
    line.close()


def test_late_spans_of_many_traces_in_one_entry_are_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    line = ScoringHarness(tmp_path)
    requests = [asking(number, "search", "book") for number in range(200)]
    line.post(request(*(each for spans in requests for each in spans[:2])))
    line.wait(1.0)
    read: list[int] = []
    opened = journal_reader.split_entry
    monkeypatch.setattr(
        journal_reader, "split_entry", lambda entry, *how, **more: read.append(entry.key) or opened(entry, *how, **more)
    )
    line.post(request(*(spans[2] for spans in requests)))
    line.wait(1.0)
    assert all(run.current.document["tools_used"] == ["search", "book"] for run in line.runs().values())
    assert len(read) <= 3
    line.close()


@pytest.mark.parametrize("question", ["has_trace", "current_revision"])
def test_a_temporary_store_failure_loses_no_revision(
    line: ScoringHarness, monkeypatch: pytest.MonkeyPatch, question: str
) -> None:
    monkeypatch.setenv("GOLDSPAN_STRICT", "0")
    answers, failures = getattr(line.store, question), [True]

    def fails_once(asked: str) -> Any:
        if failures:
            failures.clear()
            raise StoreError("busy")
        return answers(asked)

    monkeypatch.setattr(line.store, question, fails_once)
    root, first, late = asking(0, "search", "book")
    line.post(request(root, first))
    line.wait(1.0)
    line.wait(1.0)
    line.post(request(late))
    line.wait(1.0)
    line.wait(1.0)
    assert not failures
    assert only_run(line).evaluation_count == 2
    assert only_run(line).current.document["tools_used"] == ["search", "book"]


# --- results ----------------------------------------------------------------------------------------------------------


def test_results_of_an_evaluation_are_written_to_the_journal(tmp_path: Path) -> None:
    line = ScoringHarness(tmp_path, results=["events"], consumers=["forward/x"])
    line.post(request(*asking(0, "search")))
    line.wait(1.0)
    (entry,) = line.entries("result")
    assert entry.signal == "logs"
    assert bytes.fromhex(trace_id(0)) in entry.body
    line.close()
