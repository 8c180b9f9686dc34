"""Calls and expectations as people write them, names and dictionaries among them, as the plain values of the model."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, TypeAlias, TypeVar, get_args

from goldspan.errors import GoldspanError
from goldspan.extraction.names import undecorate
from goldspan.goldens.words import did_you_mean, listed, shown
from goldspan.model import Attempts, ExpectedTool, Golden, Order, Outcome, Run, ToolCall, ToolKind

CallLike: TypeAlias = "str | Mapping[str, Any] | ToolCall"
"""A tool call: its name, a dictionary with `name` and perhaps `arguments` (or `args`), `error`, ..., or the value."""

ToolLike: TypeAlias = "str | Mapping[str, Any] | ExpectedTool"
"""An expected tool: its name, a dictionary with `name` and perhaps `arguments` (or `args`), or the value."""

ORDERS: tuple[Order, ...] = get_args(Order)
ATTEMPTS: tuple[Attempts, ...] = get_args(Attempts)

_CALL_KEYS = frozenset({"name", "arguments", "args", "error", "result", "server", "kind", "outcome", "call_id"})
_TOOL_KEYS = frozenset({"name", "arguments", "args", "server"})
_WORDS: Mapping[str, tuple[str, ...]] = {"kind": get_args(ToolKind), "outcome": get_args(Outcome)}

ANONYMOUS = "given"
"""The id of a golden that was given as a list of tools."""


def as_calls(called: Run | Iterable[CallLike]) -> tuple[ToolCall, ...]:
    """The calls of a run, or calls as a person wrote them. Raises `GoldspanError`, naming the one that is wrong."""
    if isinstance(called, Run):
        return called.tool_calls
    return tuple(_call(item, index) for index, item in enumerate(_items(called, "called")))


def as_golden(
    expected: Golden | Iterable[ToolLike],
    *,
    order: Order | None = None,
    attempts: Attempts | None = None,
    forbid: Iterable[str] | None = None,
) -> Golden:
    """A golden, or expected tools as a person wrote them, with what is given here instead of the golden's own."""
    golden = expected if isinstance(expected, Golden) else Golden(ANONYMOUS, tools=_tools(expected))
    if order is None and attempts is None and forbid is None:
        return golden
    changed = replace(
        golden,
        order=golden.order if order is None else _one_of(ORDERS, order, "order"),
        attempts=golden.attempts if attempts is None else _one_of(ATTEMPTS, attempts, "attempts"),
        forbid=golden.forbid if forbid is None else tuple(_items(forbid, "forbid")),
    )
    return golden if changed == golden else changed  # the golden that was there already knows its digest


_Word = TypeVar("_Word", bound=str)


def _one_of(words: tuple[_Word, ...], given: _Word, what: str) -> _Word:
    if given not in words:
        raise GoldspanError(
            f"{what} must be {listed(words, last='or')}, not {shown(given)}.{did_you_mean(given, words)}"
        )
    return given


def _tools(expected: Iterable[ToolLike]) -> tuple[ExpectedTool, ...]:
    return tuple(_tool(item, index) for index, item in enumerate(_items(expected, "expected")))


def _items(given: Iterable[Any], what: str) -> Iterable[Any]:
    if isinstance(given, str | Mapping) or not isinstance(given, Iterable):
        raise GoldspanError(f"{what} must be a list, not {shown(given)}.")
    return given


def _call(item: CallLike, index: int) -> ToolCall:
    if isinstance(item, ToolCall):
        return item
    if isinstance(item, str):
        item = {"name": item}
    fields = _fields(item, _CALL_KEYS, f"called[{index}]")
    raw_name, owner = fields.pop("name"), fields.pop("server", None)
    name, server = undecorate(raw_name, (owner,) if owner else ())
    arguments, unread = _arguments(fields)
    error = fields.pop("error", None)
    for what, words in _WORDS.items():
        if what in fields:
            _one_of(words, fields[what], f"called[{index}]: {what}")
    return ToolCall(
        name=name,
        raw_name=raw_name,
        server=owner or server,
        arguments=arguments,
        raw_arguments=unread,
        # Some record only that a call failed, as `true` or `false`.
        error=None if error is None or error is False else str(error),
        **fields,
    )


def _tool(item: ToolLike, index: int) -> ExpectedTool:
    if isinstance(item, ExpectedTool):
        return item
    if isinstance(item, str):
        return ExpectedTool(item)
    where = f"expected[{index}]"
    fields = _fields(item, _TOOL_KEYS, where)
    arguments, unread = _arguments(fields)
    if unread is not None or not isinstance(arguments, Mapping | None):
        raise GoldspanError(f"{where}: arguments must be a dictionary, not {shown(unread or arguments)}.")
    return ExpectedTool(fields["name"], arguments, fields.get("server"))


def _fields(item: Any, known: frozenset[str], where: str) -> dict[str, Any]:
    """The known keys of a dictionary; others are the author's own, unless they are a slip of the pen."""
    if not isinstance(item, Mapping):
        raise GoldspanError(f"{where}: must be the name of a tool or a dictionary with its name, not {shown(item)}.")
    if not isinstance(item.get("name"), str):
        raise GoldspanError(f"{where}: has no name: {shown(item)}.")
    for key in item.keys() - known:
        if hint := did_you_mean(str(key), known):
            raise GoldspanError(f"{where}: unknown key {key!r}.{hint}")
    return {key: item[key] for key in known if key in item}


def _arguments(fields: dict[str, Any]) -> tuple[Any, str | None]:
    """The arguments among some fields, taken out of them, and their text where it could not be read."""
    given = [fields.pop(key) for key in ("arguments", "args") if key in fields]
    arguments = next((value for value in given if value is not None), None)
    if not isinstance(arguments, str):
        return arguments, None
    try:
        return json.loads(arguments), None
    except (ValueError, RecursionError):
        return None, arguments
