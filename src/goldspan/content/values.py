"""Decodes arguments, and finds the text of a request's input and output, for extraction.

A value that cannot be parsed stays the text that it is. Nothing is guessed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from goldspan.content import envelopes, messages
from goldspan.content.envelopes import (
    ArgumentOpener,
    schema_properties,
    unwrap_arguments,
)
from goldspan.content.literals import ReprObject, parse_object, plain_value
from goldspan.content.parts import Messages
from goldspan.model import ABSENT


def message_text(value: Any) -> str | None:
    """Return the text of a request's input or output: of messages, the text of the last one that has some."""
    return _find_text(value, _ALL_HOLDERS, _last_text)


def request_text(value: Any) -> str | None:
    """Return the text of a request's input: of messages, the text of the user's last one."""
    return _find_text(value, _REQUEST_HOLDERS, _last_of_user)


def response_text(value: Any) -> str | None:
    """Return the text of a request's output: of messages, the text of the assistant's last one."""
    return _find_text(value, _RESPONSE_HOLDERS, _last_of_assistant)


TextSelector = Callable[[Messages], str | None]

_MAX_TEXT_DEPTH = 8
"""Levels of nesting that are searched. The deepest known text, a reply of LangChain's model, has six."""
_INPUT_HOLDERS = ("messages", "chat_history", "input_args", "inputs", "input")
_REQUEST_KEYS = (
    *("user_input", "user_msg", "question", "query", "task", "prompt", "request", "goal", "message", "text", "content"),
    *("contents", "parts", "blocks", "ev", "input_str", "arguments", "args"),
)
_REQUEST_HOLDERS = (*_INPUT_HOLDERS, *_REQUEST_KEYS)
_RESPONSE_HOLDERS = (
    *("messages", "choices", "generations", "candidates", "outputs", "output", "update", "answer", "final_answer"),
    *("final_output", "response", "result", "output_text", "text", "completion", "content", "message", "chat_message"),
    *("parts", "blocks"),
)
_ALL_HOLDERS = ("messages", "content", "text", *_INPUT_HOLDERS, *_REQUEST_KEYS, *_RESPONSE_HOLDERS)
_IGNORED_KEYS = frozenset({"reasoning", "rationale", "trajectory"})
"""DSPy's fields beside the answer, whose own field may have any name."""
_LABELS = frozenset({"role", "type", "id", "source", "status"})
"""Keys that never hold the text, even if they are the only ones left."""


def _last_text(found: Messages) -> str | None:
    return next((message.text for message in reversed(found) if message.text), None)


def _last_of_user(found: Messages) -> str | None:
    return next((message.text for message in reversed(found) if message.is_from_user), None)


def _last_of_assistant(found: Messages) -> str | None:
    return next((message.text for message in reversed(found) if message.role == "assistant" and message.text), None)


def _find_text(value: Any, keys: tuple[str, ...], choose: TextSelector) -> str | None:
    if value is ABSENT or value is None:
        return None
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    if isinstance(value, (bool, int, float)):
        return str(value)
    read = _structure(value) if isinstance(value, str) else value
    text = _text_in(read, keys, choose, _MAX_TEXT_DEPTH)
    if text is not None or read is None or read in ([], {}):
        return text or None
    if isinstance(value, str):
        return None if isinstance(read, ReprObject) and value.endswith(_TRUNCATION_MARKS) else value
    return envelopes.to_text(value)


_TRUNCATION_MARKS = ("...", "…")


def _structure(written: str) -> Any:
    """Parse JSON, Python literals in brackets, quoted texts and the `repr` of objects. Return other texts unchanged."""
    begin = written.lstrip()[:1]
    if begin and begin in '[{"':
        return plain_value(written)
    if begin.isalpha() and written.rstrip()[-1:] in _ENDINGS:
        return parse_object(written, is_truncated=written.endswith(_TRUNCATION_MARKS)) or written
    return written


_ENDINGS = frozenset(")'\".…}]")


def _text_in(value: Any, keys: tuple[str, ...], choose: TextSelector, levels: int) -> str | None:
    """Return the text in a value: empty if it holds messages without text, `None` if its shape is unknown."""
    if isinstance(value, str):
        return _text_in_string(value, keys, choose, levels)
    if not levels or not isinstance(value, (dict, list, tuple)):
        return None
    found = messages.certain_messages(value)
    if found:
        return choose(found) or ""
    if isinstance(value, dict):
        return _text_under_keys(value, keys, choose, levels - 1)
    text = envelopes.content_blocks_text(value)
    if text is not None:
        return text
    return _text_in(value[0], keys, choose, levels - 1) if len(value) == 1 else _part_texts(value)


def _text_in_string(text: str, keys: tuple[str, ...], choose: TextSelector, levels: int) -> str:
    """Return the text in a string inside a structure.

    The string is parsed only if it shows messages or an object, because an answer may itself be JSON.
    """
    read = _structure(text) if levels else text
    if isinstance(read, ReprObject):
        return _text_in(read, keys, choose, levels - 1) or ""
    found = () if isinstance(read, str) else messages.certain_messages(read)
    return (choose(found) or "") if found else read if isinstance(read, str) else text


def _text_under_keys(value: Mapping[str, Any], keys: tuple[str, ...], choose: TextSelector, levels: int) -> str | None:
    opened = envelopes.python_call(value)
    if opened is not None:
        given = opened.arguments
        return _first_text(given if isinstance(given, list) else [given], keys, choose, levels)
    text = _first_text((value[key] for key in keys if key in value), keys, choose, levels)
    if text is not None:
        return text
    left = [(key, item) for key, item in value.items() if key not in _IGNORED_KEYS and item not in _EMPTY_VALUES]
    if len(left) != 1 or left[0][0] in _LABELS:
        return None
    return left[0][1] if isinstance(left[0][1], str) else None


_EMPTY_VALUES: tuple[Any, ...] = (None, True, False, "", [], {})


def _first_text(values: Iterable[Any], keys: tuple[str, ...], choose: TextSelector, levels: int) -> str | None:
    has_empty_text = False
    for value in values:
        text = _text_in(value, keys, choose, levels)
        if text:
            return text
        has_empty_text = has_empty_text or text is not None
    return "" if has_empty_text else None


def _part_texts(items: Iterable[Any]) -> str | None:
    """Return the text of a list of Gemini parts or LlamaIndex blocks, which have no type."""
    texts = [item.get("text") for item in items if isinstance(item, dict)]
    return "\n".join(text for text in texts if isinstance(text, str)) or None


def decode_arguments(
    value: Any, *envelopes: ArgumentOpener, parameters: Mapping[str, Any] | None = None
) -> tuple[Any, str | None]:
    """Return the arguments of a call and, if they cannot be parsed, their text.

    An empty text means that the call has no arguments. A text in no known notation, usually JSON truncated by an
    attribute limit, returns `(None, text)`. The tool's JSON schema gives names to a bare value and to positional
    arguments.
    """
    if value is ABSENT or value is None:
        return None, None
    opened = unwrap_arguments(value, *envelopes, parameters=parameters).arguments
    if isinstance(opened, str) and not opened.strip():
        return {}, None
    if parameters and not isinstance(opened, dict):
        # The schema decides whether a bare value is a text, so it is passed on unparsed.
        bare = isinstance(value, str) and value.lstrip()[:1] not in _BRACKETS
        opened = name_arguments(value if bare and opened is not None else opened, parameters)
    return (None, opened) if isinstance(opened, str) else (opened, None)


def name_arguments(value: Any, parameters: Mapping[str, Any] | None) -> Any:
    """Return a bare value or positional arguments under the parameter names of the tool's JSON schema.

    Returns the value unchanged if the schema does not determine the parameter, or if the value is truncated JSON.
    """
    known = schema_properties(parameters) if parameters else {}
    if isinstance(value, dict) or value is None or not known:
        return value
    single = _single_parameter(known, parameters or {})
    if isinstance(value, (list, tuple)) and not (
        single and "array" in _json_types(known[single]) and not _is_nested_list(value)
    ):
        return dict(zip(known, value, strict=False)) if 0 < len(value) <= len(known) else value
    if single is None:
        return value
    fitting = _coerce(value, _json_types(known[single]))
    return value if fitting is ABSENT else {single: fitting}


def guess_error(result: Any) -> str | None:
    """Return the start of a result that reads like an error although the telemetry reports none; else `None`."""
    if isinstance(result, dict) and len(result) <= _MAX_ERROR_KEYS:
        result = result.get("error")
        return result[:_MAX_ERROR_CHARS] if isinstance(result, str) and result else None
    if isinstance(result, str) and _ERROR_TEXT.match(result):
        return result[:_MAX_ERROR_CHARS]
    return None


_ERROR_TEXT = re.compile(r"\s*(?:error|exception|traceback|failed|failure)\b", re.IGNORECASE)
_MAX_ERROR_CHARS = 200
_MAX_ERROR_KEYS = 3
"""The most keys that a dictionary that only reports an error has."""


def _single_parameter(known: Mapping[str, Any], parameters: Mapping[str, Any]) -> str | None:
    """Return the parameter that a bare value belongs to: the tool's only parameter, or its only required one."""
    required = parameters.get("required")
    if len(known) > 1 and isinstance(required, (list, tuple)):
        known = {name: known[name] for name in required if isinstance(name, str) and name in known}
    return next(iter(known)) if len(known) == 1 else None


def _json_types(schema: Any) -> frozenset[str]:
    """Return the JSON types that a parameter may have, empty if its schema states none."""
    if not isinstance(schema, dict):
        return frozenset()
    named = schema.get("type")
    options = [named] if isinstance(named, str) else named if isinstance(named, list) else []
    found = {option for option in options if isinstance(option, str)}
    for branches in (schema.get("anyOf"), schema.get("oneOf")):
        for branch in branches if isinstance(branches, list) else ():
            if isinstance(branch, dict) and isinstance(branch.get("type"), str):
                found.add(branch["type"])
    if not found and isinstance(schema.get("enum"), list):
        found = {"string"} if all(isinstance(option, str) for option in schema["enum"]) else set()
    return frozenset(found)


def _is_nested_list(value: Any) -> bool:
    """Whether a list is the only positional argument inside a list."""
    return len(value) == 1 and isinstance(value[0], (list, tuple))


def _coerce(value: Any, types: frozenset[str]) -> Any:
    """Return a bare value in one of the types; `ABSENT` if it is truncated or has another type."""
    if not isinstance(value, str):
        return value
    read = plain_value(value)
    if isinstance(read, str) and value.lstrip().startswith("{"):
        return ABSENT
    if "string" in types:
        if read is None and "null" in types:
            return None
        return read if isinstance(read, str) else value
    if value in ("True", "False") and "boolean" in types:
        return value == "True"
    return ABSENT if isinstance(read, str) and types else read


_BRACKETS = frozenset("[{")
