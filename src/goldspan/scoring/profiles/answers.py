"""BFCL's answers: for every argument the values that are allowed, judged beside the types that the tool declares."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from goldspan.errors import GoldspanError
from goldspan.scoring.profiles.reading import Side

LEFT_OUT = ""
"""Among the allowed values of an argument: it may be left out."""

TYPES: Mapping[str, type] = {
    "string": str,
    "integer": int,
    "float": float,
    "boolean": bool,
    "array": list,
    "tuple": list,
    "dict": dict,
    "any": str,
}
"""What BFCL's words for types mean in Python."""

_LENIENT = re.compile(r"[ ,./\-_*^]")


@dataclass(slots=True)
class Answer:
    """One expected call as BFCL states it."""

    allowed: Mapping[str, Sequence[Any]]
    """For each argument the values that are allowed."""
    declared: Mapping[str, Mapping[str, Any]] | None
    """The schema of each argument; `None`: the allowed values say which type is meant."""
    required: Collection[str]


def answers(expected: Side, case: Mapping[str, Any]) -> list[Answer]:
    """What is allowed for each expectation: `possible_answers` and `func_descriptions` of the case.

    Where the case does not say, just the expected values are allowed, and all of them are required.
    """
    stated = case.get("possible_answers") or [None] * len(expected.names)
    if len(stated) != len(expected.names):
        raise GoldspanError(f"case: {len(stated)} possible_answers for {len(expected.names)} expected tools.")
    declared = {tool["name"]: tool.get("parameters") or {} for tool in case.get("func_descriptions") or ()}
    return [
        _answer(arguments or {}, answer, declared.get(name))
        for name, arguments, answer in zip(expected.names, expected.arguments, stated, strict=True)
    ]


def _answer(
    arguments: Mapping[str, Any], answer: Mapping[str, Any] | None, declared: Mapping[str, Any] | None
) -> Answer:
    allowed = next(iter(answer.values())) if answer else {key: [_options(value)] for key, value in arguments.items()}
    if declared is None:
        return Answer(allowed, None, arguments.keys())
    return Answer(allowed, declared.get("properties") or {}, declared.get("required") or ())


def _options(value: Any) -> Any:
    """A plain value as an allowed one: each entry of a dictionary has its own list of allowed values."""
    return {key: [item] for key, item in value.items()} if isinstance(value, dict) else value


def allowed_values(expected: Answer, called: Any) -> float:
    """Whether a call is one of the allowed answers."""
    arguments = called or {}
    for name in expected.required:
        if name not in arguments:
            return 0.0
    for name, value in arguments.items():
        if not _allows(expected, name, value):
            return 0.0
    for name, allowed in expected.allowed.items():
        if name not in arguments and LEFT_OUT not in allowed:
            return 0.0
    return 1.0


def _allows(answer: Answer, name: str, value: Any) -> bool:
    allowed, declared = answer.allowed.get(name), answer.declared
    if allowed is None or (declared is not None and name not in declared):
        return False
    wanted, of_items = (type(allowed[0]), None) if declared is None else _types(declared[name])
    if wanted is float and type(value) is int:
        value = float(value)
    stated = _stated_type(allowed)
    if not _has_type(value, allowed, stated, wanted, of_items):
        return False
    if stated is not None and stated is not wanted:
        return value in allowed  # a value of another type stands for a variable
    return (_CHECKS.get((wanted, of_items)) or _CHECKS.get((wanted, None), _among))(value, allowed)


def _types(schema: Mapping[str, Any]) -> tuple[type, type | None]:
    """The type of an argument, and that of a list's items."""
    kind = schema["type"]
    return TYPES[kind], TYPES[schema["items"]["type"]] if kind in ("array", "tuple") else None


def _has_type(value: Any, allowed: Sequence[Any], stated: type | None, wanted: type, of_items: type | None) -> bool:
    has_type = type(value) is wanted
    if not has_type or of_items is None:
        return has_type or type(value) is stated
    return any(
        not isinstance(option, list)
        or all(_has_type(item, option, _stated_type(option), of_items, None) for item in value)
        for option in allowed
    )


def _stated_type(allowed: Sequence[Any]) -> type | None:
    """The type of the first allowed value that is one."""
    for option in allowed:
        if option != LEFT_OUT:
            return type(option)
    return None


def _lenient(value: Any) -> Any:
    """Text without case, blanks and most punctuation; anything else as it is."""
    return _LENIENT.sub("", value).lower().replace("'", '"') if isinstance(value, str) else value


def _among(value: Any, allowed: Sequence[Any]) -> bool:
    return value in allowed


def _text_among(value: Any, allowed: Sequence[Any]) -> bool:
    return _lenient(value) in [_lenient(option) for option in allowed if isinstance(option, str)]


def _list_among(value: Any, allowed: Sequence[Any]) -> bool:
    # The mark of an argument that may be left out is read as a list as well: an empty one is allowed.
    return [_lenient(item) for item in value] in [[_lenient(item) for item in option] for option in allowed]


def _dict_among(value: Any, allowed: Sequence[Any]) -> bool:
    return any(option != LEFT_OUT and _dict_allowed(value, option) for option in allowed)


def _dict_allowed(value: Mapping[str, Any], option: Mapping[str, Any]) -> bool:
    for key, item in value.items():
        if key not in option or _lenient(item) not in [_lenient(each) for each in option[key]]:
            return False
    return all(key in value or LEFT_OUT in each for key, each in option.items())


def _dicts_among(value: Any, allowed: Sequence[Any]) -> bool:
    return any(
        len(value) == len(option)
        and all(each != LEFT_OUT and _dict_allowed(item, each) for item, each in zip(value, option, strict=True))
        for option in allowed
    )


_CHECKS: Mapping[tuple[type, type | None], Callable[[Any, Sequence[Any]], bool]] = {
    (str, None): _text_among,
    (list, None): _list_among,
    (list, dict): _dicts_among,
    (dict, None): _dict_among,
}
"""How a value is looked for among the allowed ones, by its type and that of its items."""
