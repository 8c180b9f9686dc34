"""What a golden asks for, laid out once: slots that one call each may answer, in stages that follow one another.

    tools:                                                slots                      stage
      - search_hotels                                     search_hotels              0
      - parallel: [log_event, notify]                     log_event, notify          1, 1
      - any_of: [send_email, send_sms]                    send_email or send_sms     2
      - {name: close_ticket, times: {min: 1, max: 2}}     close_ticket               3
                                                          close_ticket, optional     4

Alternatives that are single calls share a slot. Alternatives that are whole trajectories make several plans.
"""

from __future__ import annotations

from collections.abc import Container, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import chain, islice, product, repeat
from math import prod
from typing import Any, TypeAlias

from goldspan.errors import GoldspanError
from goldspan.goldens.naming import Naming, naming
from goldspan.goldens.words import shown
from goldspan.model import ABSENT, ONCE, AnyOf, ExpectedTool, Golden, Item, Parallel, ToolCall
from goldspan.scoring.agreement.sameness import content, is_plain, tool_content
from goldspan.scoring.identity import is_by, is_called

MOST_SLOTS = 10_000
"""So many calls a golden may expect."""

MOST_WAYS = 1_000
"""So many ways to meet one item of a golden are known; alternatives inside alternatives can make more."""


@dataclass(frozen=True, slots=True)
class Slot:
    """One call that is expected."""

    tools: tuple[ExpectedTool, ...]
    """Any of these will do."""
    shown: ExpectedTool | AnyOf
    """What to call it where nobody answered."""
    required: bool = True
    most: int | None = 1
    """How many calls may answer it (`None`: any number), until `Plan.opened` makes a slot for each."""
    beyond: int = 0
    """So many calls of the same are required before this optional one."""


Stage: TypeAlias = tuple[Slot, ...]
"""Slots that may be answered in any order among themselves."""

Trajectory: TypeAlias = tuple[Stage, ...]
"""Stages that follow one another."""


Chosen: TypeAlias = "tuple[dict[int, int], Container[int]]"
"""Pairs of slot and call, by position, and the slots among them that are answered in order."""


Content: TypeAlias = tuple[Hashable, Hashable]
"""What arguments and a result hold."""


@dataclass(frozen=True, slots=True)
class Stated:
    """What some slots state, all of them the same parts."""

    arguments: bool
    result: bool
    slots: Mapping[Content, Sequence[int]]
    """The slots by what they hold."""

    def content(self, arguments: Any, result: Any) -> Content:
        """What is looked at of arguments and result."""
        return content(arguments) if self.arguments else None, content(result) if self.result else None

    def parts(self, arguments: Any, result: Any) -> tuple[Any, Any]:
        """What is looked at of arguments and result, itself."""
        return arguments if self.arguments else None, result if self.result else None


class Plan:
    """Slots, each with the number of its stage, and which of them a call may answer."""

    names_agents = False
    """Whether it matters which agent made a call."""

    def __init__(self, stages: Iterable[Stage], names: Naming) -> None:
        placed = [(slot, number) for number, stage in enumerate(stages) for slot in stage]
        self.slots: Sequence[Slot] = [slot for slot, _ in placed]
        self.stages: Sequence[int] = [number for _, number in placed]
        self.open = any(slot.most != 1 or slot.beyond for slot in self.slots)
        tools = [(at, tool) for at, slot in enumerate(self.slots) for tool in slot.tools]
        self.states_arguments = any(tool.arguments is not None for _, tool in tools)
        self.states_results = any(tool.result is not ABSENT for _, tool in tools)
        self.weighs = self.states_arguments or self.states_results
        self.requires_all = all(slot.required for slot in self.slots)
        self._stating = {at for at, tool in tools if tool.arguments is not None or tool.result is not ABSENT}
        self._names = names
        self._wanted: dict[str, list[int]] = {}
        for at, slot in enumerate(self.slots):
            for key in frozenset[str]().union(*map(names.wanted, slot.tools)):
                self._wanted.setdefault(key, []).append(at)
        self._asked = lru_cache(maxsize=1024)(self._find_asked)
        self._says = lru_cache(maxsize=1024)(self._find_says)
        self.stated = lru_cache(maxsize=1024)(self._find_stated)
        """What some slots state, by position; `None` where some state less than others, or have alternatives."""

    def asked(self, call: ToolCall) -> tuple[int, ...]:
        """The slots that a call may answer, by position, ascending."""
        return self._asked(call.name, call.raw_name, call.server)

    def says(self, call: ToolCall) -> bool:
        """Whether all slots that a call may answer are of one tool, whose name they write as the call does."""
        return self._says(call.name, call.raw_name, call.server)

    def takes_any(self, call: ToolCall) -> bool:
        """Whether any other call of that name would answer the same slots, and each of them equally well."""
        return self._says(call.name, call.raw_name, call.server) and self._stating.isdisjoint(self.asked(call))

    @cached_property
    def kinds(self) -> Sequence[int]:
        """For each slot a number, the same for slots that the same calls answer equally well."""
        return _numbered(
            (slot.required, *[(tool_content(tool), tool.agent) for tool in slot.tools]) for slot in self.slots
        )

    @cached_property
    def rough_kinds(self) -> Sequence[int]:
        """For each slot a number, the same for slots that the same calls may answer, well or not."""
        return _numbered(
            (slot.required, *[(tool.name, tool.server, tool.agent) for tool in slot.tools]) for slot in self.slots
        )

    @cached_property
    def plain_arguments(self) -> Sequence[Hashable]:
        """For each slot what its arguments hold, where they are plain data and all that it states; `None` elsewhere."""
        stated = [slot.tools[0].arguments if _states_arguments_alone(slot) else None for slot in self.slots]
        return [held if isinstance(held := content(arguments), bytes | str) else None for arguments in stated]

    @cached_property
    def is_plain(self) -> Sequence[bool]:
        """For each slot whether it states nothing but plain data, which is quickly compared."""
        return [all(map(is_plain, slot.tools)) for slot in self.slots]

    def opened(self, calls: Iterable[ToolCall]) -> Plan:
        """The plan with as many optional slots as these calls could answer, where their number was left open."""
        if not self.open:
            return self
        answers = [0] * len(self.slots)
        for call in calls:
            for at in self.asked(call):
                answers[at] += 1
        stages: dict[int, list[Stage]] = {}
        for slot, number, possible in zip(self.slots, self.stages, answers, strict=True):
            left = max(possible - slot.beyond, 0 if slot.beyond else 1)
            amount = left if slot.most is None else min(left, slot.most)
            stages.setdefault(number, []).append((replace(slot, most=1, beyond=0),) * amount)
        return type(self)(chain.from_iterable(map(_abreast, stages.values())), self._names)

    def _find_asked(self, name: str, raw_name: str, server: str | None) -> tuple[int, ...]:
        keys = self._names.called(ToolCall(name, raw_name, server))
        found = {at for key in keys for at in self._wanted.get(key, ())}
        return tuple(sorted(found))

    def _find_says(self, name: str, raw_name: str, server: str | None) -> bool:
        return self._is_said(self._asked(name, raw_name, server), name, raw_name)

    def _is_said(self, asked: tuple[int, ...], name: str, raw_name: str) -> bool:
        tools = [tool for at in asked for tool in self.slots[at].tools]
        return (
            len(tools) == len(asked)
            and len({self.rough_kinds[at] for at in asked}) == 1
            and all(tool.name in (name, raw_name) for tool in tools)
        )

    def _find_stated(self, slots: tuple[int, ...]) -> Stated | None:
        tools = [tool for at in slots for tool in self.slots[at].tools]
        parts = {(tool.arguments is not None, tool.result is not ABSENT) for tool in tools}
        if len(tools) > len(slots) or len(parts) > 1:
            return None
        found: dict[Content, list[int]] = {}
        stated = Stated(*parts.pop(), found)
        for at, tool in zip(slots, tools, strict=True):
            found.setdefault(stated.content(tool.arguments, tool.result), []).append(at)
        return stated


class PlanOfAgents(Plan):
    """A plan in which some slots want the call of a certain agent."""

    names_agents = True

    def __init__(self, stages: Iterable[Stage], names: Naming) -> None:
        super().__init__(stages, names)
        self._asked_of = lru_cache(maxsize=1024)(self._find_asked_of)
        self._says_of = lru_cache(maxsize=1024)(self._find_says_of)

    def asked(self, call: ToolCall) -> tuple[int, ...]:
        """The slots that a call may answer, by position, ascending."""
        return self._asked_of(call.name, call.raw_name, call.server, call.agent)

    def says(self, call: ToolCall) -> bool:
        """Whether all slots that a call may answer are of one tool and agent, with a name written as the call's."""
        return self._says_of(call.name, call.raw_name, call.server, call.agent)

    def takes_any(self, call: ToolCall) -> bool:
        """Whether any other call of that name and agent would answer the same slots, and each of them equally well."""
        return self.says(call) and self._stating.isdisjoint(self.asked(call))

    def _find_asked_of(self, name: str, raw_name: str, server: str | None, agent: str | None) -> tuple[int, ...]:
        call = ToolCall(name, raw_name, server, agent=agent)
        return tuple([at for at in self._asked(name, raw_name, server) if self._is_meant(call, self.slots[at])])

    def _find_says_of(self, name: str, raw_name: str, server: str | None, agent: str | None) -> bool:
        return self._is_said(self._asked_of(name, raw_name, server, agent), name, raw_name)

    def _is_meant(self, call: ToolCall, slot: Slot) -> bool:
        return any(is_by(tool, call) and is_called(tool, call, self._names) for tool in slot.tools)


def _plan(stages: Iterable[Stage], names: Naming) -> Plan:
    known = list(stages)
    agents = any(tool.agent is not None for stage in known for slot in stage for tool in slot.tools)
    return PlanOfAgents(known, names) if agents else Plan(known, names)


def _states_arguments_alone(slot: Slot) -> bool:
    return len(slot.tools) == 1 and slot.tools[0].result is ABSENT


def _numbered(keys: Iterable[Hashable]) -> Sequence[int]:
    numbers: dict[Hashable, int] = {}
    return [numbers.setdefault(key, len(numbers)) for key in keys]


def _abreast(slots: Sequence[Stage]) -> Iterator[Stage]:
    """Repeated slots of one stage: one after the other if they are all that is in it, else side by side."""
    if len(slots) == 1:
        return ((slot,) for slot in slots[0])
    return iter([tuple(chain.from_iterable(slots))])


class Layout:
    """Everything that a golden asks for: the ways to meet each of its items, and the plans that they make."""

    def __init__(self, golden: Golden) -> None:
        if golden.order == "exact" and golden.extra == "allow":
            raise GoldspanError(
                f"golden {shown(golden.id)}: order 'exact' allows no other calls, so extra cannot be 'allow'."
            )
        self.names = naming(golden.vocabulary)
        found = [list(islice(_ways(item), MOST_WAYS + 1)) for item in golden.tools]
        self.ways = [ways[:MOST_WAYS] for ways in found]
        self.known_whole = all(len(ways) <= MOST_WAYS for ways in found)
        """Whether there are no more."""
        self.plans = prod(map(len, self.ways))
        """How many plans they make."""
        if sum(max(sum(map(len, way)) for way in ways) for ways in self.ways) > MOST_SLOTS:
            raise GoldspanError(f"golden {shown(golden.id)} expects more than {MOST_SLOTS} calls.")
        self._keys = frozenset[str]().union(*map(self.names.wanted, golden.calls))
        self.plan = lru_cache(maxsize=64)(self._make)
        self.first = self._make((0,) * len(self.ways))

    def names_call(self, call: ToolCall) -> bool:
        """Whether the golden or its vocabulary speaks of the tool that was called."""
        return not self._keys.isdisjoint(self.names.called(call)) or self.names.declares(call)

    def _make(self, taken: tuple[int, ...]) -> Plan:
        """The plan in which of every item that way is taken."""
        stages = (ways[at] for ways, at in zip(self.ways, taken, strict=True))
        return _plan(chain.from_iterable(stages), self.names)


@lru_cache(maxsize=2048)
def layout(golden: Golden) -> Layout:
    """What a golden asks for. Raises `GoldspanError` where it asks for what cannot be laid out."""
    try:
        return Layout(golden)
    except RecursionError:
        raise GoldspanError(f"golden {shown(golden.id)}: its alternatives are nested too deeply.") from None


# --- from items to slots ----------------------------------------------------------------------------------------------


def _ways(item: Item) -> Iterator[Trajectory]:
    """The ways to meet an item: one, unless it has alternatives that are whole trajectories."""
    if isinstance(item, Parallel):
        yield (tuple(chain.from_iterable(map(_side_by_side, item.items))),)
    elif isinstance(item, AnyOf) and _single_calls(item) is None:
        if item.times.most != 1:
            raise GoldspanError(f"{shown(item.name)}: only alternatives of one call each can be expected repeatedly.")
        for option in item.options:
            for parts in product(*(list(islice(_ways(part), MOST_WAYS + 1)) for part in option)):
                way = chain.from_iterable(parts)
                yield tuple(map(_made_optional, way)) if item.optional else tuple(way)
    else:
        yield tuple((slot,) for slot in _slots(item))


def _side_by_side(item: ExpectedTool | AnyOf) -> Iterator[Slot]:
    if isinstance(item, AnyOf) and _single_calls(item) is None:
        raise GoldspanError(f"{shown(item.name)}: alternatives of several calls cannot stand in a parallel group.")
    return _slots(item)


def _slots(item: ExpectedTool | AnyOf) -> Iterator[Slot]:
    """The slots of a call, or of alternatives of one call each: one for each time it is expected."""
    tools = (_single_calls(item) or ()) if isinstance(item, AnyOf) else (item,)
    least, most = item.times.least, item.times.most
    if least > MOST_SLOTS:
        raise GoldspanError(f"{shown(item.name)} is expected more than {MOST_SLOTS} times.")
    yield from repeat(Slot(tools, item), least)
    if most is None or most > least:
        yield Slot(tools, item, required=False, most=None if most is None else most - least, beyond=least)


def _single_calls(item: AnyOf) -> tuple[ExpectedTool, ...] | None:
    """The alternatives, where each is one call made once; `None` where one of them is more than that."""
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


def _made_optional(stage: Stage) -> Stage:
    return tuple(replace(slot, required=False) for slot in stage)
