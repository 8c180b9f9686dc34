"""Spans that are held until they were scored leave with the results in them, each at least once, whatever happens."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import TracesData

from gateway_scoring import Line, asking, json_request, request
from gateway_serving import PATIENCE_S, eventually
from goldspan.gateway.journal.writing import Entry, JournalFull
from goldspan.model import Evaluation
from goldspan.online.pipeline import Pipeline
from spans import agent, span, tool, trace_id

MIB = 2**20
HELD: dict[str, Any] = {"enrich": True, "consumers": ["forward/x"]}


@pytest.fixture
def line(tmp_path: Path) -> Iterator[Line]:
    made = Line(tmp_path, **HELD)
    yield made
    made.close()


def sent(line: Line, after: int = 0) -> list[tuple[str, dict[str, Any]]]:
    """The spans that left: the names, and the results on them."""
    return [
        (each["name"], each["results"])
        for entry in line.entries("enriched")
        if entry.key > after
        for each in spans(entry)
    ]


def spans(entry: Entry) -> Iterator[dict[str, Any]]:
    for resource_spans in TracesData.FromString(entry.body).resource_spans:
        for scope_spans in resource_spans.scope_spans:
            for each in scope_spans.spans:
                results = {pair.key: pair.value for pair in each.attributes if pair.key.startswith("goldspan.")}
                yield {"name": each.name, "results": results}


def tools(results: dict[str, Any]) -> list[str]:
    return [value.string_value for value in results["goldspan.tools_used"].array_value.values]


def names(line: Line, after: int = 0) -> list[str]:
    return sorted(name for name, _ in sent(line, after))


def test_spans_leave_with_the_results_of_their_run_and_late_ones_as_they_are(line: Line) -> None:
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


def test_json_that_protobuf_cannot_say_leaves_as_it_is_and_is_scored(line: Line) -> None:
    body = json.loads(json_request(*asking(0, "search")))
    body["resourceSpans"][0]["scopeSpans"][0]["spans"][0]["flags"] = -1
    line.post(json.dumps(body).encode(), media="json")
    line.wait(1.0)
    (entry,) = line.entries("enriched")
    assert json.loads(entry.body) == body
    assert list(line.tools().values()) == [["search"]]


def test_what_cannot_be_read_leaves_as_it_is(line: Line) -> None:
    line.post(b"\xff\xff")
    line.wait(1.0)
    assert [entry.body for entry in line.entries("enriched")] == [b"\xff\xff"]


def test_what_is_not_scored_leaves_all_the_same(tmp_path: Path) -> None:
    line = Line(tmp_path, max_spans=2, **HELD)
    root, *calls = asking(0, "search", "book")
    line.post(request(root, *calls))
    line.wait(1.0)
    assert names(line) == sorted(each.name for each in (root, *calls))
    assert line.runs() == {}
    line.close()


def test_what_is_read_again_after_a_restart_leaves_with_the_results_that_it_had(tmp_path: Path) -> None:
    """A back end that replaces spans would lose them otherwise."""
    line = Line(tmp_path, **HELD)
    line.post(request(*asking(1, "book")[1:]))  # its root has not come, so that the journal keeps all that follows
    line.post(request(*asking(0, "search")))
    line.wait(1.0)
    last = line.entries("enriched")[-1].key
    line.close()
    again = Line(tmp_path, now=line.now, **HELD)
    again.wait(2.0)
    (results,) = (results for name, results in sent(again, last) if name == "invoke_agent helper")
    assert tools(results) == ["search"]
    assert results["goldspan.revision"].int_value == 1
    assert again.evaluations() == 1
    again.close()


def test_half_of_a_run_that_is_read_again_does_not_leave_without_its_results(tmp_path: Path) -> None:
    """The call stands before what is read again, and its request behind that."""
    line = Line(tmp_path, **HELD)
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
    again = Line(tmp_path, now=line.now, **HELD)
    again.wait(1.0)
    again.wait(10.0)
    assert root.name not in names(again, last)
    assert "GET /" in names(again, last)
    assert tools(dict(sent(again))[root.name]) == ["search"]
    again.close()


def test_a_stray_call_of_a_session_has_nothing_leave_twice(line: Line) -> None:
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
    """What is handed on by whom is known of each entry, so that everything leaves and nothing leaves twice."""
    line = Line(tmp_path, enrich=held, consumers=["forward/x"])
    root, call = asking(0, "search")
    line.post(request(root, call))
    line.close()
    again = Line(tmp_path, enrich=not held, consumers=["forward/x"], now=line.now)
    again.wait(2.0)
    assert names(again) == (sorted([root.name, call.name]) if held else [])
    assert again.evaluations() == 1
    again.close()


class Scale:
    """A sink that weighs what waits in the outbox whenever something was scored."""

    def __init__(self) -> None:
        self.line: Line | None = None
        self.most = 0

    def submit(self, evaluation: Evaluation) -> None:
        if self.line is not None:
            self.most = max(self.most, self.line.scoring[0]._outbox.size)


@pytest.mark.parametrize("max_bytes", [2**30, MIB], ids=["in memory", "out of the journal"])
def test_of_the_spans_that_are_due_at_once_only_some_wait_in_memory_to_be_written(
    tmp_path: Path, max_bytes: int
) -> None:
    scale = Scale()
    line = Line(tmp_path, **HELD, pipeline=Pipeline(None, sinks=[scale]), max_bytes=max_bytes)
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


def every_entry(line: Line) -> Iterator[Entry]:
    after = 0
    while entries := line.journals[0].read(after):
        yield from entries
        after = entries[-1].key


def whose(entry: Entry) -> list[str]:
    """The trace of each span of an entry."""
    return [
        span.trace_id.hex()
        for resource_spans in TracesData.FromString(entry.body).resource_spans
        for scope_spans in resource_spans.scope_spans
        for span in scope_spans.spans
    ]


def test_a_journal_without_room_for_requests_has_room_for_what_comes_of_those_that_it_took(tmp_path: Path) -> None:
    line = Line(tmp_path, **HELD, max_journal_bytes=100_000)
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
