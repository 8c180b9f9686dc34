"""Message histories that repeat: the cache of messages changes no result."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goldspan.content import messages
from goldspan.content import messages as histories
from goldspan.content.parts import Messages

QUESTION = {"role": "user", "parts": [{"type": "text", "content": "Book a hotel [in Paris], please"}]}
CALL = {"role": "assistant", "parts": [{"type": "tool_call", "id": "c1", "name": "book", "arguments": {"n": [1]}}]}
RESULT = {"role": "tool", "parts": [{"type": "tool_call_response", "id": "c1", "response": "ok]"}]}
ANSWER = {"role": "assistant", "content": "Booked."}
ITEMS = [QUESTION, CALL, RESULT, ANSWER]


def flattened(items: list[dict[str, Any]]) -> dict[str, str]:
    return {f"p.{n}.{key}": json.dumps(value) for n, item in enumerate(items) for key, value in item.items()}


@pytest.mark.parametrize(
    "read",
    [
        pytest.param(lambda items: messages.from_json(json.dumps(items)), id="JSON"),
        pytest.param(lambda items: messages.from_flat(flattened(items), "p"), id="flattened"),
    ],
)
def test_only_the_new_messages_of_an_extended_history_are_read(read: Any) -> None:
    with histories.cache_histories():
        before, after = read(ITEMS[:3]), read(ITEMS)
    assert all(old is new for old, new in zip(before, after, strict=False))
    assert after == read(ITEMS)


@pytest.mark.parametrize(
    "read",
    [
        pytest.param(lambda items: messages.from_json(json.dumps(items)), id="JSON list"),
        pytest.param(lambda items: messages.from_json(json.dumps({"messages": items})), id="JSON object"),
        pytest.param(lambda items: messages.from_flat(flattened(items), "p"), id="flattened"),
    ],
)
def test_a_message_is_read_once_even_if_many_others_are_read_in_between(read: Any) -> None:
    others = [[{"role": "user", "content": f"Question {n}"}, ANSWER] for n in range(20)]
    with histories.cache_histories():
        first = read(ITEMS)
        for items in others:
            read(items)
        again = read(ITEMS)
    assert all(old is new for old, new in zip(first, again, strict=True))


def test_a_full_cache_is_emptied_and_messages_are_read_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(histories, "_MAX_TEXTS", 2)
    asked = [[{"role": "user", "content": f"Question {n}"}] for n in (1, 2, 3, 1)]
    alone = [(messages.from_json(json.dumps(items)), messages.from_flat(flattened(items), "p")) for items in asked]
    with histories.cache_histories():
        read = [(messages.from_json(json.dumps(items)), messages.from_flat(flattened(items), "p")) for items in asked]
        cache = histories._active_cache.get()
        assert cache is not None
        assert len(cache.messages_by_text) <= 2
        assert len(cache.message_by_row) <= 2
    assert read == alone


def test_the_cache_is_bounded_by_the_length_of_the_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(histories, "_MAX_CACHED_CHARS", 1_000)
    with histories.cache_histories():
        cache = histories._active_cache.get()
        assert cache is not None
        for number in range(50):
            items = [{"role": "user", "content": f"Question {number:0200}"}]
            (one,), (other,) = messages.from_json(json.dumps(items)), messages.from_flat(flattened(items), "p")
            assert f"{number:0200}" in str(one.text)
            assert f"{number:0200}" in str(other.text)
            assert sum(map(len, cache.messages_by_text)) + 200 * len(cache.message_by_row) <= 1_000
            assert cache.message_by_row


def test_a_block_inside_another_uses_its_cache() -> None:
    with histories.cache_histories():
        with histories.cache_histories():
            inside = messages.from_json(json.dumps(ITEMS))
        assert messages.from_json(json.dumps(ITEMS))[0] is inside[0]


def test_values_that_are_equal_but_differ_in_type_are_not_confused() -> None:
    def argument(value: object) -> object:
        flat = {"p.0.role": "assistant", "p.0.tool_calls.0.name": "pay", "p.0.tool_calls.0.arguments": value}
        return messages.from_flat(flat, "p")[0].tool_calls[0].arguments

    with histories.cache_histories():
        assert [type(argument(value)) for value in (1, True, 1.0)] == [int, bool, float]


def test_the_cache_is_empty_after_the_request() -> None:
    with histories.cache_histories():
        inside = messages.from_json(json.dumps(ITEMS))
    assert messages.from_json(json.dumps(ITEMS))[0] is not inside[0]


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(json.dumps(ITEMS[:2])[:-1] + " \n, " + json.dumps(RESULT) + "]", id="space around the comma"),
        pytest.param(json.dumps(ITEMS[:2])[:-1] + "\n]", id="space before the end"),
        pytest.param(json.dumps(ITEMS[:2])[:-1] + ",]", id="a comma too many"),
        pytest.param(json.dumps(ITEMS[:2])[:-1] + "," + json.dumps(RESULT)[:-9], id="cut off"),
        pytest.param(json.dumps(ITEMS[:2])[:-1] + "}]", id="another bracket"),
        pytest.param(json.dumps(ITEMS[:2])[:-1] + ', {"role": "user", "content": None}]', id="Python in the end"),
        pytest.param(json.dumps(ITEMS[:2]) + json.dumps(ITEMS[:2]), id="twice"),
        pytest.param(json.dumps(ITEMS[:2]), id="the same"),
        pytest.param(json.dumps(ITEMS[:1]), id="its beginning"),
    ],
)
def test_text_that_begins_like_a_cached_history_is_read_as_without_the_cache(text: str) -> None:
    alone = messages.from_json(text)
    with histories.cache_histories():
        messages.from_json(json.dumps(ITEMS[:2]))
        assert messages.from_json(text) == alone


turns = st.lists(st.tuples(st.booleans(), st.lists(st.sampled_from(ITEMS), max_size=6)), max_size=25)


@given(turns)
def test_cached_messages_change_no_later_message(turns: list[tuple[bool, list[dict[str, Any]]]]) -> None:
    def read(as_json: bool, items: list[dict[str, Any]]) -> Messages:
        return messages.from_json(json.dumps(items)) if as_json else messages.from_flat(flattened(items), "p")

    alone = [read(*turn) for turn in turns]
    with histories.cache_histories():
        assert [read(*turn) for turn in turns] == alone


def test_an_attribute_with_several_values_is_decoded_each_time() -> None:
    flat = {"p.0.role": "user", "p.0.contents": [{"type": "text", "text": "Hello."}]}
    with histories.cache_histories():
        first, again = messages.from_flat(flat, "p"), messages.from_flat(flat, "p")
        cache = histories._active_cache.get()
        assert cache is not None
        assert not cache.message_by_row
    assert first == again
    assert [message.text for message in first] == ["Hello."]
