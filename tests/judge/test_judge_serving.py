"""The test model server behaves as documented."""

from __future__ import annotations

import gzip
import http.client
import json
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from urllib.parse import urlsplit

import pytest

from support.gateway_process import eventually
from support.model_endpoint import (
    after,
    content,
    cut,
    drip,
    failure,
    gzip_bomb,
    hang,
    huge,
    opinion,
    raw,
    redirect,
    serving,
)


def connect(model, timeout=10.0):
    """A connection that is closed at the end of the block."""
    return closing(http.client.HTTPConnection(urlsplit(model.url).netloc, timeout=timeout))


def ask(model, timeout=10.0, path="/v1/chat/completions"):
    """The response and its body."""
    with connect(model, timeout) as connection:
        connection.request("POST", path, json.dumps({"model": "m"}), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        return answer, answer.read()


def read(body):
    """The content of a completion's one message."""
    return json.loads(body)["choices"][0]["message"]["content"]


def test_the_server_records_requests_and_repeats_its_last_reply():
    before = time.monotonic()
    scores = []
    with serving([opinion(0.2, "search", "Wrong."), opinion(1.0)]) as model, connect(model) as connection:
        for number in range(3):  # all on one connection
            body = json.dumps({"number": number})
            connection.request("POST", "/v1/chat/completions?v=1", body, {"Authorization": "Bearer key"})
            scores.append(json.loads(read(connection.getresponse().read()))["score"])
    assert scores == [0.2, 1.0, 1.0]
    assert [request.body for request in model.requests] == [{"number": number} for number in range(3)]
    assert {request.path for request in model.requests} == {"/v1/chat/completions?v=1"}
    assert model.requests[0].headers["authorization"] == "Bearer key"
    assert before < model.requests[0].at < model.requests[1].at < time.monotonic()
    assert model.most_at_once == 1


def test_an_opinion_is_returned_as_a_chat_completion():
    with serving([opinion(0.2, "search", "Wrong.", prompt_tokens=7, completion_tokens=3, model="m")]) as model:
        answer, body = ask(model)
    completion = json.loads(body)
    assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
    assert (completion["object"], completion["model"]) == ("chat.completion", "m")
    assert completion["usage"] == {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}
    assert completion["choices"][0]["finish_reason"] == "stop"
    assert json.loads(read(body)) == {"reason": "Wrong.", "better_tool": "search", "score": 0.2}


def test_a_behaviour_receives_the_request_and_its_number():
    with serving(lambda request, number: content(f"{request.body['model']} {number}")) as model:
        assert [read(ask(model)[1]) for _ in range(2)] == ["m 0", "m 1"]


def test_an_error_in_a_behaviour_is_raised_when_the_server_closes():
    def behaviour(request, number):
        raise LookupError("oh")

    with pytest.raises(LookupError, match="oh"), serving(behaviour) as model:
        assert ask(model)[0].status == 500


def test_a_content_reply_may_have_any_message_and_no_usage():
    with serving([content(None, refusal="No.", finish_reason="length", usage=None)]) as model:
        completion = json.loads(ask(model)[1])
    assert completion["choices"][0]["message"] == {"role": "assistant", "content": None, "refusal": "No."}
    assert completion["choices"][0]["finish_reason"] == "length"
    assert "usage" not in completion


def test_a_raw_reply_may_have_any_status_headers_and_body():
    with serving([raw(b"\xff<", 203, {"Content-Type": "text/html"}), raw(b"")]) as model:
        answer, body = ask(model)
        assert (answer.status, answer.headers["content-type"], body) == (203, "text/html", b"\xff<")
        assert ask(model)[1] == b""


def test_a_failure_has_the_error_format_of_openai():
    with serving([failure(429, retry_after="2", message="Slow.", code="slow", type="rate"), failure(500)]) as model:
        answer, body = ask(model)
        assert (answer.status, answer.headers["retry-after"]) == (429, "2")
        assert json.loads(body) == {"error": {"message": "Slow.", "type": "rate", "param": None, "code": "slow"}}
        assert ask(model)[0].headers["retry-after"] is None


def test_other_paths_and_methods_return_404_and_405():
    with serving([opinion(1.0)]) as model:
        assert ask(model, path="/chat/completions")[0].status == 404
        with connect(model) as connection:
            connection.request("GET", "/v1/chat/completions")
            assert connection.getresponse().status == 405
    assert [request.body for request in model.requests] == [{"model": "m"}, None]


def test_a_hanging_reply_ends_after_its_time_or_when_the_server_closes():
    with serving([hang(0.1), hang()]) as model, connect(model) as waiting:
        with pytest.raises(http.client.RemoteDisconnected):
            ask(model)
        with pytest.raises(TimeoutError):
            ask(model, timeout=0.1)
        waiting.request("POST", "/v1/chat/completions", "{}")
        eventually(lambda: len(model.requests) == 3, "the request has not come")
        started = time.monotonic()
        model.close()
        assert time.monotonic() - started < 10
        with pytest.raises((http.client.RemoteDisconnected, ConnectionResetError)):
            waiting.getresponse()
        with pytest.raises(ConnectionRefusedError):
            ask(model)


def test_the_server_closes_without_waiting_for_idle_or_stalled_clients():
    with serving([opinion(1.0), huge(1 << 40)]) as model, connect(model) as idle, connect(model) as stalled:
        idle.request("POST", "/v1/chat/completions", "{}")
        idle.getresponse().read()
        stalled.request("POST", "/v1/chat/completions", "{}")
        with stalled.getresponse():
            started = time.monotonic()
            model.close()
            assert time.monotonic() - started < 10


def test_a_dripping_reply_takes_as_long_as_its_pauses():
    with serving([drip(b"123456789", pause=0.02, size=2), drip(failure(500), size=1000)]) as model:
        started = time.monotonic()
        answer, body = ask(model)
        assert (answer.headers["content-length"], body) == ("9", b"123456789")
        assert time.monotonic() - started >= 0.1
        assert ask(model)[0].status == 500


def test_a_dripping_reply_ends_when_the_client_disconnects():
    with serving([drip(b"x" * 1000, pause=0.02)]) as model:
        with connect(model) as connection:
            connection.request("POST", "/v1/chat/completions", "{}")
            with connection.getresponse() as answer:
                assert answer.read(1) == b"x"
        eventually(lambda: not model._open, "the request is still open")
    assert model.sent_bytes < 1000


@pytest.mark.parametrize("chunked", [False, True])
def test_a_huge_reply_is_a_valid_completion(chunked):
    with serving([huge(300_000, 503, chunked=chunked)]) as model:
        answer, body = ask(model)
    assert (answer.status, answer.headers["content-length"]) == (503, None if chunked else "300000")
    assert (len(body), model.sent_bytes) == (300_000, 300_000)
    assert set(read(body)) == {"x"}


@pytest.mark.parametrize("chunked", [False, True])
def test_a_huge_reply_ends_when_the_client_disconnects(chunked):
    with serving([huge(1 << 40, chunked=chunked)]) as model:
        with connect(model) as connection:
            connection.request("POST", "/v1/chat/completions", "{}")
            with connection.getresponse() as answer:
                assert len(answer.read(100_000)) == 100_000
        eventually(lambda: not model._open, "the request is still open")
    assert 100_000 <= model.sent_bytes < 64 << 20


def test_a_huge_reply_smaller_than_an_empty_completion_is_refused():
    with pytest.raises(ValueError, match="at least, not 10"):
        huge(10)


def test_a_gzip_bomb_is_small_until_it_is_decompressed():
    with serving([gzip_bomb(10_000_000)]) as model:
        answer, body = ask(model)
    assert answer.headers["content-encoding"] == "gzip"
    assert int(answer.headers["content-length"]) == len(body) < 20_000
    assert len(inflated := gzip.decompress(body)) == 10_000_000
    assert set(read(inflated)) == {"x"}


def test_a_truncated_reply_is_shorter_than_its_content_length():
    with serving([cut()]) as model, pytest.raises(http.client.IncompleteRead) as cause:
        ask(model)
    assert len(cause.value.partial) == pytest.approx(cause.value.expected, abs=1)


def test_a_redirect_has_a_location():
    with serving([redirect("http://elsewhere.test/v1", 308), redirect("/")]) as model:
        answer, body = ask(model)
        assert (answer.status, answer.headers["location"], body) == (308, "http://elsewhere.test/v1", b"")
        assert ask(model)[0].status == 307


def test_the_server_counts_concurrent_requests():
    with serving([after(0.2, opinion(1.0))]) as model:
        started = time.monotonic()
        with ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(lambda _: ask(model)[0].status, range(16)))
        assert time.monotonic() - started >= 0.4
    assert answers == [200] * 16
    assert model.most_at_once == 8


@pytest.mark.parametrize("reply", [opinion(1.0), huge(100_000, chunked=True), cut(), drip(b"12", pause=0)])
def test_the_server_does_not_count_consecutive_requests_as_concurrent(reply):
    with serving([reply]) as model:
        for _ in range(50):
            try:
                ask(model)
            except http.client.IncompleteRead:
                continue
    assert (len(model.requests), model.most_at_once) == (50, 1)


def test_the_server_does_not_count_abandoned_requests_as_concurrent():
    with serving([hang()]) as model:
        for _ in range(5):
            with pytest.raises(TimeoutError):
                ask(model, timeout=0.02)
    assert model.most_at_once == 1


def test_disconnecting_clients_cause_no_output(capfd):
    with serving([after(0.05, opinion(1.0)), drip(b"x" * 99, pause=0.01), huge(1 << 30)]) as model:
        for _ in range(3):
            with connect(model) as connection:
                connection.request("POST", "/v1/chat/completions", "{}")
                eventually(lambda: model._open, "the request has not come")
            eventually(lambda: not model._open, "the request is still open")
        with connect(model) as connection:
            connection.connect()
            connection.sock.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nContent-Length: 9\r\n\r\n{}")
    assert len(model.requests) == 3
    assert capfd.readouterr() == ("", "")
