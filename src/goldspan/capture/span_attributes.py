"""The names and attributes of tool, agent and component spans, for `capture.call_spans`."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from goldspan import semconv
from goldspan.capture.bounded_json import ELLIPSIS, MAX_TEXT, StreamedItems, to_json

BoundArguments = dict[str, Any]
"""The arguments of one call by parameter name, without defaults that were not passed."""

_MESSAGES_ARGUMENT = "messages"
_RECEIVER_NAMES = frozenset({"self", "cls", "mcs", "metacls"})


class ArgumentBinder:
    """Maps the arguments of calls of one function to parameter names, without the receiver of a method.

    It does not validate a call: the function itself raises.
    """

    __slots__ = ("_names", "_positional", "_rest", "_skip")

    def __init__(self, function: Callable[..., Any], *, static: bool = False) -> None:
        parameters = _signature_parameters(function)
        self._positional = tuple(
            name
            for name, parameter in parameters.items()
            if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
        )
        self._rest = next(
            (name for name, parameter in parameters.items() if parameter.kind is parameter.VAR_POSITIONAL), None
        )
        self._skip = 1 if not static and _has_receiver(function, self._positional) else 0
        self._positional = self._positional[self._skip :]
        self._names = tuple(parameters)[self._skip :]

    def bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> BoundArguments:
        """Returns the arguments by name. Surplus positional arguments are under the name of `*args`; `**kwargs` is
        merged.
        """
        if self._skip:
            args = args[1:]
        if self._rest is None or len(args) <= len(self._positional):
            return {**dict(zip(self._positional, args)), **kwargs}  # noqa: B905 - the function reports a wrong call
        named = len(self._positional)
        return {**dict(zip(self._positional, args[:named], strict=True)), self._rest: list(args[named:]), **kwargs}

    def request_argument(self, arguments: BoundArguments) -> str | None:
        """Returns the name of the argument that holds the request: `messages`, else the first text argument."""
        if arguments.get(_MESSAGES_ARGUMENT) and isinstance(arguments[_MESSAGES_ARGUMENT], (list, tuple)):
            return _MESSAGES_ARGUMENT
        for name in (*self._names, *arguments):
            if isinstance(arguments.get(name), str):
                return name
        return None


def _signature_parameters(function: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    try:
        return inspect.signature(function).parameters
    except (TypeError, ValueError):  # some builtins have no signature
        return {}


def _has_receiver(function: Callable[..., Any], positional: tuple[str, ...]) -> bool:
    """Returns whether the first parameter is the `self` or `cls` of a function defined in a class body.

    At decoration time a method is a plain function, so this is derived from its qualified name and the parameter's
    name.
    """
    if not positional or positional[0] not in _RECEIVER_NAMES:
        return False
    inside, _, _ = getattr(function, "__qualname__", "").rpartition(".")
    return bool(inside) and not inside.endswith("<locals>")


TracedKind = Literal["tool", "agent", "component"]


@dataclass(frozen=True, slots=True)
class SpanTemplate:
    """The span of one kind of decorated function."""

    name_prefix: str
    """Precedes the function's name in the span name."""
    constant_attributes: Callable[[str], dict[str, Any]]
    """Returns the attributes that are the same for every call, given the function's name."""
    input_key: str
    input_is_request: bool
    """Whether the input is the one argument that holds the request, if there is one; otherwise it is all arguments."""
    encode_input: Callable[[ArgumentBinder, BoundArguments], str | None]
    """Returns `None` if there is no input."""
    output_key: str
    encode_output: Callable[[Any], str]
    """Receives the function's return value, or the `StreamedItems` that it yielded."""


def _tool_attributes(name: str) -> dict[str, Any]:
    return {semconv.OPERATION: semconv.EXECUTE_TOOL, semconv.TOOL_NAME: name, semconv.TOOL_TYPE: "function"}


def _agent_attributes(name: str) -> dict[str, Any]:
    return {semconv.OPERATION: semconv.INVOKE_AGENT, semconv.AGENT_NAME: name}


def _component_attributes(name: str) -> dict[str, Any]:
    return {semconv.COMPONENT_NAME: name}


def _encode_arguments(_: ArgumentBinder, arguments: BoundArguments) -> str:
    return to_json(arguments)


def _request_text(binder: ArgumentBinder, arguments: BoundArguments) -> str | None:
    """Returns the text argument, or the last user message; else all arguments as JSON."""
    if not arguments:
        return None
    name = binder.request_argument(arguments)
    if name is not None and isinstance(arguments[name], str):
        return truncate_text(arguments[name])
    return _last_user_message(arguments if name is None else {name: arguments[name]}) or to_json(arguments)


def _last_user_message(arguments: BoundArguments) -> str | None:
    """Returns the last user message in the first argument that holds messages; `None` if there is none."""
    encoded = to_json(arguments)
    if '"content"' not in encoded and '"parts"' not in encoded:  # no messages: do not load the decoder
        return None
    from goldspan.content.messages import certain_messages

    try:
        values = json.loads(encoded).values()
    except ValueError:
        return None  # the JSON was truncated
    for value in values:
        messages = certain_messages(value.get("messages") if isinstance(value, dict) else value)
        text: str | None = next(
            (message.text for message in reversed(messages) if message.is_from_user and message.text), None
        )
        if text:
            return text
    return None


def _user_message(binder: ArgumentBinder, arguments: BoundArguments) -> str | None:
    request = _request_text(binder, arguments)
    return None if request is None else f'[{{"role": "user", "parts": [{_text_part(request)}]}}]'


def _encode_result(result: Any) -> str:
    return result.json() if isinstance(result, StreamedItems) else to_json(result)


def _response_text(result: Any) -> str:
    if isinstance(result, StreamedItems):
        return result.text()
    return truncate_text(result) if isinstance(result, str) else to_json(result)


def _assistant_message(result: Any) -> str:
    return f'[{{"role": "assistant", "parts": [{_text_part(_response_text(result))}], "finish_reason": "stop"}}]'


def _text_part(text: str) -> str:
    """Returns the part as JSON. Only the text is encoded, which takes a tenth of the time of `json.dumps` for all of
    it.
    """
    return f'{{"type": "text", "content": {json.dumps(text)}}}'


def truncate_text(text: str) -> str:
    """Returns the text, truncated to the captured length."""
    return text if len(text) <= MAX_TEXT else text[:MAX_TEXT] + ELLIPSIS


SPAN_TEMPLATES: dict[TracedKind, SpanTemplate] = {
    "tool": SpanTemplate(
        name_prefix=f"{semconv.EXECUTE_TOOL} ",
        constant_attributes=_tool_attributes,
        input_key=semconv.TOOL_CALL_ARGUMENTS,
        input_is_request=False,
        encode_input=_encode_arguments,
        output_key=semconv.TOOL_CALL_RESULT,
        encode_output=_encode_result,
    ),
    "agent": SpanTemplate(
        name_prefix=f"{semconv.INVOKE_AGENT} ",
        constant_attributes=_agent_attributes,
        input_key=semconv.INPUT_MESSAGES,
        input_is_request=True,
        encode_input=_user_message,
        output_key=semconv.OUTPUT_MESSAGES,
        encode_output=_assistant_message,
    ),
    "component": SpanTemplate(
        name_prefix="",
        constant_attributes=_component_attributes,
        input_key=semconv.COMPONENT_INPUT,
        input_is_request=True,
        encode_input=_request_text,
        output_key=semconv.COMPONENT_OUTPUT,
        encode_output=_response_text,
    ),
}
