"""The page over HTTP, on real sockets, requested by a client that may misbehave."""

from __future__ import annotations

import asyncio
import http.client
import json
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote, urlsplit

import pytest

from goldspan import Golden, Goldens, Run, evaluate
from goldspan.store import SqliteStore, open_store
from goldspan.web import http_routes
from goldspan.web.display_text import golden_address, run_address
from goldspan.web.http_routes import CONTENT_SECURITY_POLICY, SECURITY_HEADERS, server_sent_events
from goldspan.web.page_templates import load_asset
from goldspan.web.pages import Pages
from support.gateway_process import PATIENCE_S, eventually
from support.page_server import fill, goldens_in, run_id, served

VIEWS = ("/", "/?verdict=fail", f"/runs/{run_id(3)}", f"/runs/{run_id(3)}?revision=1", "/goldens", "/goldens/refund",
         "/uncovered")  # fmt: skip
HOSTILE_IDS = (
    "a/b",
    "/",
    "//evil.example",
    "a\nb",
    "\r\nSet-Cookie: a=b",
    "100%",
    "%2e%2e%2f",
    "../../etc/passwd",
    "ünï ☃",
    "a?b=c",
    "a#b",
    "a;b",
    "<b>",
    "a\x00b",
    " ",
    "x" * 2000,
)


class Reply(NamedTuple):
    status: int
    headers: dict[str, str]
    text: str


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqliteStore]:
    folder = tmp_path_factory.mktemp("routing")
    goldens, _ = goldens_in(folder)
    with open_store(folder / "goldspan.db", keep_arguments=True) as store:
        fill(store, goldens, times=2)
        store.submit_many(evaluate(Run(each), Goldens([Golden(each)])) for each in HOSTILE_IDS)
        store.submit_many(evaluate(Run(each), Golden(each)) for each in HOSTILE_IDS)
        yield store


@pytest.fixture(scope="module")
def address(store: SqliteStore, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    goldens, _ = goldens_in(tmp_path_factory.mktemp("goldens"))
    with served(Pages(store, goldens=lambda: goldens, is_live=True)) as address:
        yield address


@contextmanager
def open_request(address: str, path: str, method: str = "GET", **headers: str) -> Iterator[http.client.HTTPResponse]:
    connection = http.client.HTTPConnection(urlsplit(address).netloc, timeout=PATIENCE_S)
    try:
        connection.request(method, path, headers=headers)
        yield connection.getresponse()
    finally:
        connection.close()


def ask(address: str, path: str, method: str = "GET", **headers: str) -> Reply:
    with open_request(address, path, method, **headers) as answer:
        named = {name.lower(): value for name, value in answer.getheaders()}
        return Reply(answer.status, named, answer.read().decode())


def assert_safe(reply: Reply) -> None:
    assert {name: reply.headers.get(name.lower()) for name in SECURITY_HEADERS if name != "Cache-Control"} == {
        name: value for name, value in SECURITY_HEADERS.items() if name != "Cache-Control"
    }


# --- views ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", VIEWS)
def test_views_are_not_cached_and_contain_no_inline_scripts_or_styles(address: str, path: str) -> None:
    reply = ask(address, path)
    assert reply.status == 200
    assert reply.headers["content-type"] == "text/html; charset=utf-8"
    assert reply.headers["cache-control"] == "no-store"
    assert_safe(reply)
    assert "<script>" not in reply.text
    assert " style=" not in reply.text
    assert " onclick=" not in reply.text


def test_the_content_security_policy_allows_only_the_own_origin() -> None:
    rules = dict(rule.strip().split(" ", 1) for rule in CONTENT_SECURITY_POLICY.split(";"))
    assert rules["default-src"] == rules["base-uri"] == rules["frame-ancestors"] == "'none'"
    assert rules["script-src"] == rules["style-src"] == rules["connect-src"] == rules["form-action"] == "'self'"
    assert "unsafe" not in CONTENT_SECURITY_POLICY
    assert SECURITY_HEADERS["X-Content-Type-Options"] == "nosniff"


@pytest.mark.parametrize(
    "path", [*VIEWS, "/trend", "/suggestions/agent", "/assets/page.css", "/favicon.ico", "/nowhere"]
)
def test_a_head_request_returns_the_headers_without_a_body(address: str, path: str) -> None:
    whole, head = ask(address, path), ask(address, path, "HEAD")
    assert (head.status, head.text) == (whole.status, "")
    assert head.headers["content-type"] == whole.headers["content-type"]
    assert_safe(head)


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
@pytest.mark.parametrize("path", ["/", "/runs/1", "/goldens", "/uncovered", "/news", "/assets/page.css"])
def test_only_get_and_head_are_allowed(address: str, method: str, path: str) -> None:
    reply = ask(address, path, method)
    assert reply.status == 405
    assert {*reply.headers["allow"].split(", ")} == {"GET", "HEAD"}


@pytest.mark.parametrize("name", HOSTILE_IDS)
def test_run_and_golden_ids_may_contain_any_characters(address: str, store: SqliteStore, name: str) -> None:
    assert store.run(name) is not None
    for path in (run_address(name), golden_address(name)):
        reply = ask(address, path)
        assert (path[:60], reply.status) == (path[:60], 200)
        assert_safe(reply)
        assert "set-cookie" not in reply.headers
        assert "<b>" not in reply.text


@pytest.mark.parametrize(
    "path",
    [
        "/runs/nobody",
        "/runs/",
        "/runs/%FF%FE",
        "/runs/%00",
        f"/runs/{run_id(3)}?revision=9",
        f"/runs/{run_id(1)}/",
        "/goldens/nobody",
        "/goldens/%0d%0a",
        "/suggestions/secrets",
        "/assets/site.py",
        "/assets/..%2fsite.py",
        "/nowhere",
        "/%2e%2e/",
        "/" + quote("ü" * 500),
    ],
)
def test_an_unknown_path_or_id_returns_a_404_page(address: str, path: str) -> None:
    reply = ask(address, path)
    assert (reply.status, reply.headers["content-type"]) == (404, "text/html; charset=utf-8")
    assert "Page not found" in reply.text
    assert_safe(reply)


@pytest.mark.parametrize(
    "path",
    [
        "/?nobody=knows",
        "/?verdict=maybe",
        "/?verdict=pass&verdict=fail",
        "/?cursor=nonsense",
        "/?since=%00",
        f"/runs/{run_id(3)}?revision=first",
        f"/runs/{run_id(3)}?revision=",
        f"/runs/{run_id(3)}?revision=%D9%A1",
        f"/runs/{run_id(3)}?revision=99999999999999999999",
        "/goldens?page=0",
        "/goldens?sort=%3Cb%3E",
        "/trend?below=much&metric=tool_f1",
    ],
)
def test_an_invalid_query_returns_400(address: str, path: str) -> None:
    reply = ask(address, path)
    assert reply.status == 400
    assert "<b>" not in reply.text
    assert_safe(reply)


def test_a_closed_store_returns_503(tmp_path: Path) -> None:
    with open_store(tmp_path / "goldspan.db") as closed:
        site = Pages(closed, goldens=lambda: None, is_live=True)
    with served(site) as address:
        for path in (*VIEWS, "/trend", "/suggestions/agent"):
            reply = ask(address, path)
            assert (path, reply.status) == (path, 503)
            assert "The store is not available" in reply.text
            assert str(tmp_path) not in reply.text or "closed" in reply.text
            assert_safe(reply)


def test_concurrent_requests_are_all_answered(address: str) -> None:
    with ThreadPoolExecutor(16) as pool:
        replies = list(pool.map(lambda _: ask(address, "/"), range(32)))
    assert {reply.status for reply in replies} == {200}


# --- data of views ----------------------------------------------------------------------------------------------------


def test_the_trend_consists_of_columns_of_equal_length(address: str) -> None:
    reply = ask(address, "/trend?agent=support")
    columns = json.loads(reply.text)
    assert reply.headers["content-type"] == "application/json"
    assert_safe(reply)
    assert {*columns} == {"time", "passed", "failed", "not_evaluated"}
    assert {len(column) for column in columns.values()} == {len(columns["time"])}
    assert (sum(columns["passed"]), sum(columns["failed"])) == (2, 2)
    assert columns["time"] == sorted(columns["time"])
    assert json.loads(ask(address, "/trend?agent=nobody").text)["time"] == []


@pytest.mark.parametrize(
    ("field", "expected"),
    [("golden", "trip/lisbon"), ("agent", "travel"), ("service", "billing"), ("environment", "test"),
     ("tool", "book_trip"), ("metric", "tool_recall")],
)  # fmt: skip
def test_suggestions_contain_the_stored_names(address: str, field: str, expected: str) -> None:
    reply = ask(address, f"/suggestions/{field}")
    assert reply.status == 200
    assert f'<option value="{expected}"></option>' in reply.text
    assert "None" not in reply.text


# --- files ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["htmx.js", "uplot.js", "uplot.css", "page.css", "page.js", "charts.js", "icon.svg"])
def test_an_asset_is_cached_only_under_the_address_of_its_version(address: str, name: str) -> None:
    found = load_asset(name)
    assert found is not None
    current = ask(address, f"/assets/{name}?v={found.version}")
    assert (current.status, current.headers["cache-control"]) == (200, "public, max-age=31536000, immutable")
    assert current.headers["content-type"].startswith(found.media_type)
    assert current.text.encode() == found.body
    assert_safe(current)
    for other in ("", "?v=", "?v=000000000000", f"?v={found.version}0"):
        assert ask(address, f"/assets/{name}{other}").headers["cache-control"] == "no-cache"


def test_the_favicon_is_served(address: str) -> None:
    reply = ask(address, "/favicon.ico")
    assert (reply.status, reply.headers["content-type"]) == (200, "image/svg+xml")
    assert_safe(reply)


# --- stream -----------------------------------------------------------------------------------------------------------


def events(answer: http.client.HTTPResponse) -> Iterator[dict[str, str]]:
    """The events that a browser reads from a stream."""
    said: dict[str, str] = {}
    for line in iter(answer.readline, b""):
        name, _, value = line.decode().rstrip("\n").partition(": ")
        if name:
            said[name] = value
        else:
            if "event" in said:
                yield said
            said = {}


def test_the_stream_sends_sequence_numbers_of_new_runs_without_their_content(tmp_path: Path) -> None:
    with (
        open_store(tmp_path / "goldspan.db") as store,
        served(Pages(store, goldens=lambda: None, is_live=True)) as address,
        open_request(address, "/news?after=0") as answer,
    ):
        assert answer.status == 200
        assert answer.getheader("content-type", "").startswith("text/event-stream")
        assert answer.getheader("cache-control") == "no-store"
        heard = events(answer)
        for number in range(1, 4):
            store.submit(evaluate(Run(f"secret-{number}"), Goldens([])))
            newest = str(store.last_sequence_number())
            assert next(heard) == {"event": "arrived", "id": newest, "data": newest}


@pytest.mark.parametrize("how", ["header", "query"])
def test_a_stream_resumes_after_the_given_sequence_number(address: str, store: SqliteStore, how: str) -> None:
    newest = store.last_sequence_number()
    said = {"Last-Event-ID": "1"} if how == "header" else {}
    with open_request(address, "/news?after=1" if how == "query" else f"/news?after={newest}", **said) as answer:
        assert next(events(answer))["data"] == str(newest)


def test_a_stream_without_a_valid_position_reports_only_new_runs(tmp_path: Path) -> None:
    invalid_positions = ["", "?after=", "?after=-1", "?after=x", "?after=%D9%A1", f"?after={10**30}"]
    with (
        open_store(tmp_path / "goldspan.db") as store,
        served(Pages(store, goldens=lambda: None, is_live=True)) as address,
        ExitStack() as streams,
    ):
        store.submit(evaluate(Run("old"), Goldens([])))
        before = store.last_sequence_number()
        answers = [streams.enter_context(open_request(address, f"/news{after}")) for after in invalid_positions]
        assert [answer.readline() for answer in answers] == [b"retry: 1000\n"] * len(answers)
        store.submit(evaluate(Run("new"), Goldens([])))
        assert all(int(next(events(answer))["data"]) > before for answer in answers)


def test_a_stream_stays_open_if_the_store_cannot_be_read(tmp_path: Path) -> None:
    with open_store(tmp_path / "goldspan.db") as closed:
        site = Pages(closed, goldens=lambda: None, is_live=True)
    with served(site) as address, open_request(address, "/news") as answer:
        assert answer.status == 200
        assert answer.readline() == b"retry: 1000\n"


def test_streams_beyond_the_limit_are_refused_with_retry_after(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_routes, "MAX_STREAMS", 2)
    with served(Pages(store, goldens=lambda: None, is_live=True)) as address:
        with open_request(address, "/news") as first, open_request(address, "/news") as second:
            assert first.readline() == second.readline() == b"retry: 1000\n"
            refused = ask(address, "/news")
            assert (refused.status, refused.headers["retry-after"]) == (503, "30")
            assert_safe(refused)
        eventually(lambda: stream_is_accepted(address), "who has left still takes a place")


def stream_is_accepted(address: str) -> bool:
    with open_request(address, "/news") as answer:
        return answer.status == 200


def test_a_head_request_for_the_stream_does_not_count_as_a_stream(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_routes, "MAX_STREAMS", 1)
    with served(Pages(store, goldens=lambda: None, is_live=True)) as address:
        for _ in range(3):
            with open_request(address, "/news", "HEAD") as head:
                assert head.status in (200, 503)
        eventually(lambda: stream_is_accepted(address), "a head takes a place")


def test_open_streams_do_not_delay_the_shutdown_of_the_server(store: SqliteStore) -> None:
    with served(Pages(store, goldens=lambda: None, is_live=True)) as address:
        host, port = urlsplit(address).netloc.split(":")
        with socket.create_connection((host, int(port)), timeout=PATIENCE_S) as listener:
            listener.sendall(b"GET /news HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert listener.recv(12) == b"HTTP/1.1 200"
            ended = threading.Event()
            threading.Thread(target=lambda: (_drain(listener), ended.set())).start()
            # `served` checks that the server stops while the stream is open
    assert ended.wait(PATIENCE_S)


def _drain(listener: socket.socket) -> None:
    try:
        while listener.recv(2**16):
            pass
    except OSError:
        pass


def stream_events(newest: Iterator[int], *, looks: int, every: float = 0.0) -> list[bytes]:
    """What the stream sends while the store has these sequence numbers, one per query."""
    left = iter(range(looks))

    async def listen() -> list[bytes]:
        async def look() -> int:
            return next(newest)

        return [event async for event in server_sent_events(look, 0, lambda: next(left, None) is None, interval=every)]

    return asyncio.run(listen())


def test_each_sequence_number_is_sent_once() -> None:
    assert stream_events(iter([0, 3, 3, 3, 7, 5]), looks=6) == [
        b"retry: 1000\n\n",
        b"event: arrived\nid: 3\ndata: 3\n\n",
        b"event: arrived\nid: 7\ndata: 7\n\n",
    ]


def test_an_idle_stream_sends_keepalives_and_ends_after_its_maximum_duration(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_routes, "_KEEPALIVE_S", 0.02)
    monkeypatch.setattr(http_routes, "_MAX_STREAM_S", 0.1)
    began = time.monotonic()
    said = stream_events(iter(lambda: 0, 1), looks=10_000, every=0.01)
    assert 2 <= said.count(b": nothing new\n\n") <= 5
    assert time.monotonic() - began < PATIENCE_S
