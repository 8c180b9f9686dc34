"""Filters in a real browser: they change the list and the address, survive a reload and work without scripts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import pytest
from playwright.sync_api import Locator, Page, expect

from support.browser import Visit, Visiting
from support.page_server import run_id, store_in, viewing

pytestmark = pytest.mark.needs("chromium")

TURNS = 12
"""How often each kind of run is stored; the runs fill more than one page."""
TYPED = [
    ("Text in the request", "LAST order", {"text": "LAST order"}, 2 * TURNS),
    ("Golden", "trip/lisbon", {"golden": "trip/lisbon"}, TURNS),
    ("Agent", "travel", {"agent": "travel"}, TURNS),
    ("Tool", "find_account", {"tool": "find_account"}, 2 * TURNS),
    ("Since", "2026-01-01T00:11", {"since": "2026-01-01T00:11"}, 6),
]
MORE = [
    ("Metric", "forbidden_tools", {"metric": "forbidden_tools"}, TURNS * 6),
    ("Service", "billing", {"service": "billing"}, 2 * TURNS),
    ("Environment", "test", {"environment": "test"}, TURNS * 6),
    ("Session", "session-1", {"session_id": "session-1"}, TURNS),
    ("Trace", run_id(1, 3)[:32], {"trace_id": run_id(1, 3)[:32]}, 1),
    ("Until", "2026-01-01T00:01", {"until": "2026-01-01T00:01"}, 6),
]
CHOSEN = [
    ("Verdict", "passed", {"verdict": "pass"}, 2 * TURNS),
    ("Verdict", "failed", {"verdict": "fail"}, 2 * TURNS),
    ("Verdict", "not evaluated", {"verdict": "not_evaluated"}, 2 * TURNS),
]


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("filters")
    store, goldens = store_in(folder, times=TURNS)
    with viewing(folder, store, "--goldens", goldens) as view:
        yield view.address


@pytest.fixture
def visit(visiting: Visiting, address: str) -> Visit:
    visit = visiting(address)
    visit.open()
    return visit


def field(page: Page, name: str) -> Locator:
    return page.get_by_role("search", name="Filters").get_by_label(name, exact=True)


def open_more(page: Page) -> None:
    page.get_by_role("search").get_by_text("More filters", exact=True).click()


def query_of(url: str) -> dict[str, str]:
    return dict(parse_qsl(urlsplit(url).query))


def expect_query(page: Page, query: dict[str, str]) -> None:
    """Wait until the address has these parameters."""
    page.wait_for_url(lambda url: query_of(url) == query)


def expect_runs(page: Page, number: int) -> None:
    """Wait for the number of matching runs and for the first listed run."""
    region = page.get_by_role("region", name="Runs", exact=True)
    expect(region.locator("dl").first).to_contain_text(f"runs {number}", use_inner_text=True)
    expect(region.locator("a[href^='/runs/']")).to_have_count(min(number, 50))


@pytest.mark.e2e
@pytest.mark.parametrize(("name", "text", "query", "number"), [*TYPED, *MORE])
def test_a_typed_filter_narrows_the_list(
    visit: Visit, name: str, text: str, query: dict[str, str], number: int
) -> None:
    if (name, text, query, number) in MORE:
        open_more(visit.page)
    field(visit.page, name).press_sequentially(text)
    expect_query(visit.page, query)
    expect_runs(visit.page, number)
    expect(field(visit.page, name)).to_be_focused()
    expect(field(visit.page, name)).to_have_value(text)
    visit.overlook("status of 400")  # while the user types, half a trace id is reported as not valid


@pytest.mark.e2e
@pytest.mark.parametrize(("name", "word", "query", "number"), CHOSEN)
def test_a_selected_filter_narrows_the_list(
    visit: Visit, name: str, word: str, query: dict[str, str], number: int
) -> None:
    field(visit.page, name).select_option(word)
    expect_query(visit.page, query)
    expect_runs(visit.page, number)


@pytest.mark.e2e
def test_several_filters_are_combined(visit: Visit) -> None:
    field(visit.page, "Tool").fill("book trip")
    field(visit.page, "Role of the tool").select_option("missing")
    expect_runs(visit.page, TURNS - 1)  # one of the runs called the tool
    field(visit.page, "Verdict").select_option("failed")
    open_more(visit.page)
    field(visit.page, "Metric").fill("tool_recall")
    field(visit.page, "is below").fill("0.5")
    expect(visit.page.get_by_role("heading", name="No run matches these filters")).to_be_visible()
    field(visit.page, "is below").fill("0.7")
    expect_runs(visit.page, TURNS - 1)
    expected = {"tool": "book trip", "tool_role": "missing", "verdict": "fail", "metric": "tool_recall", "below": "0.7"}
    expect_query(visit.page, expected)


@pytest.mark.e2e
def test_filters_survive_a_reload_and_are_removed_one_by_one(visit: Visit) -> None:
    field(visit.page, "Agent").fill("travel")
    field(visit.page, "Verdict").select_option("failed")
    expect_runs(visit.page, TURNS)
    visit.page.reload()
    expect_runs(visit.page, TURNS)
    expect(field(visit.page, "Agent")).to_have_value("travel")
    expect(field(visit.page, "Verdict")).to_have_value("fail")
    visit.page.get_by_role("link", name="Remove the filter agent: travel").click()
    expect_runs(visit.page, 2 * TURNS)
    expect(field(visit.page, "Agent")).to_have_value("")
    visit.page.get_by_role("link", name="Clear").click()
    expect_runs(visit.page, 6 * TURNS)
    expect_query(visit.page, {})


@pytest.mark.e2e
def test_back_and_forward_restore_the_filters(visit: Visit) -> None:
    field(visit.page, "Agent").fill("travel")
    expect_runs(visit.page, TURNS)
    field(visit.page, "Verdict").select_option("passed")
    expect(visit.page.get_by_role("heading", name="No run matches these filters")).to_be_visible()
    visit.page.go_back()
    expect_runs(visit.page, TURNS)
    expect(field(visit.page, "Verdict")).to_have_value("")
    expect(field(visit.page, "Agent")).to_have_value("travel")
    visit.page.go_back()
    expect_runs(visit.page, 6 * TURNS)
    expect(field(visit.page, "Agent")).to_have_value("")
    visit.page.go_forward()
    expect_runs(visit.page, TURNS)
    expect(field(visit.page, "Agent")).to_have_value("travel")


@pytest.mark.e2e
def test_after_going_back_the_controls_of_the_page_still_work(visit: Visit) -> None:
    field(visit.page, "Agent").fill("travel")
    expect_runs(visit.page, TURNS)
    visit.page.go_back()
    expect_runs(visit.page, 6 * TURNS)
    visit.page.get_by_role("button", name="Pause").click()
    expect(visit.page.get_by_role("button", name="Resume")).to_have_attribute("aria-pressed", "true")
    visit.page.get_by_role("button", name="Keys").click()
    expect(visit.page.get_by_role("dialog", name="Keys")).to_be_visible()
    visit.page.keyboard.press("Escape")
    field(visit.page, "Verdict").select_option("passed")
    expect_runs(visit.page, 2 * TURNS)
    expect(visit.page.locator("time").first).not_to_contain_text("UTC")


@pytest.mark.e2e
def test_an_address_shows_the_same_list_in_another_browser_and_without_scripts(
    visit: Visit, visiting: Visiting, address: str
) -> None:
    open_more(visit.page)
    field(visit.page, "Service").fill("billing")
    field(visit.page, "Verdict").select_option("not evaluated")
    expect_runs(visit.page, 2 * TURNS)
    for how in ({}, {"java_script_enabled": False}):
        other = visiting(address, **how)
        other.page.goto(visit.page.url)
        expect_runs(other.page, 2 * TURNS)
        assert other.names() == visit.names()
        expect(field(other.page, "Service")).to_have_value("billing")
        expect(field(other.page, "Service")).to_be_visible()


@pytest.mark.e2e
def test_the_filter_form_works_without_scripts(visiting: Visiting, address: str) -> None:
    visit = visiting(address, java_script_enabled=False)
    visit.open()
    field(visit.page, "Agent").fill("travel")
    field(visit.page, "Verdict").select_option("failed")
    visit.page.get_by_role("button", name="Find").click()
    expect_runs(visit.page, TURNS)
    visit.page.get_by_role("link", name="Remove the filter verdict").click()
    expect_query(visit.page, {"agent": "travel"})


@pytest.mark.e2e
def test_enter_applies_the_filter_without_leaving_the_page(visit: Visit) -> None:
    visit.page.evaluate("window.still = true")
    field(visit.page, "Text in the request").fill("song")
    field(visit.page, "Text in the request").press("Enter")
    expect_runs(visit.page, TURNS)
    assert visit.page.evaluate("window.still") is True


@pytest.mark.e2e
def test_filter_fields_suggest_the_stored_names(visit: Visit) -> None:
    for name, expected in (("Golden", "trip/lisbon"), ("Agent", "travel"), ("Tool", "find_account")):
        box = field(visit.page, name)
        box.focus()
        options = visit.page.locator(f"#{box.get_attribute('list')} option")
        expect(options.and_(visit.page.locator(f"[value='{expected}']"))).to_have_count(1)


@pytest.mark.e2e
def test_an_invalid_filter_is_reported_and_can_be_corrected(visit: Visit) -> None:
    field(visit.page, "Since").fill("yesterdayish")
    expect(visit.page.get_by_role("alert")).to_contain_text("since must be a time")
    visit.forgive("status of 400")
    expect(field(visit.page, "Since")).to_have_value("yesterdayish")
    field(visit.page, "Since").fill("2026-01-01")
    expect_runs(visit.page, 6 * TURNS)
    expect(visit.page.get_by_role("alert")).to_have_count(0)


@pytest.mark.e2e
def test_the_number_of_results_is_announced_to_screen_readers(visit: Visit) -> None:
    field(visit.page, "Agent").fill("travel")
    expect(visit.page.get_by_role("status")).to_have_text(f"{TURNS} runs")


@pytest.mark.e2e
def test_the_list_of_runs_is_paged(visit: Visit) -> None:
    newest = visit.names()
    visit.page.get_by_role("link", name="Older").click()
    region = visit.page.get_by_role("region", name="Runs", exact=True)
    expect(region.locator("a[href^='/runs/']")).to_have_count(6 * TURNS - 50)
    assert not set(newest) & set(visit.names())
    expect(visit.page.get_by_role("button", name="Pause")).to_have_count(0)  # a page of older runs does not grow
    visit.page.get_by_role("link", name="Newest").click()
    expect(visit.page.get_by_role("link", name="Older")).to_be_visible()
    assert visit.names() == newest


@pytest.mark.e2e
def test_a_run_links_to_the_other_runs_of_its_session(visit: Visit) -> None:
    visit.open(f"/runs/{run_id(3)}")
    about = visit.page.get_by_role("region", name="About the run")
    about.get_by_role("link", name="session-1").click()
    expect_runs(visit.page, TURNS)
    expect_query(visit.page, {"session_id": "session-1"})


@pytest.mark.e2e
def test_the_golden_table_can_be_searched_and_sorted(visit: Visit, tmp_path: Path) -> None:
    visit.open("/goldens")
    listed = visit.page.get_by_role("region", name="Goldens by pass rate").get_by_role("rowheader")
    expect(listed).to_have_count(4)
    visit.page.get_by_role("link", name="Golden", exact=True).click()
    expect(listed.first).to_contain_text("nobody-asks")
    visit.page.get_by_role("searchbox", name="Golden").fill("LISBON")
    visit.page.get_by_role("button", name="Find").click()
    expect(listed).to_have_count(1)
    listed.get_by_role("link", name="trip/lisbon").click()
    expect(visit.page.get_by_role("heading", name="trip/lisbon")).to_be_visible()
