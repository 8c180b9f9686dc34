"""Arguments, results and texts as people's tracers write them, turned into plain values.

JSON, JSON inside JSON, the `repr` of Python values, and the envelopes that decorators put around arguments. What
cannot be read is never guessed at: it stays as the text it was.
"""

from __future__ import annotations

import ast
import json
import re
from typing import Any

from goldspan.model import ABSENT

_BRACKETS = re.compile(r"[\[\](){}]")
_COMPLAINT = re.compile(r"\s*(?:error|exception|traceback|failed|failure)\b", re.IGNORECASE)
_NESTING = 3
"""How often a text may be JSON again. Seen in the wild: twice."""
_DEEPEST = 200
"""Levels: what is nested deeper could not be compared or written again without exhausting the stack."""
_TOKENS = re.compile(
    r"""(?P<space>\s+)
      | (?P<mark>[\[\](){},:]+)
      | (?P<text>b?(?:'(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*"))
      | (?P<value>[-+]?\d[\d.]*(?:[eE][-+]?\d+)?|\b(?:True|False|None|set)\b)
      | .""",
    re.VERBOSE | re.DOTALL,
)
_LONGEST_REPR = 1_000_000
"""Characters: Python's parser takes far more memory than a text is long."""


def plain(value: Any) -> Any:
    """A value as written, with JSON and Python notation read; any other text stays text."""
    for _ in range(_NESTING):
        if isinstance(value, bytes):
            value = value.decode("utf-8", "replace")
        if not isinstance(value, str):
            return value
        read = _notation(value)
        if read is ABSENT:
            return value
        value = read
    return value


def arguments(value: Any) -> tuple[Any, str | None]:
    """The arguments of a call and, where they cannot be read, their text instead.

    An empty text means that there were none. A text in no known notation, most often JSON that an attribute limit cut
    off, gives `(None, text)`.
    """
    if value is ABSENT or value is None:
        return None, None
    read = plain(value)
    if isinstance(read, str):
        return (None, read) if read.strip() else ({}, None)
    return unwrap_arguments(read), None


def unwrap_arguments(value: Any) -> Any:
    """Take arguments out of the envelope of a decorator: `{"args": [], "kwargs": {...}}`.

    With positional arguments alone the list is kept: their names are not known here.
    """
    if isinstance(value, dict) and "kwargs" in value and set(value) <= {"args", "kwargs", "sanitize_inputs_outputs"}:
        positional, named = value.get("args") or [], value["kwargs"] or {}
        if not positional:
            return named
        if len(positional) == 1 and isinstance(positional[0], dict) and not named:
            return positional[0]
        return positional if not named else {**named, "args": positional}
    return value


def text(value: Any) -> str | None:
    """The words in a value that stands for a request's input or output.

    A text is itself; a list of messages is its last text; an envelope with one text in it is that text.
    """
    read = plain(value)
    for _ in range(_NESTING):
        if isinstance(read, dict):
            read = _content(unwrap_arguments(read))
        if isinstance(read, list) and len(read) == 1:
            read = read[0]
    if isinstance(read, str):
        return read or None
    return None if read in (None, ABSENT, [], {}) else json.dumps(read, ensure_ascii=False, default=str)


def complaint(result: Any) -> str | None:
    """The beginning of a result that reads like an error, though nothing in the telemetry says that it is one."""
    if isinstance(result, str) and _COMPLAINT.match(result):
        return result[:200]
    return None


def _content(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    for key in ("messages", "content", "text", "input", "question", "query", "task", "prompt", "output"):
        if key in value:
            return value[key]
    strings = [item for item in value.values() if isinstance(item, str)]
    return strings[0] if len(strings) == 1 else value


def _notation(value: str) -> Any:
    """The value a text denotes in JSON or as a Python literal, else `ABSENT`."""
    stripped = value.strip()
    if not stripped or _too_deep(stripped):
        return ABSENT
    try:
        return json.loads(stripped)
    except ValueError:
        pass
    except RecursionError:
        return ABSENT
    if stripped[0] in "{[(" and len(stripped) <= _LONGEST_REPR and _is_literal(stripped):
        try:
            return ast.literal_eval(stripped)
        except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
            pass
    return ABSENT


def _is_literal(text: str) -> bool:
    """Whether a text is made of Python's literals and nothing else.

    Python's parser recurses over operators, and on some versions a long chain of them (`1+1+1+...`) kills the process:
    it must not see what somebody put into a trace before this has.
    """
    before = "mark"
    for token in _TOKENS.finditer(text):
        kind = token.lastgroup
        if kind is None or (kind == "value" and before != "mark"):
            return False
        before = before if kind == "space" else kind
    return True


def _too_deep(text: str) -> bool:
    """Whether brackets are nested beyond what can be handled; those inside quoted text count too, which is no harm."""
    if sum(map(text.count, "[{(")) <= _DEEPEST:
        return False
    depth = 0
    for bracket in _BRACKETS.finditer(text):
        depth += 1 if bracket[0] in "[{(" else -1
        if depth > _DEEPEST:
            return True
    return False
