"""Two names mean the same tool when only case, separators, decoration or the choice among its names differ."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from goldspan.goldens.tool_names import tool_name_matcher
from goldspan.model import ExpectedTool, Golden, Tool, ToolCall, Vocabulary
from goldspan.scoring import compare
from goldspan.scoring.matching.slot_plan import is_call_of, is_forbidden, name_distance

FORMS = (
    "mcp__{}__{}",
    "{}__{}",
    "{}_{}",
    "{}.{}",
    "{}-{}",
    "{}:{}",
    "{}/{}",
    "mcp_{}_{}",
    "mcp-{}-{}",
    "mcp.{}.{}",
    "functions.{}_{}",
    "default_api.mcp__{}__{}",
)
WORDS = st.text("abc", min_size=1, max_size=3)


def call(raw_name: str, name: str | None = None, server: str | None = None) -> ToolCall:
    return ToolCall(name or raw_name, raw_name=raw_name, server=server)


def means(expected: str, called: ToolCall, *tools: Tool, servers: tuple[str, ...] = ()) -> bool:
    return is_call_of(ExpectedTool(expected), called, tool_name_matcher(Vocabulary(tools, servers)))


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
        pytest.param("mcp_orders_add", ADD, id="a golden with another marker"),
        pytest.param("mcp__orders__add", call("mcp-orders-add"), id="a call with another marker"),
        pytest.param("search", call("functions.search"), id="a namespace"),
        pytest.param("functions.search", call("search"), id="a namespace in the golden"),
        pytest.param("default_api.orders_add", ADD, id="a namespace around a server"),
        pytest.param("github_search", call("github_search", server="github"), id="a name that begins like its server"),
        pytest.param(
            "mcp__orders__add",
            call("orders_add", name="add", server="Orders Service 2"),
            id="the host has its own word for the server",
        ),
    ],
)
def test_names_of_the_same_tool(expected: str, called: ToolCall) -> None:
    assert means(expected, called)


@pytest.mark.parametrize(
    ("expected", "called"),
    [
        pytest.param("search", call("research"), id="part of a name"),
        pytest.param("orders", ADD, id="the server alone"),
        pytest.param("mcp__stock__add", call("orders_add"), id="another server's tool"),
        pytest.param("mcp__stock__add", ADD, id="another server's tool of the same name"),
        pytest.param("stock_add", ADD, id="another server's tool, written another way"),
        pytest.param("mcp__a__bc", call("c", server="ab"), id="server and tool cut at another place"),
        pytest.param("_", call("-"), id="nothing but separators"),
        pytest.param("add", call("orders_add"), id="a server that nobody knows to be one"),
        pytest.param("orders_add", call("add"), id="a server in the golden that nobody knows to be one"),
    ],
)
def test_names_of_different_tools(expected: str, called: ToolCall) -> None:
    assert not means(expected, called)


def test_an_expected_tool_may_name_its_server_beside_its_name() -> None:
    expected = ExpectedTool("add", server="orders")
    assert is_call_of(expected, ADD)
    assert is_call_of(expected, call("orders_add"))
    assert is_call_of(expected, call("add"))
    assert not is_call_of(expected, call("add", server="stock"))


# --- decoration -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("expected", ["add", *FORMS])
def test_every_form_of_a_declared_server_means_its_tool(expected: str) -> None:
    for called in ["add", *FORMS]:
        assert means(expected.format("orders", "add"), call(called.format("orders", "add")), servers=("orders",))


@pytest.mark.parametrize("expected", FORMS)
def test_every_form_in_a_golden_means_a_call_whose_server_the_trace_knows(expected: str) -> None:
    for called in ["add", *FORMS]:
        written = called.format("orders", "add")
        assert means(expected.format("orders", "add"), call(written, name="add", server="orders"))
        assert not means(expected.format("stock", "add"), call(written, name="add", server="orders"))


@given(WORDS, WORDS, WORDS, st.sampled_from(FORMS), st.sampled_from(FORMS))
def test_tools_of_two_known_servers_are_never_equal(
    tool: str, one: str, other: str, expected: str, called: str
) -> None:
    assume(one != other)
    servers = (one, other)
    assert means(expected.format(one, tool), call(called.format(one, tool)), servers=servers)
    assert not means(f"mcp__{one}__{tool}", call(f"mcp__{other}__{tool}", name=tool, server=other))


@given(WORDS, WORDS, st.sampled_from(("{1}", *FORMS)), st.sampled_from(("{1}", *FORMS)), st.booleans())
def test_the_side_with_the_host_prefix_makes_no_difference(
    server: str, tool: str, one: str, other: str, declared: bool
) -> None:
    servers = (server,) if declared else ()
    first, second = one.format(server, tool), other.format(server, tool)
    assert means(first, call(second), servers=servers) is means(second, call(first), servers=servers)


# --- the vocabulary ---------------------------------------------------------------------------------------------------

SEARCH = Tool("search_hotels", aliases=("hotel.search", "mcp__travel__find"))


@pytest.mark.parametrize("expected", ["search_hotels", "SearchHotels", "hotel.search", "hotel_search", "travel_find"])
@pytest.mark.parametrize(
    "called",
    [
        pytest.param(call("search_hotels"), id="its name"),
        pytest.param(call("hotel-search"), id="an alias"),
        pytest.param(call("search", server="hotel"), id="an alias as server and tool"),
        pytest.param(call("find", server="travel"), id="a decorated alias"),
    ],
)
def test_every_name_of_a_declared_tool_means_it(expected: str, called: ToolCall) -> None:
    assert means(expected, called, SEARCH)


def test_an_alias_is_known_where_it_is_declared_only() -> None:
    assert not means("search_hotels", call("hotel_search"))


def test_an_alias_of_one_server_is_none_of_another() -> None:
    assert not means("search_hotels", call("find", server="lost_and_found"), SEARCH)


TWO_ADDS = (Tool("add", server="orders"), Tool("mcp__stock__add"))


@pytest.mark.parametrize(
    ("expected", "called", "same"),
    [
        pytest.param("orders_add", call("add", server="orders"), True, id="the server's own"),
        pytest.param("orders_add", call("add", server="stock"), False, id="the other server's"),
        pytest.param("orders_add", call("stock.add"), False, id="the other server's, by its name"),
        pytest.param("add", call("add", server="orders"), True, id="the one that is declared by this name"),
        pytest.param("add", call("add", server="stock"), False, id="the one that is declared by another name"),
        pytest.param("stock_add", call("add", server="stock"), True, id="the other one"),
    ],
)
def test_declared_tools_of_two_servers_stay_apart(expected: str, called: ToolCall, same: bool) -> None:
    assert means(expected, called, *TWO_ADDS) is same


def test_a_tool_of_ones_own_and_a_servers_of_the_same_name_stay_apart() -> None:
    tools = (Tool("add"), Tool("mcp__orders__add"))
    verdicts = [means(name, called, *tools) for name in ("add", "orders_add") for called in (call("add"), ADD)]
    assert verdicts == [True, False, False, True]


NAMES = st.lists(WORDS, min_size=4, max_size=8, unique=True)


@given(NAMES, st.data())
def test_aliases_never_join_two_declared_tools(names: list[str], data: st.DataObject) -> None:
    shared = {name: data.draw(st.integers(0, 1)) for name in names[2:]}
    servers = [data.draw(st.none() | st.just("srv")), data.draw(st.none() | st.just("other"))]
    tools = [
        Tool(names[at], tuple(name for name, owner in shared.items() if owner == at), servers[at]) for at in (0, 1)
    ]
    all_names = [(at, name) for at in (0, 1) for name in (tools[at].name, *tools[at].aliases)]
    for (at, expected), (to, called) in product(all_names, repeat=2):
        assert means(expected, call(called), *tools) is (at == to)


def test_a_vocabulary_reaches_every_comparison_with_the_golden() -> None:
    golden = Golden("g", tools=(ExpectedTool("search_hotels"),), vocabulary=Vocabulary((SEARCH,)))
    assert [row.verdict for row in compare(["hotel_search"], golden).rows] == ["paired"]


# --- preferences ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expected", "rank"), [("add", 0), ("mcp__orders__add", 0), ("ADD", 1), ("mcp-orders-add", 1), ("orders_add", 2)]
)
def test_the_closest_spelling_is_the_least_strange(expected: str, rank: int) -> None:
    assert name_distance(ExpectedTool(expected), ADD) == rank


def test_an_alias_is_the_strangest() -> None:
    assert (
        name_distance(ExpectedTool("search_hotels"), call("hotel_search"), tool_name_matcher(Vocabulary((SEARCH,))))
        == 3
    )


# --- forbidden tools --------------------------------------------------------------------------------------------------


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
        pytest.param("mcp__orders__*", call("add", server="orders"), True, id="all tools of a server, bare"),
        pytest.param("orders.*", call("add", server="orders"), True, id="all tools of a server, written another way"),
        pytest.param("mcp__stock__*", ADD, False, id="all tools of another server"),
        pytest.param("orders_add", ADD, True, id="a tool with its server"),
        pytest.param("mcp__stock__add", ADD, False, id="another server's tool of this name"),
        pytest.param("add", ADD, True, id="a decorated call"),
        pytest.param("ad*", ADD, True, id="a glob and a decorated call"),
        pytest.param("delete_*", call("search"), False, id="another tool"),
    ],
)
def test_a_forbidden_tool_is_known_by_its_name(pattern: str, called: ToolCall, forbidden: bool) -> None:
    assert is_forbidden(called, ["no_such_tool", pattern]) is forbidden


@pytest.mark.parametrize("pattern", ["hotel_search", "search_*", "mcp__travel__*"])
def test_a_forbidden_tool_is_forbidden_by_all_its_names(pattern: str) -> None:
    assert is_forbidden(call("hotel.search"), [pattern], tool_name_matcher(Vocabulary((SEARCH,))))
