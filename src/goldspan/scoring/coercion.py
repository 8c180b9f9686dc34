"""Converts calls and expectations of the caller (names, dictionaries) to `ToolCall` and `Golden`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias, TypedDict, TypeVar, get_args

from goldspan.content.tools import undecorate
from goldspan.content.values import guess_error
from goldspan.errors import GoldspanError
from goldspan.goldens.spelling import did_you_mean, join_words, short_repr
from goldspan.model import (
    AnyOf,
    ArgumentsMatch,
    CallDepth,
    CallOrder,
    CallOutcome,
    CorrectnessMode,
    CountedAttempts,
    DuplicateCalls,
    ExpectedItem,
    ExpectedTool,
    ExtraCalls,
    Golden,
    Parallel,
    Run,
    ToolCall,
    ToolKind,
    UnknownPolicy,
    When,
)
from goldspan.model.goldens import with_arguments_match

if TYPE_CHECKING:
    from typing_extensions import Unpack

CallLike: TypeAlias = "str | Mapping[str, Any] | ToolCall"
"""A tool call: its name, a `ToolCall`, or a dictionary with `name` and optionally `arguments` (or `args`,
`input_parameters`), `result` (or `output`), `error`, `server`, `kind`, `outcome`, `call_id` (or `id`)."""

ToolLike: TypeAlias = "str | Mapping[str, Any] | ExpectedItem"
"""An expected tool: its name, an `ExpectedTool`, or a dictionary in the format of a golden file."""


class GoldenOverrides(TypedDict, total=False):
    """Values that replace those of a golden; `None` leaves the golden's value.

    The keys are those of a golden file except `input`, `metrics` and `thresholds`, which are parameters of `evaluate`.
    """

    id: str | None
    when: Mapping[str, Any] | When | None
    component: str | None
    policy: bool | None
    order: CallOrder | None
    attempts: CountedAttempts | None
    duplicates: DuplicateCalls | None
    extra: ExtraCalls | None
    depth: CallDepth | None
    match: ArgumentsMatch | None
    mode: CorrectnessMode | None
    forbid: Iterable[str] | None
    max_calls: int | None
    threshold: float | None
    unknown: UnknownPolicy | None
    write_tools: Iterable[str] | None


class GoldenFields(GoldenOverrides, total=False):
    """Every key of a golden file except the expected calls."""

    input: str | None
    metrics: Iterable[str] | None
    thresholds: Mapping[str, float] | None


ANONYMOUS_ID = "given"
"""The id of a golden that was passed as a list of tools."""

_Word = TypeVar("_Word")


def as_run(called: Run | Iterable[CallLike]) -> Run:
    """Returns a run unchanged, or a run without an id that has these calls."""
    return called if isinstance(called, Run) else Run("", tool_calls=as_calls(called))


def as_calls(called: Run | Iterable[CallLike]) -> tuple[ToolCall, ...]:
    """Returns the calls of a run, or the converted calls. Raises `GoldspanError`, naming the item that is wrong."""
    if isinstance(called, Run):
        return called.tool_calls
    return tuple([_tool_call(item, index) for index, item in enumerate(_require_iterable(called, "called"))])


def as_golden(expected: Golden | Iterable[ToolLike], **rules: Unpack[GoldenFields]) -> Golden:
    """Returns a golden, or a golden with these expected tools, with `rules` in place of its own.

    `match` applies to every expected call of a golden, and to the calls of a list that do not state it themselves.
    Raises `GoldspanError` for tools that are wrong and for rules that do not exist.
    """
    given = {rule: value for rule, value in rules.items() if value is not None} if rules else {}
    match = _parse_rule("match", given.pop("match")) if "match" in given else None
    if isinstance(expected, Golden):
        golden = expected if match is None else replace(expected, tools=with_arguments_match(expected.tools, match))
    else:
        golden = _golden_from_tools(_require_iterable(expected, "expected"), match or "exact")
    if not given:
        return golden
    changed = replace(golden, **{rule: _parse_rule(rule, value) for rule, value in given.items()})
    return golden if changed == golden else changed  # the original golden has cached its digest


def _require_iterable(given: Iterable[Any], what: str) -> Iterable[Any]:
    if isinstance(given, str | Mapping) or not isinstance(given, Iterable):
        raise GoldspanError(f"{what} must be a list, not {short_repr(given)}.")
    return given


# --- rules ------------------------------------------------------------------------------------------------------------

_ALLOWED_VALUES: Mapping[str, tuple[str, ...]] = {
    "order": get_args(CallOrder),
    "attempts": get_args(CountedAttempts),
    "duplicates": get_args(DuplicateCalls),
    "extra": get_args(ExtraCalls),
    "depth": get_args(CallDepth),
    "match": get_args(ArgumentsMatch),
    "mode": get_args(CorrectnessMode),
    "unknown": get_args(UnknownPolicy),
    "kind": get_args(ToolKind),
    "outcome": get_args(CallOutcome),
}


def _parse_rule(rule: str, given: Any) -> Any:
    if rule not in _RULE_PARSERS:
        raise GoldspanError(f"there is no rule {rule!r}.{did_you_mean(rule, _RULE_PARSERS)}")
    return _RULE_PARSERS[rule](rule, given)


def _parse_choice(rule: str, given: Any) -> Any:
    return _require_one_of(_ALLOWED_VALUES[rule], given, rule)


def _parse_names(rule: str, given: Any) -> tuple[str, ...]:
    names = tuple(_require_iterable(given, rule))
    if wrong := [name for name in names if not isinstance(name, str)]:
        raise GoldspanError(f"{rule} must be a list of names, and {short_repr(wrong[0])} is none.")
    return names


def _parse_text(rule: str, given: Any) -> str:
    if not isinstance(given, str):
        raise GoldspanError(f"{rule} must be text, not {short_repr(given)}.")
    return given


def _parse_boolean(rule: str, given: Any) -> bool:
    if not isinstance(given, bool):
        raise GoldspanError(f"{rule} must be True or False, not {short_repr(given)}.")
    return given


def _parse_call_count(rule: str, given: Any) -> int:
    if isinstance(given, bool) or not isinstance(given, int) or given < 0:
        raise GoldspanError(f"{rule} must be a whole number, 0 or more, not {short_repr(given)}.")
    return given


def _parse_share(rule: str, given: Any) -> float:
    if isinstance(given, bool) or not isinstance(given, int | float) or not 0 <= given <= 1:
        raise GoldspanError(f"{rule} must be a number from 0 to 1, not {short_repr(given)}.")
    return given


def _parse_shares(rule: str, given: Any) -> Mapping[str, float]:
    if not isinstance(given, Mapping):
        raise GoldspanError(f"{rule} must be a mapping of metrics to numbers, not {short_repr(given)}.")
    return {
        _parse_text(f"a name in {rule}", name): _parse_share(f"{rule}, {name}", share) for name, share in given.items()
    }


def _parse_selector(rule: str, given: Any) -> When | None:
    if isinstance(given, When):
        return given
    from goldspan.goldens.schema.golden_parser import parse_when  # as in `_tools`

    return parse_when(given, rule)


_RULE_PARSERS: Mapping[str, Callable[[str, Any], Any]] = {
    **dict.fromkeys(("order", "attempts", "duplicates", "extra", "depth", "match", "mode", "unknown"), _parse_choice),
    **dict.fromkeys(("forbid", "metrics", "write_tools"), _parse_names),
    **dict.fromkeys(("id", "input", "component"), _parse_text),
    "policy": _parse_boolean,
    "max_calls": _parse_call_count,
    "threshold": _parse_share,
    "thresholds": _parse_shares,
    "when": _parse_selector,
}
"""The parser of each key of a golden except the expected calls."""


def _require_one_of(words: tuple[str, ...], given: Any, what: str) -> Any:
    if given not in words:
        raise GoldspanError(
            f"{what} must be {join_words(words, last='or')}, not {short_repr(given)}.{did_you_mean(given, words)}"
        )
    return given


# --- expectations -----------------------------------------------------------------------------------------------------

_SCALAR_TYPES = frozenset({bool, float, int, str, type(None)})


def _golden_from_tools(expected: Iterable[ToolLike], match: ArgumentsMatch) -> Golden:
    given = tuple(expected)
    if all(type(item) is str and item for item in given):
        return _golden_from_names(given)
    return Golden(ANONYMOUS_ID, tools=_expected_items(given, match))


@lru_cache(maxsize=2048)
def _golden_from_names(names: tuple[str, ...]) -> Golden:
    """Returns a cached golden: callers often pass the same names, and the golden caches its digest and plans."""
    return Golden(ANONYMOUS_ID, tools=tuple(map(ExpectedTool, names)))


def _expected_items(given: Sequence[ToolLike], match: ArgumentsMatch) -> tuple[ExpectedItem, ...]:
    plain = [_plain_tool(item, match) for item in given]
    if all(plain):
        return tuple(filter(None, plain))
    from goldspan.goldens.schema.golden_parser import (
        parse_expected_tools,  # imported here because it loads pydantic, which names and plain calls do not need
    )

    return parse_expected_tools([_with_parsed_arguments(item) for item in given], "expected", match=match)


def _plain_tool(item: ToolLike, match: ArgumentsMatch) -> ExpectedItem | None:
    """Converts an item without pydantic: a value, a name, or a name with arguments that contain no matcher."""
    if isinstance(item, ExpectedTool | AnyOf | Parallel):
        return item
    if isinstance(item, str):
        return ExpectedTool(item) if item else None
    if type(item) is not dict or not item.keys() <= {"name", "arguments"}:
        return None
    name, arguments = item.get("name"), item.get("arguments")
    if type(name) is not str or not name or not isinstance(arguments, dict | None):
        return None
    if arguments and not all(type(key) is str and type(value) in _SCALAR_TYPES for key, value in arguments.items()):
        return None
    return ExpectedTool(name, arguments, match=match)


def _with_parsed_arguments(item: ToolLike) -> Any:
    """Returns the item with its arguments parsed, if they are JSON text, as in messages of models."""
    if isinstance(item, Mapping):
        for key in ("arguments", "args"):
            if isinstance(text := item.get(key), str):
                value, unread = _parse_arguments(text)
                return item if unread else {**item, key: value}
    return item


# --- calls ------------------------------------------------------------------------------------------------------------

_SYNONYMS: Mapping[str, tuple[str, ...]] = {
    "arguments": ("arguments", "args", "input_parameters"),
    "result": ("result", "output"),
    "call_id": ("call_id", "id"),
}
_SINGLE_KEYS = ("name", "error", "server", "kind", "outcome", "agent")
_CALL_KEYS = frozenset(_SINGLE_KEYS).union(*_SYNONYMS.values())


def _tool_call(item: CallLike, index: int) -> ToolCall:
    if isinstance(item, ToolCall):
        return item
    if isinstance(item, str):
        return _call_from_name(item)
    fields = _call_fields(item, f"called[{index}]")
    raw_name, owner = fields.pop("name"), fields.pop("server", None)
    name, server = undecorate(raw_name, (owner,) if owner else ())
    arguments, unread = _parse_arguments(fields.pop("arguments", None))
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
        # Some sources record only whether a call failed, as `true` or `false`.
        error=None if error is None or error is False else str(error),
        error_guess=guess_error(fields.get("result")) if error is None and outcome is None else None,
        agent=agent if isinstance(agent, str) else None,
        **fields,
    )


@lru_cache(maxsize=4096)
def _call_from_name(raw_name: str) -> ToolCall:
    name, server = undecorate(raw_name)
    return ToolCall(name, raw_name, server)


def _call_fields(item: Any, where: str) -> dict[str, Any]:
    """Returns the known keys of a dictionary, without synonyms. An unknown key that resembles a known one raises."""
    if not isinstance(item, Mapping):
        raise GoldspanError(
            f"{where}: must be the name of a tool or a dictionary with its name, not {short_repr(item)}."
        )
    if not isinstance(item.get("name"), str):
        raise GoldspanError(f"{where}: has no name: {short_repr(item)}.")
    for key in item.keys() - _CALL_KEYS:
        if hint := did_you_mean(str(key), _CALL_KEYS):
            raise GoldspanError(f"{where}: unknown key {key!r}.{hint}")
    synonyms = ((key, synonym) for key, others in _SYNONYMS.items() for synonym in reversed(others))
    keys = (*((key, key) for key in _SINGLE_KEYS), *synonyms)
    fields = {key: item[synonym] for key, synonym in keys if item.get(synonym) is not None}
    for key in ("kind", "outcome"):
        if key in fields:
            _require_one_of(_ALLOWED_VALUES[key], fields[key], f"{where}: {key}")
    return fields


def _parse_arguments(arguments: Any) -> tuple[Any, str | None]:
    """Returns the arguments, parsed if they are JSON text, and the text if it could not be parsed."""
    if not isinstance(arguments, str):
        return arguments, None
    try:
        return json.loads(arguments), None
    except (ValueError, RecursionError):
        return None, arguments
