"""Reads fields of cases, calls and expected calls under the names of several evaluation tools.

Rows are dictionaries, objects or lines of a table. Keys are compared without case and separators, so that
`tools_called`, `toolsCalled` and `Tools Called` are equal. A row may mix the names of several tools.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any

from goldspan.content.literals import parse_literal
from goldspan.errors import GoldspanError
from goldspan.goldens.spelling import did_you_mean, short_repr
from goldspan.model import ABSENT, AnyOf, ExpectedTool, Parallel, ToolCall, ToolDefinition
from goldspan.model.name_folding import fold_name

FieldAliases = Mapping[str, tuple[str, ...]]
"""The names of each field. If a row has several of them, the first one with a value counts."""

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
"""Fields of calls in the formats of other tools that are not compared."""
_TEXT_KEYS: Mapping[str, str] = {"input": "user_message", "output": "assistant_message"}
"""The key of the text if an input or an output is a dictionary."""
_PLAIN_TYPES = str | int | float | None
"""Values that need no normalization: names, and values that are not calls in any format."""
_MAX_NESTING = 10


def is_not_none(value: Any) -> bool:
    """Whether a value is not `None`."""
    return value is not None


def is_not_blank(value: Any) -> bool:
    """Whether a table cell has a value. Empty cells are blank text, or NaN from pandas."""
    if isinstance(value, str):
        return bool(value.strip())
    return value is not None and not (isinstance(value, float) and math.isnan(value))


def split_fields(
    row: Any, aliases: FieldAliases, *, is_present: Callable[[Any], bool] = is_not_none
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns the known fields of a row or a call, and the other keys. Of an object, only known attributes are read.

    `is_present` decides whether a value counts as stated.
    """
    if not isinstance(row, Mapping):
        values = {field: _first_attribute(row, names) for field, names in aliases.items()}
        return {field: value for field, value in values.items() if is_present(value)}, {}
    found: dict[str, tuple[int, Any]] = {}
    other_fields: dict[str, Any] = {}
    field_by_alias = _field_by_alias(aliases)
    for key, value in row.items():
        field, rank = field_by_alias.get(fold_name(key) if isinstance(key, str) else "", ("", 0))
        if not field:
            other_fields[str(key)] = value
        elif is_present(value) and (field not in found or rank < found[field][0]):
            found[field] = rank, value
    return {field: value for field, (_, value) in found.items()}, other_fields


def unknown_key_hint(row: Any, field: str, aliases: FieldAliases) -> str:
    """Returns a message about a key of a row that is a misspelled name of the field, or an empty text."""
    keys = row if isinstance(row, Mapping) else ()
    known = _field_by_alias(aliases)
    for key in keys:
        if isinstance(key, str) and fold_name(key) not in known and (hint := did_you_mean(key, aliases[field])):
            return f"unknown key {key!r}.{hint}"
    return ""


def parse_tool_list(value: Any, field: str) -> list[Any]:
    """Parses a list of calls: a list, JSON, a Python literal, or names separated by `;`, `,` or `|`.

    Raises `GoldspanError` for a value that is not a list.
    """
    if isinstance(value, str):
        text = value.strip()
        value = parse_literal(text) if text[:1] in ("[", "{", "(", '"') else ABSENT
        if value is ABSENT and text[:1] in ("[", "{"):
            raise GoldspanError(f"{field} starts like a list, but is not a valid one: {short_repr(text)}.")
        if value is ABSENT:
            return [name for part in text.replace("|", ";").replace(",", ";").split(";") if (name := part.strip())]
    if isinstance(value, str | Mapping):
        return [value]
    if not isinstance(value, Iterable):
        raise GoldspanError(f"{field} must be a list of tools, not {short_repr(value)}.")
    return list(value)


def normalize_call(item: Any) -> Any:
    """Returns a call with the field names of goldspan."""
    if isinstance(item, _PLAIN_TYPES | ToolCall):
        return item
    fields, other_fields = split_fields(_unwrap_function_call(item), CALL_FIELDS)
    if fields.get("error") is True:
        fields["error"] = "failed"
    return _drop_ignored_fields(other_fields) | fields


def normalize_expected_call(item: Any, *, levels: int = _MAX_NESTING) -> Any:
    """Returns an expected call, or alternatives, with the keys of golden files."""
    if isinstance(item, _PLAIN_TYPES | ExpectedTool | AnyOf | Parallel) or not levels:
        return item
    if isinstance(item, list | tuple):
        return [normalize_expected_call(inner, levels=levels - 1) for inner in item]
    fields, other_fields = split_fields(_unwrap_function_call(item), EXPECTED_CALL_FIELDS)
    if isinstance(item, Mapping) and "result" in item:
        fields["result"] = item["result"]  # under goldspan's own key, `None` is a result like any other value
    for key in ("any_of", "parallel"):
        if key in other_fields:
            other_fields[key] = normalize_expected_call(other_fields[key], levels=levels - 1)
    return _drop_ignored_fields(other_fields) | fields


def parse_tool_definition(item: Any) -> ToolDefinition:
    """Parses an available tool. Raises `GoldspanError` for an invalid definition."""
    if isinstance(item, ToolDefinition):
        return item
    fields, _ = split_fields({"name": item} if isinstance(item, str) else _unwrap_function_call(item), TOOL_FIELDS)
    name, description, parameters = (fields.get(key) for key in ("name", "description", "parameters"))
    if not isinstance(name, str):
        raise GoldspanError(f"available_tools must hold names or definitions of tools, not {short_repr(item)}.")
    return ToolDefinition(
        name,
        description if isinstance(description, str) else None,
        parameters if isinstance(parameters, Mapping) else None,
    )


def text_field(fields: Mapping[str, Any], field: str) -> str | None:
    """Returns the text of an input or an output: of a dictionary, the text of its message, else `str(value)`."""
    value = fields.get(field)
    if isinstance(value, Mapping) and isinstance(value.get(_TEXT_KEYS.get(field, "")), str):
        value = value[_TEXT_KEYS[field]]
    return value if value is None or isinstance(value, str) else str(value)


def _first_attribute(item: Any, names: Iterable[str]) -> Any:
    """Returns the first existing attribute. Other names may be deprecated aliases that warn when they are read."""
    for name in names:
        if hasattr(item, name):
            return getattr(item, name)
    return None


def _unwrap_function_call(item: Any) -> Any:
    """Merges the function of a call in the format of model APIs: `{"type": "function", "function": {"name": ...}}`."""
    function = item.get("function") if isinstance(item, Mapping) else None
    return {**item, **function} if isinstance(function, Mapping) else item


def _drop_ignored_fields(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in fields.items() if fold_name(key) not in _FOLDED_IGNORED_FIELDS}


_FOLDED_IGNORED_FIELDS = frozenset(map(fold_name, _IGNORED_FIELDS))


@cache
def _index_aliases(aliases: tuple[tuple[str, tuple[str, ...]], ...]) -> Mapping[str, tuple[str, int]]:
    return {fold_name(name): (field, rank) for field, names in aliases for rank, name in enumerate(names)}


def _field_by_alias(aliases: FieldAliases) -> Mapping[str, tuple[str, int]]:
    """Returns for each folded name its field and its rank among the names of the field."""
    return _index_aliases(tuple(aliases.items()))
