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


def receivers_with(authority: Authorizer, store: SqliteStore, folder: Path) -> RunningReceivers:
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
    receivers = receivers_with(authority, store, tmp_path_factory.mktemp("guarded"))
    yield receivers
    receivers.stop()


def log_in(receivers: RunningReceivers, token: str = READ, wanted: str = "/", **headers: str) -> Reply:
    return receivers.post(urlencode({"token": token, "wanted": wanted}).encode(), "/enter", FORM, **headers)


def cookie_of(reply: Reply) -> str:
    return SimpleCookie(reply.headers["set-cookie"])[SESSION_COOKIE].value


@pytest.fixture(scope="module")
def cookie(guarded: RunningReceivers) -> str:
    return f"{SESSION_COOKIE}={cookie_of(log_in(guarded))}"


# --- the form ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", PAGES)
def test_a_request_without_a_token_gets_the_login_form_in_a_browser_and_json_in_a_program(
    guarded: RunningReceivers, path: str
) -> None:
    person, program = guarded.ask("GET", path, accept=HTML), guarded.ask("GET", path, accept="*/*")
    assert person.status == program.status == 401
    assert person.headers["www-authenticate"] == program.headers["www-authenticate"] == "Bearer"
    assert person.headers["content-type"] == "text/html; charset=utf-8"
    assert program.headers["content-type"] == "application/json"
    assert b"A token is needed" in person.body
    assert b"what a user said" not in person.body
    assert person.headers["content-security-policy"] == http_routes.CONTENT_SECURITY_POLICY
    assert person.headers["cache-control"] == "no-store"


def test_the_login_form_contains_the_escaped_address_that_was_requested(guarded: RunningReceivers) -> None:
    body = guarded.ask("GET", '/?agent="><script>x', accept=HTML).body.decode()
    assert "<script>x" not in body
    asked = guarded.ask("GET", "/?agent=a&verdict=fail", accept=HTML).body.decode()
    assert 'value="/?agent=a&amp;verdict=fail"' in asked


@pytest.mark.parametrize("path", ["/api/v1/runs", "/metrics", "/v1/traces", "/api/v1/openapi.json"])
def test_api_and_ingest_paths_never_return_the_login_form(guarded: RunningReceivers, path: str) -> None:
    reply = guarded.ask("GET", path, accept=HTML)
    assert (reply.status, reply.headers["content-type"]) == (401, "application/json")


def test_assets_are_served_without_a_token_but_not_to_other_hosts_or_origins(guarded: RunningReceivers) -> None:
    for path in ("/assets/page.css", "/assets/icon.svg", "/favicon.ico"):
        assert guarded.ask("GET", path).status == 200
    assert guarded.ask("GET", "/assets/nothing").status == 404
    assert guarded.ask("GET", "/assets/page.css", host="evil.example").status == 403
    assert guarded.ask("GET", "/assets/page.css", origin="https://evil.example").status == 403


def test_without_read_tokens_pages_need_no_login(store: SqliteStore, tmp_path: Path) -> None:
    receivers = receivers_with(Authorizer(allowed_hosts=LOOPBACK_HOSTS), store, tmp_path)
    try:
        assert receivers.ask("GET", "/", accept=HTML).status == 200
        assert log_in(receivers).status == 401  # there is no login form
    finally:
        receivers.stop()


# --- submitting -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("token", [READ, "second", f"  {READ}\r\n"])
def test_a_login_with_a_read_token_gives_access_to_every_page(guarded: RunningReceivers, token: str) -> None:
    reply = log_in(guarded, token, "/?agent=a")
    assert (reply.status, reply.headers["location"]) == (303, "/?agent=a")
    for path in PAGES:
        opened = guarded.ask(
            "GET", path, cookie=f"theme=dark; {SESSION_COOKIE}={cookie_of(reply)}; other=1", accept=HTML
        )
        assert opened.status in (200, 404)


def test_the_session_cookie_is_http_only_same_site_lax_and_expires_within_a_month(guarded: RunningReceivers) -> None:
    reply = log_in(guarded)
    morsel = SimpleCookie(reply.headers["set-cookie"])[SESSION_COOKIE]
    assert morsel["httponly"] is True
    assert (morsel["samesite"].lower(), morsel["path"], morsel["domain"]) == ("lax", "/", "")
    assert 0 < int(morsel["max-age"]) <= 31 * 86400
    assert not morsel["secure"]  # browsers do not send it back over HTTP
    assert READ not in str(reply.headers)
    assert reply.headers["cache-control"] == "no-store"


@pytest.mark.needs("openssl")
def test_the_session_cookie_is_secure_over_tls(store: SqliteStore, tmp_path: Path) -> None:
    reply = _entered_over_tls(store, tmp_path)
    assert SimpleCookie(reply.headers["set-cookie"])[SESSION_COOKIE]["secure"] is True


@pytest.mark.parametrize("token", ["", "guess", INGEST, READ.upper(), f"{READ} {READ}", "\x00"])
def test_a_login_with_a_token_that_does_not_permit_reading_is_refused(guarded: RunningReceivers, token: str) -> None:
    reply = log_in(guarded, token, "/goldens")
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
def test_a_login_never_redirects_to_another_site(guarded: RunningReceivers, wanted: str) -> None:
    reply = log_in(guarded, wanted=wanted)
    assert (reply.status, reply.headers["location"]) == (303, "/")
    refused = log_in(guarded, "guess", wanted)
    assert b'name="wanted" value="/"' in refused.body


@pytest.mark.parametrize("wanted", ["/runs/a%2Fb", "/?text=%C3%BC&agent=a", "/goldens/x//y"])
def test_a_login_redirects_to_the_requested_address(guarded: RunningReceivers, wanted: str) -> None:
    assert log_in(guarded, wanted=wanted).headers["location"] == wanted


def test_a_login_form_without_a_token_or_with_a_malformed_body_is_refused(guarded: RunningReceivers) -> None:
    for body in (b"", b"wanted=/", b"token", b"\xff\xfe=%ff", b'{"token": "x"}', b"&&&=&"):
        assert guarded.post(body, "/enter", FORM).status == 401


def test_a_login_form_that_is_too_long_is_rejected_unread(guarded: RunningReceivers) -> None:
    reply = guarded.post(b"token=" + b"x" * 100_000, "/enter", FORM)
    assert (reply.status, reply.headers["connection"]) == (413, "close")
    assert guarded.post(b"token=" + b"x" * 8_000, "/enter", FORM).status == 401


@pytest.mark.parametrize("path", ["/enter", "/leave"])
def test_forms_of_other_origins_and_hosts_are_refused(guarded: RunningReceivers, path: str) -> None:
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
def test_the_session_cookie_does_not_authorize_api_and_ingest_requests(
    guarded: RunningReceivers, cookie: str, path: str
) -> None:
    assert guarded.ask("GET", path, cookie=cookie).status == 401
    assert guarded.ask("DELETE", "/api/v1/runs/1", cookie=cookie).status == 401
    assert guarded.post(b"", "/v1/traces", cookie=cookie).status == 401


def test_a_session_is_not_accepted_as_a_token_nor_a_token_as_a_session(guarded: RunningReceivers, cookie: str) -> None:
    session = cookie.partition("=")[2]
    assert READ not in session
    assert guarded.ask("GET", "/", authorization=f"Bearer {session}").status == 401
    assert guarded.ask("GET", "/", cookie=f"{SESSION_COOKIE}=second").status == 401
    assert log_in(guarded, session).status == 401


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
def test_a_malformed_session_cookie_is_refused(guarded: RunningReceivers, sent: str) -> None:
    assert guarded.ask("GET", "/", cookie=sent, accept=HTML).status == 401


def test_a_wrong_token_is_refused_even_with_a_valid_session_cookie(guarded: RunningReceivers, cookie: str) -> None:
    assert guarded.ask("GET", "/", cookie=cookie, authorization="Bearer guess").status == 401
    assert guarded.ask("GET", "/", cookie=cookie, authorization=f"Bearer {INGEST}").status == 403


def test_the_session_cookie_is_refused_from_other_origins_and_hosts(guarded: RunningReceivers, cookie: str) -> None:
    assert guarded.ask("GET", "/", cookie=cookie, origin="https://evil.example").status == 403
    assert guarded.ask("GET", "/", cookie=cookie, host="evil.example").status == 403


def test_a_bearer_token_needs_no_session_cookie(guarded: RunningReceivers) -> None:
    assert guarded.ask("GET", "/", authorization="Bearer second").status == 200
    assert guarded.ask("GET", "/", authorization=f"Bearer {INGEST}", accept=HTML).status == 403


def test_a_session_ends_when_its_token_is_removed(store: SqliteStore, cookie: str, tmp_path: Path) -> None:
    changed = receivers_with(Authorizer((INGEST,), ("second", "third")), store, tmp_path)
    try:
        assert changed.ask("GET", "/", cookie=cookie, accept=HTML).status == 401
        kept = cookie_of(log_in(changed, "second"))
        assert changed.ask("GET", "/", cookie=f"{SESSION_COOKIE}={kept}").status == 200
    finally:
        changed.stop()


def test_a_logout_deletes_the_session_cookie(guarded: RunningReceivers, cookie: str) -> None:
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


def test_an_unknown_path_returns_html_to_a_browser_and_json_to_a_program(guarded: RunningReceivers) -> None:
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
