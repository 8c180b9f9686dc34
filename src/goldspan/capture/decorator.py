"""`@goldspan.trace`: creates a span for each call of a tool, an agent or a component."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast, get_args, overload

from goldspan.capture.call_spans import CallRecorder, wrap_callable
from goldspan.capture.span_attributes import TracedKind
from goldspan.errors import ConfigurationError

if TYPE_CHECKING:
    from goldspan.scoring.metrics import MetricLike

F = TypeVar("F", bound="Callable[..., Any] | classmethod[Any, ..., Any] | staticmethod[..., Any]")


class TraceDecorator(Protocol):
    """A decorator that keeps the type of the decorated function."""

    def __call__(self, function: F, /) -> F:
        """Decorates a function."""
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
    """Creates a span for each call of a tool (the default), an agent or a component.

    Works on functions, coroutine functions, generators, async generators, methods, class methods and static methods,
    above or below `@classmethod` and `@staticmethod`. The decorated function keeps its signature, its result and its
    exceptions.

    The span of a generator starts with its first step and ends when the generator is exhausted, closed or collected;
    its result is the list of yielded items. A call that is cancelled or interrupted ends with the status unset and
    without a result. Captured text is truncated with an ellipsis.

    Args:
        function: The function, when the decorator is used without parentheses.
        kind: `"tool"`: the execution of one tool, with arguments and result as JSON. `"agent"`: a request, of which the
            tools called inside are scored. `"component"`: a part of a request that is scored separately as well. The
            input of an agent or a component is the last user message in the argument `messages`; else the first text
            argument; else the last user message in another argument; else all arguments as JSON. The golden is looked
            up by this input unless `golden` is set.
        name: The name of the tool, agent or component. Default: the function's name.
        golden: The id of the golden of an agent or a component.
        metrics: The metrics to compute, by name or as functions registered with `@goldspan.metric`, instead of those
            that the golden lists.
        capture_arguments: `False` captures no arguments; a list of names captures these arguments only (and the input
            of an agent or a component only if its parameter is listed). Default: `GOLDSPAN_CAPTURE_ARGUMENTS`, which is
            `on`, `off`, or a list of names, which also disables results.
        capture_result: `False` captures no result. Default: `GOLDSPAN_CAPTURE_ARGUMENTS`.

    Returns:
        The decorated function, or a decorator when called without a function.

    Raises:
        ConfigurationError: If the kind is unknown, a tool has a golden or metrics, a metric is not registered,
            `capture_arguments` is not a list of names, or the decorated object is not callable.
    """
    _check_options(kind, golden, metrics)
    names = _metric_names(metrics)
    arguments = _argument_names(capture_arguments)

    def decorate(function: F) -> F:
        plain, static = _unwrap_method(function)
        _traced_kinds.add(kind)
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


_traced_kinds: set[TracedKind] = set()


def has_traced_tools() -> bool:
    """Returns whether a tool of this process is decorated: then a call of it would show."""
    return "tool" in _traced_kinds


def _check_options(kind: str, golden: str | None, metrics: Iterable[MetricLike] | None) -> None:
    kinds = get_args(TracedKind)
    if kind not in kinds:
        raise ConfigurationError(f"@goldspan.trace(kind={kind!r}): kind must be one of {', '.join(kinds)}")
    for option, value in (("golden", golden), ("metrics", metrics)):
        if value is not None and kind == "tool":
            raise ConfigurationError(
                f"@goldspan.trace({option}=...): only an agent or a component can have {_OPTION_NOUNS[option]}"
            )


_OPTION_NOUNS = {"golden": "a golden", "metrics": "metrics"}


def _metric_names(metrics: Iterable[MetricLike] | None) -> tuple[str, ...]:
    """Returns the registered names of the metrics; the span refers to a metric by name."""
    if metrics is None:
        return ()
    if isinstance(metrics, str) or not isinstance(metrics, Iterable):
        raise ConfigurationError(f"@goldspan.trace(metrics=...): metrics must be a list, not {metrics!r}")
    from goldspan.scoring.metrics.registry import registered_name  # few decorators name metrics: do not load the others

    return tuple(dict.fromkeys(map(registered_name, metrics)))


def _argument_names(captured: bool | Iterable[str] | None) -> bool | frozenset[str] | None:
    """Returns whether arguments are captured, or the names of the captured arguments."""
    if captured is None or isinstance(captured, bool):
        return captured
    names = None if isinstance(captured, str) or not isinstance(captured, Iterable) else list(captured)
    if names is None or not all(isinstance(name, str) for name in names):
        raise ConfigurationError(
            f"@goldspan.trace(capture_arguments=...): must be True, False or a list of names, not {captured!r}"
        )
    return frozenset(names)


def _unwrap_method(function: object) -> tuple[Callable[..., Any], bool]:
    """Returns the plain function, and whether it is a static method."""
    if isinstance(function, (classmethod, staticmethod)):
        return function.__func__, isinstance(function, staticmethod)
    if inspect.isclass(function) or not callable(function):
        raise ConfigurationError(
            f"@goldspan.trace decorates functions and methods, not {function!r}; decorate the methods of a class"
        )
    return function, False


def _function_name(function: Callable[..., Any]) -> str:
    """Returns the function's name, or for a `functools.partial` or callable object that of its function or type."""
    while isinstance(function, functools.partial):
        function = function.func
    return getattr(function, "__name__", None) or type(function).__name__
