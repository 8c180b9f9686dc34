"""News of what is stored, as server-sent events: that there is something new, and nothing of what it is.

Whoever hears of it asks for the list anew, with the filters that are set: so the list has one way to come about.
Source of the format: the HTML standard, section "Server-sent events"
(https://html.spec.whatwg.org/multipage/server-sent-events.html).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

EVERY = 0.5
"""Seconds from one look into the store to the next."""
_SIGN_OF_LIFE = 15.0
"""Seconds after which something is sent even when nothing is new, so that a connection that is gone is noticed."""
_LONGEST = 100.0
"""Seconds after which a stream ends; browsers come back by themselves. Servers bound how long an answer may take."""


async def news(
    newest: Callable[[], Awaitable[int]], after: int, ends: Callable[[], bool], *, every: float = EVERY
) -> AsyncIterator[bytes]:
    """Events that say up to which place the store has grown, each once, until `ends` says that it is over.

    A store that cannot be read now is asked again later: `newest` raises nothing, and answers the place before.
    """
    yield b"retry: 1000\n\n"
    quiet = lasted = 0.0
    while not ends() and lasted < _LONGEST:
        now = await newest()
        if now > after:
            after, quiet = now, 0.0
            yield f"event: arrived\nid: {now}\ndata: {now}\n\n".encode()
        elif quiet >= _SIGN_OF_LIFE:
            quiet = 0.0
            yield b": nothing new\n\n"
        await asyncio.sleep(every)
        quiet += every
        lasted += every
