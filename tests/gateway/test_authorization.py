"""Tests of the authorization: permissions, tokens, hosts and origins."""

from __future__ import annotations

import pytest

from goldspan.gateway.receivers.authorization import (
    LOOPBACK_HOSTS,
    SESSION_COOKIE,
    Authorizer,
    host_without_port,
    is_browser_page,
    is_login_path,
    required_permission,
)

TRACES = "/v1/traces"
EXPORT = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
RUNS = "/api/v1/runs"
GUARDED = Authorizer(ingest_tokens=("in-1", "in-2"), read_tokens=("out-1",))
LOCAL = Authorizer(allowed_hosts=LOOPBACK_HOSTS)


def status(authority: Authorizer, path: str, *headers: tuple[str, str]) -> int:
    """Returns the status of the response; 200 if the request is authorized."""
    sent = [(name.encode(), value.encode("latin-1")) for name, value in headers]
    refused = authority.refusal_for(path, sent, is_grpc=path == EXPORT)
    return 200 if refused is None else refused.http_status


def bearer_header(token: str, scheme: str = "Bearer") -> tuple[str, str]:
    return "authorization", f"{scheme} {token}"


@pytest.mark.parametrize(
    ("path", "right"),
    [
        (TRACES, "ingest"),
        ("/v1/anything", "ingest"),
        (EXPORT, "ingest"),
        (RUNS, "read"),
        ("/metrics", "read"),
        ("/mcp", "read"),
        ("/", "read"),
        ("/nowhere", "read"),
        ("/v1", "read"),
        ("/healthz/", "read"),
        ("/grpc.health.v1.Health/Check", "read"),
        ("/runs/1", "read"),
        ("/news", "read"),
        ("/assets", "read"),
        ("/enter/", "read"),
        ("/runs/assets/", "read"),
        ("/assets/page.css", None),
        ("/favicon.ico", None),
        ("/enter", None),
        ("/leave", None),
        ("/healthz", None),
        ("/readyz", None),
    ],
)
def test_export_paths_need_ingest_and_other_paths_need_read_unless_public(path: str, right: str | None) -> None:
    assert required_permission(path) == right


@pytest.mark.parametrize(
    ("header", "host"),
    [
        ("localhost", "localhost"),
        ("LocalHost:4318", "localhost"),
        ("localhost.:4318", "localhost"),
        ("127.0.0.1:4318", "127.0.0.1"),
        ("[::1]:4318", "::1"),
        ("[::1]", "::1"),
        ("::1", "::1"),
        (" example.com ", "example.com"),
        ("", ""),
    ],
)
def test_a_host_is_normalized_and_compared_without_its_port(header: str, host: str) -> None:
    assert host_without_port(header) == host


def test_without_tokens_every_request_is_authorized() -> None:
    assert status(Authorizer(), TRACES) == status(Authorizer(), RUNS) == 200
    assert not Authorizer().requires_token
    assert GUARDED.requires_token


def test_each_token_of_a_permission_grants_that_permission() -> None:
    assert [status(GUARDED, TRACES, bearer_header(token)) for token in ("in-1", "in-2")] == [200, 200]
    assert [status(GUARDED, EXPORT, bearer_header(token)) for token in ("in-1", "in-2")] == [200, 200]
    assert status(GUARDED, RUNS, bearer_header("out-1")) == 200


def test_a_token_does_not_grant_the_other_permission() -> None:
    assert status(GUARDED, RUNS, bearer_header("in-1")) == 403
    assert status(GUARDED, TRACES, bearer_header("out-1")) == 403


def test_a_token_listed_for_both_permissions_grants_both() -> None:
    both = Authorizer(ingest_tokens=("t",), read_tokens=("t",))
    assert status(both, TRACES, bearer_header("t")) == status(both, RUNS, bearer_header("t")) == 200


def test_a_permission_without_tokens_is_denied_if_the_other_has_tokens() -> None:
    ingest_only = Authorizer(ingest_tokens=("t",))
    assert status(ingest_only, RUNS) == 401
    assert status(ingest_only, RUNS, bearer_header("t")) == 403


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [bearer_header("in-3")],
        [bearer_header("")],
        [bearer_header("   ")],
        [bearer_header("in-1", "Basic")],
        [bearer_header("in-1", "")],
        [("authorization", "in-1")],
        [("authorization", "Bearer")],
        [("authorization", "Bearerin-1")],
        [bearer_header("IN-1")],
        [bearer_header("in-1 x")],
        [bearer_header("in-1"), bearer_header("in-1")],
        [("authorization", "Bearer in-1, Bearer in-2")],
        [("authorization", "Bearer \xff\xfe")],
        [("x-authorization", "Bearer in-1")],
        [("cookie", "authorization=Bearer in-1")],
    ],
)
def test_a_missing_malformed_or_unknown_token_is_answered_401(headers: list[tuple[str, str]]) -> None:
    assert status(GUARDED, TRACES, *headers) == 401


@pytest.mark.parametrize("scheme", ["bearer", "BEARER", "Bearer", "Bearer "])
def test_the_authorization_scheme_is_case_insensitive(scheme: str) -> None:
    assert status(GUARDED, TRACES, bearer_header("in-1", scheme)) == 200


def test_the_repr_of_an_authorizer_contains_no_token() -> None:
    assert "in-1" not in repr(GUARDED)
    assert "out-1" not in repr(GUARDED)


def test_a_token_outside_ascii_is_compared_as_utf_8() -> None:
    greek = Authorizer(ingest_tokens=("σύμβολο",))
    sent = "Bearer σύμβολο".encode().decode("latin-1")
    assert status(greek, TRACES, ("authorization", sent)) == 200


@pytest.mark.parametrize("host", ["localhost", "localhost:4318", "127.0.0.1:1", "[::1]:4318", "LOCALHOST"])
def test_loopback_host_names_are_accepted_on_the_loopback_interface(host: str) -> None:
    assert status(LOCAL, RUNS, ("host", host)) == status(LOCAL, TRACES, ("host", host)) == 200


@pytest.mark.parametrize("host", ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "", "[::2]"])
def test_other_host_names_are_refused_on_the_loopback_interface(host: str) -> None:
    assert status(LOCAL, RUNS, ("host", host)) == status(LOCAL, TRACES, ("host", host)) == 403


def test_a_request_without_exactly_one_host_header_is_answered_400() -> None:
    assert status(LOCAL, RUNS) == 400
    assert status(LOCAL, RUNS, ("host", "localhost"), ("host", "localhost")) == 400


def test_allowed_hosts_can_be_added_and_an_empty_list_allows_every_host() -> None:
    named = Authorizer(allowed_hosts=(*LOOPBACK_HOSTS, "Gateway.Example:4318"))
    assert status(named, RUNS, ("host", "gateway.example")) == 200
    assert status(Authorizer(), RUNS, ("host", "whatever.example")) == 200


def test_grpc_calls_need_no_host_header() -> None:
    assert status(LOCAL, EXPORT) == 200
    assert LOCAL.refusal_for("/unknown.Service/Method", [], is_grpc=True) is None
    assert LOCAL.refusal_for(EXPORT, []) is not None


def test_probes_need_neither_a_token_nor_an_allowed_host() -> None:
    strict = Authorizer(ingest_tokens=("t",), allowed_hosts=LOOPBACK_HOSTS)
    assert status(strict, "/healthz", ("host", "10.0.0.7:4318"), ("origin", "https://evil.example")) == 200


@pytest.mark.parametrize(
    ("origin", "expected"),
    [
        ("http://localhost:4318", 200),
        ("http://LOCALHOST:4318", 200),
        ("https://localhost:4318", 403),
        ("https://grafana.example", 200),
        ("https://grafana.example:8443", 403),
        ("http://localhost:8080", 403),
        ("https://evil.example", 403),
        ("null", 403),
        ("", 403),
        ("localhost:4318", 403),
    ],
)
def test_only_the_own_origin_and_allowed_origins_are_accepted(origin: str, expected: int) -> None:
    authority = Authorizer(allowed_hosts=LOOPBACK_HOSTS, allowed_origins=("https://Grafana.example/",))
    headers = [("host", "localhost:4318"), ("origin", origin)]
    assert status(authority, RUNS, *headers) == status(authority, TRACES, *headers) == expected


def test_an_origin_is_accepted_only_once_and_only_if_it_matches_the_host() -> None:
    assert status(Authorizer(), TRACES, ("origin", "http://localhost")) == 403
    same = ("origin", "http://localhost")
    assert status(Authorizer(), TRACES, ("host", "localhost"), same, same) == 403
    assert status(Authorizer(), EXPORT, ("origin", "https://evil.example")) == 403


def test_a_wrong_host_is_refused_before_the_token_is_checked() -> None:
    evil = [("host", "evil.example"), bearer_header("wrong")]
    guarded = Authorizer(ingest_tokens=("t",), allowed_hosts=LOOPBACK_HOSTS)
    assert status(guarded, TRACES, *evil) == 403


def test_a_refusal_quotes_the_request_short_and_printable() -> None:
    refused = LOCAL.refusal_for(RUNS, [(b"host", b"\x1b[31m" + b"x" * 1_000)])
    assert refused is not None
    assert "\x1b" not in refused.message
    assert len(refused.message) < 400


# --- browser sessions -------------------------------------------------------------------------------------------------


def cookie_for(authority: Authorizer, token: str) -> tuple[str, str]:
    session = authority.session_cookie_for(token)
    assert session is not None
    return "cookie", f"{SESSION_COOKIE}={session}"


@pytest.mark.parametrize("path", ["/", "/runs/1", "/goldens", "/uncovered", "/news", "/trend", "/nowhere", "/apiary"])
def test_browser_pages_can_be_read_with_a_session_cookie(path: str) -> None:
    assert is_browser_page(path)
    assert status(GUARDED, path, cookie_for(GUARDED, "out-1")) == 200


@pytest.mark.parametrize("path", [RUNS, "/api/", "/metrics", "/mcp", TRACES, EXPORT])
def test_paths_for_programs_do_not_accept_a_session_cookie(path: str) -> None:
    assert not is_browser_page(path)
    assert status(GUARDED, path, cookie_for(GUARDED, "out-1")) == 401


def test_only_a_read_token_gets_a_session_cookie() -> None:
    assert [GUARDED.session_cookie_for(token) for token in ("in-1", "in-2", "out-2", "", " ")] == [None] * 5
    assert Authorizer().session_cookie_for("") is None
    assert Authorizer(ingest_tokens=("t",)).session_cookie_for("t") is None


def test_a_session_cookie_is_valid_as_long_as_its_token() -> None:
    before = cookie_for(Authorizer(read_tokens=("old", "new")), "old")
    assert status(Authorizer(read_tokens=("old", "new")), "/", before) == 200
    assert status(Authorizer(read_tokens=("new",)), "/", before) == 401


def test_login_paths_need_no_token_but_an_allowed_host_and_origin() -> None:
    guarded = Authorizer(read_tokens=("t",), allowed_hosts=LOOPBACK_HOSTS)
    for path in ("/enter", "/leave", "/assets/page.css", "/favicon.ico"):
        assert is_login_path(path)
        assert not is_browser_page(path)
        assert status(guarded, path, ("host", "localhost")) == 200
        assert status(guarded, path, ("host", "evil.example")) == 403
        assert status(guarded, path, ("host", "localhost"), ("origin", "https://evil.example")) == 403
        assert status(guarded, path, ("host", "localhost"), ("origin", "null")) == 403
