"""Data types of peers: formulas, options, quirks and variants."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, Literal, Protocol, TypeAlias

from goldspan.errors import ConfigurationError
from goldspan.goldens.spelling import did_you_mean, join_words, short_repr
from goldspan.profiles.comparison_rules import ARGUMENT_RULES, ArgumentRule, equal_at_paths, ignore_arguments

EmptyScore: TypeAlias = float | Literal["measured", "raises"]
"""The score of a case with an empty side; `measured`: as for any other case; `raises`: the peer raises."""


@dataclass(frozen=True, slots=True)
class Formula:
    """How a score is computed from the calls and the expectations, as values of independent axes.

    The defaults are the recall of tool names: each expectation matches one call of its name, and the score is the share
    of matched expectations.
    """

    # The weight of a pair.
    name_rule: str = "equal"
    """How names are compared: a key of `NAME_RULES`."""
    compares_types: bool = False
    """Whether a tool's type (`function`, `mcp`) is part of its name."""
    argument_rule: str = "ignore"
    """How arguments are compared: a key of `ARGUMENT_RULES`, `fuzzy` or `allowed`."""
    min_similarity: float = 0.8
    """The least similarity at which `fuzzy` treats arguments as equal."""
    argument_rules_by_tool: Mapping[str, ArgumentRule] = field(default_factory=dict)
    """Rules for the arguments of single tools."""
    missing_arguments: Literal["empty", "none"] = "empty"
    """The arguments of a tool that states none: an empty dictionary, or `None`, which differs from it."""
    compares_outputs: bool = False
    """Whether a pair with different outputs has weight 0."""

    # The compared items.
    failed_calls: Literal["count", "skip"] = "count"
    """Whether failed calls count."""
    preprocessing: str = "as_given"
    """The transformation of both sides before the comparison: a key of `PREPROCESSINGS`."""
    ignored_arguments: Sequence[str] = ()
    """For `stripped`: glob patterns of arguments that are removed from both sides."""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """For `stripped`: arguments that are removed from calls if they have these values."""
    selection: str = "all"
    """The compared expectations and calls: a key of `SELECTIONS`."""
    tool: str | None = None
    """For selections: the expected tool; `None`: the first one."""
    call_index: int = 0
    """For `nth_call`: the index of the call of the tool, from 0."""
    collapse: Literal["none", "both", "matched"] = "none"
    """Whether repeated calls count once: on both sides, or only among matches."""

    # The pairing of the sides, and the score.
    gate: str = "none"
    """The condition for a score above 0: a key of `GATES`."""
    pairing: str = "one_to_one"
    """How the sides are paired: `one_to_one`, or a key of `PAIRINGS`."""
    assignment: str = "first"
    """For `one_to_one`: how candidates are assigned, a key of `ASSIGNMENTS`."""
    driving_side: Literal["expected", "called", "each"] = "expected"
    """The side whose items are assigned in order; `each`: both in turn, and the lower result counts."""
    swap_sides: bool = False
    """Whether the argument rule treats calls as expectations if the calls are the driving side."""
    measure: str = "recall"
    """How the score is computed from the matches: a key of `MEASURES`."""
    min_count: float = 0
    max_count: float = float("inf")
    """For measures that count: the bounds of the count."""
    empty_scores: tuple[EmptyScore, EmptyScore, EmptyScore] = (1, 0, 0)
    """The score if both sides are empty, if only the expectations are, and if only the calls are."""
    raised_error: str = ""
    """The error of the peer, if `empty_scores` has `raises`."""
    needs_model: str | None = None
    """What the peer asks a language model, if it does not compute the score itself."""

    # The conversion of the score.
    digits: int | None = None
    """The number of decimal places to which it is rounded."""
    threshold: float | None = None
    """The least passing score, without tolerance; `None`: the peer has no threshold."""
    is_strict: bool = False
    """Whether a score below 1 becomes 0."""


FormulaChanges: TypeAlias = Mapping[str, Any]
"""New values of axes of a formula. A `ReplaceValue` depends on the old value."""


@dataclass(frozen=True, slots=True)
class ReplaceValue:
    """A mapping from old to new values of an axis; other values stay."""

    values: Mapping[Any, Any]


def apply_changes(formula: Formula, changes: FormulaChanges) -> Formula:
    """Returns the formula with changed axes."""
    return replace(
        formula,
        **{
            axis: value.values.get(getattr(formula, axis), getattr(formula, axis))
            if isinstance(value, ReplaceValue)
            else value
            for axis, value in changes.items()
        },
    )


class InvalidOptionValue(Exception):  # noqa: N818 - reported to the user as a `ConfigurationError`
    """The value of an option is invalid. The message states the accepted values."""

    def __init__(self, accepted_values: str, value: Any, choices: Sequence[str] = ()) -> None:
        shown = list(value) if isinstance(value, tuple) else value  # lists are passed as hashable tuples
        super().__init__(f"must be {accepted_values}, not {short_repr(shown)}.{did_you_mean(value, choices)}")


class Option(Protocol):
    """One option of a peer."""

    @property
    def default(self) -> Any:
        """The default value."""

    @property
    def accepted_values(self) -> str:
        """A short description of the accepted values."""

    def formula_changes(self, value: Any) -> FormulaChanges:
        """Returns the changes of the formula for a value. Raises `InvalidOptionValue`."""


@dataclass(frozen=True, slots=True)
class BoolOption:
    """True or false."""

    default: bool
    on: FormulaChanges = field(default_factory=dict)
    off: FormulaChanges = field(default_factory=dict)
    accepted_values: str = "true or false"

    def formula_changes(self, value: Any) -> FormulaChanges:
        """Returns the changes of the formula for a value. Raises `InvalidOptionValue`."""
        if not isinstance(value, bool):
            raise InvalidOptionValue(self.accepted_values, value)
        return self.on if value else self.off


@dataclass(frozen=True, slots=True)
class ChoiceOption:
    """One of several words; a member of an enumeration of the peer is accepted as well."""

    default: str | None
    choices: Mapping[str, FormulaChanges]
    number_field: str | None = None
    """The axis that an integer value sets, if integers are accepted."""

    @property
    def accepted_values(self) -> str:
        """A short description of the accepted values."""
        return join_words([*map(repr, self.choices), *(["a number from 0"] if self.number_field else [])], last="or")

    def formula_changes(self, value: Any) -> FormulaChanges:
        """Returns the changes of the formula for a value. Raises `InvalidOptionValue`."""
        if self.number_field and type(value) is int and value >= 0:
            return {self.number_field: value}
        return self.choices[parse_choice(value, self.choices, self.accepted_values)]


@dataclass(frozen=True, slots=True)
class ChoicesOption:
    """A list of words."""

    choices: Mapping[str, FormulaChanges]
    default: Sequence[str] = ()

    @property
    def accepted_values(self) -> str:
        """A short description of the accepted values."""
        return f"a list of {join_words(map(repr, self.choices))}"

    def formula_changes(self, value: Any) -> FormulaChanges:
        """Returns the changes of the formula for a value. Raises `InvalidOptionValue`."""
        if not isinstance(value, list | tuple | set | frozenset):
            raise InvalidOptionValue(self.accepted_values, value, tuple(self.choices))
        chosen = {parse_choice(word, self.choices, self.accepted_values) for word in value}
        return {
            axis: changed for word in self.choices if word in chosen for axis, changed in self.choices[word].items()
        }


@dataclass(frozen=True, slots=True)
class NumberOption:
    """A number that sets an axis."""

    default: float | None
    field_name: str
    minimum: float = 0
    maximum: float = 1
    zero_value: float | None = None
    """The value that replaces 0."""
    is_integer: bool = False

    @property
    def accepted_values(self) -> str:
        """A short description of the accepted values."""
        kind = "a whole number" if self.is_integer else "a number"
        return f"{kind} from {self.minimum:g}" + (f" to {self.maximum:g}" if math.isfinite(self.maximum) else "")

    def formula_changes(self, value: Any) -> FormulaChanges:
        """Returns the changes of the formula for a value. Raises `InvalidOptionValue`."""
        if value is None and self.default is None:
            return {}
        kinds = int if self.is_integer else (int, float)
        if isinstance(value, bool) or not isinstance(value, kinds) or not self.minimum <= value <= self.maximum:
            raise InvalidOptionValue(self.accepted_values, value)
        return {self.field_name: self.zero_value if self.zero_value is not None and not value else value}


@dataclass(frozen=True, slots=True)
class ToolOption:
    """The name of a tool, or a keyword for the first expected tool."""

    default: str | None = None
    accepted_values: str = "the name of a tool; None means the first expected tool"
    first_tool_keyword: str | None = None

    def formula_changes(self, value: Any) -> FormulaChanges:
        """Returns the changes of the formula for a value. Raises `InvalidOptionValue`."""
        if value is None or value == self.first_tool_keyword:
            return {}
        if not isinstance(value, str):
            raise InvalidOptionValue(self.accepted_values, value)
        return {"tool": value}


@dataclass(frozen=True, slots=True)
class MappingOption:
    """A dictionary of arguments and values that sets an axis."""

    field_name: str
    default: Mapping[str, Any] = field(default_factory=dict)
    accepted_values: str = "a dictionary of arguments and values"

    def formula_changes(self, value: Any) -> FormulaChanges:
        """Returns the changes of the formula for a value. Raises `InvalidOptionValue`."""
        if not isinstance(value, Mapping):
            raise InvalidOptionValue(self.accepted_values, value)
        return {self.field_name: value}


@dataclass(frozen=True, slots=True)
class TextListOption:
    """A list of texts that sets an axis."""

    field_name: str
    default: Sequence[str] = ()
    accepted_values: str = "a list of texts"

    def formula_changes(self, value: Any) -> FormulaChanges:
        """Returns the changes of the formula for a value. Raises `InvalidOptionValue`."""
        if not isinstance(value, list | tuple) or not all(isinstance(text, str) for text in value):
            raise InvalidOptionValue(self.accepted_values, value)
        return {self.field_name: tuple(value)}


@dataclass(frozen=True, slots=True)
class RulesByToolOption:
    """Rules for the arguments of single tools: a word, a list of dotted keys, or a function of both arguments."""

    choices: Mapping[str, str]
    """The argument rule for each word of the peer."""
    missing_is_none: bool
    """Whether a missing key is treated as `None`."""
    default: Mapping[str, Any] = field(default_factory=dict)

    @property
    def accepted_values(self) -> str:
        """A short description of the accepted values."""
        return f"a dictionary from tools to {join_words(map(repr, self.choices))}, a list of keys or a function"

    def formula_changes(self, value: Any) -> FormulaChanges:
        """Returns the changes of the formula for a value. Raises `InvalidOptionValue`."""
        if value is None:
            return {}
        if not isinstance(value, Mapping):
            raise InvalidOptionValue(self.accepted_values, value)
        return {"argument_rules_by_tool": {tool: self._argument_rule(rule) for tool, rule in value.items()}}

    def _argument_rule(self, value: Any) -> ArgumentRule:
        if callable(value) and not isinstance(value, Enum):
            return _custom_rule(value)
        if isinstance(value, list | tuple) and all(isinstance(path, str) for path in value):
            return equal_at_paths(value, missing_is_none=self.missing_is_none)
        word = self.choices[parse_choice(value, self.choices, self.accepted_values)]
        return ignore_arguments if word == "ignore" else ARGUMENT_RULES[word]


def _custom_rule(comparator: Callable[[Any, Any], Any]) -> ArgumentRule:
    return lambda expected, called: float(bool(comparator(called, expected)))


@dataclass(frozen=True, slots=True)
class UnusedOption:
    """An option that does not affect the score."""

    default: Any = None
    accepted_values: str = "anything; it does not affect the score"

    def formula_changes(self, value: Any) -> FormulaChanges:
        """Returns no changes."""
        return {}


@dataclass(frozen=True, slots=True)
class ModelOption:
    """An option that makes the peer ask a language model."""

    reason: str
    default: Any = None
    accepted_values: str = "nothing: the peer asks a language model; use the judge of goldspan instead"

    def formula_changes(self, value: Any) -> FormulaChanges:
        """Returns the changes that make the score unavailable."""
        return {} if value in (None, [], ()) else {"needs_model": self.reason}


def parse_choice(value: Any, choices: Mapping[str, Any], accepted_values: str | None = None) -> str:
    """Returns the choice for a word or a member of an enumeration. Raises `InvalidOptionValue`."""
    candidates = (value.value, value.name) if isinstance(value, Enum) else (value,)
    for candidate in candidates:
        if isinstance(candidate, str) and candidate in choices:
            return candidate
    raise InvalidOptionValue(accepted_values or join_words(map(repr, choices), last="or"), value, tuple(choices))


def unknown_name_error(
    kind: str, value: object, known: Sequence[str], *, owner: str = "", unlisted: Sequence[str] = ()
) -> ConfigurationError:
    """Returns an error for an unknown name, with the known names; `unlisted` names are only suggested."""
    hint = did_you_mean(value, (*known, *unlisted))
    owner_phrase = f" of {owner}" if owner else ""
    return ConfigurationError(f"unknown {kind} {short_repr(value)}{owner_phrase}.{hint} There are {join_words(known)}.")


@dataclass(frozen=True, slots=True)
class Quirk:
    """A surprising property of the score of a peer."""

    text: str
    sane: str
    """The sane alternative, and how to get it."""
    formula_changes: FormulaChanges = field(default_factory=dict)
    """The changes of the formula with `sane=True`. Empty if options of the peer, or another metric, provide the
    alternative."""
    variants: tuple[str, ...] = ()
    """The variants with this quirk; empty: all."""


@dataclass(frozen=True, slots=True)
class Variant:
    """One of the metrics of a peer."""

    formula: Formula
    """The formula without options."""
    options: Mapping[str, Option] = field(default_factory=dict)
    """The options in the order of their application."""


@dataclass(frozen=True, slots=True)
class Peer:
    """An evaluation tool whose score goldspan reproduces."""

    name: str
    title: str
    """The name of its score."""
    version: str
    """The version of the peer that the formula reproduces."""
    variants: Mapping[str, Variant]
    """Its metrics by the value of `variant_option`; the first is the default."""
    variant_option: str | None = None
    """The option that selects the metric; `None` if there is only one."""
    aliases: tuple[str, ...] = ()
    """Other names of the peer, such as its package."""
    uses_case_data: bool = False
    """Whether it uses data besides the two lists."""
    quirks: tuple[Quirk, ...] = ()
