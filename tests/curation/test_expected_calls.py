"""Calls, lists, requests and messages of other tools are read in each of their notations, and nothing is guessed."""

from __future__ import annotations

from typing import Any

import pytest

from goldspan.curation.importing.expected_calls import (
    calls_of_messages,
    parse_arguments,
    parse_expected_call,
    parse_list,
    request_text,
)
from goldspan.errors import GoldenError
from goldspan.model import ExpectedTool
from goldspan.model.value_matchers import Equal


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (" search ", ExpectedTool("search")),
        ({"name": "search"}, ExpectedTool("search")),
        ({"toolName": "search", "args": {"city": "Rome"}}, ExpectedTool("search", {"city": "Rome"}, match="subset")),
        (
            {"type": "function", "function": {"name": "search", "arguments": '{"city": "Rome"}'}},
            ExpectedTool("search", {"city": "Rome"}, match="subset"),
        ),
        ({"name": "search", "arguments": "  "}, ExpectedTool("search")),
    ],
)
def test_a_call_is_a_name_or_a_mapping_in_several_notations(value: Any, expected: ExpectedTool) -> None:
    assert parse_expected_call(value, match="subset") == expected


def test_arguments_can_be_left_out() -> None:
    assert parse_expected_call({"name": "search", "args": "{"}, with_arguments=False) == ExpectedTool("search")


@pytest.mark.parametrize("value", [" ", 7, None, [], {}, {"name": " "}, {"name": 7}, {"function": {}}])
def test_anything_else_is_no_call(value: Any) -> None:
    with pytest.raises(GoldenError, match="is not a tool call"):
        parse_expected_call(value)


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ('{"city": ', "are not JSON"),
        ("[1]", "are not a mapping"),
        ([("city", "Rome")], "are not a mapping"),
        ({1: "Rome"}, "are not a mapping"),
    ],
)
def test_arguments_that_are_no_mapping_are_refused(value: Any, problem: str) -> None:
    with pytest.raises(GoldenError, match=f"the arguments .* {problem}"):
        parse_arguments(value)


def test_arguments_that_look_like_a_matcher_are_compared_literally() -> None:
    assert parse_arguments({"how": {"regex": "x"}, "n": 1}) == {"how": Equal({"regex": "x"}), "n": 1}
    assert parse_arguments("null") is None


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("search; book ;", ["search", "book"]),
        ('["search", {"name": "book"}]', ["search", {"name": "book"}]),
        ("[search", None),
        (("search",), ["search"]),
        ("", []),
        ({"name": "search"}, None),
        (None, None),
    ],
)
def test_a_list_is_json_or_names_with_semicolons(value: Any, expected: Any) -> None:
    assert parse_list(value) == expected


PARTS = [{"type": "text", "text": "Book"}, {"type": "image"}, {"type": "text", "text": "it."}]


@pytest.mark.parametrize(
    ("inputs", "text"),
    [
        ("Book it.", "Book it."),
        (
            [{"role": "user", "content": "Hi."}, {"role": "user", "content": "Book it."}, {"role": "assistant"}],
            "Book it.",
        ),
        ([{"type": "human", "content": PARTS}, "a text"], "Book it."),
        ([{"role": "user", "content": 7}], None),
        ([{"role": "system", "content": "Be brief."}], None),
        ({"note": "x", "Question": "Book it."}, "Book it."),
        ({"note": "x", "other": "y", "messages": [{"role": "user", "content": "Book it."}]}, "Book it."),
        ({"note": "Book it.", "number": 7}, "Book it."),
        ({"state": {"query": "Book it."}}, "Book it."),
        ({"note": "x", "other": "y"}, None),
        ({"state": {"query": "x"}, "other": {"query": "y"}}, None),
        (7, None),
    ],
)
def test_the_request_is_a_text_a_usual_key_the_only_text_or_the_last_message(inputs: Any, text: str | None) -> None:
    assert request_text(inputs) == text


def test_calls_are_read_from_the_messages_of_several_tools() -> None:
    openai = {"role": "assistant", "tool_calls": [{"function": {"name": "search"}}]}
    anthropic = {
        "role": "assistant",
        "content": [{"type": "text", "text": "x"}, "y", {"type": "tool_use", "name": "book"}],
    }
    messages = ["a text", {"role": "user", "content": "Book it."}, openai, anthropic, {"tool_calls": None}]
    assert [parse_expected_call(call).name for call in calls_of_messages(messages)] == ["search", "book"]
    assert list(calls_of_messages("no messages")) == []
