"""What evaluation tools call the fields of a case, of a call and of an expected call.

Their rows come as dictionaries, as objects and as lines of a table. Keys are compared without case and separators, so
that `tools_called`, `toolsCalled` and `Tools Called` are one; a row may mix the words of several tools.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any

from goldspan.content.literals import parse_literal
from goldspan.content.tools import fold_name
from goldspan.errors import GoldspanError
from goldspan.goldens.spelling import did_you_mean, short_repr
from goldspan.model import ABSENT, AnyOf, ExpectedTool, Parallel, ToolCall, ToolDefinition

FieldAliases = Mapping[str, tuple[str, ...]]
"""For each field the words for it; where a row has several of them, the first that says something counts."""

CASE_FIELDS: FieldAliases = {
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
CALL_FIELDS: FieldAliases = {
    "name": ("name", "tool_name", "tool"),
    "arguments": ("arguments", "args", "input_parameters", "tool_input", "parameters", "input"),
    "result": ("result", "output", "tool_output"),
    "error": ("error", "is_error"),
    "server": ("server", "server_name"),
    "kind": ("kind",),
    "outcome": ("outcome",),
    "call_id": ("call_id", "tool_call_id", "id"),
}
EXPECTED_CALL_FIELDS: FieldAliases = {key: CALL_FIELDS[key] for key in ("name", "arguments", "result", "server")}
TOOL_FIELDS: FieldAliases = {
    "name": ("name", "tool_name"),
    "description": ("description",),
    "parameters": ("parameters", "input_schema", "schema"),
}
_IGNORED_FIELDS = ("id", "call_id", "description", "reasoning", "type", "tags", "request_latency", "error", "function")
"""What calls say in the words of other tools, and what is nothing to compare."""
_TEXT_KEYS: Mapping[str, str] = {"input": "user_message", "output": "assistant_message"}
"""Under which key the text stands where an input or an output is a dictionary."""
_PLAIN_TYPES = str | int | float | None
"""A name is the same everywhere, and the rest is no call in any dialect."""
_MAX_NESTING = 10


def is_not_none(value: Any) -> bool:
    """Whether a value says anything."""
    return value is not None


def is_not_blank(value: Any) -> bool:
    """Whether a cell of a table does: one that is empty is blank text, or what pandas has in its place."""
    if isinstance(value, str):
        return bool(value.strip())
    return value is not None and not (isinstance(value, float) and math.isnan(value))


def split_fields(
    row: Any, aliases: FieldAliases, *, is_present: Callable[[Any], bool] = is_not_none
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The fields that a row or a call states, and what else it says; of an object only known attributes are looked at.

    `states` tells whether a value says anything.
    """
    if not isinstance(row, Mapping):
        values = {field: _first_attribute(row, words) for field, words in aliases.items()}
        return {field: value for field, value in values.items() if is_present(value)}, {}
    found: dict[str, tuple[int, Any]] = {}
    rest: dict[str, Any] = {}
    known = _field_by_alias(aliases)
    for key, value in row.items():
        field, rank = known.get(fold_name(key) if isinstance(key, str) else "", ("", 0))
        if not field:
            rest[str(key)] = value
        elif is_present(value) and (field not in found or rank < found[field][0]):
            found[field] = rank, value
    return {field: value for field, (_, value) in found.items()}, rest


def unknown_key_hint(row: Any, field: str, aliases: FieldAliases) -> str:
    """A key of a row that was probably meant to be one for that field, as a sentence; empty where there is none."""
    keys = row if isinstance(row, Mapping) else ()
    known = _field_by_alias(aliases)
    for key in keys:
        if isinstance(key, str) and fold_name(key) not in known and (hint := did_you_mean(key, aliases[field])):
            return f"unknown key {key!r}.{hint}"
    return ""


def parse_tool_list(value: Any, field: str) -> list[Any]:
    """A list of calls, however it is written: as one, as JSON, as Python writes it, or as names with `;` between.

    Raises `GoldspanError` for what is no list.
    """
    if isinstance(value, str):
        text = value.strip()
        value = parse_literal(text) if text[:1] in ("[", "{", "(", '"') else ABSENT
        if value is ABSENT and text[:1] in ("[", "{"):
            raise GoldspanError(f"{field} begins like a list and is none: {short_repr(text)}.")
        if value is ABSENT:
            return [name for part in text.replace("|", ";").replace(",", ";").split(";") if (name := part.strip())]
    if isinstance(value, str | Mapping):
        return [value]
    if not isinstance(value, Iterable):
        raise GoldspanError(f"{field} must be a list of tools, not {short_repr(value)}.")
    return list(value)


def normalize_call(item: Any) -> Any:
    """A call in goldspan's words."""
    if isinstance(item, _PLAIN_TYPES | ToolCall):
        return item
    fields, rest = split_fields(_unwrap_function_call(item), CALL_FIELDS)
    if fields.get("error") is True:
        fields["error"] = "failed"
    return _drop_ignored_fields(rest) | fields


def normalize_expected_call(item: Any, *, levels: int = _MAX_NESTING) -> Any:
    """An expected call, or alternatives, in the words of the golden language; what is said there already stays."""
    if isinstance(item, _PLAIN_TYPES | ExpectedTool | AnyOf | Parallel) or not levels:
        return item
    if isinstance(item, list | tuple):
        return [normalize_expected_call(inner, levels=levels - 1) for inner in item]
    fields, rest = split_fields(_unwrap_function_call(item), EXPECTED_CALL_FIELDS)
    if isinstance(item, Mapping) and "result" in item:
        fields["result"] = item["result"]  # in goldspan's own word `None` is a result like any other
    for word in ("any_of", "parallel"):
        if word in rest:
            rest[word] = normalize_expected_call(rest[word], levels=levels - 1)
    return _drop_ignored_fields(rest) | fields


def parse_tool_definition(item: Any) -> ToolDefinition:
    """A tool that the agent could have called. Raises `GoldspanError` for what is none."""
    if isinstance(item, ToolDefinition):
        return item
    fields, _ = split_fields({"name": item} if isinstance(item, str) else _unwrap_function_call(item), TOOL_FIELDS)
    name, description, parameters = (fields.get(key) for key in ("name", "description", "parameters"))
    if not isinstance(name, str):
        raise GoldspanError(f"available_tools: must hold names or definitions of tools, not {short_repr(item)}.")
    return ToolDefinition(
        name,
        description if isinstance(description, str) else None,
        parameters if isinstance(parameters, Mapping) else None,
    )


def text_field(fields: Mapping[str, Any], field: str) -> str | None:
    """The text of an input or an output; that of a dictionary of theirs, and any other value as Python writes it."""
    value = fields.get(field)
    if isinstance(value, Mapping) and isinstance(value.get(_TEXT_KEYS.get(field, "")), str):
        value = value[_TEXT_KEYS[field]]
    return value if value is None or isinstance(value, str) else str(value)


def _first_attribute(item: Any, names: Iterable[str]) -> Any:
    """The first of these attributes that there is. Others may be old names for it, which warn when they are used."""
    for word in names:
        if hasattr(item, word):
            return getattr(item, word)
    return None


def _unwrap_function_call(item: Any) -> Any:
    """The function of a call as the APIs of models write it: `{"type": "function", "function": {"name": ...}}`."""
    function = item.get("function") if isinstance(item, Mapping) else None
    return {**item, **function} if isinstance(function, Mapping) else item


def _drop_ignored_fields(rest: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in rest.items() if fold_name(key) not in _FOLDED_IGNORED_FIELDS}


_FOLDED_IGNORED_FIELDS = frozenset(map(fold_name, _IGNORED_FIELDS))


@cache
def _index_aliases(aliases: tuple[tuple[str, tuple[str, ...]], ...]) -> Mapping[str, tuple[str, int]]:
    return {fold_name(word): (field, rank) for field, words in aliases for rank, word in enumerate(words)}


def _field_by_alias(aliases: FieldAliases) -> Mapping[str, tuple[str, int]]:
    """For each word, folded, its field and how far back it stands among the words for it."""
    return _index_aliases(tuple(aliases.items()))
