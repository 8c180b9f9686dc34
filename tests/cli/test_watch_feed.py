"""`goldspan watch` filters, counts and formats evaluations."""

from __future__ import annotations

import json
from bisect import bisect_right
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from io import StringIO
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from goldspan import Evaluation
from goldspan.cli import live_feed
from goldspan.cli.api_client import ApiClient, ApiDocument
from goldspan.cli.live_feed import FeedTotals, feed_line, feed_reason, matches_filter, query_parameters
from goldspan.store import RunFilter, open_store
from goldspan.store.query_parameters import FILTER_PARAMETERS, filter_from_query, parse_query
from goldspan.store.store_protocol import ToolRole
from support.laws import examples
from support.random_evaluations import evaluations, filters

NOW = datetime(2026, 3, 4, 12, 0, tzinfo=timezone(timedelta(hours=2)))
NOT_OURS = dict.fromkeys(("covered", "session_id", "trace_id", "text", "since_ns", "until_ns"))
"""Filters that only the API supports."""


def shown(**document: Any) -> str:
    """The line of an evaluation on a Unicode terminal."""
    return feed_line(document, Console(file=StringIO()), now=NOW).plain


def of_tools(wanted: RunFilter) -> RunFilter:
    """The tool part of a filter: other conditions would often match no run."""
    return RunFilter(tool=wanted.tool, tool_role=wanted.tool_role)


@examples(1.5)
@given(
    st.lists(evaluations(), min_size=1, max_size=6, unique_by=lambda each: each.run.run_id),
    filters | filters.map(of_tools),
)
def test_matches_filter_selects_the_same_runs_as_the_store(
    tmp_path_factory: pytest.TempPathFactory, found: list[Evaluation], wanted: RunFilter
) -> None:
    wanted = replace(wanted, **NOT_OURS)
    with open_store(tmp_path_factory.mktemp("store") / "goldspan.db") as store:
        store.submit_many(found)
        meant = {run.run_id for run in store.runs(wanted).items}
        everything = [{**run.current.document, "run_id": run.run_id} for run in store.runs().items]
    verdicts = {True: "pass", False: "fail", None: "not_evaluated"}
    documents = [
        json.loads(json.dumps(document)) | {"verdict": verdicts[document["passed"]]} for document in everything
    ]
    assert {document["run_id"] for document in documents if matches_filter(document, wanted)} == meant


@given(filters)
def test_a_filter_survives_the_conversion_to_query_parameters(wanted: RunFilter) -> None:
    wanted = replace(wanted, **NOT_OURS)
    assert filter_from_query(parse_query(query_parameters(wanted).items(), FILTER_PARAMETERS)) == wanted


class _Stored(ApiClient):
    """A gateway with evaluations at these sequence numbers."""

    def __init__(self, places: list[int]) -> None:
        super().__init__("gateway")
        self._places = places

    def evaluations_after(self, after: int, limit: int = 1) -> tuple[list[ApiDocument], int]:
        at = bisect_right(self._places, after)
        found = self._places[at : at + limit]
        return [{} for _ in found], found[-1] if found else after


@given(st.lists(st.integers(1, 2**40), unique=True).map(sorted))
def test_last_sequence_number_finds_the_end_of_the_store(places: list[int]) -> None:
    assert _Stored(places).last_sequence_number() == (places[-1] if places else 0)


def test_a_line_shows_time_verdict_golden_differences_and_input() -> None:
    line = shown(
        stored="2026-03-04T09:08:07.123456789Z", verdict="fail", golden_id="trip", agent="helper", component="planner",
        revision=2, input="Book\n a  trip", tool_calls=[{"name": "mail"}, {"name": "wipe"}, {"name": "wipe"}],
        rows=[
            {"verdict": "missing", "expected": "book", "called_at": None},
            {"verdict": "unexpected", "expected": None, "called_at": 0},
            {"verdict": "forbidden", "expected": None, "called_at": 1},
            {"verdict": "forbidden", "expected": None, "called_at": 2},
        ],
    )  # fmt: skip
    assert line == (
        "11:08:07 ✗ trip (component planner; agent helper; revision 2)  ✗ book  + mail  ! wipe  Book a trip"
    )


@pytest.mark.parametrize(
    ("document", "line"),
    [
        ({}, "--:--:-- ○ run"),
        ({"stored": "yesterday", "verdict": "unheard of"}, "--:--:-- ○ run"),
        ({"stored": "2026-03-03T23:00:00Z", "verdict": "pass", "service": "shop"}, "01:00:00 ✓ shop"),
        ({"stored": "2026-03-03T21:00:00Z", "verdict": "pass", "service": "shop"}, "03-03 23:00:00 ✓ shop"),
        ({"golden_id": "expected", "agent": "helper", "service": "shop"}, "--:--:-- ○ expected (agent helper)"),
    ],
)
def test_unknown_fields_are_omitted_from_the_line(document: ApiDocument, line: str) -> None:
    assert shown(**document) == line


def test_a_reason_is_shown_only_for_runs_that_did_not_pass() -> None:
    assert feed_reason({"verdict": "pass", "reason": "All went well."}) == ""
    assert feed_reason({"verdict": "fail", "reason": "Not\n\x1b[2Jso."}) == "Not \\x1b[2Jso."
    assert feed_reason({"verdict": "not_evaluated"}) == ""


@pytest.mark.parametrize(
    ("role", "tools"),
    [
        ("called", {"mail", "wipe", "search"}),
        ("expected", {"search", "book", "reserve", "log", "notify"}),
        ("missing", {"book", "reserve", "log", "notify"}),
        ("unexpected", {"mail"}),
        ("forbidden", {"wipe"}),
        ("failed", {"search"}),
    ],
)
def test_a_tool_filter_selects_tools_by_their_role(role: ToolRole, tools: set[str]) -> None:
    document = {
        "tools_used": ["mail", "wipe", "search"],
        "tool_calls": [{"name": "mail"}, {"name": "wipe"}, {"name": "search", "error": "failed"}],
        "rows": [
            {"verdict": "paired", "expected": "search", "called_at": 2},
            {"verdict": "missing", "expected": "book or reserve", "called_at": None},
            {"verdict": "missing", "expected": "log & notify", "called_at": None},
            {"verdict": "unexpected", "expected": None, "called_at": 0},
            {"verdict": "forbidden", "expected": None, "called_at": 1},
        ],
    }
    everything = ("mail", "wipe", "search", "book", "reserve", "log", "notify")
    assert {
        name for name in everything if matches_filter(document, RunFilter(tool=name.upper(), tool_role=role))
    } == tools


def test_forgotten_runs_stay_in_the_totals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_feed, "_MAX_REMEMBERED_RUNS", 2)
    totals = FeedTotals()
    for number in range(5):
        totals.add({"run_id": str(number), "verdict": "pass"})
    assert totals.as_text().plain.startswith("5 runs: 5 passed")


def test_the_totals_count_the_latest_verdict_of_each_run() -> None:
    totals = FeedTotals()
    assert totals.as_text().plain == "0 runs: 0 passed, 0 failed"
    totals.add({"run_id": "1", "verdict": "not_evaluated"})
    assert totals.as_text().plain == "1 run: 0 passed, 0 failed, 1 not evaluated"
    totals.add({"run_id": "1", "verdict": "pass"})
    totals.add({"run_id": "2", "verdict": "pass"})
    totals.add({"run_id": "3", "verdict": "fail"})
    assert totals.as_text().plain == "3 runs: 2 passed, 1 failed; pass rate 66.7%"
    totals.add({"run_id": "3", "verdict": "pass"}, wanted=False)
    assert totals.as_text().plain == "2 runs: 2 passed, 0 failed; pass rate 100.0%"
