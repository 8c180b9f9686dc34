"""Tool names: normalized for comparison, displayed as written."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goldspan.content import tools
from goldspan.content.flat_attributes import FlatRows
from goldspan.content.tools import (
    cache_by_rows,
    cache_by_text,
    fold_name,
    handoff_target,
    name_words,
    server_prefix,
    undecorate,
)


@pytest.mark.parametrize("name", ["web_search", "WebSearch", "Web Search", "web-search", "web.search", "WEB_SEARCH"])
def test_case_and_separators_are_ignored(name: str) -> None:
    assert fold_name(name) == "websearch"


def test_different_names_stay_different() -> None:
    assert len({fold_name(name) for name in ("search", "research", "search2", "søk", "_", "-", "")}) == 7


@given(st.text() | st.text("aA_é\u0301ſẞΐᾳ＿. "))
def test_fold_name_is_idempotent(name: str) -> None:
    assert fold_name(fold_name(name)) == fold_name(name)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        pytest.param("Straße", "STRASSE", id="full case folding"),
        pytest.param("caf\u00e9", "cafe\u0301", id="composed and decomposed"),
        pytest.param("e_\u0301", "é", id="letters that a separator kept apart"),
    ],
)
def test_names_that_are_canonically_equivalent_in_unicode_are_equal(one: str, other: str) -> None:
    assert fold_name(one) == fold_name(other)


@pytest.mark.parametrize("name", ["searchHotels", "search_hotels", "Search Hotels", "SEARCH-HOTELS", ".search..hotels"])
def test_name_words_splits_a_name_in_every_notation(name: str) -> None:
    assert name_words(name) == ("search", "hotels")


# --- prefixes of hosts ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("raw", "name", "server"),
    [
        ("mcp__orders__add", "add", "orders"),
        ("mcp__my_shop__add__item", "add__item", "my_shop"),
        ("functions.search", "search", None),
        ("default_api.search", "search", None),
        ("default_api:search", "search", None),
        ("functions.mcp__orders__add", "add", "orders"),
        ("my functions.search", "my functions.search", None),
        ("functions.", "functions.", None),
        ("mcp____add", "mcp____add", None),
        ("orders_add", "orders_add", None),
        ("mcp_orders_add", "mcp_orders_add", None),
        ("search", "search", None),
        ("", "", None),
    ],
)
def test_the_prefix_of_a_host_is_removed(raw: str, name: str, server: str | None) -> None:
    assert undecorate(raw) == (name, server)


@pytest.mark.parametrize(
    "raw",
    [
        "mcp__orders__add",
        "orders__add",
        "orders_add",
        "orders.add",
        "orders-add",
        "orders:add",
        "orders/add",
        "mcp_orders_add",
        "mcp-orders-add",
        "mcp.orders.add",
        "functions.orders_add",
        "Orders_add",
    ],
)
def test_the_name_of_a_known_server_is_removed(raw: str) -> None:
    assert undecorate(raw, ["stock", "orders"]) == ("add", "orders")


@pytest.mark.parametrize(
    ("raw", "servers", "name", "server"),
    [
        pytest.param("stock_add", ["orders"], "stock_add", None, id="a server that is not known"),
        pytest.param("mcp__stock__add", ["orders"], "add", "stock", id="a server that is not known, but named as one"),
        pytest.param("ordersAdd", ["orders"], "ordersAdd", None, id="camel case"),
        pytest.param("reorders_add", ["orders"], "reorders_add", None, id="the end of a word"),
        pytest.param("orders", ["orders"], "orders", None, id="nothing else"),
        pytest.param("orders_", ["orders"], "orders_", None, id="no tool"),
        pytest.param("orders_eu_add", ["orders", "orders_eu"], "add", "orders_eu", id="two servers that begin alike"),
        pytest.param("mcp__my__shop__add", ["my__shop"], "add", "my__shop", id="a server with the marker in its name"),
        pytest.param("order_desk_add", ["Order Desk"], "add", "Order Desk", id="a server with words in its name"),
        pytest.param("mcp_add", [""], "mcp_add", None, id="a server without a name"),
    ],
)
def test_only_the_names_of_known_servers_are_removed(
    raw: str, servers: list[str], name: str, server: str | None
) -> None:
    assert undecorate(raw, servers) == (name, server)
    assert undecorate(raw, servers[::-1]) == (name, server)


@pytest.mark.parametrize(
    ("decorated", "bare", "server"),
    [
        pytest.param("orders_add", "add", "orders", id="a prefix"),
        pytest.param("orders.add", "add", "orders", id="a prefix with a dot"),
        pytest.param("mcp__orders__add", "add", "orders", id="the usual marker"),
        pytest.param("mcp-orders-add", "add", "orders", id="another marker"),
        pytest.param("functions.orders_add", "add", "orders", id="a namespace around it"),
        pytest.param("order_desk_add_item", "add_item", "order_desk", id="several words"),
        pytest.param("orders_lookup_order", "lookup.order", "orders", id="a bare name whose separators were replaced"),
        pytest.param("add", "add", None, id="no decoration"),
        pytest.param("ADD", "add", None, id="another case"),
        pytest.param("functions.add", "add", None, id="only a namespace"),
        pytest.param("mcp_add", "add", None, id="only a marker"),
        pytest.param("_add", "add", None, id="only a separator"),
        pytest.param("readd", "add", None, id="the end of a word"),
        pytest.param("orders_add", "sub", None, id="another tool"),
        pytest.param("add", "orders_add", None, id="the wrong way round"),
    ],
)
def test_a_prefixed_name_next_to_the_bare_name_gives_the_server(decorated: str, bare: str, server: str | None) -> None:
    assert server_prefix(decorated, tool_name=bare) == server


@given(st.from_regex(r"[a-z]{1,5}(_[a-z]{1,5})?", fullmatch=True), st.from_regex(r"[a-z]{1,5}", fullmatch=True))
def test_undecorate_removes_the_server_that_server_prefix_finds(server: str, tool: str) -> None:
    decorated = f"{server}_{tool}"
    found = server_prefix(decorated, tool_name=tool)
    assert found is None or undecorate(decorated, [found]) == (tool, found)


# --- hand-offs --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "target"),
    [("transfer_to_billing", "billing"), ("handoff to billing", "billing"), ("handoff_to_b", "b"), ("transfer", None)],
)
def test_handoff_target_returns_the_target_of_a_hand_off(name: str, target: str | None) -> None:
    assert handoff_target(name) == target


# --- caches -----------------------------------------------------------------------------------------------------------

_CELLS = st.none() | st.text("a1", max_size=2) | st.booleans() | st.integers(0, 1)
_ROWS = st.lists(st.tuples(st.just(("name", "type")), st.tuples(_CELLS, _CELLS)), max_size=2).map(tuple)


@given(st.lists(_ROWS, max_size=8))
def test_a_cached_parser_of_rows_returns_what_it_returns_without_the_cache(tables: list[FlatRows]) -> None:
    cached = cache_by_rows(repr)
    assert [cached(rows) for rows in tables] == [repr(rows) for rows in tables]


def test_rows_of_texts_are_parsed_once_unless_they_are_long() -> None:
    parsed: list[FlatRows] = []
    cached = cache_by_rows(parsed.append)
    short, long = ((("name",), ("search",)),), ((("name",), ("x" * 40_000,)),)
    for rows in (short, short, long, long):
        cached(rows)
    assert parsed == [short, long, long]


@given(st.lists(st.text("ab", max_size=3) | st.integers(0, 1), max_size=8), st.integers(0, 2))
def test_a_cached_parser_of_texts_does_not_confuse_texts_with_the_same_end(texts: list[object], key_chars: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tools, "_KEY_CHARS", key_chars)
        patch.setattr(tools, "_MAX_CACHED_SOURCES", 2)
        cached = cache_by_text(repr)
        assert [cached(text) for text in texts] == [repr(text) for text in texts]


def test_a_text_is_parsed_once_unless_it_is_long() -> None:
    parsed: list[object] = []
    cached = cache_by_text(parsed.append)
    for text in ("search", "search", "x" * 40_000, "x" * 40_000):
        cached(text)
    assert [len(str(text)) for text in parsed] == [6, 40_000, 40_000]
