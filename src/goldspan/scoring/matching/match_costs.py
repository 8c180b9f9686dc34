"""What is known of the tool that was called: the JSON schema of its arguments."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import cached_property
from operator import itemgetter
from typing import Any, NamedTuple, TypeAlias

from goldspan.content.tools import fold_name
from goldspan.goldens.tool_names import ToolNameMatcher, explicit_server
from goldspan.model import ABSENT, Agreement, ExpectedTool, Golden, Run, ToolCall
from goldspan.scoring.arguments.agreement import argument_agreement, argument_share, result_agreement, result_share
from goldspan.scoring.arguments.equality import content_key
from goldspan.scoring.matching.slot_plan import (
    MAX_NAME_DISTANCE,
    Slot,
    SlotPlan,
    is_call_of,
    matches_agent,
    name_distance,
)

SHARE_UNITS = 10**9
"""Disagreement is counted in whole billionths, so that sums are exact and ties are ties."""

_STEPS_PER_PAIR, _BYTES_PER_STEP, _SQUARED_BYTES_PER_STEP = 70, 100, 15_000
"""What it takes to judge a pair, in steps of `Effort`: so many, and more with the size of what the call holds. Where
the golden has matchers, `similar` among them, work may grow with the square of that."""

_MAX_UNKNOWN = 4
"""Arguments, result, agent and server: what may be stated of a call and not known."""

SchemaLookup: TypeAlias = "Callable[[ToolCall], Mapping[str, Any] | None]"
"""The JSON schema of the arguments of the tool that was called, where it is known."""


ComparedPair: TypeAlias = "tuple[ExpectedTool, Agreement | None, Agreement | None]"
"""The expected tool that a call is one of, and how far its arguments and its result agree; `None` where they are not
stated or not captured."""


class FailedCalls(NamedTuple):
    """Calls that failed, by position, where a success is preferred to them whatever either was called with."""

    all: frozenset[int] = frozenset()
    recovered: frozenset[int] = frozenset()
    """Those of them after which the tool was called with success. They answer none but required slots."""

    @property
    def unrecovered(self) -> FailedCalls:
        """The others."""
        return FailedCalls(self.all - self.recovered)


NO_FAILED_CALLS = FailedCalls()


class Mismatch(NamedTuple):
    """What speaks against a pair, or several, by arguments and results; what comes first weighs most."""

    disagreement: int
    """How far arguments and results disagree together, in billionths."""
    unknown: int
    """How many arguments and results could not be judged."""
    arguments_disagreement: int
    """The part of the arguments in that. Without these two, equally good pairings could differ in a score."""
    arguments_unknown: int


def mismatch_of_shares(arguments: float | None, result: float | None) -> Mismatch:
    """What speaks against a pair whose arguments and result agree so far: each a share, `None` where not judged."""
    one = 0 if arguments is None else round((1 - arguments) * SHARE_UNITS)
    other = 0 if result is None else round((1 - result) * SHARE_UNITS)
    return Mismatch(one + other, (arguments is None) + (result is None), one, arguments is None)


def compare_pair(slot: Slot, call: ToolCall, names: ToolNameMatcher, schemas: SchemaLookup) -> ComparedPair:
    """Lay a call beside a slot that it may answer; of alternative calls beside the one that agrees best."""
    tool = slot.tools[0] if len(slot.tools) == 1 else _best_candidate(slot, call, names, schemas)[3]
    arguments = None if tool.arguments is None else argument_agreement(tool, call, schemas(call))
    return tool, arguments, None if tool.result is ABSENT else result_agreement(tool, call)


def _best_candidate(
    slot: Slot, call: ToolCall, names: ToolNameMatcher, schemas: SchemaLookup
) -> tuple[Mismatch, int, int, ExpectedTool]:
    """What speaks against a pair, how much that is stated stays open, how strange the name is, and which tool of the
    slot the call is."""
    tools = candidate_tools(slot, call, names) if len(slot.tools) > 1 else slot.tools
    found = [
        (
            mismatch_of_pair(tool, call, schemas),
            _unknown_count(tool, call, names),
            name_distance(tool, call, names),
            tool,
        )
        for tool in tools
    ]
    return min(found, key=itemgetter(0, 1, 2)) if len(found) > 1 else found[0]


def _unknown_count(tool: ExpectedTool, call: ToolCall, names: ToolNameMatcher) -> int:
    """How many of the things that are stated of a call are not known of it. A call that leaves nothing open, and agrees
    as well, is the better answer: the run then passes for certain."""
    return (
        (tool.arguments is not None and call.arguments is None)
        + (tool.result is not ABSENT and call.result is None)
        + (tool.agent is not None and call.agent is None)
        + (call.server is None and explicit_server(tool) is not None and not names.is_server_known(tool, call))
    )


def candidate_tools(slot: Slot, call: ToolCall, names: ToolNameMatcher) -> list[ExpectedTool]:
    """The tools of a slot that a call may be one of."""
    return [tool for tool in slot.tools if is_call_of(tool, call, names) and matches_agent(tool, call)]


def mismatch_of_pair(tool: ExpectedTool, call: ToolCall, schemas: SchemaLookup) -> Mismatch:
    """What speaks against a pair."""
    arguments = None if tool.arguments is None else argument_share(tool, call, schemas(call))
    return mismatch_of_shares(arguments, None if tool.result is ABSENT else result_share(tool, call))


class PairCosts:
    """Judges pairs, all against one measure: digits of one number, of which the first weighs most.

    The digits of a cost are: whether the slot is optional; whether the call is one of the `Failures`; how far arguments
    and results disagree, and how many could not be judged; the same of arguments only and of required slots only; how
    much that is stated is not known of the call; how strange the name is; whether the call failed.
    Without `judging` arguments and results count for nothing.
    """

    def __init__(
        self,
        plan: SlotPlan,
        calls: Sequence[tuple[int, ToolCall]],
        names: ToolNameMatcher,
        schemas: SchemaLookup,
        failures: FailedCalls = NO_FAILED_CALLS,
        *,
        compare_values: bool = True,
    ) -> None:
        self._plan = plan
        self._failures = failures
        self._calls = dict(calls)
        self._names = names
        self._schemas = schemas
        self._compares_values = compare_values
        self.slot_kinds: Sequence[int] = plan.kinds if compare_values else plan.rough_kinds
        self._sizes: list[int] = []  # of what each kind of call holds, in bytes
        self.call_kinds = self._number_call_kinds()
        self._slot_of = {kind: slot for slot, kind in enumerate(self.slot_kinds)}  # one of each kind stands for all
        self._call_of = {kind: call for call, kind in self.call_kinds.items()}
        self._groups = self._candidate_groups()
        pairs = min(len(plan.slots), len(calls))
        # No sum of a digit over all pairs reaches the next digit.
        self._few, self._many = max(MAX_NAME_DISTANCE, _MAX_UNKNOWN) * pairs + 1, 2 * SHARE_UNITS * pairs + 1
        self._failed = self._many**4 * self._few**7
        self._optional = self._failed * (pairs + 1)
        self._required = self._optional * (pairs + 1)
        self._costs: dict[int, dict[int, int]] = {}
        self._gains: dict[int, dict[int, int]] = {}

    @cached_property
    def candidate_kinds(self) -> Mapping[int, Sequence[int]]:
        """For each kind of slot the kinds of call that may answer it."""
        found: dict[int, list[int]] = {}
        for slot_kinds, call_kinds in self._groups:
            for kind in slot_kinds:
                found[kind] = [*found[kind], *call_kinds] if kind in found else call_kinds
        return found

    @cached_property
    def independent_blocks(self) -> tuple[Mapping[int, int], Mapping[int, int]]:
        """For kinds of slot and for kinds of call a number: no call answers a slot of another number."""
        of_slots: dict[int, int] = {}
        of_calls: dict[int, int] = {}
        for number, (slot_kinds, call_kinds) in enumerate(self._groups):
            joined = {of_slots[kind] for kind in slot_kinds if kind in of_slots}
            if joined:
                of_slots.update((kind, number) for kind, known in of_slots.items() if known in joined)
                of_calls.update((kind, number) for kind, known in of_calls.items() if known in joined)
            of_slots.update(dict.fromkeys(slot_kinds, number))
            of_calls.update(dict.fromkeys(call_kinds, number))
        return of_slots, of_calls

    @property
    def has_alternatives(self) -> bool:
        """Whether any slot may be answered by more than one call, or any call answer more than one slot."""
        of_slots, of_calls = self.independent_blocks
        slots = [of_slots[kind] for kind in self.slot_kinds if kind in of_slots]
        calls = [of_calls[kind] for kind in self.call_kinds.values() if kind in of_calls]
        return not len(slots) == len(calls) == len(set(slots))

    def estimate_steps(self, slots: Iterable[int]) -> int:
        """What it takes to judge all calls that may answer these slots, in steps of `Effort`."""
        if not self._plan.compares_values:
            return 0
        judged = {self.slot_kinds[slot] for slot in slots} & self.candidate_kinds.keys() - self._costs.keys()
        known: dict[tuple[int, bool], int] = {}  # many kinds of slot share the calls that may answer them
        steps = 0
        for kind in judged:
            answers = self.candidate_kinds[kind]
            plain = self._plan.is_plain[self._slot_of[kind]]
            if (id(answers), plain) not in known:
                known[id(answers), plain] = sum(self._steps(answer, plain=plain) for answer in answers)
            steps += known[id(answers), plain]
        return steps

    def _steps(self, call_kind: int, *, plain: bool) -> int:
        size = self._sizes[call_kind]
        return _STEPS_PER_PAIR + size // _BYTES_PER_STEP + (0 if plain else size**2 // _SQUARED_BYTES_PER_STEP)

    def costs(self, slot_kind: int) -> Mapping[int, int]:
        """What speaks against answering slots of that kind, for each kind of call that may."""
        if slot_kind not in self._costs:
            slot = self._plan.slots[self._slot_of[slot_kind]]
            self._costs[slot_kind] = {
                kind: self._cost(slot, self._call_of[kind]) for kind in self.candidate_kinds.get(slot_kind, ())
            }
        return self._costs[slot_kind]

    def gains(self, slot: int) -> Mapping[int, int]:
        """What speaks for answering a slot, for each call that may, by position.

        A required slot more is worth more than any optional ones, and an optional one more than any better pairs.
        """
        kind = self.slot_kinds[slot]
        if kind not in self._gains:
            most = self._required if self._plan.slots[slot].required else 2 * self._optional
            gains = {answer: most - cost for answer, cost in self.costs(kind).items()}
            self._gains[kind] = {call: gains[own] for call, own in self.call_kinds.items() if own in gains}
        return self._gains[kind]

    def cost(self, slot: int, call: int) -> int:
        """What speaks against a pair."""
        return self.costs(self.slot_kinds[slot])[self.call_kinds[call]]

    def total(self, pairs: Mapping[int, int]) -> tuple[int, int]:
        """How many pairs there are, and what speaks against all of them together."""
        return len(pairs), sum(self.cost(slot, call) for slot, call in pairs.items())

    def _cost(self, slot: Slot, position: int) -> int:
        call = self._calls[position]
        few, many = self._few, self._many
        if self._compares_values:
            against, left_open, strange, _ = _best_candidate(slot, call, self._names, self._schemas)
        else:
            against, left_open = Mismatch(0, 0, 0, 0), 0
            strange = min(name_distance(tool, call, self._names) for tool in candidate_tools(slot, call, self._names))
        cost = against.disagreement * few + against.unknown
        cost = cost * many**3 + against.arguments_disagreement * many**2
        cost = (cost + slot.required * (against.disagreement * many + against.arguments_disagreement)) * few**3
        cost += against.arguments_unknown * few**2
        cost += slot.required * (against.unknown * few + against.arguments_unknown)
        cost = ((cost * few + left_open) * few + strange) * few + (call.error is not None)
        cost += self._failed * (position in self._failures.all)
        return cost if slot.required else cost + self._optional

    def _number_call_kinds(self) -> dict[int, int]:
        arguments = self._compares_values and self._plan.states_arguments
        results = self._compares_values and self._plan.states_results
        numbers: dict[Hashable, int] = {}
        kinds = {}
        for position, call in self._calls.items():
            judged = arguments and content_key(call.arguments), results and content_key(call.result)
            failed = call.error is not None, position in self._failures.recovered
            agent = call.agent if self._plan.names_agents else None
            key = (call.name, call.raw_name, call.server, agent, failed, judged)
            kinds[position] = numbers.setdefault(key, len(numbers))
            if len(numbers) > len(self._sizes):
                self._sizes.append(sum(len(part) for part in judged if isinstance(part, str | bytes)))
        return kinds

    def _candidate_groups(self) -> list[tuple[list[int], list[int]]]:
        """Kinds of slot with the kinds of call that may answer all of them, and no others; none of them twice."""
        asked: dict[tuple[int, ...], list[int]] = {}
        for kind, call in self._call_of.items():
            slots = self._plan.candidate_slots(self._calls[call])
            if call in self._failures.recovered:
                slots = tuple([slot for slot in slots if self._plan.slots[slot].required])
            if slots:
                asked.setdefault(slots, []).append(kind)
        return [(sorted({self.slot_kinds[slot] for slot in slots}), kinds) for slots, kinds in asked.items()]


def schema_lookup(run: Run, golden: Golden, names: ToolNameMatcher) -> SchemaLookup:
    """Looks schemas up: what the vocabulary of the golden declares, else what the agent was offered."""
    if not golden.vocabulary.tools and not run.available_tools:
        return _no_schema
    declared = any(tool.parameters is not None for tool in golden.vocabulary.tools)
    offered: dict[str, Mapping[str, Any]] = {}

    def schema(call: ToolCall) -> Mapping[str, Any] | None:
        if declared and (tool := names.declared_tool(call)) and tool.parameters is not None:
            return tool.parameters
        if run.available_tools and not offered:
            offered.update(_offered_schemas(run))
        written = call.raw_name, call.name, fold_name(call.raw_name), fold_name(call.name)
        return next((offered[name] for name in written if name in offered), None)

    return schema


def _offered_schemas(run: Run) -> dict[str, Mapping[str, Any]]:
    """The schemas of the tools that the agent was offered, by their names as written and folded."""
    known = [(tool.name, tool.parameters) for tool in run.available_tools if tool.parameters is not None]
    return {**{fold_name(name): schema for name, schema in known}, **dict(known)}


def _no_schema(call: ToolCall) -> None:
    """Nothing is known of any tool."""
