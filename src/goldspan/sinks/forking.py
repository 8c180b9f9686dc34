"""What must begin anew in a forked child: locks that nobody there will release, threads and queues of the parent's."""

from __future__ import annotations

import functools
import os
import weakref
from typing import Protocol

from goldspan._guard import guard

_RENEWING = guard("begin anew in a forked child")


class Renewable(Protocol):
    """Something with state that is of no use to a child."""

    def renew(self) -> None:
        """Forget it."""
        ...


_renewed: weakref.WeakSet[Renewable] = weakref.WeakSet()


def renew_in_forked_children(thing: Renewable) -> None:
    """Call `thing.renew()` in every child that is forked while it lives."""
    _renewed.add(thing)
    _register()


@functools.cache
def _register() -> None:
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_renew)


def _renew() -> None:
    for thing in _renewed:
        with _RENEWING:
            thing.renew()
