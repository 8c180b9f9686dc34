"""Resets objects in a forked child, where threads, locks and queues of the parent are unusable."""

from __future__ import annotations

import functools
import os
import weakref
from typing import Protocol

from goldspan._guard import suppress_errors

_RENEW_GUARD = suppress_errors("reset in a forked child")


class ForkRenewable(Protocol):
    """An object with state that a forked child cannot use."""

    def renew(self) -> None:
        """Resets the state."""
        ...


_registered: weakref.WeakSet[ForkRenewable] = weakref.WeakSet()


def renew_after_fork(renewable: ForkRenewable) -> None:
    """Calls `renewable.renew()` in every child that is forked during the object's lifetime."""
    _registered.add(renewable)
    _install_fork_hook()


@functools.cache
def _install_fork_hook() -> None:
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_renew_registered)


def _renew_registered() -> None:
    for renewable in _registered:
        with _RENEW_GUARD:
            renewable.renew()
