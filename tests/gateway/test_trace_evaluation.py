"""Tests of the evaluation of groups: a stored run is deleted only if it was a part of another run."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from goldspan import Goldens, semconv
from goldspan.errors import StoreError
from goldspan.gateway.scoring import scoring_consumer, trace_evaluation
from goldspan.gateway.scoring.trace_buffer import FlushPolicy, TraceChunk
from goldspan.model import ComponentSelector, Evaluation, RunUnit, SpanRecord, TelemetryRecord
from goldspan.online.pipeline import Pipeline
from goldspan.store import base_store as store_module
from support.gateway_process import PATIENCE_S
from support.gateway_scoring_harness import ScoringHarness, asking, request
from support.span_builders import agent, in_trace, inside, span, tool, trace_id

EVENTS: dict[str, Any] = {"results": ["events"], "consumers": ["forward/x"]}
CONVERSATION = {"gen_ai__conversation__id": "s1"}
PINNED = 9
"""A trace whose root arrives late, so that the journal keeps all later entries."""


@pytest.fixture
def line(tmp_path: Path) -> Iterator[ScoringHarness]:
    made = ScoringHarness(tmp_path)
    yield made
    made.close()


@pytest.fixture(autouse=True)
def _retries_without_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """Retries failures without a pause."""
    monkeypatch.setenv("GOLDSPAN_STRICT", "0")
    monkeypatch.setattr(scoring_consumer, "RETRY_SECONDS", 0.0)


class Failing:
    """Makes a method raise `StoreError` for this number of calls."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, of: Any, name: str, times: int = 0) -> None:
        self.times, self.failures = times, 0
        self._method = getattr(of, name)
        monkeypatch.setattr(of, name, self)

    def __call__(self, *args: Any, **more: Any) -> Any:
        if self.times == 0:
            return self._method(*args, **more)
        self.times -= 1
        self.failures += 1
        raise StoreError("busy")


def pin(line: ScoringHarness) -> None:
    line.post(request(*asking(PINNED, "pin")[1:]))
    line.wait()


def stored(line: ScoringHarness) -> dict[str, tuple[str, int, int, list[str]]]:
    """Returns the unit, the revision, the number of evaluations and the tools of each stored run."""
    return {
        run_id: (
            run.current.document["unit"],
            run.current.revision,
            run.evaluation_count,
            run.current.document["tools_used"],
        )
        for run_id, run in line.runs().items()
        if not run_id.startswith(trace_id(PINNED))
    }


def request_id(own: SpanRecord) -> str:
    return f"{own.trace_id}:{own.span_id}"


def delegation_spans() -> list[SpanRecord]:
    """Returns the spans of an agent, an inner agent, and a tool of the inner one."""
    boss = agent("boss", **in_trace(0))
    expert = agent("expert", **inside(boss))
    return [boss, expert, tool("search", **inside(expert))]


DELEGATED = [("request", 1, 1, ["search"]), ("component", 1, 1, ["search"])]
"""The expected runs."""


def of_session() -> tuple[list[SpanRecord], SpanRecord]:
    """Returns a request of a session, and a detached call of it in a separate trace."""
    root = agent("helper", start_ns=1_000, end_ns=9_000, **in_trace(0), **CONVERSATION)
    call = tool("search", start_ns=1_500, end_ns=1_600, **inside(root))
    return [root, call], tool("book", start_ns=2_000, end_ns=3_000, **in_trace(1), **CONVERSATION)


# --- only parts of other runs are deleted -----------------------------------------------------------------------------


def conversation_pipeline() -> Pipeline:
    return Pipeline(None, units=("request", "conversation"))


def test_a_conversation_is_kept_when_its_run_is_replayed_after_a_restart(tmp_path: Path) -> None:
    line = ScoringHarness(tmp_path, pipeline=conversation_pipeline())
    pin(line)
    line.post(request(*asking(0, "search", **CONVERSATION), service="shop"))
    line.wait(1.0)
    before = stored(line)
    assert sorted(unit for unit, *_ in before.values()) == ["conversation", "request"]
    line.close()
    again = ScoringHarness(tmp_path, pipeline=conversation_pipeline(), now=line.now)
    again.wait(2.0)
    assert stored(again) == before
    again.close()


def test_a_conversation_is_kept_when_a_span_of_its_run_arrives_too_late(tmp_path: Path) -> None:
    line = ScoringHarness(tmp_path, pipeline=conversation_pipeline())
    line.post(request(*asking(0, **CONVERSATION), service="shop"))
    line.wait(1.0)
    before = stored(line)
    line.wait(61.0)
    line.post(request(span("GET /", parent_id="0" * 15 + "9", **in_trace(0))))
    line.wait()
    line.wait(11.0)
    after = stored(line)
    assert {run_id: after.get(run_id) for run_id in before} == before
    line.close()


@pytest.mark.parametrize("units", [["request"], ["component"]])
def test_runs_of_a_unit_that_is_disabled_at_a_restart_are_kept(tmp_path: Path, units: list[RunUnit]) -> None:
    line = ScoringHarness(tmp_path)
    line.post(request(*delegation_spans()))
    line.wait(1.0)
    before = stored(line)
    assert sorted(unit for unit, *_ in before.values()) == ["component", "request"]
    line.close()
    again = ScoringHarness(tmp_path, pipeline=Pipeline(None, units=units), now=line.now)
    again.wait(2.0)
    assert stored(again) == before
    again.close()


def test_a_failed_extraction_with_a_late_span_keeps_the_stored_runs(
    line: ScoringHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, first, late, later = asking(0, "search", "book", "pay")
    line.post(request(root, first))
    line.wait(1.0)
    with monkeypatch.context() as broken:
        broken.setattr(line.pipeline, "extract_runs", _raises)
        line.post(request(late))
        line.wait(1.0)
    assert stored(line) == {request_id(root): ("request", 1, 1, ["search"])}
    line.post(request(later))
    line.wait(1.0)
    assert stored(line) == {request_id(root): ("request", 2, 2, ["search", "book", "pay"])}


def _raises(*_: object) -> Any:
    raise RuntimeError("a bug")


# --- runs that are requests and components ----------------------------------------------------------------------------


def test_a_span_that_is_a_request_and_a_component_is_stored_as_both(tmp_path: Path) -> None:
    line = ScoringHarness(tmp_path, goldens=Goldens(components=[ComponentSelector("desk", span="invoke_agent helper")]))
    root, first, late = asking(0, "search", "book")
    line.post(request(root, first))
    line.wait(1.0)
    own = request_id(root)
    assert stored(line) == {
        own: ("request", 1, 1, ["search"]),
        f"{own}:component": ("component", 1, 1, ["search"]),
    }
    line.post(request(late))
    line.wait(1.0)
    assert stored(line) == {
        own: ("request", 2, 2, ["search", "book"]),
        f"{own}:component": ("component", 2, 2, ["search", "book"]),
    }
    line.close()


def test_an_agent_scored_as_a_request_becomes_a_component_when_its_parent_agent_arrives(
    line: ScoringHarness,
) -> None:
    boss, expert, call = delegation_spans()
    line.post(request(expert, call))
    line.wait(10.0)
    assert stored(line) == {request_id(expert): ("request", 1, 1, ["search"])}
    line.post(request(boss))
    line.wait(1.0)
    ids = [request_id(boss), f"{request_id(expert)}:component"]
    assert stored(line) == dict(zip(ids, DELEGATED, strict=True))


def test_an_agent_replayed_without_its_parent_agent_is_not_stored_as_a_request(tmp_path: Path) -> None:
    line = ScoringHarness(tmp_path, **EVENTS)
    boss, expert, call = delegation_spans()
    line.post(request(boss))
    line.wait()
    pin(line)
    line.post(request(expert, call))
    line.wait(1.0)
    before = stored(line)
    assert sorted(before.values()) == sorted(DELEGATED)
    line.wait(61.0)
    line.wait()
    assert line.cursor() == 1
    last = line.journals[0].last_key
    line.close()
    again = ScoringHarness(tmp_path, **EVENTS, now=line.now)
    again.wait(1.0)
    again.wait(11.0)
    assert stored(again) == before
    assert [entry.key for entry in again.entries("result") if entry.key > last] == []
    again.close()


def test_an_agent_that_arrives_after_its_parent_agent_was_released_is_not_a_request(line: ScoringHarness) -> None:
    boss, expert, call = delegation_spans()
    line.post(request(boss))
    line.wait(1.0)
    line.wait(61.0)
    line.post(request(expert, call))
    line.wait()
    line.wait(11.0)
    assert stored(line) == {request_id(boss): ("request", 1, 1, [])}
    assert sum(line.meter.counts(semconv.TOO_LATE_SPANS_COUNTER).values()) == 1


# --- sessions ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("enrich", [True, False], ids=["held", "not held"])
def test_a_replayed_part_of_a_joined_run_is_not_stored_as_a_run(tmp_path: Path, enrich: bool) -> None:
    how = {"enrich": enrich, "consumers": ["forward/x"]}
    line = ScoringHarness(tmp_path, **how)
    whole, stray = of_session()
    line.post(request(*whole, service="shop"))
    line.wait(1.0)
    pin(line)
    line.post(request(stray, service="shop"))
    line.wait(1.0)
    line.wait(10.0)
    before = stored(line)
    assert before == {request_id(whole[0]): ("request", 2, 2, ["search", "book"])}
    line.wait(61.0)
    line.wait()
    assert 0 < line.cursor() < line.journals[0].last_key
    line.close()
    again = ScoringHarness(tmp_path, **how, now=line.now)
    for passing in (1.0, 10.0, 10.0):
        again.wait(passing)
    assert stored(again) == before
    again.close()


def test_runs_of_a_session_are_joined_up_to_max_spans_per_group(tmp_path: Path) -> None:
    line = ScoringHarness(tmp_path, max_spans_per_group=5)
    roots = []
    for number in range(3):
        root = agent("helper", start_ns=1_000, end_ns=9_000, **in_trace(number), **CONVERSATION)
        roots.append(root)
        line.post(request(root, tool("search", start_ns=1_500, end_ns=1_600, **inside(root)), service="shop"))
    line.wait(1.0)
    stray = [tool(name, start_ns=2_000, end_ns=3_000, **in_trace(7), **CONVERSATION) for name in ("book", "pay")]
    line.post(request(*stray, service="shop"))
    line.wait(1.0)
    line.wait(10.0)
    line.wait(1.0)
    line.post(request(*asking(8, "mail", **CONVERSATION), service="shop"))
    line.wait(1.0)
    assert sum(line.meter.counts(semconv.UNSCORED_SPANS_COUNTER).values()) == 0
    assert {request_id(root) for root in roots} <= line.runs().keys()
    tools = [each for tools in line.tools().values() for each in tools]
    assert sorted(tools) == ["book", "mail", "pay", "search", "search", "search"]
    line.close()


def test_a_log_session_with_shed_entries_is_not_scored(tmp_path: Path) -> None:
    line = ScoringHarness(tmp_path, max_backlog_bytes=1_000)
    for number, (name, told) in enumerate(
        (
            ("user_prompt", {"prompt": "Fix it"}),
            ("tool_result", {"tool_name": "Read", "pad": "x" * 2_000}),  # with too many entries behind it
            ("tool_result", {"tool_name": "Edit"}),
        )
    ):
        line.post(_log_of_session(number, name, told), signal="logs", media="json")
        line.wait()
    line.wait(11.0)
    assert sum(line.meter.counts(semconv.GATEWAY_SHED).values()) == 1
    assert line.runs() == {}
    line.close()


def _log_of_session(number: int, name: str, told: dict[str, str]) -> bytes:
    """Returns log records of a coding agent, each in a separate trace."""
    attributes = {"event.name": name, "session.id": "s1", **told}
    record = {
        "timeUnixNano": str(10**18 + number),
        "traceId": trace_id(number),
        "spanId": f"{number + 1:016x}",
        "body": {"stringValue": f"claude_code.{name}"},
        "attributes": [{"key": key, "value": {"stringValue": value}} for key, value in attributes.items()],
    }
    scope = {"name": "com.anthropic.claude_code.events"}
    return json.dumps({"resourceLogs": [{"scopeLogs": [{"scope": scope, "logRecords": [record]}]}]}).encode()


# --- failures ---------------------------------------------------------------------------------------------------------


def test_a_trace_that_cannot_be_evaluated_does_not_block_others(
    line: ScoringHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    decode = trace_evaluation.decode_chunks

    def fails_for_one(chunks: Iterable[TraceChunk]) -> list[TelemetryRecord]:
        records = decode(chunks)
        return _raises() if records[0].trace_id == trace_id(0) else records

    monkeypatch.setattr(trace_evaluation, "decode_chunks", fails_for_one)
    for number in range(3):
        line.post(request(*asking(number, "search")))
    line.wait(1.0)
    assert sorted(run_id.partition(":")[0] for run_id in line.runs()) == [trace_id(1), trace_id(2)]
    line.wait(61.0)
    line.wait()
    assert line.cursor() == line.journals[0].last_key


def test_an_evaluation_that_cannot_be_stored_does_not_block_others(
    line: ScoringHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = line.store.submit_many

    def fails_for_one(evaluations: Sequence[Evaluation]) -> None:
        if any(evaluation.run.trace_ids == (trace_id(0),) for evaluation in evaluations):
            _raises()
        write(evaluations)

    monkeypatch.setattr(line.store, "submit_many", fails_for_one)
    for number in range(3):
        line.post(request(*asking(number, "search")))
    line.wait(1.0)
    assert sorted(run_id.partition(":")[0] for run_id in line.runs()) == [trace_id(1), trace_id(2)]
    line.wait(61.0)
    line.wait()
    assert line.cursor() == line.journals[0].last_key


def test_a_busy_store_is_logged_once(
    line: ScoringHarness, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    busy = Failing(monkeypatch, line.store, "submit_many", 5)
    line.post(request(*asking(0, "search")))
    line.wait(1.0)
    assert busy.failures == 5
    assert line.evaluations() == 1
    assert len([record for record in caplog.records if "retries: busy" in record.getMessage()]) == 1


def test_a_conversation_gets_its_revision_after_a_temporary_store_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = ScoringHarness(tmp_path, pipeline=conversation_pipeline())
    busy = Failing(monkeypatch, line.store, "current_revision")
    line.post(request(*asking(0, "search", **CONVERSATION), service="shop"))
    line.wait(1.0)
    line.post(request(*asking(1, "book", **CONVERSATION), service="shop"))
    busy.times = 1
    line.wait(1.0)
    line.wait(1.0)
    assert busy.failures == 1
    (conversation,) = (run for run in stored(line).values() if run[0] == "conversation")
    assert conversation == ("conversation", 2, 2, ["search", "book"])
    line.close()


def test_a_group_that_is_evicted_while_the_store_is_busy_is_scored_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A group that prevents pruning is evaluated early, unless the evaluation fails."""
    line = ScoringHarness(tmp_path, max_backlog_bytes=2_000)
    busy = Failing(monkeypatch, line.store, "has_trace")
    line.post(request(*asking(0, "search")[1:]))
    line.wait()
    busy.times = 1
    number = 0
    while not busy.failures:
        number += 1
        line.post(request(span("work", filler="x" * 100, **in_trace(number))))
        line.wait()
    line.wait()
    line.wait(1.0)
    assert sum(line.meter.counts(semconv.GATEWAY_SHED).values()) == 0
    assert list(line.tools().values()) == [["search"]]
    line.close()


def test_a_failing_store_is_retried_only_a_few_times_during_shutdown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = ScoringHarness(tmp_path, patience=FlushPolicy(grace=1.0, idle=10.0, late=60.0, lifetime=1.0))
    for number in range(3):
        line.post(request(*asking(number, "search")))
    line.wait()
    line.now += 1.0  # so that no group is postponed any more
    busy = Failing(monkeypatch, line.store, "has_trace", 1_000)
    thread = line.thread()
    line.stop.requested.set()
    thread.start()
    assert thread.stop(PATIENCE_S)
    assert 0 < busy.failures < 10
    line.close()
    again = ScoringHarness(tmp_path, now=line.now)
    again.wait(2.0)
    assert len(again.runs()) == again.evaluations() == 3
    again.close()


# --- restarts ---------------------------------------------------------------------------------------------------------


def test_runs_of_a_trace_beyond_one_store_page_are_all_known_after_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "MAX_PAGE_SIZE", 10)
    line = ScoringHarness(tmp_path, **EVENTS)
    pin(line)
    server = span("server", **in_trace(0))
    roots = [agent("helper", **inside(server)) for _ in range(35)]
    line.post(request(server, *roots))
    line.wait(1.0)
    assert len(line.runs()) == 35
    last = line.journals[0].last_key
    line.close()
    again = ScoringHarness(tmp_path, **EVENTS, now=line.now)
    again.wait(2.0)
    assert again.evaluations() == 35
    assert [entry.key for entry in again.entries("result") if entry.key > last] == []
    again.post(request(tool("late", **inside(roots[0]))))
    again.wait(1.0)
    assert stored(again)[request_id(roots[0])] == ("request", 2, 2, ["late"])
    again.close()


def test_restarts_do_not_extend_how_long_a_trace_without_its_root_is_held(
    tmp_path: Path,
) -> None:
    now, first, last = 0.0, 0, 0
    for number in range(4):
        line = ScoringHarness(tmp_path, now=now)
        if number == 0:
            pin(line)
            first = line.journals[0].last_key
        line.wait()
        line.post(request(*asking(number, "search")))
        line.wait(1.0)
        line.wait(250.0)
        line.wait(250.0)
        last = line.journals[0].last_key
        now, cursor = line.now, line.cursor()
        line.close()
    assert first < cursor == last
