"""Wraps a function so that each call has a span, for `capture.decorator`."""

from __future__ import annotations

import functools
import inspect
from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from contextvars import Token
from time import time_ns
from typing import Any, Protocol, TypeAlias

from opentelemetry import trace as otel_trace
from opentelemetry.context import _SUPPRESS_INSTRUMENTATION_KEY, Context, attach, detach, get_current
from opentelemetry.trace import Span, Status, StatusCode, TracerProvider, get_tracer_provider, set_span_in_context

from goldspan import semconv
from goldspan._guard import suppress_errors
from goldspan._locks import ForkSafeLock
from goldspan._version import __version__
from goldspan.capture.span_attributes import (
    SPAN_TEMPLATES,
    ArgumentBinder,
    BoundArguments,
    StreamedItems,
    TracedKind,
)

_NOTIFYING = suppress_errors("score a span before it ends")


class SpanEndListener(Protocol):
    """Receives each decorated span just before it ends.

    The thread that ends the span calls the listeners once, in the order of registration. An exception is counted and
    logged.
    """

    def before_span_end(self, span: Span, end_ns: int) -> None:
        """Sets results on a span that will end at `end_ns`."""
        ...


_listeners: tuple[SpanEndListener, ...] = ()
_listeners_lock = ForkSafeLock()


def add_span_end_listener(listener: SpanEndListener) -> None:
    """Registers a listener."""
    global _listeners
    with _listeners_lock:
        _listeners = (*_listeners, listener)


def remove_span_end_listener(listener: SpanEndListener) -> None:
    """Removes a listener; does nothing if it is not registered."""
    global _listeners
    with _listeners_lock:
        _listeners = tuple(known for known in _listeners if known is not listener)


def end_span(span: Span) -> None:
    """Ends a decorated span after the listeners have set results on it."""
    if not _listeners:
        span.end()
        return
    end_ns = time_ns()
    for listener in _listeners:
        with _NOTIFYING:
            listener.before_span_end(span, end_ns)
    span.end(end_ns)


_MAX_MESSAGE = 1_000
_OPENING = suppress_errors("open a span for a decorated function")
_RECORDING_OUTCOME = suppress_errors("describe the outcome of a decorated function")
_ENDING = suppress_errors("end the span of a decorated function")
_ADDING_ITEM = suppress_errors("record an item of a decorated generator")

_NOT_RECORDING = (otel_trace.ProxyTracerProvider, otel_trace.NoOpTracerProvider)


OpenCall: TypeAlias = tuple[Span, Context]
"""The span of one call, and the context in which that span is current."""


class _CaptureSettings:
    """What is captured of a function's calls while one tracer provider is the global one. Immutable."""

    __slots__ = ("allowed_arguments", "arguments", "provider", "result", "tracer")

    def __init__(
        self, provider: TracerProvider | None, arguments: bool | frozenset[str] | None, result: bool | None
    ) -> None:
        self.provider = provider
        self.tracer: otel_trace.Tracer | None = None
        self.arguments = self.result = False
        self.allowed_arguments: frozenset[str] | None = None
        if provider is None or isinstance(provider, _NOT_RECORDING):
            return
        self.tracer = provider.get_tracer(semconv.INSTRUMENTATION_SCOPE, __version__)
        captured = _default_capture() if arguments is None else arguments
        self.arguments = captured is True
        self.allowed_arguments = captured if isinstance(captured, frozenset) else None
        self.result = _default_capture() is True if result is None else result


class CallRecorder:
    """Starts and ends the spans of one function. Its methods never raise.

    They run on every call, and most of the time of a call is the SDK's. Therefore everything that does not depend on
    the call is computed beforehand, and `suppress_errors` is entered only after an exception: a plain `try` costs
    nothing.
    """

    __slots__ = (
        "_binder",
        "_capture",
        "_configured_arguments",
        "_configured_result",
        "_constant_attributes",
        "_encode_input",
        "_encode_output",
        "_input_is_request",
        "_input_key",
        "_output_key",
        "_span_name",
    )

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        kind: TracedKind,
        name: str,
        golden: str | None = None,
        metrics: tuple[str, ...] = (),
        capture_arguments: bool | frozenset[str] | None = None,
        capture_result: bool | None = None,
        static: bool = False,
    ) -> None:
        template = SPAN_TEMPLATES[kind]
        self._span_name = template.name_prefix + name
        self._constant_attributes = template.constant_attributes(name)
        self._input_key, self._encode_input = template.input_key, template.encode_input
        self._input_is_request = template.input_is_request
        self._output_key, self._encode_output = template.output_key, template.encode_output
        if golden is not None:
            self._constant_attributes[semconv.GOLDEN_ID] = golden
        if metrics:
            self._constant_attributes[semconv.METRICS] = metrics
        self._binder = ArgumentBinder(function, static=static)
        self._configured_arguments, self._configured_result = capture_arguments, capture_result
        self._capture = _CaptureSettings(None, None, None)

    def start_span(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> OpenCall | None:
        """Starts the span of a call; `None` if nothing records spans or instrumentation is suppressed."""
        try:
            here = get_current()
            if here.get(_SUPPRESS_INSTRUMENTATION_KEY):
                return None
            provider, capture = get_tracer_provider(), self._capture
            if provider is not capture.provider:
                # The provider was set (in tests: replaced) after the decoration. Several threads may notice it at once;
                # each assigns a complete object, so that none sees a partial state.
                capture = self._capture = _CaptureSettings(
                    provider, self._configured_arguments, self._configured_result
                )
            if capture.tracer is None:
                return None
            attributes = self._constant_attributes.copy()
            if capture.arguments:
                binder = self._binder
                encoded = self._encode_input(binder, binder.bind(args, kwargs))
                if encoded is not None:
                    attributes[self._input_key] = encoded
            elif capture.allowed_arguments is not None:
                attributes.update(self._filtered_input(capture.allowed_arguments, self._binder.bind(args, kwargs)))
            span = capture.tracer.start_span(self._span_name, here, attributes=attributes)
            return span, set_span_in_context(span, here)
        except Exception:
            with _OPENING:
                raise
        return None

    def succeed(self, span: Span, result: object) -> None:
        """Ends the span of a call that returned."""
        try:
            if self._capture.result and span.is_recording():
                span.set_attribute(self._output_key, self._encode_output(result))
        except Exception:
            with _RECORDING_OUTCOME:
                raise
        try:
            end_span(span)
        except Exception:
            with _ENDING:
                raise

    def fail(self, span: Span, error: BaseException) -> None:
        """Ends the span of a call that raised.

        A call that was interrupted (`CancelledError`, `GeneratorExit`, `KeyboardInterrupt`, `SystemExit`) neither
        succeeded nor failed: its span ends with the status unset and without a result.
        """
        if isinstance(error, Exception):
            with _RECORDING_OUTCOME:
                _record_error(span, error)
        with _ENDING:
            end_span(span)

    def _filtered_input(self, allowed: frozenset[str], arguments: BoundArguments) -> dict[str, str]:
        """Returns the input attribute with the allowed arguments; empty if none is allowed, since "not captured"
        differs from "no arguments".
        """
        request = self._binder.request_argument(arguments) if self._input_is_request else None
        candidates = arguments if request is None else {request: arguments[request]}
        captured = {name: value for name, value in candidates.items() if name in allowed}
        encoded = self._encode_input(self._binder, captured) if captured or not candidates else None
        return {} if encoded is None else {self._input_key: encoded}


@functools.cache
def _default_capture() -> bool | frozenset[str]:
    """Returns the capture setting of the environment."""
    # Imported at the first captured call, so that importing goldspan stays cheap.
    from goldspan.capture.environment import captured_arguments

    names = captured_arguments()
    return names if isinstance(names, bool) else frozenset(names)


def _record_error(span: Span, error: Exception) -> None:
    kind = type(error)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    span.set_attribute(semconv.ERROR_TYPE, name)
    try:
        message = str(error)[:_MAX_MESSAGE]
    except Exception:  # noqa: BLE001 - `__str__` of an application's exception may raise
        span.set_status(Status(StatusCode.ERROR, name))
        return
    span.set_status(Status(StatusCode.ERROR, f"{name}: {message}" if message else name))
    span.record_exception(error)


def wrap_callable(function: Callable[..., Any], recorder: CallRecorder) -> Callable[..., Any]:
    """Returns the function wrapped so that each call has a span."""
    if inspect.isasyncgenfunction(function):
        return _wrap_async_generator(function, recorder)
    if inspect.isgeneratorfunction(function):
        return _wrap_generator(function, recorder)
    if inspect.iscoroutinefunction(function):
        return _wrap_coroutine(function, recorder)
    return _wrap_function(function, recorder)


def _wrap_function(function: Callable[..., Any], recorder: CallRecorder) -> Callable[..., Any]:
    @functools.wraps(function)
    def traced(*args: Any, **kwargs: Any) -> Any:
        call = recorder.start_span(args, kwargs)
        if call is None:
            return function(*args, **kwargs)
        span, context = call
        token = attach(context)
        try:
            result = function(*args, **kwargs)
        except BaseException as error:
            _detach(token)
            recorder.fail(span, error)
            raise
        _detach(token)
        recorder.succeed(span, result)
        return result

    return traced


def _wrap_coroutine(function: Callable[..., Any], recorder: CallRecorder) -> Callable[..., Any]:
    @functools.wraps(function)
    async def traced(*args: Any, **kwargs: Any) -> Any:
        call = recorder.start_span(args, kwargs)
        if call is None:
            return await function(*args, **kwargs)
        span, context = call
        token = attach(context)
        try:
            result = await function(*args, **kwargs)
        except BaseException as error:
            _detach(token)
            recorder.fail(span, error)
            raise
        _detach(token)
        recorder.succeed(span, result)
        return result

    return traced


def _wrap_generator(function: Callable[..., Any], recorder: CallRecorder) -> Callable[..., Any]:
    @functools.wraps(function)
    def traced(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
        body = function(*args, **kwargs)
        stream = _GeneratorSpan(recorder, recorder.start_span(args, kwargs))
        step, value = body.send, None
        try:
            while True:
                with stream:
                    item = step(value)
                stream.add_item(item)
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


def _wrap_async_generator(function: Callable[..., Any], recorder: CallRecorder) -> Callable[..., Any]:
    @functools.wraps(function)
    async def traced(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, Any]:
        body = function(*args, **kwargs)
        stream = _GeneratorSpan(recorder, recorder.start_span(args, kwargs))
        step, value = body.asend, None
        try:
            while True:
                with stream:
                    item = await step(value)
                stream.add_item(item)
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


def _detach(token: Token[Context]) -> None:
    """Detaches a span's context.

    The garbage collector or the end of an event loop closes an abandoned coroutine or generator in another context. The
    span was never current there, and `opentelemetry.context.detach` would log an error.
    """
    try:
        token.var.reset(token)
    except ValueError:
        pass
    except AttributeError:  # another context implementation than OpenTelemetry's default
        detach(token)


class _GeneratorSpan:
    """The span of one generator. It is current while the generator runs, and never while its consumer runs.

    As a context manager it surrounds one step. It restores the context in which the body stopped: a span that the body
    keeps open across a `yield` stays current for the body only.
    """

    __slots__ = ("_call", "_context", "_items", "_recorder", "_token")

    def __init__(self, recorder: CallRecorder, call: OpenCall | None) -> None:
        self._recorder = recorder
        self._call = call
        self._context = call[1] if call else None
        self._items = StreamedItems()
        self._token: Any = None

    def __enter__(self) -> None:
        if self._context is not None:
            self._token = attach(self._context)

    def __exit__(self, *_: object) -> None:
        if self._context is not None:
            self._context = get_current()
            _detach(self._token)

    def add_item(self, item: object) -> None:
        """Records an item that the generator yielded."""
        if self._call is not None:
            with _ADDING_ITEM:
                self._items.add(item)

    def succeed(self) -> None:
        """Ends the span after the generator was exhausted or closed. A second call does nothing."""
        if self._call is not None:
            (span, _), self._call = self._call, None
            self._recorder.succeed(span, self._items)

    def fail(self, error: BaseException) -> None:
        """Ends the span with an error, unless it has ended."""
        if self._call is not None:
            (span, _), self._call = self._call, None
            self._recorder.fail(span, error)
