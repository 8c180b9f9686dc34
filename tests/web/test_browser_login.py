"""The login form of a gateway that requires tokens, over real sockets."""

from __future__ import annotations

import http.client
import ssl
import subprocess
from collections.abc import Iterator
from http.cookies import SimpleCookie
from pathlib import Path
from urllib.parse import urlencode

import pytest

from goldspan import Goldens, Run, evaluate
from goldspan.gateway import api_routes as api
from goldspan.gateway.receivers.authorization import LOOPBACK_HOSTS, SESSION_COOKIE, Authorizer
from goldspan.gateway.receivers.http_server import TlsConfig
from goldspan.store import SqliteStore, open_store
from goldspan.web import http_routes
from goldspan.web.pages import Pages
from support.gateway_receivers import Reply, RunningReceivers

READ, INGEST = "out-token-ü", "in-token"
HTML = "text/html,application/xhtml+xml;q=0.9,*/*;q=0.8"
FORM = "application/x-www-form-urlencoded"
PAGES = ("/", "/?agent=a&verdict=fail", "/runs/1", "/goldens", "/goldens/g", "/uncovered", "/trend", "/news",
         "/suggestions/agent", "/nowhere")  # fmt: skip


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqliteStore]:
    with open_store(tmp_path_factory.mktemp("store") / "goldspan.db") as store:
        store.submit(evaluate(Run("1", input="what a user said"), Goldens([])))
        yield store


def doors_with(authority: Authorizer, store: SqliteStore, folder: Path) -> RunningReceivers:
    site = Pages(store, goldens=lambda: Goldens([]), is_live=True, can_leave=True)
    routes = [
        *api.api_routes(
            store, evaluate=lambda run: evaluate(run, Goldens([])), drop_pending_trace=lambda trace_id: None
        ),
        *http_routes.page_routes(site, is_ending=lambda: True),
    ]
    return RunningReceivers(folder / "journal.db", authority=authority, routes=routes).start()


@pytest.fixture(scope="module")
def guarded(store: SqliteStore, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningReceivers]:
    authority = Authorizer((INGEST,), (READ, "second"), allowed_hosts=LOOPBACK_HOSTS)
    receivers = doors_with(authority, store, tmp_path_factory.mktemp("guarded"))
    yield receivers
    receivers.stop()


def enter(receivers: RunningReceivers, token: str = READ, wanted: str = "/", **headers: str) -> Reply:
    return receivers.post(urlencode({"token": token, "wanted": wanted}).encode(), "/enter", FORM, **headers)


def cookie_of(reply: Reply) -> str:
    return SimpleCookie(reply.headers["set-cookie"])[SESSION_COOKIE].value


@pytest.fixture(scope="module")
def cookie(guarded: RunningReceivers) -> str:
    return f"{SESSION_COOKIE}={cookie_of(enter(guarded))}"


# --- the form ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", PAGES)
def test_people_are_asked_for_a_token_and_programs_told(guarded: RunningReceivers, path: str) -> None:
    person, program = guarded.ask("GET", path, accept=HTML), guarded.ask("GET", path, accept="*/*")
    assert person.status == program.status == 401
    assert person.headers["www-authenticate"] == program.headers["www-authenticate"] == "Bearer"
    assert person.headers["content-type"] == "text/html; charset=utf-8"
    assert program.headers["content-type"] == "application/json"
    assert b"A token is needed" in person.body
    assert b"what a user said" not in person.body
    assert person.headers["content-security-policy"] == http_routes.CONTENT_SECURITY_POLICY
    assert person.headers["cache-control"] == "no-store"


def test_what_was_wanted_is_kept_for_afterwards(guarded: RunningReceivers) -> None:
    body = guarded.ask("GET", '/?agent="><script>x', accept=HTML).body.decode()
    assert "<script>x" not in body
    asked = guarded.ask("GET", "/?agent=a&verdict=fail", accept=HTML).body.decode()
    assert 'value="/?agent=a&amp;verdict=fail"' in asked


@pytest.mark.parametrize("path", ["/api/v1/runs", "/metrics", "/v1/traces", "/api/v1/openapi.json"])
def test_programs_are_never_asked_by_a_form(guarded: RunningReceivers, path: str) -> None:
    reply = guarded.ask("GET", path, accept=HTML)
    assert (reply.status, reply.headers["content-type"]) == (401, "application/json")


def test_files_of_the_page_are_there_for_whoever_is_asked(guarded: RunningReceivers) -> None:
    for path in ("/assets/page.css", "/assets/icon.svg", "/favicon.ico"):
        assert guarded.ask("GET", path).status == 200
    assert guarded.ask("GET", "/assets/nothing").status == 404
    assert guarded.ask("GET", "/assets/page.css", host="evil.example").status == 403
    assert guarded.ask("GET", "/assets/page.css", origin="https://evil.example").status == 403


def test_where_no_token_is_asked_for_nobody_has_to_enter(store: SqliteStore, tmp_path: Path) -> None:
    receivers = doors_with(Authorizer(allowed_hosts=LOOPBACK_HOSTS), store, tmp_path)
    try:
        assert receivers.ask("GET", "/", accept=HTML).status == 200
        assert enter(receivers).status == 401  # there is no login form
    finally:
        receivers.stop()


# --- submitting -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("token", [READ, "second", f"  {READ}\r\n"])
def test_a_token_opens_every_page(guarded: RunningReceivers, token: str) -> None:
    reply = enter(guarded, token, "/?agent=a")
    assert (reply.status, reply.headers["location"]) == (303, "/?agent=a")
    for path in PAGES:
        opened = guarded.ask(
            "GET", path, cookie=f"theme=dark; {SESSION_COOKIE}={cookie_of(reply)}; other=1", accept=HTML
        )
        assert opened.status in (200, 404)


def test_the_cookie_is_for_nobody_but_the_browser(guarded: RunningReceivers) -> None:
    reply = enter(guarded)
    morsel = SimpleCookie(reply.headers["set-cookie"])[SESSION_COOKIE]
    assert morsel["httponly"] is True
    assert (morsel["samesite"].lower(), morsel["path"], morsel["domain"]) == ("lax", "/", "")
    assert 0 < int(morsel["max-age"]) <= 31 * 86400
    assert not morsel["secure"]  # browsers do not send it back over HTTP
    assert READ not in str(reply.headers)
    assert reply.headers["cache-control"] == "no-store"


@pytest.mark.needs("openssl")
def test_over_tls_the_cookie_never_leaves_it(store: SqliteStore, tmp_path: Path) -> None:
    reply = _entered_over_tls(store, tmp_path)
    assert SimpleCookie(reply.headers["set-cookie"])[SESSION_COOKIE]["secure"] is True


@pytest.mark.parametrize("token", ["", "guess", INGEST, READ.upper(), f"{READ} {READ}", "\x00"])
def test_what_may_not_read_opens_nothing(guarded: RunningReceivers, token: str) -> None:
    reply = enter(guarded, token, "/goldens")
    assert reply.status == 401
    assert "set-cookie" not in reply.headers
    assert b"This token does not permit reading" in reply.body
    assert b'value="/goldens"' in reply.body
    assert not token.strip("\x00") or token.encode() not in reply.body


@pytest.mark.parametrize(
    "wanted",
    [
        "//evil.example",
        "/\\evil.example",
        "\\\\evil.example",
        "https://evil.example/",
        "javascript:alert(1)",
        "evil.example",
        "",
        " //evil.example",
        "/\t/evil.example",
        "/\n/evil.example",
        "/\r\nSet-Cookie: a=b",
        "/enter",
        "/leave",
        "/\u202egnp",
    ],
)
def test_nobody_is_led_elsewhere(guarded: RunningReceivers, wanted: str) -> None:
    reply = enter(guarded, wanted=wanted)
    assert (reply.status, reply.headers["location"]) == (303, "/")
    refused = enter(guarded, "guess", wanted)
    assert b'name="wanted" value="/"' in refused.body


@pytest.mark.parametrize("wanted", ["/runs/a%2Fb", "/?text=%C3%BC&agent=a", "/goldens/x//y"])
def test_whoever_wanted_to_see_something_sees_it(guarded: RunningReceivers, wanted: str) -> None:
    assert enter(guarded, wanted=wanted).headers["location"] == wanted


def test_a_form_without_a_token_or_that_is_none_is_refused(guarded: RunningReceivers) -> None:
    for body in (b"", b"wanted=/", b"token", b"\xff\xfe=%ff", b'{"token": "x"}', b"&&&=&"):
        assert guarded.post(body, "/enter", FORM).status == 401


def test_a_form_that_is_too_long_is_not_read(guarded: RunningReceivers) -> None:
    reply = guarded.post(b"token=" + b"x" * 100_000, "/enter", FORM)
    assert (reply.status, reply.headers["connection"]) == (413, "close")
    assert guarded.post(b"token=" + b"x" * 8_000, "/enter", FORM).status == 401


@pytest.mark.parametrize("path", ["/enter", "/leave"])
def test_pages_of_others_hand_nothing_in(guarded: RunningReceivers, path: str) -> None:
    body = urlencode({"token": READ}).encode()
    for origin in ("https://evil.example", "null", "http://localhost:1"):
        reply = guarded.post(body, path, FORM, origin=origin)
        assert (reply.status, "set-cookie" in reply.headers) == (403, False)
    assert guarded.post(body, path, FORM, host="evil.example").status == 403
    same = f"http://localhost:{guarded.http.port}"
    assert guarded.post(body, path, FORM, origin=same, host=same.removeprefix("http://")).status == 303
    assert guarded.ask("GET", path).status == 405


# --- logged in --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/api/v1/runs", "/api/v1/openapi.json", "/metrics"])
def test_the_cookie_is_worth_nothing_to_programs(guarded: RunningReceivers, cookie: str, path: str) -> None:
    assert guarded.ask("GET", path, cookie=cookie).status == 401
    assert guarded.ask("DELETE", "/api/v1/runs/1", cookie=cookie).status == 401
    assert guarded.post(b"", "/v1/traces", cookie=cookie).status == 401


def test_the_cookie_is_no_token_and_the_token_no_cookie(guarded: RunningReceivers, cookie: str) -> None:
    session = cookie.partition("=")[2]
    assert READ not in session
    assert guarded.ask("GET", "/", authorization=f"Bearer {session}").status == 401
    assert guarded.ask("GET", "/", cookie=f"{SESSION_COOKIE}=second").status == 401
    assert enter(guarded, session).status == 401


@pytest.mark.parametrize(
    "sent",
    [
        "",
        "=",
        f"{SESSION_COOKIE}",
        f"{SESSION_COOKIE}=",
        f"{SESSION_COOKIE}=x",
        f"x{SESSION_COOKIE}=y",
        ";;;",
        "\xff=\xfe",
    ],
)
def test_a_cookie_that_is_none_opens_nothing(guarded: RunningReceivers, sent: str) -> None:
    assert guarded.ask("GET", "/", cookie=sent, accept=HTML).status == 401


def test_a_cookie_beside_a_wrong_token_opens_nothing(guarded: RunningReceivers, cookie: str) -> None:
    assert guarded.ask("GET", "/", cookie=cookie, authorization="Bearer guess").status == 401
    assert guarded.ask("GET", "/", cookie=cookie, authorization=f"Bearer {INGEST}").status == 403


def test_pages_of_others_see_nothing_with_it(guarded: RunningReceivers, cookie: str) -> None:
    assert guarded.ask("GET", "/", cookie=cookie, origin="https://evil.example").status == 403
    assert guarded.ask("GET", "/", cookie=cookie, host="evil.example").status == 403


def test_a_token_in_a_header_needs_no_cookie(guarded: RunningReceivers) -> None:
    assert guarded.ask("GET", "/", authorization="Bearer second").status == 200
    assert guarded.ask("GET", "/", authorization=f"Bearer {INGEST}", accept=HTML).status == 403


def test_a_cookie_is_gone_with_its_token(store: SqliteStore, cookie: str, tmp_path: Path) -> None:
    changed = doors_with(Authorizer((INGEST,), ("second", "third")), store, tmp_path)
    try:
        assert changed.ask("GET", "/", cookie=cookie, accept=HTML).status == 401
        kept = cookie_of(enter(changed, "second"))
        assert changed.ask("GET", "/", cookie=f"{SESSION_COOKIE}={kept}").status == 200
    finally:
        changed.stop()


def test_who_leaves_is_asked_again(guarded: RunningReceivers, cookie: str) -> None:
    reply = guarded.post(b"", "/leave", FORM, cookie=cookie)
    assert (reply.status, reply.headers["location"]) == (303, "/")
    gone = SimpleCookie(reply.headers["set-cookie"])[SESSION_COOKIE]
    assert (gone.value, gone["max-age"], gone["path"]) == ("", "0", "/")
    assert b"Log out" in guarded.ask("GET", "/", cookie=cookie).body
    assert guarded.post(b"", "/leave", FORM).status == 303  # also without a login


def _entered_over_tls(store: SqliteStore, folder: Path) -> Reply:
    """The response to a token that is submitted over TLS."""
    tls = TlsConfig(folder / "cert.pem", folder / "key.pem")
    files = ["-keyout", str(tls.key_file), "-out", str(tls.cert_file), "-subj", "/CN=localhost"]
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", *files], check=True, capture_output=True
    )
    site = Pages(store, goldens=lambda: None, is_live=True)
    authority = Authorizer(read_tokens=(READ,))
    receivers = RunningReceivers(
        folder / "journal.db",
        authority=authority,
        tls=tls,
        routes=http_routes.page_routes(site, is_ending=lambda: True),
    )
    receivers.start()
    try:
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        connection = http.client.HTTPSConnection("localhost", receivers.http.port, timeout=30, context=context)
        connection.request("POST", "/enter", urlencode({"token": READ}), {"Content-Type": FORM})
        answer = connection.getresponse()
        reply = Reply(answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read())
        connection.close()
        return reply
    finally:
        receivers.stop()


def test_a_browser_that_goes_astray_is_shown_a_page_and_a_program_an_answer(guarded: RunningReceivers) -> None:
    known = {"authorization": "Bearer second", "accept": HTML}
    nowhere = guarded.ask("GET", "/nowhere", **known)
    assert (nowhere.status, nowhere.headers["content-type"]) == (404, "text/html; charset=utf-8")
    assert b"This page does not exist." in nowhere.body
    assert guarded.ask("GET", "/nowhere", authorization=known["authorization"]).headers["content-type"] == (
        "application/json"
    )
    again = guarded.ask("GET", "/enter", accept=HTML)
    assert (again.status, again.headers["location"]) == (303, "/")
    assert guarded.ask("GET", "/enter").status == 405
