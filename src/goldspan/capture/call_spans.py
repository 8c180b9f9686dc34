"""The spans of one decorated function: opened with the arguments, ended with a result, a failure, or neither."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from time import time_ns
from typing import Any, Protocol, TypeAlias

from opentelemetry import trace as otel_trace
from opentelemetry.context import _SUPPRESS_INSTRUMENTATION_KEY, Context, get_current
from opentelemetry.trace import Span, Status, StatusCode, TracerProvider, get_tracer_provider, set_span_in_context

from goldspan import semconv
from goldspan._guard import suppress_errors
from goldspan._locks import ForkSafeLock
from goldspan._version import __version__
from goldspan.capture.span_attributes import SPAN_TEMPLATES, ArgumentBinder, BoundArguments, TracedKind

_NOTIFYING = suppress_errors("score a span before it ends")


class SpanEndListener(Protocol):
    """Is told of every decorated span just before it ends.

    Called once a span on the thread that ends it, in the order of registration; what it raises is logged and counted.
    """

    def before_span_end(self, span: Span, end_ns: int) -> None:
        """Put results on a span that will end at `end_ns`."""
        ...


_listeners: tuple[SpanEndListener, ...] = ()
_listeners_lock = ForkSafeLock()


def add_span_end_listener(listener: SpanEndListener) -> None:
    """Tell it from now on."""
    global _listeners
    with _listeners_lock:
        _listeners = (*_listeners, listener)


def remove_span_end_listener(listener: SpanEndListener) -> None:
    """Tell it no more. One that is not registered is fine."""
    global _listeners
    with _listeners_lock:
        _listeners = tuple(known for known in _listeners if known is not listener)


def end_span(span: Span) -> None:
    """End a decorated span, with its results on it where somebody has some."""
    if not _listeners:
        span.end()
        return
    end_ns = time_ns()
    for closer in _listeners:
        with _NOTIFYING:
            closer.before_span_end(span, end_ns)
    span.end(end_ns)


_MAX_MESSAGE = 1_000
_OPENING = suppress_errors("open a span for a decorated function")
_RECORDING_OUTCOME = suppress_errors("describe the outcome of a decorated function")
_ENDING = suppress_errors("end the span of a decorated function")

_NOT_RECORDING = (otel_trace.ProxyTracerProvider, otel_trace.NoOpTracerProvider)


OpenCall: TypeAlias = tuple[Span, Context]
"""One call under way: its span, and the context in which that span is current."""


class _CaptureSettings:
    """What is captured of a function's calls while one provider is the application's. Never changes."""

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
        taken = _default_capture() if arguments is None else arguments
        self.arguments = taken is True
        self.allowed_arguments = taken if isinstance(taken, frozenset) else None
        self.result = _default_capture() is True if result is None else result


class CallRecorder:
    """Opens and ends the spans of one function. Its methods never raise, whatever the values do.

    They are on the path of every call, of which most of the time is the SDK's. So what can be looked up beforehand has
    been, and a guard is entered where something has gone wrong: `try` alone costs nothing.
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
        shape = SPAN_TEMPLATES[kind]
        self._span_name = shape.name_prefix + name
        self._constant_attributes = shape.constant_attributes(name)
        self._input_key, self._encode_input = shape.input_key, shape.encode_input
        self._input_is_request = shape.input_is_request
        self._output_key, self._encode_output = shape.output_key, shape.encode_output
        if golden is not None:
            self._constant_attributes[semconv.GOLDEN_ID] = golden
        if metrics:
            self._constant_attributes[semconv.METRICS] = metrics
        self._binder = ArgumentBinder(function, static=static)
        self._configured_arguments, self._configured_result = capture_arguments, capture_result
        self._capture = _CaptureSettings(None, None, None)

    def start_span(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> OpenCall | None:
        """Start the span of a call; `None` where nothing listens or instrumentation is suppressed."""
        try:
            here = get_current()
            if here.get(_SUPPRESS_INSTRUMENTATION_KEY):
                return None
            provider, capture = get_tracer_provider(), self._capture
            if provider is not capture.provider:
                # It was set, or in tests replaced, after the function was decorated. Threads that call it for the first
                # time at once each find that out: none sees what another has only half made.
                capture = self._capture = _CaptureSettings(
                    provider, self._configured_arguments, self._configured_result
                )
            if capture.tracer is None:
                return None
            attributes = self._constant_attributes.copy()
            if capture.arguments:
                binder = self._binder
                written = self._encode_input(binder, binder.bind(args, kwargs))
                if written is not None:
                    attributes[self._input_key] = written
            elif capture.allowed_arguments is not None:
                attributes.update(self._filtered_input(capture.allowed_arguments, self._binder.bind(args, kwargs)))
            span = capture.tracer.start_span(self._span_name, here, attributes=attributes)
            return span, set_span_in_context(span, here)
        except Exception:
            with _OPENING:
                raise
        return None

    def succeed(self, span: Span, result: object) -> None:
        """End the span of a call that returned."""
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
        """End the span of a call that raised.

        A call that was interrupted (`CancelledError`, `GeneratorExit`, `KeyboardInterrupt`, `SystemExit`) has neither
        succeeded nor failed: its span ends with the status unset and no result.
        """
        if isinstance(error, Exception):
            with _RECORDING_OUTCOME:
                _record_error(span, error)
        with _ENDING:
            end_span(span)

    def _filtered_input(self, allowed: frozenset[str], arguments: BoundArguments) -> dict[str, str]:
        """The input as far as it may be captured; no attribute where nothing of it may: unknown, not empty."""
        question = self._binder.request_argument(arguments) if self._input_is_request else None
        whole = arguments if question is None else {question: arguments[question]}
        part = {name: value for name, value in whole.items() if name in allowed}
        written = self._encode_input(self._binder, part) if part or not whole else None
        return {} if written is None else {self._input_key: written}


@functools.cache
def _default_capture() -> bool | frozenset[str]:
    """What the environment says may be captured."""
    from goldspan.capture.environment import (
        captured_arguments,  # at the first call that is captured, never at an import
    )

    names = captured_arguments()
    return names if isinstance(names, bool) else frozenset(names)


def _record_error(span: Span, error: Exception) -> None:
    kind = type(error)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    span.set_attribute(semconv.ERROR_TYPE, name)
    try:
        message = str(error)[:_MAX_MESSAGE]
    except Exception:  # noqa: BLE001 - an exception of the application may fail even to say what it is
        span.set_status(Status(StatusCode.ERROR, name))
        return
    span.set_status(Status(StatusCode.ERROR, f"{name}: {message}" if message else name))
    span.record_exception(error)
