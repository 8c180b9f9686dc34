"""What peers make of the two sides before they pair them, and which part of them they look at."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from typing import Any, TypeAlias

from goldspan.scoring.profiles.answers import answers
from goldspan.scoring.profiles.arguments import js_equal
from goldspan.scoring.profiles.formula import Formula
from goldspan.scoring.profiles.reading import Side

Sides: TypeAlias = tuple[Side, Side]
"""What was called and what was expected."""

View: TypeAlias = Callable[[Side, Side, Formula, Mapping[str, Any] | None], Sides]
Probe: TypeAlias = Callable[[Side, Side, Formula], Sides]


def one_set_per_name(called: Side, expected: Side, formula: Formula, case: Mapping[str, Any] | None) -> Sides:
    """All expectations of one tool have the arguments of the last of them: a dictionary by name holds no more."""
    last = dict(zip(expected.names, expected.arguments, strict=True))
    return called, expected.holding([last[name] for name in expected.names])


def all_or_none(called: Side, expected: Side, formula: Formula, case: Mapping[str, Any] | None) -> Sides:
    """No arguments are looked at unless every expectation states some."""
    if all(arguments is not None for arguments in expected.arguments):
        return called, expected
    return called.holding([None] * len(called.names)), expected.holding([None] * len(expected.names))


def stripped(called: Side, expected: Side, formula: Formula, case: Mapping[str, Any] | None) -> Sides:
    """Without the arguments that are left out, and without those of the calls that have their default."""

    def kept(arguments: Any, defaults: Mapping[str, Any]) -> Any:
        if not isinstance(arguments, dict):
            return arguments
        return {
            key: value
            for key, value in arguments.items()
            if not any(fnmatchcase(key, pattern) for pattern in formula.leave_out)
            and not (key in defaults and js_equal(defaults[key], value))
        }

    return (
        called.holding([kept(arguments, formula.defaults) for arguments in called.arguments]),
        expected.holding([kept(arguments, {}) for arguments in expected.arguments]),
    )


def allowed_answers(called: Side, expected: Side, formula: Formula, case: Mapping[str, Any] | None) -> Sides:
    """Each expectation with the answers that BFCL allows for it."""
    return called, expected.holding(answers(expected, case or {}))


VIEWS: Mapping[str, View | None] = {
    "as_given": None,
    "one_set_per_name": one_set_per_name,
    "all_or_none": all_or_none,
    "stripped": stripped,
    "allowed_answers": allowed_answers,
}
"""The axis `view`."""


# --- probes -----------------------------------------------------------------------------------------------------------


def one_tool(called: Side, expected: Side, formula: Formula) -> Sides:
    """Every call, and one expectation: the first of the tool that is asked for, else the first."""
    if formula.tool is None:
        return called, expected.at(range(len(expected.names))[:1])
    named = [at for at, name in enumerate(expected.names) if name == formula.tool]
    return called, expected.at(named[:1]) if named else Side([formula.tool], [formula.tool])


def nth_call(called: Side, expected: Side, formula: Formula) -> Sides:
    """One expectation and the n-th call of its tool; the last for -1."""
    called, expected = one_tool(called, expected, formula)
    made = [at for at, name in enumerate(called.names) if name in expected.names]
    return called.at(made[formula.nth :][:1]), expected


PROBES: Mapping[str, Probe | None] = {"all": None, "one_tool": one_tool, "nth_call": nth_call}
"""The axis `probe`."""
