"""Tests of the classification of responses of back ends, and of the backoff."""

from __future__ import annotations

import time
from email.utils import formatdate

import pytest
from google.rpc.status_pb2 import Status

from goldspan.gateway.exporting.backends import Backend
from goldspan.gateway.exporting.backoff import (
    MAX_BACKOFF_SECONDS,
    MISCONFIGURED_BACKOFF_SECONDS,
    Backoff,
    backoff_seconds,
)
from goldspan.gateway.exporting.outgoing_requests import OutgoingRequest
from goldspan.gateway.exporting.senders import GrpcSender, grpc_result, http_result, parse_retry_after
from support.faulty_backends import Answer, GrpcBackEnd, running, traces, trailing


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        *((status, "accepted") for status in (200, 202, 204)),
        *((status, "misconfigured") for status in (301, 302, 307, 308, 401, 403, 405, 407)),
        *((status, "rejected") for status in (400, 408, 409, 410, 422, 431, 500, 501, 505)),
        *((status, "failed") for status in (502, 503, 504)),
        (404, "not_found"),
        (413, "too_large"),
        (415, "unsupported_media"),
        (429, "throttled"),
    ],
)
def test_http_statuses_are_classified_as_otlp_specifies(status: int, kind: str) -> None:
    assert http_result(status, "traces", {}, b"").kind == kind


@pytest.mark.parametrize(
    ("code", "kind", "kind_with_a_time"),
    [
        *((code, "failed", "throttled") for code in ("CANCELLED", "DEADLINE_EXCEEDED", "ABORTED", "OUT_OF_RANGE")),
        *((code, "failed", "throttled") for code in ("UNAVAILABLE", "DATA_LOSS")),
        ("RESOURCE_EXHAUSTED", "rejected", "throttled"),
        *((code, "misconfigured", "misconfigured") for code in ("UNAUTHENTICATED", "PERMISSION_DENIED")),
        *((code, "not_found", "not_found") for code in ("UNIMPLEMENTED", "NOT_FOUND")),
        *((code, "rejected", "rejected") for code in ("UNKNOWN", "INVALID_ARGUMENT", "ALREADY_EXISTS", "INTERNAL")),
        ("FAILED_PRECONDITION", "rejected", "rejected"),
    ],
)
def test_grpc_codes_are_classified_as_otlp_specifies(code: str, kind: str, kind_with_a_time: str) -> None:
    assert grpc_result(code, "", ()).kind == kind
    outcome = grpc_result(code, "", trailing(Answer(retry_seconds=1.5)))
    assert (outcome.kind, outcome.retry_after_seconds) == (kind_with_a_time, 1.5)


@pytest.mark.parametrize(
    ("code", "details"),
    [
        ("RESOURCE_EXHAUSTED", "CLIENT: Received message larger than max (5242894 vs. 4194304)"),
        ("RESOURCE_EXHAUSTED", "grpc: received message larger than max (5242894 vs. 4194304)"),
        ("RESOURCE_EXHAUSTED", "gRPC message exceeds maximum size 4194304: 5242894"),
        ("OUT_OF_RANGE", "Error, decoded message length too large: found 5242894 bytes, the limit is: 4194304 bytes"),
    ],
)
def test_grpc_messages_about_size_are_classified_as_too_large(code: str, details: str) -> None:
    assert grpc_result(code, details, ()).kind == "too_large"


@pytest.mark.parametrize(
    "metadata",
    [
        [("other", b"1"), ("grpc-status-details-bin", "text")],
        [("grpc-status-details-bin", b"garbage")],
        [("grpc-status-details-bin", Status(code=14).SerializeToString())],
    ],
)
def test_grpc_details_without_retry_info_give_no_retry_time(metadata: list[tuple[str, str | bytes]]) -> None:
    assert grpc_result("UNAVAILABLE", "", metadata).retry_after_seconds is None
    other = Status(code=8)
    other.details.add().Pack(Status(code=8))
    assert (
        grpc_result("UNAVAILABLE", "", [("grpc-status-details-bin", other.SerializeToString())]).retry_after_seconds
        is None
    )


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
def test_retry_after_is_bounded(written: str | None, seconds: float | None) -> None:
    assert parse_retry_after(written) == seconds
    assert grpc_result("UNAVAILABLE", "", trailing(Answer(retry_seconds=86_400))).retry_after_seconds == 600
    assert grpc_result("UNAVAILABLE", "", trailing(Answer(retry_seconds=-5))).retry_after_seconds == 0


def test_a_retry_after_date_is_converted_to_seconds_from_now() -> None:
    seconds = parse_retry_after(formatdate(time.time() + 300, usegmt=True))
    assert seconds is not None
    assert 0 < seconds <= 300


def test_a_closed_sender_returns_a_failure() -> None:
    with running(GrpcBackEnd()) as back:
        sender = GrpcSender(Backend.parse(back.url))
        assert sender.send("traces", OutgoingRequest("protobuf", traces("one"))).kind == "accepted"
        sender.close()
        outcome = sender.send("traces", OutgoingRequest("protobuf", traces("two")))
    assert (outcome.kind, outcome.status) == ("failed", "CANCELLED")
    assert "closed" in outcome.message


# --- backoff ----------------------------------------------------------------------------------------------------------


def test_backoff_doubles_up_to_a_minute_with_full_jitter() -> None:
    assert [backoff_seconds(failures, initial=1, random_fraction=lambda: 1.0) for failures in range(1, 9)] == [
        1,
        2,
        4,
        8,
        16,
        32,
        60,
        60,
    ]
    assert backoff_seconds(10**6, initial=1, random_fraction=lambda: 1.0) == MAX_BACKOFF_SECONDS
    assert backoff_seconds(3, initial=1, random_fraction=lambda: 0.25) == 1
    assert backoff_seconds(3, initial=1, random_fraction=lambda: 0.0) == 0


def test_concurrent_failures_of_one_round_count_once() -> None:
    pace = Backoff(random_fraction=lambda: 1.0)
    for _ in range(4):
        pace.record_failure(0, 100.0, retry_after_seconds=None, is_misconfigured=False)
    assert (pace.failures, pace.retry_at, pace.round) == (1, 101.0, 1)
    pace.record_failure(1, 101.0, retry_after_seconds=None, is_misconfigured=False)
    assert (pace.failures, pace.retry_at) == (2, 103.0)


def test_retry_after_is_a_lower_bound_of_the_backoff() -> None:
    pace = Backoff(random_fraction=lambda: 1.0)
    pace.record_failure(0, 100.0, retry_after_seconds=30.0, is_misconfigured=False)
    assert pace.retry_at == 130.0
    pace.record_failure(0, 100.0, retry_after_seconds=40.0, is_misconfigured=False)  # of the same round
    assert (pace.failures, pace.retry_at) == (1, 140.0)
    pace.record_failure(1, 140.0, retry_after_seconds=0.5, is_misconfigured=False)
    assert pace.retry_at == 142.0


def test_a_misconfiguration_has_a_long_backoff() -> None:
    pace = Backoff(random_fraction=lambda: 1.0)
    pace.record_failure(0, 0.0, retry_after_seconds=None, is_misconfigured=True)
    assert pace.retry_at == MISCONFIGURED_BACKOFF_SECONDS


def test_a_success_resets_the_backoff() -> None:
    pace = Backoff(random_fraction=lambda: 1.0)
    assert not pace.is_failing
    for number in range(5):
        pace.record_failure(number, 0.0, retry_after_seconds=None, is_misconfigured=False)
    assert pace.is_failing
    pace.record_success()
    assert (pace.is_failing, pace.failures, pace.round) == (False, 0, 6)
    pace.record_failure(5, 1_000.0, retry_after_seconds=None, is_misconfigured=False)  # it was sent before that
    assert not pace.is_failing
    pace.record_success()
    assert pace.round == 6
