"""Which call answers which expectation: the best one-to-one pairing, in the order a golden wants.

Best is, in this order: most pairs, least disagreement of arguments, most pairs whose arguments could be judged, names
written alike, successful calls, pairs in order, and what stands nearest. The first three decide every score, so scores
do not depend on the order of the lists.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from goldspan.goldens.naming import Naming
from goldspan.model import Agreement, ExpectedTool, Order, ToolCall
from goldspan.scoring.alignment import align, concurrent_groups, longest_chain
from goldspan.scoring.arguments import agreement
from goldspan.scoring.assignment import assign
from goldspan.scoring.identity import MOST_STRANGE, PLAIN, strangeness

_UNITS = 10**9
"""Disagreement is counted in whole billionths, so that sums are exact and ties are ties."""

_Options = Mapping[int, Sequence[int]]
"""For each expectation the calls of its tool, both by position, ascending."""

_Cost = Callable[[int, int], int]


class Pair(NamedTuple):
    """An expectation and the call that answers it."""

    expectation: int
    call: int
    agreement: Agreement | None
    in_order: bool


def pair(
    expected: Sequence[ExpectedTool], calls: Sequence[tuple[int, ToolCall]], *, order: Order, naming: Naming = PLAIN
) -> list[Pair]:
    """Pair expectations with calls, which come with their positions in the run."""
    options = _options(expected, calls, naming)
    called = dict(calls)
    if order != "exact" and _plain_sailing(options):
        return [
            Pair(expectation, position, _agreement(expected[expectation], called[position]), True)
            for expectation, (position,) in options.items()
        ]
    merits = _Merits(expected, called, options, naming)
    chosen, in_order = _PAIRINGS[order](options, concurrent_groups(calls), merits)
    return [
        Pair(expectation, position, merits.agreement(expectation, position), expectation in in_order)
        for expectation, position in chosen.items()
    ]


def _options(
    expected: Sequence[ExpectedTool], calls: Iterable[tuple[int, ToolCall]], naming: Naming
) -> dict[int, list[int]]:
    wanted: dict[str, list[int]] = {}
    for expectation, tool in enumerate(expected):
        for key in naming.wanted(tool):
            wanted.setdefault(key, []).append(expectation)
    options: dict[int, list[int]] = {}
    for position, call in calls:
        for key in naming.called(call):
            for expectation in wanted.get(key, ()):
                known = options.setdefault(expectation, [])
                if not known or known[-1] != position:  # else a second key of the same call
                    known.append(position)
    return options


def _plain_sailing(options: _Options) -> bool:
    """Whether there is nothing to choose and everything is in order, as in most runs: then nothing need be computed."""
    last_expectation = last_position = -1
    for expectation, positions in options.items():
        if len(positions) > 1 or expectation < last_expectation or positions[0] <= last_position:
            return False
        last_expectation, last_position = expectation, positions[0]
    return True


def _agreement(tool: ExpectedTool, call: ToolCall) -> Agreement | None:
    """How far the arguments agree; `None` where they are not stated or not captured."""
    return None if tool.arguments is None else agreement(tool.arguments, call.arguments)


class _Merits:
    """What speaks for and against a pair, as one number: a mixed-radix number whose first digit weighs most."""

    def __init__(
        self, expected: Sequence[ExpectedTool], calls: Mapping[int, ToolCall], options: _Options, naming: Naming
    ) -> None:
        self._expected = expected
        self._calls = calls
        self._naming = naming
        self._agreements: dict[tuple[int, int], Agreement | None] = {}
        pairs = min(len(options), len(calls))
        self._radix = MOST_STRANGE * pairs + 1  # no digit of a pair is more, so no sum of them reaches the next digit
        self._worst = (_UNITS + 1) * self._radix**4
        self._gain = self._worst * (pairs + 1)

    def agreement(self, expectation: int, call: int) -> Agreement | None:
        """How far the arguments agree, computed once."""
        at = expectation, call
        if at not in self._agreements:
            self._agreements[at] = _agreement(self._expected[expectation], self._calls[call])
        return self._agreements[at]

    def cost(self, expectation: int, call: int, *, out_of_line: bool = False) -> int:
        """What speaks against the pair."""
        agreed = self.agreement(expectation, call)
        called = self._calls[call]
        cost = round((1 - agreed.share) * _UNITS) if agreed else 0
        cost = cost * self._radix + (agreed is None)
        cost = cost * self._radix + strangeness(self._expected[expectation], called, self._naming)
        cost = cost * self._radix + (called.error is not None)
        return cost * self._radix + out_of_line

    def gain(self, expectation: int, call: int) -> int:
        """What speaks for the pair: a pair more is worth more than any better pairs."""
        return self._gain - self.cost(expectation, call)


# --- for each order a way of pairing: the pairs (expectation to call), and the expectations that are in order ---------

_Pairing = Callable[[_Options, Sequence[Sequence[int]], _Merits], tuple[dict[int, int], set[int]]]


def _in_any_order(
    options: _Options, groups: Sequence[Sequence[int]], merits: _Merits
) -> tuple[dict[int, int], set[int]]:
    chosen = _assigned(options, merits.cost)
    chain = longest_chain(chosen, groups)
    if len(chain) == len(chosen) or _one_to_one(options):
        return chosen, chain
    # Equally good pairs are there to choose from: prefer those that are in order.
    line = _aligned(options, groups, merits)

    def cost(expectation: int, call: int) -> int:
        return merits.cost(expectation, call, out_of_line=line.get(expectation) != call)

    chosen = _assigned(options, cost)
    return chosen, longest_chain(chosen, groups)


def _in_order(options: _Options, groups: Sequence[Sequence[int]], merits: _Merits) -> tuple[dict[int, int], set[int]]:
    chosen = _assigned(options, merits.cost)
    if len(longest_chain(chosen, groups)) == len(chosen):
        return chosen, set(chosen)
    line = _aligned(options, groups, merits)
    return _with_leftovers(line, options, merits), set(line)


def _in_place(options: _Options, groups: Sequence[Sequence[int]], merits: _Merits) -> tuple[dict[int, int], set[int]]:
    placed: dict[int, int] = {}
    begin = 0
    for group in groups:
        stretch = range(begin, begin + len(group))
        here = {at: [call for call in options.get(at, ()) if call in group] for at in stretch}
        placed.update(_assigned(here, merits.cost))
        begin = stretch.stop
    return _with_leftovers(placed, options, merits), set(placed)


_PAIRINGS: Mapping[Order, _Pairing] = {"any": _in_any_order, "in_order": _in_order, "exact": _in_place}


def _aligned(options: _Options, groups: Sequence[Sequence[int]], merits: _Merits) -> dict[int, int]:
    expectations = sorted(options)
    gains = [{call: merits.gain(expectation, call) for call in options[expectation]} for expectation in expectations]
    return {expectations[row]: call for row, call in align(gains, groups).items()}


def _with_leftovers(chosen: dict[int, int], options: _Options, merits: _Merits) -> dict[int, int]:
    """The chosen pairs, and the best pairs of what they leave."""
    taken = set(chosen.values())
    left = {
        expectation: [call for call in calls if call not in taken]
        for expectation, calls in options.items()
        if expectation not in chosen
    }
    return {**chosen, **_assigned(left, merits.cost)}


def _one_to_one(options: _Options) -> bool:
    return all(len(calls) == 1 for calls in options.values()) and len({calls[0] for calls in options.values()}) == len(
        options
    )


def _assigned(options: _Options, cost: _Cost) -> dict[int, int]:
    """The best pairs, found in each block of expectations and calls that have to do with each other."""
    chosen: dict[int, int] = {}
    for rows, columns in _blocks(options):
        if len(rows) == len(columns) == 1:
            chosen[rows[0]] = columns[0]
            continue
        nearness = len(rows) * max(len(rows), len(columns)) ** 2 + 1
        column_of = {call: column for column, call in enumerate(columns)}
        costs: list[list[int | None]] = [[None] * len(columns) for _ in rows]
        for row, expectation in enumerate(rows):
            for call in options[expectation]:
                column = column_of[call]
                costs[row][column] = cost(expectation, call) * nearness + (row - column) ** 2
        chosen.update((rows[row], columns[column]) for row, column in assign(costs))
    return chosen


def _blocks(options: _Options) -> list[tuple[list[int], list[int]]]:
    """Cut expectations and calls into blocks such that no call of one may answer an expectation of another."""
    if _one_to_one(options):
        return [([expectation], [calls[0]]) for expectation, calls in options.items()]
    askers: dict[int, list[int]] = {}
    for expectation, calls in options.items():
        for call in calls:
            askers.setdefault(call, []).append(expectation)
    blocks: list[tuple[list[int], list[int]]] = []
    seen: set[int] = set()
    for first in sorted(options):
        if first in seen or not options[first]:
            continue
        rows, columns, waiting = {first}, set[int](), [first]
        while waiting:
            for call in options[waiting.pop()]:
                if call not in columns:
                    columns.add(call)
                    waiting.extend(set(askers[call]) - rows)
                    rows.update(askers[call])
        seen |= rows
        blocks.append((sorted(rows), sorted(columns)))
    return blocks
