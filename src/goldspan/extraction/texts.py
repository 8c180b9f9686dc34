"""The words in whatever stands for a request's input or output: a text, messages, an envelope, an object's `repr`.

What a person typed stays as typed, even where it happens to be JSON: only messages and envelopes are opened.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from goldspan.extraction import envelopes, messages
from goldspan.extraction.notation import Constructed, constructed, plain
from goldspan.extraction.spoken import Messages
from goldspan.model import ABSENT


def text(value: Any) -> str | None:
    """The words in a value that stands for a request's input or output; of messages, the last."""
    return _found(value, _EITHER, _last_text)


def asked_text(value: Any) -> str | None:
    """The words in a value that stands for a request's input; of messages, the last of the user's."""
    return _found(value, _ASKED, _last_of_user)


def answered_text(value: Any) -> str | None:
    """The words in a value that stands for a request's output; of messages, the last of the assistant's."""
    return _found(value, _ANSWERED, _last_of_assistant)


Choice = Callable[[Messages], str | None]

_LEVELS = 8
"""How deep the words may lie; a reply of LangChain's model lies six levels deep."""
_HELD = ("messages", "chat_history", "input_args", "inputs", "input")
_ASKED_KEYS = (
    *("user_input", "user_msg", "question", "query", "task", "prompt", "request", "goal", "message", "text", "content"),
    *("contents", "parts", "blocks", "ev", "input_str", "arguments", "args"),
)
_ASKED = (*_HELD, *_ASKED_KEYS)
_ANSWERED = (
    *("messages", "choices", "generations", "candidates", "outputs", "output", "update", "answer", "final_answer"),
    *("final_output", "response", "result", "output_text", "text", "completion", "content", "message", "chat_message"),
    *("parts", "blocks"),
)
_EITHER = ("messages", "content", "text", *_HELD, *_ASKED_KEYS, *_ANSWERED)
_ASIDE = frozenset({"reasoning", "rationale", "trajectory"})
"""How DSPy came to its answer, whatever the field is called in which the answer stands."""
_LABELS = frozenset({"role", "type", "id", "source", "status"})
"""What is never the text that is looked for, even where nothing else is left."""


def _last_text(found: Messages) -> str | None:
    return next((message.text for message in reversed(found) if message.text), None)


def _last_of_user(found: Messages) -> str | None:
    return next((message.text for message in reversed(found) if message.from_user), None)


def _last_of_assistant(found: Messages) -> str | None:
    return next((message.text for message in reversed(found) if message.role == "assistant" and message.text), None)


def _found(value: Any, keys: tuple[str, ...], choose: Choice) -> str | None:
    if value is ABSENT or value is None:
        return None
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    if isinstance(value, (bool, int, float)):
        return str(value)
    read = _structure(value) if isinstance(value, str) else value
    words = _words(read, keys, choose, _LEVELS)
    if words is not None or read is None or read in ([], {}):
        return words or None
    if isinstance(value, str):
        return None if isinstance(read, Constructed) and value.endswith(_CUT) else value
    return envelopes.written(value)


_CUT = ("...", "…")


def _structure(written: str) -> Any:
    """What a text may hold words in: JSON or Python in brackets, a quoted text, an object; else the text itself."""
    begin = written.lstrip()[:1]
    if begin and begin in '[{"':
        return plain(written)
    if begin.isalpha() and written.rstrip()[-1:] in _ENDINGS:
        return constructed(written, cut_off=written.endswith(_CUT)) or written
    return written


_ENDINGS = frozenset(")'\".…}]")


def _words(value: Any, keys: tuple[str, ...], choose: Choice, levels: int) -> str | None:
    """The words in a value: empty where it holds messages without any, `None` where it is of no known shape."""
    if isinstance(value, str):
        return _inner_words(value, keys, choose, levels)
    if not levels or not isinstance(value, (dict, list, tuple)):
        return None
    spoken = messages.conversation(value)
    if spoken:
        return choose(spoken) or ""
    if isinstance(value, dict):
        return _under_keys(value, keys, choose, levels - 1)
    said = envelopes.content_blocks(value)
    if said is not None:
        return said
    return _words(value[0], keys, choose, levels - 1) if len(value) == 1 else _part_texts(value)


def _inner_words(said: str, keys: tuple[str, ...], choose: Choice, levels: int) -> str:
    """A text inside a structure. It is opened only where it shows messages or an object: an answer may well be JSON."""
    read = _structure(said) if levels else said
    if isinstance(read, Constructed):
        return _words(read, keys, choose, levels - 1) or ""
    spoken = () if isinstance(read, str) else messages.conversation(read)
    return (choose(spoken) or "") if spoken else read if isinstance(read, str) else said


def _under_keys(value: Mapping[str, Any], keys: tuple[str, ...], choose: Choice, levels: int) -> str | None:
    opened = envelopes.called(value)
    if opened is not None:
        given = opened.arguments
        return _first_words(given if isinstance(given, list) else [given], keys, choose, levels)
    words = _first_words((value[key] for key in keys if key in value), keys, choose, levels)
    if words is not None:
        return words
    left = [(key, item) for key, item in value.items() if key not in _ASIDE and item not in _NOTHING]
    if len(left) != 1 or left[0][0] in _LABELS:
        return None
    return left[0][1] if isinstance(left[0][1], str) else None


_NOTHING: tuple[Any, ...] = (None, True, False, "", [], {})


def _first_words(values: Iterable[Any], keys: tuple[str, ...], choose: Choice, levels: int) -> str | None:
    silent = False
    for value in values:
        words = _words(value, keys, choose, levels)
        if words:
            return words
        silent = silent or words is not None
    return "" if silent else None


def _part_texts(items: Iterable[Any]) -> str | None:
    """The text of a list of Gemini's parts or LlamaIndex's blocks, which name no type."""
    said = [item.get("text") for item in items if isinstance(item, dict)]
    return "\n".join(words for words in said if isinstance(words, str)) or None
