"""Turns of messages over gRPC: how many may be on their way at once, and who has to make room when others wait.

How long a message is, is not known before all of it is here, so each counts as the longest there may be. A client may
take a turn and send nothing: the turns are shared between hosts, and a slow one is over once somebody waits.
"""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from types import TracebackType

from goldspan.gateway.intake.answers import Answer, Refused

WAIT_SECONDS = 1.0
"""How long a call waits for its turn before it is told to come again."""
SLOW_SECONDS = 2.0
"""How long a message may take while others wait."""
GREEDY_SECONDS = 0.5
"""The same for one of a host that has more than its share, while other hosts wait."""
_LOOK_SECONDS = 0.1
_SHARE = 4
"""A host may have one in so many turns while others wait."""
_LIMIT = "max_received_bytes"


def _busy(message: str, seconds: float) -> Answer:
    return Answer(429, f"{message} ({_LIMIT})", retry_after=seconds, limit=_LIMIT)


_NO_TURN = _busy("too many messages at once", WAIT_SECONDS)
_TOO_SLOW = _busy("the message was slow, and others wait for its turn", WAIT_SECONDS)


class Turns:
    """So many turns, in one event loop; no more than `most_waiting` calls wait for one."""

    def __init__(self, number: int, *, most_waiting: int) -> None:
        self._free = number
        self._share = max(1, number // _SHARE)
        self._most_waiting = most_waiting
        self._taken: dict[Turn, None] = {}  # the oldest first
        self._of_host: Counter[str] = Counter()
        self._waiting: dict[asyncio.Future[Turn], str] = {}
        self._looking: asyncio.TimerHandle | None = None

    async def take(self, host: str) -> Turn:
        """The turn of one message. Raises `Refused` 429 where there is none for `WAIT_SECONDS`."""
        if self._free:
            return self._give(host)
        if len(self._waiting) >= self._most_waiting:
            raise Refused(_NO_TURN)
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[Turn] = loop.create_future()
        self._waiting[waiter] = host
        self._look()
        giving_up = loop.call_later(WAIT_SECONDS, self._give_up, waiter)
        try:
            return await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled() and waiter.exception() is None:
                waiter.result().end()  # it came too late
            raise
        finally:
            giving_up.cancel()
            self._waiting.pop(waiter, None)

    def _give_up(self, waiter: asyncio.Future[Turn]) -> None:
        if not waiter.done():
            del self._waiting[waiter]
            waiter.set_exception(Refused(_NO_TURN))

    def _give(self, host: str) -> Turn:
        self._free -= 1
        self._of_host[host] += 1
        turn = Turn(self, host)
        self._taken[turn] = None
        return turn

    def take_back(self, turn: Turn) -> None:
        """For a turn that is over: the next is for a host that has less than its share, whoever came first."""
        if turn not in self._taken:
            return
        del self._taken[turn]
        self._free += 1
        self._of_host[turn.host] -= 1
        if not self._of_host[turn.host]:
            del self._of_host[turn.host]
        waiting = [waiter for waiter in self._waiting if not waiter.done()]
        if waiting:
            modest = (waiter for waiter in waiting if self._of_host[self._waiting[waiter]] < self._share)
            chosen = next(modest, waiting[0])
            chosen.set_result(self._give(self._waiting.pop(chosen)))

    def _look(self) -> None:
        """While somebody waits: see whose turn is over."""
        if self._looking is None:
            self._looking = asyncio.get_running_loop().call_later(_LOOK_SECONDS, self._look_again)
            self._end_slow_ones()

    def _look_again(self) -> None:
        self._looking = None
        if self._waiting:
            self._look()

    def _end_slow_ones(self) -> None:
        now = asyncio.get_running_loop().time()
        wanted = len(self._waiting)
        hosts = set(self._waiting.values())
        for turn in list(self._taken):
            if not wanted:
                break
            greedy = self._of_host[turn.host] > self._share and hosts != {turn.host}
            if turn.since is not None and now - turn.since >= (GREEDY_SECONDS if greedy else SLOW_SECONDS):
                turn.revoke()
                wanted -= 1


class Turn:
    """The turn of one message: `with` it the message is read, and it ends with that. Nothing before then is slow."""

    __slots__ = ("_revoked", "_task", "_turns", "host", "since")

    def __init__(self, turns: Turns, host: str) -> None:
        self.host = host
        self.since: float | None = None
        """When reading began; None before that, and once it is over."""
        self._turns = turns
        self._revoked = False

    def end(self) -> None:
        """It is over, perhaps before it began."""
        self.since = None
        self._turns.take_back(self)

    def revoke(self) -> None:
        """Others need it: whoever reads gets `Refused` 429."""
        self.since = None
        self._revoked = True
        self._task.cancel()
        self._turns.take_back(self)

    def __enter__(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._task = task
        self.since = asyncio.get_running_loop().time()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.end()
        if self._revoked and kind is not None and issubclass(kind, asyncio.CancelledError):
            if sys.version_info >= (3, 11):  # a task counts who wants it cancelled
                self._task.uncancel()
            raise Refused(_TOO_SLOW) from None
