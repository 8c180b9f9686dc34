"""Tool names: compared folded, shown as written."""

from __future__ import annotations

import pytest

from goldspan.extraction.names import fold, handoff_target, undecorate


@pytest.mark.parametrize("name", ["web_search", "WebSearch", "Web Search", "web-search", "web.search", "WEB_SEARCH"])
def test_case_and_separators_do_not_matter(name: str) -> None:
    assert fold(name) == "websearch"


def test_different_names_stay_different() -> None:
    assert len({fold(name) for name in ("search", "research", "search2", "søk", "_", "-", "")}) == 7


@pytest.mark.parametrize(
    ("raw", "name", "server"),
    [
        ("mcp__orders__add", "add", "orders"),
        ("mcp__my_shop__add__item", "add__item", "my_shop"),
        ("functions.search", "search", None),
        ("default_api.search", "search", None),
        ("functions.", "functions.", None),
        ("orders_add", "orders_add", None),
        ("search", "search", None),
        ("", "", None),
    ],
)
def test_the_decoration_of_a_host_is_taken_off(raw: str, name: str, server: str | None) -> None:
    assert undecorate(raw) == (name, server)


@pytest.mark.parametrize(
    ("name", "target"),
    [("transfer_to_billing", "billing"), ("handoff to billing", "billing"), ("handoff_to_b", "b"), ("transfer", None)],
)
def test_a_handoff_says_where_it_goes(name: str, target: str | None) -> None:
    assert handoff_target(name) == target
