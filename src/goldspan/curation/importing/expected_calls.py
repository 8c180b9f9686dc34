"""Converts tool calls, inputs and messages in the notations of other tools to values of a golden."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from goldspan.errors import GoldenError
from goldspan.goldens.golden_files.golden_writer import literal_value
from goldspan.goldens.spelling import short_repr
from goldspan.model import ArgumentsMatch, ExpectedTool
from goldspan.model.name_folding import fold_name

_NAME_KEYS = ("name", "tool_name", "tool", "function_name")
_ARGUMENT_KEYS = ("arguments", "args", "input_parameters", "tool_input", "parameters", "input")
_WRAPPERS = ("function", "function_call", "tool_call")
"""Keys under which some notations put the call itself."""
TEXT_KEYS = ("input", "question", "query", "prompt", "message", "user_input", "user_message", "request", "text", "task")
"""The names of a request in the inputs of a case, the most usual first."""


def parse_expected_call(value: Any, *, match: ArgumentsMatch = "exact", with_arguments: bool = True) -> ExpectedTool:
    """Return the expected call for a name, or for a call in the notation of another tool.

    Raises `GoldenError` for anything else, and for arguments that no golden can state.
    """
    if isinstance(value, str) and value.strip():
        return ExpectedTool(value.strip())
    if isinstance(value, Mapping):
        fields = {fold_name(str(key)): part for key, part in value.items()}
        for wrapper in _WRAPPERS:
            if isinstance(wrapped := fields.get(fold_name(wrapper)), Mapping):
                return parse_expected_call(wrapped, match=match, with_arguments=with_arguments)
        name = _first(fields, _NAME_KEYS)
        if isinstance(name, str) and name.strip():
            arguments = parse_arguments(_first(fields, _ARGUMENT_KEYS)) if with_arguments else None
            return ExpectedTool(name.strip(), arguments, match=match if arguments is not None else "exact")
    raise GoldenError(f"{short_repr(value)} is not a tool call")


def parse_arguments(value: Any) -> dict[str, Any] | None:
    """Return expected arguments that are compared literally; `None` if none are stated.

    Raises `GoldenError` for arguments that are no mapping.
    """
    if isinstance(value, str):
        try:
            value = json.loads(value) if value.strip() else None
        except ValueError:
            raise GoldenError(f"the arguments {short_repr(value)} are not JSON") from None
    if value is None:
        return None
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise GoldenError(f"the arguments {short_repr(value)} are not a mapping")
    return {key: literal_value(part) for key, part in value.items()}


def parse_list(value: Any) -> list[Any] | None:
    """Return a list that may be written as JSON or as names with `;` between them; `None` if it is neither."""
    if isinstance(value, str):
        text = value.strip()
        if text.startswith("["):
            try:
                value = json.loads(text)
            except ValueError:
                return None
        else:
            return [part.strip() for part in text.split(";") if part.strip()]
    return list(value) if isinstance(value, list | tuple) else None


def request_text(inputs: Any) -> str | None:
    """Return the text of a request: the text itself, the only text of a mapping, a usual key, or the last message."""
    if isinstance(inputs, str):
        return inputs
    if isinstance(inputs, list | tuple):
        return _last_user_text(inputs)
    if not isinstance(inputs, Mapping):
        return None
    texts = {fold_name(str(key)): value for key, value in inputs.items() if isinstance(value, str)}
    for key in TEXT_KEYS:
        if fold_name(key) in texts:
            return texts[fold_name(key)]
    if isinstance(inputs.get("messages"), list | tuple):
        return _last_user_text(inputs["messages"])
    if len(texts) == 1:
        return next(iter(texts.values()))
    nested = [value for value in inputs.values() if isinstance(value, Mapping)]
    return request_text(nested[0]) if len(nested) == len(inputs) == 1 else None


def calls_of_messages(messages: Any) -> Iterator[Any]:
    """Yield the tool calls of the assistant's messages, in the notations of OpenAI, LangChain and Anthropic."""
    for message in messages if isinstance(messages, list | tuple) else ():
        if not isinstance(message, Mapping):
            continue
        yield from message.get("tool_calls") or ()
        content = message.get("content")
        for part in content if isinstance(content, list | tuple) else ():
            if isinstance(part, Mapping) and part.get("type") == "tool_use":
                yield part


def _last_user_text(messages: Sequence[Any]) -> str | None:
    for message in reversed(messages):
        if isinstance(message, Mapping) and (message.get("role") or message.get("type")) in ("user", "human"):
            content = message.get("content")
            if isinstance(content, list | tuple):
                parts = [part.get("text") for part in content if isinstance(part, Mapping)]
                content = " ".join(part for part in parts if isinstance(part, str))
            return content if isinstance(content, str) else None
    return None


def _first(fields: Mapping[str, Any], keys: Sequence[str]) -> Any:
    return next((fields[key] for key in map(fold_name, keys) if fields.get(key) is not None), None)
