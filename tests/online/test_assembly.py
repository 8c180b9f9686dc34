"""Which spans make a run while the application works, and that nothing grows without end."""

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
    """A process that starts and ends spans, and takes what its assembly gives out."""

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
        """End a span; the runs that came to their end with it, by unit and span."""
        self.now += 1
        record = replace(self.live.pop((trace, number)), end_ns=self.now)
        self.ended.append(record)
        return self._take(self.assembly.end_span(trace, number, record, self.now))

    def wait(self, seconds: float = 0, *, everything: bool = False) -> list[str]:
        """Let time pass, and take what it brings about."""
        self.now += int(seconds)
        return self._take(self.assembly.collect_due(self.now, everything=everything))

    def _take(self, assembled_spans: list[AssembledSpans]) -> list[str]:
        new = [evaluation for assembled in assembled_spans for evaluation in self.pipeline.evaluate_spans(assembled)]
        self.evaluations += new
        return [_told(evaluation) for evaluation in new]

    @property
    def runs(self) -> list[Run]:
        """The runs as they were given out last."""
        return list({_place(evaluation.run): evaluation.run for evaluation in self.evaluations}.values())


def _told(evaluation: Evaluation) -> str:
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
    process.end(7)  # after both had ended: the second one's all the same
    assert process.end(1) == ["request 20: 2 (revision 2)"]
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


def test_spans_that_end_after_their_run_make_a_revision_of_it() -> None:
    process = Process()
    process.start(1, "bare")
    process.start(2, "agent", 1)
    process.start(3, "tool", 2)
    assert process.end(2) == ["request 2: 1"]  # the tool that is still at work has been called
    assert process.evaluations[0].run.health.unended == 1
    process.start(4, "agent", 3)
    process.start(5, "tool", 2)
    assert [process.end(number) for number in (4, 3, 1)] == [[], [], []]
    assert process.wait(60) == []  # one of them is still on its way
    process.end(5)
    assert process.wait() == []  # more may follow
    assert process.wait(1) == ["request 2: 2 (revision 2)"]
    assert process.evaluations[-1].run.health.unended == 0
    assert process.counts == AssemblyCounts(late=3)
    assert len(process.assembly) == 0


def test_late_spans_that_change_nothing_make_no_revision() -> None:
    process = Process()
    process.start(1, "agent")
    process.start(2, "bare", 1)
    assert process.end(1) == ["request 1: 0"]
    process.end(2)
    assert process.wait(1) == []


def test_a_request_that_begins_when_what_stands_around_it_has_ended_is_one_of_its_own() -> None:
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


def test_a_span_whose_start_was_never_seen_is_too_late() -> None:
    process = Process()
    assert process.assembly.end_span(TRACE, 1, made(1, "agent")) == []
    assert process.counts == AssemblyCounts(too_late=1)


def test_what_ends_when_its_run_is_forgotten_is_too_late() -> None:
    process = Process(late=60)
    process.start(1, "agent")
    process.end(1)
    assert process.wait(61) == []
    assert process.assembly.bytes_in_flight == 0
    process.start(2, "tool", 1)
    process.end(2)
    assert process.wait(61) == []
    assert process.counts == AssemblyCounts(too_late=1)


def test_a_run_in_which_nothing_happens_any_more_is_scored_as_it_is_and_again_when_it_goes_on() -> None:
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


def test_work_below_a_root_that_lives_on_is_one_run_however_often_it_pauses() -> None:
    process = Process(idle=300)
    process.start(1, "bare")
    for tool, told in ((2, "request 1: 1"), (3, "request 1: 2 (revision 2)"), (4, "request 1: 3 (revision 3)")):
        process.start(tool, "tool", 1)
        process.end(tool)
        assert process.wait(300) == [told]
    assert process.end(1) == []
    assert process.wait(2) == []
    assert process.runs[0].tool_calls == extract(process.ended)[0].tool_calls
    assert process.counts == AssemblyCounts(unended=3)


def test_what_lives_for_too_long_is_let_go_even_if_it_is_busy() -> None:
    process = Process(idle=300, lifetime=1_000)
    process.start(1, "agent")
    told = []
    for number in range(2, 30):
        process.start(number, "tool", 1)
        process.end(number)
        told += process.wait(100)
    assert told[0].startswith("request 1: ")
    assert process.counts.unended >= 1
    assert len(process.assembly) < 15


def test_a_bare_span_that_never_ends_is_let_go_in_the_end() -> None:
    process = Process(idle=300, lifetime=1_000)
    process.start(1, "bare")
    for _ in range(10):
        assert process.wait(300) == []
    assert len(process.assembly) == 0
    assert not process.assembly.has_deadlines
    assert process.counts == AssemblyCounts()


def test_the_trace_idle_for_longest_is_given_up_first() -> None:
    process = Process(max_traces=2)
    process.start(1, "agent", trace=TRACE)
    process.start(1, "agent", trace=OTHER)
    process.start(2, "tool", 1, trace=TRACE)  # the other one is idle for longer now
    process.start(1, "agent", trace=3)
    assert process.counts.evicted == 1
    assert process.end(1, trace=OTHER) == []
    process.end(2, trace=TRACE)
    assert process.end(1, trace=TRACE) == ["request 1: 1"]


def test_at_the_limit_of_spans_whole_traces_are_given_up() -> None:
    process = Process(max_spans=3)
    process.start(1, "agent", trace=TRACE)
    process.start(2, "tool", 1, trace=TRACE)
    process.start(1, "agent", trace=OTHER)
    process.start(2, "tool", 1, trace=OTHER)
    assert (process.counts.evicted, len(process.assembly)) == (1, 2)
    process.end(2, trace=OTHER)
    assert process.end(1, trace=OTHER) == ["request 1: 1"]


def test_at_the_limit_of_bytes_what_was_scored_is_forgotten_before_anything_in_flight_is_given_up() -> None:
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
    assert process.end(1, trace=99) == ["request 1: 1"]  # the last one was spared


def test_a_trace_has_as_many_spans_in_flight_whether_the_ended_ones_are_folded_or_not() -> None:
    process = Process(max_spans_per_trace=3)
    process.start(1, "agent")
    for tool in range(2, 20):
        process.start(tool, "tool", 1)
        process.end(tool)
    assert process.counts == AssemblyCounts()
    assert process.end(1) == ["request 1: 18"]


def test_a_span_that_has_ended_is_not_in_flight_any_more() -> None:
    process = Process()
    process.start(1, "agent")
    process.start(2, "tool", 1)
    assert process.assembly.is_in_flight(TRACE, 2)
    process.end(2)
    assert not process.assembly.is_in_flight(TRACE, 2)
    assert not process.assembly.is_in_flight(OTHER, 2)


def test_a_span_that_starts_inside_a_folded_one_belongs_to_the_same_run() -> None:
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
def test_a_limit_that_is_none_is_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        Limits(**wrong)
    assert Limits(late=0, settle=0).late == 0


def test_one_trace_that_is_too_large_does_not_push_out_the_others() -> None:
    process = Process(max_spans=10, max_spans_per_trace=5)
    process.start(1, "agent", trace=OTHER)
    process.start(1, "bare")
    for number in range(2, 50):
        process.start(number, "tool", 1)
        assert process.end(number) == []
    assert process.counts.unscored == 49
    assert process.end(1, trace=OTHER) == ["request 1: 0"]


def test_what_is_not_taken_in_makes_its_trace_unscored_whatever_else_comes() -> None:
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


def test_a_late_span_of_a_trace_that_is_lost_meanwhile_counts_as_not_scored() -> None:
    process = Process()
    process.start(1, "agent")
    process.start(2, "tool", 1)
    assert process.end(1) == ["request 1: 1"]
    process.assembly.mark_incomplete(TRACE, process.now)
    assert process.end(2) == []
    assert process.wait(400) == process.wait(400) == []
    assert process.counts == AssemblyCounts(unscored=1)
    assert not process.assembly.has_deadlines


def test_a_run_of_a_trace_that_is_lost_meanwhile_is_not_scored_again() -> None:
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


def test_an_agent_that_takes_over_beside_the_first_continues_its_request() -> None:
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
    assert len(process.assembly) == process.counts.late == 0


@st.composite
def _lives(draw: st.DrawFn, *, inside_live: bool = False) -> list[tuple[int, str, int | None] | int]:
    """Starts (number, role, parent) and ends (number) of some spans, in an order that can happen.

    `inside_live`: none starts inside of what has ended, unless nothing else is there.
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
def test_in_the_end_each_run_is_what_the_whole_trace_says_whatever_ended_late(
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
    """Lives between whose moments seconds pass."""
    happened: list[tuple[int, str, int | None] | int | float] = []
    for moment in draw(_lives(inside_live=True)):
        happened.append(moment)
        happened.extend(draw(st.lists(st.sampled_from([1.0, 3.0, 12.0, 25.0]), max_size=1)))
    return happened


@given(life=_slow_lives())
def test_deadlines_that_strike_at_any_moment_lose_no_span_and_what_was_not_too_late_is_right_in_the_end(
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
    if process.counts.too_late or process.counts.unended:  # what begins beside a run taken as it was is told apart
        missed = _called(filed) - _called(process.runs)
        assert missed <= process.counts.too_late
    else:  # of the same content, since a late span that changes nothing of it is no revision
        from_file = {_place(run): evaluate(run, None).digest for run in filed}
        live = {_place(run): evaluate(run, None).digest for run in process.runs}
        assert {place: digest for place, digest in live.items() if place in from_file} == from_file
