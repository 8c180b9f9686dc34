"""The spans of one decorated function: opened with the arguments, ended with a result, a failure, or neither."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from opentelemetry import trace as otel_trace
from opentelemetry.context import _SUPPRESS_INSTRUMENTATION_KEY, Context, get_current
from opentelemetry.trace import Span, Status, StatusCode, TracerProvider, get_tracer_provider, set_span_in_context

from goldspan import semconv
from goldspan._guard import guard
from goldspan._version import __version__
from goldspan.capture import closing
from goldspan.capture.binding import Arguments, Binder
from goldspan.capture.shapes import SHAPES, Kind

_MAX_MESSAGE = 1_000
_OPENING = guard("open a span for a decorated function")
_DESCRIBING = guard("describe the outcome of a decorated function")
_ENDING = guard("end the span of a decorated function")

_NOT_RECORDING = (otel_trace.ProxyTracerProvider, otel_trace.NoOpTracerProvider)


Call: TypeAlias = tuple[Span, Context]
"""One call under way: its span, and the context in which that span is current."""


class _Capture:
    """What is captured of a function's calls while one provider is the application's. Never changes."""

    __slots__ = ("allowed", "arguments", "provider", "result", "tracer")

    def __init__(
        self, provider: TracerProvider | None, arguments: bool | frozenset[str] | None, result: bool | None
    ) -> None:
        self.provider = provider
        self.tracer: otel_trace.Tracer | None = None
        self.arguments = self.result = False
        self.allowed: frozenset[str] | None = None
        if provider is None or isinstance(provider, _NOT_RECORDING):
            return
        self.tracer = provider.get_tracer(semconv.SCOPE, __version__)
        taken = _said() if arguments is None else arguments
        self.arguments = taken is True
        self.allowed = taken if isinstance(taken, frozenset) else None
        self.result = _said() is True if result is None else result


class Recorder:
    """Opens and ends the spans of one function. Its methods never raise, whatever the values do.

    They are on the path of every call, of which most of the time is the SDK's. So what can be looked up beforehand has
    been, and a guard is entered where something has gone wrong: `try` alone costs nothing.
    """

    __slots__ = (
        "_binder",
        "_capture",
        "_input_is_question",
        "_input_key",
        "_labels",
        "_output_key",
        "_said_of_arguments",
        "_said_of_result",
        "_span_name",
        "_write_input",
        "_write_output",
    )

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        kind: Kind,
        name: str,
        golden: str | None = None,
        metrics: tuple[str, ...] = (),
        capture_arguments: bool | frozenset[str] | None = None,
        capture_result: bool | None = None,
        static: bool = False,
    ) -> None:
        shape = SHAPES[kind]
        self._span_name = shape.prefix + name
        self._labels = shape.labels(name)
        self._input_key, self._write_input = shape.input_key, shape.write_input
        self._input_is_question = shape.input_is_question
        self._output_key, self._write_output = shape.output_key, shape.write_output
        if golden is not None:
            self._labels[semconv.GOLDEN_ID] = golden
        if metrics:
            self._labels[semconv.METRICS] = metrics
        self._binder = Binder(function, static=static)
        self._said_of_arguments, self._said_of_result = capture_arguments, capture_result
        self._capture = _Capture(None, None, None)

    def open(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Call | None:
        """Start the span of a call; `None` where nothing listens or instrumentation is suppressed."""
        try:
            here = get_current()
            if here.get(_SUPPRESS_INSTRUMENTATION_KEY):
                return None
            provider, capture = get_tracer_provider(), self._capture
            if provider is not capture.provider:
                # It was set, or in tests replaced, after the function was decorated. Threads that call it for the first
                # time at once each find that out: none sees what another has only half made.
                capture = self._capture = _Capture(provider, self._said_of_arguments, self._said_of_result)
            if capture.tracer is None:
                return None
            attributes = self._labels.copy()
            if capture.arguments:
                binder = self._binder
                written = self._write_input(binder, binder.bind(args, kwargs))
                if written is not None:
                    attributes[self._input_key] = written
            elif capture.allowed is not None:
                attributes.update(self._allowed_input(capture.allowed, self._binder.bind(args, kwargs)))
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
                span.set_attribute(self._output_key, self._write_output(result))
        except Exception:
            with _DESCRIBING:
                raise
        try:
            closing.end(span)
        except Exception:
            with _ENDING:
                raise

    def fail(self, span: Span, error: BaseException) -> None:
        """End the span of a call that raised.

        A call that was interrupted (`CancelledError`, `GeneratorExit`, `KeyboardInterrupt`, `SystemExit`) has neither
        succeeded nor failed: its span ends with the status unset and no result.
        """
        if isinstance(error, Exception):
            with _DESCRIBING:
                _describe(span, error)
        with _ENDING:
            closing.end(span)

    def _allowed_input(self, allowed: frozenset[str], arguments: Arguments) -> dict[str, str]:
        """The input as far as it may be captured; no attribute where nothing of it may: unknown, not empty."""
        question = self._binder.question(arguments) if self._input_is_question else None
        whole = arguments if question is None else {question: arguments[question]}
        part = {name: value for name, value in whole.items() if name in allowed}
        written = self._write_input(self._binder, part) if part or not whole else None
        return {} if written is None else {self._input_key: written}


@functools.cache
def _said() -> bool | frozenset[str]:
    """What the environment says may be captured."""
    from goldspan.capture.settings import captured  # at the first call that is captured, never at an import

    names = captured()
    return names if isinstance(names, bool) else frozenset(names)


def _describe(span: Span, error: Exception) -> None:
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
