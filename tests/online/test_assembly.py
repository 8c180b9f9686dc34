"""Assembly of live spans into runs, with bounded memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goldspan import ConfigurationError, Evaluation, Run, SpanRecord, evaluate, extract
from goldspan.model import RunUnit
from goldspan.online import AssembledSpans, Assembly, AssemblyCounts, Limits, Pipeline, live_traces
from support.span_builders import span

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
UNITS: tuple[RunUnit, ...] = ("request", "component")
HANDOFF = {"gen_ai.operation.name": "handoff", "gen_ai.handoff.to_agent": "billing"}


@pytest.fixture(
    autouse=True, scope="module", params=[pytest.param(0, id="folded at once"), pytest.param(64, id="folded later")]
)
def max_unfolded(request: pytest.FixtureRequest) -> Iterator[None]:
    """Every run is the same whether its ended spans are folded at once or later."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(live_traces, "_MAX_UNFOLDED", request.param)
        yield


def made(number: int, role: str, parent: int | None = None, *, start: int = 0, trace: int = TRACE) -> SpanRecord:
    """A span with small numbers for ids and times."""
    record = span(
        role,
        trace_id=f"{trace:032x}",
        span_id=f"{number:016x}",
        parent_id=None if parent is None else f"{parent:016x}",
        start_ns=start or number,
    )
    return replace(record, attributes=HANDOFF if role == "handoff" else ROLES[role], end_ns=None)


class Process:
    """A process that starts and ends spans, and evaluates what its assembly releases."""

    def __init__(self, **limits: Any) -> None:
        self.assembly: Assembly[SpanRecord] = Assembly(lambda live: live, Limits(**limits))
        self.pipeline = Pipeline()
        self.live: dict[tuple[int, int], SpanRecord] = {}
        self.ended: list[SpanRecord] = []
        self.evaluations: list[Evaluation] = []
        self.now = 1_000

    @property
    def counts(self) -> AssemblyCounts:
        return self.assembly.counts

    def start(
        self, number: int, role: str, parent: int | None = None, *, trace: int = TRACE, remote: bool = False
    ) -> None:
        self.now += 1
        record = made(number, role, parent, start=self.now, trace=trace)
        self.live[trace, number] = record
        self.assembly.start_span(trace, number, parent, record, self.now, remote=remote)

    def end(self, number: int, *, trace: int = TRACE) -> list[str]:
        """End a span; return the runs that ended with it, by unit and span."""
        self.now += 1
        record = replace(self.live.pop((trace, number)), end_ns=self.now)
        self.ended.append(record)
        return self._take(self.assembly.end_span(trace, number, record, self.now))

    def wait(self, seconds: float = 0, *, everything: bool = False) -> list[str]:
        """Let time pass, and evaluate the runs that become due."""
        self.now += int(seconds)
        return self._take(self.assembly.collect_due(self.now, everything=everything))

    def _take(self, assembled_spans: list[AssembledSpans]) -> list[str]:
        new = [evaluation for assembled in assembled_spans for evaluation in self.pipeline.evaluate_spans(assembled)]
        self.evaluations += new
        return [_summary(evaluation) for evaluation in new]

    @property
    def runs(self) -> list[Run]:
        """The latest revision of each run."""
        return list({_place(evaluation.run): evaluation.run for evaluation in self.evaluations}.values())


def _summary(evaluation: Evaluation) -> str:
    run = evaluation.run
    again = f" (revision {evaluation.revision})" if evaluation.revision > 1 else ""
    return f"{run.unit} {int(str(run.span_id), 16)}: {len(run.tool_calls)}{again}"


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


def test_an_agent_inside_a_tool_without_an_outer_agent_is_not_a_separate_request() -> None:
    process = Process()
    process.start(1, "bare")
    process.start(2, "tool", 1)
    process.start(3, "agent", 2)
    assert process.end(3) == []
    assert process.end(2) == []
    assert process.end(1) == ["request 1: 1"]


def test_a_component_ends_with_its_own_span_and_remains_part_of_its_request() -> None:
    process = Process()
    process.start(1, "agent")
    process.start(2, "component", 1)
    process.start(3, "component", 2)
    process.start(4, "tool", 3)
    process.end(4)
    assert process.end(3) == ["component 3: 1"]
    assert process.end(2) == ["component 2: 1"]
    assert process.end(1) == ["request 1: 1"]


def test_interleaved_requests_below_one_root_each_get_their_own_tool_calls() -> None:
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


def test_tool_calls_beside_agents_belong_to_the_agent_that_started_last_before_them() -> None:
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
    process.end(7)  # after both had ended: the second one's all the same
    assert process.end(1) == ["request 20: 2 (revision 2)"]
    assert len(process.assembly) == 0


@pytest.mark.parametrize("remote", [True, False])
def test_a_span_whose_parent_is_not_in_this_process_is_a_local_root(remote: bool) -> None:
    process = Process()
    process.start(2, "bare", 1, remote=remote)
    process.start(3, "tool", 2)
    process.end(3)
    assert process.end(2) == ["request 2: 1"]


def test_a_remote_call_back_into_the_same_process_is_part_of_the_request() -> None:
    process = Process()
    process.start(1, "agent")
    process.start(2, "bare", 1, remote=True)
    process.start(3, "tool", 2)
    process.end(3)
    assert process.end(2) == []
    assert process.end(1) == ["request 1: 1"]


def test_one_trace_can_have_several_local_roots_in_a_process() -> None:
    process = Process()
    for entry in (10, 20):
        process.start(entry, "bare", 1, remote=True)
        process.start(entry + 1, "tool", entry)
        process.end(entry + 1)
        assert process.end(entry) == [f"request {entry}: 1"]


def test_spans_that_end_after_their_run_create_a_revision() -> None:
    process = Process()
    process.start(1, "bare")
    process.start(2, "agent", 1)
    process.start(3, "tool", 2)
    assert process.end(2) == ["request 2: 1"]  # the unfinished tool counts as called
    assert process.evaluations[0].run.health.unended == 1
    process.start(4, "agent", 3)
    process.start(5, "tool", 2)
    assert [process.end(number) for number in (4, 3, 1)] == [[], [], []]
    assert process.wait(60) == []  # one span has not ended yet
    process.end(5)
    assert process.wait() == []  # more may follow
    assert process.wait(1) == ["request 2: 2 (revision 2)"]
    assert process.evaluations[-1].run.health.unended == 0
    assert process.counts == AssemblyCounts(late=3)
    assert len(process.assembly) == 0


def test_a_call_inside_an_unended_call_of_a_component_is_in_a_revision_of_the_component() -> None:
    process = Process()
    process.start(1, "agent")
    process.start(2, "component", 1)
    process.start(3, "agent", 2)
    assert process.end(2) == ["component 2: 0"]
    process.start(4, "tool", 3)
    assert [process.end(number) for number in (4, 3)] == [[], []]
    assert process.end(1) == ["request 1: 1"]
    assert process.wait(1) == ["component 2: 1 (revision 2)"]


def test_a_call_beside_its_request_that_ended_late_is_in_a_revision_once_the_trace_is_idle() -> None:
    process = Process(idle=300, lifetime=2_000)
    process.start(1, "bare")
    process.start(2, "agent", 1)
    process.start(3, "tool", 1)
    assert process.end(2) == ["request 2: 0"]
    assert process.end(3) == []
    assert process.wait(300) == []
    assert process.wait(1) == ["request 2: 1 (revision 2)"]
    assert process.wait(300) == []
    assert process.end(1) == []
    assert process.counts == AssemblyCounts(unended=1)
    assert len(process.assembly) == 0


def test_late_spans_that_do_not_change_the_run_create_no_revision() -> None:
    process = Process()
    process.start(1, "agent")
    process.start(2, "bare", 1)
    assert process.end(1) == ["request 1: 0"]
    process.end(2)
    assert process.wait(1) == []


def test_a_request_that_starts_after_its_parent_spans_ended_is_a_separate_request() -> None:
    process = Process()
    process.start(1, "bare")
    process.start(2, "agent", 1)
    process.end(2)
    process.end(1)
    process.start(3, "bare", 1)
    process.start(4, "agent", 3)
    process.start(5, "tool", 4)
    process.end(5)
    assert process.end(4) == ["request 4: 1"]
    process.end(3)
    assert process.wait(3) == []
    assert process.counts == AssemblyCounts()


def test_a_span_that_ends_twice_is_a_duplicate() -> None:
    process = Process()
    process.start(1, "agent")
    process.start(2, "tool", 1)
    process.end(2)
    process.end(1)
    for number in (2, 1):
        assert process.assembly.end_span(TRACE, number, made(number, "tool"), 2_000) == []
    assert process.wait(5) == []
    assert process.counts == AssemblyCounts(duplicates=2)


def test_a_span_without_a_recorded_start_is_counted_as_too_late() -> None:
    process = Process()
    assert process.assembly.end_span(TRACE, 1, made(1, "agent")) == []
    assert process.counts == AssemblyCounts(too_late=1)


def test_a_span_that_ends_after_its_run_was_forgotten_is_counted_as_too_late() -> None:
    process = Process(late=60)
    process.start(1, "agent")
    process.end(1)
    assert process.wait(61) == []
    assert process.assembly.bytes_in_flight == 0
    process.start(2, "tool", 1)
    process.end(2)
    assert process.wait(61) == []
    assert process.counts == AssemblyCounts(too_late=1)


def test_an_idle_run_is_scored_unfinished_and_again_when_it_continues() -> None:
    process = Process(idle=300)
    process.start(1, "bare")
    process.start(2, "agent", 1)
    process.start(3, "tool", 2)
    process.end(3)
    process.start(4, "tool", 2)
    assert process.wait(299) == []
    assert process.wait(1) == ["request 2: 2"]
    assert process.evaluations[0].run.health.unended == 3
    process.end(4)
    process.start(6, "tool", 2)
    process.end(6)
    process.end(2)
    assert process.wait(1) == ["request 2: 3 (revision 2)"]
    process.start(5, "agent", 1)  # a server's span, below which the next request begins
    assert process.end(5) == ["request 5: 0"]
    assert process.counts == AssemblyCounts(unended=1, late=3)


def test_tool_calls_below_a_long_lived_root_are_one_run_despite_pauses() -> None:
    process = Process(idle=300)
    process.start(1, "bare")
    for tool, summary in ((2, "request 1: 1"), (3, "request 1: 2 (revision 2)"), (4, "request 1: 3 (revision 3)")):
        process.start(tool, "tool", 1)
        process.end(tool)
        assert process.wait(300) == [summary]
    assert process.end(1) == []
    assert process.wait(2) == []
    assert process.runs[0].tool_calls == extract(process.ended)[0].tool_calls
    assert process.counts == AssemblyCounts(unended=3)


def test_a_request_that_appears_between_two_idle_releases_is_scored_when_its_root_ends() -> None:
    process = Process(idle=10)
    process.start(1, "bare")
    process.start(2, "component", 1)
    process.start(3, "agent", 2)
    assert process.wait(10) == []  # unfinished, and only a component so far
    process.start(4, "tool", 1)
    for number in (2, 3, 4):
        process.end(number)
    assert process.wait(10) == ["component 2: 0"]
    assert process.end(1) == ["request 1: 1"]
    assert process.wait(2) == []
    assert len(process.assembly) == 0


def test_a_run_is_released_after_its_lifetime_even_if_it_is_active() -> None:
    process = Process(idle=300, lifetime=1_000)
    process.start(1, "agent")
    summaries = []
    for number in range(2, 30):
        process.start(number, "tool", 1)
        process.end(number)
        summaries += process.wait(100)
    assert summaries[0].startswith("request 1: ")
    assert process.counts.unended >= 1
    assert len(process.assembly) < 15


def test_a_plain_span_that_never_ends_is_released_after_its_lifetime() -> None:
    process = Process(idle=300, lifetime=1_000)
    process.start(1, "bare")
    for _ in range(10):
        assert process.wait(300) == []
    assert len(process.assembly) == 0
    assert not process.assembly.has_deadlines
    assert process.counts == AssemblyCounts()


def test_the_trace_idle_longest_is_evicted_first() -> None:
    process = Process(max_traces=2)
    process.start(1, "agent", trace=TRACE)
    process.start(1, "agent", trace=OTHER)
    process.start(2, "tool", 1, trace=TRACE)  # the other one is idle for longer now
    process.start(1, "agent", trace=3)
    assert process.counts.evicted == 1
    assert process.end(1, trace=OTHER) == []
    process.end(2, trace=TRACE)
    assert process.end(1, trace=TRACE) == ["request 1: 1"]


def test_whole_traces_are_evicted_at_the_span_limit() -> None:
    process = Process(max_spans=3)
    process.start(1, "agent", trace=TRACE)
    process.start(2, "tool", 1, trace=TRACE)
    process.start(1, "agent", trace=OTHER)
    process.start(2, "tool", 1, trace=OTHER)
    assert (process.counts.evicted, len(process.assembly)) == (1, 2)
    process.end(2, trace=OTHER)
    assert process.end(1, trace=OTHER) == ["request 1: 1"]


def test_scored_runs_are_forgotten_before_traces_in_flight_are_evicted_at_the_byte_limit() -> None:
    process = Process(max_bytes=400)

    def request(trace: int, *, ends: bool) -> None:
        process.start(1, "agent", trace=trace)
        process.start(2, "tool", 1, trace=trace)
        process.end(2, trace=trace)
        if ends:
            assert process.end(1, trace=trace) == ["request 1: 1"]

    for trace in range(1, 50):
        request(trace, ends=True)
    assert process.assembly.bytes_in_flight < 600
    assert process.counts == AssemblyCounts()
    for trace in range(50, 100):
        request(trace, ends=False)
    assert process.assembly.bytes_in_flight < 600
    assert 0 < len(process.assembly) < 50
    assert process.counts.evicted > 0
    assert process.end(1, trace=99) == ["request 1: 1"]  # the latest was not evicted


def test_ended_spans_do_not_count_towards_the_span_limit_of_a_trace() -> None:
    process = Process(max_spans_per_trace=3)
    process.start(1, "agent")
    for tool in range(2, 20):
        process.start(tool, "tool", 1)
        process.end(tool)
    assert process.counts == AssemblyCounts()
    assert process.end(1) == ["request 1: 18"]


def test_a_span_is_in_flight_only_until_it_ends() -> None:
    process = Process()
    process.start(1, "agent")
    process.start(2, "tool", 1)
    assert process.assembly.is_in_flight(TRACE, 2)
    process.end(2)
    assert not process.assembly.is_in_flight(TRACE, 2)
    assert not process.assembly.is_in_flight(OTHER, 2)


def test_a_span_that_starts_inside_a_folded_span_belongs_to_the_same_run() -> None:
    process = Process()
    process.start(1, "agent")
    process.start(2, "tool", 1)
    process.end(2)
    for tool in range(100, 200):
        process.start(tool, "tool", 1)
        process.end(tool)
    process.start(3, "bare", 2)
    process.start(4, "tool", 3)
    process.end(3)
    process.end(4)
    assert process.end(1) == ["request 1: 101"]  # a tool inside a tool of the same name is the same call


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"max_spans": 0}, "max_spans must be a number of at least 1, not 0"),
        ({"max_traces": "many"}, "max_traces must be a number of at least 1, not 'many'"),
        ({"max_queue": True}, "max_queue must be a number of at least 1, not True"),
        ({"idle": 0}, "idle must be a number above 0, not 0"),
        ({"lifetime": float("nan")}, "lifetime must be a number above 0, not nan"),
        ({"settle": -1}, "settle must be a number of at least 0, not -1"),
    ],
    ids=str,
)
def test_an_invalid_limit_is_rejected(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        Limits(**wrong)
    assert Limits(late=0, settle=0).late == 0


def test_an_oversized_trace_does_not_evict_other_traces() -> None:
    process = Process(max_spans=10, max_spans_per_trace=5)
    process.start(1, "agent", trace=OTHER)
    process.start(1, "bare")
    for number in range(2, 50):
        process.start(number, "tool", 1)
        assert process.end(number) == []
    assert process.counts.unscored == 49
    assert process.end(1, trace=OTHER) == ["request 1: 0"]


def test_a_trace_that_was_marked_incomplete_is_never_scored() -> None:
    process = Process()
    process.start(1, "agent")
    process.start(2, "tool", 1)
    process.end(2)
    process.assembly.mark_incomplete(TRACE, process.now)
    assert process.end(1) == []
    process.assembly.mark_incomplete(OTHER, process.now)
    process.start(1, "agent", trace=OTHER)
    assert process.end(1, trace=OTHER) == []
    assert process.counts == AssemblyCounts(unscored=3)  # what was in flight, and what came afterwards
    assert len(process.assembly) == 0


def test_a_late_span_of_an_incomplete_trace_is_counted_as_unscored() -> None:
    process = Process()
    process.start(1, "agent")
    process.start(2, "tool", 1)
    assert process.end(1) == ["request 1: 1"]
    process.assembly.mark_incomplete(TRACE, process.now)
    assert process.end(2) == []
    assert process.wait(400) == process.wait(400) == []
    assert process.counts == AssemblyCounts(unscored=1)
    assert not process.assembly.has_deadlines


def test_a_run_of_a_trace_that_became_incomplete_is_not_scored_again() -> None:
    process = Process()
    process.start(1, "agent")
    process.start(2, "tool", 1)
    process.start(3, "tool", 1)
    assert process.end(1) == ["request 1: 2"]
    process.start(4, "tool", 1)
    process.end(4)
    process.assembly.mark_incomplete(TRACE, process.now)  # a fifth, perhaps
    assert process.wait(400) == process.wait(0, everything=True) == []
    assert process.counts == AssemblyCounts(late=1, unscored=2)


def test_a_sibling_agent_after_a_handoff_continues_the_request() -> None:
    process = Process()
    process.start(1, "bare")
    process.start(2, "agent", 1)
    process.start(3, "tool", 2)
    process.end(3)
    process.start(4, "handoff", 2)
    process.end(4)
    assert process.end(2) == ["request 2: 2"]
    process.assembly.expect_successor(TRACE)
    process.start(5, "agent", 1)
    process.start(6, "tool", 5)
    process.end(6)
    assert len(extract([*process.ended, replace(process.live[TRACE, 5], end_ns=99)])) == 1
    assert process.end(5) == ["request 2: 3 (revision 2)"]
    assert process.end(1) == []


def test_memory_below_a_root_that_never_ends_is_bounded() -> None:
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
def test_live_runs_equal_the_runs_extracted_from_the_whole_trace(shape: list[tuple[str, int]]) -> None:
    """Spans end before their parents, and no tool call starts beside an agent that has ended."""
    process = Process()
    opened: list[tuple[int, str]] = []
    done = False
    for number, (role, closing) in enumerate(shape, start=1):
        for _ in range(min(closing, len(opened) - 1)):
            done = any(summary.startswith("request") for summary in process.end(opened.pop()[0])) or done
        beside = all(above in ("bare", "aside") for _, above in opened)
        if done and beside and role in ("tool", "model"):
            role = "bare"
        process.start(number, role, opened[-1][0] if opened else None)
        opened.append((number, role))
    for number, _ in reversed(opened):
        process.end(number)
    from_file = [*extract(process.ended), *extract(process.ended, unit="component")]
    assert sorted(process.runs, key=_place) == sorted(from_file, key=_place)
    assert len(process.assembly) == process.counts.late == 0


@st.composite
def _lives(draw: st.DrawFn, *, inside_live: bool = False) -> list[tuple[int, str, int | None] | int]:
    """Starts (number, role, parent) and ends (number) of some spans, in a possible order.

    `inside_live`: no span starts inside an ended span, unless no other is live.
    """
    roles = draw(st.lists(st.sampled_from(["agent", "tool", "bare", "component", "model"]), min_size=1, max_size=9))
    happened: list[tuple[int, str, int | None] | int] = []
    live: list[int] = []
    started: list[int] = []
    for number, role in enumerate(roles, start=1):
        while live and draw(st.integers(0, 2)) == 0:
            happened.append(live.pop(draw(st.integers(0, len(live) - 1))))
        around = live or started if inside_live else started
        parent = draw(st.sampled_from(around)) if around else None
        happened.append((number, role, parent))
        live.append(number)
        started.append(number)
    return happened + draw(st.permutations(live))


@given(life=_lives())
def test_final_runs_equal_the_runs_of_the_whole_trace_in_any_order_of_ends(
    life: list[tuple[int, str, int | None] | int],
) -> None:
    process = Process()
    for moment in life:
        if isinstance(moment, int):
            process.end(moment)
        else:
            process.start(*moment)
    process.wait(2)
    from_file = {_place(run): run for unit in UNITS for run in extract(process.ended, unit=unit)}
    live = {_place(run): run for run in process.runs}
    assert {key: _calls(run) for key, run in live.items() if key in from_file} == {
        key: _calls(run) for key, run in from_file.items()
    }
    assert process.counts.too_late == process.counts.duplicates == len(process.assembly) == 0
    given_out: dict[tuple[str, str], list[Evaluation]] = {}
    for evaluation in process.evaluations:
        given_out.setdefault(_place(evaluation.run), []).append(evaluation)
    for evaluations in given_out.values():
        assert [evaluation.revision for evaluation in evaluations] == list(range(1, len(evaluations) + 1))
        assert all(one.digest != next_one.digest for one, next_one in pairwise(evaluations))


def _called(runs: list[Run]) -> int:
    return sum(len(run.tool_calls) for run in runs if run.unit == "request")


def _calls(run: Run) -> list[str | None]:
    return [call.span_id for call in run.tool_calls]


def _place(run: Run) -> tuple[str, str]:
    return run.unit, run.run_id


@st.composite
def _slow_lives(draw: st.DrawFn) -> list[tuple[int, str, int | None] | int | float]:
    """Starts and ends as in `_lives`, with pauses in seconds between them."""
    happened: list[tuple[int, str, int | None] | int | float] = []
    for moment in draw(_lives(inside_live=True)):
        happened.append(moment)
        happened.extend(draw(st.lists(st.sampled_from([1.0, 3.0, 12.0, 25.0]), max_size=1)))
    return happened


def test_a_late_span_is_in_a_revision_although_its_trace_expires_before_the_revision_is_due() -> None:
    process = Process(idle=10, late=40)
    process.start(1, "agent")
    assert process.end(1) == ["request 1: 0"]
    process.start(2, "tool", 1)
    process.start(3, "tool", 1)
    process.wait(35)
    process.end(2)
    assert process.wait(6) == []  # the revision waits for the other tool
    process.end(3)
    assert process.wait(2) == ["request 1: 2 (revision 2)"]
    assert process.wait(40) == []
    assert not process.assembly.has_deadlines
    assert process.counts == AssemblyCounts(late=2)


@given(life=_slow_lives())
def test_deadlines_at_any_moment_lose_no_span_and_final_runs_are_correct(
    life: list[tuple[int, str, int | None] | int | float],
) -> None:
    process = Process(idle=10, late=40)
    ended = 0
    for moment in life:
        if isinstance(moment, float):
            process.wait(moment)
        elif isinstance(moment, int):
            process.end(moment)
            ended += 1
        else:
            process.start(*moment)
        assert len(process.assembly) <= len(process.live) + ended
    process.wait(2)
    assert len(process.assembly) == 0
    assert process.counts.duplicates == process.counts.unscored == process.counts.evicted == 0
    filed = [run for unit in UNITS for run in extract(process.ended, unit=unit)]
    if process.counts.too_late or process.counts.unended:  # spans beside an unfinished run are separate
        missed = _called(filed) - _called(process.runs)
        assert missed <= process.counts.too_late
    else:  # equal digests: a late span without a change is no revision
        from_file = {_place(run): evaluate(run, None).digest for run in filed}
        live = {_place(run): evaluate(run, None).digest for run in process.runs}
        assert {place: digest for place, digest in live.items() if place in from_file} == from_file
