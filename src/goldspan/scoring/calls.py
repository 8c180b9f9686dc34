"""Calls and expectations as people write them, names and dictionaries among them, as the plain values of the model."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias, TypedDict, TypeVar, get_args

from goldspan.errors import GoldspanError
from goldspan.extraction.names import undecorate
from goldspan.extraction.values import complaint
from goldspan.goldens.words import did_you_mean, listed, shown
from goldspan.model import (
    AnyOf,
    ArgumentsMatch,
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
    Unknown,
    When,
)
from goldspan.model.goldens import matched

if TYPE_CHECKING:
    from typing_extensions import Unpack

CallLike: TypeAlias = "str | Mapping[str, Any] | ToolCall"
"""A tool call: its name, the value, or a dictionary with `name` and perhaps `arguments` (or `args`,
`input_parameters`), `result` (or `output`), `error`, `server`, `kind`, `outcome`, `call_id` (or `id`)."""

ToolLike: TypeAlias = "str | Mapping[str, Any] | Item"
"""An expected tool: its name, the value, or a dictionary as a golden file has it."""


class Rules(TypedDict, total=False):
    """What may be said beside a golden in place of what it says itself; `None` leaves it as it is.

    Every key of a golden file, but for `input`, `metrics` and `thresholds`, which `evaluate` has itself.
    """

    id: str | None
    when: Mapping[str, Any] | When | None
    component: str | None
    policy: bool | None
    order: Order | None
    attempts: Attempts | None
    duplicates: Duplicates | None
    extra: Extra | None
    depth: Depth | None
    match: ArgumentsMatch | None
    mode: Mode | None
    forbid: Iterable[str] | None
    max_calls: int | None
    threshold: float | None
    unknown: Unknown | None
    write_tools: Iterable[str] | None


class GoldenKeys(Rules, total=False):
    """Every key of a golden file, but for what it expects."""

    input: str | None
    metrics: Iterable[str] | None
    thresholds: Mapping[str, float] | None


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


def as_golden(expected: Golden | Iterable[ToolLike], **rules: Unpack[GoldenKeys]) -> Golden:
    """A golden, or expected tools as a person wrote them, with these rules instead of the golden's own.

    `match` is that of every expected call of a golden, and of the calls in a list that do not say themselves. Raises
    `GoldspanError` for tools that cannot be read and for rules that do not exist.
    """
    given = {rule: value for rule, value in rules.items() if value is not None} if rules else {}
    match = _rule("match", given.pop("match")) if "match" in given else None
    if isinstance(expected, Golden):
        golden = expected if match is None else replace(expected, tools=matched(expected.tools, match))
    else:
        golden = _golden(_items(expected, "expected"), match or "exact")
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
    "match": get_args(ArgumentsMatch),
    "mode": get_args(Mode),
    "unknown": get_args(Unknown),
    "kind": get_args(ToolKind),
    "outcome": get_args(Outcome),
}


def _rule(rule: str, given: Any) -> Any:
    if rule not in _RULES:
        raise GoldspanError(f"there is no rule {rule!r}.{did_you_mean(rule, _RULES)}")
    return _RULES[rule](rule, given)


def _word(rule: str, given: Any) -> Any:
    return _one_of(_WORDS[rule], given, rule)


def _names(rule: str, given: Any) -> tuple[str, ...]:
    names = tuple(_items(given, rule))
    if wrong := [name for name in names if not isinstance(name, str)]:
        raise GoldspanError(f"{rule} must be a list of names, and {shown(wrong[0])} is none.")
    return names


def _text(rule: str, given: Any) -> str:
    if not isinstance(given, str):
        raise GoldspanError(f"{rule} must be text, not {shown(given)}.")
    return given


def _flag(rule: str, given: Any) -> bool:
    if not isinstance(given, bool):
        raise GoldspanError(f"{rule} must be True or False, not {shown(given)}.")
    return given


def _number_of_calls(rule: str, given: Any) -> int:
    if isinstance(given, bool) or not isinstance(given, int) or given < 0:
        raise GoldspanError(f"{rule} must be a whole number, 0 or more, not {shown(given)}.")
    return given


def _share(rule: str, given: Any) -> float:
    if isinstance(given, bool) or not isinstance(given, int | float) or not 0 <= given <= 1:
        raise GoldspanError(f"{rule} must be a number from 0 to 1, not {shown(given)}.")
    return given


def _shares(rule: str, given: Any) -> Mapping[str, float]:
    if not isinstance(given, Mapping):
        raise GoldspanError(f"{rule} must be a mapping of metrics to numbers, not {shown(given)}.")
    return {_text(f"a name in {rule}", name): _share(f"{rule}, {name}", share) for name, share in given.items()}


def _when(rule: str, given: Any) -> When | None:
    if isinstance(given, When):
        return given
    from goldspan.goldens.language import when  # as in `_tools`

    return when(given, rule)


_RULES: Mapping[str, Callable[[str, Any], Any]] = {
    **dict.fromkeys(("order", "attempts", "duplicates", "extra", "depth", "match", "mode", "unknown"), _word),
    **dict.fromkeys(("forbid", "metrics", "write_tools"), _names),
    **dict.fromkeys(("id", "input", "component"), _text),
    "policy": _flag,
    "max_calls": _number_of_calls,
    "threshold": _share,
    "thresholds": _shares,
    "when": _when,
}
"""Every key of a golden but for what it expects, and how what is given for it is read."""


def _one_of(words: tuple[str, ...], given: Any, what: str) -> Any:
    if given not in words:
        raise GoldspanError(
            f"{what} must be {listed(words, last='or')}, not {shown(given)}.{did_you_mean(given, words)}"
        )
    return given


# --- expectations -----------------------------------------------------------------------------------------------------

_PLAIN = frozenset({bool, float, int, str, type(None)})


def _golden(expected: Iterable[ToolLike], match: ArgumentsMatch) -> Golden:
    given = tuple(expected)
    if all(type(item) is str and item for item in given):
        return _golden_of_names(given)  # they state no arguments
    return Golden(ANONYMOUS, tools=_tools(given, match))


@lru_cache(maxsize=2048)
def _golden_of_names(names: tuple[str, ...]) -> Golden:
    """Lists of names come again and again; the golden of one keeps what was once found out about it."""
    return Golden(ANONYMOUS, tools=tuple(map(ExpectedTool, names)))


def _tools(given: Sequence[ToolLike], match: ArgumentsMatch) -> tuple[Item, ...]:
    plain = [_plain_tool(item, match) for item in given]
    if all(plain):
        return tuple(filter(None, plain))
    from goldspan.goldens.language import items  # it loads pydantic, which names and plain calls need not pay for

    return items([_with_arguments_read(item) for item in given], "expected", match=match)


def _plain_tool(item: ToolLike, match: ArgumentsMatch) -> Item | None:
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
    return ExpectedTool(name, arguments, match=match)


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
    outcome = fields.get("outcome")
    if error in (None, False) and outcome == "error":
        error = "error"
    return ToolCall(
        name=name,
        raw_name=raw_name,
        server=owner or server,
        arguments=arguments,
        raw_arguments=unread,
        # Some record only that a call failed, as `true` or `false`.
        error=None if error is None or error is False else str(error),
        error_guess=complaint(fields.get("result")) if error is None and outcome is None else None,
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
