"""What must begin anew in a forked child: locks that nobody there will release, threads and queues of the parent's."""

from __future__ import annotations

import functools
import os
import weakref
from typing import Protocol

from goldspan._guard import suppress_errors

_RENEW_GUARD = suppress_errors("begin anew in a forked child")


class ForkRenewable(Protocol):
    """Something with state that is of no use to a child."""

    def renew(self) -> None:
        """Forget it."""
        ...


_registered: weakref.WeakSet[ForkRenewable] = weakref.WeakSet()


def renew_after_fork(renewable: ForkRenewable) -> None:
    """Call `thing.renew()` in every child that is forked while it lives."""
    _registered.add(renewable)
    _install_fork_hook()


@functools.cache
def _install_fork_hook() -> None:
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_renew_registered)


def _renew_registered() -> None:
    for thing in _registered:
        with _RENEW_GUARD:
            thing.renew()
