"""Two names mean the same tool when only case, separators or the host's decoration differ."""

from __future__ import annotations

import pytest

from goldspan.model import ToolCall
from goldspan.scoring.identity import call_keys, is_forbidden, keys, strangeness


def call(raw_name: str, name: str | None = None, server: str | None = None) -> ToolCall:
    return ToolCall(name or raw_name, raw_name=raw_name, server=server)


ADD = call("mcp__orders__add", name="add", server="orders")


@pytest.mark.parametrize(
    ("expected", "called"),
    [
        pytest.param("web_search", call("web_search"), id="written alike"),
        pytest.param("web_search", call("WebSearch"), id="camel case"),
        pytest.param("web_search", call("Web Search"), id="words"),
        pytest.param("add", ADD, id="the bare name"),
        pytest.param("mcp__orders__add", ADD, id="the decorated name"),
        pytest.param("orders_add", ADD, id="server and tool"),
        pytest.param("orders.add", call("add", server="orders"), id="server known from elsewhere"),
        pytest.param("mcp__orders__add", call("add"), id="decorated golden, bare call"),
        pytest.param("mcp__orders__add", call("orders_add"), id="two decorations"),
        pytest.param("search", call("functions.search"), id="a namespace"),
        pytest.param("functions.search", call("search"), id="a namespace in the golden"),
    ],
)
def test_names_of_the_same_tool(expected: str, called: ToolCall) -> None:
    assert not keys(expected).isdisjoint(call_keys(called))


@pytest.mark.parametrize(
    ("expected", "called"),
    [
        pytest.param("search", call("research"), id="part of a name"),
        pytest.param("orders", ADD, id="the server alone"),
        pytest.param("mcp__stock__add", call("orders_add"), id="another server's tool"),
        pytest.param("_", call("-"), id="nothing but separators"),
    ],
)
def test_names_of_different_tools(expected: str, called: ToolCall) -> None:
    assert keys(expected).isdisjoint(call_keys(called))


@pytest.mark.parametrize(
    ("expected", "rank"), [("add", 0), ("mcp__orders__add", 0), ("ADD", 1), ("mcp-orders-add", 1), ("orders_add", 2)]
)
def test_the_closest_spelling_is_the_least_strange(expected: str, rank: int) -> None:
    assert strangeness(expected, ADD) == rank


@pytest.mark.parametrize(
    ("pattern", "called", "forbidden"),
    [
        pytest.param("delete_user", call("delete_user"), True, id="a name"),
        pytest.param("delete_user", call("DeleteUser"), True, id="a name in another case"),
        pytest.param("delete_*", call("delete_user"), True, id="a glob"),
        pytest.param("delete_*", call("DELETE_USER"), True, id="a glob in another case"),
        pytest.param("delete_*", call("deleteUser"), True, id="a glob over camel case"),
        pytest.param("delete_*", call("HTTPDelete"), False, id="a word at another place"),
        pytest.param("http_*", call("HTTPDelete"), True, id="an acronym"),
        pytest.param("delete-*", call("delete_user"), True, id="another separator"),
        pytest.param("Delete*", call("deleted_items"), True, id="a glob within a word"),
        pytest.param("delete_*", call("deleted_items"), False, id="a longer word"),
        pytest.param("*", call("anything"), True, id="everything"),
        pytest.param("send_?ms", call("send_sms"), True, id="one letter"),
        pytest.param("send_[es]ms", call("send_sms"), True, id="one of some letters"),
        pytest.param("mcp__orders__*", ADD, True, id="all tools of a server"),
        pytest.param("orders_add", ADD, True, id="a tool with its server"),
        pytest.param("add", ADD, True, id="a decorated call"),
        pytest.param("ad*", ADD, True, id="a glob and a decorated call"),
        pytest.param("delete_*", call("search"), False, id="another tool"),
    ],
)
def test_a_forbidden_tool_is_known_by_its_name(pattern: str, called: ToolCall, forbidden: bool) -> None:
    assert is_forbidden(called, ["no_such_tool", pattern]) is forbidden
