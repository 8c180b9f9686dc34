"""What a running program says of its work: `goldspan.update_current_span` and `goldspan.expect`."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar, cast

from opentelemetry import baggage
from opentelemetry.context import Context, attach, create_key, detach, get_current, set_value
from opentelemetry.trace import SpanContext, get_current_span
from opentelemetry.util.types import AttributeValue

from goldspan import semconv
from goldspan._guard import guard
from goldspan.capture.serialization import to_json
from goldspan.capture.shapes import clipped
from goldspan.errors import ConfigurationError
from goldspan.goldens.words import shown

if TYPE_CHECKING:
    from goldspan.model import ToolDefinition
    from goldspan.scoring.calls import ToolLike

F = TypeVar("F", bound="Callable[..., Any] | classmethod[Any, ..., Any] | staticmethod[..., Any]")

Attributes = dict[str, AttributeValue]


def update_current_span(
    *,
    input: object = None,  # noqa: A002 - what it is called everywhere else
    output: object = None,
    expected_tools: Iterable[ToolLike] | None = None,
    golden: str | None = None,
    available_tools: Iterable[str | Mapping[str, Any] | ToolDefinition] | None = None,
    metadata: Mapping[str, object] | None = None,
) -> None:
    """Say something of the work of the current span, while it goes on. What is left out stays as it is.

    - `input`, `output`: what was asked and answered, in place of what the span otherwise shows; what is no text becomes
      JSON. They count on the span of a request, an agent or a component.
    - `expected_tools`: the calls that are expected, as in a golden's `tools`: names, dictionaries, `ExpectedTool`. They
      go before every golden.
    - `golden`: the id of the golden.
    - `available_tools`: the tools that the model may choose from, by name or with their definitions.
    - `metadata`: anything else, by name; it is kept with the run.

    The last that is said counts. Nothing is raised: what cannot be written is logged once and left out. Without a span
    that records, nothing happens.
    """
    span = get_current_span()
    if not span.is_recording():
        return
    said = {
        "input": input,
        "output": output,
        "expected_tools": expected_tools,
        "golden": golden,
        "available_tools": available_tools,
        "metadata": metadata,
    }
    span.set_attributes(_written(said))


class expect:  # noqa: N801 - reads as a statement: `with goldspan.expect(golden="refund"):`
    """Say what is expected of everything that starts inside: `with`, `async with`, or as a decorator of a function.

        with goldspan.expect(golden="refund-1"):
            agent("I want my money back.")

    `golden` is the id of a golden; it also travels to other services, as the baggage `goldspan.golden.id`. `tools` are
    the expected calls themselves, as in a golden's `tools`, and go before every golden. `metadata` is kept with the
    run. A `ScoringProcessor` puts them on the outermost spans that start inside. Blocks inside each other add up, and
    of two that say the same thing the inner one counts. One block may be entered often, also by threads and tasks at
    the same time.

    Nothing is raised when a block is entered: what cannot be written is logged once and left out. As a decorator it is
    for functions, coroutine functions and methods of every sort. It raises `ConfigurationError` for generators, whose
    consumer is outside (put the block around their consumption), for classes, and where it says nothing of what is
    expected, as `@goldspan.expect` without parentheses.
    """

    __slots__ = ("_attributes",)

    def __init__(
        self,
        golden: str | None = None,
        *,
        tools: Iterable[ToolLike] | None = None,
        metadata: Mapping[str, object] | None = None,
    ) -> None:
        if callable(golden):  # it would take the place of the function, which would never run
            raise ConfigurationError(
                "@goldspan.expect says what is expected: the id of a golden, as in @goldspan.expect('refund'), or tools"
            )
        self._attributes = _written({"golden": golden, "expected_tools": tools, "metadata": metadata})

    def __enter__(self) -> None:
        global in_use
        in_use = True
        here = get_current()
        entered_in = get_current_span(here).get_span_context().span_id
        around = here.get(_EXPECTED)
        attributes = self._attributes
        if isinstance(around, _Expected) and around.entered_in == entered_in:
            attributes = {**around.attributes, **attributes}
        inside = set_value(_EXPECTED, _Expected(attributes, entered_in), here)
        if semconv.GOLDEN_ID in self._attributes:
            inside = baggage.set_baggage(semconv.GOLDEN_ID, self._attributes[semconv.GOLDEN_ID], inside)
        _entered.set((*_entered.get(), (self, attach(inside))))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        entered = _entered.get()
        at = next((at for at in reversed(range(len(entered))) if entered[at][0] is self), None)
        if at is not None:  # otherwise it was entered in another context, which ended with its thread or task
            detach(entered[at][1])
            _entered.set(entered[:at] + entered[at + 1 :])

    async def __aenter__(self) -> None:
        self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.__exit__(kind, error, traceback)

    def __call__(self, function: F) -> F:
        """The function with a block around each of its calls."""
        if isinstance(function, (classmethod, staticmethod)):
            return cast(F, type(function)(self(function.__func__)))
        _check(function)
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def awaited(*args: Any, **kwargs: Any) -> Any:
                with self:
                    return await function(*args, **kwargs)

            return cast(F, awaited)

        @functools.wraps(function)
        def called(*args: Any, **kwargs: Any) -> Any:
            with self:
                return function(*args, **kwargs)

        return cast(F, called)


_entered: ContextVar[tuple[tuple[expect, Any], ...]] = ContextVar("goldspan-entered", default=())
"""The blocks that were entered here, each with what its end gives back. Threads and tasks may share a block, and each
of them ends its own."""


def _check(function: object) -> None:
    """Refuse what cannot be called inside a block."""
    if inspect.isclass(function) or not callable(function):
        raise ConfigurationError(
            f"@goldspan.expect is for functions and methods, not for {shown(function)}; "
            "decorate a class's methods one by one"
        )
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise ConfigurationError(
            f"@goldspan.expect is for functions and coroutine functions, and {shown(function)} is a generator; "
            "put `with goldspan.expect(...):` around the loop that consumes it"
        )


@dataclass(frozen=True, slots=True)
class _Expected:
    """What a block says, as it stands in the context."""

    attributes: Attributes
    entered_in: int
    """The id of the span that was current when the block was entered, 0 for none: only its children are outermost."""


_EXPECTED = create_key("goldspan-expected")
in_use = False
"""Whether this process has ever said what it expects: most never do, and each of their spans would be asked."""


def expected_attributes(context: Context | None, parent: SpanContext | None) -> Attributes | None:
    """The attributes that a span is to have that starts in a context, below a parent; `None` for nearly every span.

    They are for the outermost spans inside an `expect` block. A golden's id that came as baggage, from another service
    or by other means, is for the spans that begin a process's part of a trace. The dictionary is shared: nobody may
    change it.
    """
    inside = parent is not None and not parent.is_remote
    if inside and not in_use:
        return None
    here = get_current() if context is None else context
    expected = here.get(_EXPECTED)
    if isinstance(expected, _Expected) and (parent is None or parent.span_id == expected.entered_in):
        return expected.attributes
    if inside:
        return None
    golden = baggage.get_baggage(semconv.GOLDEN_ID, here)
    return {semconv.GOLDEN_ID: golden} if isinstance(golden, str) and golden else None


# --- as attributes ----------------------------------------------------------------------------------------------------


def _written(said: Mapping[str, object]) -> Attributes:
    """What is said as attributes of a span; what cannot be written is reported and left out."""
    attributes: Attributes = {}
    for what, value in said.items():
        if value is not None:
            write, guarded = _WRITERS[what]
            with guarded:
                attributes.update(write(value))
    return attributes


def _input(value: object) -> Attributes:
    return {semconv.INPUT: _text(value)}


def _output(value: object) -> Attributes:
    return {semconv.OUTPUT: _text(value)}


def _text(value: object) -> str:
    return clipped(_whole(value)) if isinstance(value, str) else to_json(value)


def _whole(text: str) -> str:
    """The text as UTF-8 can hold it: exporters leave out an attribute with half a surrogate pair in it."""
    return text if text.isascii() else text.encode(errors="replace").decode()


def _golden(value: object) -> Attributes:
    if not isinstance(value, str) or not value:
        raise ConfigurationError(f"a golden is named by its id, a text, not by {shown(value)}")
    return {semconv.GOLDEN_ID: _whole(value)}


def _expected_tools(value: object) -> Attributes:
    from goldspan.capture.wording import expected_words

    return {semconv.EXPECTED_TOOLS: to_json(expected_words(value))}


def _available_tools(value: object) -> Attributes:
    from goldspan.capture.wording import definition_words

    return {semconv.TOOL_DEFINITIONS: to_json(definition_words(value))}


def _metadata(value: object) -> Attributes:
    if not isinstance(value, Mapping):
        raise ConfigurationError(f"metadata is a dictionary, not {shown(value)}")
    return {_whole(f"{semconv.METADATA_PREFIX}{key}"): _scalar(each) for key, each in value.items() if each is not None}


def _scalar(value: object) -> AttributeValue:
    if isinstance(value, int) and not -_INT64 <= value < _INT64:
        return to_json(value)
    return value if isinstance(value, bool | int | float) else _text(value)


_INT64 = 1 << 63
"""OTLP has no greater numbers."""


_WRITERS: Mapping[str, tuple[Callable[[object], Attributes], guard]] = {
    what: (write, guard(f"write {what} on a span"))
    for what, write in (
        ("input", _input),
        ("output", _output),
        ("expected_tools", _expected_tools),
        ("golden", _golden),
        ("available_tools", _available_tools),
        ("metadata", _metadata),
    )
}
