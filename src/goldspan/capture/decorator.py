"""`@goldspan.trace`: a decorator that makes a span of every call of a tool, an agent or a component."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast, get_args, overload

from goldspan.capture.recording import Recorder
from goldspan.capture.shapes import Kind
from goldspan.capture.wrapping import wrap
from goldspan.errors import ConfigurationError

if TYPE_CHECKING:
    from goldspan.scoring.metrics import MetricLike

F = TypeVar("F", bound="Callable[..., Any] | classmethod[Any, ..., Any] | staticmethod[..., Any]")


class Decorator(Protocol):
    """Gives back what it is put on, with the same signature."""

    def __call__(self, function: F, /) -> F:
        """Decorate."""
        ...


@overload
def trace(function: F, /) -> F: ...


@overload
def trace(
    *,
    kind: Kind = "tool",
    name: str | None = None,
    golden: str | None = None,
    metrics: Iterable[MetricLike] | None = None,
    capture_arguments: bool | Iterable[str] | None = None,
    capture_result: bool | None = None,
) -> Decorator: ...


def trace(
    function: F | None = None,
    /,
    *,
    kind: Kind = "tool",
    name: str | None = None,
    golden: str | None = None,
    metrics: Iterable[MetricLike] | None = None,
    capture_arguments: bool | Iterable[str] | None = None,
    capture_result: bool | None = None,
) -> F | Decorator:
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
    _check(kind, golden, metrics)
    names = _metric_names(metrics)
    arguments = _argument_names(capture_arguments)

    def decorate(function: F) -> F:
        plain, static = _callable(function)
        recorder = Recorder(
            plain,
            kind=kind,
            name=name or _name_of(plain),
            golden=golden,
            metrics=names,
            capture_arguments=arguments,
            capture_result=capture_result,
            static=static,
        )
        traced: Any = wrap(plain, recorder)
        if isinstance(function, (classmethod, staticmethod)):
            traced = type(function)(traced)
        return cast(F, traced)

    return cast(Decorator, decorate) if function is None else decorate(function)


def _check(kind: str, golden: str | None, metrics: Iterable[MetricLike] | None) -> None:
    kinds = get_args(Kind)
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
    from goldspan.scoring.registry import registered_name  # most decorators name none, and need not load it

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


def _callable(function: object) -> tuple[Callable[..., Any], bool]:
    """The function itself, and whether it is known to have no receiver."""
    if isinstance(function, (classmethod, staticmethod)):
        return function.__func__, isinstance(function, staticmethod)
    if inspect.isclass(function) or not callable(function):
        raise ConfigurationError(
            f"@goldspan.trace is for functions and methods, not for {function!r}; decorate a class's methods one by one"
        )
    return function, False


def _name_of(function: Callable[..., Any]) -> str:
    """The name people know it by; `functools.partial` and callable objects have none of their own."""
    while isinstance(function, functools.partial):
        function = function.func
    return getattr(function, "__name__", None) or type(function).__name__
