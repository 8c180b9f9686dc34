"""Goldens that are read again when their files change, in a thread of their own."""

from __future__ import annotations

import logging
import os
import threading
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from goldspan._guard import report_error, suppress_errors
from goldspan.errors import ConfigurationError, GoldspanError
from goldspan.goldens.golden_files.golden_loader import load_goldens
from goldspan.goldens.lookup.golden_lookup import DEFAULT_MARGIN, DEFAULT_NEAR, Goldens
from goldspan.goldens.spelling import short_repr

_log = logging.getLogger("goldspan")

_MAX_LOGGED_PROBLEMS = 256
"""So many distinct problems are logged: a file that is broken in ever new ways must not fill the log."""
_CLOSE_TIMEOUT_S = 1.0
"""Seconds for which `close` waits for files that are just being read."""


class ReloadingGoldens:
    """The goldens of a file, or of several, read again whenever one of them changed.

    Making one reads the files, and raises `GoldspanError` where they cannot be read, or the interval is no positive
    number of seconds: what is wrong at the start should be loud. From then on nothing raises. A file that is broken
    keeps the goldens as they were, counts as one of the `failures`, is logged once for each problem, and is tried again
    when it changes next.

    Who asks for the `current` goldens for the first time, also in a forked child, starts a daemon thread that looks at
    the files every `interval` seconds and reads them when a change is that old. It ends with `close`, or when nobody
    holds this object any more. There `on_reload` is called with the new goldens, and `on_failure` with what is wrong;
    what they raise is counted and goes no further.
    """

    def __init__(
        self,
        paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        *,
        interval: float = 1.0,
        near: float | None = DEFAULT_NEAR,
        margin: float = DEFAULT_MARGIN,
        on_reload: Callable[[Goldens], None] | None = None,
        on_failure: Callable[[str], None] | None = None,
    ) -> None:
        self._paths = tuple(map(Path, [paths] if isinstance(paths, str | os.PathLike) else paths))
        self._interval = _check_interval(interval)
        self._near = near
        self._margin = margin
        self._on_reload = on_reload
        self._on_failure = on_failure
        self._logged_problems: set[str] = set()
        self._thread: threading.Thread | None = None
        self._create_locks()
        self.reloads = 0
        """How often the goldens were read again."""
        self.failures = 0
        """How often they could not be."""
        self._state = _files_state(
            self._paths
        )  # taken first: what changes while the files are read is seen the next time
        self._current = self._read(None)
        self._paths = tuple(path.absolute() for path in self._paths)  # the process may move to another folder
        _live_instances.add(self)

    @property
    def current(self) -> Goldens:
        """The goldens as they are now."""
        if self._thread is None and not self._closed.is_set():
            self._start()
        return self._current

    def check_now(self) -> bool:
        """Read the files at once if one of them changed; whether there are new goldens. Never raises."""
        with self._reading:
            state = _files_state(self._paths)
            if state == self._state:
                return False
            self._state = state
            return self._reload()

    def close(self) -> None:
        """Look at the files no more. The goldens stay as they are."""
        self._closed.set()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(_CLOSE_TIMEOUT_S)

    def _create_locks(self) -> None:
        """Locks that nobody holds, as a new object and a forked child need them."""
        self._reading = threading.Lock()
        self._starting = threading.Lock()
        self._closed = threading.Event()

    def _start(self) -> None:
        with self._starting:
            if self._thread is not None:
                return
            watching = (weakref.ref(self), self._closed, self._interval)
            thread = threading.Thread(target=_watch_files, args=watching, name="goldspan-goldens", daemon=True)
            try:
                thread.start()
            except RuntimeError as error:  # there may be no more threads, or no more time for one
                self._closed.set()
                report_error("watch golden files", error)
            else:
                self._thread = thread

    def _reset_after_fork(self) -> None:
        """In a forked child the thread is not there, and locks may be held by threads that are not there either."""
        closed = self._closed.is_set()
        self._create_locks()
        self._thread = None
        if closed:
            self._closed.set()

    def _check_if_stable(self, previous_state: object) -> object:
        """Read the files if they changed and have been the same since they were `seen`; what they are like now."""
        state = _files_state(self._paths)
        if state == previous_state:  # nobody is writing any more
            self.check_now()
        return state

    def _reload(self) -> bool:
        try:
            goldens = self._read(_log.warning)
        except Exception as error:  # noqa: BLE001 - whatever is wrong with a file, the goldens that were there stay
            self.failures += 1
            problem = str(error) if isinstance(error, GoldspanError) else f"{type(error).__name__}: {error}"
            if problem not in self._logged_problems and len(self._logged_problems) < _MAX_LOGGED_PROBLEMS:
                self._logged_problems.add(problem)
                _log.error("goldspan keeps the goldens that it has, and leaves out the new ones: %s", problem)
            _call_listener(self._on_failure, problem)
            return False
        self._current = goldens
        self.reloads += 1
        self._logged_problems.clear()
        _call_listener(self._on_reload, goldens)
        return True

    def _read(self, on_warning: Callable[[str], None] | None) -> Goldens:
        goldens = load_goldens(*self._paths, near=self._near, margin=self._margin, on_warning=on_warning)
        goldens.prepare()
        return goldens


def _check_interval(interval: float) -> float:
    """As long as a thread can wait, at most. Raises `ConfigurationError` for what is no time to wait."""
    if isinstance(interval, bool) or not isinstance(interval, int | float) or not interval > 0:  # type: ignore[redundant-expr]
        raise ConfigurationError(f"interval must be a number of seconds above 0, not {short_repr(interval)}.")
    return min(interval, threading.TIMEOUT_MAX)


def _call_listener(listener: Callable[[Any], None] | None, argument: Any) -> None:
    if listener is not None:
        try:
            listener(argument)
        except Exception as error:  # noqa: BLE001 - somebody else's function
            report_error("tell that goldens were read again", error)


def _watch_files(watched: weakref.ref[ReloadingGoldens], closed: threading.Event, interval: float) -> None:
    seen: object = None
    while not closed.wait(interval):
        goldens = watched()
        if goldens is None:
            return
        with suppress_errors("look at golden files"):
            seen = goldens._check_if_stable(seen)
        del goldens  # so that waiting keeps nothing alive


def _files_state(paths: Sequence[Path]) -> tuple[object, ...]:
    """What changes whenever one of the files is replaced, written, truncated, gone or back."""
    return tuple(map(_file_state, paths))


def _file_state(path: Path) -> object:
    try:
        found = path.stat()
    except OSError as error:
        return error.errno
    return found.st_mtime_ns, found.st_size, found.st_ino


_live_instances: weakref.WeakSet[ReloadingGoldens] = weakref.WeakSet()


def _after_fork() -> None:
    for goldens in list(_live_instances):
        goldens._reset_after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
