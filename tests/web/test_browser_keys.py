"""The page can be used with the keyboard alone, in a real browser."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from support.browser import Visit, Visiting
from support.page_server import run_id, store_in, viewing

pytestmark = pytest.mark.needs("chromium")

_FOCUSED = """(() => {
  const element = document.activeElement;
  const label = element.labels?.[0]?.textContent || element.getAttribute("aria-label") || element.textContent;
  const ringed = (each) => each && getComputedStyle(each).outlineStyle !== "none";
  const box = element.getBoundingClientRect();
  return {
    name: (label || element.tagName).trim().replace(/\\s+/g, " "),
    ringed: ringed(element) || ringed(element.closest(".run")),
    seen: box.width > 1 && box.bottom > 0 && box.top < innerHeight,
  };
})()"""


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("keys")
    store, goldens = store_in(folder, times=4)
    with viewing(folder, store, "--goldens", goldens) as view:
        yield view.address


@pytest.fixture
def visit(visiting: Visiting, address: str) -> Visit:
    visit = visiting(address)
    visit.open()
    visit.page.wait_for_load_state("load")
    return visit


def stops(page: Page, last: str) -> list[str]:
    """The elements that Tab focuses, up to the one of that name; each must be visible and have a focus ring."""
    found: list[str] = []
    while not found or found[-1] != last:
        page.keyboard.press("Tab")
        here = page.evaluate(_FOCUSED)
        assert (here["ringed"], here["seen"]) == (True, True), here
        found.append(here["name"])
        assert len(found) < 60, found
    return found


def focused(page: Page) -> str:
    return str(page.evaluate("document.activeElement.textContent"))


@pytest.mark.e2e
def test_tab_focuses_the_elements_of_the_run_list_in_reading_order(visit: Visit) -> None:
    found = stops(visit.page, "Keys ?")
    expected = [
        *("Skip to the content", "goldspan", "Runs", "Goldens", "Without a golden", "Pause", "Text in the request"),
        *("Verdict", "Golden", "Agent", "Tool", "Role of the tool", "Since", "More filters", "support"),
    ]
    assert [name for name in found if name in expected][: len(expected)] == expected
    assert found.count("trip/lisbon") == 4
    assert found[-1] == "Keys ?"


@pytest.mark.e2e
@pytest.mark.parametrize("path", ["/goldens", "/goldens/refund", "/uncovered", f"/runs/{run_id(3)}"])
def test_every_view_shows_which_element_has_focus(visit: Visit, path: str) -> None:
    visit.open(path)
    assert stops(visit.page, "Keys ?")[:2] == ["Skip to the content", "goldspan"]


@pytest.mark.e2e
def test_the_first_link_skips_to_the_content(visit: Visit) -> None:
    visit.page.keyboard.press("Tab")
    visit.page.keyboard.press("Enter")
    expect(visit.page.get_by_role("main")).to_be_focused()
    visit.page.keyboard.press("Tab")
    expect(visit.page.get_by_role("button", name="Pause")).to_be_focused()


@pytest.mark.e2e
def test_j_and_k_move_between_runs_and_enter_opens_one(visit: Visit) -> None:
    links = visit.page.get_by_role("region", name="Runs").locator("a[href^='/runs/']")
    visit.page.keyboard.press("j")
    expect(links.nth(0)).to_be_focused()
    visit.page.keyboard.press("j")
    visit.page.keyboard.press("j")
    expect(links.nth(2)).to_be_focused()
    visit.page.keyboard.press("k")
    expect(links.nth(1)).to_be_focused()
    for _ in range(40):
        visit.page.keyboard.press("j")
    expect(links.last).to_be_focused()
    expect(links.last).to_be_in_viewport()
    assert visit.page.evaluate(_FOCUSED)["ringed"]
    name = visit.names()[-1]
    visit.page.keyboard.press("Enter")
    visit.page.wait_for_url(f"**/runs/{name}")


@pytest.mark.e2e
def test_k_focuses_the_last_run_if_none_has_focus(visit: Visit) -> None:
    visit.page.keyboard.press("k")
    expect(visit.page.get_by_role("region", name="Runs").locator("a[href^='/runs/']").last).to_be_focused()


@pytest.mark.e2e
def test_slash_focuses_the_search_field_and_escape_leaves_it(visit: Visit) -> None:
    visit.page.keyboard.press("/")
    text = visit.page.get_by_role("searchbox", name="Text in the request")
    expect(text).to_be_focused()
    visit.page.keyboard.type("gl?jp/ song")
    expect(text).to_have_value("gl?jp/ song")
    expect(visit.page.get_by_role("button", name="Pause")).to_be_visible()
    expect(visit.page.get_by_role("dialog")).to_have_count(0)
    visit.page.keyboard.press("Escape")
    expect(text).not_to_be_focused()


@pytest.mark.e2e
def test_p_pauses_and_resumes_the_list(visit: Visit) -> None:
    visit.page.keyboard.press("p")
    expect(visit.page.get_by_role("button", name="Resume")).to_have_attribute("aria-pressed", "true")
    expect(visit.page.get_by_role("status")).to_have_text("Paused: the list does not change.")
    visit.page.keyboard.press("p")
    expect(visit.page.get_by_role("button", name="Pause")).to_have_attribute("aria-pressed", "false")
    expect(visit.page.get_by_role("status")).to_have_text("The list shows new runs.")


@pytest.mark.e2e
def test_two_key_sequences_open_each_view(visit: Visit) -> None:
    for key, path in (("g", "/goldens"), ("u", "/uncovered"), ("l", "/")):
        visit.page.keyboard.press("g")
        visit.page.keyboard.press(key)
        visit.page.wait_for_url(visit.address + path)
        visit.page.wait_for_load_state("load")


@pytest.mark.e2e
def test_incomplete_key_sequences_do_nothing(visit: Visit) -> None:
    for keys in ("u", "gxu", "lu"):
        for key in keys:
            visit.page.keyboard.press(key)
    visit.page.keyboard.press("Control+g")
    visit.page.keyboard.press("p")
    expect(visit.page.get_by_role("button", name="Resume")).to_be_visible()
    assert visit.page.url == visit.address + "/"


@pytest.mark.e2e
def test_the_dialog_of_keys_opens_and_closes_and_restores_focus(visit: Visit) -> None:
    visit.page.keyboard.press("j")
    before = focused(visit.page)
    visit.page.keyboard.press("?")
    dialog = visit.page.get_by_role("dialog", name="Keys")
    expect(dialog.get_by_role("button", name="Close")).to_be_focused()
    visit.page.keyboard.press("p")
    visit.page.keyboard.press("/")
    assert visit.grave_findings() == []
    visit.page.keyboard.press("Escape")
    expect(dialog).not_to_be_visible()
    expect(visit.page.get_by_role("button", name="Pause")).to_be_visible()
    assert focused(visit.page) == before
    visit.page.get_by_role("button", name="Keys").focus()
    visit.page.keyboard.press("Enter")
    expect(dialog).to_be_visible()
    visit.page.keyboard.press("Enter")
    expect(dialog).not_to_be_visible()


@pytest.mark.e2e
def test_list_keys_do_nothing_in_a_view_without_a_run_list(visit: Visit) -> None:
    visit.open("/uncovered")
    for key in "pjk/":
        visit.page.keyboard.press(key)
    visit.page.keyboard.press("?")
    expect(visit.page.get_by_role("dialog", name="Keys")).to_be_visible()


@pytest.mark.e2e
def test_filters_are_set_with_the_keyboard_alone(visit: Visit) -> None:
    visit.page.keyboard.press("/")
    visit.page.keyboard.press("Tab")
    expect(visit.page.get_by_label("Verdict", exact=True)).to_be_focused()
    visit.page.keyboard.type("failed")
    visit.page.wait_for_url("**/?verdict=fail")
    expect(visit.page.get_by_role("link", name="Remove the filter verdict: fail")).to_be_visible()
    expect(visit.page.get_by_label("Verdict", exact=True)).to_be_focused()
    visit.page.get_by_text("More filters", exact=True).focus()
    visit.page.keyboard.press("Enter")
    visit.page.keyboard.press("Tab")
    expect(visit.page.get_by_label("Metric")).to_be_focused()
