"""Locks of modules, which outlive a fork: in a child they are free, whoever held them in the parent."""

from __future__ import annotations

import os
from _thread import RLock  # what `threading` calls so, which takes a program that needs none of it longer to load
from contextlib import suppress


class ForkSafeLock:
    """A lock that lives as long as the process, and that its owner may take again: `with lock:`.

    Whoever waits `patience` seconds in vain goes on without it: to do something twice at once may go wrong, and to wait
    for ever does.
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
        with suppress(RuntimeError):  # it went on without it, or is in a child by now
            self._lock.release()
