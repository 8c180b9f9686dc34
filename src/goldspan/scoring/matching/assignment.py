"""Solves the minimum-cost assignment by successive shortest paths, with exact integers.

A row or a column can represent several equal ones, so that a thousand equal calls take no more time than one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise, repeat

MAX_STEPS = 20_000_000
"""The default limit. A step is one iteration of an innermost loop, about a tenth of a microsecond."""


class WorkBudget:
    """The remaining work of a comparison, and the first step that was not exact because of the limit.

    It counts steps and not time, so that a comparison has the same result on every machine.
    """

    def __init__(self, steps: int = MAX_STEPS) -> None:
        self.remaining = steps
        self.incomplete_reason: str | None = None
        """Why the result may not be optimal; `None`: it is optimal."""

    def try_spend(self, steps: int) -> bool:
        """Spend this number of steps, if it remains. Returns whether it did."""
        if steps > self.remaining:
            return False
        self.remaining -= steps
        return True

    def mark_incomplete(self, reason: str) -> None:
        """Record why the result may not be optimal. The first reason is kept."""
        self.incomplete_reason = self.incomplete_reason or reason


Costs = Sequence[Sequence[int | None]]
"""The cost of each row (an expectation) with each column (a call); `None`: they cannot be paired."""

Flow = tuple[int, int, int]
"""A row, a column, and the number of pairs of the two."""

TOO_MANY_TO_ASSIGN = "so many different calls of one tool that only the first expectations got the best calls left"


def assign(costs: Costs) -> list[tuple[int, int]]:
    """Returns the cheapest of the largest sets of pairs of row and column, sorted by row.

    The time is proportional to the longer side and to the square of the shorter one.
    """
    if not costs:
        return []
    flows = assign_multiset(costs, [1] * len(costs), [1] * len(costs[0]), WorkBudget())
    return [(row, column) for row, column, _ in flows]


def assign_multiset(costs: Costs, rows: Sequence[int], columns: Sequence[int], budget: WorkBudget) -> list[Flow]:
    """Returns the cheapest assignment in which each row and each column represents a number of equal ones.

    If `budget` does not cover the work, the remaining rows are assigned the cheapest remaining columns.
    """
    if not costs or not costs[0]:
        return []
    if sum(rows) > sum(columns):
        flipped = assign_multiset([*zip(*costs, strict=True)], columns, rows, budget)
        return sorted((row, column, amount) for column, row, amount in flipped)
    if len(rows) == 1:
        return _cheapest_first(costs[0], rows[0], columns)
    greatest = max((abs(cost) for row in costs for cost in row if cost is not None), default=0)
    never = 1 + 2 * greatest * sum(rows)
    *_, owners = _successive_shortest_paths(
        [[never if cost is None else cost for cost in row] for row in costs], rows, columns, budget
    )
    flows = sorted((row, column, amount) for column, shares in enumerate(owners) for row, amount in shares.items())
    return [flow for flow in flows if costs[flow[0]][flow[1]] is not None]


def _cheapest_first(costs: Sequence[int | None], amount: int, columns: Sequence[int]) -> list[Flow]:
    """Returns the columns of a single row."""
    flows = []
    for _, column in sorted((cost, column) for column, cost in enumerate(costs) if cost is not None):
        taken = min(amount, columns[column])
        flows.append((0, column, taken))
        amount -= taken
        if not amount:
            break
    return flows


def prefix_gains(gains: Sequence[Sequence[int]]) -> Iterator[int]:
    """Yield the greatest gain of the first row, of the first two rows, and so on. Rows can remain unpaired."""
    width = len(gains[0])
    matrix = [[*(-gain for gain in row), 0] for row in gains]  # the last column has room for all unpaired rows
    for owners in _successive_shortest_paths(matrix, [1] * len(gains), [*repeat(1, width), len(gains)], WorkBudget()):
        yield -sum(matrix[row][column] for column, shares in enumerate(owners) for row in shares)


_ColumnOwners = list[dict[int, int]]
"""The rows that are assigned to each column, each with its amount."""


def _successive_shortest_paths(
    costs: Sequence[Sequence[int]], rows: Sequence[int], columns: Sequence[int], budget: WorkBudget
) -> Iterator[_ColumnOwners]:
    """Yield, after each row, the best assignment of the rows so far. There must be room for all rows.

    Each row reaches a column by the shortest path through full columns. Potentials keep the costs on that path from
    being negative.
    """
    owners: _ColumnOwners = [{} for _ in columns]
    room = list(columns)
    potentials = [0] * len(rows), [0] * len(columns)
    for row, left in enumerate(rows):
        while left:
            path = _shortest_path(row, costs, owners, room, potentials, budget)
            left -= _augment(left, path, owners, room)
        yield owners


def _shortest_path(
    row: int,
    costs: Sequence[Sequence[int]],
    owners: _ColumnOwners,
    room: list[int],
    potentials: tuple[list[int], list[int]],
    budget: WorkBudget,
) -> list[tuple[int, int]]:
    """Returns the path from a row to a column with room: each row on it with its new column, the last one first."""
    row_potential, column_potential = potentials
    distance = [cost - potential for cost, potential in zip(costs[row], column_potential, strict=True)]
    ahead = list(range(len(room)))
    if not budget.try_spend(len(ahead)):
        budget.mark_incomplete(TOO_MANY_TO_ASSIGN)
        ahead = [column for column in ahead if room[column]]
    reached_by = [row] * len(room)
    entered: dict[int, int] = {row: -1}  # rows on the path, each with the column that it owns
    passed: list[int] = []
    while not room[column := min(ahead, key=distance.__getitem__)]:
        ahead.remove(column)
        passed.append(column)
        for owner in owners[column]:
            if owner in entered:
                continue
            entered[owner] = column
            budget.remaining -= len(ahead)
            owner_costs, so_far = costs[owner], distance[column] - row_potential[owner]
            for other in ahead:
                through = so_far + owner_costs[other] - column_potential[other]
                if through < distance[other]:
                    distance[other], reached_by[other] = through, owner
    end = distance[column]
    row_potential[row] = end
    for owner, at in entered.items():
        if at >= 0:
            row_potential[owner] += end - distance[at]
    for behind in passed:
        column_potential[behind] -= end - distance[behind]
    path = [(reached_by[column], column)]
    while (at := entered[path[-1][0]]) >= 0:
        path.append((reached_by[at], at))
    return path


def _augment(most: int, path: Sequence[tuple[int, int]], owners: _ColumnOwners, room: list[int]) -> int:
    """Move the rows along a path to their new columns. Returns the number of moved units."""
    last = path[0][1]
    moves = [(row, came, column) for (row, column), (_, came) in pairwise(path)]
    amount = min(most, room[last], *(owners[came][row] for row, came, _ in moves))
    room[last] -= amount
    for row, came, column in moves:
        owners[came][row] -= amount
        if not owners[came][row]:
            del owners[came][row]
        owners[column][row] = owners[column].get(row, 0) + amount
    newcomer, column = path[-1]
    owners[column][newcomer] = owners[column].get(newcomer, 0) + amount
    return amount
