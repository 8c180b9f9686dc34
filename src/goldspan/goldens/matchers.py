r"""Matchers as people write them, such as `{regex: "\\d+"}`, found among arguments and results.

A mapping is a matcher only if it says one of their words, a value of the right kind, and nothing else but that
matcher's own options; any other mapping is plain data. `{equal: ...}` is the way to say that something is data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, TypeAlias

from pydantic import AfterValidator, Field

from goldspan.errors import GoldenError
from goldspan.goldens import patterns
from goldspan.goldens.checking import Entry, Number, PerhapsEmpty, Share, Within, checked, path, unfit
from goldspan.goldens.words import is_slip, shown
from goldspan.model.matchers import (
    JSON_TYPES,
    Anything,
    Approx,
    Contains,
    Equal,
    Folded,
    JsonType,
    Matcher,
    OfType,
    OneOf,
    Regex,
    Similar,
    Unordered,
)

MAX_DEPTH = 100
"""How deeply arguments and results may be nested."""
MAX_VALUES = 100_000
"""How many lists and mappings the arguments, or the result, of one call may stand for."""
MAX_PATTERN = 10_000
"""Characters of a regular expression."""

Swap: TypeAlias = Callable[[Any], Any]
"""Gives the matcher that was made of a value, or the value itself."""


def read(value: Any, where: str, what: str) -> Any:
    """A value with its matchers made; the value itself where it has none.

    `what` it is, such as `arguments` or `result`, begins the path to whatever is wrong. The arguments as a whole are no
    matcher, a result may be one. Raises `GoldenError` for a wrong matcher, for keys that are not text, and for what is
    nested without end.
    """
    found = list(_found(value, where, what, plain=False))
    if all(one.matcher is None for one in found):
        return value
    swapped: dict[int, Any] = {}

    def swap(part: Any) -> Any:
        return swapped.get(id(part), part)

    # The parts of something were found after it, so backwards they are all there before the whole is made of them.
    for one in reversed(found):
        if id(one.value) not in swapped:
            swapped[id(one.value)] = one.matcher.made(one.value, swap) if one.matcher else _of_parts(one.value, swap)
    return swap(value)


def is_simple(arguments: Mapping[Any, Any]) -> bool:
    """Whether there is nothing to read in them, and nothing to refuse: each is one number, text or the like."""
    return set(map(type, arguments)) <= _TEXT and _SCALARS.issuperset(map(type, arguments.values()))


def check_plain(value: Any, where: str, what: str) -> None:
    """Refuse plain data with keys that are not text, or nested without end."""
    for _ in _found(value, where, what, plain=True):
        pass


class _Found(NamedTuple):
    """A list or a mapping, and the matcher that it is written as."""

    value: Any
    matcher: MatcherEntry | None


class _Waiting(NamedTuple):
    """A part of a value, on the list of those to be looked at."""

    value: Any
    way: Any
    """How it is reached, from here outwards: a key or an index, and the way before it."""
    depth: int
    plain: bool
    """Whether it is data whatever it looks like."""


def _found(value: Any, where: str, what: str, *, plain: bool) -> Iterator[_Found]:
    """Every list and mapping in a value that may be or hold matchers, each before its parts; all others are checked.

    Nothing recurses: how deep a file goes is not for the file to decide.
    """
    waiting = [_Waiting(value, (what, None), 1, plain)]
    left = MAX_VALUES
    while waiting:
        value, way, depth, plain = waiting.pop()
        if isinstance(value, Regex):  # made in Python, and not checked by anybody
            _check_pattern(value.pattern, _place(where, way))
        if not isinstance(value, Mapping | list | tuple):
            continue
        left -= 1
        if left < 0:
            raise GoldenError(f"{where}: more than {MAX_VALUES:,} lists and mappings are in the {what}.")
        if depth > MAX_DEPTH:
            are = "is" if what in _SINGULAR else "are"
            raise GoldenError(f"{where}: the {what} {are} nested more than {MAX_DEPTH} levels deep.")
        matcher = None
        if isinstance(value, Mapping):
            _check_keys(value, where, what)
            kind = None if plain or (depth == 1 and what in _NAMED_VALUES) else _kind(value)
            matcher = checked(kind, value, _place(where, way)) if kind else None
        if not plain:
            yield _Found(value, matcher)
        plain = plain or isinstance(matcher, EqualMatcher)
        parts = value.items() if isinstance(value, Mapping) else enumerate(value)
        inner = [_Waiting(part, (key, way), depth + 1, plain) for key, part in parts if type(part) not in _SCALARS]
        waiting.extend(reversed(inner))  # so that of several mistakes the first is told


_NAMED_VALUES = frozenset({"arguments", "when.attributes"})
"""What is a mapping whatever its keys are, and no matcher."""
_SINGULAR = frozenset({"result", "when.input"})
_TEXT = frozenset({str})
_SCALARS = frozenset({str, int, float, bool, type(None)})


def _check_keys(value: Mapping[Any, Any], where: str, what: str) -> None:
    for key in value:
        if not isinstance(key, str):
            raise GoldenError(f"{where}: the key {shown(key)} in the {what} must be text.")


def _place(where: str, way: Any) -> str:
    steps = []
    while way:
        step, way = way
        steps.append(step)
    return f"{where}, {path(reversed(steps))}"


def _of_parts(value: Any, swap: Swap) -> Any:
    """A list or mapping of the swapped parts; itself where none of them was."""
    if isinstance(value, Mapping):
        parts = {key: swap(part) for key, part in value.items()}
        return value if all(parts[key] is part for key, part in value.items()) else parts
    items = list(map(swap, value))
    return value if all(new is old for new, old in zip(items, value, strict=True)) else items


# --- how each of them is written --------------------------------------------------------------------------------------


def _problem(pattern: str) -> str | None:
    """What is wrong with a regular expression, in half a sentence."""
    if len(pattern) > MAX_PATTERN:
        return f"is longer than {MAX_PATTERN:,} characters"
    try:
        patterns.pattern(pattern)
    except ValueError as error:
        return f"cannot be used: {str(error).rstrip('.')}"
    return None


def _check_pattern(pattern: str, where: str) -> None:
    if problem := _problem(pattern):
        raise GoldenError(f"{where}: regex {shown(pattern)} {problem}.")


def _pattern(pattern: str) -> str:
    if problem := _problem(pattern):
        raise unfit(f"{shown(pattern)} {problem}.")
    return pattern


def _kind(value: Mapping[str, Any]) -> type[MatcherEntry] | None:
    """The matcher that a mapping is written as, or `None` for plain data."""
    if not 0 < len(value) <= _MOST_KEYS or len(words := _KINDS.keys() & value.keys()) != 1:
        return None
    (word,) = words
    kind, options = _KINDS[word], value.keys() - words
    fits = kind.takes(value[word])
    if not options:
        return kind if fits else None
    own = kind.options()
    if options <= own:
        return kind  # no data looks like that, so whatever is wrong with its values is a mistake
    return kind if fits and all(option in own or is_slip(option, own) for option in options) else None


class MatcherEntry(Entry):
    """A matcher as it is written: its word first, then its options."""

    closed: ClassVar[bool] = True
    means: ClassVar[Callable[..., Matcher]]
    """Makes the matcher of what stands behind the word and of the options."""

    @staticmethod
    def takes(value: Any) -> bool:
        """Whether that can stand behind the word; otherwise the mapping is plain data."""
        return True

    @classmethod
    def word(cls) -> str:
        """The key that makes a mapping one."""
        return next(iter(cls.model_fields))

    @classmethod
    def options(cls) -> frozenset[str]:
        """The further keys that it may have."""
        return frozenset(cls.model_fields) - {cls.word()}

    def made(self, written: Mapping[str, Any], swap: Swap) -> Matcher:
        """The matcher, with the parts of what is written behind its word swapped."""
        word, *options = type(self).model_fields
        return type(self).means(swap(written[word]), *(getattr(self, option) for option in options))


def _text(value: Any) -> bool:
    return isinstance(value, str)


def _list(value: Any) -> bool:
    return isinstance(value, list | tuple)


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


_Finite = Annotated[Number, Field(allow_inf_nan=False)]
_Distance = Annotated[_Finite, Within(0, None, "0 or more")]


class AnyMatcher(MatcherEntry):
    """Whatever the value is, as long as it is there."""

    any: Literal[True]
    takes = staticmethod(lambda value: value is True)
    means = staticmethod(lambda _: Anything())


class ApproxMatcher(MatcherEntry):
    """A number that is near this one."""

    approx: _Finite
    within: _Distance | None = None
    """The greatest difference; where neither this nor `relative` is given, a millionth of the number."""
    relative: _Distance | None = None
    """The greatest difference as a share of the number. Where both are given, either will do."""
    takes = staticmethod(_number)
    means = Approx


class ContainsMatcher(MatcherEntry):
    """A text with this text in it, or a list with these items, or a mapping with these entries."""

    contains: Any
    means = Contains


class EqualMatcher(MatcherEntry):
    """Exactly this value, though it looks like a matcher."""

    equal: Any
    means = Equal

    def made(self, written: Mapping[str, Any], swap: Swap) -> Matcher:
        """The matcher of the value as it is written; elsewhere an alias of it may stand for a matcher."""
        return Equal(written["equal"])


class FoldedMatcher(MatcherEntry):
    """The same text but for case, white space and Unicode composition."""

    folded: PerhapsEmpty
    takes = staticmethod(_text)
    means = Folded


class OneOfMatcher(MatcherEntry):
    """One of these values, which may be matchers."""

    one_of: Annotated[list[Any], Field(min_length=1)]
    takes = staticmethod(_list)
    means = staticmethod(lambda options: OneOf(tuple(options)))


class RegexMatcher(MatcherEntry):
    """A text that the pattern matches as a whole, in the syntax of Rust's `regex`: without look-around."""

    regex: Annotated[PerhapsEmpty, AfterValidator(_pattern), Field(json_schema_extra={"maxLength": MAX_PATTERN})]
    takes = staticmethod(_text)
    means = Regex


class SimilarMatcher(MatcherEntry):
    """A text that is nearly this one."""

    similar: PerhapsEmpty
    threshold: Share = 0.9
    """The least normalized similarity."""
    takes = staticmethod(_text)
    means = Similar


class TypeMatcher(MatcherEntry):
    """Any value of this JSON type; 1.0 is an integer, `true` is no number."""

    type: JsonType
    takes = staticmethod(lambda value: isinstance(value, str) and value in JSON_TYPES)
    means = OfType


class UnorderedMatcher(MatcherEntry):
    """A list of these items in any order; items may be matchers."""

    unordered: list[Any]
    takes = staticmethod(_list)
    means = staticmethod(lambda items: Unordered(tuple(items)))


MATCHER_ENTRIES: tuple[type[MatcherEntry], ...] = (
    AnyMatcher,
    ApproxMatcher,
    ContainsMatcher,
    EqualMatcher,
    FoldedMatcher,
    OneOfMatcher,
    RegexMatcher,
    SimilarMatcher,
    TypeMatcher,
    UnorderedMatcher,
)
"""Every matcher, as it is written."""
_KINDS: Mapping[str, type[MatcherEntry]] = {kind.word(): kind for kind in MATCHER_ENTRIES}
_MOST_KEYS = max(len(kind.model_fields) for kind in _KINDS.values())
