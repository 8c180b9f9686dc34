"""Whether a run is one that a golden is for: its unit, its component, and everything that `when` says."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from fnmatch import translate
from typing import Any, TypeAlias

from goldspan.extraction.names import fold
from goldspan.goldens.patterns import pattern
from goldspan.goldens.texts import normalized
from goldspan.model import Golden, Run, When, same_value
from goldspan.model.matchers import Anything, Contains, Equal, Folded, Matcher, OneOf, Regex, Similar

Condition: TypeAlias = Callable[[Run], bool]
Same: TypeAlias = Callable[[Any, Any], bool]
"""Whether a plain value in a condition is the one that the run has."""


def conditions(golden: Golden) -> Iterator[Condition]:
    """What must hold of a run that this golden is for, beside its input; the cheapest first."""
    yield _is_no_component if golden.component is None else _is_component(golden.component)
    if golden.when is not None:
        yield from _said(golden.when)


def _is_no_component(run: Run) -> bool:
    return run.unit != "component"


def _is_component(name: str) -> Condition:
    folded = fold(name)
    return lambda run: run.unit == "component" and run.component is not None and fold(run.component) == folded


def _said(when: When) -> Iterator[Condition]:
    for glob, told in ((when.agent, _agent), (when.service, _service), (when.span, _span)):
        if glob is not None:
            yield _named(glob, told)
    for key, wanted in when.attributes.items():
        yield _having(key, wanted)
    if when.input is not None:
        yield _asked(when.input)


def _agent(run: Run) -> str | None:
    return run.agent


def _service(run: Run) -> str | None:
    return run.service


def _span(run: Run) -> str | None:
    return run.span_name


def _named(glob: str, told: Callable[[Run], str | None]) -> Condition:
    folded = glob.casefold()
    if not is_wild(glob):
        return lambda run: (name := told(run)) is not None and name.casefold() == folded
    fits = re.compile(translate(folded)).match
    return lambda run: (name := told(run)) is not None and fits(name.casefold()) is not None


def is_wild(glob: str) -> bool:
    """Whether a pattern may fit several names."""
    return _WILD.search(glob) is not None


_WILD = re.compile(r"[*?\[]")


def _having(key: str, wanted: Any) -> Condition:
    return lambda run: key in run.attributes and accepts(wanted, run.attributes[key], same_value)


def _asked(wanted: Any) -> Condition:
    return lambda run: run.input is not None and accepts(wanted, run.input, _same_text)


def _same_text(one: Any, other: Any) -> bool:
    return isinstance(one, str) and isinstance(other, str) and normalized(one) == normalized(other)


# --- matchers in conditions -------------------------------------------------------------------------------------------


def accepts(wanted: Any, given: Any, same: Same) -> bool:
    """Whether a value is what a condition asks for, which may be one of the `MATCHERS_OF_TEXTS`.

    They mean what they mean in arguments, but for one: a regular expression is searched for, because a condition is
    about what is in a text and not about the whole of it.
    """
    judged = _JUDGED.get(type(wanted))
    return same(wanted, given) if judged is None else judged(wanted, given, same)


def _contains(wanted: Contains, given: Any, same: Same) -> bool:
    if isinstance(given, str):
        return isinstance(wanted.part, str) and wanted.part in given
    parts = wanted.part if isinstance(wanted.part, list | tuple) else [wanted.part]
    return isinstance(given, list | tuple) and all(any(same(part, item) for item in given) for part in parts)


def _folded(wanted: Folded, given: Any, same: Same) -> bool:
    return _same_text(wanted.text, given)


def _one_of(wanted: OneOf, given: Any, same: Same) -> bool:
    return any(accepts(option, given, same) for option in wanted.options)


def _regex(wanted: Regex, given: Any, same: Same) -> bool:
    return isinstance(given, str) and pattern(wanted.pattern).is_in(given)


def _similar(wanted: Similar, given: Any, same: Same) -> bool:
    if not isinstance(given, str) or max(len(given), len(wanted.text)) > LONGEST_SIMILAR:
        return False
    from rapidfuzz.fuzz import ratio  # takes longer to load than all of goldspan's core

    return bool(ratio(wanted.text, given) >= 100 * wanted.threshold - _ROUNDING)


LONGEST_SIMILAR = 10_000
"""Characters of a text that is measured against a similar one, which takes time in proportion to their square."""
_ROUNDING = 1e-7

_JUDGED: Mapping[type[Matcher], Callable[[Any, Any, Same], bool]] = {
    Anything: lambda wanted, given, same: True,
    Contains: _contains,
    Equal: lambda wanted, given, same: same_value(wanted.value, given),
    Folded: _folded,
    OneOf: _one_of,
    Regex: _regex,
    Similar: _similar,
}
MATCHERS_OF_TEXTS = tuple(_JUDGED)
"""The matchers that a condition may be; the others are about arguments and results."""
