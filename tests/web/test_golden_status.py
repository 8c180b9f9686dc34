"""Pass rates and states of goldens: failing, stale, never matched, gone; and the tools in their runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from goldspan import ExpectedTool, Golden, Goldens, Run, ToolCall, evaluate
from goldspan.errors import ConfigurationError
from goldspan.model import Health
from goldspan.model.value_matchers import Regex
from goldspan.online.pass_rate_statistics import wilson_interval
from goldspan.store import RunFilter, SqliteStore, VerdictCounts, open_store
from goldspan.web.golden_status import (
    GOLDENS_PER_PAGE,
    MAX_TOOLS,
    GoldenTable,
    TableView,
    golden_status,
    golden_table,
    parse_table_view,
    pass_rate,
)
from goldspan.web.page_templates import render
from goldspan.web.pages import Pages
from goldspan.web.run_list import parse_filters

DAY = 24 * 60 * 60 * 10**9
BEGAN = 1_767_225_600 * 10**9
REFUND = Golden("refund", input="Money back", tools=(ExpectedTool("find_order"), ExpectedTool("refund")), threshold=1)
STATUS = Golden("status", input="Where is my parcel?", tools=(ExpectedTool("track"),))
IDLE = Golden("idle", input="Never asked", tools=())
HOSTILE = Golden("<b>&\u202e'\"/?#%", tools=(ExpectedTool("<i>"),), threshold=1)
QUIET = Golden("quiet", tools=(ExpectedTool("track"),), thresholds={"unknown_tools": 1})
"""Its threshold cannot be evaluated, because its runs do not state which tools were offered."""
SHARED: dict[str, Any] = {"version": "0", "is_live": False, "keeps_values": "", "can_leave": False}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    with open_store(tmp_path / "goldspan.db") as opened:
        yield opened


def add(
    store: SqliteStore, golden: Golden | None, calls: str, day: int = 0, times: int = 1, agent: str | None = None
) -> None:
    """Add runs of a golden with these called tools."""
    number = store.count().total
    made = tuple(ToolCall(name) for name in calls.split())
    store.submit_many(
        evaluate(
            Run(
                f"run-{number + at}", input="Money back", tool_calls=made, agent=agent, start_ns=BEGAN + day * DAY + at
            ),
            Goldens() if golden is None else golden,
        )
        for at in range(times)
    )


def in_use(*goldens: Golden) -> Goldens:
    return Goldens(goldens)


def states(board: GoldenTable) -> dict[str, str]:
    return {row.golden_id: row.state for row in board.rows}


def page(store: SqliteStore, goldens: Goldens | None = None, *query: tuple[str, str]) -> str:
    """The rendered view."""
    look, rest = parse_table_view(query)
    filters = parse_filters(rest)
    board = golden_table(store, goldens, filters.run_filter, look)
    return render("goldens.html", view="goldens", table=board, filters=filters, **SHARED)


# --- rates and states -------------------------------------------------------------------------------------------------


def test_a_pass_rate_covers_evaluated_runs_and_is_none_without_any() -> None:
    rate = pass_rate(VerdictCounts(passed=8, failed=2, not_evaluated=5))
    assert (rate.share, (rate.low, rate.high)) == (0.8, wilson_interval(8, 10))
    unknown = pass_rate(VerdictCounts(not_evaluated=3))
    assert (unknown.share, unknown.low, unknown.high) == (None, None, None)


def test_goldens_are_listed_with_the_state_of_their_runs_worst_first(store: SqliteStore) -> None:
    add(store, REFUND, "find_order refund", day=20, times=3)
    add(store, REFUND, "find_order cancel", day=20, times=3)
    add(store, STATUS, "track", day=1)
    add(store, HOSTILE, "<i>", day=20)
    add(store, QUIET, "track", day=20)
    add(store, None, "search", day=21, times=4)
    board = golden_table(store, in_use(REFUND, STATUS, IDLE, QUIET), RunFilter())
    assert states(board) == {
        "refund": "failing",
        "status": "stale",
        "idle": "never matched",
        HOSTILE.id: "gone",
        "quiet": "not evaluated",
    }
    assert list(states(board)) == ["refund", "status", "idle", HOSTILE.id, "quiet"]
    refund = board.rows[0]
    assert (refund.rate.counts, refund.rate.share, refund.request) == (VerdictCounts(3, 3), 0.5, "Money back")
    assert refund.last_ns == BEGAN + 20 * DAY + 2
    assert (board.covered, board.uncovered, board.total) == (VerdictCounts(5, 3, 1), 4, 5)
    assert [state for state, _, _ in board.states] == ["failing", "stale", "never matched", "gone", "not evaluated"]


def test_one_failure_among_many_passes_does_not_make_a_golden_failing(store: SqliteStore) -> None:
    add(store, STATUS, "track", times=99)
    add(store, STATUS, "")
    assert states(golden_table(store, in_use(STATUS), RunFilter())) == {"status": "fine"}


def test_without_the_goldens_in_use_no_golden_is_gone_or_never_matched(store: SqliteStore) -> None:
    add(store, STATUS, "track")
    board = golden_table(store, None, RunFilter())
    assert (states(board), board.goldens_known) == ({"status": "fine"}, False)
    assert "--goldens goldens.yaml" in page(store)


def test_expectations_that_runs_state_themselves_are_never_gone(store: SqliteStore) -> None:
    store.submit(evaluate(Run("r", tool_calls=(ToolCall("a"),), expected_tools=("a",)), Goldens([IDLE])))
    row = golden_table(store, in_use(IDLE), RunFilter()).rows[-1]
    assert (row.state, row.request) == ("fine", "expectations that the runs themselves state")


def test_with_a_filter_no_golden_is_reported_as_never_matched(store: SqliteStore) -> None:
    add(store, REFUND, "find_order", agent="support")
    add(store, STATUS, "track", agent="post")
    board = golden_table(store, in_use(REFUND, STATUS, IDLE), RunFilter(agent="post"))
    assert states(board) == {"status": "fine"}
    assert [tool.name for tool in board.tools.tools] == ["track"]


# --- views ------------------------------------------------------------------------------------------------------------


@pytest.mark.e2e
def test_the_golden_table_is_paged_and_searchable_with_thousands_of_goldens(store: SqliteStore) -> None:
    add(store, REFUND, "find_order refund")
    many = Goldens([REFUND, *(Golden(f"g{number:05}", input=f"Question {number}") for number in range(10_000))])
    board = golden_table(store, many, RunFilter(), TableView(page=3))
    assert (len(board.rows), board.matching, board.pages, board.first) == (GOLDENS_PER_PAGE, 10_001, 101, 201)
    assert golden_table(store, many, RunFilter(), TableView(page=900_000)).view.page == 101
    assert [row.golden_id for row in golden_table(store, many, RunFilter(), TableView(find="QUESTION 777")).rows] == [
        "g00777", *(f"g0777{digit}" for digit in range(10))
    ]  # fmt: skip
    assert [row.golden_id for row in golden_table(store, many, RunFilter(), TableView(find="Refund")).rows] == [
        "refund"
    ]
    assert [row.golden_id for row in golden_table(store, many, RunFilter(), TableView(state="fine")).rows] == ["refund"]
    shown = page(store, many)
    assert len(shown.encode()) < 300_000
    assert "page 1 of 101" in shown
    assert 'href="/goldens?page=2"' in shown


@pytest.mark.parametrize(
    ("sort", "order"),
    [("worst", "bca"), ("name", "abc"), ("runs", "cba"), ("rate", "bca"), ("newest", "acb")],
)
def test_the_golden_table_is_sorted_in_the_selected_order(store: SqliteStore, sort: Any, order: str) -> None:
    golden = {name: Golden(name, tools=(ExpectedTool("t"),)) for name in "abc"}
    add(store, golden["a"], "t", day=9)
    add(store, golden["b"], "", day=1, times=4)
    add(store, golden["c"], "t", day=5, times=8)
    add(store, golden["c"], "", day=5)
    board = golden_table(store, None, RunFilter(), TableView(sort=sort))
    assert "".join(row.golden_id for row in board.rows) == order


def test_a_table_view_survives_a_round_trip_through_an_address() -> None:
    look, rest = parse_table_view(
        [("find", " refund "), ("sort", "rate"), ("page", "2"), ("agent", "a&b"), ("state", "")]
    )
    assert (look.sort, look.find, look.state, look.page) == ("rate", "refund", None, 2)
    assert rest == [("agent", "a&b")]
    assert look.address(state="never matched") == "/goldens?agent=a%26b&sort=rate&find=refund&state=never+matched"
    assert look.address(page=3) == "/goldens?agent=a%26b&sort=rate&find=refund&page=3"
    assert TableView().address(sort="worst") == "/goldens"


@pytest.mark.parametrize(
    ("name", "text"), [("sort", "sideways"), ("state", "asleep"), ("page", "0"), ("page", "-1"), ("page", "²")]
)
def test_an_invalid_table_view_is_refused(name: str, text: str) -> None:
    with pytest.raises(ConfigurationError, match=f"{name} must be"):
        parse_table_view([(name, text)])


# --- tools ------------------------------------------------------------------------------------------------------------


def test_tool_counts_cover_only_runs_with_a_golden(store: SqliteStore) -> None:
    add(store, REFUND, "find_order cancel", times=2)
    add(store, None, "search")
    tools = golden_table(store, None, RunFilter()).tools
    told = {tool.name: (tool.called, tool.expected, tool.missing, tool.unexpected) for tool in tools.tools}
    assert told == {"cancel": (2, 0, 0, 2), "refund": (0, 2, 2, 0), "find_order": (2, 2, 0, 0)}
    assert [(each.expected, each.called, each.runs) for each in tools.substitutions] == [("refund", "cancel", 2)]
    assert 'href="/?covered=true&amp;tool=refund&amp;tool_role=missing"' in page(store)


def test_the_tool_table_is_bounded_and_counts_the_omitted_tools(store: SqliteStore) -> None:
    add(store, REFUND, " ".join(f"tool{number}" for number in range(MAX_TOOLS + 7)))
    tools = golden_table(store, None, RunFilter()).tools
    assert (len(tools.tools), tools.omitted) == (MAX_TOOLS, 9)
    assert "9 more tools" in page(store)


# --- one golden -------------------------------------------------------------------------------------------------------


def test_a_golden_shows_its_pass_rate_last_failures_match_kinds_and_definition(store: SqliteStore) -> None:
    add(store, REFUND, "find_order refund", times=5)
    add(store, REFUND, "find_order cancel", day=1, times=12)
    standing = golden_status(store, in_use(REFUND), "refund")
    assert standing is not None
    assert (standing.row.state, standing.row.rate.counts) == ("failing", VerdictCounts(5, 12))
    assert [entry.run_id for entry in standing.failures] == [f"run-{number}" for number in range(16, 6, -1)]
    assert (standing.match_descriptions, standing.sampled_runs) == ((("the expectations of the run itself", 17),), 17)
    assert standing.definition == "  - id: refund\n    input: Money back\n    tools: [find_order, refund]\n"
    assert [(each.expected, each.called) for each in standing.tools.substitutions] == [("refund", "cancel")]


def test_the_view_of_a_golden_shows_capture_hints_of_its_failed_runs(store: SqliteStore) -> None:
    store.submit_many(evaluate(Run(name, health=Health(missing_root=True)), REFUND) for name in ("a", "b"))
    standing = golden_status(store, None, "refund")
    assert standing is not None
    assert [runs for _, runs in standing.health] == [2]
    assert "span is missing" in render("golden.html", view="goldens", status=standing, **SHARED)


def test_a_golden_is_stale_when_other_goldens_have_much_newer_runs(store: SqliteStore) -> None:
    add(store, STATUS, "track")
    alone = golden_status(store, None, "status")
    add(store, REFUND, "find_order refund", day=8)
    beside = golden_status(store, None, "status")
    assert alone is not None
    assert beside is not None
    assert (alone.row.state, beside.row.state, beside.definition) == ("fine", "stale", None)


def test_the_view_of_a_golden_without_runs_shows_its_definition(store: SqliteStore) -> None:
    standing = golden_status(store, in_use(IDLE), "idle")
    assert standing is not None
    assert (standing.row.state, standing.failures, standing.sampled_runs) == ("never matched", (), 0)
    shown = render("golden.html", view="goldens", status=standing, **SHARED)
    assert "No run matches this golden" in shown
    assert "tools: []" in shown


def test_an_unknown_golden_has_no_status(store: SqliteStore) -> None:
    assert golden_status(store, None, "nobody") is None
    assert golden_status(store, in_use(IDLE), "nobody") is None


def test_a_golden_that_cannot_be_serialized_is_shown_without_its_definition(store: SqliteStore) -> None:
    odd = Golden("odd", tools=(ExpectedTool("t", {"x": object()}),))
    standing = golden_status(store, in_use(odd), "odd")
    assert standing is not None
    assert (standing.definition, standing.cut_off) == (None, False)
    assert "No golden file contains this golden." in render("golden.html", view="goldens", status=standing, **SHARED)


def test_a_very_long_golden_definition_is_truncated(store: SqliteStore) -> None:
    long = Golden("long", tools=tuple(ExpectedTool(f"tool_number_{number}") for number in range(5000)))
    standing = golden_status(store, in_use(long), "long")
    assert standing is not None
    assert standing.cut_off
    shown = render("golden.html", view="goldens", status=standing, **SHARED)
    assert "Only its beginning is shown." in shown
    assert len(shown.encode()) < 300_000


# --- rendering --------------------------------------------------------------------------------------------------------


def test_a_golden_with_a_hostile_id_is_shown_as_text_and_linked_correctly(store: SqliteStore) -> None:
    add(store, HOSTILE, "<i>")
    add(store, HOSTILE, "<u>")
    board = page(store)
    site = Pages(store, goldens=lambda: None, is_live=False)
    shown = site.golden(HOSTILE.id, ())
    assert shown.status == 200
    for text in (board, shown.body):
        assert "<b>" not in text
        assert "<i>" not in text
        assert "\u202e" not in text
        assert "&lt;b&gt;&amp;⟨U+202E⟩" in text
    assert 'href="/goldens/%3Cb%3E%26%E2%80%AE%27%22%2F%3F%23%25"' in board


@pytest.mark.parametrize("is_live", [True, False])
def test_without_goldens_the_page_explains_how_to_write_one(store: SqliteStore, is_live: bool) -> None:
    site = Pages(store, goldens=lambda: None, is_live=is_live)
    empty = site.goldens(()).body
    assert "No goldens yet" in empty
    assert ("goldspan serve --goldens goldens.yaml" in empty) is is_live
    add(store, None, "search")
    assert "1 run is stored without a golden" in site.goldens(()).body


def test_filters_that_match_no_golden_are_reported_and_stay_in_the_form(store: SqliteStore) -> None:
    add(store, STATUS, "track")
    shown = page(store, None, ("find", "nothing"))
    assert "No golden matches these filters." in shown
    assert 'value="nothing"' in shown
    narrowed = page(store, None, ("agent", "nobody"), ("environment", "test"), ("sort", "name"))
    assert '<input type="hidden" name="environment" value="test">' in narrowed
    assert '<input type="hidden" name="sort" value="name">' in narrowed


def test_an_unknown_pass_rate_is_not_shown_as_zero(store: SqliteStore) -> None:
    add(store, QUIET, "track")
    shown = page(store)
    assert "not known" in shown
    assert "0 %" not in shown


def test_a_value_matcher_is_shown_in_golden_file_syntax(store: SqliteStore) -> None:
    golden = Golden("g", tools=(ExpectedTool("t", {"a": Regex("x+")}),), order="exact")
    standing = golden_status(store, in_use(golden), "g")
    assert standing is not None
    assert standing.definition == (
        '  - id: g\n    order: exact\n    tools: [{name: t, arguments: {a: {regex: "x+"}}}]\n'
    )
