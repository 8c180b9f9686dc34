"""Tools that lost the context of their request, as in a thread of a pool: what they did is a trace of its own.

The id of a conversation, or the one that a runtime gives to a request, tells whose they were where exactly one request
that has it was at work when they started.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass

from goldspan.extraction.cutting import Portion
from goldspan.extraction.tree import Node


def gathered(portions: list[Portion]) -> list[Portion]:
    """The portions but those of tools alone that belong to another one, to which their spans are given; order stays."""
    strays = [portion for portion in portions if _strayed(portion)]
    if not strays or len(strays) == len(portions):
        return portions
    known = set(strays)
    requests = _Requests([portion for portion in portions if portion not in known and not _is_turn(portion)])
    given: set[Portion] = set()
    for stray in sorted(strays, key=lambda portion: (portion.nodes[0].place, _trace(portion))):
        request = requests.around(stray)
        if request is not None:
            request.nodes.extend(stray.nodes)
            given.add(stray)
    return [portion for portion in portions if portion not in given]


def _trace(portion: Portion) -> str:
    return portion.nodes[0].span.trace_id


def _strayed(portion: Portion) -> bool:
    """Whether nobody is at work in a trace but tools, and those whom tools call."""
    if portion.marked or portion.split:
        return False
    working = [node.role for node in portion.nodes if node.owner is None and node.role is not None]
    return "tool" in working and "model" not in working


def _is_turn(portion: Portion) -> bool:
    """Whether a trace is a single call of a model: what it asked for tells whose tools are whose better than time."""
    return portion.root is not None and portion.root.role == "model"


@dataclass(frozen=True, slots=True)
class _Extent:
    """A request, and the time from its first span to its last."""

    portion: Portion
    start_ns: int
    end_ns: int


class _Requests:
    """The requests by the ids that they have."""

    def __init__(self, portions: list[Portion]) -> None:
        self._of_id: dict[Hashable, list[_Extent]] = {}
        for portion in portions:
            starts = [node.span.start_ns for node in portion.nodes if node.span.start_ns is not None]
            ends = [node.span.end_ns for node in portion.nodes if node.span.end_ns is not None]
            if starts and ends:
                extent = _Extent(portion, min(starts), max(ends))
                for key in dict.fromkeys(_ids(portion)):
                    self._of_id.setdefault(key, []).append(extent)

    def around(self, stray: Portion) -> Portion | None:
        """The only request with an id of the tools that was at work when they started."""
        start = min((node.span.start_ns for node in stray.nodes if node.span.start_ns is not None), default=None)
        if start is None:
            return None
        for key in dict.fromkeys(_ids(stray)):
            at_work = [each for each in self._of_id.get(key, ()) if each.start_ns <= start <= each.end_ns]
            if at_work:
                return at_work[0].portion if len(at_work) == 1 else None
        return None


def _ids(portion: Portion) -> Iterator[Hashable]:
    """The ids by which the spans of one service may know each other, the closest first."""
    around: list[Node] = [*portion.nodes, *portion.nodes[0].ancestors()]
    for node in around:
        if node.reading.request_id:
            yield "request", node.span.service, node.reading.request_id
    for node in around:
        if node.reading.session_id:
            yield "session", node.span.service, node.reading.session_id
