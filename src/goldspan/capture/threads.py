"""Propagates the OpenTelemetry context into threads and thread pools.

Python starts a thread with an empty context, so a tool that an agent runs in a `ThreadPoolExecutor` would be the root
of another trace. OpenTelemetry's threading instrumentation solves this, but each of its releases requires exactly one
release of the SDK, which the application must be free to choose; therefore goldspan does not depend on it. If the
application enabled that instrumentation, this module does nothing. Unlike it, this module covers threads whose class
overrides `run`, and excludes threads that serve all requests.
"""

from __future__ import annotations

import functools
import sys
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

from opentelemetry.context import Context, attach, detach, get_current

from goldspan._guard import suppress_errors
from goldspan._locks import ForkSafeLock

_INSTRUMENTATION = "opentelemetry.instrumentation.threading"
_INTERPRETERS = "concurrent.futures.interpreter"
_SHARED_THREAD_MODULES = ("concurrent.futures.", "opentelemetry.", "goldspan.")
"""The first request starts the threads of these modules; afterwards they work for all requests."""

_PATCHING = suppress_errors("carry the context into threads")
_STARTING = suppress_errors("carry the context into a thread")


class _Patch(NamedTuple):
    owner: type
    name: str
    original: Callable[..., Any]
    replacement: Callable[..., Any]


_lock = ForkSafeLock()
_patches: list[_Patch] = []
_active = False
_enabled_by_application = False
_owners: weakref.WeakSet[Any] = weakref.WeakSet()


def carry_context_into_threads() -> None:
    """Propagates the context into threads, timers and tasks of thread pools. Never raises.

    This includes `loop.run_in_executor`. Each task of a pool runs in the context in which it was submitted, whichever
    request started the pool's threads. Any other thread keeps the context in which it was started for its lifetime.

    A second call does nothing. If OpenTelemetry's threading instrumentation is enabled, the function does nothing.
    """
    global _enabled_by_application
    with _PATCHING, _lock:
        _enabled_by_application = True
        _patch_threads()


def carry_context_for(owner: object) -> None:
    """Propagates the context until `stop_carrying_context_for` is called for the owner. Never raises."""
    with _PATCHING, _lock:
        _owners.add(owner)
        _patch_threads()


def stop_carrying_context_for(owner: object) -> None:
    """Stops the propagation for an owner; it continues while another owner or the application needs it."""
    with _PATCHING, _lock:
        if owner in _owners:
            _owners.discard(owner)
            if not _owners and not _enabled_by_application:
                _unpatch_threads()


def stop_carrying_context() -> None:
    """Stops the propagation for all owners. Running threads keep their context.

    A method that another library has wrapped since cannot be restored; the wrapper stays and does nothing.
    """
    global _enabled_by_application
    with _PATCHING, _lock:
        _enabled_by_application = False
        _owners.clear()
        _unpatch_threads()


def _patch_threads() -> None:
    """Starts the propagation. The caller holds the lock."""
    global _active
    if _is_instrumented():
        return
    _active = True
    patched = {(patch.owner, patch.name) for patch in _patches}
    for owner, name, make in ((threading.Thread, "start", _wrap_start), (ThreadPoolExecutor, "submit", _wrap_submit)):
        if (owner, name) not in patched:
            original = getattr(owner, name)
            replacement = functools.wraps(original)(make(original))
            setattr(owner, name, replacement)
            _patches.append(_Patch(owner, name, original, replacement))


def _unpatch_threads() -> None:
    """Stops the propagation. The caller holds the lock."""
    global _active
    _active = False
    for patch in [*_patches]:
        if getattr(patch.owner, patch.name) is patch.replacement:
            setattr(patch.owner, patch.name, patch.original)
            _patches.remove(patch)


def _is_instrumented() -> bool:
    """Returns whether the application enabled OpenTelemetry's threading instrumentation, without importing it.

    A module that another thread is still importing is not enabled yet.
    """
    instrumentor = getattr(sys.modules.get(_INSTRUMENTATION), "ThreadingInstrumentor", None)
    return instrumentor is not None and bool(instrumentor().is_instrumented_by_opentelemetry)


def _wrap_start(start: Callable[[threading.Thread], None]) -> Callable[[threading.Thread], None]:
    def carrying(thread: threading.Thread) -> None:
        context = get_current()
        if not (_active and context):
            return start(thread)
        own_run = vars(thread).get("run")  # the application may have set `run` on this thread
        with _STARTING:
            if not _is_shared_thread(thread):
                _bind_context(thread, context)
        try:
            return start(thread)
        except BaseException:  # no further thread can be started, or this one was started before
            _restore_run(thread, own_run)
            raise

    return carrying


def _bind_context(thread: threading.Thread, context: Context) -> None:
    """Makes the thread run in a context, by an attribute of this thread: its class may override `run`."""
    own_run, run = vars(thread).get("run"), thread.run

    def run_in_context() -> None:
        _restore_run(thread, own_run)
        _call_in_context(context, run)

    thread.run = run_in_context  # type: ignore[method-assign]


def _restore_run(thread: threading.Thread, own_run: Callable[[], None] | None) -> None:
    """Restores `run`. A thread that refers to itself would stay alive until the next garbage collection."""
    vars(thread).pop("run", None)
    if own_run is not None:
        thread.run = own_run  # type: ignore[method-assign]


def _is_shared_thread(thread: threading.Thread) -> bool:
    thread_type = type(thread)
    code = getattr(thread, "_target", None) if thread_type in (threading.Thread, threading.Timer) else thread_type
    return (getattr(code, "__module__", None) or "").startswith(_SHARED_THREAD_MODULES)


def _wrap_submit(submit: Callable[..., Future[Any]]) -> Callable[..., Future[Any]]:
    def carrying(self: ThreadPoolExecutor, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        context = get_current()
        if not (_active and context) or _uses_other_interpreter(self):
            return submit(self, fn, *args, **kwargs)
        return submit(self, _call_in_context, context, fn, *args, **kwargs)

    return carrying


def _uses_other_interpreter(pool: ThreadPoolExecutor) -> bool:
    """Returns whether it is an `InterpreterPoolExecutor` (Python 3.14): it pickles tasks, and contexts cannot be
    pickled.
    """
    kind = type(pool)
    return kind is not ThreadPoolExecutor and any(base.__module__ == _INTERPRETERS for base in kind.__mro__)


def _call_in_context(context: Context, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    token = attach(context)
    try:
        return function(*args, **kwargs)
    finally:
        detach(token)
