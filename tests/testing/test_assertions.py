"""Tests of `assert_tools`, which people call inside their own tests."""

from __future__ import annotations

import unittest

import pytest

import goldspan
from goldspan import assert_tools
from goldspan.errors import GoldspanError
from goldspan.testing.assertions import ToolsAssertionError, failure_text

PARIS = {"name": "search", "arguments": {"city": "Paris", "nights": 2}}
ROME = {"name": "search", "arguments": {"city": "Rome", "nights": 2}}


def test_assert_tools_returns_the_evaluation_of_a_run_that_passes() -> None:
    evaluation = assert_tools([PARIS, "book"], [PARIS, "book"])
    assert evaluation.passed is True
    assert evaluation == goldspan.evaluate([PARIS, "book"], [PARIS, "book"])


def test_the_message_of_a_failure_starts_with_the_reason_and_aligns_both_sides() -> None:
    with pytest.raises(ToolsAssertionError) as caught:
        assert_tools([ROME, "cancel"], [PARIS, "book"])
    assert str(caught.value).splitlines() == [
        "Expected book was not called; cancel was called but not expected; search differs in city.",
        "",
        "    expected             called",
        "    search             ≠ search (city)",
        "    book               ✗ —",
        "    —                  + cancel",
        "    search.city: expected 'Paris', called with 'Rome'",
        "",
        "≠ differs   ✗ missing   + not expected",
    ]
    assert caught.value.evaluation.score("tool_recall").value == 0.5


def test_a_run_that_cannot_be_evaluated_fails_the_assertion() -> None:
    with pytest.raises(AssertionError, match="not evaluated: the arguments of search were not captured"):
        assert_tools(["search"], [PARIS])
    assert assert_tools(["search"], [PARIS], unknown="ignore").passed


def test_calls_without_a_golden_fail_the_assertion() -> None:
    with pytest.raises(AssertionError, match="none was given"):
        assert_tools(["search"], None)


def test_no_call_and_no_expectation_pass() -> None:
    assert assert_tools([], []).passed
    with pytest.raises(AssertionError, match="No tool was expected; search was called"):
        assert_tools(["search"], [])


@pytest.mark.parametrize(
    ("rules", "passes"),
    [
        ({}, True),
        ({"order": "in_order"}, False),
        ({"forbid": ["sea*"]}, False),
        ({"max_calls": 1}, False),
        ({"order": "any", "max_calls": 2}, True),
    ],
)
def test_assert_tools_takes_the_keys_of_a_golden(rules: dict[str, object], passes: bool) -> None:
    called, expected = ["book", "search"], ["search", "book"]
    if passes:
        assert_tools(called, expected, **rules)  # type: ignore[arg-type]
        return
    with pytest.raises(AssertionError):
        assert_tools(called, expected, **rules)  # type: ignore[arg-type]


def test_a_wrong_rule_is_an_error_and_not_a_failed_assertion() -> None:
    with pytest.raises(GoldspanError, match="ordr"):
        assert_tools(["search"], ["search"], ordr="any")  # type: ignore[call-arg]


def test_thresholds_accept_a_share_of_the_expected_calls() -> None:
    called, expected = ["search"], ["search", "book"]
    assert assert_tools(called, expected, thresholds={"tool_correctness": 0.5}).passed
    with pytest.raises(AssertionError):
        assert_tools(called, expected, thresholds={"tool_correctness": 0.6})


def test_the_message_escapes_control_characters() -> None:
    with pytest.raises(ToolsAssertionError) as caught:
        assert_tools(["\x1b[31mred\u202e"], ["book"])
    assert "\x1b" not in str(caught.value)
    assert "\\x1b[31mred\\x202e" in str(caught.value)


def test_a_coloured_message_has_the_same_text() -> None:
    evaluation = goldspan.evaluate([ROME], [PARIS])
    coloured = failure_text(evaluation, coloured=True)
    assert "\x1b[33m" in coloured
    plain = "".join(part.partition("m")[2] if number else part for number, part in enumerate(coloured.split("\x1b[")))
    assert [line.rstrip() for line in plain.splitlines()] == failure_text(evaluation).splitlines()


def test_assert_tools_fails_a_unittest_case() -> None:
    class BookingTest(unittest.TestCase):
        def test_booking(self) -> None:
            assert_tools([], ["book"])

    result = unittest.TestResult()
    BookingTest("test_booking").run(result)
    assert not result.errors
    assert "Expected book was not called" in result.failures[0][1]
