"""How peers compare names: what of a name is compared, and by what."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fnmatch import translate
from functools import lru_cache
from typing import Any

from goldspan.extraction.names import fold, undecorate


@dataclass(frozen=True, slots=True)
class NameRule:
    """One value of the axis `name`."""

    key: Callable[[str], str] | None = None
    """What of a name is compared; `None`: all of it."""
    alike: Callable[[Any, Any], bool] = operator.eq
    """Whether what is expected (first) and what is called (second) name the same tool."""


def canonical(name: str) -> str:
    """Without case, separators and the prefixes that hosts put before a name."""
    return fold(undecorate(name)[0])


def glob(pattern: str, name: str) -> bool:
    """Whether a name fits a pattern of `*` and `?`, case apart. The name of the tool's span is as good as its own."""
    matches = _compiled(pattern).match
    return matches(name) is not None or matches(f"execute_tool {name}") is not None


@lru_cache(maxsize=4096)
def _compiled(pattern: str) -> re.Pattern[str]:
    # `translate` writes expressions that never go back over many stars; it would read brackets as a set of letters.
    return re.compile(translate(pattern.replace("[", "[[]")), re.IGNORECASE)


NAMES: Mapping[str, NameRule] = {
    "equal": NameRule(),
    "strip": NameRule(str.strip),
    "canonical": NameRule(canonical),
    "glob": NameRule(str.strip, alike=glob),
}
"""The axis `name`."""
