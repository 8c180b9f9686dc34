"""One guard around everything goldspan does in somebody else's process."""

from __future__ import annotations

import logging
import os
from collections import Counter
from types import TracebackType

from goldspan._locks import ModuleLock

_log = logging.getLogger("goldspan")
_lock = ModuleLock()

failures: Counter[str] = Counter()
"""How often each guarded action failed, by what was being done. Published as `goldspan.internal_errors`."""

_logged: set[tuple[str, type[BaseException]]] = set()


class guard:  # noqa: N801 - reads as a statement: `with guard("score a run"):`
    """Let no `Exception` out of the block, `but` of that kind: count it, and log the first with its traceback.

    `KeyboardInterrupt`, `SystemExit` and the like pass. With `GOLDSPAN_STRICT=1` (goldspan's own tests) everything
    passes, so that our bugs are loud at home and quiet abroad.
    """

    __slots__ = ("_but", "_doing")

    def __init__(self, doing: str, *, but: type[Exception] | tuple[()] = ()) -> None:
        self._doing = doing
        self._but = but

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        if kind is None or error is None or not issubclass(kind, Exception) or isinstance(error, self._but):
            return False
        report(self._doing, error)
        return os.environ.get("GOLDSPAN_STRICT") != "1"


def report(doing: str, error: BaseException, *, traceback: bool = True) -> None:
    """Count a failure of ours and log the first of its kind: in one line where no `traceback` is wanted."""
    kind = type(error)
    with _lock:
        failures[doing] += 1
        first = (doing, kind) not in _logged
        if first:
            _logged.add((doing, kind))
    if first:
        why = "" if traceback else f": {' '.join(str(error).split()).rstrip('.')}"
        shown = error if traceback else None
        _log.error("goldspan could not %s%s; your application goes on, this is logged once", doing, why, exc_info=shown)
