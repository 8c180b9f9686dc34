"""Every view in a real browser: it renders, is small, reports no problem and is accessible."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect

from goldspan.store import open_store
from goldspan.web.pages import Pages
from support.browser import PHONE, Visit, Visiting
from support.page_server import run_id, served, store_in, viewing

pytestmark = pytest.mark.needs("chromium")

MOST_BYTES = 300_000
"""The maximum size of a view with everything that it loads, before compression."""
FAULTS = {"/nowhere": 404, "/runs/nobody": 404, "/goldens/nobody": 404, "/?below=much&metric=tool_recall": 400,
          "/goldens?sort=sideways": 400}  # fmt: skip
VIEWS = {
    "runs": "/",
    "runs of a filter": "/?verdict=fail&metric=tool_correctness&below=0.9",
    "no run is like that": "/?text=nobody+ever+asked+this",
    "a run that passed": f"/runs/{run_id(1)}",
    "a run whose arguments differ": f"/runs/{run_id(2)}",
    "a run with much to see": f"/runs/{run_id(3)}",
    "an old revision": f"/runs/{run_id(3)}?revision=1",
    "a run without a golden": f"/runs/{run_id(4)}",
    "a run without times": f"/runs/{run_id(6)}",
    "goldens": "/goldens",
    "a golden": "/goldens/trip%2Flisbon",
    "a golden that nothing meets": "/goldens/nobody-asks",
    "uncovered": "/uncovered",
}


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """`goldspan view` of a store with every kind of run, on more than one page."""
    folder = tmp_path_factory.mktemp("views")
    store, goldens = store_in(folder, times=30)
    with viewing(folder, store, "--goldens", goldens) as view:
        yield view.address


@pytest.fixture(params=VIEWS.values(), ids=VIEWS.keys())
def path(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def opened(visit: Visit, path: str) -> Visit:
    """A view whose scripts have run and whose charts are drawn."""
    visit.open(path)
    visit.page.wait_for_load_state("load")
    for chart in visit.page.locator("[data-trend]").all():
        expect(chart).to_have_attribute("aria-label", _SUMS)
    return visit


@pytest.mark.e2e
def test_each_view_renders_within_its_size_limit(visiting: Visiting, address: str, path: str) -> None:
    visit = opened(visiting(address), path)
    assert visit.responses[0].status == 200
    expect(visit.page.get_by_role("main").get_by_role("heading").first).to_be_visible()
    assert 5_000 < visit.weight() <= MOST_BYTES


@pytest.mark.e2e
def test_each_view_has_no_serious_accessibility_findings_in_light_and_dark(
    visiting: Visiting, address: str, path: str
) -> None:
    visit = opened(visiting(address, color_scheme="light"), path)
    assert visit.grave_findings() == []
    assert visit.too_wide() == []
    visit.page.emulate_media(color_scheme="dark")
    visit.wait_until("getComputedStyle(document.body).backgroundColor === 'rgb(21, 20, 15)'")
    assert visit.grave_findings() == []


@pytest.mark.e2e
def test_each_view_fits_a_phone_screen(visiting: Visiting, address: str, path: str) -> None:
    visit = opened(visiting(address, viewport=PHONE, has_touch=True, is_mobile=True), path)
    assert visit.grave_findings() == []
    assert visit.too_wide() == []


@pytest.mark.e2e
@pytest.mark.parametrize(("path", "status"), FAULTS.items())
def test_error_pages_are_accessible_and_fit_a_phone_screen(
    visiting: Visiting, address: str, path: str, status: int
) -> None:
    for how in ({"color_scheme": "light"}, {"color_scheme": "dark"}, {"viewport": PHONE}):
        visit = visiting(address, **how)
        assert visit.open(path).status == status
        visit.forgive(f"status of {status}")
        expect(visit.page.get_by_role("link", name="goldspan")).to_be_visible()
        assert visit.grave_findings() == []
        assert visit.too_wide() == []
        assert visit.weight() <= MOST_BYTES


@pytest.mark.e2e
def test_a_closed_store_yields_an_accessible_503_page(visiting: Visiting, tmp_path: Path) -> None:
    with open_store(tmp_path / "goldspan.db") as store:
        site = Pages(store, goldens=lambda: None, is_live=False)
    with served(site) as address:
        visit = visiting(address)
        assert visit.open().status == 503
        visit.forgive("status of 503")
        expect(visit.page.get_by_role("heading", name="The store is not available")).to_be_visible()
        assert visit.grave_findings() == []
        visit.leave()


@pytest.mark.e2e
@pytest.mark.parametrize("is_live", [True, False])
def test_the_views_of_an_empty_store_explain_how_to_send_the_first_request(
    visiting: Visiting, tmp_path: Path, is_live: bool
) -> None:
    with (
        open_store(tmp_path / "goldspan.db") as store,
        served(Pages(store, goldens=lambda: None, is_live=is_live)) as address,
    ):
        for path in ("/", "/goldens", "/uncovered"):
            visit = opened(visiting(address), path)
            assert visit.grave_findings() == []
            visit.leave()
        visit = opened(visiting(address), "/")
        expect(visit.page.get_by_role("heading", name="No request has been scored yet")).to_be_visible()
        if is_live:
            expect(visit.page.get_by_role("main")).to_contain_text(f"OTEL_EXPORTER_OTLP_ENDPOINT={address}")
        visit.leave()


@pytest.mark.e2e
def test_times_are_shown_in_the_time_zone_of_the_browser(visiting: Visiting, address: str) -> None:
    told = {}
    for zone in ("Asia/Tokyo", "America/New_York"):
        visit = opened(visiting(address, timezone_id=zone, locale="en-GB"), f"/runs/{run_id(1)}")
        told[zone] = visit.page.get_by_role("main").locator("dd time").first
        expect(visit.page.get_by_role("contentinfo")).to_contain_text(f"times in {zone}")
        expect(told[zone]).to_have_attribute("datetime", "2026-01-01T00:00:01.000Z")
    expect(told["Asia/Tokyo"]).to_have_text("1 Jan 2026, 09:00:01")
    expect(told["America/New_York"]).to_have_text("31 Dec 2025, 19:00:01")


@pytest.mark.e2e
def test_the_trend_chart_is_drawn_and_has_a_text_alternative(visiting: Visiting, address: str) -> None:
    visit = opened(visiting(address), "/")
    chart = visit.page.get_by_role("img", name="Runs over time by verdict: 60 passed, 60 failed, 60 not evaluated")
    expect(chart.locator("canvas")).to_be_visible()
    assert visit.page.evaluate(_INKED) > 100
    visit.page.emulate_media(color_scheme="dark")
    visit.page.set_viewport_size(PHONE)
    expect(chart.locator("canvas")).to_be_visible()
    visit.wait_until(f"document.querySelector('canvas').clientWidth < 390 && ({_INKED}) > 100")


@pytest.mark.e2e
def test_the_copy_button_copies_the_draft_golden(visiting: Visiting, address: str) -> None:
    visit = visiting(address)
    visit.context.grant_permissions(["clipboard-read", "clipboard-write"])
    opened(visit, f"/runs/{run_id(4)}")
    draft = visit.page.get_by_role("region", name="Copy as golden")
    draft.get_by_role("button", name="Copy").first.click()
    expect(draft.get_by_role("button", name="Copied")).to_be_visible()
    expect(visit.page.get_by_role("status")).to_have_text("Copied")
    copied = visit.page.evaluate("navigator.clipboard.readText()")
    assert copied == draft.locator("pre").first.inner_text()
    assert "find_account" in copied
    expect(draft.get_by_role("button", name="Copy", exact=True).first).to_be_visible()


@pytest.mark.e2e
def test_without_a_clipboard_the_copy_button_selects_the_draft_golden(visiting: Visiting, address: str) -> None:
    visit = visiting(address)
    visit.context.add_init_script("Object.defineProperty(navigator, 'clipboard', { value: undefined })")
    opened(visit, f"/runs/{run_id(4)}")
    draft = visit.page.get_by_role("region", name="Copy as golden")
    draft.get_by_role("button", name="Copy").first.click()
    expect(draft.get_by_role("button", name="Selected")).to_be_visible()
    assert "find_account" in visit.page.evaluate("getSelection().toString()")


@pytest.mark.e2e
def test_nothing_is_animated_when_the_user_prefers_reduced_motion(visiting: Visiting, address: str) -> None:
    visit = opened(visiting(address, reduced_motion="reduce"), "/")
    moving = "[...document.querySelectorAll('*')].filter((each) => getComputedStyle(each).animationName !== 'none')"
    assert visit.page.evaluate(f"document.querySelector('.run').classList.add('fresh'), {moving}.length") == 0
    assert visit.page.evaluate("document.getAnimations().length") == 0


@pytest.mark.e2e
def test_every_view_works_without_scripts(visiting: Visiting, address: str, path: str) -> None:
    visit = visiting(address, java_script_enabled=False)
    assert visit.open(path).status == 200
    expect(visit.page.get_by_role("main").get_by_role("heading").first).to_be_visible()
    for unusable in ("Pause", "Copy", "Keys ?"):
        expect(visit.page.get_by_role("button", name=unusable, exact=True)).to_have_count(0)
    for moment in visit.page.locator("time").all():
        assert moment.inner_text().endswith(" UTC") or not moment.is_visible()


_SUMS = re.compile(r"\d passed, \d+ failed, \d+ not evaluated$")
_INKED = """(() => {
  const canvas = document.querySelector("canvas");
  const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  return data.filter((value, at) => at % 4 === 3 && value > 0).length;
})()"""
"""The number of chart pixels that are not transparent."""
