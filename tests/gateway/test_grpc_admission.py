"""Tests of the admission of gRPC messages: which calls get a slot, wait for one, or lose it."""

from __future__ import annotations

import asyncio

import pytest

from goldspan.gateway.decoding.export_response import RequestRefused
from goldspan.gateway.receivers import grpc
from goldspan.gateway.receivers.grpc import GrpcAdmission, ReceiveSlot


async def hold_slot(turn: ReceiveSlot) -> None:
    """Holds a slot for a message that does not arrive."""
    with turn:
        await asyncio.get_running_loop().create_future()


async def start_acquiring(asked: GrpcAdmission, *hosts: str) -> list[asyncio.Task[ReceiveSlot]]:
    """Starts calls that wait for slots."""
    tasks = [asyncio.ensure_future(asked.acquire(host)) for host in hosts]
    await asyncio.sleep(0)
    return tasks


def test_a_host_below_its_share_gets_the_next_slot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grpc, "SLOT_WAIT_SECONDS", 60)

    async def run() -> None:
        asked = GrpcAdmission(8, max_waiting=10)
        taken = [await asked.acquire("a") for _ in range(8)]
        first, second, third = await start_acquiring(asked, "a", "b", "a")
        taken[0].release()
        taken[0].release()  # reported once
        assert (await second).host == "b"
        assert not first.done()
        for turn in taken[1:3]:
            turn.release()
        assert [turn.host for turn in await asyncio.gather(first, third)] == ["a", "a"]

    asyncio.run(run())


def test_a_slow_call_of_a_host_above_its_share_loses_its_slot_earlier_to_another_host(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(grpc, "SLOT_WAIT_SECONDS", 60)
    monkeypatch.setattr(grpc, "SLOW_MESSAGE_SECONDS", 60)
    monkeypatch.setattr(grpc, "OVER_SHARE_SECONDS", 0)

    async def run() -> None:
        asked = GrpcAdmission(4, max_waiting=10)
        slow = [asyncio.ensure_future(hold_slot(await asked.acquire(host))) for host in ("b", "a", "a", "c")]
        await asyncio.sleep(0)
        [late] = await start_acquiring(asked, "d")
        assert (await late).host == "d"
        with pytest.raises(RequestRefused) as refused:
            await slow[1]
        assert (refused.value.response.http_status, refused.value.response.limit) == (429, "max_received_bytes")
        assert [task.done() for task in slow] == [False, True, False, False]

    asyncio.run(run())


def test_the_number_of_waiting_calls_and_their_waiting_time_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grpc, "SLOT_WAIT_SECONDS", 0.3)

    async def run() -> None:
        asked = GrpcAdmission(1, max_waiting=1)
        taken = await asked.acquire("a")
        [late] = await start_acquiring(asked, "a")
        with pytest.raises(RequestRefused):
            await asked.acquire("b")
        assert not late.done()
        with pytest.raises(RequestRefused):
            await late
        taken.release()
        assert (await asked.acquire("b")).host == "b"

    asyncio.run(run())


def test_a_cancelled_waiting_call_releases_its_slot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grpc, "SLOT_WAIT_SECONDS", 60)

    async def run() -> None:
        asked = GrpcAdmission(1, max_waiting=10)
        taken = await asked.acquire("a")
        early, late = await start_acquiring(asked, "a", "a")
        early.cancel()
        await asyncio.wait([early])
        taken.release()  # `late` has the slot
        late.cancel()
        await asyncio.wait([late])
        assert (await asked.acquire("b")).host == "b"

    asyncio.run(run())


def test_a_cancelled_call_raises_cancelled_error_and_releases_its_slot() -> None:
    async def run() -> None:
        asked = GrpcAdmission(1, max_waiting=1)
        call = asyncio.ensure_future(hold_slot(await asked.acquire("a")))
        await asyncio.sleep(0)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert (await asked.acquire("b")).host == "b"

    asyncio.run(run())
