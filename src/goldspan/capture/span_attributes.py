"""How the spans of tools, agents and components are written: names and attributes, nothing else."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from goldspan import semconv
from goldspan.capture.bounded_json import ELLIPSIS, MAX_TEXT, StreamedItems, to_json

BoundArguments = dict[str, Any]
"""The arguments of one call by parameter name, as they were passed: defaults that were not passed are not in it."""

_MESSAGES_ARGUMENT = "messages"
_RECEIVER_NAMES = frozenset({"self", "cls", "mcs", "metacls"})


class ArgumentBinder:
    """Names the arguments of calls of one function, without the receiver of a method.

    Nothing is checked: the function itself says what is wrong with a call.
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
        """The arguments by name; those beyond the named ones under the name of `*args`, `**kwargs` among the rest."""
        if self._skip:
            args = args[1:]
        if self._rest is None or len(args) <= len(self._positional):
            return {**dict(zip(self._positional, args)), **kwargs}  # noqa: B905 - a wrong call is not ours to report
        named = len(self._positional)
        return {**dict(zip(self._positional, args[:named], strict=True)), self._rest: list(args[named:]), **kwargs}

    def request_argument(self, arguments: BoundArguments) -> str | None:
        """The name of the argument that somebody asked with: `messages`, else the first that is text, as declared."""
        if arguments.get(_MESSAGES_ARGUMENT) and isinstance(arguments[_MESSAGES_ARGUMENT], (list, tuple)):
            return _MESSAGES_ARGUMENT
        for name in (*self._names, *arguments):
            if isinstance(arguments.get(name), str):
                return name
        return None


def _signature_parameters(function: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    try:
        return inspect.signature(function).parameters
    except (TypeError, ValueError):  # some builtins have none
        return {}


def _has_receiver(function: Callable[..., Any], positional: tuple[str, ...]) -> bool:
    """Whether the first parameter is the `self` or `cls` of a function written in a class body.

    At the time of decoration a method is still a plain function, so its written place and the name must tell.
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
    """What stands before the function's name in the name of the span."""
    constant_attributes: Callable[[str], dict[str, Any]]
    """The attributes that are the same for every call, given the function's name."""
    input_key: str
    input_is_request: bool
    """Whether the input is what somebody asked with one of the arguments, where there is one; else it is all."""
    encode_input: Callable[[ArgumentBinder, BoundArguments], str | None]
    """`None` where there is no input."""
    output_key: str
    encode_output: Callable[[Any], str]
    """Given what the function returned, or the `Pieces` of what it yielded."""


def _tool_attributes(name: str) -> dict[str, Any]:
    return {semconv.OPERATION: semconv.EXECUTE_TOOL, semconv.TOOL_NAME: name, semconv.TOOL_TYPE: "function"}


def _agent_attributes(name: str) -> dict[str, Any]:
    return {semconv.OPERATION: semconv.INVOKE_AGENT, semconv.AGENT_NAME: name}


def _component_attributes(name: str) -> dict[str, Any]:
    return {semconv.COMPONENT_NAME: name}


def _encode_arguments(_: ArgumentBinder, arguments: BoundArguments) -> str:
    return to_json(arguments)


def _request_text(binder: ArgumentBinder, arguments: BoundArguments) -> str | None:
    """What somebody asked: a text, or the last words of a user among messages; else all arguments as JSON."""
    if not arguments:
        return None
    name = binder.request_argument(arguments)
    if name is not None and isinstance(arguments[name], str):
        return truncate_text(arguments[name])
    return _last_user_message(arguments if name is None else {name: arguments[name]}) or to_json(arguments)


def _last_user_message(arguments: BoundArguments) -> str | None:
    """What a user said last in the first arguments that are messages, or hold `messages`; `None` without any."""
    written = to_json(arguments)
    if '"content"' not in written and '"parts"' not in written:  # then nothing needs to be loaded
        return None
    from goldspan.content.messages import certain_messages

    try:
        values = json.loads(written).values()
    except ValueError:
        return None  # it was too long and is cut
    for value in values:
        found = certain_messages(value.get("messages") if isinstance(value, dict) else value)
        said: str | None = next((each.text for each in reversed(found) if each.is_from_user and each.text), None)
        if said:
            return said
    return None


def _user_message(binder: ArgumentBinder, arguments: BoundArguments) -> str | None:
    question = _request_text(binder, arguments)
    return None if question is None else f'[{{"role": "user", "parts": [{_text_part(question)}]}}]'


def _encode_result(result: Any) -> str:
    return result.json() if isinstance(result, StreamedItems) else to_json(result)


def _response_text(result: Any) -> str:
    if isinstance(result, StreamedItems):
        return result.text()
    return truncate_text(result) if isinstance(result, str) else to_json(result)


def _assistant_message(result: Any) -> str:
    return f'[{{"role": "assistant", "parts": [{_text_part(_response_text(result))}], "finish_reason": "stop"}}]'


def _text_part(text: str) -> str:
    """As JSON, of which only the text is not always the same: a tenth of the time that `json.dumps` takes for all."""
    return f'{{"type": "text", "content": {json.dumps(text)}}}'


def truncate_text(text: str) -> str:
    """A text, or as much of it as is captured."""
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
