"""Threads of model turns that continue each other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goldspan.content.messages import from_json
from goldspan.conventions import installed_conventions
from goldspan.extraction.model_turns import (
    TurnSequence,
    _group_with_index,
    calls_since_user,
    find_model_turns,
    group_turns,
)
from goldspan.extraction.span_tree import build_trees
from goldspan.model import SpanRecord
from support.span_builders import agent, answers, ask_for, asks_for, inside, messages, model, says, span, tool, user

ROME, PARIS = user("Rome?"), user("Paris?")


def threads_in(spans: Sequence[SpanRecord]) -> list[TurnSequence]:
    roots = build_trees(spans, conventions=installed_conventions())
    return group_turns(find_model_turns(node for root in roots for node in root.walk()))


def span_indexes(spans: Sequence[SpanRecord], found: Sequence[TurnSequence]) -> list[list[int]]:
    """The indexes of the spans that are the turns of each thread."""
    place = {span.span_id: at for at, span in enumerate(spans)}
    return [[place[turn.node.span.span_id] for turn in thread.turns] for thread in found]


@pytest.mark.parametrize(
    ("turns", "expected"),
    [
        pytest.param(
            [([ROME], [asks_for("x", {}, "c1")]), ([ROME, asks_for("x", {}, "c1"), answers("c1", 1)], [says("Yes.")])],
            [[0, 1]],
            id="the id of a call in the history",
        ),
        pytest.param(
            [([ROME], [asks_for("x", {})]), ([ROME, asks_for("x", {}), answers("", 1)], [says("Yes.")])],
            [[0, 1]],
            id="the same history, grown",
        ),
        pytest.param(
            [([ROME], [asks_for("x", {}, "c1")]), ([answers("c1", 1)], [says("Yes.")])],
            [[0, 1]],
            id="only the answer is sent, the rest is kept by the provider",
        ),
        pytest.param(
            [([ROME], []), ([ROME], [says("Yes.")])],
            [[0, 1]],
            id="tried again after a failure",
        ),
        pytest.param(
            [([ROME], [says("One.")]), ([ROME], [says("Two.")])],
            [[0], [1]],
            id="the same question, answered twice",
        ),
        pytest.param(
            [([ROME], [says("Step 1.")]), ([ROME, says("Step 1."), user("Go on.")], [says("Step 2.")])],
            [[0], [1]],
            id="the user has said more",
        ),
        pytest.param(
            [([ROME], [says("Let me see.")]), ([ROME, says("Let me see."), says("Well.")], [says("Yes.")])],
            [[0, 1]],
            id="an agent that goes on without calling a tool",
        ),
        pytest.param(
            [
                ([ROME], [says("Done.")]),
                ([ROME], [asks_for("x", {})]),
                ([ROME, asks_for("x", {}), answers("", 1)], [says("Yes.")]),
            ],
            [[0], [1, 2]],
            id="beside a dialogue of the same words that is over",
        ),
        pytest.param(
            [
                ([ROME], [asks_for("x", {"n": 1})]),
                ([ROME], [asks_for("x", {"n": 2})]),
                ([ROME, asks_for("x", {"n": 1}), answers("", 1)], [says("One.")]),
                ([ROME, asks_for("x", {"n": 2}), answers("", 1)], [says("Two.")]),
            ],
            [[0, 2], [1, 3]],
            id="two of the same words, by the arguments of their calls",
        ),
        pytest.param(
            [
                ([ROME], [asks_for("x", {}, "call_0")]),
                ([PARIS], [asks_for("x", {}, "call_0")]),
                ([ROME, asks_for("x", {}, "call_0"), answers("call_0", 1)], [says("Yes.")]),
            ],
            [[0, 2], [1]],
            id="ids that both dialogues use, by the words",
        ),
    ],
)
def test_a_turn_continues_the_thread_whose_messages_it_repeats(turns: list[Any], expected: list[list[int]]) -> None:
    spans = [model(asked=asked, answered=answered) for asked, answered in turns]
    assert span_indexes(spans, threads_in(spans)) == expected


def test_further_user_messages_make_the_next_turn_of_a_conversation() -> None:
    spans = [
        model(asked=[ROME], answered=[says("Yes.")]),
        model(asked=[ROME, says("Yes."), PARIS], answered=[says("No.")]),
        model(asked=[user("Something else")], answered=[says("Well.")]),
    ]
    assert [thread.in_conversation for thread in threads_in(spans)] == [True, True, False]


def test_a_conversation_is_recognized_even_if_turns_between_are_lost() -> None:
    later = [ROME, says("Yes."), PARIS, says("No."), user("Oslo?")]
    spans = [model(asked=[ROME], answered=[says("Yes.")]), model(asked=later, answered=[says("Well.")])]
    assert [thread.in_conversation for thread in threads_in(spans)] == [True, True]


def test_a_user_message_equal_to_an_argument_starts_one_sub_agent_for_each_call() -> None:
    spans = [
        model(asked=[ROME], answered=[ask_for(("expert", {"q": "Why?"}, "c1"), ("expert", {"q": "Why?"}, "c2"))]),
        model(asked=[user("Why?")], answered=[says("So.")]),
        model(asked=[user("Why?")], answered=[says("So.")]),
        model(asked=[user("How?")], answered=[says("Thus.")]),
    ]
    found = threads_in(spans)
    assert [thread.parent is found[0] for thread in found] == [False, True, True, False]


def test_a_model_turn_before_the_call_is_not_its_sub_agent() -> None:
    spans = [
        model(asked=[user("Why?")], answered=[says("So.")]),
        model(asked=[ROME], answered=[asks_for("expert", {"q": "Why?"}, "c1")]),
    ]
    assert [thread.parent for thread in threads_in(spans)] == [None, None]


def test_a_thread_that_passes_its_own_input_on_causes_no_cycle() -> None:
    spans = [model(asked=[ROME], answered=[asks_for("again", {"q": "Rome?"}, f"c{at}")]) for at in range(3)]
    found = threads_in(spans)
    assert [found.index(thread.parent) if thread.parent else None for thread in found] == [None, 0, 1]


def test_the_outermost_nested_model_span_with_messages_is_the_turn() -> None:
    silent = span("client", gen_ai__operation__name="chat", end_ns=10**15)
    speaking = model(asked=[ROME], answered=[says("Yes.")], end_ns=10**14, **inside(silent))
    between = span("http", **inside(speaking))
    repeated = model(asked=[ROME], answered=[says("Yes.")], **inside(between))
    assert span_indexes([silent, speaking, repeated], threads_in([silent, speaking, between, repeated])) == [[1]]


def test_a_model_inside_a_tool_or_agent_inside_a_model_span_is_a_separate_turn() -> None:
    outer = model(asked=[ROME], answered=[asks_for("expert", {}, "c1")], end_ns=10**15)
    delegated = tool("expert", {}, end_ns=10**14, **inside(outer))
    silent = span("client", gen_ai__operation__name="chat", end_ns=10**13, **inside(delegated))
    inner = model(asked=[PARIS], answered=[says("Yes.")], **inside(silent))
    helper = agent("a", end_ns=10**14, **inside(outer))
    helped = model(asked=[user("Oslo?")], answered=[says("Yes.")], **inside(helper))
    spans = [outer, delegated, silent, inner, helper, helped]
    assert span_indexes(spans, threads_in(spans)) == [[0], [3], [5]]


def test_only_calls_after_the_last_user_message_belong_to_the_current_request() -> None:
    said = [ROME, asks_for("old", {}, "c1"), answers("c1", 1), PARIS, asks_for("new", {}, "c2")]
    assert [call.name for call in calls_since_user(from_json(messages(*said)))] == ["new"]
    assert [call.name for call in calls_since_user(from_json(messages(*said[1:3])))] == ["old"]
    handed_back = {"role": "user", "parts": [{"type": "tool_call_response", "id": "c2", "response": 3}]}
    assert [call.name for call in calls_since_user(from_json(messages(*said, handed_back)))] == ["new"]


_TURNS = st.lists(
    st.tuples(
        st.lists(st.sampled_from(["Go", "Stop"]), min_size=1, max_size=2),
        st.lists(st.sampled_from(["a", "b"]), max_size=3),
        st.sampled_from(["a", "b"]),
        st.booleans(),
    ),
    max_size=4,
)


@given(_TURNS)
def test_turns_are_grouped_without_an_index_as_with_one(steps: list[tuple[list[str], list[str], str, bool]]) -> None:
    spans = [
        model(
            asked=[*map(user, texts), *(asks_for("x", {"n": name}, name if has_id else None) for name in history)],
            answered=[asks_for("x", {"n": output}, output if has_id else None)],
            start_ns=number,
            end_ns=number,
        )
        for number, (texts, history, output, has_id) in enumerate(steps)
    ]
    roots = build_trees(spans, conventions=installed_conventions())
    turns = find_model_turns(node for root in roots for node in root.walk())
    assert [as_values(each) for each in group_turns(turns)] == [as_values(each) for each in _group_with_index(turns)]


def as_values(sequence: TurnSequence) -> tuple[Any, ...]:
    parent = sequence.parent and [turn.number for turn in sequence.parent.turns]
    return [turn.number for turn in sequence.turns], parent, sequence.in_conversation
