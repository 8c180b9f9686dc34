"""The reason is one sentence that a person can act on, and it never shows a value of an argument."""

from __future__ import annotations

from typing import Any

import pytest

from goldspan.model import (
    AnyOf,
    Comparison,
    ExpectedTool,
    Golden,
    Health,
    Parallel,
    Run,
    Times,
    ToolCall,
    ToolDefinition,
)
from goldspan.scoring import compare, evaluate
from goldspan.scoring.explanation import explain_evaluation


@pytest.mark.parametrize(
    ("expected", "called", "more", "sentence"),
    [
        pytest.param(
            ["search", "book_hotel"],
            ["search", "cancel_trip"],
            {},
            "Expected book_hotel was not called; cancel_trip was called but not expected.",
            id="one missing, one unexpected",
        ),
        pytest.param(list("abc"), list("abc"), {}, "All 3 expected tools were called, in order.", id="all well"),
        pytest.param(list("abc"), list("cab"), {}, "All 3 expected tools were called.", id="in any order"),
        pytest.param(
            list("abc"),
            list("bca"),
            {"order": "in_order"},
            "All 3 expected tools were called; a was called out of order.",
            id="out of order",
        ),
        pytest.param(["a"], ["a"], {}, "Expected a was called.", id="one expected"),
        pytest.param([], [], {}, "No tool was expected and none was called.", id="nothing at all"),
        pytest.param(
            [],
            [ToolCall("a", outcome="denied")],
            {},
            "No tool was expected and none that counts was called.",
            id="nothing that counts",
        ),
        pytest.param([], ["a", "b", "a"], {}, "No tool was expected; a x2 and b were called.", id="nothing expected"),
        pytest.param(list("aab"), ["b"], {}, "Expected a x2 were not called.", id="the same tool missing twice"),
        pytest.param(
            [],
            ["drop_table"],
            {"forbid": ["drop_*"]},
            "No tool was expected; drop_table was called but forbidden.",
            id="forbidden",
        ),
        pytest.param(
            ["a"],
            [*"bcdefghijkl", "a"],
            {},
            "Expected a was called; b, c, d, e, f and 6 more were called but not expected.",
            id="a long list",
        ),
        pytest.param(
            ["a", "b"],
            [ToolCall("a", error="timeout"), "b"],
            {},
            "All 2 expected tools were called, in order; a failed.",
            id="failed",
        ),
        pytest.param(
            [ExpectedTool("pay", {"amount": 12, "to": {"iban": "DE02", "name": "x"}, "note": "n"})],
            [ToolCall("pay", arguments={"amount": 13, "to": {"iban": "DE03", "name": "x"}, "note": "n"})],
            {},
            "Expected pay was called; pay differs in amount and to.iban.",
            id="arguments",
        ),
        pytest.param(
            [ExpectedTool("pay", {"amount": 12})],
            [ToolCall("pay", arguments="12")],
            {},
            "Expected pay was called; pay differs in all its arguments.",
            id="arguments that are no dictionary",
        ),
        pytest.param(
            [ExpectedTool(f"t{n}", {"x": 1}) for n in range(7)],
            [ToolCall(f"t{n}", arguments={"x": 2}) for n in range(7)],
            {},
            "All 7 expected tools were called, in order; t0 differs in x; t1 differs in x; t2 differs in x; "
            "t3 differs in x; t4 differs in x; 2 more calls differ.",
            id="many arguments",
        ),
        pytest.param([], ["x" * 100], {}, f"No tool was expected; {'x' * 57}... was called.", id="a long name"),
    ],
)
def test_the_reason_names_what_happened(expected: Any, called: Any, more: dict[str, Any], sentence: str) -> None:
    assert explain_evaluation(compare(called, expected, **more)) == sentence


MESSAGE = AnyOf(((ExpectedTool("send_email"),), (ExpectedTool("send_sms"),)))
CLOSE = ExpectedTool("close", times=Times(0, 1))


@pytest.mark.parametrize(
    ("expected", "called", "more", "sentence"),
    [
        pytest.param([MESSAGE], [], {}, "Expected send_email or send_sms was not called.", id="no alternative"),
        pytest.param([MESSAGE], ["send_sms"], {}, "Expected send_sms was called.", id="the alternative that was taken"),
        pytest.param(
            ["search", MESSAGE],
            [],
            {},
            "Expected search and either send_email or send_sms were not called.",
            id="alternatives among others",
        ),
        pytest.param(
            [AnyOf(((ExpectedTool("a"), ExpectedTool("b")), (ExpectedTool("c"),)))],
            ["a"],
            {},
            "Expected b was not called.",
            id="the trajectory that was begun",
        ),
        pytest.param(
            [Parallel((ExpectedTool("a"), ExpectedTool("b")))],
            ["b"],
            {},
            "Expected a was not called.",
            id="one of two in parallel",
        ),
        pytest.param(["a", "a", "a"], ["a"], {}, "Expected a was called 1 of 3 times.", id="too seldom"),
        pytest.param(
            [ExpectedTool("a", times=Times(2, 4)), "b"],
            ["a"],
            {},
            "Expected b was not called; a was called 1 of 2 times.",
            id="one never and one too seldom",
        ),
        pytest.param([CLOSE], [], {}, "No tool had to be called.", id="optional and not called"),
        pytest.param(
            [CLOSE], ["close"], {}, "No tool had to be called; optional close was called.", id="optional and called"
        ),
        pytest.param(["a", CLOSE], ["a", "close"], {}, "Expected a was called.", id="optional beside expected"),
        pytest.param(
            ["a", ExpectedTool("close", {"x": 1}, times=Times(0, 1))],
            ["a", ToolCall("close", arguments={"x": 2}, error="no")],
            {},
            "Expected a was called; close failed; close differs in x.",
            id="optional, failed and different",
        ),
        pytest.param(
            ["a"],
            ["a", "log"],
            {"extra": "allow"},
            "Expected a was called; log was called besides, which is allowed.",
            id="extra calls are allowed",
        ),
        pytest.param(
            [],
            ["log", "log"],
            {"extra": "allow"},
            "No tool was expected; log x2 were called besides, which is allowed.",
            id="extra calls where nothing is expected",
        ),
        pytest.param(
            ["a"],
            [ToolCall("a", arguments={}), ToolCall("a", arguments={})],
            {"duplicates": "ignore"},
            "Expected a was called; a was called again, which does not count.",
            id="a repeat that does not count",
        ),
        pytest.param(
            ["a"],
            ["a", "b", "c"],
            {"max_calls": 2},
            "Expected a was called; b and c were called but not expected; 3 calls were made and 2 are allowed.",
            id="over budget",
        ),
        pytest.param(
            [
                ExpectedTool("a", result=1),
                ExpectedTool("b", result={"total": 1}),
                ExpectedTool("c", {"x": 1}, result=1),
            ],
            [
                ToolCall("a", result=2),
                ToolCall("b", result={"total": 2}),
                ToolCall("c", arguments={"x": 2}, result=2),
            ],
            {},
            "All 3 expected tools were called, in order; a differs in its result; b differs in result.total; "
            "c differs in x and its result.",
            id="results",
        ),
    ],
)
def test_the_reason_reads_well_for_every_kind_of_expectation(
    expected: Any, called: Any, more: dict[str, Any], sentence: str
) -> None:
    assert explain_evaluation(compare(called, expected, **more)) == sentence


def test_an_approximate_pairing_is_reported() -> None:
    seen = Comparison(Golden("g"), (), approximation_reason="so many calls that not all were tried")
    assert explain_evaluation(seen) == (
        "No tool was expected and none was called; there may be a better pairing, with so many calls that not all were "
        "tried."
    )


def test_the_reason_omits_error_messages_because_they_can_contain_values() -> None:
    seen = compare(
        [ToolCall("pay", arguments={"card": "4242"}, error="card 4242 refused")], [ExpectedTool("pay", {"card": "1"})]
    )
    assert "4242" not in explain_evaluation(seen)


@pytest.mark.parametrize(
    ("expected", "called", "sentence"),
    [
        pytest.param(
            [AnyOf(((ExpectedTool("search_hotels"),), (ExpectedTool("find_rooms"),)))],
            ["search_hotel"],
            "Expected search_hotels or find_rooms was not called; search_hotel was called but not expected; did you "
            "mean search_hotel? declare it under tools as an alias of search_hotels.",
            id="one of several alternatives",
        ),
        pytest.param(
            ["search_hotels"],
            ["search_hotel"],
            "Expected search_hotels was not called; search_hotel was called but not expected; did you mean "
            "search_hotel? declare it under tools as an alias of search_hotels.",
            id="a plural",
        ),
        pytest.param(
            ["add"],
            ["orders_add"],
            "Expected add was not called; orders_add was called but not expected; did you mean orders_add? "
            "declare orders under servers, or orders_add under tools as an alias of add.",
            id="perhaps a server's tool",
        ),
        pytest.param(
            ["mcp__orders__add"],
            [ToolCall("add", server="stock")],
            "Expected mcp__orders__add was not called; add was called but not expected; the add that was called is a "
            "tool of the server stock.",
            id="another server's tool of the same name",
        ),
        pytest.param(
            ["add"],
            [ToolCall("add", server="stock"), ToolCall("add", server="orders")],
            "Expected add was called; add was called but not expected; add is a tool of orders and stock; "
            "name the one you mean, as in orders_add.",
            id="a name that two servers share",
        ),
    ],
)
def test_the_reason_suggests_similar_names(expected: Any, called: Any, sentence: str) -> None:
    assert explain_evaluation(compare(called, expected)) == sentence


def test_the_reason_names_an_offered_tool_with_a_similar_name() -> None:
    seen = compare([], ["search_hotels"])
    assert explain_evaluation(seen, [ToolDefinition("book_hotel"), ToolDefinition("hotel_search")]) == (
        "Expected search_hotels was not called; the agent has no search_hotels; did you mean hotel_search? "
        "declare it under tools as an alias of search_hotels."
    )


def test_without_a_golden_the_reason_says_so() -> None:
    assert explain_evaluation(compare(["a"], None)) == "No golden applies to this run."


@pytest.mark.parametrize(
    ("expected", "switch"),
    [
        pytest.param(ExpectedTool("add", {"n": 1}), True, id="arguments"),
        pytest.param(ExpectedTool("add", result=3), True, id="result"),
        pytest.param(ExpectedTool("add", agent="billing"), False, id="agent"),
        pytest.param(ExpectedTool("add", server="orders"), False, id="server"),
    ],
)
def test_the_reason_names_the_capture_setting_if_it_would_help(expected: ExpectedTool, switch: bool) -> None:
    run = Run("r", tool_calls=(ToolCall("add"),), conventions=("genai",), health=Health(without_content=("genai",)))
    result = evaluate(run, Golden("g", tools=(expected,)))
    assert (result.passed, "To record content: OTEL_" in result.reason) == (None, switch)
