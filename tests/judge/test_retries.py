"""Retries, backoff and `Retry-After`."""

from __future__ import annotations

import math
import time
from datetime import datetime, timedelta, timezone
from email.utils import format_datetime
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goldspan._http import parse_retry_after
from goldspan.judge import judge_evaluations, judge_session
from support.judge_clients import evaluation, judging, score
from support.model_endpoint import failure, opinion, raw, serving


def judged_replies(*replies, **options):
    """The score, the judge and the requests after these replies."""
    with serving([*replies]) as model, judging(model, **options) as judge:
        found = score(judge)
        spent = judge.cache.spending_last_day().tokens
    usage = judge.usage
    assert usage.requests == len(model.requests)
    assert usage.judged + usage.failed == 1
    assert spent == usage.input_tokens + usage.output_tokens  # refused requests cost nothing
    return found, judge, model.requests


def gap(requests):
    """Seconds between the first and the second request."""
    return requests[1].at - requests[0].at


@pytest.mark.parametrize("status", [408, 409, 429, 500, 502, 503, 504, 529])
def test_a_transient_status_is_retried(status):
    found, judge, requests = judged_replies(failure(status), failure(status), opinion(0.5))
    assert found.value == 0.5
    assert judge.usage.requests == 3
    assert requests[0].body == requests[1].body == requests[2].body


@pytest.mark.parametrize("status", [400, 401, 403, 404, 413, 422, 201, 204, 301, 308])
def test_a_permanent_status_is_not_retried(status):
    reply = raw(b"", status) if status < 400 else failure(status)
    found, judge, _ = judged_replies(reply, opinion(0.5))
    told = "" if status < 400 else ": The model has failed."
    assert found.error == f"EndpointRefused: the endpoint answered {status}{told}"
    assert judge.usage.requests == 1


def test_an_exhausted_quota_is_not_retried():
    found, judge, _ = judged_replies(failure(429, code="insufficient_quota", message="You exceeded your quota."))
    assert found.error == "RateLimited: the endpoint answered 429: You exceeded your quota."
    assert judge.usage.requests == 1


@pytest.mark.parametrize("retries", [0, 1, 3])
def test_the_error_is_reported_after_all_retries(retries):
    found, judge, _ = judged_replies(failure(503), retries=retries)
    assert found.error == "EndpointError: the endpoint answered 503: The model has failed."
    assert judge.usage.requests == retries + 1


def test_the_backoff_grows_exponentially(monkeypatch):
    monkeypatch.setattr(judge_session, "_INITIAL_BACKOFF_S", 0.1)
    _, _, requests = judged_replies(failure(500), retries=3)
    gaps = [later.at - earlier.at for earlier, later in pairwise(requests)]
    assert all(least <= gap for least, gap in zip((0.05, 0.1, 0.2), gaps, strict=True))


def test_no_retry_is_made_if_the_backoff_exceeds_the_timeout(monkeypatch):
    monkeypatch.setattr(judge_session, "_INITIAL_BACKOFF_S", 100.0)
    found, judge, _ = judged_replies(failure(500), timeout=2)
    assert found.error == "EndpointError: the endpoint answered 500: The model has failed."
    assert judge.usage.requests == 1


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize("headers", [{"retry-after": "0.3"}, {"retry-after-ms": "300", "retry-after": "60"}])
def test_a_retry_waits_as_long_as_retry_after_states(status, headers):
    found, _, requests = judged_replies(raw(b"{}", status, headers), opinion(0.5))
    assert found.value == 0.5
    assert gap(requests) >= 0.29


def test_retry_after_may_be_a_date():
    until = datetime.now(timezone.utc) + timedelta(seconds=2)
    _, _, requests = judged_replies(failure(429, retry_after=format_datetime(until, usegmt=True)), opinion(0.5))
    assert 0.5 <= gap(requests) <= 10


@pytest.mark.parametrize("said", ["soon", "-5", "nan", "inf", "1e999", "Wed, 21 Oct 2015 07:28:00 GMT", "9" * 5000])
def test_an_invalid_retry_after_is_ignored(said):
    found, _, requests = judged_replies(failure(429, retry_after=said), opinion(0.5))
    assert found.value == 0.5
    assert gap(requests) < 10


def test_waiting_for_retry_after_does_not_count_towards_the_timeout():
    found, _, _ = judged_replies(failure(429, retry_after="1.5"), opinion(0.5), timeout=1)
    assert found.value == 0.5


def test_a_retry_after_beyond_the_budget_stops_all_requests():
    with serving([failure(429, retry_after="100"), opinion(0.5)]) as model:
        with judging(model, retry_after_budget=1.0, concurrency=1) as judge:
            started = time.monotonic()
            runs = [evaluation(input=str(number)) for number in range(20)]
            found = [each.score("tool_selection") for each in judge_evaluations(runs, judge)]
            assert time.monotonic() - started < 30
        assert len(model.requests) == judge.usage.requests == 1
    assert {each.error[:46] for each in found} == {"RateLimited: the endpoint asks to wait another"}
    assert judge.usage.failed == 20


def test_retry_after_is_limited_to_a_maximum(monkeypatch):
    monkeypatch.setattr(judge_session, "_MAX_RETRY_AFTER_S", 0.2)
    found, _, requests = judged_replies(failure(429, retry_after="1e300"), opinion(0.5))
    assert found.value == 0.5
    assert gap(requests) >= 0.19


def test_concurrent_runs_wait_for_one_retry_after_and_all_are_judged():
    with serving([failure(429, retry_after="0.3"), opinion(0.5)]) as model, judging(model, concurrency=8) as judge:
        runs = [evaluation(input=str(number)) for number in range(30)]
        assert [each.score("tool_selection").value for each in judge_evaluations(runs, judge)] == [0.5] * 30
        assert judge.cache.spending_last_day().tokens == 30 * 120
    assert judge.usage.requests == 31
    assert judge.usage.judged == 30


def test_an_error_page_of_a_proxy_is_handled_by_its_status():
    packed = raw(b"\x1f\x8b", 429, {"content-encoding": "gzip", "retry-after": "0.3"})
    found, _, requests = judged_replies(packed, opinion(0.5))
    assert found.value == 0.5
    assert gap(requests) >= 0.29


@given(st.text(max_size=40) | st.floats().map(str) | st.integers().map(str) | st.datetimes().map(format_datetime))
def test_any_retry_after_header_yields_a_finite_number_of_seconds_or_none(said):
    for name in ("retry-after", "retry-after-ms"):
        seconds = parse_retry_after({name: said})
        assert seconds is None or (seconds >= 0 and math.isfinite(seconds))
