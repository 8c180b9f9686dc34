"""Conditions under which a golden applies to a run, with text normalization and bounded regexes."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from fnmatch import translate
from functools import lru_cache
from typing import Any, TypeAlias

from goldspan.model import Golden, Run, When, is_same_value
from goldspan.model.name_folding import fold_name
from goldspan.model.value_matchers import Anything, Contains, Equal, Folded, Matcher, OneOf, Regex, Similar


def normalize_text(text: str | None) -> str:
    """Returns the form in which input texts are compared: white space, case and Unicode composition do not matter."""
    if text is None:
        return ""
    folded = text.casefold() if text.isascii() else compose_unicode(compose_unicode(text).casefold())
    return " ".join(folded.split())


_MAX_UNCHECKED_LENGTH = 1_000
"""Up to this length in characters, composing any text takes less than a millisecond."""
_EXCESSIVE_COMBINING_MARKS = b"\1" * 31
"""No script uses more than 30 combining characters in sequence (UAX #15, section 13). Python takes quadratic time to
sort them: hours for 10 MB."""


def compose_unicode(text: str) -> str:
    """Returns the text in Unicode normal form C, or unchanged if normalizing it would take too long."""
    if len(text) > _MAX_UNCHECKED_LENGTH and _EXCESSIVE_COMBINING_MARKS in bytes(
        map(bool, map(unicodedata.combining, text))
    ):
        return text
    return unicodedata.normalize("NFC", text)


class BoundedRegex:
    """A regular expression in the syntax of Rust's `regex` with a bounded matching time.

    The engine never backtracks. In the worst case it follows all states of the pattern with its repetitions expanded:
    60,000 for `(?:a{0,300}){200}`, at 50 ns per state and character. The accepted text length therefore depends on the
    number of states.
    """

    __slots__ = ("_fullmatch", "_search", "_state_count", "max_text_length")

    def __init__(self, pattern: str) -> None:
        """Compiles the pattern. Raises `ValueError` with a message of one line for an invalid pattern."""
        # Also compiled without parentheses, because `a)|(b` is invalid, but `(?:a)|(b)` is a different valid pattern.
        self._search = _compile_rust_regex(pattern)
        self._fullmatch = _compile_rust_regex(rf"\A(?:{pattern})\z")
        self._state_count = _count_states(pattern)
        self.max_text_length = min(_MAX_TEXT_LENGTH, _MAX_STEPS // self._state_count)
        """The greatest length of a text that is matched, in characters."""

    def matches_whole(self, text: str) -> bool:
        """Whether the pattern matches the whole text; `False` for a text longer than `max_text_length`."""
        return len(text) <= self.max_text_length and self._fullmatch(text)

    def is_found_in(self, text: str) -> bool:
        """Whether the pattern matches a part of the text; `False` for a text longer than `max_text_length`."""
        return len(text) <= self.max_text_length and self._search(text)

    def worst_case_microseconds(self, text: str) -> int:
        """Returns the worst-case matching time in microseconds."""
        return len(text) * self._state_count // 20


_MAX_TEXT_LENGTH = 100_000
_MAX_STEPS = 2_000_000
"""Limit of states times characters: 0.1 seconds in the worst case."""
_SMALL_AUTOMATON_STATES = 32
"""Up to this number of states the engine soon has a complete automaton, which takes one step per character."""


@lru_cache(maxsize=1024)
def compile_regex(pattern: str) -> BoundedRegex:
    """Returns the compiled pattern; cached."""
    return BoundedRegex(pattern)


def _compile_rust_regex(pattern: str) -> Callable[[str], bool]:
    from pydantic_core import SchemaError, SchemaValidator, core_schema

    try:
        return SchemaValidator(core_schema.str_schema(pattern=pattern, regex_engine="rust-regex")).isinstance_python
    except SchemaError as error:
        raise ValueError(_engine_message(str(error))) from None


def _engine_message(message: str) -> str:
    """Returns the last non-empty line of the engine's error message."""
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    return (
        lines[-1].removeprefix("SchemaError:").removeprefix("error:").strip() if lines else "it is not a valid pattern"
    )


_REGEX_TOKENS = re.compile(r"\\.|\[(?:\\.|[^\]\\])*\]|\{\d+(?:,\d*)?\}|[()]|[^()]", re.DOTALL)


def _count_states(pattern: str) -> int:
    """Estimates how many states the engine follows at once, with repetitions expanded."""
    groups, last_size = [0], 1
    for token in _REGEX_TOKENS.findall(pattern):
        if token == "(":
            groups.append(0)
        elif token == ")" and len(groups) > 1:
            last_size = groups.pop() + 1
            groups[-1] += last_size
        elif token[0] == "{" and len(token) > 1:
            times = max(int(number) for number in token[1:-1].split(",") if number)
            groups[-1] += last_size * (times - 1)
            last_size *= times
        else:
            last_size = 1
            groups[-1] += last_size
    return states if (states := sum(groups)) > _SMALL_AUTOMATON_STATES else 1


RunCondition: TypeAlias = Callable[[Run], bool]
ValueEquality: TypeAlias = Callable[[Any, Any], bool]
"""Whether a plain value in a condition equals the value of the run."""


def build_run_conditions(golden: Golden) -> Iterator[RunCondition]:
    """Yields the conditions that a run must meet besides the same input; the cheapest first."""
    yield _is_not_component if golden.component is None else _is_component(golden.component)
    if golden.when is not None:
        yield from _when_conditions(golden.when)


def _is_not_component(run: Run) -> bool:
    return run.unit != "component"


def _is_component(name: str) -> RunCondition:
    folded = fold_name(name)
    return lambda run: run.unit == "component" and run.component is not None and fold_name(run.component) == folded


def _when_conditions(when: When) -> Iterator[RunCondition]:
    for glob, get_name in ((when.agent, _agent), (when.service, _service), (when.span, _span)):
        if glob is not None:
            yield _name_condition(glob, get_name)
    for key, expected in when.attributes.items():
        yield _attribute_condition(key, expected)
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
    match = re.compile(translate(folded)).match
    return lambda run: (name := get_name(run)) is not None and match(name.casefold()) is not None


def is_glob(glob: str) -> bool:
    """Whether the text has glob characters, so that it may match several names."""
    return _GLOB_CHARACTERS.search(glob) is not None


_GLOB_CHARACTERS = re.compile(r"[*?\[]")


def _attribute_condition(key: str, expected: Any) -> RunCondition:
    return lambda run: key in run.attributes and matches_condition(expected, run.attributes[key], is_same_value)


def _input_condition(expected: Any) -> RunCondition:
    return lambda run: run.input is not None and matches_condition(expected, run.input, _is_same_text)


def _is_same_text(first: Any, second: Any) -> bool:
    return isinstance(first, str) and isinstance(second, str) and normalize_text(first) == normalize_text(second)


# --- matchers in conditions -------------------------------------------------------------------------------------------


def matches_condition(expected: Any, actual: Any, is_equal: ValueEquality) -> bool:
    """Whether a value meets a condition, which is a plain value or one of `TEXT_MATCHER_TYPES`.

    The matchers work as in arguments, except that a regular expression may match a part of the text: a condition is
    about what a text contains.
    """
    matches = _TEXT_MATCHERS.get(type(expected))
    return is_equal(expected, actual) if matches is None else matches(expected, actual, is_equal)


def _matches_contains(expected: Contains, actual: Any, is_equal: ValueEquality) -> bool:
    if isinstance(actual, str):
        return isinstance(expected.part, str) and expected.part in actual
    parts = expected.part if isinstance(expected.part, list | tuple) else [expected.part]
    return isinstance(actual, list | tuple) and all(any(is_equal(part, item) for item in actual) for part in parts)


def _matches_folded(expected: Folded, actual: Any, is_equal: ValueEquality) -> bool:
    return _is_same_text(expected.text, actual)


def _matches_one_of(expected: OneOf, actual: Any, is_equal: ValueEquality) -> bool:
    return any(matches_condition(option, actual, is_equal) for option in expected.options)


def _matches_regex(expected: Regex, actual: Any, is_equal: ValueEquality) -> bool:
    return isinstance(actual, str) and compile_regex(expected.pattern).is_found_in(actual)


def _matches_similar(expected: Similar, actual: Any, is_equal: ValueEquality) -> bool:
    if not isinstance(actual, str) or max(len(actual), len(expected.text)) > MAX_SIMILAR_LENGTH:
        return False
    from rapidfuzz.fuzz import ratio  # importing it takes longer than importing the core of goldspan

    return bool(ratio(expected.text, actual) >= 100 * expected.threshold - _ROUNDING_TOLERANCE)


MAX_SIMILAR_LENGTH = 10_000
"""The greatest length, in characters, of a text that `similar` compares; the time is quadratic in the length."""
_ROUNDING_TOLERANCE = 1e-7

_TEXT_MATCHERS: Mapping[type[Matcher], Callable[[Any, Any, ValueEquality], bool]] = {
    Anything: lambda expected, actual, is_equal: True,
    Contains: _matches_contains,
    Equal: lambda expected, actual, is_equal: is_same_value(expected.value, actual),
    Folded: _matches_folded,
    OneOf: _matches_one_of,
    Regex: _matches_regex,
    Similar: _matches_similar,
}
TEXT_MATCHER_TYPES = tuple(_TEXT_MATCHERS)
"""The matchers that conditions accept; the others are for arguments and results."""
