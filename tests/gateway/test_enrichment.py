"""Tests of held spans: each is exported at least once, with results, whatever fails."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import TracesData

from goldspan import Goldens, Run, evaluate
from goldspan.errors import StoreError
from goldspan.gateway.journal.journal import JournalEntry, JournalFull
from goldspan.gateway.resource_limits import Media
from goldspan.gateway.scoring import journal_reader, results_queue, scoring_consumer, trace_evaluation
from goldspan.model import ComponentSelector, Evaluation
from goldspan.online.pipeline import Pipeline
from support.gateway_process import PATIENCE_S, eventually
from support.gateway_scoring_harness import ScoringHarness, asking, json_request, request
from support.span_builders import agent, ask_for, in_trace, inside, messages, model, span, tool, trace_id, user

MIB = 2**20
HELD: dict[str, Any] = {"enrich": True, "consumers": ["forward/x"]}
SAID = {"gen_ai__conversation__id": "s1"}


@pytest.fixture
def line(tmp_path: Path) -> Iterator[ScoringHarness]:
    made = ScoringHarness(tmp_path, **HELD)
    yield made
    made.close()


def sent(line: ScoringHarness, after: int = 0) -> list[tuple[str, dict[str, Any]]]:
    """Returns the names and the results of the exported spans."""
    return [
        (each["name"], each["results"])
        for entry in line.entries("enriched")
        if entry.key > after
        for each in spans(entry)
    ]


def spans(entry: JournalEntry) -> Iterator[dict[str, Any]]:
    for resource_spans in TracesData.FromString(entry.body).resource_spans:
        for scope_spans in resource_spans.scope_spans:
            for each in scope_spans.spans:
                results = {pair.key: pair.value for pair in each.attributes if pair.key.startswith("goldspan.")}
                yield {"name": each.name, "results": results}


def tools(results: dict[str, Any]) -> list[str]:
    return [value.string_value for value in results["goldspan.tools_used"].array_value.values]


def names(line: ScoringHarness, after: int = 0) -> list[str]:
    return sorted(name for name, _ in sent(line, after))


def test_spans_leave_with_the_results_of_their_run_and_late_ones_as_they_are(line: ScoringHarness) -> None:
    root, first, late = asking(0, "search", "book")
    line.post(request(first))
    line.post(json_request(root), media="json")
    line.post(request(span("GET /", trace_id=trace_id(1))))
    line.wait(1.0)
    line.post(request(late))
    line.wait(1.0)
    assert names(line) == sorted([root.name, first.name, late.name, "GET /"])
    left = dict(sent(line))
    assert tools(left[root.name]) == ["search"]
    assert [left[each] for each in (first.name, late.name, "GET /")] == [{}, {}, {}]
    (run,) = line.runs().values()
    assert run.current.revision == 2


def test_json_that_protobuf_cannot_say_leaves_as_it_is_and_is_scored(line: ScoringHarness) -> None:
    body = json.loads(json_request(*asking(0, "search")))
    body["resourceSpans"][0]["scopeSpans"][0]["spans"][0]["flags"] = -1
    line.post(json.dumps(body).encode(), media="json")
    line.wait(1.0)
    (entry,) = line.entries("enriched")
    assert json.loads(entry.body) == body
    assert list(line.tools().values()) == [["search"]]


def test_what_cannot_be_read_leaves_as_it_is(line: ScoringHarness) -> None:
    line.post(b"\xff\xff")
    line.wait(1.0)
    assert [entry.body for entry in line.entries("enriched")] == [b"\xff\xff"]


def test_what_is_not_scored_leaves_all_the_same(tmp_path: Path) -> None:
    line = ScoringHarness(tmp_path, max_spans_per_group=2, **HELD)
    root, *calls = asking(0, "search", "book")
    line.post(request(root, *calls))
    line.wait(1.0)
    assert names(line) == sorted(each.name for each in (root, *calls))
    assert line.runs() == {}
    line.close()


def test_what_is_read_again_after_a_restart_leaves_with_the_results_that_it_had(tmp_path: Path) -> None:
    """Otherwise a back end that replaces spans would lose the results."""
    line = ScoringHarness(tmp_path, **HELD)
    line.post(request(*asking(1, "book")[1:]))  # its root has not arrived, so the journal keeps all later entries
    line.post(request(*asking(0, "search")))
    line.wait(1.0)
    last = line.entries("enriched")[-1].key
    line.close()
    again = ScoringHarness(tmp_path, now=line.now, **HELD)
    again.wait(2.0)
    (results,) = (results for name, results in sent(again, last) if name == "invoke_agent helper")
    assert tools(results) == ["search"]
    assert results["goldspan.revision"].int_value == 1
    assert again.evaluations() == 1
    again.close()


def test_half_of_a_run_that_is_read_again_does_not_leave_without_its_results(tmp_path: Path) -> None:
    """The entry of the call precedes the entries that are read again, and its request follows them."""
    line = ScoringHarness(tmp_path, **HELD)
    root, first = asking(0, "search")
    line.post(request(first))
    line.wait()
    line.post(request(*asking(1, "book")[1:]))
    line.wait()
    line.post(request(root, span("GET /", trace_id=root.trace_id, parent_id=root.span_id)))
    line.wait(1.0)
    line.wait(61.0)
    assert line.cursor() == 1
    last = line.entries("enriched")[-1].key
    line.close()
    again = ScoringHarness(tmp_path, now=line.now, **HELD)
    again.wait(1.0)
    again.wait(10.0)
    assert root.name not in names(again, last)
    assert "GET /" in names(again, last)
    assert tools(dict(sent(again))[root.name]) == ["search"]
    again.close()


def test_a_stray_call_of_a_session_has_nothing_leave_twice(line: ScoringHarness) -> None:
    said = {"gen_ai__conversation__id": "s1"}
    root = agent("helper", trace_id=trace_id(0), start_ns=1_000, end_ns=9_000, **said)
    inside = tool("search", trace_id=trace_id(0), parent_id=root.span_id, start_ns=1_500, end_ns=1_600)
    stray = tool("book", trace_id=trace_id(1), start_ns=2_000, end_ns=3_000, **said)
    line.post(request(root, inside, service="shop"))
    line.wait(1.0)
    line.post(request(stray, service="shop"))
    line.wait(1.0)
    line.wait(10.0)
    assert line.tools() == {f"{root.trace_id}:{root.span_id}": ["search", "book"]}
    assert names(line) == sorted([root.name, inside.name, stray.name])


@pytest.mark.parametrize("held", [True, False], ids=["no longer", "from now on"])
def test_whether_spans_are_held_may_change_while_some_are_under_way(tmp_path: Path, held: bool) -> None:
    """Each entry records who exports it, so that everything is exported once."""
    line = ScoringHarness(tmp_path, enrich=held, consumers=["forward/x"])
    root, call = asking(0, "search")
    line.post(request(root, call))
    line.close()
    again = ScoringHarness(tmp_path, enrich=not held, consumers=["forward/x"], now=line.now)
    again.wait(2.0)
    assert names(again) == (sorted([root.name, call.name]) if held else [])
    assert again.evaluations() == 1
    again.close()


class Scale:
    """A sink that records the size of the results queue after each evaluation."""

    def __init__(self) -> None:
        self.line: ScoringHarness | None = None
        self.most = 0

    def submit(self, evaluation: Evaluation) -> None:
        if self.line is not None:
            self.most = max(self.most, self.line.scoring[0]._results_queue.queued_bytes)


@pytest.mark.e2e
@pytest.mark.parametrize("max_bytes", [2**30, MIB], ids=["in memory", "out of the journal"])
def test_of_the_spans_that_are_due_at_once_only_some_wait_in_memory_to_be_written(
    tmp_path: Path, max_bytes: int
) -> None:
    scale = Scale()
    line = ScoringHarness(tmp_path, **HELD, pipeline=Pipeline(None, sinks=[scale]), max_bytes=max_bytes)
    scale.line = line
    text = "x" * MIB
    for number in range(40):
        line.post(request(*asking(number, "search", text=text)))
    line.wait(1.0)
    assert 7 * MIB < scale.most < 10 * MIB
    left = [entry for entry in every_entry(line) if entry.origin == "enriched"]
    ids = [span_id for entry in left for span_id in whose(entry)]
    assert sorted(ids) == sorted([trace_id(number) for number in range(40)] * 2)
    assert all(text.encode() in entry.body for entry in left)
    assert line.evaluations() == 40
    line.close()


def every_entry(line: ScoringHarness) -> Iterator[JournalEntry]:
    after = 0
    while entries := line.journals[0].read(after):
        yield from entries
        after = entries[-1].key


def whose(entry: JournalEntry) -> list[str]:
    """Returns the trace id of each span of an entry."""
    return [
        span.trace_id.hex()
        for resource_spans in TracesData.FromString(entry.body).resource_spans
        for scope_spans in resource_spans.scope_spans
        for span in scope_spans.spans
    ]


def test_a_journal_without_room_for_requests_has_room_for_what_comes_of_those_that_it_took(tmp_path: Path) -> None:
    line = ScoringHarness(tmp_path, **HELD, max_journal_bytes=100_000)
    journal = line.journals[0]
    traces: list[str] = []
    with suppress(JournalFull):
        while True:
            line.post(request(*asking(len(traces), text="x" * 1_000)))
            traces.append(trace_id(len(traces)))
            if journal.size < 85_000:
                line.wait(1.0)
    assert 95_000 < journal.size <= 100_000
    assert len(line.runs()) < len(traces)
    line.scoring[0].start()
    assert line.scoring[0].stop(PATIENCE_S)
    assert journal.size > 100_000
    assert line.evaluations() == len(line.runs()) == len(traces)
    assert [each for entry in every_entry(line) if entry.origin == "enriched" for each in whose(entry)] == traces
    line.wait(60.0)
    journal.advance({"forward/x": journal.last_key})
    eventually(lambda: journal.size == 0, "what all are done with was kept")
    line.post(request(*asking(len(traces))))
    line.close()


# --- failures ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def _as_abroad(monkeypatch: pytest.MonkeyPatch) -> None:
    """Retries failures without a pause."""
    monkeypatch.setenv("GOLDSPAN_STRICT", "0")
    monkeypatch.setattr(scoring_consumer, "_RETRY_SECONDS", 0.0)


@pytest.mark.parametrize("media", ["protobuf", "json"])
def test_half_a_surrogate_pair_in_the_name_of_a_tool_stops_nothing(line: ScoringHarness, media: Media) -> None:
    """The result is JSON in an attribute, which is ASCII only."""
    asks = messages(ask_for(("bo\ud800ok", {}, "c\ud800")))
    odd = agent("odd", gen_ai__output__messages=asks, **in_trace(0))
    line.post(request(odd) if media == "protobuf" else json_request(odd), media=media)
    line.post(request(*asking(1, "search")))
    line.wait(1.0)
    left = dict(sent(line))
    assert sorted(left) == ["execute_tool search", "invoke_agent helper", odd.name]
    assert tools(left[odd.name]) == ["bo?ok"]
    assert sorted(line.tools().values()) == [["bo\ud800ok"], ["search"]]
    line.wait(61.0)
    line.wait()
    assert line.cursor() == line.journals[0].last_key


@pytest.mark.usefixtures("_as_abroad")
def test_spans_into_which_nothing_can_be_written_leave_as_they_are(
    line: ScoringHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(results_queue, "enrich_spans", _raises)
    root, call = asking(0, "search")
    line.post(request(root, call))
    line.wait(1.0)
    assert sent(line) == [(root.name, {}), (call.name, {})]
    assert line.evaluations() == 1


@pytest.mark.usefixtures("_as_abroad")
def test_spans_of_a_trace_that_cannot_be_judged_leave_all_the_same(
    line: ScoringHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trace_evaluation, "visible_runs", _raises)
    root, call = asking(0, "search")
    line.post(request(root, call))
    line.wait(1.0)
    assert names(line) == sorted([root.name, call.name])
    assert line.runs() == {}


def _raises(*_: object, **__: object) -> Any:
    raise RuntimeError("a bug")


def test_spans_of_a_trace_that_is_to_be_forgotten_leave_and_nothing_of_it_is_scored(line: ScoringHarness) -> None:
    for number, name in enumerate(("search", "book")):
        line.post(request(*asking(number, name)))
    line.wait()
    line.scoring[0].drop_trace(trace_id(0))
    line.wait(1.0)
    assert names(line) == ["execute_tool book", "execute_tool search", "invoke_agent helper", "invoke_agent helper"]
    line.post(request(tool("late", **in_trace(0))))
    line.wait(1.0)
    line.wait(70.0)
    line.wait(1.0)
    assert "execute_tool late" in names(line)
    assert list(line.tools().values()) == [["book"]]
    assert line.cursor() == line.journals[0].last_key


def test_of_a_session_of_which_one_trace_is_to_be_forgotten_the_others_are_scored(line: ScoringHarness) -> None:
    said = {"gen_ai__conversation__id": "s1"}
    call = tool("book", **in_trace(0), **said)
    turn = model(asked=[user("Mail it")], answered=[ask_for(("mail", {}, "c1"))], **in_trace(1), **said)
    for each in (call, turn):
        line.post(request(each, service="shop"))
    line.wait(1.0)
    line.scoring[0].drop_trace(trace_id(0))
    for passing in (1.0, 100.0, 100.0):
        line.wait(passing)
    assert names(line) == sorted([call.name, turn.name])
    assert list(line.tools().values()) == [["mail"]]


@pytest.mark.usefixtures("_as_abroad")
def test_what_is_let_go_for_others_while_the_store_is_busy_is_scored_and_leaves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = ScoringHarness(tmp_path, max_groups=1, **HELD)
    answers, failures = line.store.has_trace, [True]

    def fails_once(asked: str) -> bool:
        if failures:
            failures.clear()
            raise StoreError("busy")
        return answers(asked)

    monkeypatch.setattr(line.store, "has_trace", fails_once)
    for number, name in enumerate(("search", "book")):
        line.post(request(*asking(number, name)))
    line.wait()
    line.wait(1.0)
    assert not failures
    assert sorted(line.tools().values()) == [["book"], ["search"]]
    assert names(line) == ["execute_tool book", "execute_tool search", "invoke_agent helper", "invoke_agent helper"]
    line.close()


def test_the_root_of_a_joined_request_does_not_leave_again_with_the_results_that_it_had_before(tmp_path: Path) -> None:
    """The entry of the detached call of its session precedes the entries that are read again."""
    said = {"gen_ai__conversation__id": "s1"}
    line = ScoringHarness(tmp_path, **HELD)
    stray = tool("book", start_ns=2_000, end_ns=3_000, **in_trace(1), **said)
    root = agent("helper", start_ns=1_000, end_ns=9_000, **in_trace(0), **said)
    call = tool("search", start_ns=1_500, end_ns=1_600, **inside(root))
    line.post(request(stray, service="shop"))
    line.wait(0.2)
    line.post(request(*asking(9, "pin")[1:]))
    line.wait(0.2)
    line.post(request(root, call, service="shop"))
    line.wait(1.0)
    line.wait(10.0)
    assert line.tools()[f"{root.trace_id}:{root.span_id}"] == ["search", "book"]
    before = line.evaluations()
    line.wait(61.0)
    line.wait()
    assert line.cursor() == 1
    last = line.entries("enriched")[-1].key
    line.close()
    again = ScoringHarness(tmp_path, now=line.now, **HELD)
    for passing in (1.0, 10.0, 10.0):
        again.wait(passing)
    assert call.name in names(again, last)
    assert root.name not in names(again, last)
    assert again.evaluations() == before
    again.close()


def test_json_that_leaves_as_it_is_does_not_pile_up_while_much_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scoring_consumer, "_MAX_READ_BYTES", 50_000)
    line = ScoringHarness(tmp_path, **HELD)
    for number in range(60):
        body = json.loads(json_request(*asking(number, "search", text="x" * 9_000)))
        body["resourceSpans"][0]["scopeSpans"][0]["spans"][0]["flags"] = -1
        line.post(json.dumps(body).encode(), media="json")
    line.close()
    again = ScoringHarness(tmp_path, **HELD)
    scoring, most = again.scoring[0], 0
    while scoring.is_replaying():
        scoring.poll()
        most = max(most, scoring._results_queue.queued_bytes)
    assert most < 150_000
    again.wait(2.0)
    assert len([entry for entry in every_entry(again) if entry.origin == "enriched"]) == 60
    assert again.evaluations() == 60
    again.close()


def test_of_a_trace_that_is_too_large_to_be_scored_only_what_is_held_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = ScoringHarness(tmp_path, max_spans_per_group=10, **HELD)
    read: list[int] = []
    opened = journal_reader.split_entry
    monkeypatch.setattr(
        journal_reader, "split_entry", lambda entry, owns: read.append(entry.key) or opened(entry, owns)
    )
    for _ in range(4):
        posted = [line.post(request(*(span(**in_trace(0)) for _ in range(5)))) for _ in range(5)]
        read.clear()
        line.wait()
        line.wait(10.0)
        assert set(read) <= set(posted)
    assert len(names(line)) == 100
    line.close()


@pytest.mark.parametrize("how", [{"enrich": True}, {"results": ["events"]}], ids=["held spans", "events"])
@pytest.mark.parametrize("restart", [False, True], ids=["at once", "after a restart"])
def test_what_comes_of_requests_is_written_however_much_larger_it_is_than_the_journal(
    tmp_path: Path, how: dict[str, Any], restart: bool
) -> None:
    options = {**how, "consumers": ["forward/x"], "max_journal_bytes": 50_000}
    line = ScoringHarness(tmp_path, **options)
    number = 0
    with suppress(JournalFull):
        while True:
            line.post(request(*asking(number, "search")))
            number += 1
    if restart:
        line.close()
        line = ScoringHarness(tmp_path, now=line.now, **options)
    scoring, journal = line.scoring[0], line.journals[0]
    scoring.poll()
    line.now += 2.0
    scoring.start()
    eventually(lambda: len(line.runs()) == number, lambda: f"{len(line.runs())} of {number}, {journal.size} bytes")
    assert scoring.stop(PATIENCE_S)
    assert journal.size > 75_000
    assert line.evaluations() == number
    line.close()


def test_a_stored_run_with_an_id_of_another_kind_keeps_no_span_of_its_trace_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GOLDSPAN_STRICT", "0")
    line = ScoringHarness(tmp_path, **HELD)
    line.store.submit(evaluate(Run("order-7", trace_ids=(trace_id(0),), span_id="00000000000000ff"), None))
    root, call = asking(0, "search")
    line.post(request(root, call))
    line.wait(1.0)
    assert names(line) == sorted([root.name, call.name])
    assert ["search"] in line.tools().values()
    line.close()


def test_a_request_is_scored_on_when_a_trace_of_its_session_was_forgotten(tmp_path: Path) -> None:
    line = ScoringHarness(tmp_path, **HELD)
    root = agent("helper", start_ns=1_000, end_ns=9_000, **in_trace(0), **SAID)
    call, late = (tool(name, start_ns=1_500, end_ns=1_600, **inside(root)) for name in ("search", "late"))
    stray = tool("book", start_ns=2_000, end_ns=3_000, **in_trace(1), **SAID)
    line.post(request(stray, service="shop"))
    line.wait(1.0)
    line.scoring[0].drop_trace(trace_id(1))
    line.post(request(root, call, service="shop"))
    line.wait(1.0)
    line.wait(10.0)
    line.post(request(late, service="shop"))
    line.wait(1.0)
    line.wait(10.0)
    assert line.tools() == {f"{root.trace_id}:{root.span_id}": ["search", "late"]}
    line.close()


def test_a_root_that_is_a_component_too_does_not_leave_again_with_the_results_of_that_alone(tmp_path: Path) -> None:
    def goldens() -> Goldens:
        return Goldens(components=[ComponentSelector("desk", span="invoke_agent helper")])

    line = ScoringHarness(tmp_path, goldens=goldens(), **HELD)
    stray = tool("book", start_ns=2_000, end_ns=3_000, **in_trace(1), **SAID)
    root = agent("helper", start_ns=1_000, end_ns=9_000, **in_trace(0), **SAID)
    call = tool("search", start_ns=1_500, end_ns=1_600, **inside(root))
    line.post(request(stray, service="shop"))
    line.wait(0.2)
    line.post(request(*asking(9, "pin")[1:]))
    line.wait(0.2)
    line.post(request(root, call, service="shop"))
    line.wait(1.0)
    line.wait(10.0)
    line.wait(61.0)
    line.wait()
    last = line.entries("enriched")[-1].key
    line.close()
    again = ScoringHarness(tmp_path, goldens=goldens(), now=line.now, **HELD)
    for passing in (1.0, 10.0, 10.0):
        again.wait(passing)
    assert root.name not in names(again, last)
    again.close()
