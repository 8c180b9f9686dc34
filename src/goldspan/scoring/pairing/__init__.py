"""Which call answers which slot: the best one-to-one pairing, in the order a golden wants.

Best is, in this order: most required slots answered, most optional ones, by the fewest `Failures`, least disagreement
of arguments and results, most of them that could be judged, names written alike, successful calls, pairs in order, the
first of equal calls. The first five decide every score, so scores do not depend on the order of the lists.

Three ways lead there. The first two take little time and are for what most runs consist of.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeAlias

from goldspan.goldens.naming import Naming
from goldspan.model import Agreement, Order, Row, ToolCall, Verdict, drafted
from goldspan.scoring.agreement.arguments import WHOLLY
from goldspan.scoring.agreement.sameness import content
from goldspan.scoring.pairing.choosing import by_merit
from goldspan.scoring.pairing.effort import Effort
from goldspan.scoring.pairing.families import by_family, plain_sailing
from goldspan.scoring.pairing.merits import NO_FAILURES, Failures, Schemas, judge
from goldspan.scoring.plan import Plan

OPTIONAL = "optional"
"""The note beside a call that was expected and need not have been made."""

Calls: TypeAlias = Sequence[tuple[int, ToolCall]]
"""Calls with their positions in the run, ascending."""


class Pairing(NamedTuple):
    """The slots of a plan with the calls that answer them."""

    plan: Plan
    rows: Mapping[int, Row]
    """One for each pair, by the position of its call in the run."""
    approximate: str | None = None
    """Why a better one may exist; `None`: there is none better."""

    @property
    def lacks_calls(self) -> bool:
        """Whether nobody answers some required slot."""
        answered = {row.expected_at for row in self.rows.values()}
        return any(slot.required and at not in answered for at, slot in enumerate(self.plan.slots))


def pair(
    plan: Plan,
    calls: Calls,
    *,
    order: Order,
    names: Naming,
    schemas: Schemas,
    effort: Effort,
    failures: Failures = NO_FAILURES,
) -> Pairing:
    """Find the calls that answer the slots of a plan best."""
    if plan.open:
        plan = plan.opened([call for at, call in calls if at not in failures.made_good])
    chosen, in_order = (
        not failures.made_good and (plain_sailing(plan, calls) or by_family(plan, calls, order, schemas, effort))
    ) or by_merit(plan, calls, order, names, schemas, effort, failures)
    called, plain = dict(calls), plan.plain_arguments
    rows = {}
    arguments: Agreement | None
    result: Agreement | None
    for at, position in chosen.items():
        slot, call = plan.slots[at], called[position]
        held = plain[at]
        if held is not None and held == content(call.arguments):  # as most do that are expected
            tool, arguments, result = slot.tools[0], WHOLLY, None
        elif plan.weighs or len(slot.tools) > 1:
            tool, arguments, result = judge(slot, call, names, schemas)
        else:
            tool, arguments, result = slot.tools[0], None, None
        verdict, note = _PAIRED if slot.required else _OPTIONAL
        rows[position] = _Row(verdict, tool, call, at, position, arguments, result, at in in_order, note)
    return Pairing(plan, rows, effort.given_up)


_Row = drafted(Row)
_PAIRED: tuple[Verdict, None] = ("paired", None)
_OPTIONAL: tuple[Verdict, str] = ("tolerated", OPTIONAL)
