"""What a running program says of its work: `goldspan.update_current_span` and `goldspan.expect`."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, fields
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar, cast

from opentelemetry import baggage
from opentelemetry.context import Context, attach, create_key, detach, get_current, set_value
from opentelemetry.trace import SpanContext, get_current_span
from opentelemetry.util.types import AttributeValue

from goldspan import semconv
from goldspan._guard import suppress_errors
from goldspan.capture.bounded_json import to_json
from goldspan.capture.span_attributes import truncate_text
from goldspan.errors import ConfigurationError
from goldspan.goldens.spelling import short_repr
from goldspan.model import ABSENT, ONCE, AnyOf, ExpectedItem, ExpectedTool, Parallel, Times, ToolDefinition
from goldspan.model.value_matchers import MATCHER_KEYS, MATCHERS, Equal

if TYPE_CHECKING:
    from goldspan.model import ToolDefinition
    from goldspan.scoring.coercion import ToolLike

_MATCHER_KEYS = frozenset(MATCHER_KEYS.values())


def encode_expected_tools(expected: object) -> list[Any]:
    """A list of expected tools as a golden's `tools` has it. Raises `ConfigurationError` for what is none.

    What dictionaries say is not looked at: whoever finds the golden of a run says what is wrong with them.
    """
    return [_encode_expected(item) for item in _require_list(expected, "expected tools")]


def encode_tool_definitions(tools: object) -> list[Any]:
    """A list of tools that are offered, each a name or a definition. Raises `ConfigurationError` for what is none."""
    return [_encode_definition(tool) for tool in _require_list(tools, "available tools")]


def _require_list(value: object, what: str) -> Iterable[Any]:
    if isinstance(value, str | Mapping) or not isinstance(value, Iterable):
        raise ConfigurationError(f"{what} are a list, not {short_repr(value)}")
    return value


def _encode_expected(item: object) -> Any:
    if isinstance(item, ExpectedTool | AnyOf | Parallel):
        return _encode_item(item)
    if isinstance(item, Mapping):
        return _encode_matchers(item)
    if isinstance(item, str) and item:
        return item
    raise ConfigurationError(f"an expected tool is a name, a dictionary or an ExpectedTool, not {short_repr(item)}")


def _encode_item(item: ExpectedItem) -> Any:
    if isinstance(item, Parallel):
        return {"parallel": [_encode_item(each) for each in item.items]}
    if isinstance(item, AnyOf):
        options = [[_encode_item(each) for each in option] for option in item.options]
        return {
            "any_of": [option[0] if len(option) == 1 else option for option in options],
            **_encode_times(item.times),
        }
    said = {
        "arguments": None
        if item.arguments is None
        else {key: _encode_literal(value) for key, value in item.arguments.items()},
        "server": item.server,
        "match": item.match if item.match != "exact" else None,
        "ignore": list(item.ignore) or None,
        "defaults": dict(item.defaults) or None,
        "agent": item.agent,
    }
    words = {key: value for key, value in said.items() if value is not None} | _encode_times(item.times)
    if item.result is not ABSENT:
        words["result"] = _encode_literal(item.result)
    return {"name": item.name, **words} if words else item.name


def _encode_times(times: Times) -> dict[str, Any]:
    if times == ONCE:
        return {}
    if times == Times(0, 1):
        return {"optional": True}
    if times.least == times.most:
        return {"times": times.most}
    return {"times": {"min": times.least} if times.most is None else {"min": times.least, "max": times.most}}


def _encode_literal(value: Any) -> Any:
    """A value that is meant as it is, unless it is a matcher; data that look like one are marked as data."""
    if isinstance(value, MATCHERS):
        return _encode_matchers(value)
    if isinstance(value, Mapping):
        return (
            {"equal": dict(value)}
            if _MATCHER_KEYS & value.keys()
            else {key: _encode_literal(each) for key, each in value.items()}
        )
    return [_encode_literal(each) for each in value] if isinstance(value, list | tuple) else value


def _encode_matchers(value: Any) -> Any:
    """A value with matchers in it as a golden file writes them."""
    if isinstance(value, ExpectedTool | AnyOf | Parallel):
        return _encode_item(value)
    if isinstance(value, MATCHERS):
        said = {field.name: getattr(value, field.name) for field in fields(value)}
        word, *options = said or {"": True}
        inner = said.get(word, True)
        told = {MATCHER_KEYS[type(value)]: inner if isinstance(value, Equal) else _encode_literal(inner)}
        return told | {option: said[option] for option in options if said[option] is not None}
    if isinstance(value, Mapping):
        return {key: _encode_matchers(each) for key, each in value.items()}
    return [_encode_matchers(each) for each in value] if isinstance(value, list | tuple) else value


def _encode_definition(tool: object) -> Any:
    if isinstance(tool, str) and tool:
        return {"type": "function", "name": tool}
    if isinstance(tool, Mapping):
        return tool
    if isinstance(tool, ToolDefinition):
        said = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
        hints = {} if tool.read_only is None else {"annotations": {"readOnlyHint": tool.read_only}}
        return {"type": "function", **{key: value for key, value in said.items() if value is not None}, **hints}
    raise ConfigurationError(f"an available tool is a name, a dictionary or a ToolDefinition, not {short_repr(tool)}")


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
    span.set_attributes(_encode_annotations(said))


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
        self._attributes = _encode_annotations({"golden": golden, "expected_tools": tools, "metadata": metadata})

    def __enter__(self) -> None:
        global has_expectations
        has_expectations = True
        here = get_current()
        parent_span_id = get_current_span(here).get_span_context().span_id
        around = here.get(_EXPECTATION_KEY)
        attributes = self._attributes
        if isinstance(around, _ActiveExpectation) and around.parent_span_id == parent_span_id:
            attributes = {**around.attributes, **attributes}
        inside = set_value(_EXPECTATION_KEY, _ActiveExpectation(attributes, parent_span_id), here)
        if semconv.GOLDEN_ID in self._attributes:
            inside = baggage.set_baggage(semconv.GOLDEN_ID, self._attributes[semconv.GOLDEN_ID], inside)
        _entered_blocks.set((*_entered_blocks.get(), (self, attach(inside))))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        entered = _entered_blocks.get()
        at = next((at for at in reversed(range(len(entered))) if entered[at][0] is self), None)
        if at is not None:  # otherwise it was entered in another context, which ended with its thread or task
            detach(entered[at][1])
            _entered_blocks.set(entered[:at] + entered[at + 1 :])

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
        _check_decoratable(function)
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


_entered_blocks: ContextVar[tuple[tuple[expect, Any], ...]] = ContextVar("goldspan-entered", default=())
"""The blocks that were entered here, each with what its end gives back. Threads and tasks may share a block, and each
of them ends its own."""


def _check_decoratable(function: object) -> None:
    """Refuse what cannot be called inside a block."""
    if inspect.isclass(function) or not callable(function):
        raise ConfigurationError(
            f"@goldspan.expect is for functions and methods, not for {short_repr(function)}; "
            "decorate a class's methods one by one"
        )
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise ConfigurationError(
            f"@goldspan.expect is for functions and coroutine functions, and {short_repr(function)} is a generator; "
            "put `with goldspan.expect(...):` around the loop that consumes it"
        )


@dataclass(frozen=True, slots=True)
class _ActiveExpectation:
    """What a block says, as it stands in the context."""

    attributes: Attributes
    parent_span_id: int
    """The id of the span that was current when the block was entered, 0 for none: only its children are outermost."""


_EXPECTATION_KEY = create_key("goldspan-expected")
has_expectations = False
"""Whether this process has ever said what it expects: most never do, and each of their spans would be asked."""


def expected_attributes(context: Context | None, parent: SpanContext | None) -> Attributes | None:
    """The attributes that a span is to have that starts in a context, below a parent; `None` for nearly every span.

    They are for the outermost spans inside an `expect` block. A golden's id that came as baggage, from another service
    or by other means, is for the spans that begin a process's part of a trace. The dictionary is shared: nobody may
    change it.
    """
    inside = parent is not None and not parent.is_remote
    if inside and not has_expectations:
        return None
    here = get_current() if context is None else context
    expected = here.get(_EXPECTATION_KEY)
    if isinstance(expected, _ActiveExpectation) and (parent is None or parent.span_id == expected.parent_span_id):
        return expected.attributes
    if inside:
        return None
    golden = baggage.get_baggage(semconv.GOLDEN_ID, here)
    return {semconv.GOLDEN_ID: golden} if isinstance(golden, str) and golden else None


# --- as attributes ----------------------------------------------------------------------------------------------------


def _encode_annotations(annotations: Mapping[str, object]) -> Attributes:
    """What is said as attributes of a span; what cannot be written is reported and left out."""
    attributes: Attributes = {}
    for what, value in annotations.items():
        if value is not None:
            write, guarded = _ENCODERS[what]
            with guarded:
                attributes.update(write(value))
    return attributes


def _input_attribute(value: object) -> Attributes:
    return {semconv.INPUT: _encode_text(value)}


def _output_attribute(value: object) -> Attributes:
    return {semconv.OUTPUT: _encode_text(value)}


def _encode_text(value: object) -> str:
    return truncate_text(_replace_surrogates(value)) if isinstance(value, str) else to_json(value)


def _replace_surrogates(text: str) -> str:
    """The text as UTF-8 can hold it: exporters leave out an attribute with half a surrogate pair in it."""
    return text if text.isascii() else text.encode(errors="replace").decode()


def _golden_attribute(value: object) -> Attributes:
    if not isinstance(value, str) or not value:
        raise ConfigurationError(f"a golden is named by its id, a text, not by {short_repr(value)}")
    return {semconv.GOLDEN_ID: _replace_surrogates(value)}


def _expected_tools_attribute(value: object) -> Attributes:

    return {semconv.EXPECTED_TOOLS: to_json(encode_expected_tools(value))}


def _available_tools_attribute(value: object) -> Attributes:

    return {semconv.TOOL_DEFINITIONS: to_json(encode_tool_definitions(value))}


def _metadata_attributes(value: object) -> Attributes:
    if not isinstance(value, Mapping):
        raise ConfigurationError(f"metadata is a dictionary, not {short_repr(value)}")
    return {
        _replace_surrogates(f"{semconv.METADATA_PREFIX}{key}"): _encode_scalar(each)
        for key, each in value.items()
        if each is not None
    }


def _encode_scalar(value: object) -> AttributeValue:
    if isinstance(value, int) and not -_INT64 <= value < _INT64:
        return to_json(value)
    return value if isinstance(value, bool | int | float) else _encode_text(value)


_INT64 = 1 << 63
"""OTLP has no greater numbers."""


_ENCODERS: Mapping[str, tuple[Callable[[object], Attributes], suppress_errors]] = {
    what: (write, suppress_errors(f"write {what} on a span"))
    for what, write in (
        ("input", _input_attribute),
        ("output", _output_attribute),
        ("expected_tools", _expected_tools_attribute),
        ("golden", _golden_attribute),
        ("available_tools", _available_tools_attribute),
        ("metadata", _metadata_attributes),
    )
}
