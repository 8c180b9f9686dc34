"""Expands a golden to slots, each for one call, in stages that follow one another.

    tools:                                                slots                      stage
      - search_hotels                                     search_hotels              0
      - parallel: [log_event, notify]                     log_event, notify          1, 1
      - any_of: [send_email, send_sms]                    send_email or send_sms     2
      - {name: close_ticket, times: {min: 1, max: 2}}     close_ticket               3
                                                          close_ticket, optional     4

Alternatives that are single calls share a slot. Alternatives that are trajectories make several plans.
"""

from __future__ import annotations

import re
from collections.abc import Container, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import translate
from functools import cached_property, lru_cache
from itertools import chain, islice, product, repeat
from math import prod
from typing import Any, TypeAlias

from goldspan.content.tools import name_words
from goldspan.errors import GoldspanError
from goldspan.goldens.spelling import short_repr
from goldspan.goldens.tool_names import ToolNameMatcher, tool_name_matcher
from goldspan.model import ABSENT, NO_VOCABULARY, ONCE, AnyOf, ExpectedItem, ExpectedTool, Golden, Parallel, ToolCall
from goldspan.model.name_folding import fold_name
from goldspan.scoring.arguments.equality import content_key, expectation_key, is_plain_expectation

_WILDCARD = re.compile(r"[*?\[]")

DEFAULT_NAMING = ToolNameMatcher(NO_VOCABULARY)
"""Matches tool names without a vocabulary."""


MAX_NAME_DISTANCE = 3


def name_distance(expected: ExpectedTool, call: ToolCall, naming: ToolNameMatcher = DEFAULT_NAMING) -> int:
    """Returns how much the name of a call differs from the expected name of the same tool.

    0: equal; 1: equal when folded, like `WebSearch` and `web_search`; 2: equal without decoration or server; 3: an
    alias.
    """
    if has_same_spelling(expected, call):
        return 0
    if fold_name(expected.name) in (fold_name(call.name), fold_name(call.raw_name)):
        return 1
    return 2 if naming.matches_without_aliases(expected, call) else MAX_NAME_DISTANCE


def has_same_spelling(expected: ExpectedTool, call: ToolCall) -> bool:
    """Whether the name of a call equals the expected name."""
    return expected.name in (call.name, call.raw_name)


def is_call_of(tool: ExpectedTool, call: ToolCall, naming: ToolNameMatcher = DEFAULT_NAMING) -> bool:
    """Whether a call is a call of that tool."""
    return not naming.expected_keys(tool).isdisjoint(naming.called_keys(call))


def matches_agent(tool: ExpectedTool, call: ToolCall) -> bool:
    """Whether the expected agent made a call, or either agent is not known."""
    return tool.agent is None or call.agent is None or fold_name(tool.agent) == fold_name(call.agent)


def is_forbidden(call: ToolCall, patterns: Iterable[str], naming: ToolNameMatcher = DEFAULT_NAMING) -> bool:
    """Whether the name of the called tool matches one of these globs. Case and separators are ignored."""
    return any(_matches_pattern(pattern, call.name, call.raw_name, call.server, naming) for pattern in patterns)


@lru_cache(maxsize=16384)
def _matches_pattern(pattern: str, name: str, raw_name: str, server: str | None, naming: ToolNameMatcher) -> bool:
    call = ToolCall(name, raw_name, server)
    if not _WILDCARD.search(pattern):
        return is_call_of(ExpectedTool(pattern), call, naming)
    # Compare word by word and not folded: `delete_*` matches deleteUser, but not deleted_items.
    by_letter, by_word = _compile_glob(pattern.casefold()).match, _compile_glob(_word_form(pattern)).match
    return any(by_letter(form.casefold()) or by_word(_word_form(form)) for form in naming.name_variants(call))


@lru_cache(maxsize=1024)
def _compile_glob(pattern: str) -> re.Pattern[str]:
    return re.compile(translate(pattern))


def _word_form(name: str) -> str:
    return "_".join(name_words(name))


MAX_SLOTS = 10_000
"""The number of calls that a golden can expect."""

MAX_TRAJECTORIES = 1_000
"""The number of trajectories of one item that are considered; nested alternatives can have more."""


@dataclass(frozen=True, slots=True)
class Slot:
    """One expected call."""

    tools: tuple[ExpectedTool, ...]
    """The alternative calls that match the slot."""
    display: ExpectedTool | AnyOf
    """The expectation that is shown if no call matches."""
    required: bool = True
    max_calls: int | None = 1
    """The number of calls that can match (`None`: any), until `expand_open_slots` creates a slot for each."""
    required_before: int = 0
    """The number of required slots of the same item before this optional one."""


Stage: TypeAlias = tuple[Slot, ...]
"""Slots whose order does not matter."""

Trajectory: TypeAlias = tuple[Stage, ...]
"""Stages that follow one another."""


SlotPairs: TypeAlias = "tuple[dict[int, int], Container[int]]"
"""Pairs of slot and call, by position, and the slots among them that are in order."""


ContentKey: TypeAlias = tuple[Hashable, Hashable]
"""The content keys of arguments and of a result."""


@dataclass(frozen=True, slots=True)
class StatedContent:
    """The content of slots that all state the same parts: arguments, a result, or both."""

    arguments: bool
    result: bool
    slots: Mapping[ContentKey, Sequence[int]]
    """The slots by their content."""

    def content_key(self, arguments: Any, result: Any) -> ContentKey:
        """Returns the keys of the stated parts."""
        return content_key(arguments) if self.arguments else None, content_key(result) if self.result else None

    def values(self, arguments: Any, result: Any) -> tuple[Any, Any]:
        """Returns the values of the stated parts."""
        return arguments if self.arguments else None, result if self.result else None


class SlotPlan:
    """The slots of a golden with their stages, and the slots that each call can match."""

    names_agents = False
    """Whether it matters which agent made a call."""

    def __init__(self, stages: Iterable[Stage], names: ToolNameMatcher) -> None:
        placed = [(slot, number) for number, stage in enumerate(stages) for slot in stage]
        self.slots: Sequence[Slot] = [slot for slot, _ in placed]
        self.stages: Sequence[int] = [number for _, number in placed]
        self.has_open_slots = any(slot.max_calls != 1 or slot.required_before for slot in self.slots)
        tools = [(at, tool) for at, slot in enumerate(self.slots) for tool in slot.tools]
        self.states_arguments = any(tool.arguments is not None for _, tool in tools)
        self.states_results = any(tool.result is not ABSENT for _, tool in tools)
        self.compares_values = self.states_arguments or self.states_results
        self.requires_all = all(slot.required for slot in self.slots)
        self._stating = {at for at, tool in tools if tool.arguments is not None or tool.result is not ABSENT}
        self._names = names
        self._slots_by_key: dict[str, list[int]] = {}
        for at, slot in enumerate(self.slots):
            for key in frozenset[str]().union(*map(names.expected_keys, slot.tools)):
                self._slots_by_key.setdefault(key, []).append(at)
        self._cached_candidate_slots = lru_cache(maxsize=1024)(self._find_candidate_slots)
        self._cached_is_single_tool = lru_cache(maxsize=1024)(self._find_is_single_tool)
        self.stated_content = lru_cache(maxsize=1024)(self._find_stated_content)
        """The content of slots, by position; `None` if the slots state different parts, or have alternatives."""

    def candidate_slots(self, call: ToolCall) -> tuple[int, ...]:
        """Returns the positions of the slots that a call can match, ascending."""
        return self._cached_candidate_slots(call.name, call.raw_name, call.server)

    def is_single_tool(self, call: ToolCall) -> bool:
        """Whether all slots that a call can match expect one tool, with the same spelling as the call."""
        return self._cached_is_single_tool(call.name, call.raw_name, call.server)

    def accepts_any_call(self, call: ToolCall) -> bool:
        """Whether every other call of that name matches the same slots equally well."""
        return self._cached_is_single_tool(call.name, call.raw_name, call.server) and self._stating.isdisjoint(
            self.candidate_slots(call)
        )

    @cached_property
    def kinds(self) -> Sequence[int]:
        """A number for each slot, equal for slots that the same calls match equally well."""
        return _number_keys(
            (slot.required, *[(expectation_key(tool), tool.agent) for tool in slot.tools]) for slot in self.slots
        )

    @cached_property
    def rough_kinds(self) -> Sequence[int]:
        """A number for each slot, equal for slots that the same calls can match, whatever their content."""
        return _number_keys(
            (slot.required, *[(tool.name, tool.server, tool.agent) for tool in slot.tools]) for slot in self.slots
        )

    @cached_property
    def plain_arguments(self) -> Sequence[Hashable]:
        """The content key of each slot's arguments, if they are plain data and the slot states nothing else."""
        stated = [slot.tools[0].arguments if _states_only_arguments(slot) else None for slot in self.slots]
        return [key if isinstance(key := content_key(arguments), bytes | str) else None for arguments in stated]

    @cached_property
    def is_plain(self) -> Sequence[bool]:
        """Whether each slot states only plain data, which is fast to compare."""
        return [all(map(is_plain_expectation, slot.tools)) for slot in self.slots]

    def expand_open_slots(self, calls: Iterable[ToolCall]) -> SlotPlan:
        """Returns the plan with an optional slot for each call that can match a slot with an open number of calls."""
        if not self.has_open_slots:
            return self
        candidate_counts = [0] * len(self.slots)
        for call in calls:
            for at in self.candidate_slots(call):
                candidate_counts[at] += 1
        stages: dict[int, list[Stage]] = {}
        for slot, number, candidates in zip(self.slots, self.stages, candidate_counts, strict=True):
            needed = max(candidates - slot.required_before, 0 if slot.required_before else 1)
            amount = needed if slot.max_calls is None else min(needed, slot.max_calls)
            stages.setdefault(number, []).append((replace(slot, max_calls=1, required_before=0),) * amount)
        return type(self)(chain.from_iterable(map(_merge_repeated_stages, stages.values())), self._names)

    def _find_candidate_slots(self, name: str, raw_name: str, server: str | None) -> tuple[int, ...]:
        keys = self._names.called_keys(ToolCall(name, raw_name, server))
        found = {at for key in keys for at in self._slots_by_key.get(key, ())}
        return tuple(sorted(found))

    def _find_is_single_tool(self, name: str, raw_name: str, server: str | None) -> bool:
        return self._is_same_tool(self._cached_candidate_slots(name, raw_name, server), name, raw_name)

    def _is_same_tool(self, slots: tuple[int, ...], name: str, raw_name: str) -> bool:
        tools = [tool for at in slots for tool in self.slots[at].tools]
        return (
            len(tools) == len(slots)
            and len({self.rough_kinds[at] for at in slots}) == 1
            and all(tool.name in (name, raw_name) for tool in tools)
        )

    def _find_stated_content(self, slots: tuple[int, ...]) -> StatedContent | None:
        tools = [tool for at in slots for tool in self.slots[at].tools]
        parts = {(tool.arguments is not None, tool.result is not ABSENT) for tool in tools}
        if len(tools) > len(slots) or len(parts) > 1:
            return None
        found: dict[ContentKey, list[int]] = {}
        stated = StatedContent(*parts.pop(), found)
        for at, tool in zip(slots, tools, strict=True):
            found.setdefault(stated.content_key(tool.arguments, tool.result), []).append(at)
        return stated


class AgentSlotPlan(SlotPlan):
    """A plan in which some slots require the call of a certain agent."""

    names_agents = True

    def __init__(self, stages: Iterable[Stage], names: ToolNameMatcher) -> None:
        super().__init__(stages, names)
        self._cached_agent_slots = lru_cache(maxsize=1024)(self._find_agent_slots)
        self._cached_is_single_agent_tool = lru_cache(maxsize=1024)(self._find_is_single_agent_tool)

    def candidate_slots(self, call: ToolCall) -> tuple[int, ...]:
        """The slots that a call may answer, by position, ascending."""
        return self._cached_agent_slots(call.name, call.raw_name, call.server, call.agent)

    def is_single_tool(self, call: ToolCall) -> bool:
        """Whether all slots that a call can match expect one tool and agent, with the same spelling as the call."""
        return self._cached_is_single_agent_tool(call.name, call.raw_name, call.server, call.agent)

    def accepts_any_call(self, call: ToolCall) -> bool:
        """Whether every other call of that name and agent matches the same slots equally well."""
        return self.is_single_tool(call) and self._stating.isdisjoint(self.candidate_slots(call))

    def _find_agent_slots(self, name: str, raw_name: str, server: str | None, agent: str | None) -> tuple[int, ...]:
        call = ToolCall(name, raw_name, server, agent=agent)
        return tuple(
            [
                at
                for at in self._cached_candidate_slots(name, raw_name, server)
                if self._is_candidate(call, self.slots[at])
            ]
        )

    def _find_is_single_agent_tool(self, name: str, raw_name: str, server: str | None, agent: str | None) -> bool:
        return self._is_same_tool(self._cached_agent_slots(name, raw_name, server, agent), name, raw_name)

    def _is_candidate(self, call: ToolCall, slot: Slot) -> bool:
        return any(matches_agent(tool, call) and is_call_of(tool, call, self._names) for tool in slot.tools)


def _make_slot_plan(stages: Iterable[Stage], names: ToolNameMatcher) -> SlotPlan:
    known = list(stages)
    agents = any(tool.agent is not None for stage in known for slot in stage for tool in slot.tools)
    return AgentSlotPlan(known, names) if agents else SlotPlan(known, names)


def _states_only_arguments(slot: Slot) -> bool:
    return len(slot.tools) == 1 and slot.tools[0].result is ABSENT


def _number_keys(keys: Iterable[Hashable]) -> Sequence[int]:
    numbers: dict[Hashable, int] = {}
    return [numbers.setdefault(key, len(numbers)) for key in keys]


def _merge_repeated_stages(slots: Sequence[Stage]) -> Iterator[Stage]:
    """Yield the repeated slots of one stage: as successive stages if it has no others, else in one stage."""
    if len(slots) == 1:
        return ((slot,) for slot in slots[0])
    return iter([tuple(chain.from_iterable(slots))])


class GoldenPlans:
    """The trajectories of each item of a golden, and the plans that combine them."""

    def __init__(self, golden: Golden) -> None:
        if golden.order == "exact" and golden.extra == "allow":
            raise GoldspanError(
                f"golden {short_repr(golden.id)}: order 'exact' allows no other calls, so extra cannot be 'allow'."
            )
        self.golden = golden
        self.names = tool_name_matcher(golden.vocabulary)
        found = [list(islice(_item_trajectories(item), MAX_TRAJECTORIES + 1)) for item in golden.tools]
        self.trajectories = [ways[:MAX_TRAJECTORIES] for ways in found]
        self.is_complete = all(len(ways) <= MAX_TRAJECTORIES for ways in found)
        """Whether `trajectories` contains all of them."""
        self.plan_count = prod(map(len, self.trajectories))
        """The number of plans."""
        if sum(max(sum(map(len, way)) for way in ways) for ways in self.trajectories) > MAX_SLOTS:
            raise GoldspanError(f"golden {short_repr(golden.id)} expects more than {MAX_SLOTS} calls.")
        self._keys = frozenset[str]().union(*map(self.names.expected_keys, golden.expected_calls))
        self.plan = lru_cache(maxsize=64)(self._make_plan)
        self.first_plan = self._make_plan((0,) * len(self.trajectories))

    def mentions_call(self, call: ToolCall) -> bool:
        """Whether the golden or its vocabulary names the called tool."""
        return not self._keys.isdisjoint(self.names.called_keys(call)) or self.names.is_declared(call)

    def _make_plan(self, choice: tuple[int, ...]) -> SlotPlan:
        """Returns the plan with the chosen trajectory of each item."""
        stages = (ways[at] for ways, at in zip(self.trajectories, choice, strict=True))
        return _make_slot_plan(chain.from_iterable(stages), self.names)


@lru_cache(maxsize=2048)
def golden_plans(golden: Golden) -> GoldenPlans:
    """Returns the plans of a golden. Raises `GoldspanError` if it cannot be expanded to plans."""
    try:
        return GoldenPlans(golden)
    except RecursionError:
        raise GoldspanError(f"golden {short_repr(golden.id)}: its alternatives are nested too deeply.") from None


# --- from items to slots ----------------------------------------------------------------------------------------------


def _item_trajectories(item: ExpectedItem) -> Iterator[Trajectory]:
    """Yield the trajectories of an item: one, unless it has alternatives with several calls."""
    if isinstance(item, Parallel):
        yield (tuple(chain.from_iterable(map(_parallel_slots, item.items))),)
    elif isinstance(item, AnyOf) and _single_calls(item) is None:
        if item.times.most != 1:
            raise GoldspanError(
                f"{short_repr(item.name)}: only alternatives of one call each can be expected repeatedly."
            )
        for option in item.options:
            for parts in product(*(list(islice(_item_trajectories(part), MAX_TRAJECTORIES + 1)) for part in option)):
                way = chain.from_iterable(parts)
                yield tuple(map(_as_optional, way)) if item.is_optional else tuple(way)
    else:
        yield tuple((slot,) for slot in _slots_of_item(item))


def _parallel_slots(item: ExpectedTool | AnyOf) -> Iterator[Slot]:
    if isinstance(item, AnyOf) and _single_calls(item) is None:
        raise GoldspanError(f"{short_repr(item.name)}: alternatives of several calls cannot stand in a parallel group.")
    return _slots_of_item(item)


def _slots_of_item(item: ExpectedTool | AnyOf) -> Iterator[Slot]:
    """Yield the slots of a call, or of alternatives of one call each: one for each time it is expected."""
    tools = (_single_calls(item) or ()) if isinstance(item, AnyOf) else (item,)
    least, most = item.times.least, item.times.most
    if least > MAX_SLOTS:
        raise GoldspanError(f"{short_repr(item.name)} is expected more than {MAX_SLOTS} times.")
    yield from repeat(Slot(tools, item), least)
    if most is None or most > least:
        yield Slot(tools, item, required=False, max_calls=None if most is None else most - least, required_before=least)


def _single_calls(item: AnyOf) -> tuple[ExpectedTool, ...] | None:
    """Returns the alternatives if each is a single call, made once; else `None`."""
    found: list[ExpectedTool] = []
    for option in item.options:
        only = option[0] if len(option) == 1 else None
        if isinstance(only, ExpectedTool) and only.times == ONCE:
            found.append(only)
        elif isinstance(only, AnyOf) and only.times == ONCE and (inner := _single_calls(only)) is not None:
            found.extend(inner)
        else:
            return None
    return tuple(found)


def _as_optional(stage: Stage) -> Stage:
    return tuple(replace(slot, required=False) for slot in stage)
