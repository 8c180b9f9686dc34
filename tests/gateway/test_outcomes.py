"""What answers of back ends mean, and how long they are left alone after each."""

from __future__ import annotations

import time
from email.utils import formatdate

import pytest
from google.rpc.status_pb2 import Status

from gateway_destinations import Answer, GrpcBackEnd, running, traces, trailing
from goldspan.gateway.forwarding.backends import BackEnd
from goldspan.gateway.forwarding.grpc_sender import GrpcSender, grpc_outcome
from goldspan.gateway.forwarding.outcomes import http_outcome, seconds_of
from goldspan.gateway.forwarding.pacing import BARRED_SECONDS, MAX_SECONDS, Pace, pause
from goldspan.gateway.forwarding.parts import Part


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        *((status, "taken") for status in (200, 202, 204)),
        *((status, "barred") for status in (301, 302, 307, 308, 401, 403, 405, 407)),
        *((status, "refused") for status in (400, 408, 409, 410, 422, 431, 500, 501, 505)),
        *((status, "failed") for status in (502, 503, 504)),
        (404, "absent"),
        (413, "too_large"),
        (415, "other_media"),
        (429, "throttled"),
    ],
)
def test_http_answers_mean_what_otlp_says(status: int, kind: str) -> None:
    assert http_outcome(status, "traces", {}, b"").kind == kind


@pytest.mark.parametrize(
    ("code", "kind", "kind_with_a_time"),
    [
        *((code, "failed", "throttled") for code in ("CANCELLED", "DEADLINE_EXCEEDED", "ABORTED", "OUT_OF_RANGE")),
        *((code, "failed", "throttled") for code in ("UNAVAILABLE", "DATA_LOSS")),
        ("RESOURCE_EXHAUSTED", "refused", "throttled"),
        *((code, "barred", "barred") for code in ("UNAUTHENTICATED", "PERMISSION_DENIED")),
        *((code, "absent", "absent") for code in ("UNIMPLEMENTED", "NOT_FOUND")),
        *((code, "refused", "refused") for code in ("UNKNOWN", "INVALID_ARGUMENT", "ALREADY_EXISTS", "INTERNAL")),
        ("FAILED_PRECONDITION", "refused", "refused"),
    ],
)
def test_grpc_answers_mean_what_otlp_says(code: str, kind: str, kind_with_a_time: str) -> None:
    assert grpc_outcome(code, "", ()).kind == kind
    outcome = grpc_outcome(code, "", trailing(Answer(retry_seconds=1.5)))
    assert (outcome.kind, outcome.wait) == (kind_with_a_time, 1.5)


@pytest.mark.parametrize(
    ("code", "details"),
    [
        ("RESOURCE_EXHAUSTED", "CLIENT: Received message larger than max (5242894 vs. 4194304)"),
        ("RESOURCE_EXHAUSTED", "grpc: received message larger than max (5242894 vs. 4194304)"),
        ("RESOURCE_EXHAUSTED", "gRPC message exceeds maximum size 4194304: 5242894"),
        ("OUT_OF_RANGE", "Error, decoded message length too large: found 5242894 bytes, the limit is: 4194304 bytes"),
    ],
)
def test_grpc_servers_have_many_words_for_too_large(code: str, details: str) -> None:
    assert grpc_outcome(code, details, ()).kind == "too_large"


@pytest.mark.parametrize(
    "metadata",
    [
        [("other", b"1"), ("grpc-status-details-bin", "text")],
        [("grpc-status-details-bin", b"garbage")],
        [("grpc-status-details-bin", Status(code=14).SerializeToString())],
    ],
)
def test_details_that_say_no_time_are_no_time(metadata: list[tuple[str, str | bytes]]) -> None:
    assert grpc_outcome("UNAVAILABLE", "", metadata).wait is None
    other = Status(code=8)
    other.details.add().Pack(Status(code=8))
    assert grpc_outcome("UNAVAILABLE", "", [("grpc-status-details-bin", other.SerializeToString())]).wait is None


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        (None, None),
        ("120", 120.0),
        (" 0 ", 0.0),
        ("86400", 600.0),
        ("-5", None),
        ("soon", None),
        ("Sun, 06 Nov 1994 08:49:37 GMT", 0.0),
        ("Fri, 31 Dec 9999 23:59:59 GMT", 600.0),
        ("Fri, 31 Feb 2030 23:59:59 GMT", None),
    ],
)
def test_times_that_are_asked_for_are_bounded(written: str | None, seconds: float | None) -> None:
    assert seconds_of(written) == seconds
    assert grpc_outcome("UNAVAILABLE", "", trailing(Answer(retry_seconds=86_400))).wait == 600
    assert grpc_outcome("UNAVAILABLE", "", trailing(Answer(retry_seconds=-5))).wait == 0


def test_a_date_is_so_far_from_now() -> None:
    seconds = seconds_of(formatdate(time.time() + 300, usegmt=True))
    assert seconds is not None
    assert 0 < seconds <= 300


def test_a_sender_that_was_closed_says_so() -> None:
    with running(GrpcBackEnd()) as back:
        sender = GrpcSender(BackEnd.parse(back.url))
        assert sender.send("traces", Part("protobuf", traces("one"))).kind == "taken"
        sender.close()
        outcome = sender.send("traces", Part("protobuf", traces("two")))
    assert (outcome.kind, outcome.status) == ("failed", "CANCELLED")
    assert "closed" in outcome.message


# --- pauses -----------------------------------------------------------------------------------------------------------


def test_pauses_double_up_to_a_minute_with_full_jitter() -> None:
    assert [pause(failures, initial=1, chance=lambda: 1.0) for failures in range(1, 9)] == [1, 2, 4, 8, 16, 32, 60, 60]
    assert pause(10**6, initial=1, chance=lambda: 1.0) == MAX_SECONDS
    assert pause(3, initial=1, chance=lambda: 0.25) == 1
    assert pause(3, initial=1, chance=lambda: 0.0) == 0


def test_what_fails_at_once_is_one_failure() -> None:
    pace = Pace(chance=lambda: 1.0)
    for _ in range(4):
        pace.fail(0, 100.0, wait=None, barred=False)
    assert (pace.failures, pace.rests_until, pace.round) == (1, 101.0, 1)
    pace.fail(1, 101.0, wait=None, barred=False)
    assert (pace.failures, pace.rests_until) == (2, 103.0)


def test_the_time_that_was_asked_for_is_the_least_whoever_hears_of_it() -> None:
    pace = Pace(chance=lambda: 1.0)
    pace.fail(0, 100.0, wait=30.0, barred=False)
    assert pace.rests_until == 130.0
    pace.fail(0, 100.0, wait=40.0, barred=False)  # of the same round
    assert (pace.failures, pace.rests_until) == (1, 140.0)
    pace.fail(1, 140.0, wait=0.5, barred=False)
    assert pace.rests_until == 142.0


def test_wrong_settings_are_asked_about_seldom() -> None:
    pace = Pace(chance=lambda: 1.0)
    pace.fail(0, 0.0, wait=None, barred=True)
    assert pace.rests_until == BARRED_SECONDS


def test_one_success_begins_anew() -> None:
    pace = Pace(chance=lambda: 1.0)
    assert not pace.failing
    for number in range(5):
        pace.fail(number, 0.0, wait=None, barred=False)
    assert pace.failing
    pace.succeed()
    assert (pace.failing, pace.failures, pace.round) == (False, 0, 6)
    pace.fail(5, 1_000.0, wait=None, barred=False)  # it was under way before that
    assert not pace.failing
    pace.succeed()
    assert pace.round == 6
