"""The timeline of the calls of a run."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from goldspan.web.run_details import MAX_BARS, MAX_DEPTH, TIMELINE_WIDTH, call_timeline


def document(*calls: dict[str, Any], start_ns: int | None = None, end_ns: int | None = None) -> dict[str, Any]:
    return {"start_ns": start_ns, "end_ns": end_ns, "tool_calls": list(calls)}


def call(name: str = "search", begin: int | None = None, end: int | None = None, **more: Any) -> dict[str, Any]:
    times = {"start_ns": begin, "end_ns": end}
    return {"name": name, **{key: value for key, value in times.items() if value is not None}, **more}


def test_bars_are_placed_at_the_times_of_their_calls() -> None:
    line = call_timeline(document(call("a", 0, 500), call("b", 500, 1000), start_ns=0, end_ns=2000))
    assert [(bar.left, bar.width) for bar in line.bars] == [(0, 250), (250, 250)]
    assert [(bar.number, bar.name, bar.start_offset_ns, bar.duration_ns) for bar in line.bars] == [
        (1, "a", 0, 500),
        (2, "b", 500, 500),
    ]
    assert (line.duration_ns, line.has_times, line.omitted) == (2000, True, 0)


def test_calls_without_times_have_bars_without_position_and_duration() -> None:
    line = call_timeline(document(call("a"), call("b")))
    assert [(bar.left, bar.start_offset_ns, bar.duration_ns) for bar in line.bars] == [(None, None, None)] * 2
    assert (line.duration_ns, line.has_times) == (None, False)


def test_a_call_without_an_end_has_a_position_and_no_duration() -> None:
    line = call_timeline(document(call("a", 100), call("b", end=300), start_ns=0, end_ns=1000))
    first, second = line.bars
    assert (first.left, first.start_offset_ns, first.duration_ns) == (100, 100, None)
    assert (second.left, second.duration_ns) == (None, None)


def test_a_run_without_times_lasts_from_its_first_to_its_last_call() -> None:
    assert call_timeline(document(call("a", 100, 200), call("b", 150, 400))).duration_ns == 300


def test_a_call_without_duration_has_a_visible_bar() -> None:
    (bar,) = call_timeline(document(call("a", 10**9, 10**9), start_ns=0, end_ns=10**9)).bars
    assert bar.width > 0
    assert bar.left is not None
    assert bar.left + bar.width == TIMELINE_WIDTH
    (alone,) = call_timeline(document(call("a", 5, 5))).bars
    assert (alone.left, alone.duration_ns) == (0, 0)


def test_concurrent_calls_refer_to_each_other() -> None:
    line = call_timeline(document(call("a", 0, 10, concurrent_with=[1]), call("b", 5, 15, concurrent_with=[0])))
    assert [(bar.depth, bar.overlaps) for bar in line.bars] == [(0, (2,)), (0, (1,))]


def test_calls_of_an_agent_are_nested_in_the_call_of_the_agent() -> None:
    line = call_timeline(
        document(
            call("ask", 0, 100, kind="agent", agent="main", concurrent_with=[1, 2]),
            call("plan", 10, 90, agent="planner", concurrent_with=[0, 2]),
            call("search", 20, 30, agent="searcher", concurrent_with=[0, 1]),
        )
    )
    assert [(bar.depth, bar.overlaps) for bar in line.bars] == [(0, ()), (1, ()), (2, ())]
    assert line.agents == ("main", "planner", "searcher")
    assert [(bar.kind, bar.agent) for bar in line.bars] == [
        ("agent", "main"),
        ("tool", "planner"),
        ("tool", "searcher"),
    ]


def test_concurrent_tool_calls_of_one_agent_are_not_nested() -> None:
    line = call_timeline(
        document(
            call("long", 0, 100, agent="a", concurrent_with=[1]), call("short", 20, 30, agent="a", concurrent_with=[0])
        )
    )
    assert [(bar.depth, bar.overlaps) for bar in line.bars] == [(0, (2,)), (0, (1,))]


def test_calls_of_equal_duration_or_without_times_are_not_nested() -> None:
    same = [call("a", 0, 10, kind="agent", concurrent_with=[1]), call("b", 0, 10, kind="agent", concurrent_with=[0])]
    unknown = [call("a", kind="agent", concurrent_with=[1]), call("b", 0, 10, concurrent_with=[0])]
    for calls in (same, unknown):
        assert [(bar.depth, bar.overlaps) for bar in call_timeline(document(*calls)).bars] == [(0, (2,)), (0, (1,))]


def test_the_timeline_limits_its_depth_and_its_number_of_bars() -> None:
    many = 2 * MAX_DEPTH
    nested = [
        call(f"c{at}", at, 100 - at, kind="agent", concurrent_with=[other for other in range(many) if other != at])
        for at in range(many)
    ]
    assert max(bar.depth for bar in call_timeline(document(*nested)).bars) == MAX_DEPTH
    line = call_timeline(document(*[call("a", at, at + 1, concurrent_with=[MAX_BARS]) for at in range(MAX_BARS + 7)]))
    assert (len(line.bars), line.omitted) == (MAX_BARS, 7)
    assert all(bar.overlaps == () for bar in line.bars)


def test_failed_calls_and_requested_calls_are_marked() -> None:
    failed, asked = call_timeline(document(call("a", error="TimeoutError"), call("b", evidence="requested"))).bars
    assert (failed.failed, failed.requested_only) == (True, False)
    assert (asked.failed, asked.requested_only) == (False, True)


def test_a_run_without_calls_has_an_empty_timeline() -> None:
    line = call_timeline(document(start_ns=1, end_ns=5))
    assert (line.bars, line.duration_ns, line.agents, line.has_times) == ((), 4, (), False)


_moments = st.none() | st.integers(0, 2**63)
_calls = st.builds(
    call,
    begin=_moments,
    end=_moments,
    agent=st.sampled_from((None, "a", "b")),
    kind=st.sampled_from(("tool", "agent", "handoff")),
    concurrent_with=st.lists(st.integers(0, 9), max_size=4),
)


@given(st.lists(_calls, max_size=8), _moments, _moments)
def test_every_bar_lies_within_the_timeline(calls: list[dict[str, Any]], begin: int | None, end: int | None) -> None:
    for bar in call_timeline(document(*calls, start_ns=begin, end_ns=end)).bars:
        if bar.left is not None:
            assert bar.left >= 0
            assert bar.width > 0
            assert bar.left + bar.width <= TIMELINE_WIDTH
        assert 0 <= bar.depth <= MAX_DEPTH
