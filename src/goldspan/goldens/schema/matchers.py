r"""Matchers as people write them, such as `{regex: "\\d+"}`, found among arguments and results.

A mapping is a matcher only if it says one of their words, a value of the right kind, and nothing else but that
matcher's own options; any other mapping is plain data. `{equal: ...}` is the way to say that something is data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, TypeAlias

from pydantic import AfterValidator, Field

from goldspan.errors import GoldenError
from goldspan.goldens import text_matching
from goldspan.goldens.schema.golden_validation import (
    FileEntry,
    Fraction,
    NumberRange,
    PossiblyEmptyText,
    StrictNumber,
    field_error,
    format_path,
    validate_entry,
)
from goldspan.goldens.spelling import is_typo, short_repr
from goldspan.model.value_matchers import (
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

MAX_VALUE_DEPTH = 100
"""How deeply arguments and results may be nested."""
MAX_CONTAINERS = 100_000
"""How many lists and mappings the arguments, or the result, of one call may stand for."""
MAX_REGEX_LENGTH = 10_000
"""Characters of a regular expression."""

Replace: TypeAlias = Callable[[Any], Any]
"""Gives the matcher that was made of a value, or the value itself."""


def parse_matchers(value: Any, location: str, field: str) -> Any:
    """A value with its matchers made; the value itself where it has none.

    `what` it is, such as `arguments` or `result`, begins the path to whatever is wrong. The arguments as a whole are no
    matcher, a result may be one. Raises `GoldenError` for a wrong matcher, for keys that are not text, and for what is
    nested without end.
    """
    found = list(_walk_containers(value, location, field, plain=False))
    if all(one.matcher is None for one in found):
        return value
    swapped: dict[int, Any] = {}

    def swap(part: Any) -> Any:
        return swapped.get(id(part), part)

    # The parts of something were found after it, so backwards they are all there before the whole is made of them.
    for one in reversed(found):
        if id(one.value) not in swapped:
            swapped[id(one.value)] = (
                one.matcher.made(one.value, swap) if one.matcher else _replace_parts(one.value, swap)
            )
    return swap(value)


def has_only_scalars(arguments: Mapping[Any, Any]) -> bool:
    """Whether there is nothing to read in them, and nothing to refuse: each is one number, text or the like."""
    return set(map(type, arguments)) <= _STRING_TYPE and _SCALAR_TYPES.issuperset(map(type, arguments.values()))


def check_plain_data(value: Any, location: str, field: str) -> None:
    """Refuse plain data with keys that are not text, or nested without end."""
    for _ in _walk_containers(value, location, field, plain=True):
        pass


class _Container(NamedTuple):
    """A list or a mapping, and the matcher that it is written as."""

    value: Any
    matcher: MatcherEntry | None


class _PendingPart(NamedTuple):
    """A part of a value, on the list of those to be looked at."""

    value: Any
    path: Any
    """How it is reached, from here outwards: a key or an index, and the way before it."""
    depth: int
    is_plain_data: bool
    """Whether it is data whatever it looks like."""


def _walk_containers(value: Any, where: str, what: str, *, plain: bool) -> Iterator[_Container]:
    """Every list and mapping in a value that may be or hold matchers, each before its parts; all others are checked.

    Nothing recurses: how deep a file goes is not for the file to decide.
    """
    waiting = [_PendingPart(value, (what, None), 1, plain)]
    left = MAX_CONTAINERS
    while waiting:
        value, way, depth, plain = waiting.pop()
        if isinstance(value, Regex):  # made in Python, and not checked by anybody
            _check_regex(value.pattern, _location(where, way))
        if not isinstance(value, Mapping | list | tuple):
            continue
        left -= 1
        if left < 0:
            raise GoldenError(f"{where}: more than {MAX_CONTAINERS:,} lists and mappings are in the {what}.")
        if depth > MAX_VALUE_DEPTH:
            are = "is" if what in _SINGULAR_FIELDS else "are"
            raise GoldenError(f"{where}: the {what} {are} nested more than {MAX_VALUE_DEPTH} levels deep.")
        matcher = None
        if isinstance(value, Mapping):
            _check_text_keys(value, where, what)
            kind = None if plain or (depth == 1 and what in _FIELDS_WITH_ANY_KEYS) else _matcher_type(value)
            matcher = validate_entry(kind, value, _location(where, way)) if kind else None
        if not plain:
            yield _Container(value, matcher)
        plain = plain or isinstance(matcher, EqualMatcher)
        parts = value.items() if isinstance(value, Mapping) else enumerate(value)
        inner = [
            _PendingPart(part, (key, way), depth + 1, plain) for key, part in parts if type(part) not in _SCALAR_TYPES
        ]
        waiting.extend(reversed(inner))  # so that of several mistakes the first is told


_FIELDS_WITH_ANY_KEYS = frozenset({"arguments", "when.attributes"})
"""What is a mapping whatever its keys are, and no matcher."""
_SINGULAR_FIELDS = frozenset({"result", "when.input"})
_STRING_TYPE = frozenset({str})
_SCALAR_TYPES = frozenset({str, int, float, bool, type(None)})


def _check_text_keys(value: Mapping[Any, Any], where: str, what: str) -> None:
    for key in value:
        if not isinstance(key, str):
            raise GoldenError(f"{where}: the key {short_repr(key)} in the {what} must be text.")


def _location(where: str, path_links: Any) -> str:
    steps = []
    while path_links:
        step, path_links = path_links
        steps.append(step)
    return f"{where}, {format_path(reversed(steps))}"


def _replace_parts(value: Any, replace: Replace) -> Any:
    """A list or mapping of the swapped parts; itself where none of them was."""
    if isinstance(value, Mapping):
        parts = {key: replace(part) for key, part in value.items()}
        return value if all(parts[key] is part for key, part in value.items()) else parts
    items = list(map(replace, value))
    return value if all(new is old for new, old in zip(items, value, strict=True)) else items


# --- how each of them is written --------------------------------------------------------------------------------------


def _regex_problem(pattern: str) -> str | None:
    """What is wrong with a regular expression, in half a sentence."""
    if len(pattern) > MAX_REGEX_LENGTH:
        return f"is longer than {MAX_REGEX_LENGTH:,} characters"
    try:
        text_matching.compile_regex(pattern)
    except ValueError as error:
        return f"cannot be used: {str(error).rstrip('.')}"
    return None


def _check_regex(pattern: str, where: str) -> None:
    if problem := _regex_problem(pattern):
        raise GoldenError(f"{where}: regex {short_repr(pattern)} {problem}.")


def _validate_regex(pattern: str) -> str:
    if problem := _regex_problem(pattern):
        raise field_error(f"{short_repr(pattern)} {problem}.")
    return pattern


def _matcher_type(value: Mapping[str, Any]) -> type[MatcherEntry] | None:
    """The matcher that a mapping is written as, or `None` for plain data."""
    if not 0 < len(value) <= _MAX_ENTRY_KEYS or len(words := _ENTRY_BY_KEYWORD.keys() & value.keys()) != 1:
        return None
    (word,) = words
    kind, options = _ENTRY_BY_KEYWORD[word], value.keys() - words
    fits = kind.accepts_value(value[word])
    if not options:
        return kind if fits else None
    own = kind.option_keys()
    if options <= own:
        return kind  # no data looks like that, so whatever is wrong with its values is a mistake
    return kind if fits and all(option in own or is_typo(option, own) for option in options) else None


class MatcherEntry(FileEntry):
    """A matcher as it is written: its word first, then its options."""

    forbids_extra_keys: ClassVar[bool] = True
    build: ClassVar[Callable[..., Matcher]]
    """Makes the matcher of what stands behind the word and of the options."""

    @staticmethod
    def accepts_value(value: Any) -> bool:
        """Whether that can stand behind the word; otherwise the mapping is plain data."""
        return True

    @classmethod
    def keyword(cls) -> str:
        """The key that makes a mapping one."""
        return next(iter(cls.model_fields))

    @classmethod
    def option_keys(cls) -> frozenset[str]:
        """The further keys that it may have."""
        return frozenset(cls.model_fields) - {cls.keyword()}

    def to_matcher(self, entry: Mapping[str, Any], replace: Replace) -> Matcher:
        """The matcher, with the parts of what is written behind its word swapped."""
        word, *options = type(self).model_fields
        return type(self).build(replace(entry[word]), *(getattr(self, option) for option in options))


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_list(value: Any) -> bool:
    return isinstance(value, list | tuple)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


_Finite = Annotated[StrictNumber, Field(allow_inf_nan=False)]
_NonNegative = Annotated[_Finite, NumberRange(0, None, "0 or more")]


class AnyMatcher(MatcherEntry):
    """Whatever the value is, as long as it is there."""

    any: Literal[True]
    accepts_value = staticmethod(lambda value: value is True)
    build = staticmethod(lambda _: Anything())


class ApproxMatcher(MatcherEntry):
    """A number that is near this one."""

    approx: _Finite
    within: _NonNegative | None = None
    """The greatest difference; where neither this nor `relative` is given, a millionth of the number."""
    relative: _NonNegative | None = None
    """The greatest difference as a share of the number. Where both are given, either will do."""
    accepts_value = staticmethod(_is_number)
    build = Approx


class ContainsMatcher(MatcherEntry):
    """A text with this text in it, or a list with these items, or a mapping with these entries."""

    contains: Any
    build = Contains


class EqualMatcher(MatcherEntry):
    """Exactly this value, though it looks like a matcher."""

    equal: Any
    build = Equal

    def to_matcher(self, written: Mapping[str, Any], swap: Replace) -> Matcher:
        """The matcher of the value as it is written; elsewhere an alias of it may stand for a matcher."""
        return Equal(written["equal"])


class FoldedMatcher(MatcherEntry):
    """The same text but for case, white space and Unicode composition."""

    folded: PossiblyEmptyText
    accepts_value = staticmethod(_is_text)
    build = Folded


class OneOfMatcher(MatcherEntry):
    """One of these values, which may be matchers."""

    one_of: Annotated[list[Any], Field(min_length=1)]
    accepts_value = staticmethod(_is_list)
    build = staticmethod(lambda options: OneOf(tuple(options)))


class RegexMatcher(MatcherEntry):
    """A text that the pattern matches as a whole, in the syntax of Rust's `regex`: without look-around."""

    regex: Annotated[
        PossiblyEmptyText, AfterValidator(_validate_regex), Field(json_schema_extra={"maxLength": MAX_REGEX_LENGTH})
    ]
    accepts_value = staticmethod(_is_text)
    build = Regex


class SimilarMatcher(MatcherEntry):
    """A text that is nearly this one."""

    similar: PossiblyEmptyText
    threshold: Fraction = 0.9
    """The least normalized similarity."""
    accepts_value = staticmethod(_is_text)
    build = Similar


class TypeMatcher(MatcherEntry):
    """Any value of this JSON type; 1.0 is an integer, `true` is no number."""

    type: JsonType
    accepts_value = staticmethod(lambda value: isinstance(value, str) and value in JSON_TYPES)
    build = OfType


class UnorderedMatcher(MatcherEntry):
    """A list of these items in any order; items may be matchers."""

    unordered: list[Any]
    accepts_value = staticmethod(_is_list)
    build = staticmethod(lambda items: Unordered(tuple(items)))


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
_ENTRY_BY_KEYWORD: Mapping[str, type[MatcherEntry]] = {kind.keyword(): kind for kind in MATCHER_ENTRIES}
_MAX_ENTRY_KEYS = max(len(kind.model_fields) for kind in _ENTRY_BY_KEYWORD.values())
