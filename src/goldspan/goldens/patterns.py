"""Regular expressions of goldens, matched in bounded time whatever the pattern and the text are."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache


class Pattern:
    """A regular expression in the syntax of Rust's `regex`, to match whole texts or to be searched for in them.

    That engine never backtracks, but at worst it follows as many states at once as the pattern has when its repetitions
    are written out: 60,000 for `(?:a{0,300}){200}`, at 50 ns for each of them and each character. So heavy a pattern is
    matched against short texts only.
    """

    __slots__ = ("_fits", "_is_in", "_weight", "longest")

    def __init__(self, pattern: str) -> None:
        """`ValueError` says what is wrong with the pattern, in one line."""
        self._is_in = _compiled(pattern)  # by itself too: in parentheses `a)|(b` would be none, and another pattern
        self._fits = _compiled(rf"\A(?:{pattern})\z")
        self._weight = _weight(pattern)
        self.longest = min(_LONGEST, _MOST_WORK // self._weight)
        """The longest text that is looked at, in characters."""

    def matches(self, text: str) -> bool:
        """Whether the pattern matches the text as a whole; never, where the text is longer than `longest`."""
        return len(text) <= self.longest and self._fits(text)

    def is_in(self, text: str) -> bool:
        """Whether the pattern matches some part of the text; never, where the text is longer than `longest`."""
        return len(text) <= self.longest and self._is_in(text)

    def work(self, text: str) -> int:
        """The microseconds that this takes at worst."""
        return len(text) * self._weight // 20


_LONGEST = 100_000
_MOST_WORK = 2_000_000
"""States times characters: a tenth of a second at worst."""
_LIGHT = 32
"""So few states make an automaton that is soon complete, and then takes one step a character."""


@lru_cache(maxsize=1024)
def pattern(text: str) -> Pattern:
    """The pattern, compiled once."""
    return Pattern(text)


def _compiled(pattern: str) -> Callable[[str], bool]:
    from pydantic_core import SchemaError, SchemaValidator, core_schema

    try:
        return SchemaValidator(core_schema.str_schema(pattern=pattern, regex_engine="rust-regex")).isinstance_python
    except SchemaError as error:
        raise ValueError(_complaint(str(error))) from None


def _complaint(message: str) -> str:
    """What the engine says is wrong: the last line that says something."""
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    return lines[-1].removeprefix("SchemaError:").removeprefix("error:").strip() if lines else "it is no pattern"


_TOKENS = re.compile(r"\\.|\[(?:\\.|[^\]\\])*\]|\{\d+(?:,\d*)?\}|[()]|[^()]", re.DOTALL)


def _weight(pattern: str) -> int:
    """About how many states the engine follows at once; they are counted with the repetitions written out."""
    groups, last = [0], 1
    for token in _TOKENS.findall(pattern):
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
    return states if (states := sum(groups)) > _LIGHT else 1
