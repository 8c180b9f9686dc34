"""The best pairs of slots and calls in any order: found for kinds of both, then dealt to the single ones."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

from goldspan.scoring.pairing.assignment import Flow, distribute
from goldspan.scoring.pairing.effort import Effort
from goldspan.scoring.pairing.merits import Merits

_NONE: Mapping[int, int] = {}


class _Alike(NamedTuple):
    """What several slots, or several calls, have in common."""

    kind: int
    favoured: int | None
    """The slot of the favoured pair that it is part of."""


def deal(
    merits: Merits,
    slots: Iterable[int],
    calls: Iterable[int],
    effort: Effort,
    *,
    favoured: Mapping[int, int] = _NONE,
) -> dict[int, int]:
    """As many pairs (slot to call) as can be, and of those the best; of equally good ones those that are `favoured`."""
    partner = {call: slot for slot, call in favoured.items()}
    rows: dict[_Alike, list[int]] = {}
    for slot in slots:
        alike = _Alike(merits.slot_kinds[slot], slot if slot in favoured else None)
        rows.setdefault(alike, []).append(slot)
    columns: dict[_Alike, list[int]] = {}
    for call in calls:
        columns.setdefault(_Alike(merits.call_kinds[call], partner.get(call)), []).append(call)
    pairs: dict[int, int] = {}
    for block_rows, block_columns in _blocks(merits, rows, columns):
        of_rows, of_columns = [rows[row] for row in block_rows], [columns[column] for column in block_columns]
        if len(block_rows) == len(block_columns) == 1:
            # What joined the two may have been a slot or a call that is not among these.
            if block_columns[0].kind in merits.answers[block_rows[0].kind]:
                pairs.update(zip(of_rows[0], of_columns[0], strict=False))
            continue
        costs = [_costs(merits, row, block_columns, favouring=bool(favoured)) for row in block_rows]
        flows = distribute(costs, [*map(len, of_rows)], [*map(len, of_columns)], effort)
        pairs.update(_dealt(flows, of_rows, of_columns))
    return pairs


def _blocks(
    merits: Merits, rows: Iterable[_Alike], columns: Iterable[_Alike]
) -> list[tuple[list[_Alike], list[_Alike]]]:
    """Cut slots and calls into blocks such that no call of one may answer a slot of another."""
    of_slots, of_calls = merits.blocks
    blocks: dict[int, tuple[list[_Alike], list[_Alike]]] = {}
    for row in rows:
        if row.kind in of_slots:
            blocks.setdefault(of_slots[row.kind], ([], []))[0].append(row)
    for column in columns:
        if (number := of_calls.get(column.kind)) in blocks:
            blocks[number][1].append(column)
    return [block for block in blocks.values() if block[1]]


def _costs(merits: Merits, row: _Alike, columns: Iterable[_Alike], *, favouring: bool) -> list[int | None]:
    costs = merits.costs(row.kind)
    if not favouring:
        return [costs.get(column.kind) for column in columns]
    # A digit more, the last one: whether the pair is none of the favoured.
    radix = len(merits.slot_kinds) + 1
    found: list[int | None] = []
    for column in columns:
        cost = costs.get(column.kind)
        is_favoured = row.favoured is not None and row.favoured == column.favoured
        found.append(None if cost is None else cost * radix + (not is_favoured))
    return found


def _dealt(flows: Sequence[Flow], rows: list[list[int]], columns: list[list[int]]) -> Iterator[tuple[int, int]]:
    """The single pairs. Of each kind the calls and slots that come first are taken, and dealt in sequence."""
    left = [iter(calls) for calls in columns]
    dealt: dict[int, list[int]] = {}
    for row, column, amount in sorted(flows, key=lambda flow: rows[flow[0]][0]):
        dealt.setdefault(row, []).extend(islice(left[column], amount))
    for row, calls in dealt.items():
        yield from zip(rows[row], sorted(calls), strict=False)
