"""The report: its data, its HTML in a real browser without scripts, and its Markdown."""

from __future__ import annotations

import re
from base64 import b64encode
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest
from playwright.sync_api import expect

from goldspan import Evaluation, ExpectedTool, Golden, Goldens, Run, ToolCall, evaluate, load_goldens
from goldspan.store import open_store
from goldspan.web import html_report, run_report
from goldspan.web.display_text import escape_invisible
from goldspan.web.html_report import render_html
from goldspan.web.run_report import (
    MAX_SUMMARY_BYTES,
    Report,
    ReportHeader,
    build_report,
    render_markdown_report,
)
from support.browser import PHONE, Visit, Visiting
from support.page_server import BEGAN_NS, store_in
from web.test_browser_hostile import TEXTS, hostile_runs

ABOUT = ReportHeader("Nightly", BEGAN_NS, ("traces.jsonl",))
STRANGERS = "img, iframe, object, embed, base, script, form, input, meta[http-equiv=refresh], [onload], [onerror]"

WriteReport = Callable[[Report], Path]


@pytest.fixture
def write_report(tmp_path: Path) -> WriteReport:
    """Writes a report to a file."""

    def write(made: Report) -> Path:
        file = tmp_path / "report.html"
        file.write_text(render_html(made), encoding="utf-8")
        return file

    return write


@pytest.fixture(scope="module")
def full_report(tmp_path_factory: pytest.TempPathFactory) -> Report:
    """A report over every kind of run."""
    file, goldens = store_in(tmp_path_factory.mktemp("report"), times=4)
    with open_store(file, read_only=True) as store:
        return build_report(store, ABOUT, goldens=load_goldens(goldens))


def opened(visiting: Visiting, file: Path, **how: object) -> Visit:
    visit = visiting(file.parent.as_uri(), **how)
    visit.page.goto(file.as_uri())
    return visit


@pytest.mark.needs("chromium")
@pytest.mark.parametrize("scheme", ["light", pytest.param("dark", marks=pytest.mark.e2e)])
def test_the_report_is_complete_without_scripts_and_sends_no_requests(
    visiting: Visiting, write_report: WriteReport, full_report: Report, scheme: str
) -> None:
    file = write_report(full_report)
    visit = opened(visiting, file, java_script_enabled=False, color_scheme=scheme)
    asked: list[str] = []
    visit.page.on("request", lambda request: asked.append(request.url))
    visit.page.reload()
    assert [each for each in asked if not each.startswith("data:")] == [file.as_uri()]
    page = visit.page
    expect(page.get_by_role("heading", level=1)).to_have_text("Nightly")
    failed = page.get_by_role("article", name="trip/lisbon").first
    expect(failed.get_by_role("row", name=re.compile("delete_booking.*forbidden"))).to_be_visible()
    expect(failed.get_by_text("Timeline of calls", exact=True)).to_be_hidden()
    failed.locator("summary", has_text="Timeline, scores and more").click()
    expect(failed.get_by_role("heading", name="Timeline of calls")).to_be_visible()
    refund = page.get_by_role("article", name="refund").first
    expect(refund.get_by_role("row", name=re.compile(r"order\s+17\s+71"))).to_be_visible()
    expect(page.get_by_role("row", name=re.compile("nobody-asks.*never matched"))).to_be_visible()
    page.locator("summary", has_text="8 passed, 8 not evaluated").click()
    expect(page.get_by_role("row", name=re.compile("Sing me a song")).first).to_be_visible()
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert ground != "rgba(0, 0, 0, 0)"  # the policy allows the style


@pytest.mark.e2e
@pytest.mark.needs("chromium")
def test_the_report_is_accessible_and_fits_a_phone_screen(
    visiting: Visiting, write_report: WriteReport, full_report: Report
) -> None:
    visit = opened(visiting, write_report(full_report), viewport=PHONE)
    assert visit.too_wide() == []
    assert visit.grave_findings() == []
    for scheme in ("dark", "light"):
        visit.page.emulate_media(color_scheme=scheme)
        assert visit.grave_findings() == []


@pytest.mark.e2e
@pytest.mark.needs("chromium")
def test_the_content_security_policy_of_the_report_blocks_added_scripts_and_styles(
    visiting: Visiting, write_report: WriteReport, full_report: Report
) -> None:
    file = write_report(full_report)
    html = file.read_text(encoding="utf-8")
    more = "<script>document.title = 'run'</script><style>main { color: red }</style>"
    file.write_text(html.replace("</main>", f"{more}</main>"), encoding="utf-8")
    visit = opened(visiting, file)
    assert visit.page.title() == "Nightly · goldspan"
    visit.forgive("Executing inline script", "Applying inline style", "against the policy")


@pytest.mark.e2e
@pytest.mark.needs("chromium")
def test_the_report_shows_hostile_texts_as_text(visiting: Visiting, write_report: WriteReport, tmp_path: Path) -> None:
    made = [each for number, text in enumerate(TEXTS.values()) for each in hostile_runs(text, number)]
    goldens = Goldens([golden for _, golden in made if golden is not None])
    with open_store(tmp_path / "goldspan.db", keep_arguments=True) as store:
        store.submit_many(evaluate(run, golden) for run, golden in made)
        hostile = ReportHeader("<script>alert('title')</script>", 0, ("</title><b>",), (("text", "<i>"),))
        found = build_report(store, hostile, goldens=goldens, max_detailed=len(TEXTS))
    visit = opened(visiting, write_report(found))
    page = visit.page
    page.evaluate("for (const each of document.querySelectorAll('details')) each.open = true")
    assert page.locator(STRANGERS).count() == 0
    assert page.locator("main style, main link, main meta").count() == 0
    seen = page.locator("main").inner_text()
    shown = " ".join(escape_invisible(seen).split())
    for text in TEXTS.values():
        beginning = " ".join(escape_invisible(text).split())[:60]
        assert beginning in shown, beginning
    assert page.title().startswith("<script>alert('title')</script>")


def test_the_report_links_only_to_itself_and_its_ids_are_unique(full_report: Report) -> None:
    html = render_html(full_report)
    assert {each for each in re.findall(r'(?:href|src|action)="([^"]*)"', html) if each[0] != "#"} == {
        re.findall(r'rel="icon" href="([^"]*)"', html)[0]
    }
    ids = Counter(re.findall(r'\bid="([^"]*)"', html))
    assert [each for each, times in ids.items() if times > 1] == []
    referred = set(re.findall(r'aria-labelledby="([^"]*)"', html)) | set(re.findall(r'href="#([^"]+)"', html))
    assert referred - set(ids) == set()


def test_the_content_security_policy_of_the_report_has_the_hash_of_its_style(full_report: Report) -> None:
    html = render_html(full_report)
    (style,) = re.findall("<style>(.*?)</style>", html, flags=re.DOTALL)
    digest = b64encode(sha256(style.encode()).digest()).decode()
    assert f"style-src &#39;sha256-{digest}&#39;" in html


def test_the_report_contains_counts_means_unmatched_goldens_and_capture_hints(full_report: Report) -> None:
    counts = full_report.rate.counts
    assert (counts.passed, counts.failed, counts.not_evaluated) == (8, 8, 8)
    assert full_report.mean("passed") == 0.5
    recall = next(each for each in full_report.metrics if each.metric == "tool_recall")
    assert (recall.runs, recall.mean) == (16, full_report.mean("tool_recall"))
    assert full_report.mean("call_budget") is None
    assert full_report.mean("no_such_metric") is None
    assert full_report.unmatched_goldens == ("nobody-asks",)
    assert full_report.unmatched.total == 8
    assert {runs for _, runs in full_report.health} == {4}
    assert [details.run.time_ns for details in full_report.failed] == sorted(
        (details.run.time_ns for details in full_report.failed), reverse=True
    )


def test_failed_runs_beyond_the_detailed_ones_are_listed_and_the_rest_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_report, "MAX_LISTED", 3)
    file, goldens = store_in(tmp_path, times=4)
    with open_store(file, read_only=True) as store:
        found = build_report(store, ABOUT, goldens=load_goldens(goldens), max_detailed=2)
    assert (len(found.failed), len(found.more_failed.entries), found.more_failed.omitted) == (2, 3, 3)
    assert (len(found.others.entries), found.others.omitted) == (3, 13)
    html = render_html(found)
    assert html.count('<article class="detailed"') == 2
    assert "More failed runs" in html
    assert "3 more runs." in html
    assert "13 more runs." in html


def test_failed_runs_beyond_the_size_limit_are_listed_without_details(
    full_report: Report, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(html_report, "MAX_DETAILS_LENGTH", 40_000)
    html = render_html(full_report)
    shown = html.count('<article class="detailed"')
    assert 0 < shown < 8
    lines = html.partition('aria-label="Failed runs"')[2].partition("</table>")[0]
    assert lines.count('<th scope="row">') == 8 - shown
    monkeypatch.setattr(html_report, "MAX_DETAILS_LENGTH", 0)
    assert "<h3>List of failed runs</h3>" in render_html(full_report)


def test_the_report_states_that_no_run_exists_or_matches_the_filters(tmp_path: Path) -> None:
    with open_store(tmp_path / "goldspan.db") as store:
        assert "The input has no run." in render_html(build_report(store, ABOUT))
        narrowed = replace(ABOUT, filters=(("agent", "<nobody>"),))
        html = render_html(build_report(store, narrowed))
        assert "The input has no run that matches these filters." in html
        assert "agent <bdi>&lt;nobody&gt;</bdi>" in html
        assert render_markdown_report(build_report(store, narrowed)) == (
            "## Nightly\n\n0 runs: 0 passed, 0 failed. Filters: agent \\<nobody\\>.\n"
        )


def test_a_report_over_a_store_without_values_contains_names_only(tmp_path: Path) -> None:
    file, goldens = store_in(tmp_path, keep_arguments=False)
    with open_store(file, read_only=True) as store:
        found = build_report(store, ABOUT, goldens=load_goldens(goldens))
    html, summary = render_html(found), render_markdown_report(found)
    assert "differs in <bdi>order</bdi>" in html
    assert "differs in `order`" in summary
    assert "Names only: the store does not keep the values of arguments and results." in html
    assert "nobody answered" not in html + summary
    assert not re.search(r"\b71\b", summary)
    assert ">71<" not in html


# --- Markdown ---------------------------------------------------------------------------------------------------------


def test_the_summary_states_the_counts_then_failed_runs_then_capture_problems(full_report: Report) -> None:
    text = render_markdown_report(full_report)
    assert text.startswith(
        "## Nightly\n\n24 runs: 8 passed, 8 failed, 8 not evaluated. Pass rate 50.0 % (95 %: 28.0 % to 72.0 %).\n"
    )
    metrics, failed = text.index("| metric | mean | runs | passed |"), text.index("✗ `trip/lisbon`")
    unmatched, capture = (
        text.index("Goldens without a run: `nobody-asks`"),
        text.index("| capture problem | runs | remedy |"),
    )
    assert metrics < failed < unmatched < capture
    assert "| — | \\! | `delete_booking` | forbidden |" in text
    assert "order: expected 17, called with 71" in text
    assert re.search(r"\| .*no content recorded.* \| 4 of 24 \|", text)


def test_the_summary_folds_all_but_the_first_ten_failed_runs(tmp_path: Path) -> None:
    text = render_markdown_report(_many(tmp_path, 14))
    before, fold, after = text.partition("<details><summary>4 more failed runs in full</summary>\n\n")
    assert fold
    assert (before.count("✗ `golden`"), after.partition("</details>")[0].count("✗ `golden`")) == (10, 4)


@pytest.mark.parametrize("number", [100, pytest.param(400, marks=pytest.mark.e2e)])
@pytest.mark.parametrize("input_text", ["Book it", "Ж" * 3000, "`|<>*\\" * 500, "\x00\u202e" * 1000])
def test_the_summary_stays_within_the_size_limit_of_github(tmp_path: Path, number: int, input_text: str) -> None:
    made = _many(tmp_path, number, input_text=input_text, in_full=number // 2, names=40)
    text = render_markdown_report(made)
    assert MAX_SUMMARY_BYTES // 3 < len(text.encode()) <= MAX_SUMMARY_BYTES
    told = text.count("\n✗ `") + text.partition("| also failed |")[2].count("| `golden` |")
    left = re.search(r"(\d+) more runs? failed\.", text)
    assert told + (int(left[1]) if left else 0) == number
    assert text.count("<details>") == text.count("</details>") == 1


def test_hostile_texts_stay_inside_their_markdown_table_cells(tmp_path: Path) -> None:
    made = [each for number, text in enumerate(TEXTS.values()) for each in hostile_runs(text, number)]
    with open_store(tmp_path / "goldspan.db", keep_arguments=True) as store:
        store.submit_many(evaluate(run, golden) for run, golden in made)
        text = render_markdown_report(build_report(store, ReportHeader("# <b>x</b>\n", 0, ())))
    assert text.startswith("## \\# \\<b\\>x\\</b\\>\\\\x0a\n")
    assert not re.search(r"(?<!\\)<(?!/?(?:code|details|summary)>)", re.sub("`[^`\n]*`", "", text))
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f\u202e\u2066]", text)
    tables = [block.splitlines() for block in text.split("\n\n") if block.startswith("| ")]
    assert all(len({len(re.findall(r"(?<!\\)\|", line)) for line in table}) == 1 for table in tables)


@pytest.mark.e2e
def test_the_summary_lists_fifty_unmatched_goldens_and_counts_the_rest(tmp_path: Path) -> None:
    goldens = Goldens([Golden(f"golden {number}", f"ask {number}") for number in range(60)])
    with open_store(tmp_path / "goldspan.db") as store:
        text = render_markdown_report(build_report(store, ABOUT, goldens=goldens))
    assert text.rstrip().endswith("`golden 49` and 10 more")


def _many(folder: Path, number: int, *, input_text: str = "Book it", in_full: int = 50, names: int = 2) -> Report:
    """A report over this number of failed runs."""
    golden = Golden("golden", None, tools=tuple(ExpectedTool(f"expected_{at}") for at in range(names)))
    with open_store(folder / "goldspan.db") as store:
        store.submit_many(_failed(golden, at, input_text) for at in range(number))
        return build_report(store, ABOUT, max_detailed=in_full)


def _failed(golden: Golden, number: int, input_text: str) -> Evaluation:
    run = Run(f"run {number}", input=input_text, tool_calls=(ToolCall("other"),), start_ns=BEGAN_NS + number)
    return evaluate(run, golden)
