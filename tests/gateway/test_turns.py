"""Turns of messages: who gets one, who waits, and who has to make room."""

from __future__ import annotations

import asyncio

import pytest

from goldspan.gateway.doors import turns
from goldspan.gateway.doors.turns import Turn, Turns
from goldspan.gateway.intake.answers import Refused


async def silent(turn: Turn) -> None:
    """Wait for a message that does not come."""
    with turn:
        await asyncio.get_running_loop().create_future()


async def waiting(asked: Turns, *hosts: str) -> list[asyncio.Task[Turn]]:
    """Calls that wait for their turns."""
    tasks = [asyncio.ensure_future(asked.take(host)) for host in hosts]
    await asyncio.sleep(0)
    return tasks


def test_a_host_with_less_than_its_share_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "WAIT_SECONDS", 60)

    async def run() -> None:
        asked = Turns(8, most_waiting=10)
        taken = [await asked.take("a") for _ in range(8)]
        first, second, third = await waiting(asked, "a", "b", "a")
        taken[0].end()
        taken[0].end()  # once is enough
        assert (await second).host == "b"
        assert not first.done()
        for turn in taken[1:3]:
            turn.end()
        assert [turn.host for turn in await asyncio.gather(first, third)] == ["a", "a"]

    asyncio.run(run())


def test_one_that_is_slow_makes_room_sooner_for_another_host_where_its_own_has_more_than_its_share(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(turns, "WAIT_SECONDS", 60)
    monkeypatch.setattr(turns, "SLOW_SECONDS", 60)
    monkeypatch.setattr(turns, "GREEDY_SECONDS", 0)

    async def run() -> None:
        asked = Turns(4, most_waiting=10)
        slow = [asyncio.ensure_future(silent(await asked.take(host))) for host in ("b", "a", "a", "c")]
        await asyncio.sleep(0)
        [late] = await waiting(asked, "d")
        assert (await late).host == "d"
        with pytest.raises(Refused) as refused:
            await slow[1]
        assert (refused.value.answer.status, refused.value.answer.limit) == (429, "max_received_bytes")
        assert [task.done() for task in slow] == [False, True, False, False]

    asyncio.run(run())


def test_only_so_many_wait_and_only_so_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "WAIT_SECONDS", 0.3)

    async def run() -> None:
        asked = Turns(1, most_waiting=1)
        taken = await asked.take("a")
        [late] = await waiting(asked, "a")
        with pytest.raises(Refused):
            await asked.take("b")
        assert not late.done()
        with pytest.raises(Refused):
            await late
        taken.end()
        assert (await asked.take("b")).host == "b"

    asyncio.run(run())


def test_a_call_that_is_given_up_leaves_no_turn_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "WAIT_SECONDS", 60)

    async def run() -> None:
        asked = Turns(1, most_waiting=10)
        taken = await asked.take("a")
        early, late = await waiting(asked, "a", "a")
        early.cancel()
        await asyncio.wait([early])
        taken.end()  # `late` has it
        late.cancel()
        await asyncio.wait([late])
        assert (await asked.take("b")).host == "b"

    asyncio.run(run())


def test_a_call_that_is_cancelled_by_others_is_cancelled() -> None:
    async def run() -> None:
        asked = Turns(1, most_waiting=1)
        call = asyncio.ensure_future(silent(await asked.take("a")))
        await asyncio.sleep(0)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert (await asked.take("b")).host == "b"

    asyncio.run(run())
