"""The cheapest assignment: successive shortest paths with potentials, exact on integers of any size.

Rows and columns may each stand for several equal ones, so that a thousand equal calls cost no more than one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise, repeat

MAX_STEPS = 20_000_000
"""A step is one turn of an innermost loop, about a tenth of a microsecond."""


class WorkBudget:
    """The work that is left, and what had to be given up for want of it.

    It counts steps and not time, so that the same comparison comes out the same on every machine.
    """

    def __init__(self, steps: int = MAX_STEPS) -> None:
        self.remaining = steps
        self.incomplete_reason: str | None = None
        """What could not be done as well as possible; `None`: nothing."""

    def try_spend(self, steps: int) -> bool:
        """Whether so many steps may be done; if so, they are spent."""
        if steps > self.remaining:
            return False
        self.remaining -= steps
        return True

    def mark_incomplete(self, reason: str) -> None:
        """Remember that something was not done as well as possible; the first thing is what is told."""
        self.incomplete_reason = self.incomplete_reason or reason


Costs = Sequence[Sequence[int | None]]
"""What each row (an expectation) would pay for each column (a call); `None`: they cannot be paired."""

Flow = tuple[int, int, int]
"""A row, a column, and how many of the one go to how many of the other."""

TOO_MANY_TO_ASSIGN = "so many different calls of one tool that only the first expectations got the best calls left"


def assign(costs: Costs) -> list[tuple[int, int]]:
    """As many pairs of row and column as can be, and of those choices the cheapest. Sorted by row.

    Takes time in proportion to the longer side and the square of the shorter one.
    """
    if not costs:
        return []
    flows = assign_multiset(costs, [1] * len(costs), [1] * len(costs[0]), WorkBudget())
    return [(row, column) for row, column, _ in flows]


def assign_multiset(costs: Costs, rows: Sequence[int], columns: Sequence[int], budget: WorkBudget) -> list[Flow]:
    """The same where each row and each column stands for so many equal ones.

    Where `effort` does not cover the work, the rows that are left take the cheapest columns that are left.
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
    """What the only row takes."""
    flows = []
    for _, column in sorted((cost, column) for column, cost in enumerate(costs) if cost is not None):
        taken = min(amount, columns[column])
        flows.append((0, column, taken))
        amount -= taken
        if not amount:
            break
    return flows


def prefix_gains(gains: Sequence[Sequence[int]]) -> Iterator[int]:
    """The greatest gain that the first row can make, the first two rows, and so on; no row has to be paired."""
    alone = len(gains[0])  # a column worth nothing, with room for every row that stays alone
    matrix = [[*(-gain for gain in row), 0] for row in gains]
    for owners in _successive_shortest_paths(matrix, [1] * len(gains), [*repeat(1, alone), len(gains)], WorkBudget()):
        yield -sum(matrix[row][column] for column, shares in enumerate(owners) for row in shares)


_ColumnOwners = list[dict[int, int]]
"""For every column the rows that own it, each with how much of it they own."""


def _successive_shortest_paths(
    costs: Sequence[Sequence[int]], rows: Sequence[int], columns: Sequence[int], budget: WorkBudget
) -> Iterator[_ColumnOwners]:
    """After each row, the best assignment of the rows so far. There must be room for all rows.

    Each row goes to a column along the shortest path through the columns that are full; potentials keep the costs on
    that path from being negative.
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
    """The way from a row to a column with room: each row on it with the column that it goes to, the last one first."""
    row_potential, column_potential = potentials
    distance = [cost - potential for cost, potential in zip(costs[row], column_potential, strict=True)]
    ahead = list(range(len(room)))
    if not budget.try_spend(len(ahead)):
        budget.mark_incomplete(TOO_MANY_TO_ASSIGN)
        ahead = [column for column in ahead if room[column]]
    reached_by = [row] * len(room)
    entered: dict[int, int] = {row: -1}  # rows on the way, each with the column whose owner it is
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
    """Let everybody along a path move on by one column, as many as can; how many."""
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
