"""Text of traces and golden files is shown as text in a real browser, never interpreted."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

from goldspan import ExpectedTool, Golden, Goldens, Run, ToolCall, evaluate
from goldspan.store import open_store
from goldspan.web.display_text import escape_invisible, golden_address, list_address, run_address
from goldspan.web.pages import Pages
from support.browser import PHONE, Visiting
from support.page_server import served

pytestmark = pytest.mark.needs("chromium")

TEXTS = {
    "an image": "<img src=x onerror=alert(1)>",
    "a script": "<script>alert(2)</script>",
    "the end of an attribute": "\"><svg onload=alert(3)><b title='",
    "an attribute": "' onmouseover='alert(4)' autofocus onfocus='alert(5)",
    "an address": "javascript:alert(6)",
    "the end of a script": "</script></pre></textarea></title><script>alert(7)</script>",
    "a template": "{{ 7 * 7 }}{% raw %}${7*7}<%= 7 %>",
    "htmx": '<a hx-get="/uncovered" hx-trigger="load" hx-target="body" hx-on:click="alert(8)">x</a>',
    "another address": '<base href="//evil.example"><meta http-equiv="refresh" content="0;url=https://evil.example">',
    "a frame": '<iframe srcdoc="<script>alert(9)</script>"></iframe><object data="https://evil.example"></object>',
    "a style": "<style>body{display:none}</style><link rel=stylesheet href=https://evil.example/x.css>",
    "a form": '<form action="https://evil.example"><button>Enter</button><input name=token autofocus>',
    "other directions": "abc\u202egnp.exe\u2066\u200f\u061c",
    "control characters": "a\x00b\x1b[31m\x07\x7f\x9b\u2028c",
    "a long word": "w" * 3000,
    "half of a pair": "\ud800 half",
    "entities": "&lt;b&gt; &amp; &#x202e; --> ]]> <!--",
    "an address of ours": "../../enter?wanted=//evil.example#\\..%2f%00",
}
_STRANGERS = "img, iframe, object, embed, base, meta[http-equiv], style, body script, [onload], [onerror], [onclick]"


def id_with(text: str, number: int) -> str:
    """An id that contains the text, as far as an address can contain it."""
    return f"{text} {number}".encode("utf-8", "replace").decode()


def hostile_runs(text: str, number: int) -> Iterator[tuple[Run, Golden | None]]:
    """A run with a golden and a run without one; every text field contains the text."""
    call = ToolCall(
        text,
        raw_name=f"raw {text}",
        server=text,
        arguments={text: text, "n": [text]},
        result={text: text},
        error=text,
        agent=text,
    )
    told = {"session_id": text, "agent": text, "service": text, "component": text, "environment": text, "output": text}
    name = id_with(text, number)
    golden = Golden(name, text, tools=(ExpectedTool(text, {text: "other", "n": text}),))
    calls = (call, ToolCall(f"{text} other", arguments=text))
    when = 1_767_225_600_000_000_000 + number * 10**9
    many = {"input": text, "tool_calls": calls, "trace_ids": (f"{number:032x}", text), "conventions": (text,), **told}
    yield Run(name, start_ns=when, **many), golden  # type: ignore[arg-type]
    yield Run(f"{name} without", start_ns=when + 1, **many), None  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    made = [each for number, text in enumerate(TEXTS.values()) for each in hostile_runs(text, number)]
    goldens = Goldens([golden for _, golden in made if golden is not None])
    with open_store(tmp_path_factory.mktemp("hostile") / "goldspan.db", keep_arguments=True) as store:
        store.submit_many(evaluate(run, golden) for run, golden in made)
        with served(Pages(store, goldens=lambda: goldens, is_live=True)) as address:
            yield address


@pytest.mark.e2e
@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS.keys())
def test_a_hostile_text_is_shown_as_text(visiting: Visiting, address: str, text: str) -> None:
    number = list(TEXTS.values()).index(text)
    addressed = text.encode("utf-8", "replace").decode()
    shown = {
        run_address(id_with(text, number)): text,
        run_address(f"{id_with(text, number)} without"): text,
        golden_address(id_with(text, number)): text,
        list_address(text=text, agent=text): addressed,
    }
    visit = visiting(address)
    for path, told in shown.items():
        answer = visit.open(path)
        assert answer.status == 200, path
        visit.page.wait_for_load_state("load")
        visit.page.evaluate("for (const each of document.querySelectorAll('details')) each.open = true")
        assert visit.page.url == address + path
        expect(visit.page.get_by_role("main")).to_contain_text(escape_invisible(told)[:40])
        assert visit.page.locator(_STRANGERS).count() == 0
        assert visit.too_wide() == []


@pytest.mark.e2e
@pytest.mark.parametrize("path", ["/", "/goldens", "/uncovered"])
def test_all_hostile_texts_together_are_shown_as_text(visiting: Visiting, address: str, path: str) -> None:
    visit = visiting(address, viewport=PHONE)
    visit.open(path)
    visit.page.wait_for_load_state("load")
    shown = visit.page.get_by_role("main").inner_text()
    for name, text in TEXTS.items():
        if name not in ("a long word", "the end of a script"):  # the value is truncated
            assert " ".join(escape_invisible(text)[:40].split()) in " ".join(shown.split()), name
    assert visit.page.locator(_STRANGERS).count() == 0
    assert visit.too_wide() == []
    assert visit.grave_findings() == []
    assert visit.page.url == address + path


@pytest.mark.e2e
def test_hostile_names_are_suggested_as_text(visiting: Visiting, address: str) -> None:
    visit = visiting(address)
    visit.open()
    for name in ("Golden", "Agent", "Tool"):
        box = visit.page.get_by_role("search").get_by_label(name, exact=True)
        box.focus()
        options = visit.page.locator(f"#{box.get_attribute('list')} option")
        expect(options.first).to_be_attached()
        values = [each.get_attribute("value") or "" for each in options.all()]
        assert any("<script>alert(2)</script>" in value for value in values)
    assert visit.page.locator(_STRANGERS).count() == 0


@pytest.mark.e2e
def test_a_search_treats_hostile_texts_as_text(visiting: Visiting, address: str) -> None:
    visit = visiting(address)
    visit.open()
    for text in ("<img src=x onerror=alert(1)>", "javascript:alert(6)", TEXTS["htmx"], TEXTS["an attribute"]):
        visit.page.get_by_role("searchbox", name="Text in the request").fill(text)
        tag = visit.page.get_by_role("link", name=f"Remove the filter text: {text}")
        expect(tag).to_be_visible()
        expect(visit.page.get_by_role("region", name="Runs").locator("a[href^='/runs/']")).to_have_count(2)
    assert visit.page.locator(_STRANGERS).count() == 0


@pytest.mark.e2e
def test_a_hostile_run_opens_from_the_list(visiting: Visiting, address: str) -> None:
    visit = visiting(address)
    for name in ("an image", "the end of an attribute", "another address", "an address of ours"):
        visit.open(list_address(agent=TEXTS[name]))
        visit.page.keyboard.press("j")
        visit.page.keyboard.press("Enter")
        expect(visit.page.get_by_role("region", name="About the run")).to_be_visible()
        expect(visit.page.get_by_role("region", name="About the run")).to_contain_text(escape_invisible(TEXTS[name]))
