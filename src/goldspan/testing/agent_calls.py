"""Loads an agent by name, and calls it with a time limit, whatever kind of callable it is."""

from __future__ import annotations

import asyncio
import contextvars
import importlib
import inspect
import os
import sys
import threading
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import suppress
from dataclasses import dataclass
from types import ModuleType
from typing import Any, cast

from opentelemetry.context import Context, attach, detach

from goldspan.errors import ConfigurationError
from goldspan.goldens.spelling import did_you_mean, short_repr
from goldspan.model import Golden

GOLDEN_PARAMETER = "golden"
"""The name of the parameter with which an agent receives the golden."""
_CANCEL_GRACE_S = 1.0
"""Seconds in which a cancelled coroutine can clean up."""
_SAMPLE_GOLDEN = Golden("sample", "sample")


def load_agent(name: str) -> Callable[..., Any]:
    """Import the agent that `module:function` names; the function can be an attribute path such as `bot.answer`.

    The current directory is searched first, as `python -m` does.

    Raises:
        ConfigurationError: There is no such module or function, or the import of the module fails.
    """
    module_name, separator, path = name.partition(":")
    if not (separator and module_name.strip() and path.strip()):
        raise ConfigurationError(f"the agent is named as MODULE:FUNCTION, such as app.agents:answer, not {name!r}")
    if (directory := os.getcwd()) not in sys.path:
        sys.path.insert(0, directory)
    module = _import_module(module_name.strip(), name)
    found: Any = module
    for attribute in path.strip().split("."):
        if not hasattr(found, attribute):
            hint = did_you_mean(attribute, [each for each in dir(found) if not each.startswith("_")])
            owner = f"the module {module_name}" if isinstance(found, ModuleType) else short_repr(found)
            raise ConfigurationError(f"agent {name}: {owner} has no {attribute!r}.{hint}")
        found = getattr(found, attribute)
    return cast("Callable[..., Any]", found)


def _import_module(module_name: str, agent_name: str) -> ModuleType:
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{module_name}.".startswith(f"{error.name}."):
            problem = f"there is no module {error.name!r} in the current directory or among the installed packages"
            raise ConfigurationError(f"agent {agent_name}: {problem}") from None
        raise ConfigurationError(f"agent {agent_name}: importing it failed: {error}") from error
    except (Exception, SystemExit) as error:
        raise ConfigurationError(f"agent {agent_name}: importing it failed: {type(error).__name__}: {error}") from error


class Agent:
    """An agent as a function of a golden.

    The agent receives the golden's input as its first argument, and the golden if it has a parameter named `golden`. An
    agent whose only parameter is `golden` receives the golden alone.

    Raises:
        ConfigurationError: It is not callable, or needs other arguments.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        if not callable(function):
            raise ConfigurationError(f"the agent must be a function of the request's text, not {short_repr(function)}")
        self._function = function
        self.name = _agent_name(function)
        """The agent as `module:function`, if it has a name."""
        parameters = _parameters(function)
        self._takes_golden = GOLDEN_PARAMETER in parameters
        self.needs_input = parameters.keys() != {GOLDEN_PARAMETER}
        """Whether each golden must have an input."""
        self._is_async = any(
            test(target)
            for target in (function, getattr(function, "__call__", None))  # noqa: B004 - it may be an object
            for test in (inspect.iscoroutinefunction, inspect.isasyncgenfunction)
        )
        self._check_signature()

    def _check_signature(self) -> None:
        try:
            signature = inspect.signature(self._function)
        except (TypeError, ValueError):  # a callable of C code without a signature
            return
        args, kwargs = self._arguments(_SAMPLE_GOLDEN)
        try:
            signature.bind(*args, **kwargs)
        except TypeError as error:
            problem = f"cannot be called with the text of a request: {error}"
            raise ConfigurationError(f"the agent {self.name or short_repr(self._function)} {problem}") from None

    def _arguments(self, golden: Golden) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return (golden.input,) if self.needs_input else (), {GOLDEN_PARAMETER: golden} if self._takes_golden else {}

    async def call(self, golden: Golden, context: Context, timeout: float | None, progress: CallProgress) -> AgentCall:
        """Call the agent in an OpenTelemetry context. Raises nothing that the agent raises.

        A coroutine runs in the current event loop and is cancelled at the timeout. Any other agent runs in a thread,
        which nothing can stop: at the timeout it is left to itself.
        """
        started = time.perf_counter()
        task = progress.task = asyncio.ensure_future(self._run(golden, context, progress))
        try:
            await asyncio.wait({task}, timeout=timeout)
        except asyncio.CancelledError:
            task.cancel()
            raise
        duration_ms = (time.perf_counter() - started) * 1000
        if task.done():
            error = asyncio.CancelledError() if task.cancelled() else task.result()
            return AgentCall(duration_ms, error)
        task.cancel()
        await asyncio.wait({task}, timeout=_CANCEL_GRACE_S)
        return AgentCall(duration_ms, timed_out=True, still_runs=progress.is_running())

    async def _run(self, golden: Golden, context: Context, progress: CallProgress) -> BaseException | None:
        """Call the agent, wait for what it returns, and return what it raises."""
        args, kwargs = self._arguments(golden)
        token = attach(context)
        try:
            if self._is_async:
                result = self._function(*args, **kwargs)
            else:
                result = await _call_in_thread(lambda: self._function(*args, **kwargs), progress)
            if inspect.isawaitable(result):
                result = await result
            if isinstance(result, AsyncGenerator):
                async for _ in result:
                    pass
        except (KeyboardInterrupt, asyncio.CancelledError):
            raise
        except BaseException as error:  # noqa: BLE001 - also `SystemExit`, which would end the event loop
            return error
        finally:
            detach(token)
        return None


@dataclass(frozen=True, slots=True)
class AgentCall:
    """How a call of the agent ended."""

    duration_ms: float
    error: BaseException | None = None
    timed_out: bool = False
    still_runs: bool = False
    """Whether the agent was left running after the timeout."""


@dataclass(slots=True)
class CallProgress:
    """Where a call runs: in a thread, which nothing can stop, and in a task."""

    task: asyncio.Task[BaseException | None] | None = None
    thread: threading.Thread | None = None

    def is_running(self) -> bool:
        """Whether the agent has not ended, even if nothing waits for it any more."""
        has_thread = self.thread is not None and self.thread.is_alive()
        return has_thread or (self.task is not None and not self.task.done())


def _parameters(function: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """Return the parameters that can be passed by position or name."""
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return {}
    return {name: each for name, each in parameters.items() if each.kind is not inspect.Parameter.VAR_KEYWORD}


def _agent_name(function: Callable[..., Any]) -> str | None:
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", None)
    return f"{module}:{name}" if module and name else None


async def _call_in_thread(function: Callable[[], Any], progress: CallProgress) -> Any:
    """Return or raise what a function does in a thread of its own, with a copy of the current context variables.

    The thread is a daemon, so a function that hangs does not keep the program from exiting.
    """
    loop = asyncio.get_running_loop()
    finished: asyncio.Future[tuple[Any, BaseException | None]] = loop.create_future()

    def finish(outcome: tuple[Any, BaseException | None]) -> None:
        if not finished.done():
            finished.set_result(outcome)

    def work() -> None:
        outcome: tuple[Any, BaseException | None]
        try:
            result = function()
            if isinstance(result, Generator):
                deque(result, maxlen=0)
            outcome = result, None
        except BaseException as error:  # noqa: BLE001 - it is raised again below
            outcome = None, error
        with suppress(RuntimeError):  # the event loop was closed in the meantime
            loop.call_soon_threadsafe(finish, outcome)

    context = contextvars.copy_context()
    progress.thread = threading.Thread(target=context.run, args=(work,), daemon=True, name="goldspan-agent")
    progress.thread.start()
    result, error = await finished
    if error is not None:
        raise error
    return result
