"""The best alignment where slots stand side by side and calls overlap: one sweep over the calls, remembering little.

What the calls so far leave open is told by a few things only: the stage that no later call may go before, the stages
that calls still running will set when they have ended, and the slots from there on that are taken. Ways that leave the
same open are one; of those the most valuable is kept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeAlias

from goldspan.scoring.pairing.effort import Effort
from goldspan.scoring.pairing.timeline import Timeline

_STEPS_A_WAY = 12  # what following one way by one pair costs, in steps of `Effort`
_FEWEST = 4  # following fewer ways than these is not worth while


class _State(NamedTuple):
    """What is still open."""

    floor: int
    """The stage that no later call may go before."""
    running: tuple[tuple[int, int], ...]
    """Of calls that may overlap later ones: the index of the call from which on they count as ended, and their stage.
    Ascending in both; what an earlier ended call of a later stage makes needless is left out."""
    taken: int
    """The slots that are taken, as bits; only those that matter from here on."""


_Way: TypeAlias = "tuple[int, _Way | None, int, int]"
"""What it is worth, what came before, and the last pair: its slot and its call."""


def sweep(
    gains: Sequence[Mapping[int, int]], stages: Sequence[int], line: Timeline, effort: Effort
) -> tuple[dict[int, int], bool]:
    """The most valuable pairs (slot to call) that are in order, and whether they are certainly that.

    Where there are more ways than `effort` covers, only the most valuable ones are followed.
    """
    offers = _offers(gains, line)
    most = effort.left // (2 * _STEPS_A_WAY * (sum(map(len, offers)) + len(offers)) + 1)
    if most < _FEWEST:
        return {}, False
    whole = True
    open_later = _open_later(offers)
    in_stage = _in_stage(stages)
    ways: dict[_State, _Way] = {_State(0, (), 0): (0, None, -1, -1)}
    for at, offered in enumerate(offers):
        effort.left -= len(ways) * (len(offered) + 1) * _STEPS_A_WAY
        further: dict[_State, _Way] = {}
        for state, way in ways.items():
            floor, running = _ended(state, at)
            _keep(further, _settled(floor, running, state.taken, open_later[at], in_stage), way)
            for slot, gain in offered:
                stage = stages[slot]
                if stage < floor or state.taken >> slot & 1:
                    continue
                then = _running(running, floor, line.ended[at], stage)
                settled = _settled(floor, then, state.taken | 1 << slot, open_later[at], in_stage)
                _keep(further, settled, (way[0] + gain, way, slot, line.calls[at]))
        ways, whole = _pruned(further, most, whole)
    return _pairs(max(ways.values(), key=lambda way: way[0])), whole


def _offers(gains: Sequence[Mapping[int, int]], line: Timeline) -> list[list[tuple[int, int]]]:
    """For each call the slots that it may answer, with what that is worth."""
    offers: dict[int, list[tuple[int, int]]] = {call: [] for call in line.calls}
    for slot, row in enumerate(gains):
        for call, gain in row.items():
            offers[call].append((slot, gain))
    return list(offers.values())


def _open_later(offers: Sequence[Sequence[tuple[int, int]]]) -> list[int]:
    """For each call the slots, as bits, that calls after it may answer."""
    found, so_far = [], 0
    for offered in reversed(offers):
        found.append(so_far)
        for slot, _ in offered:
            so_far |= 1 << slot
    return found[::-1]


def _in_stage(stages: Sequence[int]) -> list[int]:
    """For each stage its slots, as bits."""
    found = [0] * (max(stages, default=0) + 1)
    for slot, stage in enumerate(stages):
        found[stage] |= 1 << slot
    return found


def _ended(state: _State, at: int) -> tuple[int, tuple[tuple[int, int], ...]]:
    """The floor and the running calls when the call of that index begins."""
    floor, running = state.floor, state.running
    while running and running[0][0] <= at:
        floor, running = max(floor, running[0][1]), running[1:]
    return floor, running


def _running(running: tuple[tuple[int, int], ...], floor: int, ended: int, stage: int) -> tuple[tuple[int, int], ...]:
    if stage <= floor or any(other <= ended and over >= stage for other, over in running):
        return running
    kept = [one for one in running if not (one[0] >= ended and one[1] <= stage)]
    return tuple(sorted([*kept, (ended, stage)]))


def _settled(
    floor: int, running: tuple[tuple[int, int], ...], taken: int, open_later: int, in_stage: Sequence[int]
) -> _State:
    """The state without what no longer matters: ways that differ in nothing else are one."""
    while floor < len(in_stage) and not in_stage[floor] & open_later & ~taken:
        floor += 1
    below = in_stage[floor] & -in_stage[floor] if floor < len(in_stage) else 0
    taken &= open_later & -below if below else 0
    return _State(floor, tuple(one for one in running if one[1] > floor), taken)


def _keep(ways: dict[_State, _Way], state: _State, way: _Way) -> None:
    known = ways.get(state)
    if known is None or way[0] > known[0]:
        ways[state] = way


def _pruned(ways: dict[_State, _Way], most: int, whole: bool) -> tuple[dict[_State, _Way], bool]:
    """The ways that may still be the best, and whether they are all of those."""
    kept: dict[_State, _Way] = {}
    lowest = None  # the floor of a way that is worth no less and leaves everything from there on open
    for state, way in sorted(ways.items(), key=lambda item: (-item[1][0], item[0])):
        if lowest is not None and state.floor >= lowest and state not in kept:
            continue
        if len(kept) == most:
            return kept, False
        kept[state] = way
        if not state.taken and not state.running:
            lowest = state.floor
    return kept, whole


def _pairs(way: _Way) -> dict[int, int]:
    pairs: dict[int, int] = {}
    step: _Way | None = way
    while step is not None and step[1] is not None:
        _, before, slot, call = step
        pairs[slot] = call
        step = before
    return pairs
