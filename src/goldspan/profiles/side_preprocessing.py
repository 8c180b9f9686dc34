"""The transformations and selections that peers apply to both sides before they pair them."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, TypeAlias

from goldspan.errors import GoldspanError
from goldspan.profiles.case_sides import CaseSide
from goldspan.profiles.comparison_rules import equal_in_javascript
from goldspan.profiles.peer_options import Formula

OMITTED = ""
"""An allowed value that marks an optional argument."""

BFCL_TYPES: Mapping[str, type] = {
    "string": str,
    "integer": int,
    "float": float,
    "boolean": bool,
    "array": list,
    "tuple": list,
    "dict": dict,
    "any": str,
}
"""The Python types of the type names of BFCL."""

_IGNORED_CHARACTERS = re.compile(r"[ ,./\-_*^]")


@dataclass(slots=True)
class BfclAnswer:
    """One expected call in the form of BFCL."""

    allowed_values: Mapping[str, Sequence[Any]]
    """The allowed values of each argument."""
    argument_schemas: Mapping[str, Mapping[str, Any]] | None
    """The schema of each argument; `None`: the allowed values determine the type."""
    required: Collection[str]


def bfcl_answers(expected: CaseSide, case: Mapping[str, Any]) -> list[BfclAnswer]:
    """Returns the allowed answers of each expectation, from `possible_answers` and `func_descriptions` of the case.

    Without `possible_answers`, only the expected values are allowed, and all of them are required.
    """
    stated = case.get("possible_answers") or [None] * len(expected.names)
    if len(stated) != len(expected.names):
        raise GoldspanError(f"case: {len(stated)} possible_answers for {len(expected.names)} expected tools.")
    declared = {tool["name"]: tool.get("parameters") or {} for tool in case.get("func_descriptions") or ()}
    return [
        _bfcl_answer(arguments or {}, answer, declared.get(name))
        for name, arguments, answer in zip(expected.names, expected.arguments, stated, strict=True)
    ]


def _bfcl_answer(
    arguments: Mapping[str, Any], answer: Mapping[str, Any] | None, declared: Mapping[str, Any] | None
) -> BfclAnswer:
    allowed = (
        next(iter(answer.values())) if answer else {key: [_as_allowed_value(value)] for key, value in arguments.items()}
    )
    if declared is None:
        return BfclAnswer(allowed, None, arguments.keys())
    return BfclAnswer(allowed, declared.get("properties") or {}, declared.get("required") or ())


def _as_allowed_value(value: Any) -> Any:
    """Converts a plain value to an allowed value: each entry of a dictionary gets a list of allowed values."""
    return {key: [item] for key, item in value.items()} if isinstance(value, dict) else value


def match_bfcl_answer(expected: BfclAnswer, called: Any) -> float:
    """Returns 1 if the call is an allowed answer, else 0."""
    arguments = called or {}
    for name in expected.required:
        if name not in arguments:
            return 0.0
    for name, value in arguments.items():
        if not _is_argument_allowed(expected, name, value):
            return 0.0
    for name, allowed in expected.allowed_values.items():
        if name not in arguments and OMITTED not in allowed:
            return 0.0
    return 1.0


def _is_argument_allowed(answer: BfclAnswer, name: str, value: Any) -> bool:
    allowed, declared = answer.allowed_values.get(name), answer.argument_schemas
    if allowed is None or (declared is not None and name not in declared):
        return False
    wanted, of_items = (type(allowed[0]), None) if declared is None else _declared_types(declared[name])
    if wanted is float and type(value) is int:
        value = float(value)
    stated = _first_value_type(allowed)
    if not _has_type(value, allowed, stated, wanted, of_items):
        return False
    if stated is not None and stated is not wanted:
        return value in allowed  # a value of another type is the name of a variable
    return (_VALUE_CHECKS.get((wanted, of_items)) or _VALUE_CHECKS.get((wanted, None), _is_allowed_value))(
        value, allowed
    )


def _declared_types(schema: Mapping[str, Any]) -> tuple[type, type | None]:
    """Returns the type of an argument, and the type of the items of a list."""
    kind = schema["type"]
    return BFCL_TYPES[kind], BFCL_TYPES[schema["items"]["type"]] if kind in ("array", "tuple") else None


def _has_type(value: Any, allowed: Sequence[Any], stated: type | None, wanted: type, of_items: type | None) -> bool:
    has_type = type(value) is wanted
    if not has_type or of_items is None:
        return has_type or type(value) is stated
    return any(
        not isinstance(option, list)
        or all(_has_type(item, option, _first_value_type(option), of_items, None) for item in value)
        for option in allowed
    )


def _first_value_type(allowed: Sequence[Any]) -> type | None:
    """Returns the type of the first allowed value that is not `OMITTED`."""
    for option in allowed:
        if option != OMITTED:
            return type(option)
    return None


def _normalize_text(value: Any) -> Any:
    """Returns a text without case, spaces and most punctuation; other values unchanged."""
    return _IGNORED_CHARACTERS.sub("", value).lower().replace("'", '"') if isinstance(value, str) else value


def _is_allowed_value(value: Any, allowed: Sequence[Any]) -> bool:
    return value in allowed


def _is_allowed_text(value: Any, allowed: Sequence[Any]) -> bool:
    return _normalize_text(value) in [_normalize_text(option) for option in allowed if isinstance(option, str)]


def _is_allowed_list(value: Any, allowed: Sequence[Any]) -> bool:
    # `OMITTED` is also read as a list, so an empty list is allowed.
    return [_normalize_text(item) for item in value] in [
        [_normalize_text(item) for item in option] for option in allowed
    ]


def _is_allowed_dict(value: Any, allowed: Sequence[Any]) -> bool:
    return any(option != OMITTED and _dict_matches(value, option) for option in allowed)


def _dict_matches(value: Mapping[str, Any], option: Mapping[str, Any]) -> bool:
    for key, item in value.items():
        if key not in option or _normalize_text(item) not in [_normalize_text(each) for each in option[key]]:
            return False
    return all(key in value or OMITTED in each for key, each in option.items())


def _is_allowed_dict_list(value: Any, allowed: Sequence[Any]) -> bool:
    return any(
        len(value) == len(option)
        and all(each != OMITTED and _dict_matches(item, each) for item, each in zip(value, option, strict=True))
        for option in allowed
    )


_VALUE_CHECKS: Mapping[tuple[type, type | None], Callable[[Any, Sequence[Any]], bool]] = {
    (str, None): _is_allowed_text,
    (list, None): _is_allowed_list,
    (list, dict): _is_allowed_dict_list,
    (dict, None): _is_allowed_dict,
}
"""How a value is compared with the allowed values, by its type and the type of its items."""


Sides: TypeAlias = tuple[CaseSide, CaseSide]
"""The called and the expected side."""

Preprocessing: TypeAlias = Callable[[CaseSide, CaseSide, Formula, Mapping[str, Any] | None], Sides]
ItemSelection: TypeAlias = Callable[[CaseSide, CaseSide, Formula], Sides]


def last_arguments_per_name(
    called: CaseSide, expected: CaseSide, formula: Formula, case: Mapping[str, Any] | None
) -> Sides:
    """Gives all expectations of a tool the arguments of the last one, as a dictionary by name does."""
    last = dict(zip(expected.names, expected.arguments, strict=True))
    return called, expected.with_arguments([last[name] for name in expected.names])


def all_arguments_or_none(
    called: CaseSide, expected: CaseSide, formula: Formula, case: Mapping[str, Any] | None
) -> Sides:
    """Removes all arguments unless every expectation states some."""
    if all(arguments is not None for arguments in expected.arguments):
        return called, expected
    return called.with_arguments([None] * len(called.names)), expected.with_arguments([None] * len(expected.names))


def without_ignored_arguments(
    called: CaseSide, expected: CaseSide, formula: Formula, case: Mapping[str, Any] | None
) -> Sides:
    """Removes the ignored arguments, and the arguments of calls that have their default values."""

    def filter_arguments(arguments: Any, defaults: Mapping[str, Any]) -> Any:
        if not isinstance(arguments, dict):
            return arguments
        return {
            key: value
            for key, value in arguments.items()
            if not any(fnmatchcase(key, pattern) for pattern in formula.ignored_arguments)
            and not (key in defaults and equal_in_javascript(defaults[key], value))
        }

    return (
        called.with_arguments([filter_arguments(arguments, formula.defaults) for arguments in called.arguments]),
        expected.with_arguments([filter_arguments(arguments, {}) for arguments in expected.arguments]),
    )


def with_bfcl_answers(called: CaseSide, expected: CaseSide, formula: Formula, case: Mapping[str, Any] | None) -> Sides:
    """Replaces the arguments of each expectation by the answers that BFCL allows."""
    return called, expected.with_arguments(bfcl_answers(expected, case or {}))


PREPROCESSINGS: Mapping[str, Preprocessing | None] = {
    "as_given": None,
    "one_set_per_name": last_arguments_per_name,
    "all_or_none": all_arguments_or_none,
    "stripped": without_ignored_arguments,
    "allowed_answers": with_bfcl_answers,
}
"""The axis `preprocessing`."""


# --- selection --------------------------------------------------------------------------------------------------------


def select_one_tool(called: CaseSide, expected: CaseSide, formula: Formula) -> Sides:
    """Selects all calls, and one expectation: the first of the configured tool, else the first."""
    if formula.tool is None:
        return called, expected.select(range(len(expected.names))[:1])
    positions = [position for position, name in enumerate(expected.names) if name == formula.tool]
    return called, expected.select(positions[:1]) if positions else CaseSide([formula.tool], [formula.tool])


def select_nth_call(called: CaseSide, expected: CaseSide, formula: Formula) -> Sides:
    """Selects one expectation and the n-th call of its tool; the last call for -1."""
    called, expected = select_one_tool(called, expected, formula)
    positions = [position for position, name in enumerate(called.names) if name in expected.names]
    return called.select(positions[formula.call_index :][:1]), expected


SELECTIONS: Mapping[str, ItemSelection | None] = {"all": None, "one_tool": select_one_tool, "nth_call": select_nth_call}
"""The axis `selection`."""
