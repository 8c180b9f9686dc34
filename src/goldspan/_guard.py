"""One guard around everything goldspan does in somebody else's process."""

from __future__ import annotations

import logging
import os
from collections import Counter
from types import TracebackType

from goldspan._locks import ForkSafeLock

_log = logging.getLogger("goldspan")
_lock = ForkSafeLock()

failure_counts: Counter[str] = Counter()
"""How often each guarded action failed, by what was being done. Published as `goldspan.internal_errors`."""

_logged: set[tuple[str, type[BaseException]]] = set()


class suppress_errors:  # noqa: N801 - reads as a statement: `with guard("score a run"):`
    """Let no `Exception` out of the block, `but` of that kind: count it, and log the first with its traceback.

    `KeyboardInterrupt`, `SystemExit` and the like pass. With `GOLDSPAN_STRICT=1` (goldspan's own tests) everything
    passes, so that our bugs are loud at home and quiet abroad.
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
    """Count a failure of ours and log the first of its kind: in one line where no `traceback` is wanted."""
    kind = type(error)
    with _lock:
        failure_counts[action] += 1
        first = (action, kind) not in _logged
        if first:
            _logged.add((action, kind))
    if first:
        why = "" if with_traceback else f": {' '.join(str(error).split()).rstrip('.')}"
        shown = error if with_traceback else None
        _log.error(
            "goldspan could not %s%s; your application goes on, this is logged once", action, why, exc_info=shown
        )
