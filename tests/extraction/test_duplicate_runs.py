"""One request seen by two instrumentations, and requests that only look like that."""

from __future__ import annotations

from typing import Any

import pytest

from goldspan.extraction import extract
from goldspan.model import Run, SpanRecord
from support.span_builders import agent, in_trace, inside, made, messages, says, tool

Seen = list[SpanRecord]


def seen(
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
    """A request as one instrumentation tells it."""
    common = {"scope": by, "resource": {"service.name": service}}
    root = agent("a", asked=words, start_ns=start, end_ns=end, **common, **in_trace(trace), **facts)
    inner = {"start_ns": start + 1, "end_ns": end - 1, **common, **inside(root)}
    return [root, *(tool(name, arguments, **inner) for name in tools)]


def runs_of(*parts: Seen) -> list[Run]:
    return extract([record for part in parts for record in part])


@pytest.mark.parametrize(
    ("other", "runs"),
    [
        pytest.param(seen(2, "x", "y", by="client", start=10, end=990), 1, id="another instrumentation, same time"),
        pytest.param(seen(2, "x", by="client", start=10, end=990), 1, id="that saw only some of the tools"),
        pytest.param(seen(2, by="client", start=10, end=990), 1, id="that saw no tool"),
        pytest.param(seen(2, "x", "y", "z", by="client", start=10, end=990), 1, id="that saw more tools"),
        pytest.param(seen(2, "x", "other", by="client", start=10, end=990), 2, id="that saw other tools"),
        pytest.param(seen(2, "x", "y", start=10, end=990), 2, id="the same instrumentation: two users"),
        pytest.param(seen(2, "x", "y", by="client", start=2_000, end=3_000), 2, id="asked again later"),
        pytest.param(seen(2, "x", "y", by="client", start=500, end=1_500), 2, id="half at the same time"),
        pytest.param(seen(2, "x", "y", by="client", words="Cancel it"), 2, id="other words"),
        pytest.param(seen(2, "x", "y", by="client", service="other"), 2, id="another service"),
    ],
)
def test_two_traces_are_one_request_where_two_instrumentations_saw_the_same(other: Seen, runs: int) -> None:
    for parts in ((seen(1, "x", "y"), other), (other, seen(1, "x", "y"))):
        assert len(runs_of(*parts)) == runs


def test_the_one_that_knows_more_stays_and_is_told_what_only_the_other_knew() -> None:
    poor = seen(1, "x", by="client", gen_ai__conversation__id="s1", gen_ai__output__messages=messages(says("Done.")))
    rich = seen(2, "x", arguments={"n": 1})
    (run,) = runs_of(poor, rich)
    assert [call.arguments for call in run.tool_calls] == [{"n": 1}]
    assert (run.session_id, run.output) == ("s1", "Done.")
    assert run.span_id == rich[0].span_id
    assert sorted(run.trace_ids) == sorted({rich[0].trace_id, poor[0].trace_id})
    assert run.health.merged == 1


@pytest.mark.parametrize("first", [1, 2])
def test_what_only_one_of_them_knows_to_be_an_agent_is_one_whichever_knows_more_otherwise(first: int) -> None:
    one, other = seen(first, "x", by="client"), seen(3 - first, "x")
    helper = agent("x", scope="framework", start_ns=100, end_ns=200, **inside(other[1]))
    (run,) = runs_of(one, [*other, helper])
    assert [(call.name, call.kind) for call in run.tool_calls] == [("x", "agent")]


def test_one_instrumentation_in_one_trace_twice_is_no_twin_of_itself() -> None:
    first = seen(1, "x")
    second = [SpanRecord(**{name: getattr(each, name) for name in SpanRecord.__dataclass_fields__}) for each in first]
    for each in second:
        each.span_id = f"f{each.span_id[1:]}"
        each.scope = "client"
        each.parent_id = each.parent_id and f"f{each.parent_id[1:]}"
    assert len(extract([*first, *second])) == 2


def test_two_users_who_ask_the_same_at_the_same_time_are_two_with_any_number_of_instrumentations() -> None:
    parts = [
        seen(10 * user + number, "x", by=scope, start=50 * user + number, end=2_000 + 50 * user - number)
        for user in range(3)
        for number, scope in enumerate(["framework", "client", "gateway"])
    ]
    runs = runs_of(*parts)
    assert [run.tools_used for run in runs] == [("x",)] * 3
    assert [len(run.trace_ids) for run in runs] == [3] * 3


def test_requests_without_known_words_or_times_are_no_twins() -> None:
    silent = [agent("a", start_ns=1, end_ns=9, scope=scope, **in_trace(at)) for at, scope in enumerate(["s", "t"])]
    assert len(extract(silent)) == 2
    timeless = [agent("a", asked="Hi", start_ns=None, scope=scope, **in_trace(at)) for at, scope in enumerate("st")]
    assert len(extract(timeless)) == 2


def did(trace: int, *calls: tuple[str, Any, str | None], by: str, words: str | None, start: int = 0) -> Seen:
    """A request of which an instrumentation saw the calls, one after the other, each with its arguments and id."""
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
        pytest.param(did(2, X, Y, by="client", words=None), 1, id="its words are lost"),
        pytest.param(did(2, X, by="client", words=None), 1, id="and some of its calls"),
        pytest.param(did(2, ("x", {"n": 1}, None), by="client", words=None), 1, id="and their ids"),
        pytest.param(did(2, X, by="client", words="Which one?"), 1, id="the words of a sub-agent are left"),
        pytest.param(did(2, X, Y, by="client", words="As a user wants: book it"), 1, id="other words, the same ids"),
        pytest.param(did(2, by="client", words=None), 2, id="nothing is left of it"),
        pytest.param(did(2, ("x", {"n": 2}, None), by="client", words=None), 2, id="other arguments"),
        pytest.param(did(2, ("x", None, None), by="client", words=None), 2, id="arguments that nobody knows"),
        pytest.param(did(2, ("x", {"n": 1}, "c9"), by="client", words=None), 2, id="another id"),
        pytest.param(did(2, ("x", {"n": 1}, None), by="client", words="Cancel it"), 2, id="other words, and no ids"),
        pytest.param(did(2, Y, X, by="client", words=None), 2, id="the same calls at other times"),
        pytest.param(did(2, X, Y, by="framework", words=None), 2, id="the same instrumentation"),
    ],
)
def test_what_is_left_of_a_twin_is_known_by_its_calls(left: Seen, runs: int) -> None:
    whole = did(1, X, Y, ASK, by="framework", words="Book it")
    for parts in ((whole, left), (left, whole)):
        found = runs_of(*parts)
        assert len(found) == runs
        assert "Book it" in [run.input for run in found]


def test_what_is_left_of_a_twin_is_not_given_to_another_user_who_did_the_same() -> None:
    calls = [("x", {"n": 1}, None)]
    one = [did(at, *calls, by=by, words="Book it") for at, by in enumerate(["framework", "client"])]
    other = [
        did(at, *calls, by=by, words=words, start=10) for at, by, words in ((2, "framework", "Do"), (3, "client", None))
    ]
    runs = runs_of(*one, *other)
    assert [run.input for run in runs] == ["Book it", "Do"]
    assert [len(run.trace_ids) for run in runs] == [2, 2]
