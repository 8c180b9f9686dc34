"""Time and memory are bounded with endpoints that are slow or send endless responses."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from goldspan.judge import judge_evaluations
from support.judge_clients import evaluation, judging, score
from support.model_endpoint import after, drip, failure, gzip_bomb, hang, huge, opinion, serving

MANY = 300 << 20
BUFFERS = 24 << 20
"""Bytes that system buffers may hold when a connection is closed."""


def timed_out(reply, **options):
    """Seconds until the judge stops waiting for a reply."""
    with serving([reply]) as model, judging(model, timeout=0.8, **options) as judge:
        started = time.monotonic()
        assert score(judge).error == "Timeout: no answer within 0.8 s"
        seconds = time.monotonic() - started
        assert judge.cache.spending_last_day().tokens > 1000  # the cost is not known
    assert (judge.usage.requests, judge.usage.failed) == (len(model.requests), 1)
    return seconds, model


class DrippingHeaders:
    """Sends a status line and headers byte by byte; the test server cannot do that."""

    def send(self, exchange):
        for byte in b"HTTP/1.1 200 OK\r\n" + b"x-a: b\r\n" * 1000:
            if not exchange.wait(0.02):
                break
            exchange._handler.wfile.write(bytes([byte]))
        exchange.hang_up()


class EndlessHeaders:
    """Headers that never end."""

    def send(self, exchange):
        exchange._handler.wfile.write(b"HTTP/1.1 200 OK\r\n")
        for _ in range(MANY // 65_536):
            if exchange.is_abandoned():
                break
            exchange._handler.wfile.write(b"x" * 65_536)
        exchange.hang_up()


@pytest.mark.parametrize(
    "reply", [hang(), drip(opinion(1.0), pause=0.05), drip(failure(500), pause=0.05), DrippingHeaders()]
)
def test_a_reply_that_exceeds_the_timeout_is_abandoned(reply):
    seconds, model = timed_out(reply)
    assert 0.7 <= seconds < 15
    assert model.sent_bytes < 1000


def test_the_timeout_covers_all_attempts_and_votes_together():
    seconds, model = timed_out(after(0.3, failure(500)), retries=100, votes=9)
    assert seconds < 15
    assert 2 <= len(model.requests) <= 4


def test_no_further_vote_is_requested_after_the_timeout():
    with serving([opinion(1.0), hang()]) as model, judging(model, votes=3, timeout=1) as judge:
        assert score(judge).error == "Timeout: no answer within 1 s"
    assert len(model.requests) == judge.usage.requests == 2


def test_endless_headers_are_abandoned():
    with serving([EndlessHeaders()]) as model, judging(model, retries=0, timeout=20) as judge:
        assert score(judge).error.startswith("Unreachable: ")


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize(
    ("status", "error", "requests"),
    [
        (200, "AnswerTooLarge: the model's answer is longer than 1048576 bytes", 1),
        (500, "EndpointError: the endpoint answered 500", 2),
        (401, "EndpointRefused: the endpoint answered 401", 1),
    ],
)
def test_only_the_beginning_of_a_huge_answer_is_read(chunked, status, error, requests):
    with serving([huge(MANY, status, chunked=chunked)]) as model, judging(model, retries=1) as judge:
        assert score(judge).error == error
    assert judge.usage.requests == requests
    assert model.sent_bytes < BUFFERS * requests


def test_an_answer_at_the_size_limit_is_read():
    with serving([huge(1 << 20)]) as model, judging(model, retries=0) as judge:
        assert score(judge).error == "MalformedAnswer: the model's answer is not JSON"


@pytest.mark.e2e
def test_compressed_answers_are_not_decompressed():
    with serving([gzip_bomb(MANY)]) as model, judging(model, retries=0) as judge:
        assert score(judge).error == "MalformedAnswer: the model's answer is compressed, which was not requested"
    assert judge.usage.failed == 1


PROGRAM = """
import resource, sys
from goldspan.judge import Judge, ModelEndpoint, judge_evaluations
from support.judge_clients import evaluation
judge = Judge(ModelEndpoint("tiny", base_url=sys.argv[1]), retries=1)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
runs = [evaluation(input=str(number), output="x" * 1000) for number in range(12)]
errors = [each.score("tool_selection").error for each in judge_evaluations(runs, judge)]
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before, len(errors), None in errors)
"""


ENDLESS = {"huge": lambda: huge(MANY, 500, chunked=True), "packed": lambda: gzip_bomb(MANY), "headers": EndlessHeaders}
"""Created by the test, because compressing a bomb takes a second, which would slow down collection."""


@pytest.mark.e2e
@pytest.mark.parametrize("make_reply", ENDLESS.values(), ids=ENDLESS)
def test_memory_is_bounded_with_endless_replies(make_reply):
    with serving([make_reply()]) as model:
        command = [sys.executable, "-c", PROGRAM, model.url]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env=_path())
    assert done.stderr == ""
    kilobytes, judged_runs, without = done.stdout.split()
    assert (judged_runs, without) == ("12", "False")
    assert int(kilobytes) < 60 << 10


def _path():
    return {"PYTHONPATH": ":".join(filter(None, sys.path))}


@pytest.mark.e2e
def test_a_slow_answer_occupies_only_one_concurrency_slot():
    def behaviour(request, number):
        return hang() if '"request": "0"' in request.body["messages"][1]["content"] else opinion(0.5)

    with serving(behaviour) as model, judging(model, concurrency=2, timeout=3) as judge:
        runs = [evaluation(input=str(number)) for number in range(20)]
        values = [each.score("tool_selection").value for each in judge_evaluations(runs, judge)]
    assert values == [None, *[0.5] * 19]
    assert (judge.usage.judged, judge.usage.failed, judge.usage.requests) == (19, 1, 20)
