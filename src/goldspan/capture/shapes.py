"""How the spans of tools, agents and components are written: names and attributes, nothing else."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from goldspan import semconv
from goldspan.capture.binding import Arguments, Binder
from goldspan.capture.serialization import ELLIPSIS, MAX_TEXT, Pieces, to_json

Kind = Literal["tool", "agent", "component"]


@dataclass(frozen=True, slots=True)
class Shape:
    """The span of one kind of decorated function."""

    prefix: str
    """What stands before the function's name in the name of the span."""
    labels: Callable[[str], dict[str, Any]]
    """The attributes that are the same for every call, given the function's name."""
    input_key: str
    input_is_question: bool
    """Whether the input is what somebody asked with one of the arguments, where there is one; else it is all."""
    write_input: Callable[[Binder, Arguments], str | None]
    """`None` where there is no input."""
    output_key: str
    write_output: Callable[[Any], str]
    """Given what the function returned, or the `Pieces` of what it yielded."""


def _tool_labels(name: str) -> dict[str, Any]:
    return {semconv.OPERATION: semconv.EXECUTE_TOOL, semconv.TOOL_NAME: name, semconv.TOOL_TYPE: "function"}


def _agent_labels(name: str) -> dict[str, Any]:
    return {semconv.OPERATION: semconv.INVOKE_AGENT, semconv.AGENT_NAME: name}


def _component_labels(name: str) -> dict[str, Any]:
    return {semconv.COMPONENT_NAME: name}


def _arguments(_: Binder, arguments: Arguments) -> str:
    return to_json(arguments)


def _question(binder: Binder, arguments: Arguments) -> str | None:
    """What somebody asked: a text, or the last words of a user among messages; else all arguments as JSON."""
    if not arguments:
        return None
    name = binder.question(arguments)
    if name is not None and isinstance(arguments[name], str):
        return clipped(arguments[name])
    return _last_words(arguments if name is None else {name: arguments[name]}) or to_json(arguments)


def _last_words(arguments: Arguments) -> str | None:
    """What a user said last in the first arguments that are messages, or hold `messages`; `None` without any."""
    written = to_json(arguments)
    if '"content"' not in written and '"parts"' not in written:  # then nothing needs to be loaded
        return None
    from goldspan.extraction.messages import conversation

    try:
        values = json.loads(written).values()
    except ValueError:
        return None  # it was too long and is cut
    for value in values:
        found = conversation(value.get("messages") if isinstance(value, dict) else value)
        said: str | None = next((each.text for each in reversed(found) if each.from_user and each.text), None)
        if said:
            return said
    return None


def _user_message(binder: Binder, arguments: Arguments) -> str | None:
    question = _question(binder, arguments)
    return None if question is None else f'[{{"role": "user", "parts": [{_text_part(question)}]}}]'


def _result(result: Any) -> str:
    return result.json() if isinstance(result, Pieces) else to_json(result)


def _answer(result: Any) -> str:
    if isinstance(result, Pieces):
        return result.text()
    return clipped(result) if isinstance(result, str) else to_json(result)


def _assistant_message(result: Any) -> str:
    return f'[{{"role": "assistant", "parts": [{_text_part(_answer(result))}], "finish_reason": "stop"}}]'


def _text_part(text: str) -> str:
    """As JSON, of which only the text is not always the same: a tenth of the time that `json.dumps` takes for all."""
    return f'{{"type": "text", "content": {json.dumps(text)}}}'


def clipped(text: str) -> str:
    """A text, or as much of it as is captured."""
    return text if len(text) <= MAX_TEXT else text[:MAX_TEXT] + ELLIPSIS


SHAPES: dict[Kind, Shape] = {
    "tool": Shape(
        prefix=f"{semconv.EXECUTE_TOOL} ",
        labels=_tool_labels,
        input_key=semconv.TOOL_CALL_ARGUMENTS,
        input_is_question=False,
        write_input=_arguments,
        output_key=semconv.TOOL_CALL_RESULT,
        write_output=_result,
    ),
    "agent": Shape(
        prefix=f"{semconv.INVOKE_AGENT} ",
        labels=_agent_labels,
        input_key=semconv.INPUT_MESSAGES,
        input_is_question=True,
        write_input=_user_message,
        output_key=semconv.OUTPUT_MESSAGES,
        write_output=_assistant_message,
    ),
    "component": Shape(
        prefix="",
        labels=_component_labels,
        input_key=semconv.COMPONENT_INPUT,
        input_is_question=True,
        write_input=_question,
        output_key=semconv.COMPONENT_OUTPUT,
        write_output=_answer,
    ),
}
