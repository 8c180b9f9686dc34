"""Arguments, results and texts as people's tracers write them, turned into plain values.

This is the door to `notation` (what a text denotes), `envelopes` (what frameworks wrap around a value) and `texts`
(the words in what stands for a request's input or output). What cannot be read is never guessed at: it stays as the
text it was.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from goldspan.extraction.envelopes import Request, RequestEnvelope, Result, properties, request, result
from goldspan.extraction.notation import Constructed, plain
from goldspan.extraction.texts import answered_text, asked_text, text
from goldspan.model import ABSENT

__all__ = [
    "Constructed",
    "Request",
    "Result",
    "answered_text",
    "arguments",
    "asked_text",
    "complaint",
    "named",
    "plain",
    "request",
    "result",
    "text",
]


def arguments(
    value: Any, *envelopes: RequestEnvelope, parameters: Mapping[str, Any] | None = None
) -> tuple[Any, str | None]:
    """The arguments of a call and, where they cannot be read, their text instead.

    An empty text means that there were none. A text in no known notation, most often JSON that an attribute limit cut
    off, gives `(None, text)`. With the tool's JSON schema, a bare value and positional arguments get their names.
    """
    if value is ABSENT or value is None:
        return None, None
    opened = request(value, *envelopes, parameters=parameters).arguments
    if isinstance(opened, str) and not opened.strip():
        return {}, None
    if parameters and not isinstance(opened, dict):
        # A single value that is a text by the schema is what was written, not what it would be as JSON.
        bare = isinstance(value, str) and value.lstrip()[:1] not in _BRACKETS
        opened = named(value if bare and opened is not None else opened, parameters)
    return (None, opened) if isinstance(opened, str) else (opened, None)


def named(value: Any, parameters: Mapping[str, Any] | None) -> Any:
    """Arguments by name: a bare single value, or positional ones, under the names in the tool's JSON schema.

    Where the schema does not tell whose value it is, and where the value is cut-off JSON, it stays as it is.
    """
    known = properties(parameters) if parameters else {}
    if isinstance(value, dict) or value is None or not known:
        return value
    single = _single(known, parameters or {})
    if isinstance(value, (list, tuple)) and not (single and "array" in _types(known[single]) and not _wraps(value)):
        return dict(zip(known, value, strict=False)) if 0 < len(value) <= len(known) else value
    if single is None:
        return value
    fitting = _fitting(value, _types(known[single]))
    return value if fitting is ABSENT else {single: fitting}


def complaint(result: Any) -> str | None:
    """The beginning of a result that reads like an error, though nothing in the telemetry says that it is one."""
    if isinstance(result, dict) and len(result) <= _FEW:
        result = result.get("error")
        return result[:_LONGEST_COMPLAINT] if isinstance(result, str) and result else None
    if isinstance(result, str) and _COMPLAINT.match(result):
        return result[:_LONGEST_COMPLAINT]
    return None


_COMPLAINT = re.compile(r"\s*(?:error|exception|traceback|failed|failure)\b", re.IGNORECASE)
_LONGEST_COMPLAINT = 200
_FEW = 3
"""Keys of a dictionary that is about its error and nothing else."""


def _single(known: Mapping[str, Any], parameters: Mapping[str, Any]) -> str | None:
    """The one parameter a bare value can be for: the tool's only one, or the only one it requires."""
    required = parameters.get("required")
    if len(known) > 1 and isinstance(required, (list, tuple)):
        known = {name: known[name] for name in required if isinstance(name, str) and name in known}
    return next(iter(known)) if len(known) == 1 else None


def _types(schema: Any) -> frozenset[str]:
    """The JSON types a parameter may have; none where its schema does not say."""
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


def _wraps(value: Any) -> bool:
    """Whether a list holds, as the only positional argument, a list."""
    return len(value) == 1 and isinstance(value[0], (list, tuple))


def _fitting(value: Any, types: frozenset[str]) -> Any:
    """A bare value as its type wants it; `ABSENT` where it is cut off or of another type."""
    if not isinstance(value, str):
        return value
    read = plain(value)
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
