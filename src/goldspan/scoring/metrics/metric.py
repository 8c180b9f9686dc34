"""What a metric is: a function of a comparison, and what is needed to make a score of its number."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from goldspan.goldens.spelling import join_words
from goldspan.model import AnyOf, Comparison, ComparisonRow, ExpectedTool, Golden, Parallel, ToolCall

THRESHOLD_TOLERANCE = 1e-9
"""A threshold is met from this little below it, so that 0.1 + 0.2 meets 0.3."""

_MAX_SHOWN = 5
_MAX_NAME_CHARACTERS = 60

Measure: TypeAlias = Callable[[Comparison], "float | None"]
"""Reads a number, 0 to 1 where 1 is good, off a comparison; `None` where it cannot be known."""


class MetricEvidence(NamedTuple):
    """Some of what a metric looked at: `expected but not called: book x2`."""

    label: str
    """What they have in common."""
    items: Sequence[ComparisonRow | ToolCall | str]
    """Rows and calls are told by the name of their tool, others as they are; no value of an argument among them."""
    is_fault: bool = False
    """Whether they keep the number below 1."""

    @property
    def names(self) -> list[str]:
        """What each is told by."""
        return [_item_name(item) for item in self.items]

    def __str__(self) -> str:
        return f"{self.label}: {summarize_names(self.names)}"


Explainer: TypeAlias = Callable[[Comparison], Iterable[MetricEvidence]]
"""Tells what a number is made of, part by part."""


Threshold: TypeAlias = "float | Callable[[Golden], float | None] | None"
"""What a score must reach, or what says it of a golden; `None`: nothing."""


@dataclass(frozen=True, slots=True)
class Metric:
    """A measure with what is needed to make a score of it."""

    name: str
    measure: Measure
    threshold: Threshold = None
    """Where given, the score is a gate: below this, or below what this says of the golden, the evaluation fails."""
    needs_golden: bool = True
    """Whether it says nothing about a run for which there is no golden."""
    why_missing: Callable[[Comparison], str] = lambda seen: "nothing to measure"
    """Why there is no value, in half a sentence."""
    explain: Explainer | None = None
    """What the number is made of: the reasons and the steps of scores are told from it."""
    needs_expectations: bool = False
    """Whether it says nothing beside a policy, which expects no calls in particular."""
    has_unknowns: Callable[[Comparison], bool] = lambda seen: True
    """Where there is no value: whether something is not known, and not merely absent, as calls are where none was made.
    A threshold of a metric that lacks something is neither reached nor missed."""
    bounds: Callable[[Comparison], tuple[float, float]] | None = None
    """The least and the greatest that the value could be if all were known, where it is made of what is known alone. A
    threshold between them is neither reached nor missed."""

    def is_undecided(self, seen: Comparison, threshold: float) -> bool:
        """Whether what is not known decides if a threshold is reached."""
        if self.bounds is None:
            return False
        least, greatest = self.bounds(seen)
        return least < threshold - THRESHOLD_TOLERANCE <= greatest


MetricLike: TypeAlias = "str | Measure | tuple[str, Measure] | Metric"
"""A metric by its name, a function of one's own, one with a name beside it, or a whole `Metric`."""


def alternative_calls(expected: ExpectedTool | AnyOf) -> Iterator[ExpectedTool]:
    """The calls that would do, each of them."""
    waiting: list[ExpectedTool | AnyOf | Parallel] = [expected]
    while waiting:
        item = waiting.pop()
        if isinstance(item, ExpectedTool):
            yield item
        elif isinstance(item, Parallel):
            waiting.extend(item.items)
        else:
            waiting.extend(inner for option in item.options for inner in option)


def _item_name(item: ComparisonRow | ToolCall | str) -> str:
    if isinstance(item, ComparisonRow):
        tool = item.expected or item.called
        return tool.name if tool else ""
    return item if isinstance(item, str) else item.name


def summarize_names(words: Sequence[str]) -> str:
    """`search x2 and book`: never more than a few, and none of them long."""
    if not words:
        return "none"
    if len(words) == 1:
        return _shorten(words[0])
    told = [_shorten(word) + (f" x{count}" if count > 1 else "") for word, count in Counter(words).items()]
    return (
        join_words(told)
        if len(told) <= _MAX_SHOWN
        else f"{', '.join(told[:_MAX_SHOWN])} and {len(told) - _MAX_SHOWN} more"
    )


def _shorten(word: str) -> str:
    return word if len(word) <= _MAX_NAME_CHARACTERS else f"{word[: _MAX_NAME_CHARACTERS - 3]}..."
