"""Whether a run is one that a golden is for: its unit, its component, and everything that `when` says."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from fnmatch import translate
from functools import lru_cache
from typing import Any, TypeAlias

from goldspan.content.tools import fold_name
from goldspan.model import Golden, Run, When, is_same_value
from goldspan.model.value_matchers import Anything, Contains, Equal, Folded, Matcher, OneOf, Regex, Similar


def normalize_text(text: str | None) -> str:
    """The form in which typed texts are compared: white space, case and Unicode composition do not matter."""
    if text is None:
        return ""
    folded = text.casefold() if text.isascii() else compose_unicode(compose_unicode(text).casefold())
    return " ".join(folded.split())


_MAX_UNCHECKED_LENGTH = 1_000
"""Characters that are composed in less than a millisecond, whatever they are."""
_EXCESSIVE_COMBINING_MARKS = b"\1" * 31
"""A run of more than 30 combining characters means nothing in any script (UAX #15, section 13), and sorting it takes
Python the square of its length: 10 MB of them, hours."""


def compose_unicode(text: str) -> str:
    """The text in Unicode normal form C, unless it would take too long to make."""
    if len(text) > _MAX_UNCHECKED_LENGTH and _EXCESSIVE_COMBINING_MARKS in bytes(
        map(bool, map(unicodedata.combining, text))
    ):
        return text
    return unicodedata.normalize("NFC", text)


class BoundedRegex:
    """A regular expression in the syntax of Rust's `regex`, to match whole texts or to be searched for in them.

    That engine never backtracks, but at worst it follows as many states at once as the pattern has when its repetitions
    are written out: 60,000 for `(?:a{0,300}){200}`, at 50 ns for each of them and each character. So heavy a pattern is
    matched against short texts only.
    """

    __slots__ = ("_fullmatch", "_search", "_state_count", "max_text_length")

    def __init__(self, pattern: str) -> None:
        """`ValueError` says what is wrong with the pattern, in one line."""
        self._search = _compile_rust_regex(
            pattern
        )  # by itself too: in parentheses `a)|(b` would be none, and another pattern
        self._fullmatch = _compile_rust_regex(rf"\A(?:{pattern})\z")
        self._state_count = _count_states(pattern)
        self.max_text_length = min(_MAX_TEXT_LENGTH, _MAX_STEPS // self._state_count)
        """The longest text that is looked at, in characters."""

    def matches_whole(self, text: str) -> bool:
        """Whether the pattern matches the text as a whole; never, where the text is longer than `longest`."""
        return len(text) <= self.max_text_length and self._fullmatch(text)

    def is_found_in(self, text: str) -> bool:
        """Whether the pattern matches some part of the text; never, where the text is longer than `longest`."""
        return len(text) <= self.max_text_length and self._search(text)

    def worst_case_microseconds(self, text: str) -> int:
        """The microseconds that this takes at worst."""
        return len(text) * self._state_count // 20


_MAX_TEXT_LENGTH = 100_000
_MAX_STEPS = 2_000_000
"""States times characters: a tenth of a second at worst."""
_SMALL_AUTOMATON_STATES = 32
"""So few states make an automaton that is soon complete, and then takes one step a character."""


@lru_cache(maxsize=1024)
def compile_regex(pattern: str) -> BoundedRegex:
    """The pattern, compiled once."""
    return BoundedRegex(pattern)


def _compile_rust_regex(pattern: str) -> Callable[[str], bool]:
    from pydantic_core import SchemaError, SchemaValidator, core_schema

    try:
        return SchemaValidator(core_schema.str_schema(pattern=pattern, regex_engine="rust-regex")).isinstance_python
    except SchemaError as error:
        raise ValueError(_engine_message(str(error))) from None


def _engine_message(message: str) -> str:
    """What the engine says is wrong: the last line that says something."""
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    return lines[-1].removeprefix("SchemaError:").removeprefix("error:").strip() if lines else "it is no pattern"


_REGEX_TOKENS = re.compile(r"\\.|\[(?:\\.|[^\]\\])*\]|\{\d+(?:,\d*)?\}|[()]|[^()]", re.DOTALL)


def _count_states(pattern: str) -> int:
    """About how many states the engine follows at once; they are counted with the repetitions written out."""
    groups, last = [0], 1
    for token in _REGEX_TOKENS.findall(pattern):
        if token == "(":
            groups.append(0)
        elif token == ")" and len(groups) > 1:
            last = groups.pop() + 1
            groups[-1] += last
        elif token[0] == "{" and len(token) > 1:
            times = max(int(number) for number in token[1:-1].split(",") if number)
            groups[-1] += last * (times - 1)
            last *= times
        else:
            last = 1
            groups[-1] += last
    return states if (states := sum(groups)) > _SMALL_AUTOMATON_STATES else 1


RunCondition: TypeAlias = Callable[[Run], bool]
ValueEquality: TypeAlias = Callable[[Any, Any], bool]
"""Whether a plain value in a condition is the one that the run has."""


def build_run_conditions(golden: Golden) -> Iterator[RunCondition]:
    """What must hold of a run that this golden is for, beside its input; the cheapest first."""
    yield _is_not_component if golden.component is None else _is_component(golden.component)
    if golden.when is not None:
        yield from _when_conditions(golden.when)


def _is_not_component(run: Run) -> bool:
    return run.unit != "component"


def _is_component(name: str) -> RunCondition:
    folded = fold_name(name)
    return lambda run: run.unit == "component" and run.component is not None and fold_name(run.component) == folded


def _when_conditions(when: When) -> Iterator[RunCondition]:
    for glob, told in ((when.agent, _agent), (when.service, _service), (when.span, _span)):
        if glob is not None:
            yield _name_condition(glob, told)
    for key, wanted in when.attributes.items():
        yield _attribute_condition(key, wanted)
    if when.input is not None:
        yield _input_condition(when.input)


def _agent(run: Run) -> str | None:
    return run.agent


def _service(run: Run) -> str | None:
    return run.service


def _span(run: Run) -> str | None:
    return run.span_name


def _name_condition(glob: str, get_name: Callable[[Run], str | None]) -> RunCondition:
    folded = glob.casefold()
    if not is_glob(glob):
        return lambda run: (name := get_name(run)) is not None and name.casefold() == folded
    fits = re.compile(translate(folded)).match
    return lambda run: (name := get_name(run)) is not None and fits(name.casefold()) is not None


def is_glob(glob: str) -> bool:
    """Whether a pattern may fit several names."""
    return _GLOB_CHARACTERS.search(glob) is not None


_GLOB_CHARACTERS = re.compile(r"[*?\[]")


def _attribute_condition(key: str, expected: Any) -> RunCondition:
    return lambda run: key in run.attributes and matches_condition(expected, run.attributes[key], is_same_value)


def _input_condition(expected: Any) -> RunCondition:
    return lambda run: run.input is not None and matches_condition(expected, run.input, _is_same_text)


def _is_same_text(one: Any, other: Any) -> bool:
    return isinstance(one, str) and isinstance(other, str) and normalize_text(one) == normalize_text(other)


# --- matchers in conditions -------------------------------------------------------------------------------------------


def matches_condition(expected: Any, actual: Any, is_equal: ValueEquality) -> bool:
    """Whether a value is what a condition asks for, which may be one of the `MATCHERS_OF_TEXTS`.

    They mean what they mean in arguments, but for one: a regular expression is searched for, because a condition is
    about what is in a text and not about the whole of it.
    """
    judged = _TEXT_MATCHERS.get(type(expected))
    return is_equal(expected, actual) if judged is None else judged(expected, actual, is_equal)


def _matches_contains(wanted: Contains, given: Any, same: ValueEquality) -> bool:
    if isinstance(given, str):
        return isinstance(wanted.part, str) and wanted.part in given
    parts = wanted.part if isinstance(wanted.part, list | tuple) else [wanted.part]
    return isinstance(given, list | tuple) and all(any(same(part, item) for item in given) for part in parts)


def _matches_folded(wanted: Folded, given: Any, same: ValueEquality) -> bool:
    return _is_same_text(wanted.text, given)


def _matches_one_of(wanted: OneOf, given: Any, same: ValueEquality) -> bool:
    return any(matches_condition(option, given, same) for option in wanted.options)


def _matches_regex(wanted: Regex, given: Any, same: ValueEquality) -> bool:
    return isinstance(given, str) and compile_regex(wanted.pattern).is_found_in(given)


def _matches_similar(wanted: Similar, given: Any, same: ValueEquality) -> bool:
    if not isinstance(given, str) or max(len(given), len(wanted.text)) > MAX_SIMILAR_LENGTH:
        return False
    from rapidfuzz.fuzz import ratio  # takes longer to load than all of goldspan's core

    return bool(ratio(wanted.text, given) >= 100 * wanted.threshold - _ROUNDING_TOLERANCE)


MAX_SIMILAR_LENGTH = 10_000
"""Characters of a text that is measured against a similar one, which takes time in proportion to their square."""
_ROUNDING_TOLERANCE = 1e-7

_TEXT_MATCHERS: Mapping[type[Matcher], Callable[[Any, Any, ValueEquality], bool]] = {
    Anything: lambda wanted, given, same: True,
    Contains: _matches_contains,
    Equal: lambda wanted, given, same: is_same_value(wanted.value, given),
    Folded: _matches_folded,
    OneOf: _matches_one_of,
    Regex: _matches_regex,
    Similar: _matches_similar,
}
TEXT_MATCHER_TYPES = tuple(_TEXT_MATCHERS)
"""The matchers that a condition may be; the others are about arguments and results."""
