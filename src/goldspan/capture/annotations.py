"""`goldspan.update_current_span` and `goldspan.expect`: span annotations that a running program sets."""

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
from goldspan.capture.span_attributes import to_json, truncate_text
from goldspan.errors import ConfigurationError
from goldspan.goldens.spelling import short_repr
from goldspan.model import ABSENT, ONCE, AnyOf, ExpectedItem, ExpectedTool, Parallel, Times, ToolDefinition
from goldspan.model.value_matchers import MATCHER_KEYS, MATCHERS, Equal

if TYPE_CHECKING:
    from goldspan.model import ToolDefinition
    from goldspan.scoring.coercion import ToolLike

_MATCHER_KEYS = frozenset(MATCHER_KEYS.values())


def encode_expected_tools(expected: object) -> list[Any]:
    """Returns expected tools in the format of a golden's `tools`. Raises `ConfigurationError` for anything else.

    The content of dictionaries is not validated here; the golden lookup reports errors in them.
    """
    return [_encode_expected(item) for item in _require_list(expected, "expected tools")]


def encode_tool_definitions(tools: object) -> list[Any]:
    """Returns the available tools, given as names or definitions. Raises `ConfigurationError` for anything else."""
    return [_encode_definition(tool) for tool in _require_list(tools, "available tools")]


def _require_list(value: object, name: str) -> Iterable[Any]:
    if isinstance(value, str | Mapping) or not isinstance(value, Iterable):
        raise ConfigurationError(f"{name} must be a list, not {short_repr(value)}")
    return value


def _encode_expected(item: object) -> Any:
    if isinstance(item, ExpectedTool | AnyOf | Parallel):
        return _encode_item(item)
    if isinstance(item, Mapping):
        return _encode_matchers(item)
    if isinstance(item, str) and item:
        return item
    raise ConfigurationError(
        f"an expected tool must be a name, a dictionary or an ExpectedTool, not {short_repr(item)}"
    )


def _encode_item(item: ExpectedItem) -> Any:
    if isinstance(item, Parallel):
        return {"parallel": [_encode_item(each) for each in item.items]}
    if isinstance(item, AnyOf):
        options = [[_encode_item(each) for each in option] for option in item.options]
        return {
            "any_of": [option[0] if len(option) == 1 else option for option in options],
            **_encode_times(item.times),
        }
    optional = {
        "arguments": None
        if item.arguments is None
        else {key: _encode_literal(value) for key, value in item.arguments.items()},
        "server": item.server,
        "match": item.match if item.match != "exact" else None,
        "ignore": list(item.ignore) or None,
        "defaults": dict(item.defaults) or None,
        "agent": item.agent,
    }
    members = {key: value for key, value in optional.items() if value is not None} | _encode_times(item.times)
    if item.result is not ABSENT:
        members["result"] = _encode_literal(item.result)
    return {"name": item.name, **members} if members else item.name


def _encode_times(times: Times) -> dict[str, Any]:
    if times == ONCE:
        return {}
    if times == Times(0, 1):
        return {"optional": True}
    if times.least == times.most:
        return {"times": times.most}
    return {"times": {"min": times.least} if times.most is None else {"min": times.least, "max": times.most}}


def _encode_literal(value: Any) -> Any:
    """Encodes a value that is compared literally unless it is a matcher; data that look like a matcher are escaped."""
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
    """Encodes a value with matchers in the notation of a golden file."""
    if isinstance(value, ExpectedTool | AnyOf | Parallel):
        return _encode_item(value)
    if isinstance(value, MATCHERS):
        members = {field.name: getattr(value, field.name) for field in fields(value)}
        operand_name, *options = members or {"": True}
        operand = members.get(operand_name, True)
        encoded = {MATCHER_KEYS[type(value)]: operand if isinstance(value, Equal) else _encode_literal(operand)}
        return encoded | {option: members[option] for option in options if members[option] is not None}
    if isinstance(value, Mapping):
        return {key: _encode_matchers(each) for key, each in value.items()}
    return [_encode_matchers(each) for each in value] if isinstance(value, list | tuple) else value


def _encode_definition(tool: object) -> Any:
    if isinstance(tool, str) and tool:
        return {"type": "function", "name": tool}
    if isinstance(tool, Mapping):
        return tool
    if isinstance(tool, ToolDefinition):
        members = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
        hints = {} if tool.read_only is None else {"annotations": {"readOnlyHint": tool.read_only}}
        return {"type": "function", **{key: value for key, value in members.items() if value is not None}, **hints}
    raise ConfigurationError(
        f"an available tool must be a name, a dictionary or a ToolDefinition, not {short_repr(tool)}"
    )


F = TypeVar("F", bound="Callable[..., Any] | classmethod[Any, ..., Any] | staticmethod[..., Any]")

Attributes = dict[str, AttributeValue]


def update_current_span(
    *,
    input: object = None,  # noqa: A002 - the common name for it
    output: object = None,
    expected_tools: Iterable[ToolLike] | None = None,
    golden: str | None = None,
    available_tools: Iterable[str | Mapping[str, Any] | ToolDefinition] | None = None,
    metadata: Mapping[str, object] | None = None,
) -> None:
    """Sets annotations on the current span. An argument that is not passed keeps its previous value.

    The last call for an annotation takes effect. The function never raises: a value that cannot be encoded is logged
    once and skipped. It does nothing without a recording span.

    Args:
        input: The request, instead of the input that the span has otherwise. Values other than text are encoded as
            JSON. It takes effect on the span of a request, an agent or a component.
        output: The response, likewise.
        expected_tools: The expected calls, as in a golden's `tools`: names, dictionaries or `ExpectedTool`. They take
            precedence over every golden.
        golden: The id of the golden.
        available_tools: The tools offered to the model, by name or as definitions.
        metadata: Other values by name, which are stored with the run.
    """
    span = get_current_span()
    if not span.is_recording():
        return
    annotations = {
        "input": input,
        "output": output,
        "expected_tools": expected_tools,
        "golden": golden,
        "available_tools": available_tools,
        "metadata": metadata,
    }
    span.set_attributes(_encode_annotations(annotations))


class expect:  # noqa: N801 - reads as a statement: `with goldspan.expect(golden="refund"):`
    """Declares what is expected of the spans that start inside: `with`, `async with`, or as a decorator of a function.

        with goldspan.expect(golden="refund-1"):
            agent("I want my money back.")

    A `ScoringProcessor` sets the annotations on the outermost spans that start inside. Nested blocks are merged, and
    the inner block takes precedence. A block may be entered repeatedly, also by threads and tasks at the same time.

    Entering a block never raises: a value that cannot be encoded is logged once and skipped. As a decorator it accepts
    functions, coroutine functions and methods.

    Args:
        golden: The id of a golden. It is propagated to other services as the baggage `goldspan.golden.id`.
        tools: The expected calls, as in a golden's `tools`. They take precedence over every golden.
        metadata: Other values by name, which are stored with the run.

    Raises:
        ConfigurationError: If it decorates a generator (whose consumer runs outside the block: put the block around the
            loop that consumes it) or a class, or is used as `@goldspan.expect` without parentheses.
    """

    __slots__ = ("_attributes",)

    def __init__(
        self,
        golden: str | None = None,
        *,
        tools: Iterable[ToolLike] | None = None,
        metadata: Mapping[str, object] | None = None,
    ) -> None:
        if callable(golden):  # used without parentheses: the block would replace the function, which would never run
            raise ConfigurationError(
                "@goldspan.expect needs the id of a golden, as in @goldspan.expect('refund'), or tools"
            )
        self._attributes = _encode_annotations({"golden": golden, "expected_tools": tools, "metadata": metadata})

    def __enter__(self) -> None:
        global has_expectations
        has_expectations = True
        outer = get_current()
        parent_span_id = get_current_span(outer).get_span_context().span_id
        enclosing = outer.get(_EXPECTATION_KEY)
        attributes = self._attributes
        if isinstance(enclosing, _ActiveExpectation) and enclosing.parent_span_id == parent_span_id:
            attributes = {**enclosing.attributes, **attributes}
        inner = set_value(_EXPECTATION_KEY, _ActiveExpectation(attributes, parent_span_id), outer)
        if semconv.GOLDEN_ID in self._attributes:
            inner = baggage.set_baggage(semconv.GOLDEN_ID, self._attributes[semconv.GOLDEN_ID], inner)
        _entered_blocks.set((*_entered_blocks.get(), (self, attach(inner))))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        entered = _entered_blocks.get()
        index = next((index for index in reversed(range(len(entered))) if entered[index][0] is self), None)
        if index is not None:  # otherwise it was entered in another context, which ended with its thread or task
            detach(entered[index][1])
            _entered_blocks.set(entered[:index] + entered[index + 1 :])

    async def __aenter__(self) -> None:
        self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.__exit__(kind, error, traceback)

    def __call__(self, function: F) -> F:
        """Wraps the function so that each call runs inside a block."""
        if isinstance(function, (classmethod, staticmethod)):
            return cast(F, type(function)(self(function.__func__)))
        _check_decoratable(function)
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def async_wrapper(*args: Any, **kwargs: Any) -> Any:
                with self:
                    return await function(*args, **kwargs)

            return cast(F, async_wrapper)

        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            with self:
                return function(*args, **kwargs)

        return cast(F, wrapper)


_entered_blocks: ContextVar[tuple[tuple[expect, Any], ...]] = ContextVar("goldspan-entered", default=())
"""The blocks entered in this context, each with its context token. Threads and tasks may share a block, and each exits
its own entry."""


def _check_decoratable(function: object) -> None:
    """Raises `ConfigurationError` for objects that cannot be called inside a block."""
    if inspect.isclass(function) or not callable(function):
        raise ConfigurationError(
            f"@goldspan.expect decorates functions and methods, not {short_repr(function)}; "
            "decorate the methods of a class"
        )
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise ConfigurationError(
            f"@goldspan.expect decorates functions and coroutine functions, but {short_repr(function)} is a generator; "
            "put `with goldspan.expect(...):` around the loop that consumes it"
        )


@dataclass(frozen=True, slots=True)
class _ActiveExpectation:
    """The annotations of a block in the current context."""

    attributes: Attributes
    parent_span_id: int
    """The id of the span that was current when the block was entered, 0 for none. Only its children are outermost
    spans."""


_EXPECTATION_KEY = create_key("goldspan-expected")
has_expectations = False
"""Whether this process ever entered a block. Most processes never do, and then skip the lookup for each span."""


def expected_attributes(context: Context | None, parent: SpanContext | None) -> Attributes | None:
    """Returns the attributes for a span that starts in a context below a parent; `None` for nearly every span.

    They apply to the outermost spans inside an `expect` block. A golden's id that arrives as baggage, for example from
    another service, applies to the local roots of a trace. The dictionary is shared and must not be modified.
    """
    has_local_parent = parent is not None and not parent.is_remote
    if has_local_parent and not has_expectations:
        return None
    span_context = get_current() if context is None else context
    expected = span_context.get(_EXPECTATION_KEY)
    if isinstance(expected, _ActiveExpectation) and (parent is None or parent.span_id == expected.parent_span_id):
        return expected.attributes
    if has_local_parent:
        return None
    golden = baggage.get_baggage(semconv.GOLDEN_ID, span_context)
    return {semconv.GOLDEN_ID: golden} if isinstance(golden, str) and golden else None


# --- as attributes ----------------------------------------------------------------------------------------------------


def _encode_annotations(annotations: Mapping[str, object]) -> Attributes:
    """Returns the annotations as span attributes; values that cannot be encoded are reported and skipped."""
    attributes: Attributes = {}
    for name, value in annotations.items():
        if value is not None:
            encode, guard = _ENCODERS[name]
            with guard:
                attributes.update(encode(value))
    return attributes


def _input_attribute(value: object) -> Attributes:
    return {semconv.INPUT: _encode_text(value)}


def _output_attribute(value: object) -> Attributes:
    return {semconv.OUTPUT: _encode_text(value)}


def _encode_text(value: object) -> str:
    return truncate_text(_replace_surrogates(value)) if isinstance(value, str) else to_json(value)


def _replace_surrogates(text: str) -> str:
    """Replaces lone surrogates: exporters drop an attribute that is not valid UTF-8."""
    return text if text.isascii() else text.encode(errors="replace").decode()


def _golden_attribute(value: object) -> Attributes:
    if not isinstance(value, str) or not value:
        raise ConfigurationError(f"golden must be the id of a golden, not {short_repr(value)}")
    return {semconv.GOLDEN_ID: _replace_surrogates(value)}


def _expected_tools_attribute(value: object) -> Attributes:
    return {semconv.EXPECTED_TOOLS: to_json(encode_expected_tools(value))}


def _available_tools_attribute(value: object) -> Attributes:
    return {semconv.TOOL_DEFINITIONS: to_json(encode_tool_definitions(value))}


def _metadata_attributes(value: object) -> Attributes:
    if not isinstance(value, Mapping):
        raise ConfigurationError(f"metadata must be a dictionary, not {short_repr(value)}")
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
"""The limit of OTLP integers."""


_ENCODERS: Mapping[str, tuple[Callable[[object], Attributes], suppress_errors]] = {
    name: (encode, suppress_errors(f"write {name} on a span"))
    for name, encode in (
        ("input", _input_attribute),
        ("output", _output_attribute),
        ("expected_tools", _expected_tools_attribute),
        ("golden", _golden_attribute),
        ("available_tools", _available_tools_attribute),
        ("metadata", _metadata_attributes),
    )
}
