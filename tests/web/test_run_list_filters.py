"""Filters of the run list in a URL, in the form and in a query of the store."""

from __future__ import annotations

from urllib.parse import parse_qsl, urlsplit

import pytest

from goldspan.errors import ConfigurationError
from goldspan.store import RunFilter
from goldspan.web.run_list import RunFilters, parse_filters, unparsed_filters


def read(**said: str) -> RunFilters:
    return parse_filters(said.items())


def test_an_empty_query_selects_every_run() -> None:
    filters = read()
    assert (filters.run_filter, filters.cursor, filters.active, filters.has_advanced) == (RunFilter(), None, [], False)
    assert filters.address() == "/"


def test_empty_form_fields_are_ignored() -> None:
    filters = read(text="", agent="  ", verdict="", below="", tool_role="")
    assert filters.run_filter == RunFilter()
    assert filters.values == {}


def test_query_parameters_become_filters_that_the_page_shows() -> None:
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


def test_a_filter_that_lacks_its_second_parameter_has_no_effect() -> None:
    assert read(below="0.5", tool_role="missing").run_filter == RunFilter()
    assert read(below="much").run_filter == RunFilter()


def test_the_remove_link_of_a_filter_also_removes_the_filters_that_depend_on_it() -> None:
    filters = read(verdict="fail", tool="pay", tool_role="missing", metric="tool_f1", below="0.5")
    left = {name: {key for key, _ in parse_qsl(urlsplit(address).query)} for name, _, address in filters.active}
    assert left == {
        "verdict": {"tool", "tool_role", "metric", "below"},
        "tool": {"verdict", "metric", "below"},
        "role of the tool": {"verdict", "tool", "metric", "below"},
        "metric": {"verdict", "tool", "tool_role"},
        "below": {"verdict", "tool", "tool_role", "metric"},
    }


def test_filters_survive_a_round_trip_through_an_address() -> None:
    filters = read(text="a&b=c ü%", agent="<x>", since="2026-01-01", covered="false")
    assert dict(parse_qsl(urlsplit(filters.address()).query)) == dict(filters.values)
    assert parse_filters(parse_qsl(urlsplit(filters.address()).query)) == filters


def test_the_cursor_is_not_a_filter() -> None:
    filters = read(verdict="fail", cursor="1767225600000000000-131")
    assert filters.cursor == "1767225600000000000-131"
    assert filters.address() == "/?verdict=fail"
    assert filters.address(cursor="1-2") == "/?verdict=fail&cursor=1-2"
    assert [name for name, _, _ in filters.active] == ["verdict"]


@pytest.mark.parametrize("name", ["metric", "service", "environment", "unit", "session_id", "trace_id", "until"])
def test_a_rarely_used_filter_opens_the_advanced_part_of_the_form(name: str) -> None:
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
def test_an_invalid_filter_is_refused_and_its_text_stays_in_the_form(pairs: list[tuple[str, str]]) -> None:
    with pytest.raises(ConfigurationError):
        parse_filters(pairs)
    written = unparsed_filters(pairs)
    assert written.run_filter == RunFilter()
    assert {*written.values} <= {name for name, _ in pairs} - {"nobody"}
