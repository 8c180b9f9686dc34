"""What counts no second time where a golden ignores duplicates: the same call, and the same expectation, once more."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from goldspan.goldens.naming import Naming
from goldspan.model import Row, ToolCall
from goldspan.scoring.agreement.equality import equal
from goldspan.scoring.agreement.sameness import content
from goldspan.scoring.plan import Plan, Slot

REPEAT = "repeat"
"""The note beside a call or an expectation that was there before."""


def without_repeats(rows: Sequence[Row], plan: Plan, names: Naming) -> Iterator[Row]:
    """The rows; unexpected calls and missing expectations that equal one that counts are tolerated."""
    calls = _Calls(names)
    expected: set[Hashable] = set()
    for row in rows:
        if row.called and row.expected_at is not None:
            calls.is_new(row.called)
            expected.add(_asked(plan.slots[row.expected_at], names))
    for row in rows:
        repeated = False
        if row.verdict == "unexpected" and row.called:
            repeated = not calls.is_new(row.called)
        elif row.verdict == "missing" and row.expected_at is not None:
            asked = _asked(plan.slots[row.expected_at], names)
            repeated = asked in expected
            expected.add(asked)
        yield replace(row, verdict="tolerated", note=REPEAT) if repeated else row


class _Calls:
    """Calls that count."""

    def __init__(self, names: Naming) -> None:
        self._names = names
        self._seen: set[Hashable] = set()
        self._arguments: dict[Hashable, list[Any]] = {}

    def is_new(self, call: ToolCall) -> bool:
        """Whether no call of the tool had these arguments before; then it is one from now on."""
        tool = self._names.tool(call)
        key = tool, content(call.arguments)
        if key in self._seen:
            return False
        self._seen.add(key)
        known = self._arguments.setdefault(tool, [])
        if any(equal(arguments, call.arguments) for arguments in known):
            return False
        known.append(call.arguments)
        return True


def _asked(slot: Slot, names: Naming) -> Hashable:
    """What two slots have in common that ask for the same."""
    return tuple((names.wanted(tool), tool.agent, content(tool.arguments), content(tool.result)) for tool in slot.tools)
