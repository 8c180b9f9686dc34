"""Goldens with calls, and the verdict that a reader of the golden expects."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

Call = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """One golden, the calls of one run, and the expected verdict."""

    id: str
    golden: dict[str, Any]
    """As in a golden file, without its id."""
    calls: tuple[Call, ...]
    passed: bool | None
    says: str
    """A part of the reason."""
    invisible: bool = False
    """Whether `health.calls_invisible` is set, which a case without a trace cannot state."""
    tools: dict[str, Any] = field(default_factory=dict)
    """The `tools` section of the golden file."""


def call(name: str, arguments: Any = None, **more: Any) -> Call:
    return {"name": name} | ({} if arguments is None else {"arguments": arguments}) | more


A, B, C, D, E = (call(name) for name in ("alpha", "beta", "gamma", "delta", "echo"))


def tool(name: str, **said: Any) -> dict[str, Any]:
    return {"name": name, **said}


def _case(id: str, golden: dict[str, Any], calls: list[Call], passed: bool | None, says: str, **more: Any) -> Case:  # noqa: A002
    return Case(id, golden, tuple(calls), passed, says, **more)


F = {"x": 1, "y": 2}

CASES = (
    # --- required calls
    _case("a call is missing", {"tools": ["alpha", "beta"]}, [A], False, "Expected beta was not called"),
    _case("all were called", {"tools": ["alpha", "beta"]}, [B, A], True, "All 2 expected tools were called"),
    _case("nothing was called", {"tools": ["alpha"]}, [D], False, "alpha was not called"),
    _case("called too seldom", {"tools": [tool("alpha", times={"min": 2})]}, [A], False, "called 1 of 2 times"),
    _case("called twice of twice", {"tools": [tool("alpha", times=2)]}, [A, A], True, "were called"),
    _case("listed twice, called once", {"tools": ["alpha", "alpha"]}, [A], False, "called 1 of 2 times"),
    _case("optional and not called", {"tools": [tool("alpha", optional=True), "beta"]}, [B], True, "beta was called"),
    _case("optional and called", {"tools": [tool("alpha", optional=True), "beta"]}, [A, B], True, "beta was called"),
    _case("zero of up to two", {"tools": ["beta", tool("alpha", times={"min": 0, "max": 2})]}, [B], True, "beta was"),
    # --- alternatives
    _case(
        "half an alternative",
        {"tools": [{"any_of": [["alpha", "beta"], ["gamma"]]}]},
        [A],
        False,
        "beta was not called",
    ),
    _case("the other alternative", {"tools": [{"any_of": [["alpha", "beta"], ["gamma"]]}]}, [C], True, "was called"),
    _case("one of two", {"tools": [{"any_of": ["alpha", "beta"]}]}, [B], True, "beta was called"),
    _case("neither of two", {"tools": [{"any_of": ["alpha", "beta"]}]}, [C], False, "was not called"),
    _case("an alternative in place of tools", {"any_of": [["alpha", "beta"], ["gamma"]]}, [A], False, "not called"),
    # --- order and groups
    _case("in order", {"tools": ["alpha", "beta"], "order": "in_order"}, [A, B], True, "in order"),
    _case("out of order", {"tools": ["alpha", "beta"], "order": "in_order"}, [B, A], False, "called out of order"),
    _case("others in between", {"tools": ["alpha", "beta"], "order": "in_order"}, [A, C, B], True, "gamma was called"),
    _case("order of no matter", {"tools": ["alpha", "beta"]}, [B, A], True, "were called"),
    _case(
        "a group before its turn",
        {"tools": ["delta", {"parallel": ["echo", "alpha"]}], "order": "in_order"},
        [E, D, A],
        False,
        "called out of order",
    ),
    _case(
        "a group in any order",
        {"tools": ["delta", {"parallel": ["echo", "alpha"]}], "order": "in_order"},
        [D, A, E],
        True,
        "in order",
    ),
    _case(
        "optional, and out of order",
        {"tools": ["alpha", tool("beta", optional=True)], "order": "in_order"},
        [B, A],
        False,
        "called out of order",
    ),
    _case("exactly these", {"tools": ["alpha", "beta"], "order": "exact"}, [A, B], True, "in order"),
    _case("exactly these and one more", {"tools": ["alpha"], "order": "exact"}, [A, B], False, "beta was called but"),
    _case("exactly these, swapped", {"tools": ["alpha", "beta"], "order": "exact"}, [B, A], False, "out of order"),
    # --- arguments and results
    _case("all as stated", {"tools": [tool("foxtrot", arguments=F)]}, [call("foxtrot", F)], True, "was called"),
    _case(
        "one of two is wrong",
        {"tools": [tool("foxtrot", arguments=F)]},
        [call("foxtrot", {"x": 1, "y": 3})],
        False,
        "foxtrot differs in y",
    ),
    _case(
        "arguments not captured",
        {"tools": [tool("foxtrot", arguments=F)]},
        [call("foxtrot")],
        None,
        "not evaluated: the arguments of foxtrot were not captured",
    ),
    _case(
        "arguments not captured, ignored",
        {"tools": [tool("foxtrot", arguments=F)], "unknown": "ignore"},
        [call("foxtrot")],
        True,
        "ignored: the arguments",
    ),
    _case(
        "arguments not captured, a failure",
        {"tools": [tool("foxtrot", arguments=F)], "unknown": "fail"},
        [call("foxtrot")],
        False,
        "cannot be evaluated",
    ),
    _case(
        "of that server", {"tools": [tool("india", server="hotel")]}, [call("mcp__hotel__india")], True, "was called"
    ),
    _case("of another", {"tools": ["mcp__hotel__india"]}, [call("mcp__motel__india")], False, "not called"),
    _case("nobody knows of which", {"tools": ["mcp__hotel__india"]}, [call("india")], None, "server of india is not"),
    _case(
        "an alternative of which all is known",
        {"tools": [{"any_of": [tool("foxtrot", arguments=F), "foxtrot"]}]},
        [call("foxtrot")],
        True,
        "foxtrot was called",
    ),
    _case(
        "of two calls one whose server is known",
        {"tools": ["mcp__hotel__india", "india"]},
        [call("india"), call("mcp__hotel__india")],
        True,
        "were called",
    ),
    _case("of any", {"tools": ["india"]}, [call("mcp__hotel__india")], True, "was called"),
    _case(
        "not captured, and another is missing",
        {"tools": [tool("foxtrot", arguments=F), "alpha"]},
        [call("foxtrot")],
        False,
        "alpha was not called",
    ),
    _case(
        "ignored, and another is missing",
        {"tools": [tool("foxtrot", arguments=F), "alpha"], "unknown": "ignore"},
        [call("foxtrot")],
        False,
        "alpha was not",
    ),
    _case("one more argument", {"tools": [tool("foxtrot", arguments={"x": 1})]}, [call("foxtrot", F)], False, "in y"),
    _case(
        "one more argument, subset",
        {"tools": [tool("foxtrot", arguments={"x": 1})], "match": "subset"},
        [call("foxtrot", F)],
        True,
        "was called",
    ),
    _case(
        "a float that is no other",
        {"tools": [tool("foxtrot", arguments={"x": 0.3})]},
        [call("foxtrot", {"x": 0.1 + 0.2})],
        True,
        "was called",
    ),
    _case(
        "composed otherwise",
        {"tools": [tool("foxtrot", arguments={"x": "caf\u00e9"})]},
        [call("foxtrot", {"x": "cafe\u0301"})],
        True,
        "was called",
    ),
    _case(
        "another case",
        {"tools": [tool("foxtrot", arguments={"x": "Paris"})]},
        [call("foxtrot", {"x": "paris"})],
        False,
        "x differs only in case: {folded: ...} accepts it",
    ),
    _case("a wrong result", {"tools": [tool("foxtrot", result=5)]}, [call("foxtrot", result=6)], False, "its result"),
    _case("a right result", {"tools": [tool("foxtrot", result=5)]}, [call("foxtrot", result=5)], True, "was called"),
    # --- calls that nobody expected
    _case("one more call", {"tools": ["alpha"]}, [A, B], True, "beta was called but not expected"),
    _case("one more, penalized", {"tools": ["alpha"], "extra": "penalize"}, [A, B], False, "beta was called but not"),
    _case("one more, allowed", {"tools": ["alpha"], "extra": "allow"}, [A, B], True, "which is allowed"),
    _case(
        "one more, by precision", {"tools": ["alpha"], "mode": "precision"}, [A, B], False, "beta was called but not"
    ),
    _case("one more, by F1", {"tools": ["alpha"], "mode": "f1"}, [A, B], False, "beta was called but not expected"),
    _case("one more, by set", {"tools": ["alpha"], "mode": "set"}, [A, B], False, "beta was called but not expected"),
    _case("the same once more, by set", {"tools": ["alpha"], "mode": "set"}, [A, A], True, "alpha was called"),
    _case(
        "missing, by precision", {"tools": ["alpha", "beta"], "mode": "precision"}, [A], False, "beta was not called"
    ),
    _case("none expected, one called", {"tools": []}, [A], False, "No tool was expected; alpha was called"),
    _case("none expected, none called", {"tools": []}, [], True, "No tool was expected and none was called"),
    _case("none expected, nothing seen", {"tools": []}, [], None, "no tool call was seen", invisible=True),
    _case("one expected, nothing seen", {"tools": ["alpha"]}, [], None, "no tool call was seen", invisible=True),
    _case(
        "nothing seen, a failure", {"tools": [], "unknown": "fail"}, [], False, "no tool call was seen", invisible=True
    ),
    # --- too many
    _case(
        "too often",
        {"tools": [tool("alpha", times={"max": 1})]},
        [A, A],
        False,
        "was called; alpha was called more than once.",
    ),
    _case("too often of twice", {"tools": [tool("alpha", times=2)]}, [A, A, A], False, "called more than 2 times"),
    _case("once more, nothing stated", {"tools": ["alpha"]}, [A, A], True, "alpha was called"),
    _case("over budget", {"tools": ["alpha"], "max_calls": 1}, [A, B], False, "2 calls were made and 1 is allowed"),
    _case("within budget", {"tools": ["alpha"], "max_calls": 2}, [A, B], True, "alpha was called"),
    # --- forbidden
    _case("forbidden", {"tools": ["alpha"], "forbid": ["delete_*"]}, [A, call("delete_all")], False, "but forbidden"),
    _case("a policy kept", {"policy": True, "forbid": ["book_*"]}, [A], True, "nothing forbidden was called"),
    _case("a policy broken", {"policy": True, "forbid": ["book_*"]}, [call("book_hotel")], False, "book_hotel is forb"),
    _case(
        "a policy beside nothing seen",
        {"policy": True, "forbid": ["book_*"]},
        [],
        None,
        "no tool call was seen",
        invisible=True,
    ),
    _case(
        "a budget beside nothing seen",
        {"policy": True, "max_calls": 3},
        [],
        None,
        "no tool call was seen",
        invisible=True,
    ),
    # --- thresholds
    _case(
        "four of five are enough",
        {"tools": ["alpha", "beta", "gamma", "delta", "echo"], "threshold": 0.8},
        [A, B, C, D],
        True,
        "accepted: 0.8 of 0.8 wanted",
    ),
    _case("half is not enough", {"tools": ["alpha", "beta"], "threshold": 0.8}, [A], False, "0.5 of 0.8 wanted"),
    _case(
        "half of the arguments is enough",
        {"tools": [tool("foxtrot", arguments=F)], "thresholds": {"argument_correctness": 0.5}},
        [call("foxtrot", {"x": 1, "y": 3})],
        True,
        "accepted: argument_correctness 0.5 of 0.5 wanted",
    ),
    _case(
        "half of the recall is enough",
        {"tools": ["alpha", "beta"], "thresholds": {"tool_recall": 0.5}},
        [A],
        True,
        "accepted: tool_recall 0.5 of 0.5 wanted",
    ),
    _case(
        "too little precision",
        {"tools": ["alpha"], "thresholds": {"tool_precision": 0.8}},
        [A, B],
        False,
        "tool_precision 0.5 of 0.8 wanted",
    ),
    _case(
        "a threshold that cannot be measured",
        {"tools": ["alpha"], "thresholds": {"unknown_tools": 1}},
        [A],
        None,
        "unknown_tools could not be measured",
    ),
    _case(
        "a threshold with nothing to measure",
        {"tools": [], "thresholds": {"tool_success": 1}},
        [],
        True,
        "none was called",
    ),
    _case(
        "one more penalized, half of it accepted",
        {"tools": ["alpha"], "extra": "penalize", "threshold": 0.5},
        [A, B],
        True,
        "accepted: 0.5 of 0.5 wanted",
    ),
    _case(
        "one more penalized, less than accepted",
        {"tools": ["alpha"], "extra": "penalize", "threshold": 0.6},
        [A, B],
        False,
        "beta was called but not expected",
    ),
    # --- failures
    _case("called, and failed", {"tools": ["alpha"]}, [call("alpha", error="boom")], True, "alpha failed"),
    _case(
        "failed, where success counts",
        {"tools": ["alpha"], "attempts": "succeeded"},
        [call("alpha", error="boom")],
        False,
        "alpha was not called",
    ),
    _case(
        "failed, where failures have a threshold",
        {"tools": ["alpha"], "thresholds": {"tool_success": 1}},
        [call("alpha", error="boom")],
        False,
        "tool_success 0 of 1 wanted",
    ),
    _case(
        "perhaps failed, and called",
        {"tools": ["alpha"]},
        [call("alpha", result="Error: no room left")],
        True,
        "alpha was called",
    ),
    _case(
        "perhaps failed, where success counts",
        {"tools": ["alpha"], "attempts": "succeeded"},
        [call("alpha", result="Error: no room left")],
        None,
        "whether alpha failed is not known",
    ),
    _case(
        "perhaps failed, where it is missing either way",
        {"tools": ["alpha", "beta"], "attempts": "succeeded"},
        [call("alpha", result="Error: no room left")],
        False,
        "beta was not called",
    ),
    _case(
        "perhaps failed, where failures have a threshold",
        {"tools": ["alpha"], "thresholds": {"tool_success": 1}},
        [call("alpha", result="Error: no room left"), B],
        None,
        "tool_success may be below 1: whether alpha failed is not known",
    ),
    _case(
        "perhaps failed, where unknown things are ignored",
        {"tools": ["alpha"], "thresholds": {"tool_success": 1}, "unknown": "ignore"},
        [call("alpha", result="Error: no room left"), B],
        True,
        "alpha was called",
    ),
    _case(
        "perhaps failed, where half may fail",
        {"tools": ["alpha"], "thresholds": {"tool_success": 0.5}},
        [call("alpha", result="Error: no room left"), B],
        True,
        "alpha was called",
    ),
    _case(
        "perhaps failed, where too many failed anyway",
        {"tools": ["alpha"], "thresholds": {"tool_success": 0.9}},
        [call("alpha", result="Error: no room left"), call("beta", error="boom")],
        False,
        "tool_success 0 of 0.9 wanted",
    ),
    _case(
        "perhaps failed, and called once more",
        {"tools": [tool("alpha", times=1)]},
        [call("alpha", F, result="Error: no room left"), call("alpha", F, result="done")],
        None,
        "whether alpha failed is not known",
    ),
    _case(
        "a change that perhaps failed",
        {"tools": ["alpha"], "write_tools": ["alpha"]},
        [call("alpha", result="Error: no room left")],
        None,
        "whether a call that was to change something failed is not known",
    ),
    _case(
        "a read that perhaps failed, beside a change",
        {"tools": ["alpha", "pay"], "write_tools": ["pay"]},
        [call("alpha", result="Error: no room left"), call("pay")],
        True,
        "All 2 expected tools were called",
    ),
    _case(
        "a change that nobody wanted",
        {"tools": ["alpha"], "write_tools": ["pay"]},
        [A, call("pay")],
        False,
        "pay was called but not expected",
    ),
    _case(
        "a change that failed",
        {"tools": ["pay"]},
        [call("pay", error="boom")],
        False,
        "pay failed",
        tools={"pay": {"effect": "write"}},
    ),
)
