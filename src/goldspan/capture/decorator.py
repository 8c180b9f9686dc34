"""`@goldspan.trace`: a decorator that makes a span of every call of a tool, an agent or a component."""

from __future__ import annotations

import functools
import inspect
from collections.abc import AsyncGenerator, Callable, Generator, Iterable
from contextvars import Token
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast, get_args, overload

from opentelemetry.context import Context, attach, detach, get_current

from goldspan._guard import suppress_errors
from goldspan.capture.bounded_json import StreamedItems
from goldspan.capture.call_spans import CallRecorder, OpenCall
from goldspan.capture.span_attributes import TracedKind
from goldspan.errors import ConfigurationError

if TYPE_CHECKING:
    from goldspan.scoring.metrics import MetricLike

_ADDING_ITEM = suppress_errors("note what a decorated generator yielded")


def wrap_callable(function: Callable[..., Any], recorder: CallRecorder) -> Callable[..., Any]:
    """The function with a span around each of its calls."""
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


class _GeneratorSpan:
    """One run of a generator: its span is current while the generator works, and never while its consumer does.

    As a context manager it surrounds one step. The context in which the body leaves off is the one in which it goes on:
    a span that the body itself keeps open across a `yield` stays current for the body, and for nobody else.
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
        """Remember what was yielded."""
        if self._call is not None:
            with _ADDING_ITEM:
                self._items.add(item)

    def succeed(self) -> None:
        """End the span: the generator ran out, or its consumer had enough. Ending twice does nothing."""
        if self._call is not None:
            (span, _), self._call = self._call, None
            self._recorder.succeed(span, self._items)

    def fail(self, error: BaseException) -> None:
        """End the span, unless that has been done."""
        if self._call is not None:
            (span, _), self._call = self._call, None
            self._recorder.fail(span, error)


F = TypeVar("F", bound="Callable[..., Any] | classmethod[Any, ..., Any] | staticmethod[..., Any]")


class TraceDecorator(Protocol):
    """Gives back what it is put on, with the same signature."""

    def __call__(self, function: F, /) -> F:
        """Decorate."""
        ...


@overload
def trace(function: F, /) -> F: ...


@overload
def trace(
    *,
    kind: TracedKind = "tool",
    name: str | None = None,
    golden: str | None = None,
    metrics: Iterable[MetricLike] | None = None,
    capture_arguments: bool | Iterable[str] | None = None,
    capture_result: bool | None = None,
) -> TraceDecorator: ...


def trace(
    function: F | None = None,
    /,
    *,
    kind: TracedKind = "tool",
    name: str | None = None,
    golden: str | None = None,
    metrics: Iterable[MetricLike] | None = None,
    capture_arguments: bool | Iterable[str] | None = None,
    capture_result: bool | None = None,
) -> F | TraceDecorator:
    """Make a span of every call: of a tool by default, of an agent or a component where `kind` says so.

    Works on functions, coroutine functions, generators and async generators, on methods, class methods and static
    methods, above or below `@classmethod` and `@staticmethod`. The decorated function looks, runs and raises as before.

    - `kind="tool"`: one tool being executed, with its arguments and its result as JSON.
    - `kind="agent"`: a request: the tools called inside are what is scored. Its input, by which a golden is found
      unless `golden` names one, is what the user said last in the argument `messages`; else the first argument that is
      text, else messages by another name or in a state, else all arguments as JSON.
    - `kind="component"`: an inner part that is scored by itself as well.

    `golden` is the id of its golden. `metrics` are those to measure, by their names or as functions that
    `@goldspan.metric` registered; they go before those that the golden lists.

    `capture_arguments=False` and `capture_result=False` keep content out of the span. Names are the only arguments that
    may be captured; the input of an agent or a component is, where the parameter that holds it is named. What is left
    out is as `GOLDSPAN_CAPTURE_ARGUMENTS` says: `on`, which is the default; `off` for neither; or names, and no result.

    `name` is by default the function's own. The span of a generator begins with its first step and ends when it is
    exhausted, closed or collected; its result is what it yielded. A call that is cancelled or otherwise interrupted
    ends with the status unset and no result. Captured text is bounded: longer text ends in an ellipsis.

    Raises `ConfigurationError` on an unknown kind, a golden or metrics for a tool, a metric without a registered name,
    arguments that are no list of names, and on what cannot be called.
    """
    _check_options(kind, golden, metrics)
    names = _metric_names(metrics)
    arguments = _argument_names(capture_arguments)

    def decorate(function: F) -> F:
        plain, static = _unwrap_method(function)
        recorder = CallRecorder(
            plain,
            kind=kind,
            name=name or _function_name(plain),
            golden=golden,
            metrics=names,
            capture_arguments=arguments,
            capture_result=capture_result,
            static=static,
        )
        traced: Any = wrap_callable(plain, recorder)
        if isinstance(function, (classmethod, staticmethod)):
            traced = type(function)(traced)
        return cast(F, traced)

    return cast(TraceDecorator, decorate) if function is None else decorate(function)


def _check_options(kind: str, golden: str | None, metrics: Iterable[MetricLike] | None) -> None:
    kinds = get_args(TracedKind)
    if kind not in kinds:
        raise ConfigurationError(f"@goldspan.trace(kind={kind!r}): the kind is one of {', '.join(kinds)}")
    for what, given in (("golden", golden), ("metrics", metrics)):
        if given is not None and kind == "tool":
            raise ConfigurationError(
                f"@goldspan.trace({what}=...): an agent or a component has {_ARTICLES[what]}, a tool has none"
            )


_ARTICLES = {"golden": "a golden", "metrics": "metrics"}


def _metric_names(metrics: Iterable[MetricLike] | None) -> tuple[str, ...]:
    """The names under which the metrics are found wherever the span is read."""
    if metrics is None:
        return ()
    if isinstance(metrics, str) or not isinstance(metrics, Iterable):
        raise ConfigurationError(f"@goldspan.trace(metrics=...): metrics are a list, not {metrics!r}")
    from goldspan.scoring.metrics.registry import registered_name  # most decorators name none, and need not load it

    return tuple(dict.fromkeys(map(registered_name, metrics)))


def _argument_names(captured: bool | Iterable[str] | None) -> bool | frozenset[str] | None:
    """Whether arguments are captured, or only which."""
    if captured is None or isinstance(captured, bool):
        return captured
    names = None if isinstance(captured, str) or not isinstance(captured, Iterable) else list(captured)
    if names is None or not all(isinstance(name, str) for name in names):
        raise ConfigurationError(
            f"@goldspan.trace(capture_arguments=...): True, False or a list of names, not {captured!r}"
        )
    return frozenset(names)


def _unwrap_method(function: object) -> tuple[Callable[..., Any], bool]:
    """The function itself, and whether it is known to have no receiver."""
    if isinstance(function, (classmethod, staticmethod)):
        return function.__func__, isinstance(function, staticmethod)
    if inspect.isclass(function) or not callable(function):
        raise ConfigurationError(
            f"@goldspan.trace is for functions and methods, not for {function!r}; decorate a class's methods one by one"
        )
    return function, False


def _function_name(function: Callable[..., Any]) -> str:
    """The name people know it by; `functools.partial` and callable objects have none of their own."""
    while isinstance(function, functools.partial):
        function = function.func
    return getattr(function, "__name__", None) or type(function).__name__
