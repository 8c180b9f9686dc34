"""The cheapest one-to-one assignment: the Hungarian algorithm with potentials, exact on integers of any size."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

Costs = Sequence[Sequence[int | None]]
"""What each row (an expectation) would pay for each column (a call); `None`: they cannot be paired."""


_NOBODY = -1


def assign(costs: Costs) -> list[tuple[int, int]]:
    """As many pairs of row and column as can be, and of those choices the cheapest. Sorted by row.

    Takes time in proportion to the longer side and the square of the shorter one.
    """
    if not costs or not costs[0]:
        return []
    if len(costs) > len(costs[0]):
        flipped = assign([[row[column] for row in costs] for column in range(len(costs[0]))])
        return sorted((row, column) for column, row in flipped)
    never = 1 + 2 * sum(abs(cost) for row in costs for cost in row if cost is not None)
    *_, owners = _solve([[never if cost is None else cost for cost in row] for row in costs])
    pairs = sorted((row, column) for column, row in enumerate(owners) if row != _NOBODY)
    return [(row, column) for row, column in pairs if costs[row][column] is not None]


def prefix_gains(gains: Sequence[Sequence[int]]) -> Iterator[int]:
    """The greatest gain that the first row can make, the first two rows, and so on; no row has to be paired."""
    # A column of its own, worth nothing, lets each row stay alone.
    matrix = [[-gain for gain in row] + [0] * len(gains) for row in gains]
    for owners in _solve(matrix):
        yield -sum(matrix[row][column] for column, row in enumerate(owners) if row != _NOBODY)


def _solve(costs: Sequence[Sequence[int]]) -> Iterator[list[int]]:
    """After each row, the best assignment of the rows so far: for every column the row that owns it, or `_NOBODY`.

    There must be at least as many columns as rows. Each new row gets a column along the shortest path through the
    columns owned so far; potentials keep the costs on that path from being negative.
    """
    width = len(costs[0])
    owners = [_NOBODY] * width
    row_potential = [0] * len(costs)
    column_potential = [0] * width
    for row, own_costs in enumerate(costs):
        distance = [cost - potential for cost, potential in zip(own_costs, column_potential, strict=True)]
        came_from = [_NOBODY] * width
        ahead, passed = list(range(width)), []
        while owners[column := min(ahead, key=distance.__getitem__)] != _NOBODY:
            ahead.remove(column)
            passed.append(column)
            owner = owners[column]
            owner_costs, so_far = costs[owner], distance[column] - row_potential[owner]
            for other in ahead:
                through = so_far + owner_costs[other] - column_potential[other]
                if through < distance[other]:
                    distance[other], came_from[other] = through, column
        row_potential[row] = distance[column]
        for behind in passed:
            row_potential[owners[behind]] += distance[column] - distance[behind]
            column_potential[behind] -= distance[column] - distance[behind]
        while came_from[column] != _NOBODY:  # everybody along the path moves on by one column
            owners[column] = owners[came_from[column]]
            column = came_from[column]
        owners[column] = row
        yield owners
