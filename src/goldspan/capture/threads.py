"""OpenTelemetry's context in threads: what a request starts or hands to a pool stays part of that request.

Python gives a new thread no context at all, so a tool that an agent runs in a `ThreadPoolExecutor` becomes a trace of
its own. OpenTelemetry has an instrumentation that mends this. It is not required here, because each of its releases
asks for exactly one release of the SDK, which is the application's to choose. Where the application uses it, it is left
to its work. Unlike it, this covers threads whose class overrides `run`, and spares the threads that serve everybody.
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
"""Whose threads are started by whichever request comes first and then work for all of them."""

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
    """Let threads, timers and the tasks of thread pools run in the context they were started in. Never raises.

    `loop.run_in_executor` is among them. Each task of a pool has the context in which it was submitted, whoever started
    the pool's threads. Any other thread keeps the context it was started in for as long as it lives.

    Called twice, it does no more. Where the application has OpenTelemetry's own instrumentation of threads at work, it
    does nothing.
    """
    global _enabled_by_application
    with _PATCHING, _lock:
        _enabled_by_application = True
        _patch_threads()


def carry_context_for(owner: object) -> None:
    """The same for as long as somebody is at work: until `stop_carrying_for`. Never raises."""
    with _PATCHING, _lock:
        _owners.add(owner)
        _patch_threads()


def stop_carrying_context_for(owner: object) -> None:
    """Take back what was done for somebody who needs it no longer, unless somebody else, or the application, does."""
    with _PATCHING, _lock:
        if owner in _owners:
            _owners.discard(owner)
            if not _owners and not _enabled_by_application:
                _unpatch_threads()


def stop_carrying_context() -> None:
    """Take back what `carry_context_into_threads` did, whoever asked for it. Threads under way keep their context.

    What somebody else has wrapped since cannot be taken out any more; it stays, and does nothing.
    """
    global _enabled_by_application
    with _PATCHING, _lock:
        _enabled_by_application = False
        _owners.clear()
        _unpatch_threads()


def _patch_threads() -> None:
    """Carry contexts from now on. Whoever calls this holds the lock."""
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
    """Carry contexts no more. Whoever calls this holds the lock."""
    global _active
    _active = False
    for patch in [*_patches]:
        if getattr(patch.owner, patch.name) is patch.replacement:
            setattr(patch.owner, patch.name, patch.original)
            _patches.remove(patch)


def _is_instrumented() -> bool:
    """Whether the application has instrumented threads; to see that, nothing needs to be imported.

    What another thread is still importing is not at work yet.
    """
    instrumentor = getattr(sys.modules.get(_INSTRUMENTATION), "ThreadingInstrumentor", None)
    return instrumentor is not None and bool(instrumentor().is_instrumented_by_opentelemetry)


def _wrap_start(start: Callable[[threading.Thread], None]) -> Callable[[threading.Thread], None]:
    def carrying(thread: threading.Thread) -> None:
        here = get_current()
        if not (_active and here):
            return start(thread)
        own = vars(thread).get("run")  # somebody may have given this one thread its own
        with _STARTING:
            if not _is_shared_thread(thread):
                _bind_context(thread, here)
        try:
            return start(thread)
        except BaseException:  # there was no room for another thread, or it had been started before
            _restore_run(thread, own)
            raise

    return carrying


def _bind_context(thread: threading.Thread, context: Context) -> None:
    """Let the thread run in a context, by an attribute of this one thread: its class may have overridden `run`."""
    own, run = vars(thread).get("run"), thread.run

    def within() -> None:
        _restore_run(thread, own)
        _call_in_context(context, run)

    thread.run = within  # type: ignore[method-assign]


def _restore_run(thread: threading.Thread, own: Callable[[], None] | None) -> None:
    """As it was before: a thread that refers to itself would be left to the collector of garbage."""
    vars(thread).pop("run", None)
    if own is not None:
        thread.run = own  # type: ignore[method-assign]


def _is_shared_thread(thread: threading.Thread) -> bool:
    kind = type(thread)
    work = getattr(thread, "_target", None) if kind in (threading.Thread, threading.Timer) else kind
    return (getattr(work, "__module__", None) or "").startswith(_SHARED_THREAD_MODULES)


def _wrap_submit(submit: Callable[..., Future[Any]]) -> Callable[..., Future[Any]]:
    def carrying(self: ThreadPoolExecutor, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        here = get_current()
        if not (_active and here) or _uses_other_interpreter(self):
            return submit(self, fn, *args, **kwargs)
        return submit(self, _call_in_context, here, fn, *args, **kwargs)

    return carrying


def _uses_other_interpreter(pool: ThreadPoolExecutor) -> bool:
    """Whether it is an `InterpreterPoolExecutor` (Python 3.14), whose tasks are pickled, as no context can be."""
    kind = type(pool)
    return kind is not ThreadPoolExecutor and any(base.__module__ == _INTERPRETERS for base in kind.__mro__)


def _call_in_context(context: Context, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    token = attach(context)
    try:
        return function(*args, **kwargs)
    finally:
        detach(token)
