"""What a difference says of the matcher that would have accepted the value."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import goldspan
from goldspan import Golden, Run, evaluate
from goldspan.model import ExpectedTool, ToolCall
from goldspan.model.rendering import render_row
from goldspan.model.value_matchers import Approx, Contains, Folded, Unordered
from goldspan.scoring.arguments.agreement import argument_agreement
from goldspan.scoring.arguments.matcher_evaluation import agrees
from goldspan.scoring.arguments.matcher_hints import matcher_hint
from goldspan.sinks.redaction import ArgumentFilter

TYPES = "differs only in type: `parameters`, a JSON schema of the arguments, makes both the same"
DATES = "is the same date in another notation: {one_of: [...]} accepts both"


@pytest.mark.parametrize(
    ("expected", "called", "said"),
    [
        ("Berlin", "berlin", "differs only in case: {folded: ...} accepts it"),
        ("New York", "New  York ", "differs only in white space: {folded: ...} accepts it"),
        ("New York", "new  york", "differs only in case and white space: {folded: ...} accepts it"),
        ("5", 5, TYPES),
        (5.5, "5.5", TYPES),
        ("true", True, TYPES),
        ([1, 2], "[1, 2]", TYPES),
        ([1, 2], [2, 1], "differs only in the order of its items: {unordered: [...]} accepts it"),
        ([1, 2], (3, 2, 1), "holds the expected items and more: {contains: [...]} accepts it"),
        (2.0, 2.000001, "differs by less than a millionth: {approx: ...} accepts it"),
        (2.0, 2.001, "differs by about a thousandth or less: {approx: ..., relative: 0.001} accepts it"),
        ("refund", "a refund please", "holds the expected text and more: {contains: ...} accepts it"),
        ("2025-03-01", "20250301", DATES),
        ("2025-03-01", "2025-03-01T00:00:00", DATES),
        ("2025-03-01T12:00:00Z", "2025-03-01 14:00:00.000+02:00", DATES),
        ("2025-03-01T12:00:00Z", "2025-03-01T12:00:00", None),
        ("2025-13-01", "20251301", None),
        ("a", "b", None),
        ("a", "a car", None),
        ("a refund", "refund", None),
        (1001, 1002, None),
        (1.0, 2.0, None),
        ("x", 5, None),
        (True, 1, None),
        (None, "", None),
        ([], [1], None),
        ([1, 2], [1], None),
    ],
)
def test_a_difference_names_the_matcher_that_accepts_the_value(expected: Any, called: Any, said: str | None) -> None:
    assert matcher_hint(expected, called) == said
    told = argument_agreement(ExpectedTool("t", arguments={"a": expected}), ToolCall("t", arguments={"a": called}))
    assert told is not None
    assert [difference.hint for difference in told.differences] == [said]


TEXTS = st.text("aAb \u00e9e\u0301\u00df", max_size=6)
NUMBERS = st.sampled_from([1.0, 1e-9, 7.7]).flatmap(
    lambda base: st.tuples(st.just(base), st.floats(-2e-3, 2e-3).map(lambda share: base * (1 + share)))
)
LISTS = st.lists(st.sampled_from([1, 2.5, "a", None]), max_size=4)
MATCHERS = {"folded": Folded, "contains": Contains, "unordered": lambda value: Unordered(tuple(value))}


@given(st.tuples(TEXTS, TEXTS) | NUMBERS | st.tuples(LISTS, LISTS))
def test_the_matcher_that_is_named_accepts_the_value(pair: tuple[Any, Any]) -> None:
    expected, called = pair
    said = matcher_hint(expected, called)
    if said is not None and not agrees(expected, called):
        word = said.split("{")[1].split(":")[0]
        matcher = (
            Approx(expected, relative=0.001 if "relative" in said else None)
            if word == "approx"
            else MATCHERS[word](expected)
        )
        assert agrees(matcher, called)


class Hostile(str):
    def __eq__(self, other: object) -> bool:
        raise RuntimeError("no")

    __hash__ = str.__hash__


def test_hostile_and_endless_values_have_no_hint() -> None:
    endless: list[Any] = []
    endless.append(endless)
    deep: list[Any] = []
    for _ in range(10_000):
        deep = [deep]
    hostile = [Hostile("a"), object(), endless, [Hostile("a")], deep, "a" * 20_000, [1] * 2_000, 10**5000, b"a"]
    for one in hostile:
        for other in [*hostile, "A", 1, 1.5, [1], None]:
            assert matcher_hint(one, other) is None or one is other or one == [1] * 2_000


def test_a_hint_is_for_the_first_differences_only() -> None:
    keys = [f"k{at}" for at in range(100)]
    told = argument_agreement(
        ExpectedTool("t", arguments=dict.fromkeys(keys, "A")), ToolCall("t", arguments=dict.fromkeys(keys, "a"))
    )
    assert told is not None
    assert [difference.hint is not None for difference in told.differences] == [True] * 20 + [False] * 80


def test_a_hint_is_shown_with_the_values() -> None:
    comparison = goldspan.compare(
        [{"name": "t", "args": {"city": "berlin"}}], [{"name": "t", "args": {"city": "Berlin"}}]
    )
    (line,) = [render_row(row, values=True) for row in comparison.rows]
    said = "city: expected 'Berlin', called with 'berlin' (differs only in case: {folded: ...} accepts it)"
    assert [str(each) for each in line.differences] == [said]


def test_a_hint_outlives_redaction_and_holds_no_value() -> None:
    golden = Golden("g", tools=(ExpectedTool("t", {"city": "Secret"}),))
    evaluated = evaluate(Run("r", tool_calls=(ToolCall("t", arguments={"city": "sECRET"}),)), golden)
    comparison = ArgumentFilter()(evaluated).comparison
    assert comparison is not None
    (pair,) = comparison.rows
    assert pair.agreement is not None
    (difference,) = pair.agreement.differences
    assert "secret" not in f"{difference.expected}{difference.called}{difference.hint}".lower()
    assert difference.hint == "differs only in case: {folded: ...} accepts it"
