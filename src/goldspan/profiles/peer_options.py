"""What is known of a peer: its options, its formula, and where that surprises."""

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
"""The score of a case of which a side is empty; `measured`: as any other case; `raises`: there is none."""


@dataclass(frozen=True, slots=True)
class Formula:
    """How a number is made of what was called and what was expected.

    The defaults are the recall of tool names: each expectation takes one call of its name, and the score is the share
    of them that found one.
    """

    # What a pair is worth.
    name_rule: str = "equal"
    """How names are compared: a word of `names.NAMES`."""
    compares_types: bool = False
    """Whether a tool's type (`function`, `mcp`) is part of its name."""
    argument_rule: str = "ignore"
    """How arguments are weighed: a word of `arguments.WEIGHTS`, or `fuzzy`, or `allowed`."""
    min_similarity: float = 0.8
    """From which similarity on `fuzzy` takes arguments for the same."""
    argument_rules_by_tool: Mapping[str, ArgumentRule] = field(default_factory=dict)
    """Other rules for the arguments of some tools."""
    missing_arguments: Literal["empty", "none"] = "empty"
    """What a tool without arguments has: an empty dictionary, or `None`, which is something else."""
    compares_outputs: bool = False
    """Whether a pair with different outputs is worth nothing."""

    # What is looked at.
    failed_calls: Literal["count", "skip"] = "count"
    """Whether a call that failed is one."""
    preprocessing: str = "as_given"
    """What is made of both sides first: a word of `views.VIEWS`."""
    ignored_arguments: Sequence[str] = ()
    """For the view `stripped`: arguments that neither side is judged by, as globs."""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """For the view `stripped`: arguments that a call is not judged by where they have these values."""
    selection: str = "all"
    """Which of the expectations and of the calls are looked at: a word of `views.PROBES`."""
    tool: str | None = None
    """For probes: the tool that is expected; `None`: the first that is."""
    call_index: int = 0
    """For the probe `nth`: which call of the tool, counted from 0."""
    collapse: Literal["none", "both", "matched"] = "none"
    """Whether repeated calls are one: on both sides, or only where matches are counted."""

    # How sides are paired, and what that gives.
    gate: str = "none"
    """What must hold for the score to be more than 0: a word of `measures.GATES`."""
    pairing: str = "one_to_one"
    """How the sides are paired: `one_to_one`, or a word of `pairing.PAIRINGS`."""
    assignment: str = "first"
    """For `one_to_one`, who gets which answer: a word of `pairing.ASSIGNMENTS`."""
    driving_side: Literal["expected", "called", "each"] = "expected"
    """Which side asks and is served in its order; `each`: both do, and the lower outcome counts."""
    swap_sides: bool = False
    """Whether, where the calls ask, the rule for arguments takes them for the expectations."""
    measure: str = "recall"
    """What is made of the matches: a word of `measures.MEASURES`."""
    min_count: float = 0
    max_count: float = float("inf")
    """For measures that count: how many there must be."""
    empty_scores: tuple[EmptyScore, EmptyScore, EmptyScore] = (1, 0, 0)
    """The score where both sides are empty, where nothing was expected, and where nothing was called."""
    raised_error: str = ""
    """What the peer raises where `empty` says that it does."""
    needs_model: str | None = None
    """What the peer asks a language model for, where it computes nothing itself."""

    # What is made of the number.
    digits: int | None = None
    """To how many digits it is rounded."""
    threshold: float | None = None
    """From where on it passes, without any tolerance; `None`: the peer has no such rule."""
    is_strict: bool = False
    """Whether only 1 passes, and whatever is less becomes 0."""


FormulaChanges: TypeAlias = Mapping[str, Any]
"""Values for some axes of a formula. An `Instead` depends on the value that the axis has."""


@dataclass(frozen=True, slots=True)
class ReplaceValue:
    """A new value of an axis for some of its old ones; others stay."""

    values: Mapping[Any, Any]


def apply_changes(formula: Formula, changes: FormulaChanges) -> Formula:
    """The formula with other values for some axes."""
    return replace(
        formula,
        **{
            axis: value.values.get(getattr(formula, axis), getattr(formula, axis))
            if isinstance(value, ReplaceValue)
            else value
            for axis, value in changes.items()
        },
    )


class InvalidOptionValue(Exception):  # noqa: N818 - told to the person as a `ConfigurationError`
    """A value that the option does not take. The text says what it takes instead."""

    def __init__(self, wanted: str, given: Any, words: Sequence[str] = ()) -> None:
        seen = list(given) if isinstance(given, tuple) else given  # lists come as tuples, which can be hashed
        super().__init__(f"must be {wanted}, not {short_repr(seen)}.{did_you_mean(given, words)}")


class Option(Protocol):
    """One option of a peer."""

    @property
    def default(self) -> Any:
        """Its value where none is given."""

    @property
    def accepted_values(self) -> str:
        """What it takes, in a few words."""

    def formula_changes(self, given: Any) -> FormulaChanges:
        """What a value changes in the formula. Raises `WrongValue`."""


@dataclass(frozen=True, slots=True)
class BoolOption:
    """True or false."""

    default: bool
    on: FormulaChanges = field(default_factory=dict)
    off: FormulaChanges = field(default_factory=dict)
    accepted_values: str = "true or false"

    def formula_changes(self, given: Any) -> FormulaChanges:
        """What a value changes in the formula. Raises `WrongValue`."""
        if not isinstance(given, bool):
            raise InvalidOptionValue(self.accepted_values, given)
        return self.on if given else self.off


@dataclass(frozen=True, slots=True)
class ChoiceOption:
    """One of some words; a member of the peer's own enumeration is as good."""

    default: str | None
    choices: Mapping[str, FormulaChanges]
    number_field: str | None = None
    """The axis that a whole number sets, where one may stand in for a word."""

    @property
    def accepted_values(self) -> str:
        """What it takes, in a few words."""
        return join_words([*map(repr, self.choices), *(["a number from 0"] if self.number_field else [])], last="or")

    def formula_changes(self, given: Any) -> FormulaChanges:
        """What a value changes in the formula. Raises `WrongValue`."""
        if self.number_field and type(given) is int and given >= 0:
            return {self.number_field: given}
        return self.choices[parse_choice(given, self.choices, self.accepted_values)]


@dataclass(frozen=True, slots=True)
class ChoicesOption:
    """Any of some words, in a list."""

    choices: Mapping[str, FormulaChanges]
    default: Sequence[str] = ()

    @property
    def accepted_values(self) -> str:
        """What it takes, in a few words."""
        return f"a list of {join_words(map(repr, self.choices))}"

    def formula_changes(self, given: Any) -> FormulaChanges:
        """What a value changes in the formula. Raises `WrongValue`."""
        if not isinstance(given, list | tuple | set | frozenset):
            raise InvalidOptionValue(self.accepted_values, given, tuple(self.choices))
        said = {parse_choice(word, self.choices, self.accepted_values) for word in given}
        return {axis: value for word in self.choices if word in said for axis, value in self.choices[word].items()}


@dataclass(frozen=True, slots=True)
class NumberOption:
    """A number, which sets an axis."""

    default: float | None
    field_name: str
    minimum: float = 0
    maximum: float = 1
    zero_value: float | None = None
    """What the peer takes 0 for."""
    is_integer: bool = False

    @property
    def accepted_values(self) -> str:
        """What it takes, in a few words."""
        kind = "a whole number" if self.is_integer else "a number"
        return f"{kind} from {self.minimum:g}" + (f" to {self.maximum:g}" if math.isfinite(self.maximum) else "")

    def formula_changes(self, given: Any) -> FormulaChanges:
        """What a value changes in the formula. Raises `WrongValue`."""
        if given is None and self.default is None:
            return {}
        kinds = int if self.is_integer else (int, float)
        if isinstance(given, bool) or not isinstance(given, kinds) or not self.minimum <= given <= self.maximum:
            raise InvalidOptionValue(self.accepted_values, given)
        return {self.field_name: self.zero_value if self.zero_value is not None and not given else given}


@dataclass(frozen=True, slots=True)
class ToolOption:
    """The name of a tool; a word of the corpus that means "the first that is expected" may be given, too."""

    default: str | None = None
    accepted_values: str = "the name of a tool; none means the first that is expected"
    first_tool_keyword: str | None = None

    def formula_changes(self, given: Any) -> FormulaChanges:
        """What a value changes in the formula. Raises `WrongValue`."""
        if given is None or given == self.first_tool_keyword:
            return {}
        if not isinstance(given, str):
            raise InvalidOptionValue(self.accepted_values, given)
        return {"tool": given}


@dataclass(frozen=True, slots=True)
class MappingOption:
    """Arguments and their values, which set an axis."""

    field_name: str
    default: Mapping[str, Any] = field(default_factory=dict)
    accepted_values: str = "a dictionary of arguments and values"

    def formula_changes(self, given: Any) -> FormulaChanges:
        """What a value changes in the formula. Raises `WrongValue`."""
        if not isinstance(given, Mapping):
            raise InvalidOptionValue(self.accepted_values, given)
        return {self.field_name: given}


@dataclass(frozen=True, slots=True)
class TextListOption:
    """A list of texts, which sets an axis."""

    field_name: str
    default: Sequence[str] = ()
    accepted_values: str = "a list of texts"

    def formula_changes(self, given: Any) -> FormulaChanges:
        """What a value changes in the formula. Raises `WrongValue`."""
        if not isinstance(given, list | tuple) or not all(isinstance(text, str) for text in given):
            raise InvalidOptionValue(self.accepted_values, given)
        return {self.field_name: tuple(given)}


@dataclass(frozen=True, slots=True)
class RulesByToolOption:
    """For some tools another rule for arguments: a word, a list of dotted keys, or a function of both arguments."""

    choices: Mapping[str, str]
    """What the peer's words are called here."""
    missing_is_none: bool
    """Whether a key that is absent is taken for `None`."""
    default: Mapping[str, Any] = field(default_factory=dict)

    @property
    def accepted_values(self) -> str:
        """What it takes, in a few words."""
        return f"a dictionary from tools to {join_words(map(repr, self.choices))}, a list of keys or a function"

    def formula_changes(self, given: Any) -> FormulaChanges:
        """What a value changes in the formula. Raises `WrongValue`."""
        if given is None:
            return {}
        if not isinstance(given, Mapping):
            raise InvalidOptionValue(self.accepted_values, given)
        return {"argument_rules_by_tool": {tool: self._argument_rule(rule) for tool, rule in given.items()}}

    def _argument_rule(self, given: Any) -> ArgumentRule:
        if callable(given) and not isinstance(given, Enum):
            return _custom_rule(given)
        if isinstance(given, list | tuple) and all(isinstance(path, str) for path in given):
            return equal_at_paths(given, missing_is_none=self.missing_is_none)
        word = self.choices[parse_choice(given, self.choices, self.accepted_values)]
        return ignore_arguments if word == "ignore" else ARGUMENT_RULES[word]


def _custom_rule(comparator: Callable[[Any, Any], Any]) -> ArgumentRule:
    return lambda expected, called: float(bool(comparator(called, expected)))


@dataclass(frozen=True, slots=True)
class UnusedOption:
    """An option that no number depends on."""

    default: Any = None
    accepted_values: str = "anything; the number does not depend on it"

    def formula_changes(self, given: Any) -> FormulaChanges:
        """What a value changes in the formula: nothing."""
        return {}


@dataclass(frozen=True, slots=True)
class ModelOption:
    """An option by which the peer asks a language model."""

    reason: str
    default: Any = None
    accepted_values: str = "nothing: the peer asks a language model about it; goldspan has its judge for that"

    def formula_changes(self, given: Any) -> FormulaChanges:
        """What a value changes in the formula: there is no number to be had."""
        return {} if given in (None, [], ()) else {"needs_model": self.reason}


def parse_choice(given: Any, choices: Mapping[str, Any], accepted_values: str | None = None) -> str:
    """One of some words, also where it is given as a member of an enumeration. Raises `WrongValue`."""
    candidates = (given.value, given.name) if isinstance(given, Enum) else (given,)
    for candidate in candidates:
        if isinstance(candidate, str) and candidate in choices:
            return candidate
    raise InvalidOptionValue(accepted_values or join_words(map(repr, choices), last="or"), given, tuple(choices))


def unknown_name_error(
    kind: str, given: object, known: Sequence[str], *, owner: str = "", unlisted: Sequence[str] = ()
) -> ConfigurationError:
    """An error for a word that is not known, with the nearest one and the list. `also` are known but not listed."""
    hint = did_you_mean(given, (*known, *unlisted))
    whose = f" of {owner}" if owner else ""
    return ConfigurationError(f"unknown {kind} {short_repr(given)}{whose}.{hint} There are {join_words(known)}.")


@dataclass(frozen=True, slots=True)
class Quirk:
    """Something about a peer's number that surprises people."""

    text: str
    sane: str
    """What a careful engineer would rather have, and how to have it."""
    formula_changes: FormulaChanges = field(default_factory=dict)
    """The same as values of axes: what `sane=True` changes in the formula. Empty where the peer's own options, or
    another metric, do it."""
    variants: tuple[str, ...] = ()
    """The metrics of the peer that have it; empty: all."""


@dataclass(frozen=True, slots=True)
class Variant:
    """One of the metrics of a peer."""

    formula: Formula
    """As it is without options."""
    options: Mapping[str, Option] = field(default_factory=dict)
    """In the order in which they are applied."""


@dataclass(frozen=True, slots=True)
class Peer:
    """A product whose number can be had here."""

    name: str
    title: str
    """What its number is called there."""
    version: str
    """The version whose formula this is."""
    variants: Mapping[str, Variant]
    """Its metrics, by the word that `chooser` takes for them; the first is meant where nothing is said."""
    variant_option: str | None = None
    """The option that says which metric is meant; `None`: there is one."""
    aliases: tuple[str, ...] = ()
    """Other names of the peer, such as that of its package."""
    uses_case_data: bool = False
    """Whether it looks at more than the two lists."""
    quirks: tuple[Quirk, ...] = ()
