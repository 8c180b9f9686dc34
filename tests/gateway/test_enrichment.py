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
from goldspan.gateway.scoring import journal_reader, results_queue, scoring_consumer, telemetry_log, trace_evaluation
from goldspan.model import ComponentSelector, Evaluation
from goldspan.online.pipeline import Pipeline
from support.gateway_process import PATIENCE_S, eventually
from support.gateway_scoring_harness import ScoringHarness, asking, json_request, request
from support.span_builders import agent, ask_for, in_trace, inside, messages, model, span, tool, trace_id, user

MIB = 2**20
HELD: dict[str, Any] = {"enrich": True, "consumers": ["forward/x"]}
CONVERSATION = {"gen_ai__conversation__id": "s1"}


@pytest.fixture
def line(tmp_path: Path) -> Iterator[ScoringHarness]:
    made = ScoringHarness(tmp_path, **HELD)
    yield made
    made.close()


def exported_spans(line: ScoringHarness, after: int = 0) -> list[tuple[str, dict[str, Any]]]:
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
    return sorted(name for name, _ in exported_spans(line, after))


def test_spans_are_exported_with_the_results_of_their_run_and_late_spans_unchanged(line: ScoringHarness) -> None:
    root, first, late = asking(0, "search", "book")
    line.post(request(first))
    line.post(json_request(root), media="json")
    line.post(request(span("GET /", trace_id=trace_id(1))))
    line.wait(1.0)
    line.post(request(late))
    line.wait(1.0)
    assert names(line) == sorted([root.name, first.name, late.name, "GET /"])
    left = dict(exported_spans(line))
    assert tools(left[root.name]) == ["search"]
    assert [left[each] for each in (first.name, late.name, "GET /")] == [{}, {}, {}]
    (run,) = line.runs().values()
    assert run.current.revision == 2


def test_json_that_protobuf_cannot_represent_is_exported_unchanged_and_scored(line: ScoringHarness) -> None:
    body = json.loads(json_request(*asking(0, "search")))
    body["resourceSpans"][0]["scopeSpans"][0]["spans"][0]["flags"] = -1
    line.post(json.dumps(body).encode(), media="json")
    line.wait(1.0)
    (entry,) = line.entries("enriched")
    assert json.loads(entry.body) == body
    assert list(line.tools().values()) == [["search"]]


def test_an_unreadable_entry_is_exported_unchanged(line: ScoringHarness) -> None:
    line.post(b"\xff\xff")
    line.wait(1.0)
    assert [entry.body for entry in line.entries("enriched")] == [b"\xff\xff"]


def test_spans_of_a_trace_that_is_too_large_to_score_are_exported(tmp_path: Path) -> None:
    line = ScoringHarness(tmp_path, max_spans_per_group=2, **HELD)
    root, *calls = asking(0, "search", "book")
    line.post(request(root, *calls))
    line.wait(1.0)
    assert names(line) == sorted(each.name for each in (root, *calls))
    assert line.runs() == {}
    line.close()


def test_spans_that_are_replayed_after_a_restart_are_exported_with_their_earlier_results(tmp_path: Path) -> None:
    """Otherwise a back end that replaces spans would lose the results."""
    line = ScoringHarness(tmp_path, **HELD)
    line.post(request(*asking(1, "book")[1:]))  # its root has not arrived, so the journal keeps all later entries
    line.post(request(*asking(0, "search")))
    line.wait(1.0)
    last = line.entries("enriched")[-1].key
    line.close()
    again = ScoringHarness(tmp_path, now=line.now, **HELD)
    again.wait(2.0)
    (results,) = (results for name, results in exported_spans(again, last) if name == "invoke_agent helper")
    assert tools(results) == ["search"]
    assert results["goldspan.revision"].int_value == 1
    assert again.evaluations() == 1
    again.close()


def test_the_root_of_a_partly_replayed_run_is_not_exported_without_results(tmp_path: Path) -> None:
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
    assert tools(dict(exported_spans(again))[root.name]) == ["search"]
    again.close()


def test_a_detached_call_of_a_session_causes_no_second_export(line: ScoringHarness) -> None:
    conversation = {"gen_ai__conversation__id": "s1"}
    root = agent("helper", trace_id=trace_id(0), start_ns=1_000, end_ns=9_000, **conversation)
    inside = tool("search", trace_id=trace_id(0), parent_id=root.span_id, start_ns=1_500, end_ns=1_600)
    stray = tool("book", trace_id=trace_id(1), start_ns=2_000, end_ns=3_000, **conversation)
    line.post(request(root, inside, service="shop"))
    line.wait(1.0)
    line.post(request(stray, service="shop"))
    line.wait(1.0)
    line.wait(10.0)
    assert line.tools() == {f"{root.trace_id}:{root.span_id}": ["search", "book"]}
    assert names(line) == sorted([root.name, inside.name, stray.name])


@pytest.mark.parametrize("held", [True, False], ids=["no longer", "from now on"])
def test_changing_enrichment_exports_pending_spans_once(tmp_path: Path, held: bool) -> None:
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


class QueueSizeSink:
    """A sink that records the size of the results queue after each evaluation."""

    def __init__(self) -> None:
        self.line: ScoringHarness | None = None
        self.most = 0

    def submit(self, evaluation: Evaluation) -> None:
        if self.line is not None:
            self.most = max(self.most, self.line.scoring[0]._results_queue.queued_bytes)


@pytest.mark.e2e
@pytest.mark.parametrize("max_bytes", [2**30, MIB], ids=["in memory", "out of the journal"])
def test_the_memory_of_the_results_queue_is_bounded_when_many_traces_are_due(tmp_path: Path, max_bytes: int) -> None:
    queue_sink = QueueSizeSink()
    line = ScoringHarness(tmp_path, **HELD, pipeline=Pipeline(None, sinks=[queue_sink]), max_bytes=max_bytes)
    queue_sink.line = line
    text = "x" * MIB
    for number in range(40):
        line.post(request(*asking(number, "search", text=text)))
    line.wait(1.0)
    assert 7 * MIB < queue_sink.most < 10 * MIB
    left = [entry for entry in all_entries(line) if entry.origin == "enriched"]
    ids = [span_id for entry in left for span_id in trace_ids_of(entry)]
    assert sorted(ids) == sorted([trace_id(number) for number in range(40)] * 2)
    assert all(text.encode() in entry.body for entry in left)
    assert line.evaluations() == 40
    line.close()


def all_entries(line: ScoringHarness) -> Iterator[JournalEntry]:
    after = 0
    while entries := line.journals[0].read(after):
        yield from entries
        after = entries[-1].key


def trace_ids_of(entry: JournalEntry) -> list[str]:
    """Returns the trace id of each span of an entry."""
    return [
        span.trace_id.hex()
        for resource_spans in TracesData.FromString(entry.body).resource_spans
        for scope_spans in resource_spans.scope_spans
        for span in scope_spans.spans
    ]


def test_a_journal_full_for_requests_accepts_the_enriched_spans(tmp_path: Path) -> None:
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
    thread = line.thread()
    thread.start()
    assert thread.stop(PATIENCE_S)
    assert journal.size > 100_000
    assert line.evaluations() == len(line.runs()) == len(traces)
    assert [each for entry in all_entries(line) if entry.origin == "enriched" for each in trace_ids_of(entry)] == traces
    line.wait(60.0)
    journal.advance({"forward/x": journal.last_key})
    eventually(lambda: journal.size == 0, "what all are done with was kept")
    line.post(request(*asking(len(traces))))
    line.close()


# --- failures ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def _retries_without_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """Retries failures without a pause."""
    monkeypatch.setenv("GOLDSPAN_STRICT", "0")
    monkeypatch.setattr(scoring_consumer, "RETRY_SECONDS", 0.0)


@pytest.mark.parametrize("media", ["protobuf", "json"])
def test_a_lone_surrogate_in_a_tool_name_does_not_stop_scoring(line: ScoringHarness, media: Media) -> None:
    """The result is JSON in an attribute, which is ASCII only."""
    asks = messages(ask_for(("bo\ud800ok", {}, "c\ud800")))
    odd = agent("odd", gen_ai__output__messages=asks, **in_trace(0))
    line.post(request(odd) if media == "protobuf" else json_request(odd), media=media)
    line.post(request(*asking(1, "search")))
    line.wait(1.0)
    left = dict(exported_spans(line))
    assert sorted(left) == ["execute_tool search", "invoke_agent helper", odd.name]
    assert tools(left[odd.name]) == ["bo?ok"]
    assert sorted(line.tools().values()) == [["bo\ud800ok"], ["search"]]
    line.wait(61.0)
    line.wait()
    assert line.cursor() == line.journals[0].last_key


@pytest.mark.usefixtures("_retries_without_pause")
def test_spans_are_exported_unchanged_if_enrichment_fails(
    line: ScoringHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(results_queue, "enrich_spans", _raises)
    root, call = asking(0, "search")
    line.post(request(root, call))
    line.wait(1.0)
    assert exported_spans(line) == [(root.name, {}), (call.name, {})]
    assert line.evaluations() == 1


@pytest.mark.usefixtures("_retries_without_pause")
def test_spans_of_a_trace_that_cannot_be_evaluated_are_exported(
    line: ScoringHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trace_evaluation.RevisionHistory, "load_revisions", _raises)
    root, call = asking(0, "search")
    line.post(request(root, call))
    line.wait(1.0)
    assert names(line) == sorted([root.name, call.name])
    assert line.runs() == {}


def _raises(*_: object, **__: object) -> Any:
    raise RuntimeError("a bug")


def test_spans_of_a_dropped_trace_are_exported_and_not_scored(line: ScoringHarness) -> None:
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


def test_other_traces_of_a_session_are_scored_if_one_is_dropped(line: ScoringHarness) -> None:
    conversation = {"gen_ai__conversation__id": "s1"}
    call = tool("book", **in_trace(0), **conversation)
    turn = model(asked=[user("Mail it")], answered=[ask_for(("mail", {}, "c1"))], **in_trace(1), **conversation)
    for each in (call, turn):
        line.post(request(each, service="shop"))
    line.wait(1.0)
    line.scoring[0].drop_trace(trace_id(0))
    for passing in (1.0, 100.0, 100.0):
        line.wait(passing)
    assert names(line) == sorted([call.name, turn.name])
    assert list(line.tools().values()) == [["mail"]]


@pytest.mark.usefixtures("_retries_without_pause")
def test_a_trace_that_is_evicted_while_the_store_is_busy_is_scored_and_exported(
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


def test_the_root_of_a_joined_run_is_not_exported_again_with_earlier_results(tmp_path: Path) -> None:
    """The entry of the detached call of its session precedes the entries that are read again."""
    conversation = {"gen_ai__conversation__id": "s1"}
    line = ScoringHarness(tmp_path, **HELD)
    stray = tool("book", start_ns=2_000, end_ns=3_000, **in_trace(1), **conversation)
    root = agent("helper", start_ns=1_000, end_ns=9_000, **in_trace(0), **conversation)
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


def test_json_that_is_exported_unchanged_does_not_accumulate_during_replay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(telemetry_log, "MAX_READ_BYTES", 50_000)
    monkeypatch.setattr(scoring_consumer, "_MAX_QUEUED_BYTES", 50_000)
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
    assert len([entry for entry in all_entries(again) if entry.origin == "enriched"]) == 60
    assert again.evaluations() == 60
    again.close()


def test_only_held_entries_of_a_trace_that_is_too_large_are_read_again(
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
def test_results_are_written_even_if_they_exceed_the_maximum_size_of_the_journal(
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
    thread, journal = line.thread(), line.journals[0]
    line.scoring[0].poll()
    line.now += 2.0
    thread.start()
    eventually(lambda: len(line.runs()) == number, lambda: f"{len(line.runs())} of {number}, {journal.size} bytes")
    assert thread.stop(PATIENCE_S)
    assert journal.size > 75_000
    assert line.evaluations() == number
    line.close()


def test_a_stored_run_with_a_foreign_run_id_does_not_block_spans_of_its_trace(
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


def test_a_run_gets_revisions_after_a_trace_of_its_session_is_dropped(tmp_path: Path) -> None:
    line = ScoringHarness(tmp_path, **HELD)
    root = agent("helper", start_ns=1_000, end_ns=9_000, **in_trace(0), **CONVERSATION)
    call, late = (tool(name, start_ns=1_500, end_ns=1_600, **inside(root)) for name in ("search", "late"))
    stray = tool("book", start_ns=2_000, end_ns=3_000, **in_trace(1), **CONVERSATION)
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


def test_a_root_that_is_also_a_component_is_not_exported_again_with_component_results_only(tmp_path: Path) -> None:
    def goldens() -> Goldens:
        return Goldens(components=[ComponentSelector("desk", span="invoke_agent helper")])

    line = ScoringHarness(tmp_path, goldens=goldens(), **HELD)
    stray = tool("book", start_ns=2_000, end_ns=3_000, **in_trace(1), **CONVERSATION)
    root = agent("helper", start_ns=1_000, end_ns=9_000, **in_trace(0), **CONVERSATION)
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
