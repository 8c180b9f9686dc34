"""Attempts to break the page: races, sequence numbers of other stores, and texts that a form sends back."""

from __future__ import annotations

import html
import json
import re
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing
from pathlib import Path
from threading import Event
from urllib.parse import quote, urlencode, urlsplit
from urllib.request import urlopen

import pytest
from playwright.sync_api import expect

from goldspan import Goldens, Run, ToolCall, evaluate
from goldspan.errors import StoreError
from goldspan.gateway.receivers.authorization import LOOPBACK_HOSTS, SESSION_COOKIE, Authorizer
from goldspan.model import Health
from goldspan.model.markup import TextSpan, render_markdown
from goldspan.store import SqliteStore, open_store
from goldspan.web import http_routes
from goldspan.web.display_text import escape_invisible, unescape_invisible
from goldspan.web.pages import PageResponse, Pages
from goldspan.web.run_list import QueryPairs
from support.browser import Visit, Visiting
from support.gateway_process import PATIENCE_S, eventually
from support.gateway_receivers import RunningReceivers
from support.page_server import served

READ = "a-token-to-read-with"
FORM = "application/x-www-form-urlencoded"
HTML = "text/html,*/*;q=0.8"
HIDDEN = "a\u200f\u202eb\u200b\ufeff\x01\U000e0041c"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    with open_store(tmp_path / "goldspan.db", keep_arguments=True) as store:
        yield store


def submit(store: SqliteStore, run: Run) -> None:
    store.submit(evaluate(run, Goldens([])))


def site_of(store: SqliteStore) -> Pages:
    return Pages(store, goldens=lambda: None, is_live=True)


def total_in(answer: PageResponse) -> str:
    return re.findall(r'id="total">(\d+)', answer.body)[0]


# --- texts that a form sends back -------------------------------------------------------------------------------------


def test_unescaping_restores_escaped_invisible_characters_and_nothing_else() -> None:
    assert unescape_invisible(escape_invisible(HIDDEN)) == HIDDEN
    for text in ("⟨U+0041⟩", "⟨U+110000⟩", "⟨U+FFFFFF⟩", "⟨U+20⟩", "⟨u+202e⟩"):
        assert unescape_invisible(text) == text


def test_a_name_with_invisible_characters_survives_a_round_trip_through_the_form(store: SqliteStore) -> None:
    submit(store, Run("hidden", input="asked", agent=HIDDEN))
    site = site_of(store)
    (in_form,) = re.findall(r'name="agent" value="([^"]*)"', site.live([("agent", HIDDEN)]).body)
    (suggested,) = re.findall(r'<option value="([^"]*)"', site.suggestions("agent").body)
    for told in (html.unescape(in_form), html.unescape(suggested)):
        assert told != HIDDEN
        assert total_in(site.live([("agent", told)])) == "1"
        assert site.goldens([("agent", told), ("find", told)]).status == 200


def test_a_draft_golden_that_is_too_long_is_omitted_instead_of_truncated(store: SqliteStore) -> None:
    calls = tuple(ToolCall(f"tool_number_{number}_{'x' * 60}", arguments={"a": 1}) for number in range(500))
    submit(store, Run("many", input="many", tool_calls=calls))
    submit(store, Run("few", input="few", tool_calls=calls[:3]))
    site = site_of(store)
    many, few = site.run("many", []).body, site.run("few", []).body
    assert 'id="draft"' not in many
    assert "too long to show" in many
    assert 'id="draft"' in few
    assert "more characters" not in re.findall(r"<pre.*?</pre>", few, re.DOTALL)[0]


@pytest.mark.parametrize("text", ["@octocat", "ask @org/team now", "#123", "org/repo#1", "(@a)", "a@b.example"])
def test_rendered_markdown_contains_no_mentions_and_no_issue_references(text: str) -> None:
    """GitHub searches the rendered Markdown for mentions, after backslashes and entities are resolved."""
    written = render_markdown([(TextSpan(text),)])
    assert not re.search(r"[@#](\\|&[^;]*;)*[A-Za-z0-9]", written)
    assert html.unescape(re.sub(r"</?code>|\\(?=[^\w\s])", "", written)) == text


# --- the login --------------------------------------------------------------------------------------------------------


@pytest.fixture
def guarded(store: SqliteStore, tmp_path: Path) -> Iterator[RunningReceivers]:
    authority = Authorizer(("in-token",), (READ,), allowed_hosts=LOOPBACK_HOSTS)
    receivers = RunningReceivers(
        tmp_path / "journal.db",
        authority=authority,
        routes=http_routes.page_routes(site_of(store), is_ending=lambda: True),
    ).start()
    yield receivers
    receivers.stop()


def session_in(receivers: RunningReceivers) -> str:
    reply = receivers.post(urlencode({"token": READ}).encode(), "/enter", FORM)
    return reply.headers["set-cookie"].partition(";")[0]


@pytest.mark.parametrize("run_id", ["a?b", "a#b", "100%", "%2F", "a/b", "ü", "a b", "line\nbreak"])
def test_a_login_redirects_to_the_requested_run_whatever_its_id_contains(
    guarded: RunningReceivers, store: SqliteStore, run_id: str
) -> None:
    submit(store, Run(run_id, input="wanted"))
    asked = guarded.ask("GET", f"/runs/{quote(run_id, safe='')}?revision=1", accept=HTML).body.decode()
    wanted = html.unescape(re.findall(r'name="wanted" value="([^"]*)"', asked)[0])
    entered = guarded.post(urlencode({"token": READ, "wanted": wanted}).encode(), "/enter", FORM)
    opened = guarded.ask("GET", entered.headers["location"], cookie=session_in(guarded), accept=HTML)
    assert (opened.status, b"wanted" in opened.body) == (200, True)


def test_a_login_succeeds_however_long_the_requested_address_is(guarded: RunningReceivers) -> None:
    asked = guarded.ask("GET", f"/?text={'%C3%BC' * 1500}", accept=HTML).body.decode()
    wanted = html.unescape(re.findall(r'name="wanted" value="([^"]*)"', asked)[0])
    assert guarded.post(urlencode({"token": READ, "wanted": wanted}).encode(), "/enter", FORM).status == 303


def test_a_login_holds_if_another_cookie_has_the_same_name(guarded: RunningReceivers) -> None:
    session = session_in(guarded)
    for sent in (
        f"{SESSION_COOKIE}=other; {session}",
        f"{session}; {SESSION_COOKIE}=other",
        f"{SESSION_COOKIE}; {SESSION_COOKIE}=; {session}",
    ):
        assert guarded.ask("GET", "/", cookie=sent, accept=HTML).status == 200
    assert guarded.ask("GET", "/", cookie=f"{SESSION_COOKIE}=a; {SESSION_COOKIE}=b", accept=HTML).status == 401


# --- sequence numbers -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("held", [0, 2])
def test_a_stream_position_of_another_store_gets_the_newest_sequence_number(store: SqliteStore, held: int) -> None:
    """A gateway may restart with an empty folder: clients of the previous one still receive events."""
    for number in range(held):
        submit(store, Run(f"run-{number}"))
    with served(site_of(store)) as address, urlopen(f"{address}/news?after=5000", timeout=PATIENCE_S) as answer:
        lines = iter(answer.readline, b"")
        assert (
            next(json.loads(line[6:]) for line in lines if line.startswith(b"data: ")) == store.last_sequence_number()
        )


class BlockingPages(Pages):
    """Pages whose searches block until they are released."""

    begun: list[str]
    let_go: Event

    def live(self, query: QueryPairs) -> PageResponse:
        said = dict(query)
        if "text" in said:
            self.begun.append(said["text"])
            assert self.let_go.wait(PATIENCE_S)
        return super().live(query)


def test_a_queued_search_is_dropped_when_its_client_disconnects(store: SqliteStore) -> None:
    site = BlockingPages(store, goldens=lambda: None, is_live=True)
    site.begun, site.let_go = [], Event()
    with served(site) as address, ExitStack() as opened:
        at = urlsplit(address)

        def ask(text: str) -> socket.socket:
            client = opened.enter_context(closing(socket.create_connection((at.hostname, at.port), PATIENCE_S)))
            client.sendall(f"GET /?text={text} HTTP/1.1\r\nHost: {at.netloc}\r\n\r\n".encode())
            return client

        first = [ask(f"first-{number}") for number in range(http_routes.MAX_CONCURRENT_VIEWS)]
        eventually(lambda: len(site.begun) == len(first), "the searches did not begin")
        for number in range(20):
            ask(f"left-{number}").close()
        last = ask("last")
        asset = urlopen(f"{address}/assets/page.css", timeout=PATIENCE_S)  # the event loop has noticed the disconnects
        assert asset.status == 200
        asset.close()
        site.let_go.set()
        assert last.recv(15) == b"HTTP/1.1 200 OK"
    assert [text for text in site.begun if text.startswith("left")] == []


def test_the_command_in_the_error_message_upgrades_an_older_store(tmp_path: Path) -> None:
    old = tmp_path / "old.db"
    with closing(sqlite3.connect(old)) as other:
        other.executescript((Path(__file__).parents[1] / "store" / "version-1.sql").read_text(encoding="utf-8"))
    with pytest.raises(StoreError, match="open it once") as refused, open_store(old, read_only=True) as store:
        store.count()
    told = re.findall(r"python -c '(.*?)' (\S+)", str(refused.value))
    assert told, refused.value
    ((script, file),) = told
    subprocess.run([sys.executable, "-c", script, file], check=True, timeout=PATIENCE_S)
    with open_store(old, read_only=True) as store:
        assert store.count().total > 0


# --- in a browser -----------------------------------------------------------------------------------------------------


class SlowPages(Pages):
    """Pages that delay the responses that a test selects."""

    def __init__(self, store: SqliteStore) -> None:
        super().__init__(store, goldens=lambda: None, is_live=True)
        self.seconds: Mapping[str, float] = {}
        self.asked: list[str] = []

    def live(self, query: QueryPairs) -> PageResponse:
        return self._slowly("live", super().live(query))

    def trend(self, query: QueryPairs) -> PageResponse:
        return self._slowly(f"trend {dict(query).get('text')}", super().trend(query))

    def _slowly(self, what: str, answer: PageResponse) -> PageResponse:
        self.asked.append(what)
        time.sleep(self.seconds.get(what, 0))
        self.asked.append(f"{what} is there")
        return answer


@pytest.fixture
def slow(store: SqliteStore) -> SlowPages:
    for number in range(12):
        health = Health(arguments_absent=1, content_off=True) if number < 3 else Health()
        submit(store, Run(f"run-{number}", input=f"asked {number}", start_ns=10**18 + number * 10**9, health=health))
    return SlowPages(store)


@pytest.fixture
def visit(visiting: Visiting, slow: SlowPages) -> Iterator[Visit]:
    with served(slow) as address:
        visit = visiting(address)
        visit.open()
        expect(visit.page.get_by_text("listening", exact=True)).to_be_visible()
        yield visit
        visit.leave()


def expect_listed(visit: Visit, text: str) -> None:
    expect(visit.page.get_by_role("region", name="Runs").get_by_text(text, exact=True)).to_be_visible()


@pytest.mark.e2e
@pytest.mark.needs("chromium")
def test_a_run_that_arrives_while_the_list_is_loading_is_shown(
    visit: Visit, slow: SlowPages, store: SqliteStore
) -> None:
    slow.seconds = {"live": 2.5}
    slow.asked.clear()
    submit(store, Run("first", input="first one"))
    eventually(lambda: "live" in slow.asked, "no list was asked for")
    submit(store, Run("second", input="second one"))
    expect_listed(visit, "first one")
    slow.seconds = {}
    expect_listed(visit, "second one")


@pytest.mark.e2e
@pytest.mark.needs("chromium")
def test_a_late_chart_response_does_not_replace_a_newer_chart(visit: Visit, slow: SlowPages) -> None:
    chart = visit.page.locator("#chart")
    expect(chart).to_have_attribute("aria-label", re.compile("12 not evaluated"))
    slow.seconds = {"trend asked 1": 2.0}
    visit.page.get_by_label("Text in the request").fill("asked 1")
    eventually(lambda: "trend asked 1" in slow.asked, "no chart was asked for")
    visit.page.get_by_label("Text in the request").fill("asked")
    expect(chart).to_have_attribute("aria-label", re.compile("12 not evaluated"))
    eventually(lambda: "trend asked 1 is there" in slow.asked, "the chart did not come")
    visit.page.evaluate("() => fetch('/trend').then((answer) => answer.text())")  # the earlier response has arrived too
    expect(chart).to_have_attribute("aria-label", re.compile("12 not evaluated"))


@pytest.mark.e2e
@pytest.mark.needs("chromium")
def test_an_opened_notice_stays_open_when_the_list_is_updated(visit: Visit, store: SqliteStore) -> None:
    notice = visit.page.locator("details.notice")
    notice.locator("summary").click()
    submit(store, Run("another", input="another one"))
    expect_listed(visit, "another one")
    assert notice.evaluate("each => each.open") is True


@pytest.mark.e2e
@pytest.mark.needs("chromium")
def test_list_updates_are_not_announced_while_a_search_field_has_focus(visit: Visit, store: SqliteStore) -> None:
    """While a search field has focus, only the number of its results is announced, not each update."""
    visit.page.get_by_label("Text in the request").fill("asked")
    expect(visit.page.get_by_role("status")).to_have_text("12 runs")
    for number in range(2):
        submit(store, Run(f"more-{number}", input=f"asked more {number}"))
        expect_listed(visit, f"asked more {number}")
    expect(visit.page.get_by_role("status")).to_have_text("12 runs")


@pytest.mark.e2e
@pytest.mark.needs("chromium")
def test_the_page_retries_a_list_that_could_not_be_loaded(
    visit: Visit, store: SqliteStore, slow: SlowPages, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object, **__: object) -> None:
        raise StoreError("it is locked")

    with monkeypatch.context() as patched:
        patched.setattr(store, "page_with_counts", refused)
        submit(store, Run("late", input="late one"))
        expect(visit.page.get_by_text("the list could not be loaded").first).to_be_visible()
    expect_listed(visit, "late one")
    expect(visit.page.get_by_text("listening", exact=True)).to_be_visible()
    visit.forgive("status of 503")
