"""`goldspan serve`: the workers, each in its event loop, until they are told to stop."""

from __future__ import annotations

import asyncio
import signal
from contextlib import suppress

from goldspan.gateway.settings.fields import Settings
from goldspan.gateway.worker import Worker
from goldspan.gateway.workers import supervise


def serve(settings: Settings) -> int:
    """Run the gateway until SIGTERM or SIGINT; the exit status: 0 where all ended well.

    Raises `GoldspanError` for settings, goldens, files or ports that cannot be used.
    """
    return supervise(settings, run)


def run(settings: Settings, index: int) -> int:
    """Run one worker in this process."""
    loop = _new_loop()
    try:
        loop.run_until_complete(_until_told(settings, index, loop))
    finally:
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()
    return 0


async def _until_told(settings: Settings, index: int, loop: asyncio.AbstractEventLoop) -> None:
    stop = asyncio.Event()  # before anything is opened: whoever is told to stop then is to end as well
    for number in (signal.SIGTERM, signal.SIGINT):
        try:
            loop.add_signal_handler(number, stop.set)
        except NotImplementedError:  # loops of asyncio watch for signals on Unix alone
            signal.signal(number, lambda *_: loop.call_soon_threadsafe(stop.set))
    worker = Worker(settings, index)
    try:
        await worker.serve(stop)
    finally:
        worker.close()


def _new_loop() -> asyncio.AbstractEventLoop:
    with suppress(ImportError):  # where there is none for this system, Python's own does
        import uvloop

        return uvloop.new_event_loop()
    return asyncio.new_event_loop()
