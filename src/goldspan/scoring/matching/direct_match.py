"""Pairs each call with the expectation at the same position, if no other pairing can be better."""

from __future__ import annotations

from functools import lru_cache

from goldspan.model import (
    ABSENT,
    COUNTED_TOOL_KINDS,
    Agreement,
    Comparison,
    ComparisonRow,
    Golden,
    Run,
    ToolCall,
    fast_constructor,
)
from goldspan.scoring.arguments.agreement import FULL_AGREEMENT, argument_agreement
from goldspan.scoring.arguments.equality import content_key
from goldspan.scoring.matching.match_costs import schema_lookup
from goldspan.scoring.matching.slot_plan import GoldenPlans, is_forbidden


class DirectMatch:
    """The expectations of a golden that are calls, each made once, with plain arguments or none.

    `compare` returns the same comparison as the pairing of `best_match`. There, `trivial_match` finds the same pairs,
    because each call has a single candidate slot, or is equal to the expectation at its position.
    """

    def __init__(self, plans: GoldenPlans) -> None:
        self._plan, self._names, self._forbid = plans.first_plan, plans.names, plans.golden.forbid
        self._tools = [slot.tools[0] for slot in self._plan.slots]
        self._slots = list(zip(self._tools, self._plan.plain_arguments, strict=True))
        self._candidates = lru_cache(maxsize=1024)(self._find_candidates)

    def compare(self, run: Run, golden: Golden) -> Comparison | None:
        """Compare a run with the golden; `None` if another pairing can be better, or a call does not count."""
        calls = run.tool_calls
        if len(calls) != len(self._slots):
            return None
        rows: list[ComparisonRow] = []
        differing: list[int] = []
        for at, (tool, key) in enumerate(self._slots):
            call = calls[at]
            candidates = self._candidates(call.name, call.raw_name, call.server)
            if at not in candidates or not (call.succeeded and call.was_made and call.kind in COUNTED_TOOL_KINDS):
                return None
            agreement: Agreement | None = None
            if tool.arguments is not None:
                if key is not None and key == content_key(call.arguments):
                    agreement = FULL_AGREEMENT
                elif len(candidates) == 1:
                    differing.append(at)
                else:
                    return None
            rows.append(_Row("paired", tool, call, at, at, agreement, None, True, None))
        return self._comparison(run, golden, rows, differing)

    def _comparison(self, run: Run, golden: Golden, rows: list[ComparisonRow], differing: list[int]) -> Comparison:
        """Return the comparison, after comparing the arguments that are not written as the expected ones."""
        if differing:
            schemas = schema_lookup(run, golden, self._names)
            for at in differing:
                tool, call = self._tools[at], run.tool_calls[at]
                agreement = argument_agreement(tool, call, schemas(call))
                rows[at] = _Row("paired", tool, call, at, at, agreement, None, True, None)
        is_as_expected = all(rows[at].agreement is FULL_AGREEMENT for at in differing)
        return Comparison.of_pairs(golden, run, tuple(rows), is_as_expected=is_as_expected)

    def _find_candidates(self, name: str, raw_name: str, server: str | None) -> frozenset[int]:
        """Return the slots that a call can match; none if it is forbidden, or the slots state different parts."""
        call = ToolCall(name, raw_name, server)
        slots = self._plan.candidate_slots(call)
        if len(slots) > 1 and not (self._plan.is_single_tool(call) and self._plan.stated_content(slots)):
            return frozenset()
        return frozenset() if is_forbidden(call, self._forbid, self._names) else frozenset(slots)


_Row = fast_constructor(ComparisonRow)


@lru_cache(maxsize=2048)
def direct_match(plans: GoldenPlans) -> DirectMatch | None:
    """Returns the direct match of a golden; `None` if it expects more than a list of calls, each made once."""
    golden, plan = plans.golden, plans.first_plan
    is_list_of_calls = (
        plans.plan_count == 1
        and plans.is_complete
        and not (golden.policy or golden.depth == "own" or plan.has_open_slots or plan.names_agents)
        and all(slot.required and len(slot.tools) == 1 and slot.tools[0].result is ABSENT for slot in plan.slots)
    )
    return DirectMatch(plans) if is_list_of_calls and plan.slots else None
