"""Functions with a span around each call, for the four ways a Python function can run.

A wrapper is of the same kind as what it wraps, so frameworks that look whether a function is a coroutine function or a
generator function see no difference. Exceptions pass through untouched.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import AsyncGenerator, Callable, Generator
from contextvars import Token
from typing import Any

from opentelemetry.context import Context, attach, detach, get_current

from goldspan._guard import guard
from goldspan.capture.recording import Call, Recorder
from goldspan.capture.serialization import Pieces

_NOTING = guard("note what a decorated generator yielded")


def wrap(function: Callable[..., Any], recorder: Recorder) -> Callable[..., Any]:
    """The function with a span around each of its calls."""
    if inspect.isasyncgenfunction(function):
        return _async_generator(function, recorder)
    if inspect.isgeneratorfunction(function):
        return _generator(function, recorder)
    if inspect.iscoroutinefunction(function):
        return _coroutine(function, recorder)
    return _plain(function, recorder)


def _plain(function: Callable[..., Any], recorder: Recorder) -> Callable[..., Any]:
    @functools.wraps(function)
    def traced(*args: Any, **kwargs: Any) -> Any:
        call = recorder.open(args, kwargs)
        if call is None:
            return function(*args, **kwargs)
        span, context = call
        token = attach(context)
        try:
            result = function(*args, **kwargs)
        except BaseException as error:
            _leave(token)
            recorder.fail(span, error)
            raise
        _leave(token)
        recorder.succeed(span, result)
        return result

    return traced


def _coroutine(function: Callable[..., Any], recorder: Recorder) -> Callable[..., Any]:
    @functools.wraps(function)
    async def traced(*args: Any, **kwargs: Any) -> Any:
        call = recorder.open(args, kwargs)
        if call is None:
            return await function(*args, **kwargs)
        span, context = call
        token = attach(context)
        try:
            result = await function(*args, **kwargs)
        except BaseException as error:
            _leave(token)
            recorder.fail(span, error)
            raise
        _leave(token)
        recorder.succeed(span, result)
        return result

    return traced


def _generator(function: Callable[..., Any], recorder: Recorder) -> Callable[..., Any]:
    @functools.wraps(function)
    def traced(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
        body = function(*args, **kwargs)
        stream = _Stream(recorder, recorder.open(args, kwargs))
        step, value = body.send, None
        try:
            while True:
                with stream:
                    item = step(value)
                stream.note(item)
                try:
                    value = yield item
                    step = body.send
                except GeneratorExit:
                    with stream:
                        body.close()
                    stream.succeed()
                    raise
                except BaseException as error:  # noqa: BLE001 - thrown in by the consumer, it is for the body
                    step, value = body.throw, error
        except StopIteration as stop:
            stream.succeed()
            return stop.value
        except BaseException as error:
            stream.fail(error)
            raise

    return traced


def _async_generator(function: Callable[..., Any], recorder: Recorder) -> Callable[..., Any]:
    @functools.wraps(function)
    async def traced(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, Any]:
        body = function(*args, **kwargs)
        stream = _Stream(recorder, recorder.open(args, kwargs))
        step, value = body.asend, None
        try:
            while True:
                with stream:
                    item = await step(value)
                stream.note(item)
                try:
                    value = yield item
                    step = body.asend
                except GeneratorExit:
                    with stream:
                        await body.aclose()
                    stream.succeed()
                    raise
                except BaseException as error:  # noqa: BLE001 - thrown in by the consumer, it is for the body
                    step, value = body.athrow, error
        except StopAsyncIteration:
            stream.succeed()
        except BaseException as error:
            stream.fail(error)
            raise

    return traced


def _leave(token: Token[Context]) -> None:
    """Make the span current no more.

    A coroutine or generator that nobody waited for is closed from wherever it was found, by the collector of garbage or
    the end of an event loop. There its span never was current, and `detach` would log an error that is none.
    """
    try:
        token.var.reset(token)
    except ValueError:
        pass
    except AttributeError:  # not OpenTelemetry's own way to keep contexts
        detach(token)


class _Stream:
    """One run of a generator: its span is current while the generator works, and never while its consumer does.

    As a context manager it surrounds one step. The context in which the body leaves off is the one in which it goes on:
    a span that the body itself keeps open across a `yield` stays current for the body, and for nobody else.
    """

    __slots__ = ("_call", "_context", "_pieces", "_recorder", "_token")

    def __init__(self, recorder: Recorder, call: Call | None) -> None:
        self._recorder = recorder
        self._call = call
        self._context = call[1] if call else None
        self._pieces = Pieces()
        self._token: Any = None

    def __enter__(self) -> None:
        if self._context is not None:
            self._token = attach(self._context)

    def __exit__(self, *_: object) -> None:
        if self._context is not None:
            self._context = get_current()
            _leave(self._token)

    def note(self, item: object) -> None:
        """Remember what was yielded."""
        if self._call is not None:
            with _NOTING:
                self._pieces.add(item)

    def succeed(self) -> None:
        """End the span: the generator ran out, or its consumer had enough. Ending twice does nothing."""
        if self._call is not None:
            (span, _), self._call = self._call, None
            self._recorder.succeed(span, self._pieces)

    def fail(self, error: BaseException) -> None:
        """End the span, unless that has been done."""
        if self._call is not None:
            (span, _), self._call = self._call, None
            self._recorder.fail(span, error)
