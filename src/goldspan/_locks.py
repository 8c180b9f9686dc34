"""Provides a module-level lock that is free in a forked child, whichever thread held it in the parent."""

from __future__ import annotations

import os
from _thread import RLock  # the same class as `threading.RLock`, without the time to load `threading`
from contextlib import suppress


class ForkSafeLock:
    """A reentrant lock for the lifetime of the process: `with lock:`.

    A thread that waits longer than `timeout` seconds continues without the lock: concurrent access may fail, and a
    deadlock always does.
    """

    __slots__ = ("_lock", "_timeout")

    def __init__(self, timeout: float = 30.0) -> None:
        self._timeout = timeout
        self._reset()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._reset)

    def _reset(self) -> None:
        self._lock = RLock()

    def __enter__(self) -> None:
        self._lock.acquire(timeout=self._timeout)

    def __exit__(self, *_: object) -> None:
        with suppress(RuntimeError):  # the thread continued without the lock, or the process is a forked child
            self._lock.release()
