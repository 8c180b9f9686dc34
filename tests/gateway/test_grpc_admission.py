"""Tests of the admission of gRPC messages: which calls get a slot, wait for one, or lose it."""

from __future__ import annotations

import asyncio

import pytest

from goldspan.gateway.decoding.export_response import RequestRefused
from goldspan.gateway.receivers import grpc
from goldspan.gateway.receivers.grpc import GrpcAdmission, ReceiveSlot


async def silent(turn: ReceiveSlot) -> None:
    """Wait for a message that does not arrive."""
    with turn:
        await asyncio.get_running_loop().create_future()


async def waiting(asked: GrpcAdmission, *hosts: str) -> list[asyncio.Task[ReceiveSlot]]:
    """Calls that wait for slots."""
    tasks = [asyncio.ensure_future(asked.acquire(host)) for host in hosts]
    await asyncio.sleep(0)
    return tasks


def test_a_host_with_less_than_its_share_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grpc, "SLOT_WAIT_SECONDS", 60)

    async def run() -> None:
        asked = GrpcAdmission(8, max_waiting=10)
        taken = [await asked.acquire("a") for _ in range(8)]
        first, second, third = await waiting(asked, "a", "b", "a")
        taken[0].release()
        taken[0].release()  # reported once
        assert (await second).host == "b"
        assert not first.done()
        for turn in taken[1:3]:
            turn.release()
        assert [turn.host for turn in await asyncio.gather(first, third)] == ["a", "a"]

    asyncio.run(run())


def test_one_that_is_slow_makes_room_sooner_for_another_host_where_its_own_has_more_than_its_share(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(grpc, "SLOT_WAIT_SECONDS", 60)
    monkeypatch.setattr(grpc, "SLOW_MESSAGE_SECONDS", 60)
    monkeypatch.setattr(grpc, "OVER_SHARE_SECONDS", 0)

    async def run() -> None:
        asked = GrpcAdmission(4, max_waiting=10)
        slow = [asyncio.ensure_future(silent(await asked.acquire(host))) for host in ("b", "a", "a", "c")]
        await asyncio.sleep(0)
        [late] = await waiting(asked, "d")
        assert (await late).host == "d"
        with pytest.raises(RequestRefused) as refused:
            await slow[1]
        assert (refused.value.response.http_status, refused.value.response.limit) == (429, "max_received_bytes")
        assert [task.done() for task in slow] == [False, True, False, False]

    asyncio.run(run())


def test_only_so_many_wait_and_only_so_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grpc, "SLOT_WAIT_SECONDS", 0.3)

    async def run() -> None:
        asked = GrpcAdmission(1, max_waiting=1)
        taken = await asked.acquire("a")
        [late] = await waiting(asked, "a")
        with pytest.raises(RequestRefused):
            await asked.acquire("b")
        assert not late.done()
        with pytest.raises(RequestRefused):
            await late
        taken.release()
        assert (await asked.acquire("b")).host == "b"

    asyncio.run(run())


def test_a_call_that_is_given_up_leaves_no_turn_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grpc, "SLOT_WAIT_SECONDS", 60)

    async def run() -> None:
        asked = GrpcAdmission(1, max_waiting=10)
        taken = await asked.acquire("a")
        early, late = await waiting(asked, "a", "a")
        early.cancel()
        await asyncio.wait([early])
        taken.release()  # `late` has the slot
        late.cancel()
        await asyncio.wait([late])
        assert (await asked.acquire("b")).host == "b"

    asyncio.run(run())


def test_a_call_that_is_cancelled_by_others_is_cancelled() -> None:
    async def run() -> None:
        asked = GrpcAdmission(1, max_waiting=1)
        call = asyncio.ensure_future(silent(await asked.acquire("a")))
        await asyncio.sleep(0)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert (await asked.acquire("b")).host == "b"

    asyncio.run(run())
