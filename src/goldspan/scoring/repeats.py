"""What counts no second time where a golden ignores duplicates: the same call, and the same expectation, once more."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from goldspan.goldens.naming import Naming
from goldspan.model import ABSENT, ExpectedTool, Row, ToolCall
from goldspan.scoring.agreement.equality import equal
from goldspan.scoring.agreement.sameness import content
from goldspan.scoring.plan import Plan, Slot

_Stated: TypeAlias = list[tuple[Any, Any]]
"""The arguments and the result of each of the tools of a slot."""

REPEAT = "repeat"
"""The note beside a call or an expectation that was there before."""


def without_repeats(rows: Sequence[Row], plan: Plan, names: Naming, alike: bool | None = None) -> Iterator[Row]:
    """The rows; unexpected calls and missing expectations that equal one that counts are tolerated.

    `alike` is that of a `Reading`.
    """
    calls = _Calls(names, alike)
    expected = _Expected(names)
    for row in rows:
        if row.called and row.expected_at is not None:
            calls.is_new(row.called)
            expected.is_new(plan.slots[row.expected_at])
    for row in rows:
        repeated = False
        if row.verdict == "unexpected" and row.called:
            repeated = not calls.is_new(row.called)
        elif row.verdict == "missing" and row.expected_at is not None:
            repeated = not expected.is_new(plan.slots[row.expected_at])
        yield replace(row, verdict="tolerated", note=REPEAT) if repeated else row


class _Calls:
    """Calls that count."""

    def __init__(self, names: Naming, alike: bool | None) -> None:
        self._names = names
        self._alike = alike
        self._seen: set[Hashable] = set()
        self._arguments: dict[Hashable, list[Any]] = {}

    def is_new(self, call: ToolCall) -> bool:
        """Whether no call of the tool had these arguments before; then it is one from now on."""
        tool = self._names.tool(call)
        known = self._arguments.setdefault(tool, [])
        if self._alike is not None and known and (call.arguments is None or None in known):
            known.append(call.arguments)
            return not self._alike
        key = tool, content(call.arguments)
        if key in self._seen:
            return False
        self._seen.add(key)
        if any(equal(arguments, call.arguments) for arguments in known):
            return False
        known.append(call.arguments)
        return True


class _Expected:
    """Expectations that count."""

    def __init__(self, names: Naming) -> None:
        self._names = names
        self._seen: set[Hashable] = set()
        self._stated: dict[Hashable, list[_Stated]] = {}

    def is_new(self, slot: Slot) -> bool:
        """Whether no slot before asked for the same; then it is one from now on."""
        stated = [(tool.arguments, tool.result) for tool in slot.tools]
        asked = tuple([self._asked(tool) for tool in slot.tools])
        key = asked, tuple([(content(arguments), content(result)) for arguments, result in stated])
        if key in self._seen:
            return False
        self._seen.add(key)
        known = self._stated.setdefault(asked, [])
        if any(equal(those, stated) for those in known):
            return False
        known.append(stated)
        return True

    def _asked(self, tool: ExpectedTool) -> Hashable:
        """Which tool it is, of which agent, and whether it states arguments and a result."""
        return self._names.wanted(tool), tool.agent, tool.arguments is None, tool.result is ABSENT
