"""The keys of the golden language: which there are, which are yet to come, and which are a slip of the pen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from goldspan.errors import GoldenError
from goldspan.goldens.words import did_you_mean, nearest, shown


@dataclass(frozen=True, slots=True, eq=False)
class Keys:
    """The keys that one kind of mapping may have."""

    fields: Mapping[str, str]
    """Each key and the field it is read into: two keys of one field are two names for it."""
    to_come: frozenset[str] = frozenset()
    """Keys of the golden language that this version does not understand yet. To pass over them in silence would make a
    golden say something else than its author."""


HEAD = Keys(
    {key: key for key in ("version", "defaults", "tools", "servers", "goldens")},
    to_come=frozenset({"metrics"}),
)
DECLARED_TOOL = Keys(
    {
        "aliases": "aliases",
        "alias": "aliases",
        "server": "server",
        "effect": "effect",
        "description": "description",
        "parameters": "parameters",
        "schema": "parameters",
    }
)
DEFAULTS = Keys(
    {"order": "order", "forbid": "forbid", "attempts": "attempts", "threshold": "threshold"},
    to_come=frozenset({"depth", "duplicates", "extra", "max_calls", "metrics", "thresholds"}),
)
GOLDEN = Keys(
    {
        **DEFAULTS.fields,
        "id": "id",
        "input": "input",
        "tools": "tools",
        "expected_tools": "tools",
        "write_tools": "write_tools",
    },
    to_come=DEFAULTS.to_come | {"any_of", "component", "optional", "parallel", "times", "when"},
)
TOOL = Keys(
    {"name": "name", "arguments": "arguments", "args": "arguments", "server": "server"},
    to_come=frozenset(
        {"any_of", "defaults", "effect", "ignore", "match", "optional", "output", "parallel", "result", "times"}
    ),
)

_MATCHERS = frozenset({"any", "approx", "contains", "one_of", "regex", "similar", "type"})
_ONLY_WITH: Mapping[str, list[Any]] = {
    "any": [True],
    "type": ["array", "boolean", "integer", "null", "number", "object", "string"],
}
"""Matchers whose name many a tool has for a key of its own, and the values that make one a matcher."""


def sort_keys(mapping: Mapping[Any, Any], keys: Keys, where: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Split a mapping into goldspan's fields and the rest, which is the author's own.

    Raises `GoldenError` for a key that is yet to come, one that is nearly a known one, and a field given twice.
    """
    fields: dict[str, Any] = {}
    rest: dict[str, Any] = {}
    for key, value in mapping.items():
        if not isinstance(key, str):
            raise GoldenError(f"{where}: the key {shown(key)} must be text.")
        field = keys.fields.get(key)
        if field is None:
            if key in keys.to_come:
                raise GoldenError(f"{where}: the key {key!r} is not supported yet.")
            if _is_slip(key, keys):
                raise GoldenError(f"{where}: unknown key {key!r}.{did_you_mean(key, _words(keys))}")
            rest[key] = value
        elif field in fields:
            raise GoldenError(f"{where}: {key!r} says {field!r} a second time; keep one of them.")
        else:
            fields[field] = value
    return fields, rest


def matcher_in(value: Mapping[Any, Any]) -> str | None:
    """The matcher that an argument's value is written as, such as `{regex: ...}`, or `None` for plain data.

    Matchers are yet to come. What only may be one, such as an argument that has a key `type` of its own, is data.
    """
    matchers = _MATCHERS.intersection(value) if 0 < len(value) <= 2 else frozenset()
    if not matchers or not value.keys() - matchers <= {"relative", "within"}:
        return None
    matcher = min(matchers)
    only_with = _ONLY_WITH.get(matcher)
    return matcher if only_with is None or value[matcher] in only_with else None


@lru_cache(maxsize=1024)
def _is_slip(key: str, keys: Keys) -> bool:
    return nearest(key, _words(keys)) is not None


def _words(keys: Keys) -> frozenset[str]:
    return keys.to_come.union(keys.fields)
