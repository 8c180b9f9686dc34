"""Requests that differ from traces: several in one trace, and one in several traces."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from goldspan.extraction import extract
from goldspan.model import Run, SpanRecord
from support.span_builders import (
    agent,
    answers,
    ask_for,
    asks_for,
    in_trace,
    inside,
    made,
    messages,
    model,
    says,
    span,
    system,
    tool,
    user,
)

PARIS, ROME = user("A hotel in Paris?"), user("A hotel in Rome?")


def tools_used(runs: Sequence[Run]) -> list[tuple[str, ...]]:
    return [run.tools_used for run in runs]


def by_input(spans: Sequence[SpanRecord]) -> dict[str | None, tuple[Any, ...]]:
    """The arguments of the tool calls of each request."""
    runs = extract(spans)
    found = {run.input: tuple(call.arguments for call in run.tool_calls) for run in runs}
    assert len(found) == len(runs)
    return found


# Several unmarked requests in one trace.


def test_concurrent_questions_in_one_trace_are_separate_requests() -> None:
    batch = span("batch")
    here = inside(batch)
    spans = [
        batch,
        model(asked=[PARIS], answered=[asks_for("hotels", {"city": "Paris"}, "p1")], **here),
        model(asked=[ROME], answered=[asks_for("hotels", {"city": "Rome"}, "r1")], **here),
        tool("hotels", {"city": "Rome"}, **made("r1"), **here),
        tool("hotels", {"city": "Paris"}, **made("p1"), **here),
        model(asked=[ROME, asks_for("hotels", {"city": "Rome"}, "r1"), answers("r1", 3)], answered=[says("3")], **here),
        model(
            asked=[PARIS, asks_for("hotels", {"city": "Paris"}, "p1"), answers("p1", 5)], answered=[says("5")], **here
        ),
    ]
    assert by_input(spans) == {"A hotel in Paris?": ({"city": "Paris"},), "A hotel in Rome?": ({"city": "Rome"},)}
    runs = extract(spans)
    assert [run.output for run in runs] == ["5", "3"]
    assert all(run.health.split and not run.health.missing_root for run in runs)
    assert len({run.run_id for run in runs}) == 2


def test_without_ids_the_tool_spans_of_concurrent_questions_are_matched_by_arguments() -> None:
    batch = span("batch")
    here = inside(batch)
    spans = [
        batch,
        model(asked=[PARIS], answered=[asks_for("hotels", {"city": "Paris"})], **here),
        model(asked=[ROME], answered=[asks_for("hotels", {"city": "Rome"})], **here),
        tool("hotels", {"city": "Paris"}, **here),
        tool("hotels", {"city": "Rome"}, **here),
    ]
    assert by_input(spans) == {"A hotel in Paris?": ({"city": "Paris"},), "A hotel in Rome?": ({"city": "Rome"},)}


def test_turns_of_a_conversation_in_one_trace_are_separate_requests() -> None:
    chat = span("chat session")
    here = inside(chat)
    first = [PARIS, asks_for("hotels", {"city": "Paris"}, "c1"), answers("c1", "Ritz"), says("The Ritz.")]
    spans = [
        chat,
        model(asked=first[:1], answered=[first[1]], **here),
        tool("hotels", {"city": "Paris"}, **made("c1"), **here),
        model(asked=first[:3], answered=[first[3]], **here),
        model(asked=[*first, user("Thanks!")], answered=[says("Welcome.")], **here),
    ]
    runs = extract(spans)
    assert [(run.input, run.tools_used, run.output) for run in runs] == [
        ("A hotel in Paris?", ("hotels",), "The Ritz."),
        ("Thanks!", (), "Welcome."),
    ]


@pytest.mark.parametrize(
    "turns",
    [
        pytest.param(
            [
                ([system("You plan."), user("A trip to Rome")], [asks_for("search", {"q": 1}, "c1")]),
                ([system("You write."), user("The plan: fly.")], [asks_for("save", {"q": 2}, "c2")]),
            ],
            id="a chain of prompts with different instructions",
        ),
        pytest.param(
            [([user(f"Summarise document {number}")], [says("Short.")]) for number in range(3)],
            id="one prompt for each of several documents, without tools",
        ),
        pytest.param(
            [
                ([user("A trip to Rome")], [asks_for("expert", {"question": "Is Rome nice?"}, "c1")]),
                ([user("Is Rome nice?")], [asks_for("search", {"q": 1}, "c2")]),
            ],
            id="a sub-agent asked with the words of an argument",
        ),
        pytest.param(
            [
                ([user("A trip to Rome")], [asks_for("search", {"q": 1}, "c1")]),
                ([user("Write a title for: A trip to Rome")], [says("Rome")]),
            ],
            id="a title written beside the work",
        ),
        pytest.param(
            [
                ([user("A trip to Rome")], [asks_for("search", {"q": 1}, "c1")]),
                ([user("A trip to Rome")], [asks_for("search", {"q": 2}, "c2")]),
            ],
            id="the same words twice, as after a failure",
        ),
    ],
)
def test_one_request_with_several_different_model_inputs_is_not_split(turns: list[Any]) -> None:
    root = span("pipeline")
    (run,) = extract([root, *(model(asked=asked, answered=answered, **inside(root)) for asked, answered in turns)])
    assert not run.health.split


def test_a_model_inside_a_tool_is_not_a_separate_request() -> None:
    root = span("app")
    asking = model(asked=[PARIS], answered=[asks_for("expert", {"topic": 7}, "c1")], end_ns=10**15, **inside(root))
    delegated = tool("expert", {"topic": 7}, **made("c1"), **inside(asking))
    inner = model(asked=[user("Topic 7")], answered=[asks_for("search", {"q": 1}, "c2")], **inside(delegated))
    (run,) = extract([root, asking, delegated, inner, tool("search", {"q": 1}, **made("c2"), **inside(delegated))])
    assert [call.name for call in run.tool_calls] == ["expert", "search"]


def test_a_top_level_tool_span_whose_parent_is_lost_is_kept_if_the_trace_is_split() -> None:
    lone = tool("first", {"n": 1}, parent_id="e" * 16)
    spans = [
        lone,
        model(asked=[PARIS], answered=[asks_for("x", {"n": 1}, "c1")], parent_id="f" * 16),
        model(asked=[ROME], answered=[asks_for("x", {"n": 2}, "c2")], parent_id="f" * 16),
    ]
    assert sorted(name for run in extract(spans) for name in run.tools_used) == ["first", "x", "x"]


# One request in several traces.


@pytest.mark.parametrize(
    ("asked_id", "history_id", "made_id"),
    [
        pytest.param("c1", "c1", "c1", id="ids everywhere"),
        pytest.param("c1", "c1", None, id="ids in messages only"),
        pytest.param(None, None, "c1", id="ids in spans only"),
        pytest.param(None, None, None, id="no ids"),
        pytest.param("toolu_1", "call_0", None, id="another id in the history than in the answer"),
    ],
)
def test_model_turns_and_tool_spans_in_separate_traces_are_one_request(
    asked_id: str | None, history_id: str | None, made_id: str | None
) -> None:
    arguments = {"city": "Paris"}
    history = [PARIS, asks_for("hotels", arguments, history_id), answers(history_id or "", "Ritz")]
    spans = [
        model(asked=[PARIS], answered=[asks_for("hotels", arguments, asked_id)], **in_trace(1)),
        tool("hotels", arguments, **in_trace(2), **(made(made_id) if made_id else {})),
        model(asked=history, answered=[says("The Ritz.")], **in_trace(3)),
    ]
    (run,) = extract(spans)
    assert (run.input, run.output, run.tools_used) == ("A hotel in Paris?", "The Ritz.", ("hotels",))
    assert run.tool_calls[0].evidence == "executed"
    assert (len(run.trace_ids), run.health.stitched) == (3, 2)


def two_alike(*ids: str | None) -> list[SpanRecord]:
    """Two concurrent requests that are equal in all facts, with a separate trace for each span."""
    spans: list[SpanRecord] = []
    asking = [asks_for("hotels", {"n": 1}, call_id) for call_id in ids]
    spans += [model(asked=[PARIS], answered=[asking[at]], **in_trace(at)) for at in (0, 1)]
    own = [made(call_id) if call_id else {} for call_id in ids]
    spans += [tool("hotels", {"n": 1}, **in_trace(2 + at), **own[at]) for at in (0, 1)]
    for at, call_id in enumerate(ids):
        history = [PARIS, asking[at], answers(call_id or "", "Ritz")]
        spans.append(model(asked=history, answered=[says("The Ritz.")], **in_trace(4 + at)))
    return spans


@pytest.mark.parametrize("ids", [("c1", "c2"), (None, None)], ids=["with ids", "without ids"])
def test_two_concurrent_equal_questions_are_two_requests(ids: tuple[str | None, str | None]) -> None:
    runs = extract(two_alike(*ids))
    assert tools_used(runs) == [("hotels",), ("hotels",)]
    assert [run.health.stitched for run in runs] == [2, 2]


def test_requests_whose_model_reuses_call_ids_stay_separate() -> None:
    spans = []
    for request in range(3):
        asking = asks_for("hotels", {"n": 1}, "call_0")
        spans += [
            model(asked=[PARIS], answered=[asking], **in_trace(10 * request)),
            tool("hotels", {"n": 1}, **made("call_0"), **in_trace(10 * request + 1)),
            model(asked=[PARIS, asking, answers("call_0", 1)], answered=[says("Ritz")], **in_trace(10 * request + 2)),
        ]
    assert tools_used(extract(spans)) == [("hotels",)] * 3


def test_cached_answers_with_the_same_response_id_are_separate_requests() -> None:
    spans = [
        model(asked=[PARIS], answered=[says("The Ritz.")], gen_ai__response__id="r1", **in_trace(number))
        for number in range(3)
    ]
    assert len(extract(spans)) == 3


def test_two_spans_of_one_answer_in_two_traces_are_one_request() -> None:
    asking = [asks_for("hotels", {"n": 1}, "c1")]
    whole = model(asked=[PARIS], answered=asking, gen_ai__response__id="r1", start_ns=100, end_ns=200, **in_trace(1))
    part = model(asked=[PARIS], answered=asking, gen_ai__response__id="r1", start_ns=110, end_ns=190, **in_trace(2))
    assert tools_used(extract([whole, part])) == [("hotels",)]


def test_each_of_many_equal_requests_gets_its_own_tool_span() -> None:
    """There are more requests than extraction compares with each other."""
    spans = []
    for number in range(120):
        asking = asks_for("hotels", {"n": 1}, f"c{number}")
        spans.append(model(asked=[PARIS], answered=[asking], **in_trace(2 * number)))
        spans.append(tool("hotels", {"n": 1}, **in_trace(2 * number + 1)))
    runs = extract(spans)
    assert tools_used(runs) == [("hotels",)] * 120
    assert all(call.evidence == "executed" for run in runs for call in run.tool_calls)


def test_a_lone_tool_span_whose_turn_is_lost_belongs_to_the_turn_with_it_in_its_history() -> None:
    for call_id in ("c1", None):
        known = [PARIS, asks_for("hotels", {"n": 1}, call_id), answers(call_id or "", "Ritz")]
        spans = [
            tool("hotels", {"n": 1}, **in_trace(1), **(made(call_id) if call_id else {})),
            model(asked=known, answered=[says("The Ritz.")], **in_trace(2)),
        ]
        (run,) = extract(spans)
        assert [(call.name, call.evidence) for call in run.tool_calls] == [("hotels", "executed")]


def test_a_lone_tool_span_that_no_turn_requested_is_a_separate_request() -> None:
    spans = [
        model(asked=[PARIS], answered=[asks_for("hotels", {"n": 1}, "c1")], **in_trace(1)),
        tool("refund", {"n": 1}, **in_trace(2)),
    ]
    assert tools_used(extract(spans)) == [("hotels",), ("refund",)]


def test_a_lone_tool_span_before_the_turn_that_requests_an_equal_call_is_a_separate_request() -> None:
    spans = [
        tool("hotels", {"n": 1}, **in_trace(1)),
        model(asked=[PARIS], answered=[asks_for("hotels", {"n": 1})], **in_trace(2)),
    ]
    assert [[call.evidence for call in run.tool_calls] for run in extract(spans)] == [["executed"], ["requested"]]


def test_lone_tool_spans_of_one_session_are_one_request() -> None:
    spans = [
        tool(name, {"n": 1}, gen_ai__conversation__id=session, **in_trace(number))
        for number, (name, session) in enumerate([("a", "s1"), ("b", "s2"), ("c", "s1")])
    ]
    assert tools_used(extract(spans)) == [("a", "c"), ("b",)]


def test_a_lone_agent_span_collects_the_spans_of_its_time_and_its_calls() -> None:
    arguments = {"city": "Paris"}
    done = [PARIS, asks_for("hotels", arguments, "c1"), answers("c1", "Ritz"), says("The Ritz.")]
    frame = agent(
        "graph",
        gen_ai__input__messages=messages(PARIS),
        gen_ai__output__messages=messages(*done[1:]),
        start_ns=1,
        end_ns=10**15,
        **in_trace(1),
    )
    spans = [
        frame,
        model(asked=[PARIS], answered=done[1:2], **in_trace(2)),
        tool("hotels", arguments, **made("c1"), **in_trace(3)),
        model(asked=done[:3], answered=done[3:], **in_trace(4)),
    ]
    (run,) = extract(spans)
    assert (run.span_id, run.agent, run.tools_used) == (frame.span_id, "graph", ("hotels",))
    # A tool span without an id is also matched by its arguments.
    (run,) = extract([frame, tool("hotels", arguments, **in_trace(3))])
    assert [call.evidence for call in run.tool_calls] == ["executed"]


def test_parallel_tool_spans_in_separate_traces_are_concurrent() -> None:
    spans = [
        model(asked=[PARIS], answered=[ask_for(("a", {}, "c1"), ("b", {}, "c2"))], start_ns=1, end_ns=2, **in_trace(1)),
        tool("a", {}, start_ns=10**8, end_ns=10**9, **made("c1"), **in_trace(2)),
        tool("b", {}, start_ns=10**8 + 5, end_ns=10**9, **made("c2"), **in_trace(3)),
    ]
    (run,) = extract(spans)
    assert [call.concurrent_with for call in run.tool_calls] == [(1,), (0,)]


def test_a_sub_agent_in_separate_traces_is_part_of_the_request_that_started_it() -> None:
    spans = [
        model(asked=[PARIS], answered=[asks_for("expert", {"question": "Where?"}, "c1")], **in_trace(1)),
        model(asked=[user("Where?")], answered=[asks_for("search", {"q": 1}, "c2")], **in_trace(2)),
        tool("search", {"q": 1}, **made("c2"), **in_trace(3)),
        model(asked=[PARIS, answers("c1", "There.")], answered=[says("There.")], **in_trace(4)),
    ]
    (run,) = extract(spans)
    assert [(call.name, call.kind, call.agent) for call in run.tool_calls] == [
        ("expert", "agent", None),
        ("search", "tool", "expert"),
    ]


def test_two_requests_that_start_sub_agents_with_equal_inputs_keep_their_own() -> None:
    spans = []
    for which in range(2):
        asking = [asks_for("expert", {"q": "Where?"}, f"e{which}")]
        spans.append(model(asked=[PARIS], answered=asking, **in_trace(10 * which)))
    for which in range(2):
        asking = [asks_for("search", {"q": 1}, f"s{which}")]
        spans.append(model(asked=[user("Where?")], answered=asking, **in_trace(10 * which + 1)))
    spans += [tool("search", {"q": 1}, **made(f"s{which}"), **in_trace(10 * which + 2)) for which in range(2)]
    assert [[call.name for call in run.tool_calls] for run in extract(spans)] == [["expert", "search"]] * 2


def test_a_trace_with_its_own_request_is_not_stitched_to_another() -> None:
    spans = [
        model(asked=[PARIS], answered=[asks_for("hotels", {"n": 1}, "c1")], **in_trace(1)),
        agent("other", asked="Something else", **in_trace(2)),
    ]
    runs = extract(spans)
    assert [run.health.stitched for run in runs] == [0, 0]
    assert tools_used(runs) == [("hotels",), ()]


def test_an_agent_in_a_tool_is_not_a_separate_request_if_all_spans_above_the_tool_are_lost() -> None:
    """This also holds if the model that called it ends later."""
    lost = {"parent_id": "f" * 16}
    turn = model(asked=[user("Go")], answered=[asks_for("t", {"q": "?"})], start_ns=1, end_ns=100, **lost)
    called = tool("t", {"q": "?"}, start_ns=10, end_ns=90, **lost)
    within = agent("b", start_ns=11, end_ns=89, **inside(called))
    inner = model(asked=[user("?")], answered=[asks_for("x", {})], start_ns=12, end_ns=20, **inside(within))
    (run,) = extract([turn, called, within, inner])
    assert (run.input, [call.name for call in run.tool_calls]) == ("Go", ["t", "x"])


def test_a_sub_agent_whose_calling_turn_is_lost_is_known_from_the_history_of_its_caller() -> None:
    root = span("work", start_ns=1, end_ns=100)
    inner = model(asked=[user("?")], answered=[asks_for("x", {}, "c2")], start_ns=10, end_ns=20, **inside(root))
    said = [user("Go"), asks_for("t", {"q": "?"}, "c1"), answers("c1", "!")]
    turn = model(asked=said, answered=[asks_for("y", {}, "c3")], start_ns=30, end_ns=40, **inside(root))
    (run,) = extract([root, inner, turn])
    assert sorted(call.name for call in run.tool_calls) == ["t", "x", "y"]
