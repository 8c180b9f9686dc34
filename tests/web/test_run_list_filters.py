"""Filters of the run list in a URL, in the form and in a query of the store."""

from __future__ import annotations

from urllib.parse import parse_qsl, urlsplit

import pytest

from goldspan.errors import ConfigurationError
from goldspan.store import RunFilter
from goldspan.web.run_list import RunFilters, parse_filters, unparsed_filters


def read(**said: str) -> RunFilters:
    return parse_filters(said.items())


def test_nothing_said_means_every_run() -> None:
    filters = read()
    assert (filters.run_filter, filters.cursor, filters.active, filters.has_advanced) == (RunFilter(), None, [], False)
    assert filters.address() == "/"


def test_what_is_left_empty_in_a_form_is_not_said() -> None:
    filters = read(text="", agent="  ", verdict="", below="", tool_role="")
    assert filters.run_filter == RunFilter()
    assert filters.values == {}


def test_what_is_said_is_meant_and_shown() -> None:
    filters = read(text=" refund ", verdict="fail", tool="pay", tool_role="missing", metric="tool_f1", below="0.5")
    expected = RunFilter(text="refund", verdict="fail", tool="pay", tool_role="missing", metric="tool_f1", below=0.5)
    assert filters.run_filter == expected
    assert filters.get("text") == "refund"
    assert filters.get("agent") == ""
    assert [(name, text) for name, text, _ in filters.active] == [
        ("verdict", "fail"),
        ("text", "refund"),
        ("tool", "pay"),
        ("role of the tool", "missing"),
        ("metric", "tool_f1"),
        ("below", "0.5"),
    ]


def test_half_a_filter_waits_for_its_other_half() -> None:
    assert read(below="0.5", tool_role="missing").run_filter == RunFilter()
    assert read(below="much").run_filter == RunFilter()


def test_each_filter_can_be_taken_away_with_what_needs_it() -> None:
    filters = read(verdict="fail", tool="pay", tool_role="missing", metric="tool_f1", below="0.5")
    left = {name: {key for key, _ in parse_qsl(urlsplit(address).query)} for name, _, address in filters.active}
    assert left == {
        "verdict": {"tool", "tool_role", "metric", "below"},
        "tool": {"verdict", "metric", "below"},
        "role of the tool": {"verdict", "tool", "metric", "below"},
        "metric": {"verdict", "tool", "tool_role"},
        "below": {"verdict", "tool", "tool_role", "metric"},
    }


def test_an_address_says_the_same_again() -> None:
    filters = read(text="a&b=c ü%", agent="<x>", since="2026-01-01", covered="false")
    assert dict(parse_qsl(urlsplit(filters.address()).query)) == dict(filters.values)
    assert parse_filters(parse_qsl(urlsplit(filters.address()).query)) == filters


def test_the_place_in_a_list_is_no_filter() -> None:
    filters = read(verdict="fail", cursor="1767225600000000000-131")
    assert filters.cursor == "1767225600000000000-131"
    assert filters.address() == "/?verdict=fail"
    assert filters.address(cursor="1-2") == "/?verdict=fail&cursor=1-2"
    assert [name for name, _, _ in filters.active] == ["verdict"]


@pytest.mark.parametrize("name", ["metric", "service", "environment", "unit", "session_id", "trace_id", "until"])
def test_what_is_seldom_looked_for_opens_the_rest_of_the_form(name: str) -> None:
    texts = {"unit": "request", "trace_id": "a" * 32, "until": "1h"}
    assert read(**{name: texts.get(name, "x")}).has_advanced
    assert not read(text="x", verdict="pass", agent="a", since="1h").has_advanced


@pytest.mark.parametrize(
    "pairs",
    [
        [("nobody", "knows")],
        [("verdict", "maybe")],
        [("verdict", "pass"), ("verdict", "fail")],
        [("metric", "tool_f1"), ("below", "much")],
        [("metric", "tool_f1"), ("below", "nan")],
        [("since", "yesterday")],
        [("trace_id", "12")],
        [("covered", "perhaps")],
        [("unit", "day")],
    ],
)
def test_what_means_nothing_is_refused_and_can_be_put_right(pairs: list[tuple[str, str]]) -> None:
    with pytest.raises(ConfigurationError):
        parse_filters(pairs)
    written = unparsed_filters(pairs)
    assert written.run_filter == RunFilter()
    assert {*written.values} <= {name for name, _ in pairs} - {"nobody"}
