"""Times: comparisons are exact to the nanosecond, and millisecond clocks give the same runs."""

from __future__ import annotations

import os
import random
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goldspan.extraction import extract
from goldspan.model import Run, SpanRecord, TelemetryRecord
from goldspan.otlp.trace_files import read_records
from support.random_traces import HOW, asked, tell
from support.span_builders import agent, answers, ask_for, inside, made, model, says, tool, user

FIXTURES = Path(__file__).parent.parent / "fixtures"
RECORDED = {
    path.name.partition(".")[0]: path
    for folder in ("captures", "families")
    for path in sorted((FIXTURES / folder).iterdir())
    if not path.name.endswith(".runs.json") and ".logs." not in path.name
}
OFFSETS = int(1_000 * float(os.environ.get("STRESS", "1")))
"""The number of random offsets by which the stress test shifts every recording; `STRESS=0.01` reduces it."""
MILLISECOND = 1_000_000
NOW = 1_795_445_340_301_226_508
"""A time at which floats are 256 ns apart."""


def shifted(records: Iterable[TelemetryRecord], by: int, *, clock: int = 1) -> list[TelemetryRecord]:
    """Records with the times of a clock that is shifted and has the given resolution in nanoseconds."""

    def shown(time: int | None) -> int | None:
        return time and time // clock * clock + by

    return [
        replace(
            record,
            start_ns=shown(record.start_ns),
            end_ns=shown(record.end_ns),
            events=tuple(replace(event, time_ns=shown(event.time_ns)) for event in record.events),
        )
        if isinstance(record, SpanRecord)
        else replace(record, time_ns=shown(record.time_ns))
        for record in records
    ]


def shifted_run(run: Run, by: int) -> Run:
    """A run with all times shifted by the given nanoseconds."""
    calls = tuple(
        replace(call, start_ns=call.start_ns and call.start_ns + by, end_ns=call.end_ns and call.end_ns + by)
        for call in run.tool_calls
    )
    return replace(
        run, tool_calls=calls, start_ns=run.start_ns and run.start_ns + by, end_ns=run.end_ns and run.end_ns + by
    )


def calls_of_runs(runs: Iterable[Run]) -> list[list[tuple[str, str, bool]]]:
    """The called tools of each run, independent of their order."""
    return [sorted((call.name, repr(call.arguments), call.error is None) for call in run.tool_calls) for run in runs]


@given(asked, st.sampled_from(list(HOW.values())), st.integers(0, 1_000))
def test_a_shift_of_all_times_changes_no_run(words: object, how: object, by: int) -> None:
    records = tell(words, how, begin=1).records  # type: ignore[arg-type]
    assert extract(shifted(records, NOW + by)) == [shifted_run(run, NOW + by) for run in extract(records)]


@pytest.mark.parametrize("name", RECORDED)
def test_a_millisecond_clock_changes_no_call_of_a_recording(name: str) -> None:
    records = list(read_records([RECORDED[name]]))
    assert calls_of_runs(extract(shifted(records, 0, clock=MILLISECOND))) == calls_of_runs(extract(records))


def assert_shifting_changes_nothing(name: str, offsets: int) -> None:
    coarse = shifted(read_records([RECORDED[name]]), 0, clock=MILLISECOND)
    runs = extract(coarse)
    chance = random.Random(name)
    for by in (chance.randrange(1_000_000_000) for _ in range(offsets)):
        assert extract(shifted(coarse, by)) == [shifted_run(run, by) for run in runs]


@pytest.mark.parametrize("name", RECORDED)
def test_a_shift_of_a_millisecond_clock_by_two_nanoseconds_changes_no_call(name: str) -> None:
    assert_shifting_changes_nothing(name, 2)


@pytest.mark.stress
@pytest.mark.parametrize("name", RECORDED)
def test_a_shift_of_a_millisecond_clock_by_any_offset_changes_no_call(name: str) -> None:
    assert_shifting_changes_nothing(name, OFFSETS)


@pytest.mark.parametrize("start", [NOW + by for by in range(0, 300, 7)])
def test_a_tool_span_that_starts_with_its_model_span_is_the_call_that_the_model_requested(start: int) -> None:
    root = agent("a", start_ns=start, end_ns=start + 900)
    turn = model(
        asked=[user("Go")], answered=[ask_for(("send", {"to": "a"}))], start_ns=start, end_ns=start + 1, **inside(root)
    )
    done = tool("send", {"to": "a", "cc": None}, start_ns=start, end_ns=start + 2, **inside(root))
    (run,) = extract([root, turn, done])
    assert run.tools_used == ("send",)
    assert run.health.is_clean


def test_of_turns_with_equal_times_the_longer_history_is_the_later_turn() -> None:
    root = agent("a", start_ns=100, end_ns=100)
    moment = {"start_ns": 100, "end_ns": 100, **inside(root)}
    first = [user("Go")]
    second = [*first, ask_for(("a", {"n": 1}, "c1")), answers("c1", "1")]
    third = [*second, ask_for(("b", {"n": 2}, "c2")), answers("c2", "2")]
    spans = [
        model(asked=third, answered=[says("Done.")], **moment),
        tool("b", {"n": 2}, **made("c2"), **moment),
        model(asked=second, answered=[ask_for(("b", {"n": 2}, "c2"))], **moment),
        tool("a", {"n": 1}, **made("c1"), **moment),
        model(asked=first, answered=[ask_for(("a", {"n": 1}, "c1"))], **moment),
    ]
    (run,) = extract([root, *spans])
    assert run.tools_used == ("a", "b")
    assert [call.concurrent_with for call in run.tool_calls] == [(), ()]
    assert run.output == "Done."


def test_calls_with_equal_start_times_and_unknown_order_are_concurrent() -> None:
    root = agent("a", start_ns=100, end_ns=200)
    moment = {"start_ns": 100, "end_ns": 100, **inside(root)}
    (run,) = extract([root, tool("b", **moment), tool("a", **moment)])
    assert [call.concurrent_with for call in run.tool_calls] == [(1,), (0,)]


def test_of_calls_with_equal_start_times_the_outer_call_is_first() -> None:
    root = agent("a", start_ns=100, end_ns=200)
    outer = tool("research", span_id="f" * 16, start_ns=100, end_ns=100, **inside(root))
    inner = tool("search", span_id="1" * 16, start_ns=100, end_ns=100, **inside(outer))
    (run,) = extract([inner, outer, root])
    assert run.tools_used == ("research", "search")
    assert [call.concurrent_with for call in run.tool_calls] == [(), ()]


def test_the_longer_of_two_agents_with_equal_start_times_is_the_outer_agent_if_parents_are_lost() -> None:
    for ids in (("1" * 16, "f" * 16), ("f" * 16, "1" * 16)):
        outer = agent("outer", span_id=ids[0], start_ns=100, end_ns=200)
        inner = agent("inner", span_id=ids[1], parent_id="a" * 16, start_ns=100, end_ns=150)
        (run,) = extract([outer, inner, tool("x", **inside(inner))])
        assert (run.agent, run.tools_used) == ("outer", ("x",))
