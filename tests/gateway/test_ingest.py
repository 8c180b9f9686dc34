"""Tests of the ingestion of requests: limits, deadlines, the journal and the counters."""

from __future__ import annotations

import asyncio
import gzip
import shutil
import sqlite3
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import uvloop
from google.rpc.status_pb2 import Status

from goldspan import _guard, semconv
from goldspan.gateway.journal import journal_file
from goldspan.gateway.receivers import ingest as receiving
from goldspan.gateway.resource_limits import ResourceLimits
from support.gateway_receivers import (
    LONG_TO_READ,
    PATIENCE,
    OpenDoors,
    RunningReceivers,
    export_request,
    head,
    readers_busy,
    until,
    whole,
)

SPANS = export_request(3)
MIB = 2**20


def refused(receivers: RunningReceivers) -> dict[str, int]:
    """Returns the refusals by limit, after the receivers are closed."""
    receivers.stop()
    return {limit: number for (limit,), number in receivers.count(semconv.GATEWAY_REFUSED, "limit").items()}


def test_the_number_of_concurrent_requests_is_limited(open_doors: OpenDoors) -> None:
    receivers = open_doors(limits=ResourceLimits(max_requests=2))
    with readers_busy(receivers):
        waiting = [receivers.wire(), receivers.wire(), receivers.wire()]
        waiting[2].send(head("/v1/traces", f"content-length: {len(SPANS)}"))  # completed after the others
        until(lambda: receivers.receiver.requests_in_flight == 1)
        for wire in waiting[:2]:
            wire.send(whole(LONG_TO_READ))
        until(lambda: receivers.receiver.bytes_in_flight == 2 * len(LONG_TO_READ))
        reply = receivers.post(SPANS)
        assert (reply.status, reply.headers["retry-after"], Status.FromString(reply.body).code) == (429, "1", 8)
        waiting[2].send(SPANS)
        assert waiting[2].reply().status == 429
    assert [wire.reply().status for wire in waiting[:2]] == [200, 200]
    assert receivers.post(SPANS).status == 200
    assert len(receivers.entries()) == 3
    assert refused(receivers) == {"max_requests": 2}


def test_incomplete_requests_do_not_count_towards_max_requests(open_doors: OpenDoors) -> None:
    receivers = open_doors(limits=ResourceLimits(max_requests=2))
    slow = [receivers.wire() for _ in range(20)]
    for wire in slow:
        wire.send(head("/v1/traces", f"content-length: {len(SPANS)}"), SPANS[:10])
    until(lambda: receivers.receiver.requests_in_flight == 20)
    assert [receivers.post(SPANS).status for _ in range(5)] == [200] * 5
    for wire in slow:
        wire.send(SPANS[10:])
        assert wire.reply().status == 200
    assert refused(receivers) == {}


def test_the_total_size_of_received_bodies_is_limited(open_doors: OpenDoors) -> None:
    receivers = open_doors(limits=ResourceLimits(max_received_bytes=MIB))
    slow = receivers.wire()
    slow.send(head("/v1/traces", f"content-length: {MIB}"), b"x" * (MIB - 1_000))
    until(lambda: receivers.receiver.bytes_in_flight == MIB - 1_000)
    reply = receivers.post(export_request(100))
    assert (reply.status, reply.headers["retry-after"]) == (429, "1")
    assert receivers.post(gzip.compress(export_request(100)), content_encoding="gzip").status == 429
    assert receivers.post(SPANS).status == 200
    slow.close()
    until(lambda: receivers.receiver.bytes_in_flight == 0)
    assert receivers.post(export_request(100)).status == 200
    assert refused(receivers) == {"max_received_bytes": 2}


def test_a_slow_body_is_refused_to_make_room_for_others(open_doors: OpenDoors, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receiving, "SLOW_BODY_SECONDS", 0)
    receivers = open_doors(limits=ResourceLimits(max_received_bytes=MIB))
    longer, shorter = receivers.wire(), receivers.wire()
    for wire, length in ((shorter, 10_000), (longer, MIB - 11_000)):
        held = receivers.receiver.bytes_in_flight
        wire.send(head("/v1/traces", f"content-length: {len(SPANS) + length}"), b"x" * length)
        until(lambda held=held, length=length: receivers.receiver.bytes_in_flight == held + length)
    assert receivers.post(export_request(100)).status == 200
    reply = longer.reply()
    assert (reply.status, reply.headers["retry-after"]) == (429, "1")
    assert receivers.receiver.bytes_in_flight == 10_000
    shorter.close()
    until(lambda: receivers.receiver.bytes_in_flight == receivers.receiver.requests_in_flight == 0)
    assert refused(receivers) == {"max_received_bytes": 1}


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_a_body_that_arrived_before_its_deadline_is_accepted(open_doors: OpenDoors, loop: Any) -> None:
    """Also if the event loop lags and has not read the data yet."""
    receivers = open_doors(limits=ResourceLimits(body_seconds=0.2), loop=loop)
    wire = receivers.wire()
    long = export_request(3_000)
    wire.send(head("/v1/traces", f"content-length: {len(long)}"))
    until(lambda: receivers.receiver.requests_in_flight)
    lagging = threading.Event()

    def lag() -> None:
        lagging.set()
        time.sleep(0.5)

    receivers.running.call_soon_threadsafe(lag)
    lagging.wait()
    wire.send(long)
    assert wire.reply().status == 200
    assert refused(receivers) == {}


def test_a_slowly_sent_body_is_answered_408_at_its_deadline(open_doors: OpenDoors) -> None:
    receivers = open_doors(limits=ResourceLimits(body_seconds=0.1))
    wire = receivers.wire()
    wire.send(head("/v1/traces", "content-length: 1000000"))
    stopped = threading.Event()

    def drip() -> None:
        while not stopped.wait(0.001):
            try:
                wire.send(b"\n")
            except OSError:
                return

    dripping = threading.Thread(target=drip)
    dripping.start()
    assert wire.reply().status == 408
    stopped.set()
    dripping.join()
    assert refused(receivers) == {"body_seconds": 1}


def test_a_full_journal_is_answered_503_and_nothing_is_acknowledged(open_doors: OpenDoors) -> None:
    receivers = open_doors(journal_bytes=20_000)
    statuses = [receivers.post(export_request(100)).status for _ in range(10)]
    assert sorted(set(statuses)) == [200, 503]
    reply = receivers.post(export_request(100))
    assert (reply.status, reply.headers["retry-after"], Status.FromString(reply.body).code) == (503, "5", 14)
    assert len(receivers.entries()) == statuses.count(200)
    assert receivers.receiver.bytes_in_flight == receivers.receiver.requests_in_flight == 0
    assert refused(receivers) == {"max_journal_bytes": statuses.count(503) + 1}


def test_the_reason_of_refusals_is_logged_at_intervals_and_not_for_each_request(
    open_doors: OpenDoors, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receiving, "LOG_INTERVAL_SECONDS", 3_600.0)
    receivers = open_doors(journal_bytes=1_000)
    for _ in range(20):
        assert receivers.post(export_request(100)).status == 503
    (told,) = caplog.messages
    assert "requests are refused" in told
    assert "raise max_journal_bytes" in told
    monkeypatch.setattr(receiving, "LOG_INTERVAL_SECONDS", 0.0)  # they have ended
    for _ in range(2):
        assert receivers.post(export_request(100)).status == 503
    assert caplog.messages == [told] * 3


def test_requests_are_refused_with_a_logged_reason_while_the_disk_is_almost_full(
    open_doors: OpenDoors, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    receivers = open_doors()
    with monkeypatch.context() as patched:
        free = shutil.disk_usage(receivers.path.parent).free
        patched.setattr(journal_file, "_DISK_RESERVE_BYTES", free * 3 // 2)
        replies = [receivers.post(SPANS) for _ in range(5)]
        assert {(reply.status, reply.headers["retry-after"]) for reply in replies} == {(503, "5")}
        (told,) = caplog.messages
        assert "the disk is almost full" in told
        assert receivers.journal.full_reason() == "the disk is almost full"
        receivers.journal.append("logs", "protobuf", SPANS, origin="result").result(PATIENCE)  # a result of scoring
    assert receivers.journal.full_reason() is None
    assert receivers.post(SPANS).status == 200
    assert [entry.origin for entry in receivers.entries()] == ["result", "received"]
    assert refused(receivers) == {"max_journal_bytes": 5}


def test_a_failing_journal_is_answered_503_until_it_recovers(open_doors: OpenDoors, tmp_path: Path) -> None:
    receivers = open_doors()
    assert receivers.post(SPANS).status == 200
    connection = sqlite3.connect(receivers.path, isolation_level=None)
    connection.execute("ALTER TABLE entries RENAME TO gone")
    reply = receivers.post(SPANS)
    assert (reply.status, reply.headers["retry-after"]) == (503, "5")
    assert _guard.failure_counts["write the journal"] == 1
    connection.execute("ALTER TABLE gone RENAME TO entries")
    connection.close()
    assert receivers.post(SPANS).status == 200
    assert len(receivers.entries()) == 2


def test_new_requests_are_answered_503_while_the_receiver_drains(receivers: RunningReceivers) -> None:
    slow = receivers.wire()
    slow.send(head("/v1/traces", f"content-length: {len(SPANS)}"), SPANS[:10])
    until(lambda: receivers.receiver.requests_in_flight == 1)
    receivers.receiver.drain()
    reply = receivers.post(SPANS)
    assert (reply.status, reply.headers["retry-after"]) == (503, "1")
    slow.send(SPANS[10:])
    assert slow.reply().status == 200
    assert len(receivers.entries()) == 1


def test_an_internal_error_is_counted_and_answered_503(open_doors: OpenDoors, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: object, **options: object) -> None:
        raise ZeroDivisionError("a secret")

    monkeypatch.delenv("GOLDSPAN_STRICT")
    monkeypatch.setattr(receiving, "validate_request", broken)
    receivers = open_doors()
    reply = receivers.post(SPANS)
    assert (reply.status, reply.headers["retry-after"]) == (503, "5")
    assert b"secret" not in reply.body
    assert _guard.failure_counts["receive a request"] == 1


def test_concurrent_requests_are_all_acknowledged_and_written(receivers: RunningReceivers) -> None:
    """Many commits of one transaction wake up the event loop once; each future resolves."""
    statuses: list[int] = []

    def send(number: int) -> None:
        wire = receivers.wire()
        for each in range(30):
            wire.send(whole(export_request(2, f"{number}/{each}")))
            statuses.append(wire.reply().status)

    threads = [threading.Thread(target=send, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert statuses == [200] * 240
    wanted = {export_request(2, f"{number}/{each}") for number in range(8) for each in range(30)}
    assert {entry.body for entry in receivers.entries()} == wanted
    receivers.stop()
    assert receivers.count(semconv.GATEWAY_REQUESTS, "signal", "transport", "status") == {("traces", "http", 200): 240}
    assert receivers.count(semconv.GATEWAY_ITEMS, "signal") == {("traces",): 480}
    assert receivers.count(semconv.GATEWAY_BYTES, "signal") == {("traces",): sum(len(body) for body in wanted)}


def test_counters_are_updated_soon_after_a_request(receivers: RunningReceivers) -> None:
    receivers.post(SPANS)
    until(lambda: receivers.count(semconv.GATEWAY_ITEMS, "signal") == {("traces",): 3})


def test_a_complete_request_is_written_if_its_client_disconnects_before_the_commit(receivers: RunningReceivers) -> None:
    wires = [receivers.wire() for _ in range(20)]
    for wire in wires:
        wire.send(whole(SPANS))
        wire.close()
    until(lambda: len(receivers.entries()) == 20)
    until(lambda: receivers.receiver.requests_in_flight == 0)


def test_requests_are_accepted_and_refused_on_the_asyncio_event_loop(open_doors: OpenDoors) -> None:
    receivers = open_doors(loop=asyncio.new_event_loop)
    assert [receivers.post(SPANS).status for _ in range(5)] == [200] * 5
    assert receivers.post(gzip.compress(b"\0" * 80 * MIB), content_encoding="gzip").status == 413
    assert len(receivers.entries()) == 5
