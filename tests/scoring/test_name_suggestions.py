"""Names that nearly match are told to a person, and change nothing."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goldspan.model import ExpectedTool, Golden, Tool, ToolCall, ToolDefinition, Vocabulary
from goldspan.scoring import compare, evaluate
from goldspan.scoring.name_suggestions import (
    NameCollision,
    NearMiss,
    find_collisions,
    find_near_misses,
    name_difference,
)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        pytest.param("search_hotels", "hotels_search", id="the order of the words"),
        pytest.param("search_hotels", "searchHotels_v2", id="a version"),
        pytest.param("search_hotels", "search_hotel", id="a plural"),
        pytest.param("search_hotels", "hotel_search", id="a plural in another order"),
        pytest.param("list_category", "list_categories", id="a plural of its own kind"),
        pytest.param("book_hotel", "hotel_booking", id="a verb and its noun"),
        pytest.param("update_order", "updating_order", id="a lost e"),
        pytest.param("delete_user", "delete_users", id="a plural that may be a tool of its own"),
        pytest.param("search_hotels", "serach_hotels", id="two letters swapped"),
        pytest.param("cancel_reservation", "cancel_resevratoin", id="two slips in a long word"),
        pytest.param("search_hotels", "searchhotel", id="two words written as one"),
        pytest.param("add", "orders_add", id="a prefix"),
        pytest.param("search", "web_search", id="a prefix that is no server"),
    ],
)
def test_names_that_probably_mean_the_same_tool_are_near(one: str, other: str) -> None:
    assert name_difference(one, other) is not None
    assert name_difference(other, one) == name_difference(one, other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        pytest.param("get_user", "set_user", id="one letter that turns it around"),
        pytest.param("add", "sub", id="short words"),
        pytest.param("lock_user", "unlock_user", id="un-"),
        pytest.param("start_job", "restart_job", id="re-"),
        pytest.param("activate_card", "deactivate_card", id="de-"),
        pytest.param("import_data", "export_data", id="im- and ex-"),
        pytest.param("create_user", "delete_user", id="another verb"),
        pytest.param("search_hotels", "search_flights", id="another noun"),
        pytest.param("send_sms", "send_mms", id="another abbreviation"),
        pytest.param("get_order", "get_order_status", id="a word more"),
        pytest.param("report_2023", "report_2024", id="another number"),
        pytest.param("post", "get", id="nothing in common"),
        pytest.param("a" * 200, "a" * 201, id="names too long to look at"),
    ],
)
def test_names_that_hardly_mean_the_same_tool_are_not_near(one: str, other: str) -> None:
    assert name_difference(one, other) is None
    assert name_difference(other, one) is None


@given(st.text("abc_ 1", max_size=12), st.text("abc_ 1", max_size=12))
def test_it_makes_no_difference_which_name_was_expected(one: str, other: str) -> None:
    assert name_difference(one, other) == name_difference(other, one)


# --- near misses ------------------------------------------------------------------------------------------------------


def missed(called: Any, expected: Any, offered: str = "") -> list[NearMiss]:
    return find_near_misses(compare(called, expected), [ToolDefinition(name) for name in offered.split()])


@pytest.mark.parametrize(
    ("called", "expected", "offered", "found"),
    [
        pytest.param(["search_hotel"], ["search_hotels"], "", [NearMiss("search_hotels", "search_hotel", True)],
                     id="a call"),
        pytest.param([], ["search_hotels"], "book search_hotel", [NearMiss("search_hotels", "search_hotel", False)],
                     id="a tool on offer"),
        pytest.param(["search_hotel"], ["search_hotels"], "hotel_search",
                     [NearMiss("search_hotels", "search_hotel", True)], id="a call rather than a tool on offer"),
        pytest.param(["search_hotel"], ["search_hotels"], "search_hotels search_hotel", [],
                     id="the expected tool was on offer, so the other is another"),
        pytest.param(["search_hotel", "search_hotel"], ["search_hotels", "search_hotel"], "", [],
                     id="both are expected, so the one is not the other"),
        pytest.param(["serach_hotels", "search_hotel"], ["search_hotels"], "",
                     [NearMiss("search_hotels", "search_hotel", True)], id="the nearest"),
        pytest.param(["find_user", "ad"], ["get_user", "add"], "", [], id="nothing near"),
        pytest.param(["orders_add"], ["add"], "", [NearMiss("add", "orders_add", True, prefix="orders")],
                     id="a prefix that may be a server's"),
        pytest.param(["add"], ["orders_add"], "", [NearMiss("orders_add", "add", True, prefix="orders")],
                     id="a prefix in the golden that may be a server's"),
        pytest.param(["mcp__stock__add"], ["mcp__orders__add"], "orders_add",
                     [NearMiss("mcp__orders__add", "add", True, server="stock")], id="another server's tool"),
        pytest.param(["bs", "as"], ["bbb", "aaa", "asa", "ass"], "", [], id="several, none near"),
        pytest.param(["pays", "books"], ["book", "pay"], "",
                     [NearMiss("book", "books", True), NearMiss("pay", "pays", True)], id="several, as expected"),
        pytest.param([], [], "a b", [], id="nothing missing"),
        pytest.param(["a"], None, "a b", [], id="no golden"),
    ],
)  # fmt: skip
def test_a_missing_tool_may_be_there_by_another_name(
    called: Any, expected: Any, offered: str, found: list[NearMiss]
) -> None:
    assert missed(called, expected, offered) == found


def test_a_declared_tool_is_not_suggested_for_another_one() -> None:
    golden = Golden("g", tools=(ExpectedTool("delete_user"),))
    declared = Golden("g", tools=golden.tools, vocabulary=Vocabulary((Tool("delete_users"),)))
    assert missed(["delete_users"], golden) == [NearMiss("delete_user", "delete_users", True)]
    assert missed(["delete_users"], declared) == []


def test_a_suggestion_is_never_applied() -> None:
    result = evaluate(["search_hotel"], ["search_hotels"])
    assert "did you mean search_hotel?" in result.reason
    assert [row.verdict for row in result.comparison.rows] == ["missing", "unexpected"]
    assert result.passed is False


def test_a_thousand_names_are_not_all_compared() -> None:
    called, expected = ([f"{verb}_{n}" for n in range(1000)] for verb in ("found", "find"))
    assert len(missed([f"{name}_orders" for name in expected], [f"orders_{name}" for name in expected])) == 5
    assert missed(called, expected) == []


def test_runs_that_are_as_expected_never_load_rapidfuzz() -> None:
    code = (
        "import sys; from goldspan.scoring import evaluate; evaluate(['a'], ['a']); evaluate(['get_user'], ['book']);"
        "print('rapidfuzz' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, encoding="utf-8")
    assert done.stdout.strip() == "False"


# --- collisions -------------------------------------------------------------------------------------------------------

ADDS = (ToolCall("add", server="stock"), ToolCall("add", server="orders"))


@pytest.mark.parametrize(
    ("called", "expected", "found"),
    [
        pytest.param(ADDS, ["add"], [NameCollision("add", ("orders", "stock"))], id="one name, two servers"),
        pytest.param(ADDS, ["add", "add"], [NameCollision("add", ("orders", "stock"))], id="expected twice, told once"),
        pytest.param(ADDS, ["orders_add"], [], id="the golden says which"),
        pytest.param(ADDS, ["search"], [], id="not expected"),
        pytest.param(ADDS[:1] * 2, ["add"], [], id="one server twice"),
        pytest.param([ADDS[0], ToolCall("add", server="Stock")], ["add"], [], id="one server, written in two ways"),
        pytest.param([ADDS[0], ToolCall("add")], ["add"], [], id="a server that is not known"),
    ],
)
def test_a_name_that_two_servers_share_is_reported(called: Any, expected: Any, found: list[NameCollision]) -> None:
    assert find_collisions(compare(called, expected)) == found


def test_a_declared_tool_of_a_server_is_no_collision() -> None:
    golden = Golden("g", tools=(ExpectedTool("add"),), vocabulary=Vocabulary((Tool("add", server="orders"),)))
    seen = compare(ADDS, golden)
    assert find_collisions(seen) == []
    assert [row.called and row.called.server for row in seen.pairs] == ["orders"]
