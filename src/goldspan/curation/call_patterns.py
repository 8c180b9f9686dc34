"""Finds the calls that good runs have in common, with their order and alternatives."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations
from typing import Any, TypeAlias

from goldspan.curation.argument_patterns import ArgumentPattern, CallSample, find_argument_patterns
from goldspan.goldens.golden_files.golden_writer import effective_calls
from goldspan.goldens.text_matching import normalize_text
from goldspan.goldens.tool_names import tool_name_matcher
from goldspan.model import NO_VOCABULARY, Run, ToolCall, Vocabulary
from goldspan.model.telemetry import content_digest

MIN_RUNS_OF_ORDER = 3
"""The least number of runs that show an order. With fewer runs an order is likely to be a coincidence."""
MIN_RUNS_OF_COUNT = 10
"""The least number of runs that show an exact number of calls, or that no other tool is called."""
_MAX_OPTIONS = 4
"""The greatest number of alternatives for one call."""
_MIN_RUNS_OF_OPTION = 2
"""The least number of runs that show an alternative."""
_MAX_OPTIONAL = 30
"""The greatest number of optional tools: those of most runs."""
_MAX_ALTERNATIVE_TOOLS = 24
"""Tools that are compared with each other to find alternatives: those of most runs."""


@dataclass(frozen=True)
class CallPattern:
    """Calls of one tool, one or more in a run, that play the same part in the runs of a group."""

    name: str
    calls: Mapping[int, tuple[ToolCall, ...]]
    """The calls in each run that has some, by the position of the run in the group."""
    least: int
    """The number of calls that at least the wanted share of the runs makes; 0: the call is optional."""
    arguments: Mapping[str, ArgumentPattern] = field(default_factory=dict)
    argument_names: frozenset[str] | None = None
    """The arguments of all calls; `None`: arguments were not captured."""

    @cached_property
    def counts(self) -> tuple[int, ...]:
        """The numbers of calls in the runs that have some, in ascending order."""
        return tuple(sorted(map(len, self.calls.values())))


@dataclass(frozen=True)
class AlternativePattern:
    """Calls that exclude one another, one of which almost every run makes."""

    options: tuple[tuple[CallPattern, ...], ...]

    @cached_property
    def calls(self) -> Mapping[int, tuple[ToolCall, ...]]:
        """The calls of the first pattern of the option that each run chose."""
        return {position: calls for option in self.options for position, calls in option[0].calls.items()}


Pattern: TypeAlias = "CallPattern | AlternativePattern"


@dataclass(frozen=True)
class GroupPatterns:
    """What the runs of a group have in common."""

    required: tuple[Pattern, ...]
    optional: tuple[CallPattern, ...]
    layers: tuple[tuple[int, ...], ...]
    """The order of the required patterns, by index. The patterns of a layer have no order among themselves."""
    only_these: bool = False
    """Whether enough runs make exactly the required calls, each once, in this order."""


class CallMiner:
    """Finds the call patterns of a group of runs.

    Args:
        runs: The runs, in a fixed order.
        min_support: The share of the runs in which a pattern must hold.
        with_arguments: Whether to look at arguments.
        is_relevant: Whether to look at a call.
        vocabulary: The declared tools, whose names and aliases are one tool.
    """

    def __init__(
        self,
        runs: Sequence[Run],
        min_support: float,
        *,
        with_arguments: bool = True,
        is_relevant: Callable[[ToolCall], bool] = lambda _: True,
        vocabulary: Vocabulary = NO_VOCABULARY,
    ) -> None:
        self._runs = runs
        self._min_support = min_support
        self._needed = min_support * len(runs) - 1e-9
        self._with_arguments = with_arguments
        self._names = tool_name_matcher(vocabulary)
        self._calls = [
            [call for call in effective_calls(run.tool_calls, vocabulary) if is_relevant(call)] for run in runs
        ]
        self._requests = [normalize_text(run.input) for run in runs]

    def find(self) -> GroupPatterns:
        """Return the patterns of the group."""
        sequences = [tuple(map(self._tool_key, calls)) for calls in self._calls]
        sequence, count = min(Counter(sequences).items(), key=lambda item: (-item[1], repr(item[0])))
        if sequence and count >= self._needed and len(self._runs) >= MIN_RUNS_OF_ORDER:
            return self._patterns_of_sequence([at for at, each in enumerate(sequences) if each == sequence])
        patterns = sorted(self._patterns_of_tools(), key=self._sort_key)
        required: list[Pattern] = [pattern for pattern in patterns if pattern.least]
        optional = [pattern for pattern in patterns if not pattern.least]
        for alternative in self._alternatives(optional):
            required.append(alternative)
            used = [pattern.calls for option in alternative.options for pattern in option]
            optional = [pattern for pattern in optional if not any(pattern.calls is calls for calls in used)]
        required.sort(key=self._sort_key)
        optional = sorted(sorted(optional, key=lambda each: -len(each.calls))[:_MAX_OPTIONAL], key=self._sort_key)
        layers = self._layers(required) if len(self._runs) >= MIN_RUNS_OF_ORDER else [[*range(len(required))]]
        return GroupPatterns(tuple(required), tuple(optional), tuple(map(tuple, layers)))

    def _tool_key(self, call: ToolCall) -> str:
        return repr(self._names.tool_identity(call))

    def _sort_key(self, pattern: Pattern) -> tuple[float, str]:
        """Return the mean position of the calls in their runs, and the name."""
        first = [self._calls[at].index(calls[0]) / len(self._calls[at]) for at, calls in sorted(pattern.calls.items())]
        name = pattern.name if isinstance(pattern, CallPattern) else pattern.options[0][0].name
        return round(sum(first) / len(first), 9), name

    # --- calls --------------------------------------------------------------------------------------------------------

    def _patterns_of_sequence(self, runs: Sequence[int]) -> GroupPatterns:
        """Return one pattern for each position of the sequence that these runs have."""
        length = len(self._calls[runs[0]])
        patterns = [self._pattern({at: (self._calls[at][place],) for at in runs}, 1) for place in range(length)]
        layers = tuple((index,) for index in range(length))
        return GroupPatterns(tuple(patterns), (), layers, only_these=len(runs) >= MIN_RUNS_OF_COUNT)

    def _patterns_of_tools(self) -> Iterator[CallPattern]:
        by_tool: dict[str, dict[int, list[ToolCall]]] = {}
        for at, calls in enumerate(self._calls):
            for call in calls:
                by_tool.setdefault(self._tool_key(call), {}).setdefault(at, []).append(call)
        for _, calls_by_run in sorted(by_tool.items()):
            yield from self._patterns_of_tool(calls_by_run)

    def _patterns_of_tool(self, calls: Mapping[int, Sequence[ToolCall]]) -> Iterator[CallPattern]:
        """Yield one pattern for each value of the arguments that enough runs call the tool with, and one for the rest.

        A tool that is called several times, such as a search for two cities, thus has a pattern for each call.
        """
        is_repeated = sum(len(made) > 1 for made in calls.values()) >= self._needed
        rest = {at: list(made) for at, made in calls.items()}
        if is_repeated and self._with_arguments:
            for key in self._frequent_keys(calls):
                chosen: dict[int, tuple[ToolCall, ...]] = {}
                for at, made in rest.items():
                    position = next((index for index, call in enumerate(made) if key(call)), None)
                    if position is not None:
                        chosen[at] = (made.pop(position),)
                if len(chosen) >= self._needed:
                    yield self._pattern(chosen, 1)
                else:
                    for at, picked in chosen.items():
                        rest[at] += picked
        remaining = {at: tuple(made) for at, made in rest.items() if made}
        if remaining:
            yield self._pattern(remaining, self._least(remaining))

    def _frequent_keys(self, calls: Mapping[int, Sequence[ToolCall]]) -> list[Callable[[ToolCall], bool]]:
        """Return conditions on the arguments that calls of enough runs meet: on all arguments, else on one of them."""
        names = sorted({str(name) for made in calls.values() for call in made for name in _arguments(call)})
        for name in (None, *names):
            runs_by_value: dict[str, set[int]] = {}
            for at, made in calls.items():
                for call in made:
                    if (value := _argument_digest(call, name)) is not None:
                        runs_by_value.setdefault(value, set()).add(at)
            frequent = sorted(value for value, runs in runs_by_value.items() if len(runs) >= self._needed)
            if len(frequent) > 1:
                return [_has_argument(name, value) for value in frequent]
        return []

    def _least(self, calls: Mapping[int, Sequence[ToolCall]]) -> int:
        """Return the greatest number of calls that enough runs make."""
        counts = sorted(map(len, calls.values()), reverse=True)
        least = 0
        while sum(count > least for count in counts) >= self._needed:
            least += 1
        return least

    def _pattern(self, calls: Mapping[int, tuple[ToolCall, ...]], least: int) -> CallPattern:
        made = [(at, call) for at in sorted(calls) for call in calls[at]]
        if (declared := self._names.declared_tool(made[0][1])) is not None:
            name = declared.name
        else:
            name = min(Counter(call.name for _, call in made).items(), key=lambda item: (-item[1], item[0]))[0]
        known = [(at, call) for at, call in made if isinstance(call.arguments, Mapping)]
        if not self._with_arguments or len(known) < self._min_support * len(made) or not known:
            return CallPattern(name, calls, least)
        observed = [CallSample(call.arguments, self._requests[at]) for at, call in known]
        names = frozenset(name for _, call in known for name in call.arguments)
        return CallPattern(name, calls, least, find_argument_patterns(observed, self._min_support), names)

    # --- alternatives -------------------------------------------------------------------------------------------------

    def _alternatives(self, optional: Sequence[CallPattern]) -> Iterator[AlternativePattern]:
        """Yield calls, or groups of calls that always come together, that exclude one another and cover enough runs."""
        by_runs: dict[frozenset[int], list[CallPattern]] = {}
        for pattern in optional:
            if len(pattern.calls) >= _MIN_RUNS_OF_OPTION:
                by_runs.setdefault(frozenset(pattern.calls), []).append(pattern)
        bundles = sorted(by_runs.items(), key=lambda item: (-len(item[0]), [each.name for each in item[1]]))
        bundles = bundles[:_MAX_ALTERNATIVE_TOOLS]
        for size in range(2, _MAX_OPTIONS + 1):
            found = self._exclusive_bundles(bundles, size)
            while found is not None:
                options = tuple(
                    tuple(self._required(pattern) for pattern in sorted(patterns, key=self._sort_key))
                    for _, patterns in found
                )
                yield AlternativePattern(options)
                bundles = [bundle for bundle in bundles if bundle not in found]
                found = self._exclusive_bundles(bundles, size)

    def _exclusive_bundles(self, bundles: Sequence[_Bundle], size: int) -> tuple[_Bundle, ...] | None:
        for chosen in combinations(bundles, size):
            runs = [each for each, _ in chosen]
            union = frozenset().union(*runs)
            if len(union) >= self._needed and len(union) == sum(map(len, runs)):
                return chosen
        return None

    def _required(self, pattern: CallPattern) -> CallPattern:
        return CallPattern(pattern.name, pattern.calls, pattern.counts[0], pattern.arguments, pattern.argument_names)

    # --- order --------------------------------------------------------------------------------------------------------

    def _layers(self, patterns: Sequence[Pattern]) -> list[list[int]]:
        """Return the patterns in layers: each pattern comes before those of later layers in enough runs.

        Pattern A may follow B unless A precedes B in enough runs. The strongly connected components of this relation
        are the layers, because two patterns of different components have one order only.
        """
        may_precede = [
            {other for other in range(len(patterns)) if other != one and not self._precedes(patterns[other], pattern)}
            for one, pattern in enumerate(patterns)
        ]
        reachable = [_reachable(start, may_precede) for start in range(len(patterns))]
        layers: list[list[int]] = []
        for index in sorted(range(len(patterns)), key=lambda index: (-len(reachable[index]), index)):
            if layers and index in reachable[layers[-1][0]] and layers[-1][0] in reachable[index]:
                layers[-1].append(index)
            else:
                layers.append([index])
        return layers

    def _precedes(self, first: Pattern, second: Pattern) -> bool:
        """Whether the first call of one pattern comes before the first call of the other in enough runs with both."""
        both = sorted(first.calls.keys() & second.calls.keys())
        if not both:
            return False
        ordered = sum(self._comes_before(at, first.calls[at][0], second.calls[at][0]) for at in both)
        return ordered >= self._min_support * len(both) - 1e-9

    def _comes_before(self, at: int, first: ToolCall, second: ToolCall) -> bool:
        """Whether a call comes before another one of the same run, and they do not overlap in time."""
        calls = self._runs[at].tool_calls
        one = next(index for index, call in enumerate(calls) if call is first)
        other = next(index for index, call in enumerate(calls) if call is second)
        return one < other and other not in first.concurrent_with


_Bundle: TypeAlias = "tuple[frozenset[int], list[CallPattern]]"


def _reachable(start: int, successors: Sequence[set[int]]) -> set[int]:
    found, pending = {start}, [start]
    while pending:
        new = successors[pending.pop()] - found
        found |= new
        pending += new
    return found


def _arguments(call: ToolCall) -> Mapping[Any, Any]:
    return call.arguments if isinstance(call.arguments, Mapping) else {}


def _argument_digest(call: ToolCall, name: Hashable | None) -> str | None:
    arguments = _arguments(call)
    if not arguments or (name is not None and name not in arguments):
        return None
    try:
        return content_digest([arguments if name is None else arguments[name]])
    except (TypeError, ValueError, RecursionError):
        return None


def _has_argument(name: Hashable | None, value: str) -> Callable[[ToolCall], bool]:
    return lambda call: _argument_digest(call, name) == value
