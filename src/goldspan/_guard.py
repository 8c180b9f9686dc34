"""Keeps goldspan's own errors out of the application: counts them and logs the first of each kind."""

from __future__ import annotations

import logging
import os
from collections import Counter
from types import TracebackType

from goldspan._locks import ForkSafeLock

_log = logging.getLogger("goldspan")
_lock = ForkSafeLock()

failure_counts: Counter[str] = Counter()
"""The number of suppressed errors by action. Published as `goldspan.internal_errors`."""

_logged: set[tuple[str, type[BaseException]]] = set()


class suppress_errors:  # noqa: N801 - reads as a statement: `with suppress_errors("score a run"):`
    """Suppress every `Exception` of the block except those of type `except_`. Count it, and log the first of its kind.

    `KeyboardInterrupt` and `SystemExit` pass. With `GOLDSPAN_STRICT=1`, which goldspan's own tests set, every exception
    passes.
    """

    __slots__ = ("_action", "_except")

    def __init__(self, action: str, *, except_: type[Exception] | tuple[()] = ()) -> None:
        self._action = action
        self._except = except_

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        if kind is None or error is None or not issubclass(kind, Exception) or isinstance(error, self._except):
            return False
        report_error(self._action, error)
        return os.environ.get("GOLDSPAN_STRICT") != "1"


def report_error(action: str, error: BaseException, *, with_traceback: bool = True) -> None:
    """Count an error of goldspan and log the first of its kind, in one line if `with_traceback` is false."""
    kind = type(error)
    with _lock:
        failure_counts[action] += 1
        is_first = (action, kind) not in _logged
        if is_first:
            _logged.add((action, kind))
    if is_first:
        reason = "" if with_traceback else f": {' '.join(str(error).split()).rstrip('.')}"
        exc_info = error if with_traceback else None
        _log.error(
            "goldspan could not %s%s; your application goes on, this is logged once", action, reason, exc_info=exc_info
        )
