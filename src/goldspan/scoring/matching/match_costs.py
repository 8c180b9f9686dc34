"""Computes the cost of pairing a slot with a call."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias

from goldspan.goldens.tool_names import ToolNameMatcher, explicit_server
from goldspan.model import ABSENT, Agreement, ExpectedTool, Golden, Run, ToolCall
from goldspan.model.name_folding import fold_name
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
"""Disagreement is counted in integer billionths, so that sums and ties are exact."""

_STEPS_PER_PAIR, _BYTES_PER_STEP, _SQUARED_BYTES_PER_STEP = 70, 100, 15_000
"""The steps of `WorkBudget` for comparing a pair: a constant, and more with the size of the call's content. With
matchers such as `similar`, the work can grow with the square of that size."""

_MAX_UNKNOWN = 4
"""The number of stated parts of a call that may not be captured: arguments, result, agent and server."""

SchemaLookup: TypeAlias = "Callable[[ToolCall], Mapping[str, Any] | None]"
"""Returns the JSON schema of the called tool's arguments, or `None`."""


ComparedPair: TypeAlias = "tuple[ExpectedTool, Agreement | None, Agreement | None]"
"""The expected tool of a pair, and the agreement of its arguments and of its result; `None`: not stated or not
captured."""


class FailedCalls(NamedTuple):
    """The positions of failed calls. A successful call is preferred to them, whatever the arguments."""

    all: frozenset[int] = frozenset()
    recovered: frozenset[int] = frozenset()
    """The failed calls after which a call of the tool succeeded. They match only required slots."""

    @property
    def unrecovered(self) -> FailedCalls:
        """The failed calls that are not recovered."""
        return FailedCalls(self.all - self.recovered)


NO_FAILED_CALLS = FailedCalls()


class Mismatch(NamedTuple):
    """The mismatch of arguments and results of one or several pairs. The first field has the greatest weight."""

    disagreement: int
    """The disagreement of arguments and results together, in billionths."""
    unknown: int
    """The number of arguments and results that could not be compared."""
    arguments_disagreement: int
    """The disagreement of arguments only. Without the last two fields, equally good pairings could have different
    scores."""
    arguments_unknown: int


def mismatch_of_shares(arguments: float | None, result: float | None) -> Mismatch:
    """Returns the mismatch of a pair with these shares of agreement; `None`: not compared."""
    one = 0 if arguments is None else round((1 - arguments) * SHARE_UNITS)
    other = 0 if result is None else round((1 - result) * SHARE_UNITS)
    return Mismatch(one + other, (arguments is None) + (result is None), one, arguments is None)


def compare_pair(slot: Slot, call: ToolCall, names: ToolNameMatcher, schemas: SchemaLookup) -> ComparedPair:
    """Compare a call with a slot that it can match; of alternative calls, with the one that agrees best."""
    tool = slot.tools[0] if len(slot.tools) == 1 else _best_candidate(slot, call, names, schemas)[3]
    arguments = None if tool.arguments is None else argument_agreement(tool, call, schemas(call))
    return tool, arguments, None if tool.result is ABSENT else result_agreement(tool, call)


def _best_candidate(
    slot: Slot, call: ToolCall, names: ToolNameMatcher, schemas: SchemaLookup
) -> tuple[Mismatch, int, int, ExpectedTool]:
    """Returns the mismatch, the number of unknown parts and the name distance of the best alternative, and its tool."""
    tools = candidate_tools(slot, call, names) if len(slot.tools) > 1 else slot.tools
    found = [
        (
            mismatch_of_pair(tool, call, schemas),
            unknown_count(tool, call, names),
            name_distance(tool, call, names),
            tool,
        )
        for tool in tools
    ]
    return min(found, key=_preference) if len(found) > 1 else found[0]


def _preference(found: tuple[Mismatch, int, int, ExpectedTool]) -> tuple[int, int, Mismatch, int]:
    """Returns the criteria that choose an alternative, in the sequence of the digits of a cost: less is better."""
    mismatch, unknown, distance, _ = found
    return mismatch.disagreement, unknown, mismatch, distance


def unknown_count(tool: ExpectedTool, call: ToolCall, names: ToolNameMatcher) -> int:
    """Returns the number of stated parts that were not captured for a call. Of two pairs that disagree equally, the
    one with fewer unknown parts is preferred, even if fewer parts agree: the run then passes for certain."""
    return (
        (tool.arguments is not None and call.arguments is None)
        + (tool.result is not ABSENT and call.result is None)
        + (tool.agent is not None and call.agent is None)
        + (call.server is None and explicit_server(tool) is not None and not names.is_server_known(tool, call))
    )


def candidate_tools(slot: Slot, call: ToolCall, names: ToolNameMatcher) -> list[ExpectedTool]:
    """Returns the tools of a slot that a call can match."""
    return [tool for tool in slot.tools if is_call_of(tool, call, names) and matches_agent(tool, call)]


def mismatch_of_pair(tool: ExpectedTool, call: ToolCall, schemas: SchemaLookup) -> Mismatch:
    """Returns the mismatch of a pair."""
    arguments = None if tool.arguments is None else argument_share(tool, call, schemas(call))
    return mismatch_of_shares(arguments, None if tool.result is ABSENT else result_share(tool, call))


class PairCosts:
    """Computes the costs of pairs as integers whose digits are criteria. The first digit has the greatest weight.

    The digits are: whether the slot is optional; whether the call is one of the `FailedCalls`; the disagreement of
    arguments and results; the number of stated parts that are not known; how many arguments and results could not be
    compared; the same for arguments only and for required slots only; the name distance; whether the call failed.
    Without `compare_values`, arguments and results are not compared.
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
        """The kinds of call that can match each kind of slot."""
        found: dict[int, list[int]] = {}
        for slot_kinds, call_kinds in self._groups:
            for kind in slot_kinds:
                found[kind] = [*found[kind], *call_kinds] if kind in found else call_kinds
        return found

    @cached_property
    def independent_blocks(self) -> tuple[Mapping[int, int], Mapping[int, int]]:
        """The block number of each kind of slot and of call: a call can match only slots of its block."""
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
        """Whether any slot can match several calls, or any call several slots."""
        of_slots, of_calls = self.independent_blocks
        slots = [of_slots[kind] for kind in self.slot_kinds if kind in of_slots]
        calls = [of_calls[kind] for kind in self.call_kinds.values() if kind in of_calls]
        return not len(slots) == len(calls) == len(set(slots))

    def estimate_steps(self, slots: Iterable[int]) -> int:
        """Returns the steps of `WorkBudget` for comparing these slots with all calls that can match them."""
        if not self._plan.compares_values:
            return 0
        kinds = {self.slot_kinds[slot] for slot in slots} & self.candidate_kinds.keys() - self._costs.keys()
        known: dict[tuple[int, bool], int] = {}  # many kinds of slot share their candidates
        steps = 0
        for kind in kinds:
            candidates = self.candidate_kinds[kind]
            plain = self._plan.is_plain[self._slot_of[kind]]
            if (id(candidates), plain) not in known:
                known[id(candidates), plain] = sum(self._steps(candidate, plain=plain) for candidate in candidates)
            steps += known[id(candidates), plain]
        return steps

    def _steps(self, call_kind: int, *, plain: bool) -> int:
        size = self._sizes[call_kind]
        return _STEPS_PER_PAIR + size // _BYTES_PER_STEP + (0 if plain else size**2 // _SQUARED_BYTES_PER_STEP)

    def costs(self, slot_kind: int) -> Mapping[int, int]:
        """Returns the cost of pairing slots of that kind, by kind of candidate call."""
        if slot_kind not in self._costs:
            slot = self._plan.slots[self._slot_of[slot_kind]]
            self._costs[slot_kind] = {
                kind: self._cost(slot, self._call_of[kind]) for kind in self.candidate_kinds.get(slot_kind, ())
            }
        return self._costs[slot_kind]

    def gains(self, slot: int) -> Mapping[int, int]:
        """Returns the gain of pairing a slot, by position of candidate call.

        One more required slot gains more than all optional ones, and one more optional slot more than better pairs.
        """
        kind = self.slot_kinds[slot]
        if kind not in self._gains:
            most = self._required if self._plan.slots[slot].required else 2 * self._optional
            gains = {answer: most - cost for answer, cost in self.costs(kind).items()}
            self._gains[kind] = {call: gains[own] for call, own in self.call_kinds.items() if own in gains}
        return self._gains[kind]

    def cost(self, slot: int, call: int) -> int:
        """Returns the cost of a pair."""
        return self.costs(self.slot_kinds[slot])[self.call_kinds[call]]

    def total(self, pairs: Mapping[int, int]) -> tuple[int, int]:
        """Returns the number of pairs and the sum of their costs."""
        return len(pairs), sum(self.cost(slot, call) for slot, call in pairs.items())

    def _cost(self, slot: Slot, position: int) -> int:
        call = self._calls[position]
        few, many = self._few, self._many
        if self._compares_values:
            mismatch, unknown, distance, _ = _best_candidate(slot, call, self._names, self._schemas)
        else:
            mismatch, unknown = Mismatch(0, 0, 0, 0), 0
            distance = min(name_distance(tool, call, self._names) for tool in candidate_tools(slot, call, self._names))
        cost = (mismatch.disagreement * few + unknown) * few + mismatch.unknown
        cost = cost * many**3 + mismatch.arguments_disagreement * many**2
        cost = (cost + slot.required * (mismatch.disagreement * many + mismatch.arguments_disagreement)) * few**3
        cost += mismatch.arguments_unknown * few**2
        cost += slot.required * (mismatch.unknown * few + mismatch.arguments_unknown)
        cost = (cost * few + distance) * few + (call.error is not None)
        cost += self._failed * (position in self._failures.all)
        return cost if slot.required else cost + self._optional

    def _number_call_kinds(self) -> dict[int, int]:
        arguments = self._compares_values and self._plan.states_arguments
        results = self._compares_values and self._plan.states_results
        numbers: dict[Hashable, int] = {}
        kinds = {}
        for position, call in self._calls.items():
            contents = arguments and content_key(call.arguments), results and content_key(call.result)
            failed = call.error is not None, position in self._failures.recovered
            agent = call.agent if self._plan.names_agents else None
            key = (call.name, call.raw_name, call.server, agent, failed, contents)
            kinds[position] = numbers.setdefault(key, len(numbers))
            if len(numbers) > len(self._sizes):
                self._sizes.append(sum(len(part) for part in contents if isinstance(part, str | bytes)))
        return kinds

    def _candidate_groups(self) -> list[tuple[list[int], list[int]]]:
        """Returns sets of kinds of slot, each with the kinds of call that can match exactly these."""
        calls_by_slots: dict[tuple[int, ...], list[int]] = {}
        for kind, call in self._call_of.items():
            slots = self._plan.candidate_slots(self._calls[call])
            if call in self._failures.recovered:
                slots = tuple([slot for slot in slots if self._plan.slots[slot].required])
            if slots:
                calls_by_slots.setdefault(slots, []).append(kind)
        return [(sorted({self.slot_kinds[slot] for slot in slots}), kinds) for slots, kinds in calls_by_slots.items()]


# --- JSON schemas of called tools -------------------------------------------------------------------------------------


def schema_lookup(run: Run, golden: Golden, names: ToolNameMatcher) -> SchemaLookup:
    """Returns a lookup of schemas: those that the golden's vocabulary declares, else those of the offered tools."""
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
    """Returns the schemas of the offered tools, by name as written and by folded name."""
    known = [(tool.name, tool.parameters) for tool in run.available_tools if tool.parameters is not None]
    return {**{fold_name(name): schema for name, schema in known}, **dict(known)}


def _no_schema(call: ToolCall) -> None:
    """The lookup for runs without schemas."""
