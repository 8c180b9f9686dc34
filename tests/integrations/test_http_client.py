"""`ProductClient` classifies failures, bounds replies, and keeps tokens secret."""

from __future__ import annotations

import logging
import socket
import sys

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import INVALID_SPAN, get_current_span

from goldspan import ConfigurationError
from goldspan.errors import MissingExtraError
from goldspan.integrations import http_client
from goldspan.integrations.http_client import DeliveryError, ProductClient
from goldspan.integrations.product import ProductReply, ProductRequest
from support.model_endpoint import Hanging, drip, gzip_bomb, raw, redirect
from support.product_server import ScoreTable, accepted, client_of, failed, product_server

TOKEN = "secret-0123456789"
READ = ProductRequest("GET", "/rows", query={"page": "2"})


def send(url: str, request: ProductRequest = READ, *, timeout: float = 5) -> ProductReply:
    with client_of(ScoreTable(url, token=TOKEN), timeout=timeout) as client:
        return client.send(request)


def error_of(reply) -> DeliveryError:
    with product_server(lambda _: reply) as server, pytest.raises(DeliveryError) as caught:
        send(server.url)
    return caught.value


def test_a_request_has_the_token_the_query_and_a_json_body():
    with (
        product_server(lambda _: accepted({"id": 1})) as server,
        client_of(ScoreTable(f"{server.url}/base/", token=TOKEN)) as client,
    ):
        assert client.send(READ) == ProductReply(200, {"id": 1})
        client.send(ProductRequest("POST", "/rows", {"a": "ü"}))
    read, written = server.received
    assert (read.method, read.path, read.query, read.body) == ("GET", "/base/rows", {"page": "2"}, None)
    assert "content-type" not in read.headers
    assert read.headers["authorization"] == f"Bearer {TOKEN}"
    assert read.headers["user-agent"].startswith("goldspan/")
    assert (written.body, written.headers["content-type"]) == ({"a": "ü"}, "application/json")


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (301, "misconfigured"),
        (400, "refused"),
        (401, "misconfigured"),
        (403, "misconfigured"),
        (404, "not_found"),
        (405, "misconfigured"),
        (408, "overloaded"),
        (413, "refused"),
        (422, "refused"),
        (429, "overloaded"),
        (500, "unavailable"),
        (501, "refused"),
        (502, "unavailable"),
        (503, "overloaded"),
        (507, "unavailable"),
    ],
)
def test_each_status_has_a_meaning(status, kind):
    error = error_of(failed(status, "no reason", retry_after="5"))
    assert (error.kind, error.retry_after) == (kind, 5)
    assert str(error) == f"table answered {status} to GET /rows: no reason"


@pytest.mark.parametrize(
    "reply",
    [
        Hanging(0),
        raw(b'{"a', headers={"content-length": "9"}),
        raw(b"no gzip" * 9, headers={"content-encoding": "gzip"}),
    ],
    ids=["no reply", "half a reply", "no gzip"],
)
def test_a_broken_reply_means_that_the_product_is_unavailable(reply):
    error = error_of(reply)
    assert error.kind == "unavailable"
    assert str(error).startswith("table: ")


def test_a_refused_connection_means_that_the_product_is_unavailable():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        with pytest.raises(DeliveryError, match="ConnectError") as caught:
            send(f"http://127.0.0.1:{taken.getsockname()[1]}")
    assert caught.value.kind == "unavailable"


def test_a_silent_product_is_unavailable_after_the_timeout():
    with product_server(lambda _: Hanging(30)) as server, pytest.raises(DeliveryError, match="ReadTimeout") as caught:
        send(server.url, timeout=0.05)
    assert caught.value.kind == "unavailable"


def test_a_reply_in_small_parts_ends_after_a_time(monkeypatch):
    monkeypatch.setattr(http_client, "MAX_REPLY_SECONDS", 0.05)
    error = error_of(drip(b" " * 1000, pause=0.02))
    assert (error.kind, str(error)) == ("unavailable", "table: a reply took longer than 0.05 seconds")


def test_a_reply_of_any_size_does_not_fill_the_memory(monkeypatch):
    monkeypatch.setattr(http_client, "MAX_REPLY_BYTES", 1 << 16)
    error = error_of(gzip_bomb(1 << 22))
    assert (error.kind, str(error)) == ("unavailable", "table: a reply is longer than 65536 bytes")


def test_an_absent_object_can_mean_success():
    with product_server(lambda _: failed(404)) as server:
        request = ProductRequest("DELETE", "/rows/1", absent_is_success=True)
        assert send(server.url, request).status == 404


def test_a_reply_without_json_has_no_value():
    with product_server(lambda _: raw(b"<html>")) as server:
        assert send(server.url).body is None


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b'{"detail": [{"loc": 1}]}', '[{"loc": 1}]'),
        (b'{"error_code": "X", "message": "wrong"}', "wrong"),
        (b"plain\n text\x00", "plain text"),
        (b'{"other": 1}', '{"other": 1}'),
        (b"x" * 1000, "x" * 299 + "…"),
    ],
)
def test_the_message_of_an_error_is_one_short_line(body, text):
    assert str(error_of(raw(body, 400))) == f"table answered 400 to GET /rows: {text}"


def test_an_error_without_a_body_has_no_message():
    assert str(error_of(raw(b"", 500))) == "table answered 500 to GET /rows"


def test_a_token_reaches_no_error_and_no_log(caplog):
    reply = raw(f'{{"detail": "bad token {TOKEN}"}}'.encode(), 401, {"x-echo": TOKEN})
    with caplog.at_level(logging.DEBUG):
        error = error_of(reply)
    assert TOKEN not in str(error)
    assert "[key]" in str(error)
    assert TOKEN not in caplog.text


def test_a_redirection_is_not_followed():
    with product_server(lambda _: accepted()) as elsewhere:
        error = error_of(redirect(f"{elsewhere.url}/rows"))
        assert elsewhere.received == []
    assert error.kind == "misconfigured"


def test_a_request_belongs_to_no_trace():
    seen = []

    def answer(request):
        seen.append(request.headers.get("traceparent"))
        return accepted()

    with product_server(answer) as server, TracerProvider().get_tracer("test").start_as_current_span("outer"):
        send(server.url)
        assert get_current_span() is not INVALID_SPAN
    assert seen == [None]


@pytest.mark.parametrize("url", ["localhost:6006", "ftp://host", "http://user:password@host", "http://host?key=1", ""])
def test_a_wrong_address_is_a_configuration_error_that_does_not_repeat_it(url):
    with pytest.raises(ConfigurationError, match="the address of table is written as https://host/path") as caught:
        ProductClient(ScoreTable(url))
    assert "password@" not in str(caught.value)


@pytest.mark.parametrize("token", ["two\nlines", "schlüssel", " "])
def test_a_token_that_no_header_can_have_is_a_configuration_error(token):
    with pytest.raises(ConfigurationError, match="the token of table contains characters") as caught:
        ProductClient(ScoreTable("http://localhost", token=token))
    assert token.strip() == "" or token not in str(caught.value)


def test_a_missing_extra_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "httpx2", None)
    monkeypatch.setattr(http_client, "find_spec", lambda _: None)
    with pytest.raises(MissingExtraError, match=r"goldspan\[integrations\]"):
        ProductClient(ScoreTable("http://localhost"))
