"""A peer's own options: what each takes, and what it changes in the peer's formula.

An option is data: its default, and for each of its words the axes that it sets. Options are applied in the order of
the table, so a later one has the last word where two set the same axis.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, Protocol, TypeAlias

from goldspan.errors import ConfigurationError
from goldspan.goldens.words import did_you_mean, listed, shown
from goldspan.scoring.profiles.arguments import WEIGHTS, Weigh, ignored, keys
from goldspan.scoring.profiles.formula import Formula

Axes: TypeAlias = Mapping[str, Any]
"""Values for some axes of a formula. An `Instead` depends on the value that the axis has."""


@dataclass(frozen=True, slots=True)
class Instead:
    """A new value of an axis for some of its old ones; others stay."""

    values: Mapping[Any, Any]


def changed(formula: Formula, axes: Axes) -> Formula:
    """The formula with other values for some axes."""
    return replace(
        formula,
        **{
            axis: value.values.get(getattr(formula, axis), getattr(formula, axis))
            if isinstance(value, Instead)
            else value
            for axis, value in axes.items()
        },
    )


class WrongValue(Exception):  # noqa: N818 - told to the person as a `ConfigurationError`
    """A value that the option does not take. The text says what it takes instead."""

    def __init__(self, wanted: str, given: Any, words: Sequence[str] = ()) -> None:
        seen = list(given) if isinstance(given, tuple) else given  # lists come as tuples, which can be hashed
        super().__init__(f"must be {wanted}, not {shown(seen)}.{did_you_mean(given, words)}")


class Option(Protocol):
    """One option of a peer."""

    @property
    def default(self) -> Any:
        """Its value where none is given."""

    @property
    def takes(self) -> str:
        """What it takes, in a few words."""

    def axes(self, given: Any) -> Axes:
        """What a value changes in the formula. Raises `WrongValue`."""


@dataclass(frozen=True, slots=True)
class Switch:
    """True or false."""

    default: bool
    on: Axes = field(default_factory=dict)
    off: Axes = field(default_factory=dict)
    takes: str = "true or false"

    def axes(self, given: Any) -> Axes:
        """What a value changes in the formula. Raises `WrongValue`."""
        if not isinstance(given, bool):
            raise WrongValue(self.takes, given)
        return self.on if given else self.off


@dataclass(frozen=True, slots=True)
class Word:
    """One of some words; a member of the peer's own enumeration is as good."""

    default: str | None
    words: Mapping[str, Axes]
    numbers: str | None = None
    """The axis that a whole number sets, where one may stand in for a word."""

    @property
    def takes(self) -> str:
        """What it takes, in a few words."""
        return listed([*map(repr, self.words), *(["a number from 0"] if self.numbers else [])], last="or")

    def axes(self, given: Any) -> Axes:
        """What a value changes in the formula. Raises `WrongValue`."""
        if self.numbers and type(given) is int and given >= 0:
            return {self.numbers: given}
        return self.words[word_of(given, self.words, self.takes)]


@dataclass(frozen=True, slots=True)
class Words:
    """Any of some words, in a list."""

    words: Mapping[str, Axes]
    default: Sequence[str] = ()

    @property
    def takes(self) -> str:
        """What it takes, in a few words."""
        return f"a list of {listed(map(repr, self.words))}"

    def axes(self, given: Any) -> Axes:
        """What a value changes in the formula. Raises `WrongValue`."""
        if not isinstance(given, list | tuple | set | frozenset):
            raise WrongValue(self.takes, given, tuple(self.words))
        said = {word_of(word, self.words, self.takes) for word in given}
        return {axis: value for word in self.words if word in said for axis, value in self.words[word].items()}


@dataclass(frozen=True, slots=True)
class Number:
    """A number, which sets an axis."""

    default: float | None
    axis: str
    least: float = 0
    most: float = 1
    zero_is: float | None = None
    """What the peer takes 0 for."""
    whole: bool = False

    @property
    def takes(self) -> str:
        """What it takes, in a few words."""
        kind = "a whole number" if self.whole else "a number"
        return f"{kind} from {self.least:g}" + (f" to {self.most:g}" if math.isfinite(self.most) else "")

    def axes(self, given: Any) -> Axes:
        """What a value changes in the formula. Raises `WrongValue`."""
        if given is None and self.default is None:
            return {}
        kinds = int if self.whole else (int, float)
        if isinstance(given, bool) or not isinstance(given, kinds) or not self.least <= given <= self.most:
            raise WrongValue(self.takes, given)
        return {self.axis: self.zero_is if self.zero_is is not None and not given else given}


@dataclass(frozen=True, slots=True)
class Tool:
    """The name of a tool; a word of the corpus that means "the first that is expected" may be given, too."""

    default: str | None = None
    takes: str = "the name of a tool; none means the first that is expected"
    first: str | None = None

    def axes(self, given: Any) -> Axes:
        """What a value changes in the formula. Raises `WrongValue`."""
        if given is None or given == self.first:
            return {}
        if not isinstance(given, str):
            raise WrongValue(self.takes, given)
        return {"tool": given}


@dataclass(frozen=True, slots=True)
class Values:
    """Arguments and their values, which set an axis."""

    axis: str
    default: Mapping[str, Any] = field(default_factory=dict)
    takes: str = "a dictionary of arguments and values"

    def axes(self, given: Any) -> Axes:
        """What a value changes in the formula. Raises `WrongValue`."""
        if not isinstance(given, Mapping):
            raise WrongValue(self.takes, given)
        return {self.axis: given}


@dataclass(frozen=True, slots=True)
class Texts:
    """A list of texts, which sets an axis."""

    axis: str
    default: Sequence[str] = ()
    takes: str = "a list of texts"

    def axes(self, given: Any) -> Axes:
        """What a value changes in the formula. Raises `WrongValue`."""
        if not isinstance(given, list | tuple) or not all(isinstance(text, str) for text in given):
            raise WrongValue(self.takes, given)
        return {self.axis: tuple(given)}


@dataclass(frozen=True, slots=True)
class RulesByTool:
    """For some tools another rule for arguments: a word, a list of dotted keys, or a function of both arguments."""

    words: Mapping[str, str]
    """What the peer's words are called here."""
    absent_is_none: bool
    """Whether a key that is absent is taken for `None`."""
    default: Mapping[str, Any] = field(default_factory=dict)

    @property
    def takes(self) -> str:
        """What it takes, in a few words."""
        return f"a dictionary from tools to {listed(map(repr, self.words))}, a list of keys or a function"

    def axes(self, given: Any) -> Axes:
        """What a value changes in the formula. Raises `WrongValue`."""
        if given is None:
            return {}
        if not isinstance(given, Mapping):
            raise WrongValue(self.takes, given)
        return {"args_of": {tool: self._rule(rule) for tool, rule in given.items()}}

    def _rule(self, given: Any) -> Weigh:
        if callable(given) and not isinstance(given, Enum):
            return _asked(given)
        if isinstance(given, list | tuple) and all(isinstance(path, str) for path in given):
            return keys(given, absent_is_none=self.absent_is_none)
        word = self.words[word_of(given, self.words, self.takes)]
        return ignored if word == "ignore" else WEIGHTS[word]


def _asked(judge: Callable[[Any, Any], Any]) -> Weigh:
    return lambda expected, called: float(bool(judge(called, expected)))


@dataclass(frozen=True, slots=True)
class Unused:
    """An option that no number depends on."""

    default: Any = None
    takes: str = "anything; the number does not depend on it"

    def axes(self, given: Any) -> Axes:
        """What a value changes in the formula: nothing."""
        return {}


@dataclass(frozen=True, slots=True)
class ForModel:
    """An option by which the peer asks a language model."""

    why: str
    default: Any = None
    takes: str = "nothing: the peer asks a language model about it; goldspan has its judge for that"

    def axes(self, given: Any) -> Axes:
        """What a value changes in the formula: there is no number to be had."""
        return {} if given in (None, [], ()) else {"needs_model": self.why}


def word_of(given: Any, words: Mapping[str, Any], takes: str | None = None) -> str:
    """One of some words, also where it is given as a member of an enumeration. Raises `WrongValue`."""
    candidates = (given.value, given.name) if isinstance(given, Enum) else (given,)
    for candidate in candidates:
        if isinstance(candidate, str) and candidate in words:
            return candidate
    raise WrongValue(takes or listed(map(repr, words), last="or"), given, tuple(words))


def unknown(
    what: str, given: object, known: Sequence[str], *, of: str = "", also: Sequence[str] = ()
) -> ConfigurationError:
    """An error for a word that is not known, with the nearest one and the list. `also` are known but not listed."""
    hint = did_you_mean(given, (*known, *also))
    whose = f" of {of}" if of else ""
    return ConfigurationError(f"unknown {what} {shown(given)}{whose}.{hint} There are {listed(known)}.")
