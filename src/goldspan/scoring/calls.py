"""Calls and expectations as people write them, names and dictionaries among them, as the plain values of the model."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias, TypedDict, TypeVar, get_args

from goldspan.errors import GoldspanError
from goldspan.extraction.names import undecorate
from goldspan.goldens.words import did_you_mean, listed, shown
from goldspan.model import (
    AnyOf,
    Attempts,
    Depth,
    Duplicates,
    ExpectedTool,
    Extra,
    Golden,
    Item,
    Mode,
    Order,
    Outcome,
    Parallel,
    Run,
    ToolCall,
    ToolKind,
)

if TYPE_CHECKING:
    from typing_extensions import Unpack

CallLike: TypeAlias = "str | Mapping[str, Any] | ToolCall"
"""A tool call: its name, the value, or a dictionary with `name` and perhaps `arguments` (or `args`,
`input_parameters`), `result` (or `output`), `error`, `server`, `kind`, `outcome`, `call_id` (or `id`)."""

ToolLike: TypeAlias = "str | Mapping[str, Any] | Item"
"""An expected tool: its name, the value, or a dictionary as a golden file has it."""


class Rules(TypedDict, total=False):
    """What may be said beside a golden in place of what it says itself; `None` leaves it as it is."""

    order: Order | None
    attempts: Attempts | None
    duplicates: Duplicates | None
    extra: Extra | None
    depth: Depth | None
    mode: Mode | None
    forbid: Iterable[str] | None
    max_calls: int | None


ANONYMOUS = "given"
"""The id of a golden that was given as a list of tools."""

_Word = TypeVar("_Word")


def as_run(called: Run | Iterable[CallLike]) -> Run:
    """A run, or calls as a person wrote them in a run without an id."""
    return called if isinstance(called, Run) else Run("", tool_calls=as_calls(called))


def as_calls(called: Run | Iterable[CallLike]) -> tuple[ToolCall, ...]:
    """The calls of a run, or calls as a person wrote them. Raises `GoldspanError`, naming the one that is wrong."""
    if isinstance(called, Run):
        return called.tool_calls
    return tuple([_call(item, index) for index, item in enumerate(_items(called, "called"))])


def as_golden(expected: Golden | Iterable[ToolLike], **rules: Unpack[Rules]) -> Golden:
    """A golden, or expected tools as a person wrote them, with these rules instead of the golden's own.

    Raises `GoldspanError` for tools that cannot be read and for rules that do not exist.
    """
    golden = expected if isinstance(expected, Golden) else _golden(_items(expected, "expected"))
    given = {rule: value for rule, value in rules.items() if value is not None} if rules else rules
    if not given:
        return golden
    changed = replace(golden, **{rule: _rule(rule, value) for rule, value in given.items()})
    return golden if changed == golden else changed  # the golden that was there already knows its digest


def _items(given: Iterable[Any], what: str) -> Iterable[Any]:
    if isinstance(given, str | Mapping) or not isinstance(given, Iterable):
        raise GoldspanError(f"{what} must be a list, not {shown(given)}.")
    return given


# --- rules ------------------------------------------------------------------------------------------------------------

_WORDS: Mapping[str, tuple[str, ...]] = {
    "order": get_args(Order),
    "attempts": get_args(Attempts),
    "duplicates": get_args(Duplicates),
    "extra": get_args(Extra),
    "depth": get_args(Depth),
    "mode": get_args(Mode),
    "kind": get_args(ToolKind),
    "outcome": get_args(Outcome),
}
_RULES = frozenset(Rules.__annotations__)


def _rule(rule: str, given: Any) -> Any:
    if rule not in _RULES:
        raise GoldspanError(f"there is no rule {rule!r}.{did_you_mean(rule, _RULES)}")
    if rule == "forbid":
        patterns = tuple(_items(given, rule))
        if wrong := [pattern for pattern in patterns if not isinstance(pattern, str)]:
            raise GoldspanError(f"forbid must be a list of names, and {shown(wrong[0])} is none.")
        return patterns
    if rule == "max_calls":
        if isinstance(given, bool) or not isinstance(given, int) or given < 0:
            raise GoldspanError(f"max_calls must be a whole number, 0 or more, not {shown(given)}.")
        return given
    return _one_of(_WORDS[rule], given, rule)


def _one_of(words: tuple[str, ...], given: Any, what: str) -> Any:
    if given not in words:
        raise GoldspanError(
            f"{what} must be {listed(words, last='or')}, not {shown(given)}.{did_you_mean(given, words)}"
        )
    return given


# --- expectations -----------------------------------------------------------------------------------------------------

_PLAIN = frozenset({bool, float, int, str, type(None)})


def _golden(expected: Iterable[ToolLike]) -> Golden:
    given = tuple(expected)
    if all(type(item) is str and item for item in given):
        return _golden_of_names(given)
    return Golden(ANONYMOUS, tools=_tools(given))


@lru_cache(maxsize=2048)
def _golden_of_names(names: tuple[str, ...]) -> Golden:
    """Lists of names come again and again; the golden of one keeps what was once found out about it."""
    return Golden(ANONYMOUS, tools=tuple(map(ExpectedTool, names)))


def _tools(given: Sequence[ToolLike]) -> tuple[Item, ...]:
    plain = [_plain_tool(item) for item in given]
    if all(plain):
        return tuple(filter(None, plain))
    from goldspan.goldens.language import items  # it loads pydantic, which names and plain calls need not pay for

    return items([_with_arguments_read(item) for item in given], "expected")


def _plain_tool(item: ToolLike) -> Item | None:
    """What needs no reading: a value, a name, a name with arguments that hold nothing that could be a matcher."""
    if isinstance(item, ExpectedTool | AnyOf | Parallel):
        return item
    if isinstance(item, str):
        return ExpectedTool(item) if item else None
    if type(item) is not dict or not item.keys() <= {"name", "arguments"}:
        return None
    name, arguments = item.get("name"), item.get("arguments")
    if type(name) is not str or not name or not isinstance(arguments, dict | None):
        return None
    if arguments and not all(type(key) is str and type(value) in _PLAIN for key, value in arguments.items()):
        return None
    return ExpectedTool(name, arguments)


def _with_arguments_read(item: ToolLike) -> Any:
    """The item, with arguments that are JSON text, as models write them, in the form of a dictionary."""
    if isinstance(item, Mapping):
        for key in ("arguments", "args"):
            if isinstance(text := item.get(key), str):
                value, unread = _read(text)
                return item if unread else {**item, key: value}
    return item


# --- calls ------------------------------------------------------------------------------------------------------------

_SYNONYMS: Mapping[str, tuple[str, ...]] = {
    "arguments": ("arguments", "args", "input_parameters"),
    "result": ("result", "output"),
    "call_id": ("call_id", "id"),
}
_KEYS = ("name", "error", "server", "kind", "outcome", "agent")
_CALL_KEYS = frozenset(_KEYS).union(*_SYNONYMS.values())


def _call(item: CallLike, index: int) -> ToolCall:
    if isinstance(item, ToolCall):
        return item
    if isinstance(item, str):
        return _call_of_name(item)
    fields = _fields(item, f"called[{index}]")
    raw_name, owner = fields.pop("name"), fields.pop("server", None)
    name, server = undecorate(raw_name, (owner,) if owner else ())
    arguments, unread = _read(fields.pop("arguments", None))
    error, agent = fields.pop("error", None), fields.pop("agent", None)
    return ToolCall(
        name=name,
        raw_name=raw_name,
        server=owner or server,
        arguments=arguments,
        raw_arguments=unread,
        # Some record only that a call failed, as `true` or `false`.
        error=None if error is None or error is False else str(error),
        agent=agent if isinstance(agent, str) else None,
        **fields,
    )


@lru_cache(maxsize=4096)
def _call_of_name(raw_name: str) -> ToolCall:
    name, server = undecorate(raw_name)
    return ToolCall(name, raw_name, server)


def _fields(item: Any, where: str) -> dict[str, Any]:
    """The known keys of a dictionary, by our names; others are the author's own, unless they are a slip of the pen."""
    if not isinstance(item, Mapping):
        raise GoldspanError(f"{where}: must be the name of a tool or a dictionary with its name, not {shown(item)}.")
    if not isinstance(item.get("name"), str):
        raise GoldspanError(f"{where}: has no name: {shown(item)}.")
    for key in item.keys() - _CALL_KEYS:
        if hint := did_you_mean(str(key), _CALL_KEYS):
            raise GoldspanError(f"{where}: unknown key {key!r}.{hint}")
    synonyms = ((key, synonym) for key, others in _SYNONYMS.items() for synonym in reversed(others))
    keys = (*((key, key) for key in _KEYS), *synonyms)
    fields = {key: item[synonym] for key, synonym in keys if item.get(synonym) is not None}
    for key in ("kind", "outcome"):
        if key in fields:
            _one_of(_WORDS[key], fields[key], f"{where}: {key}")
    return fields


def _read(arguments: Any) -> tuple[Any, str | None]:
    """Arguments, read where they are JSON text, and the text where it could not be read."""
    if not isinstance(arguments, str):
        return arguments, None
    try:
        return json.loads(arguments), None
    except (ValueError, RecursionError):
        return None, arguments
