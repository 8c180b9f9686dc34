"""Which spans make a run while the application works, and that nothing grows without end."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goldspan import Run, SpanRecord, extract
from goldspan.online import Assembly
from spans import span

TRACE = int("0" * 31 + "1", 16)
OTHER = 2
AGENT = {"gen_ai.operation.name": "invoke_agent"}
TOOL = {"gen_ai.operation.name": "execute_tool"}
ROLES = {
    "agent": AGENT,
    "tool": {**TOOL, "gen_ai.tool.name": "search"},
    "component": {"goldspan.component.name": "ranking"},
    "bare": {},
    "aside": {"gen_ai.operation.name": "create_agent"},
    "model": {"gen_ai.operation.name": "chat"},
}


def made(number: int, role: str, parent: int | None = None, *, start: int = 0, trace: int = TRACE) -> SpanRecord:
    """A span with small numbers for ids and times."""
    record = span(
        role,
        trace_id=f"{trace:032x}",
        span_id=f"{number:016x}",
        parent_id=None if parent is None else f"{parent:016x}",
        start_ns=start or number,
    )
    return replace(record, attributes=ROLES[role], end_ns=None)


class Process:
    """A process that starts and ends spans, and takes what its assembly gives out."""

    def __init__(self, **limits: int) -> None:
        self.assembly: Assembly[SpanRecord] = Assembly(lambda live: live, **limits)
        self.live: dict[tuple[int, int], SpanRecord] = {}
        self.ended: list[SpanRecord] = []
        self.runs: list[Run] = []
        self.now = 1_000

    def start(
        self, number: int, role: str, parent: int | None = None, *, trace: int = TRACE, remote: bool = False
    ) -> None:
        self.now += 1
        record = made(number, role, parent, start=self.now, trace=trace)
        self.live[trace, number] = record
        self.assembly.started(trace, number, parent, record, remote=remote)

    def end(self, number: int, *, trace: int = TRACE) -> list[str]:
        """End a span; the runs that came to their end with it, by unit and span."""
        self.now += 1
        record = replace(self.live.pop((trace, number)), end_ns=self.now)
        self.ended.append(record)
        new = [
            run
            for ended in self.assembly.ended(trace, number, record)
            for run in extract(ended.spans, unit=ended.unit)
            if ended.holds(run)
        ]
        self.runs += new
        return [f"{run.unit} {int(str(run.span_id), 16)}: {len(run.tool_calls)}" for run in new]


def test_a_request_ends_with_its_outermost_agent() -> None:
    process = Process()
    process.start(1, "bare")
    process.start(2, "agent", 1)
    process.start(3, "agent", 2)
    process.start(4, "tool", 3)
    assert process.end(4) == []
    assert process.end(3) == []
    assert process.end(2) == ["request 2: 1"]
    assert process.end(1) == []
    assert len(process.assembly) == 0


def test_an_agent_inside_a_tool_that_stands_alone_is_no_request_of_its_own() -> None:
    process = Process()
    process.start(1, "bare")
    process.start(2, "tool", 1)
    process.start(3, "agent", 2)
    assert process.end(3) == []
    assert process.end(2) == []
    assert process.end(1) == ["request 1: 1"]


def test_a_component_ends_by_itself_and_stays_part_of_its_request() -> None:
    process = Process()
    process.start(1, "agent")
    process.start(2, "component", 1)
    process.start(3, "component", 2)
    process.start(4, "tool", 3)
    process.end(4)
    assert process.end(3) == ["component 3: 1"]
    assert process.end(2) == ["component 2: 1"]
    assert process.end(1) == ["request 1: 1"]


def test_requests_interleaved_below_one_root_each_get_their_own() -> None:
    process = Process()
    process.start(1, "bare")
    for agent in (10, 20, 30):
        process.start(agent, "agent", 1)
    for agent, tools in ((30, 3), (10, 1), (20, 2)):
        for tool in range(1, tools + 1):
            process.start(agent + tool, "tool", agent)
    for agent, tools in ((10, 1), (20, 2), (30, 3)):
        for tool in range(1, tools + 1):
            process.end(agent + tool)
    assert [process.end(agent) for agent in (20, 30, 10)] == [["request 20: 2"], ["request 30: 3"], ["request 10: 1"]]
    assert process.end(1) == []


def test_work_beside_agents_belongs_to_the_agent_begun_last_before_it() -> None:
    process = Process()
    process.start(1, "bare")
    process.start(5, "tool", 1)
    process.end(5)  # before every agent: the first one's
    process.start(10, "agent", 1)
    process.start(20, "agent", 1)
    process.start(6, "tool", 1)
    process.end(6)  # after the second began: the second one's
    assert process.end(10) == ["request 10: 1"]
    assert process.end(20) == ["request 20: 1"]
    process.start(7, "tool", 1)
    process.end(7)  # too late for any
    assert process.end(1) == []
    assert len(process.assembly) == 0


@pytest.mark.parametrize("remote", [True, False])
def test_a_span_whose_parent_is_not_of_this_process_is_a_local_root(remote: bool) -> None:
    process = Process()
    process.start(2, "bare", 1, remote=remote)
    process.start(3, "tool", 2)
    process.end(3)
    assert process.end(2) == ["request 2: 1"]


def test_a_call_that_comes_back_into_the_same_process_is_part_of_the_request() -> None:
    process = Process()
    process.start(1, "agent")
    process.start(2, "bare", 1, remote=True)
    process.start(3, "tool", 2)
    process.end(3)
    assert process.end(2) == []
    assert process.end(1) == ["request 1: 1"]


def test_one_trace_may_enter_a_process_many_times() -> None:
    process = Process()
    for entry in (10, 20):
        process.start(entry, "bare", 1, remote=True)
        process.start(entry + 1, "tool", entry)
        process.end(entry + 1)
        assert process.end(entry) == [f"request {entry}: 1"]


def test_spans_that_come_after_their_run_are_late_and_make_no_run_of_their_own() -> None:
    process = Process()
    process.start(1, "bare")
    process.start(2, "agent", 1)
    process.start(3, "tool", 2)
    assert process.end(2) == ["request 2: 0"]
    process.start(4, "agent", 3)
    process.start(5, "tool", 2)
    assert [process.end(number) for number in (4, 3, 1)] == [[], [], []]
    process.start(6, "agent", 1)
    assert process.end(5) == process.end(6) == []
    assert process.assembly.late == 4
    assert len(process.assembly) == 0


def test_a_span_whose_start_was_never_seen_is_late() -> None:
    process = Process()
    assert process.assembly.ended(TRACE, 1, made(1, "agent")) == []
    assert process.assembly.late == 1


def test_the_trace_idle_for_longest_is_given_up_first() -> None:
    process = Process(max_traces=2)
    process.start(1, "agent", trace=TRACE)
    process.start(1, "agent", trace=OTHER)
    process.start(2, "tool", 1, trace=TRACE)  # the other one is idle for longer now
    process.start(1, "agent", trace=3)
    assert process.assembly.evicted == 1
    assert process.end(1, trace=OTHER) == []
    process.end(2, trace=TRACE)
    assert process.end(1, trace=TRACE) == ["request 1: 1"]


def test_at_the_limit_of_spans_whole_traces_are_given_up() -> None:
    process = Process(max_spans=3)
    process.start(1, "agent", trace=TRACE)
    process.start(2, "tool", 1, trace=TRACE)
    process.start(1, "agent", trace=OTHER)
    process.start(2, "tool", 1, trace=OTHER)
    assert (process.assembly.evicted, len(process.assembly)) == (1, 2)
    process.end(2, trace=OTHER)
    assert process.end(1, trace=OTHER) == ["request 1: 1"]


def test_one_trace_that_is_too_large_does_not_push_out_the_others() -> None:
    process = Process(max_spans=10, max_spans_per_trace=5)
    process.start(1, "agent", trace=OTHER)
    process.start(1, "bare")
    for number in range(2, 50):
        process.start(number, "tool", 1)
        process.end(number)
    assert process.assembly.evicted == 1
    assert process.end(1, trace=OTHER) == ["request 1: 0"]


def test_a_root_that_never_ends_does_not_grow() -> None:
    process = Process()
    process.start(1, "bare")
    process.start(2, "aside", 1)
    for number in range(10, 10_000, 10):
        process.start(number, "bare", 1)
        process.start(number + 1, "tool", 1)
        process.end(number + 1)
        process.start(number + 2, "agent", number)
        process.start(number + 3, "tool", number + 2)
        process.end(number + 3)
        assert len(process.end(number + 2)) == 1
        process.end(number)
    assert len(process.assembly) < 200


@given(shape=st.lists(st.tuples(st.sampled_from(sorted(ROLES)), st.integers(0, 3)), min_size=1, max_size=14))
def test_live_runs_are_the_runs_of_the_whole_trace(shape: list[tuple[str, int]]) -> None:
    """As long as spans end before their parents, and no work begins beside an agent that is done already."""
    process = Process()
    opened: list[tuple[int, str]] = []
    done = False
    for number, (role, closing) in enumerate(shape, start=1):
        for _ in range(min(closing, len(opened) - 1)):
            done = any(told.startswith("request") for told in process.end(opened.pop()[0])) or done
        beside = all(above in ("bare", "aside") for _, above in opened)
        if done and beside and role in ("tool", "model"):
            role = "bare"
        process.start(number, role, opened[-1][0] if opened else None)
        opened.append((number, role))
    for number, _ in reversed(opened):
        process.end(number)
    from_file = [*extract(process.ended), *extract(process.ended, unit="component")]
    assert sorted(process.runs, key=_place) == sorted(from_file, key=_place)
    assert len(process.assembly) == process.assembly.late == 0


def _place(run: Run) -> tuple[str, str]:
    return run.unit, run.run_id
