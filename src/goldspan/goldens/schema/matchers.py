r"""Parses matchers such as `{regex: "\\d+"}` in the arguments, results and conditions of goldens.

A mapping is a matcher only if it holds one matcher keyword with a value of the right type and, besides that, only
options of that matcher. Any other mapping is plain data. `{equal: ...}` marks a value as plain data.
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
"""The greatest nesting depth of arguments and results."""
MAX_CONTAINERS = 100_000
"""The greatest number of lists and mappings in the arguments, or the result, of one call; aliases count each time."""
MAX_REGEX_LENGTH = 10_000
"""The greatest length of a regular expression in characters."""

Replace: TypeAlias = Callable[[Any], Any]
"""Returns the matcher that replaces a value, or the value itself."""


def parse_matchers(value: Any, location: str, field: str) -> Any:
    """Replaces the matcher mappings in a value by matchers; returns the value itself if it has none.

    `field`, such as `arguments` or `result`, is the start of the path in error messages. The arguments as a whole
    cannot be a matcher; a result can. Raises `GoldenError` for an invalid matcher, for keys that are not text, and for
    values that are nested too deeply or too large.
    """
    containers = list(_walk_containers(value, location, field, is_plain_data=False))
    if all(matcher is None for _, matcher in containers):
        return value
    replacements: dict[int, Any] = {}

    def replace(part: Any) -> Any:
        return replacements.get(id(part), part)

    # A container precedes its parts, so in reverse order the parts are replaced before their container is built.
    for container, matcher in reversed(containers):
        if id(container) not in replacements:
            built = matcher.to_matcher(container, replace) if matcher else _replace_parts(container, replace)
            replacements[id(container)] = built
    return replace(value)


def has_only_scalars(arguments: Mapping[Any, Any]) -> bool:
    """Whether all keys are text and all values are scalars, so that there is nothing to parse or to reject."""
    return set(map(type, arguments)) <= _STRING_TYPE and _SCALAR_TYPES.issuperset(map(type, arguments.values()))


def check_plain_data(value: Any, location: str, field: str) -> None:
    """Raises `GoldenError` for plain data with keys that are not text, or nested too deeply."""
    for _ in _walk_containers(value, location, field, is_plain_data=True):
        pass


class _Container(NamedTuple):
    """A list or a mapping, and the matcher that it stands for, if any."""

    value: Any
    matcher: MatcherEntry | None


class _PendingPart(NamedTuple):
    """A part of a value that is still to be visited."""

    value: Any
    path_links: Any
    """The path as linked pairs: the last key or index, and the pairs before it."""
    depth: int
    is_plain_data: bool
    """Whether matcher keywords in it have no meaning."""


def _walk_containers(value: Any, location: str, field: str, *, is_plain_data: bool) -> Iterator[_Container]:
    """Checks every list and mapping in a value, and yields those that are not plain data, each before its parts.

    It does not recurse, so that a deeply nested file cannot exhaust the stack.
    """
    pending = [_PendingPart(value, (field, None), 1, is_plain_data)]
    remaining = MAX_CONTAINERS
    while pending:
        value, path_links, depth, is_plain_data = pending.pop()
        if isinstance(value, Regex):  # created in Python, and therefore not validated yet
            _check_regex(value.pattern, _location(location, path_links))
        if not isinstance(value, Mapping | list | tuple):
            continue
        remaining -= 1
        if remaining < 0:
            raise GoldenError(f"{location}: more than {MAX_CONTAINERS:,} lists and mappings are in the {field}.")
        if depth > MAX_VALUE_DEPTH:
            verb = "is" if field in _SINGULAR_FIELDS else "are"
            raise GoldenError(f"{location}: the {field} {verb} nested more than {MAX_VALUE_DEPTH} levels deep.")
        matcher = None
        if isinstance(value, Mapping):
            _check_text_keys(value, location, field)
            is_never_matcher = is_plain_data or (depth == 1 and field in _FIELDS_WITH_ANY_KEYS)
            matcher_type = None if is_never_matcher else _matcher_type(value)
            matcher = validate_entry(matcher_type, value, _location(location, path_links)) if matcher_type else None
        if not is_plain_data:
            yield _Container(value, matcher)
        is_plain_data = is_plain_data or isinstance(matcher, EqualMatcher)
        parts = value.items() if isinstance(value, Mapping) else enumerate(value)
        inner = [
            _PendingPart(part, (key, path_links), depth + 1, is_plain_data)
            for key, part in parts
            if type(part) not in _SCALAR_TYPES
        ]
        pending.extend(reversed(inner))  # so that the first of several errors is reported


_FIELDS_WITH_ANY_KEYS = frozenset({"arguments", "when.attributes"})
"""Fields that are a mapping with arbitrary keys, and never a matcher themselves."""
_SINGULAR_FIELDS = frozenset({"result", "when.input"})
_STRING_TYPE = frozenset({str})
_SCALAR_TYPES = frozenset({str, int, float, bool, type(None)})


def _check_text_keys(value: Mapping[Any, Any], location: str, field: str) -> None:
    for key in value:
        if not isinstance(key, str):
            raise GoldenError(f"{location}: the key {short_repr(key)} in the {field} must be text.")


def _location(golden_location: str, path_links: Any) -> str:
    steps = []
    while path_links:
        step, path_links = path_links
        steps.append(step)
    return f"{golden_location}, {format_path(reversed(steps))}"


def _replace_parts(value: Any, replace: Replace) -> Any:
    """Returns a list or mapping with replaced parts, or the value itself if no part is replaced."""
    if isinstance(value, Mapping):
        parts = {key: replace(part) for key, part in value.items()}
        return value if all(parts[key] is part for key, part in value.items()) else parts
    items = list(map(replace, value))
    return value if all(new is old for new, old in zip(items, value, strict=True)) else items


# --- the matchers -----------------------------------------------------------------------------------------------------


def _regex_problem(pattern: str) -> str | None:
    """Returns what is wrong with a regular expression as a predicate, or `None`."""
    if len(pattern) > MAX_REGEX_LENGTH:
        return f"is longer than {MAX_REGEX_LENGTH:,} characters"
    try:
        text_matching.compile_regex(pattern)
    except ValueError as error:
        return f"cannot be used: {str(error).rstrip('.')}"
    return None


def _check_regex(pattern: str, location: str) -> None:
    if problem := _regex_problem(pattern):
        raise GoldenError(f"{location}: regex {short_repr(pattern)} {problem}.")


def _validate_regex(pattern: str) -> str:
    if problem := _regex_problem(pattern):
        raise field_error(f"{short_repr(pattern)} {problem}.")
    return pattern


def _matcher_type(value: Mapping[str, Any]) -> type[MatcherEntry] | None:
    """Returns the matcher type of a mapping, or `None` for plain data."""
    if not 0 < len(value) <= _MAX_ENTRY_KEYS or len(keywords := _ENTRY_BY_KEYWORD.keys() & value.keys()) != 1:
        return None
    (keyword,) = keywords
    matcher_type, options = _ENTRY_BY_KEYWORD[keyword], value.keys() - keywords
    fits = matcher_type.accepts_value(value[keyword])
    if not options:
        return matcher_type if fits else None
    known = matcher_type.option_keys()
    if options <= known:
        return matcher_type  # plain data does not have these keys, so an unfit value is reported as an error
    return matcher_type if fits and all(option in known or is_typo(option, known) for option in options) else None


class MatcherEntry(FileEntry):
    """Base class of the models of matchers. The first field is the keyword, the others are options."""

    forbids_extra_keys: ClassVar[bool] = True
    build: ClassVar[Callable[..., Matcher]]
    """Creates the matcher from the value of the keyword and the values of the options."""

    @staticmethod
    def accepts_value(value: Any) -> bool:
        """Whether the keyword accepts this value; otherwise the mapping is plain data."""
        return True

    @classmethod
    def keyword(cls) -> str:
        """Returns the key that makes a mapping this matcher."""
        return next(iter(cls.model_fields))

    @classmethod
    def option_keys(cls) -> frozenset[str]:
        """Returns the keys of the options."""
        return frozenset(cls.model_fields) - {cls.keyword()}

    def to_matcher(self, entry: Mapping[str, Any], replace: Replace) -> Matcher:
        """Returns the matcher; `replace` substitutes nested matchers in the value of the keyword."""
        keyword, *options = type(self).model_fields
        return type(self).build(replace(entry[keyword]), *(getattr(self, option) for option in options))


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_list(value: Any) -> bool:
    return isinstance(value, list | tuple)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


_Finite = Annotated[StrictNumber, Field(allow_inf_nan=False)]
_NonNegative = Annotated[_Finite, NumberRange(0, None, "0 or more")]


class AnyMatcher(MatcherEntry):
    """Matches any value; the key must be present."""

    any: Literal[True]
    accepts_value = staticmethod(lambda value: value is True)
    build = staticmethod(lambda _: Anything())


class ApproxMatcher(MatcherEntry):
    """Matches a number that is close to this one."""

    approx: _Finite
    within: _NonNegative | None = None
    """The greatest allowed difference. Without `within` and `relative` it is a millionth of the number."""
    relative: _NonNegative | None = None
    """The greatest allowed difference as a share of the number. With both options, one of them must hold."""
    accepts_value = staticmethod(_is_number)
    build = Approx


class ContainsMatcher(MatcherEntry):
    """Matches a text that contains this text, a list with these items, or a mapping with these entries."""

    contains: Any
    build = Contains


class EqualMatcher(MatcherEntry):
    """Matches exactly this value, even if it looks like a matcher."""

    equal: Any
    build = Equal

    def to_matcher(self, entry: Mapping[str, Any], replace: Replace) -> Matcher:
        """Returns the matcher of the literal value, which a YAML alias may share with a matcher elsewhere."""
        return Equal(entry["equal"])


class FoldedMatcher(MatcherEntry):
    """Matches the same text, ignoring case, white space and Unicode composition."""

    folded: PossiblyEmptyText
    accepts_value = staticmethod(_is_text)
    build = Folded


class OneOfMatcher(MatcherEntry):
    """Matches one of these values, which may be matchers."""

    one_of: Annotated[list[Any], Field(min_length=1)]
    accepts_value = staticmethod(_is_list)
    build = staticmethod(lambda options: OneOf(tuple(options)))


class RegexMatcher(MatcherEntry):
    """Matches a text that the pattern matches as a whole. The syntax is that of Rust's `regex`: without look-around."""

    regex: Annotated[
        PossiblyEmptyText, AfterValidator(_validate_regex), Field(json_schema_extra={"maxLength": MAX_REGEX_LENGTH})
    ]
    accepts_value = staticmethod(_is_text)
    build = Regex


class SimilarMatcher(MatcherEntry):
    """Matches a text that is similar to this one."""

    similar: PossiblyEmptyText
    threshold: Fraction = 0.9
    """The least accepted normalized similarity."""
    accepts_value = staticmethod(_is_text)
    build = Similar


class TypeMatcher(MatcherEntry):
    """Matches any value of this JSON type; 1.0 is an integer, `true` is not a number."""

    type: JsonType
    accepts_value = staticmethod(lambda value: isinstance(value, str) and value in JSON_TYPES)
    build = OfType


class UnorderedMatcher(MatcherEntry):
    """Matches a list of these items in any order; items may be matchers."""

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
"""The models of all matchers."""
_ENTRY_BY_KEYWORD: Mapping[str, type[MatcherEntry]] = {kind.keyword(): kind for kind in MATCHER_ENTRIES}
_MAX_ENTRY_KEYS = max(len(kind.model_fields) for kind in _ENTRY_BY_KEYWORD.values())
