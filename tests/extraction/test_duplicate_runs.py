"""Requests recorded by two instrumentations, and separate requests that resemble them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goldspan.extraction import extract
from goldspan.extraction.reconciliation.run_merging import _merge_candidates, merge_duplicate_runs
from goldspan.model import Run, SpanRecord, ToolCall
from support.span_builders import agent, in_trace, inside, made, messages, says, tool

Seen = list[SpanRecord]


def recorded_request(
    trace: int,
    *tools: str,
    by: str = "framework",
    words: str = "Book it",
    start: int = 0,
    end: int = 1_000,
    service: str = "shop",
    arguments: Any = None,
    **facts: Any,
) -> Seen:
    """A request as one instrumentation records it."""
    common = {"scope": by, "resource": {"service.name": service}}
    root = agent("a", asked=words, start_ns=start, end_ns=end, **common, **in_trace(trace), **facts)
    inner = {"start_ns": start + 1, "end_ns": end - 1, **common, **inside(root)}
    return [root, *(tool(name, arguments, **inner) for name in tools)]


def runs_of(*parts: Seen) -> list[Run]:
    return extract([record for part in parts for record in part])


@pytest.mark.parametrize(
    ("other", "runs"),
    [
        pytest.param(
            recorded_request(2, "x", "y", by="client", start=10, end=990), 1, id="another instrumentation, same time"
        ),
        pytest.param(recorded_request(2, "x", by="client", start=10, end=990), 1, id="that saw only some of the tools"),
        pytest.param(recorded_request(2, by="client", start=10, end=990), 1, id="that saw no tool"),
        pytest.param(recorded_request(2, "x", "y", "z", by="client", start=10, end=990), 1, id="that saw more tools"),
        pytest.param(recorded_request(2, "x", "other", by="client", start=10, end=990), 2, id="that saw other tools"),
        pytest.param(recorded_request(2, "x", "y", start=10, end=990), 2, id="the same instrumentation: two users"),
        pytest.param(recorded_request(2, "x", "y", by="client", start=2_000, end=3_000), 2, id="asked again later"),
        pytest.param(recorded_request(2, "x", "y", by="client", start=500, end=1_500), 2, id="half at the same time"),
        pytest.param(recorded_request(2, "x", "y", by="client", words="Cancel it"), 2, id="other words"),
        pytest.param(recorded_request(2, "x", "y", by="client", service="other"), 2, id="another service"),
    ],
)
def test_two_traces_of_different_instrumentations_with_equal_facts_are_one_request(other: Seen, runs: int) -> None:
    for parts in ((recorded_request(1, "x", "y"), other), (other, recorded_request(1, "x", "y"))):
        assert len(runs_of(*parts)) == runs


def test_the_more_detailed_duplicate_is_kept_and_completed_with_facts_of_the_other() -> None:
    poor = recorded_request(
        1, "x", by="client", gen_ai__conversation__id="s1", gen_ai__output__messages=messages(says("Done."))
    )
    rich = recorded_request(2, "x", arguments={"n": 1})
    (run,) = runs_of(poor, rich)
    assert [call.arguments for call in run.tool_calls] == [{"n": 1}]
    assert (run.session_id, run.output) == ("s1", "Done.")
    assert run.span_id == rich[0].span_id
    assert sorted(run.trace_ids) == sorted({rich[0].trace_id, poor[0].trace_id})
    assert run.health.merged == 1


@pytest.mark.parametrize("first", [1, 2])
def test_a_call_is_an_agent_call_if_either_duplicate_knows_the_agent(first: int) -> None:
    one, other = recorded_request(first, "x", by="client"), recorded_request(3 - first, "x")
    helper = agent("x", scope="framework", start_ns=100, end_ns=200, **inside(other[1]))
    (run,) = runs_of(one, [*other, helper])
    assert [(call.name, call.kind) for call in run.tool_calls] == [("x", "agent")]


def test_two_instrumentations_in_one_trace_are_not_duplicates() -> None:
    first = recorded_request(1, "x")
    second = [SpanRecord(**{name: getattr(each, name) for name in SpanRecord.__dataclass_fields__}) for each in first]
    for each in second:
        each.span_id = f"f{each.span_id[1:]}"
        each.scope = "client"
        each.parent_id = each.parent_id and f"f{each.parent_id[1:]}"
    assert len(extract([*first, *second])) == 2


def test_equal_requests_of_several_users_stay_separate_with_any_number_of_instrumentations() -> None:
    parts = [
        recorded_request(10 * user + number, "x", by=scope, start=50 * user + number, end=2_000 + 50 * user - number)
        for user in range(3)
        for number, scope in enumerate(["framework", "client", "gateway"])
    ]
    runs = runs_of(*parts)
    assert [run.tools_used for run in runs] == [("x",)] * 3
    assert [len(run.trace_ids) for run in runs] == [3] * 3


def test_requests_without_input_or_times_are_not_duplicates() -> None:
    silent = [agent("a", start_ns=1, end_ns=9, scope=scope, **in_trace(at)) for at, scope in enumerate(["s", "t"])]
    assert len(extract(silent)) == 2
    timeless = [agent("a", asked="Hi", start_ns=None, scope=scope, **in_trace(at)) for at, scope in enumerate("st")]
    assert len(extract(timeless)) == 2


def request_with_calls(
    trace: int, *calls: tuple[str, Any, str | None], by: str, words: str | None, start: int = 0
) -> Seen:
    """A request whose calls an instrumentation recorded in sequence, each with its arguments and id."""
    common = {"scope": by, "resource": {"service.name": "shop"}}
    root = agent("a", asked=words, start_ns=start, end_ns=start + 1_000, **common, **in_trace(trace))
    spans = [root]
    for number, (name, arguments, call_id) in enumerate(calls):
        times = {"start_ns": start + 100 * number, "end_ns": start + 100 * number + 90}
        known = {} if call_id is None else made(call_id)
        spans.append(tool(name, arguments, **times, **known, **common, **inside(root)))
    return spans


X, Y, ASK = ("x", {"n": 1}, "c1"), ("y", {"n": 2}, "c2"), ("expert", {"question": "Which one?"}, "c3")


@pytest.mark.parametrize(
    ("left", "runs"),
    [
        pytest.param(request_with_calls(2, X, Y, by="client", words=None), 1, id="its words are lost"),
        pytest.param(request_with_calls(2, X, by="client", words=None), 1, id="and some of its calls"),
        pytest.param(request_with_calls(2, ("x", {"n": 1}, None), by="client", words=None), 1, id="and their ids"),
        pytest.param(
            request_with_calls(2, X, by="client", words="Which one?"), 1, id="the words of a sub-agent are left"
        ),
        pytest.param(
            request_with_calls(2, X, Y, by="client", words="As a user wants: book it"),
            1,
            id="other words, the same ids",
        ),
        pytest.param(request_with_calls(2, by="client", words=None), 2, id="nothing is left of it"),
        pytest.param(request_with_calls(2, ("x", {"n": 2}, None), by="client", words=None), 2, id="other arguments"),
        pytest.param(
            request_with_calls(2, ("x", None, None), by="client", words=None), 2, id="arguments that nobody knows"
        ),
        pytest.param(request_with_calls(2, ("x", {"n": 1}, "c9"), by="client", words=None), 2, id="another id"),
        pytest.param(
            request_with_calls(2, ("x", {"n": 1}, None), by="client", words="Cancel it"),
            2,
            id="other words, and no ids",
        ),
        pytest.param(request_with_calls(2, Y, X, by="client", words=None), 2, id="the same calls at other times"),
        pytest.param(request_with_calls(2, X, Y, by="framework", words=None), 2, id="the same instrumentation"),
    ],
)
def test_a_partial_duplicate_is_recognized_by_its_calls(left: Seen, runs: int) -> None:
    whole = request_with_calls(1, X, Y, ASK, by="framework", words="Book it")
    for parts in ((whole, left), (left, whole)):
        found = runs_of(*parts)
        assert len(found) == runs
        assert "Book it" in [run.input for run in found]


def test_a_partial_duplicate_is_not_merged_with_an_equal_request_of_another_user() -> None:
    calls = [("x", {"n": 1}, None)]
    one = [request_with_calls(at, *calls, by=by, words="Book it") for at, by in enumerate(["framework", "client"])]
    other = [
        request_with_calls(at, *calls, by=by, words=words, start=10)
        for at, by, words in ((2, "framework", "Do"), (3, "client", None))
    ]
    runs = runs_of(*one, *other)
    assert [run.input for run in runs] == ["Book it", "Do"]
    assert [len(run.trace_ids) for run in runs] == [2, 2]


_TIMES = st.none() | st.integers(0, 30)
_CALLS = st.builds(ToolCall, st.sampled_from(["x", "y"]), start_ns=st.just(0), end_ns=st.just(30))
_RUNS = st.builds(
    Run,
    st.sampled_from(["1:a", "2:b", "3:c"]),
    trace_ids=st.sampled_from([("1",), ("2",), ("3",)]),
    input=st.none() | st.sampled_from(["Book it", "Cancel it"]),
    tool_calls=st.lists(_CALLS, max_size=2).map(tuple),
    start_ns=_TIMES,
    end_ns=_TIMES,
)


@given(st.lists(st.tuples(_RUNS, st.sampled_from(["framework", "client", "server"])), max_size=4))
def test_runs_are_not_compared_if_none_of_different_instrumentations_overlap(pairs: list[tuple[Run, str]]) -> None:
    assert merge_duplicate_runs(pairs) == _merge_candidates(pairs)
