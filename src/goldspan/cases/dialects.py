"""What evaluation tools call the fields of a case, of a call and of an expected call.

Their rows come as dictionaries, as objects and as lines of a table. Keys are compared without case and separators, so
that `tools_called`, `toolsCalled` and `Tools Called` are one; a row may mix the words of several tools.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any

from goldspan.errors import GoldspanError
from goldspan.extraction.names import fold
from goldspan.extraction.notation import denoted
from goldspan.goldens.words import did_you_mean, shown
from goldspan.model import ABSENT, AnyOf, ExpectedTool, Parallel, ToolCall, ToolDefinition

Names = Mapping[str, tuple[str, ...]]
"""For each field the words for it; where a row has several of them, the first that says something counts."""

CASE: Names = {
    "id": ("id", "run_id", "case_id", "test_case_id", "dataset_id", "name"),
    "tools_called": ("tools_called", "tools_used", "actual_tools", "actual_tool_calls", "tool_calls"),
    "expected_tools": ("expected_tools", "expected_tool_calls", "reference_tools", "reference_tool_calls"),
    "golden_id": ("golden_id",),
    "input": ("input", "query", "question", "prompt", "user_input"),
    "output": ("output", "actual_output", "response", "answer"),
    "session_id": ("session_id", "conversation_id"),
    "agent": ("agent", "agent_name"),
    "available_tools": ("available_tools",),
    "metadata": ("metadata", "additional_metadata", "dataset_metadata"),
}
CALL: Names = {
    "name": ("name", "tool_name", "tool"),
    "arguments": ("arguments", "args", "input_parameters", "tool_input", "parameters", "input"),
    "result": ("result", "output", "tool_output"),
    "error": ("error", "is_error"),
    "server": ("server", "server_name"),
    "kind": ("kind",),
    "outcome": ("outcome",),
    "call_id": ("call_id", "tool_call_id", "id"),
}
EXPECTED_CALL: Names = {key: CALL[key] for key in ("name", "arguments", "result", "server")}
TOOL: Names = {
    "name": ("name", "tool_name"),
    "description": ("description",),
    "parameters": ("parameters", "input_schema", "schema"),
}
_ASIDES = ("id", "call_id", "description", "reasoning", "type", "tags", "request_latency", "error", "function")
"""What calls say in the words of other tools, and what is nothing to compare."""
_TEXTS: Mapping[str, str] = {"input": "user_message", "output": "assistant_message"}
"""Under which key the text stands where an input or an output is a dictionary."""
_NO_DIALECT = str | int | float | None
"""A name is the same everywhere, and the rest is no call in any dialect."""
_DEEPEST = 10


def is_given(value: Any) -> bool:
    """Whether a value says anything."""
    return value is not None


def is_filled(value: Any) -> bool:
    """Whether a cell of a table does: one that is empty is blank text, or what pandas has in its place."""
    if isinstance(value, str):
        return bool(value.strip())
    return value is not None and not (isinstance(value, float) and math.isnan(value))


def fields_of(
    row: Any, names: Names, *, states: Callable[[Any], bool] = is_given
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The fields that a row or a call states, and what else it says; of an object only known attributes are looked at.

    `states` tells whether a value says anything.
    """
    if not isinstance(row, Mapping):
        values = {field: _attribute(row, words) for field, words in names.items()}
        return {field: value for field, value in values.items() if states(value)}, {}
    found: dict[str, tuple[int, Any]] = {}
    rest: dict[str, Any] = {}
    known = _known(names)
    for key, value in row.items():
        field, rank = known.get(fold(key) if isinstance(key, str) else "", ("", 0))
        if not field:
            rest[str(key)] = value
        elif states(value) and (field not in found or rank < found[field][0]):
            found[field] = rank, value
    return {field: value for field, (_, value) in found.items()}, rest


def slip(row: Any, field: str, names: Names) -> str:
    """A key of a row that was probably meant to be one for that field, as a sentence; empty where there is none."""
    keys = row if isinstance(row, Mapping) else ()
    known = _known(names)
    for key in keys:
        if isinstance(key, str) and fold(key) not in known and (hint := did_you_mean(key, names[field])):
            return f"unknown key {key!r}.{hint}"
    return ""


def listed_in(value: Any, what: str) -> list[Any]:
    """A list of calls, however it is written: as one, as JSON, as Python writes it, or as names with `;` between.

    Raises `GoldspanError` for what is no list.
    """
    if isinstance(value, str):
        text = value.strip()
        value = denoted(text) if text[:1] in ("[", "{", "(", '"') else ABSENT
        if value is ABSENT and text[:1] in ("[", "{"):
            raise GoldspanError(f"{what} begins like a list and is none: {shown(text)}.")
        if value is ABSENT:
            return [name for part in text.replace("|", ";").replace(",", ";").split(";") if (name := part.strip())]
    if isinstance(value, str | Mapping):
        return [value]
    if not isinstance(value, Iterable):
        raise GoldspanError(f"{what} must be a list of tools, not {shown(value)}.")
    return list(value)


def call_of(item: Any) -> Any:
    """A call in goldspan's words."""
    if isinstance(item, _NO_DIALECT | ToolCall):
        return item
    fields, rest = fields_of(_unwrapped(item), CALL)
    if fields.get("error") is True:
        fields["error"] = "failed"
    return _without_asides(rest) | fields


def expected_of(item: Any, *, levels: int = _DEEPEST) -> Any:
    """An expected call, or alternatives, in the words of the golden language; what is said there already stays."""
    if isinstance(item, _NO_DIALECT | ExpectedTool | AnyOf | Parallel) or not levels:
        return item
    if isinstance(item, list | tuple):
        return [expected_of(inner, levels=levels - 1) for inner in item]
    fields, rest = fields_of(_unwrapped(item), EXPECTED_CALL)
    if isinstance(item, Mapping) and "result" in item:
        fields["result"] = item["result"]  # in goldspan's own word `None` is a result like any other
    for word in ("any_of", "parallel"):
        if word in rest:
            rest[word] = expected_of(rest[word], levels=levels - 1)
    return _without_asides(rest) | fields


def definition_of(item: Any) -> ToolDefinition:
    """A tool that the agent could have called. Raises `GoldspanError` for what is none."""
    if isinstance(item, ToolDefinition):
        return item
    fields, _ = fields_of({"name": item} if isinstance(item, str) else _unwrapped(item), TOOL)
    name, description, parameters = (fields.get(key) for key in ("name", "description", "parameters"))
    if not isinstance(name, str):
        raise GoldspanError(f"available_tools: must hold names or definitions of tools, not {shown(item)}.")
    return ToolDefinition(
        name,
        description if isinstance(description, str) else None,
        parameters if isinstance(parameters, Mapping) else None,
    )


def text_of(fields: Mapping[str, Any], field: str) -> str | None:
    """The text of an input or an output; that of a dictionary of theirs, and any other value as Python writes it."""
    value = fields.get(field)
    if isinstance(value, Mapping) and isinstance(value.get(_TEXTS.get(field, "")), str):
        value = value[_TEXTS[field]]
    return value if value is None or isinstance(value, str) else str(value)


def _attribute(item: Any, words: Iterable[str]) -> Any:
    """The first of these attributes that there is. Others may be old names for it, which warn when they are used."""
    for word in words:
        if hasattr(item, word):
            return getattr(item, word)
    return None


def _unwrapped(item: Any) -> Any:
    """The function of a call as the APIs of models write it: `{"type": "function", "function": {"name": ...}}`."""
    function = item.get("function") if isinstance(item, Mapping) else None
    return {**item, **function} if isinstance(function, Mapping) else item


def _without_asides(rest: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in rest.items() if fold(key) not in _FOLDED_ASIDES}


_FOLDED_ASIDES = frozenset(map(fold, _ASIDES))


@cache
def _index(names: tuple[tuple[str, tuple[str, ...]], ...]) -> Mapping[str, tuple[str, int]]:
    return {fold(word): (field, rank) for field, words in names for rank, word in enumerate(words)}


def _known(names: Names) -> Mapping[str, tuple[str, int]]:
    """For each word, folded, its field and how far back it stands among the words for it."""
    return _index(tuple(names.items()))
