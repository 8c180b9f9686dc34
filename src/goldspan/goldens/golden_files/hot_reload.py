"""`ReloadingGoldens`: reloads golden files in a background thread when they change."""

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
"""The greatest number of distinct problems that are logged, so that a broken file cannot fill the log."""
_CLOSE_TIMEOUT_S = 1.0
"""How long `close` waits for a reload in progress, in seconds."""


class ReloadingGoldens:
    """The goldens of one or more files, reloaded when a file changes.

    The constructor reads the files and raises errors. After that nothing raises: if a changed file is invalid, the
    previous goldens stay in use, `failures` is incremented, each distinct problem is logged once, and the files are
    read again at the next change.

    The first access to `current`, also in a forked child, starts a daemon thread. It checks the files every `interval`
    seconds and reads them once a change is at least that old. It stops after `close`, or when this object is garbage
    collected.

    Args:
        paths: The golden file, or several files.
        interval: Seconds between two checks of the files.
        near: The least similarity of a match by similar input; see `Goldens`.
        margin: By how much the best match must exceed other goldens; see `Goldens`.
        on_reload: Called in the thread with the new goldens. Its exceptions are counted and suppressed.
        on_failure: Called in the thread with the problem. Its exceptions are counted and suppressed.

    Raises:
        GoldenError: A file cannot be read or is invalid.
        ConfigurationError: `interval` is not a positive number, or `near` or `margin` is out of range.
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
        """The number of successful reloads."""
        self.failures = 0
        """The number of failed reloads."""
        # Taken before reading, so that a change during the read is noticed at the next check.
        self._state = _files_state(self._paths)
        self._current = self._read(None)
        self._paths = tuple(path.absolute() for path in self._paths)  # the process may change its working directory
        _live_instances.add(self)

    @property
    def current(self) -> Goldens:
        """The most recently loaded goldens."""
        if self._thread is None and not self._closed.is_set():
            self._start()
        return self._current

    def check_now(self) -> bool:
        """Reloads the files now if one of them changed. Returns whether there are new goldens. Never raises."""
        with self._reading:
            state = _files_state(self._paths)
            if state == self._state:
                return False
            self._state = state
            return self._reload()

    def close(self) -> None:
        """Stops watching the files. `current` keeps its value."""
        self._closed.set()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(_CLOSE_TIMEOUT_S)

    def _create_locks(self) -> None:
        """Creates unlocked locks, for a new object and in a forked child."""
        self._reading = threading.Lock()
        self._starting = threading.Lock()
        self._closed = threading.Event()

    def _start(self) -> None:
        with self._starting:
            if self._thread is not None:
                return
            arguments = (weakref.ref(self), self._closed, self._interval)
            thread = threading.Thread(target=_watch_files, args=arguments, name="goldspan-goldens", daemon=True)
            try:
                thread.start()
            except RuntimeError as error:  # the thread limit is reached, or the interpreter shuts down
                self._closed.set()
                report_error("watch golden files", error)
            else:
                self._thread = thread

    def _reset_after_fork(self) -> None:
        """Recreates the locks in a forked child, where the threads that may hold them do not exist."""
        closed = self._closed.is_set()
        self._create_locks()
        self._thread = None
        if closed:
            self._closed.set()

    def _check_if_stable(self, previous_state: object) -> object:
        """Reloads changed files if they are unchanged since the previous check. Returns their current state."""
        state = _files_state(self._paths)
        if state == previous_state:  # the write is complete
            self.check_now()
        return state

    def _reload(self) -> bool:
        try:
            goldens = self._read(_log.warning)
        except Exception as error:  # noqa: BLE001 - no error in a file may replace the loaded goldens
            self.failures += 1
            problem = str(error) if isinstance(error, GoldspanError) else f"{type(error).__name__}: {error}"
            if problem not in self._logged_problems and len(self._logged_problems) < _MAX_LOGGED_PROBLEMS:
                self._logged_problems.add(problem)
                _log.error("goldspan keeps the loaded goldens, because the changed files are invalid: %s", problem)
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
    """Returns the interval, limited to the longest possible wait. Raises `ConfigurationError` if it is invalid."""
    if isinstance(interval, bool) or not isinstance(interval, int | float) or not interval > 0:  # type: ignore[redundant-expr]
        raise ConfigurationError(f"interval must be a number of seconds above 0, not {short_repr(interval)}.")
    return min(interval, threading.TIMEOUT_MAX)


def _call_listener(listener: Callable[[Any], None] | None, argument: Any) -> None:
    if listener is not None:
        try:
            listener(argument)
        except Exception as error:  # noqa: BLE001 - the listener is user code
            report_error("call a reload listener", error)


def _watch_files(watched: weakref.ref[ReloadingGoldens], closed: threading.Event, interval: float) -> None:
    previous_state: object = None
    while not closed.wait(interval):
        goldens = watched()
        if goldens is None:
            return
        with suppress_errors("check golden files"):
            previous_state = goldens._check_if_stable(previous_state)
        del goldens  # so that the thread does not keep the object alive while it waits


def _files_state(paths: Sequence[Path]) -> tuple[object, ...]:
    """Returns a value that changes when a file is replaced, written, truncated, deleted or created."""
    return tuple(map(_file_state, paths))


def _file_state(path: Path) -> object:
    try:
        status = path.stat()
    except OSError as error:
        return error.errno
    return status.st_mtime_ns, status.st_size, status.st_ino


_live_instances: weakref.WeakSet[ReloadingGoldens] = weakref.WeakSet()


def _after_fork() -> None:
    for goldens in list(_live_instances):
        goldens._reset_after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
