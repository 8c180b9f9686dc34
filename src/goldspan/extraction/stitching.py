"""Requests that their trace does not show: several in one trace, and one over several traces.

Only what no agent and no application marks is looked at. The history that each turn of a model repeats tells which
turns are one request; the ids of calls, or the words of the user, tell what else belongs to it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Hashable, Iterable
from dataclasses import replace
from functools import cached_property

from goldspan.extraction.asking import Requests
from goldspan.extraction.calls import call_of, fingerprint, written
from goldspan.extraction.cutting import Portion
from goldspan.extraction.dialogues import Thread, calls_since_asked, dialogues, history, ids_in, threads, told
from goldspan.extraction.reading import MARKS
from goldspan.extraction.servers import without_servers
from goldspan.extraction.spoken import Message, RequestedCall
from goldspan.extraction.straying import gathered
from goldspan.extraction.times import JITTER_NS
from goldspan.extraction.tree import Node

_CANDIDATES = 50
"""How many graphs or agents that are alike, and at work at the same time, are told apart."""


def parts(portion: Portion) -> list[Portion]:
    """The requests in an unmarked portion: one, unless the same agent was asked several things in it."""
    if portion.marked or (portion.root is not None and portion.root.role == "model"):
        return [portion]
    every = threads(dialogues(portion.nodes))
    requests = [thread for thread in every if not _serves(thread) and (thread.followed or thread.calls_tools)]
    if len(requests) < 2 or not _same_agent(requests):
        return [portion]
    found = {thread: Portion("request", None, [], thread.turns[0].node.span.span_id, split=True) for thread in requests}
    owner = _owners(portion.nodes, every, requests)
    for node in portion.nodes:
        if node is not portion.root or node.role == "tool":
            found[owner[node]].nodes.append(node)
    return [found[thread] for thread in requests]


def stitch(portions: Iterable[Portion]) -> list[Portion]:
    """Join the portions of several traces that are one request."""
    whole: list[Portion] = []
    lone: list[Portion] = []
    of_trace: dict[str, int] = {}
    given = list(portions)
    if len(given) < 2:
        return given
    for portion in given:
        of_trace[_trace(portion)] = of_trace.get(_trace(portion), 0) + 1
    for portion in given:
        (lone if _is_lone(portion) and of_trace[_trace(portion)] == 1 else whole).append(portion)
    lone = without_servers(lone, whole)
    left = set(gathered([*whole, *lone]))
    whole, lone = [portion for portion in whole if portion in left], [portion for portion in lone if portion in left]
    joined = whole + (_Gathering(lone).portions() if len(lone) > 1 else lone)
    place = {portion.nodes[0].span.trace_id: at for at, portion in reversed(list(enumerate(given)))}
    return sorted(joined, key=lambda portion: place[portion.nodes[0].span.trace_id])


def _serves(thread: Thread) -> bool:
    """Whether a thread is the work of a tool: of one whose call started it, or above its span."""
    return thread.above is not None or any(above.role == "tool" for above in thread.turns[0].node.ancestors())


def _same_agent(found: list[Thread]) -> bool:
    """Whether all threads obey the same instructions on different words; a chain of prompts is one request."""
    return len({thread.turns[0].instructions for thread in found}) == 1 and len({t.users for t in found}) == len(found)


def _owners(nodes: list[Node], every: list[Thread], requests: list[Thread]) -> dict[Node, Thread]:
    """The request that each span is part of: by a turn, the tool that was asked for, or else the last one begun."""
    tops = {thread: thread for thread in requests}
    for thread in every:
        if thread.above in tops:
            tops[thread] = tops[thread.above]
    asked = Requests.asked_by(turn for thread in tops for turn in thread.turns)
    starts = [thread.turns[0].node.start for thread in requests]
    owner = {turn.node: top for thread, top in tops.items() for turn in thread.turns}
    for node in nodes:
        if node not in owner and node.parent in owner:
            owner[node] = owner[node.parent]
    left = [node for node in nodes if node not in owner]
    turns = asked.before_each(node for node in left if node.role == "tool")
    for node in left:
        begun = max(bisect_right(starts, node.start) - 1, 0)
        owner[node] = owner[turns[node].node] if node in turns else requests[begun]
    return owner


def _trace(portion: Portion) -> str:
    return portion.nodes[0].span.trace_id


def _is_lone(portion: Portion) -> bool:
    """Whether a portion is one piece of work without a request around it: a model's turn, a tool, a graph's node."""
    root = portion.root
    if root is None or root.parent is not None:
        return False
    if root.role == "model":
        return True
    return len(portion.nodes) == 1 and (root.role == "tool" or root.role in MARKS)


class _Piece:
    """A lone portion, and what it knows: read once."""

    def __init__(self, portion: Portion) -> None:
        self.portion = portion
        self.node = portion.nodes[0]
        self.role = portion.root.role if portion.root is not None else None
        self.is_frame = self.role in MARKS
        self.start = self.node.span.start_ns
        self.end = self.node.span.end_ns

    @cached_property
    def calls(self) -> list[RequestedCall]:
        """The calls of the present request that it shows."""
        return calls_since_asked(self._history)

    @cached_property
    def ids(self) -> frozenset[str]:
        """The ids of all calls that it knows or made."""
        own = call_of(self.node).call_id if self.role == "tool" else None
        return frozenset(ids_in(self._history)).union((own,) if own else ())

    @cached_property
    def words(self) -> str | None:
        """What the user said last."""
        return next((message.text for message in reversed(self._history) if message.from_user), None)

    @cached_property
    def _history(self) -> list[Message]:
        return history(self.node)

    @property
    def extent(self) -> tuple[int, str]:
        """Sort key: how long it took."""
        return ((self.end or 0) - (self.start or 0), self.node.span.span_id)

    def encloses(self, other: _Piece) -> bool:
        """Whether another piece, a shorter one, was at work within the time of this one."""
        if self.start is None or self.end is None or other.start is None or other.end is None:
            return False
        within = self.start <= other.start + JITTER_NS and other.end <= self.end + JITTER_NS
        return within and self.extent > other.extent

    def overlaps(self, other: _Piece) -> bool:
        """Whether two pieces were at work at the same time."""
        if self.start is None or self.end is None or other.start is None or other.end is None:
            return False
        return self.start <= other.end and other.start <= self.end


class _Frames:
    """The graphs and agents that are at work, as time goes on, by what they know."""

    def __init__(self, frames: Iterable[_Piece]) -> None:
        self._coming = deque(sorted((f for f in frames if f.start is not None), key=lambda frame: frame.start or 0))
        self._open: dict[Hashable, list[_Piece]] = {}

    def around(self, piece: _Piece) -> _Piece | None:
        """The longest of those that enclose a piece and know one of its calls, or else were asked the same words."""
        if piece.start is None:
            return None
        self._begin(piece.start + JITTER_NS)
        for keys in ({("id", call_id) for call_id in piece.ids}, _spoken(piece), _deeds(piece)):
            alike = (frame for key in keys for frame in self._still_open(key, piece.start - JITTER_NS))
            enclosing = (frame for frame in alike if frame is not piece and frame.encloses(piece))
            found = max(enclosing, key=lambda frame: frame.extent, default=None)
            if found is not None:
                return found
        return None

    def _begin(self, until: int) -> None:
        while self._coming and (begun := self._coming[0].start or 0) <= until:
            frame = self._coming.popleft()
            keys: set[Hashable] = {("id", call_id) for call_id in frame.ids}
            keys |= {("deed", fingerprint(written(call.arguments))) for call in frame.calls}
            for key in (*keys, ("words", frame.words)):
                still_open = self._still_open(key, begun - JITTER_NS)
                if len(still_open) < _CANDIDATES:
                    still_open.append(frame)

    def _still_open(self, key: Hashable, since: int) -> list[_Piece]:
        left = [frame for frame in self._open.get(key, ()) if (frame.end or 0) >= since]
        self._open[key] = left
        return left


def _spoken(piece: _Piece) -> list[Hashable]:
    return [("words", piece.words)] if piece.words else []


def _deeds(piece: _Piece) -> list[Hashable]:
    """What a tool did, as one who asked for it without an id would know it: its arguments."""
    made = call_of(piece.node).arguments if piece.role == "tool" else None
    return [] if made is None else [("deed", fingerprint(made))]


class _Gathering:
    """Lone portions and what joins them."""

    def __init__(self, lone: list[Portion]) -> None:
        self.pieces = [_Piece(portion) for portion in sorted(lone, key=lambda portion: portion.nodes[0].place)]
        self._turns = dialogues(node for piece in self.pieces for node in piece.portion.nodes)
        self._of_node = {node: piece for piece in self.pieces for node in piece.portion.nodes}
        self._joined: dict[_Piece, _Piece] = {}

    def portions(self) -> list[Portion]:
        """One portion a request."""
        self._join_to_frames()
        self._join_answers()
        self._join_calls()
        self._join_turns()
        self._join_tools()
        self._join_sessions()
        groups: dict[_Piece, list[_Piece]] = {}
        for piece in self.pieces:
            groups.setdefault(self._top(piece), []).append(piece)
        return [_merged(group) for group in groups.values()]

    def _top(self, piece: _Piece) -> _Piece:
        path: list[_Piece] = []
        while (above := self._joined.get(piece)) is not None:
            path.append(piece)
            piece = above
        for step in path:
            self._joined[step] = piece
        return piece

    def _join(self, piece: _Piece, other: _Piece) -> None:
        top, earlier = self._top(piece), self._top(other)
        if top is not earlier:
            self._joined[top] = earlier

    def _join_to_frames(self) -> None:
        """Pieces inside the time of a graph or agent that knows what they did, or was asked with the same words."""
        frames = _Frames(piece for piece in self.pieces if piece.is_frame)
        for piece in self.pieces:
            around = frames.around(piece)
            if around is not None:
                self._join(piece, around)

    def _join_answers(self) -> None:
        """Two spans of one call of a model, which its response's id tells. Answers out of a cache repeat their ids."""
        known: dict[str, _Piece] = {}
        for piece in self.pieces:
            response = piece.node.reading.call_id if piece.role == "model" else None
            if response:
                before = known.setdefault(response, piece)
                if before is not piece and before.overlaps(piece):
                    self._join(piece, before)
                known[response] = piece

    def _join_calls(self) -> None:
        """Pieces that were asked with the same words and know the same call.

        Some models number their calls anew for each request: who asks for a call under an id whose request is over,
        and does not know it from a history, is at work on another request.
        """
        known: dict[tuple[str, str], _Piece] = {}
        for piece in self.pieces:
            words = piece.words
            if words is None:
                continue
            remembered = frozenset(ids_in(told(piece.node)))
            for call_id in (call.call_id for call in piece.calls if call.call_id):
                before = known.setdefault((words, call_id), piece)
                if call_id in remembered or before.overlaps(piece):
                    self._join(piece, before)
                else:
                    known[words, call_id] = piece

    def _join_turns(self) -> None:
        """Turns of a model that repeat each other's history, and the sub-agents that they started."""
        for thread in threads(self._turns):
            first = self._of_node[(thread.above or thread).turns[0].node]
            for turn in thread.turns:
                self._join(self._of_node[turn.node], first)

    def _join_tools(self) -> None:
        """Tools that a turn before them asked for or, where that turn is lost, that a later one has in its history."""
        tools = [piece for piece in self.pieces if piece.role == "tool" and piece not in self._joined]
        if not tools or not self._turns:
            return
        asked = Requests.asked_by(self._turns)
        nodes = [piece.node for piece in tools]
        found = asked.before_each(nodes, again=False, surely=True)
        left = [node for node in nodes if node not in found]
        if left:
            known = Requests.known_to(self._turns)
            found |= {node: turn for node in left if (turn := known.after(node)) is not None}
            for again in (False, True):
                found |= asked.before_each((node for node in left if node not in found), again=again)
        for node, turn in found.items():
            self._join(self._of_node[node], self._of_node[turn.node])

    def _join_sessions(self) -> None:
        """Tools that nothing else joins: the session they name gathers them."""
        last: dict[str, _Piece] = {}
        for piece in self.pieces:
            session = piece.node.reading.session_id
            if session is None:
                continue
            if piece.role != "tool":
                last[session] = piece
            elif piece not in self._joined and last.setdefault(session, piece) is not piece:
                self._join(piece, last[session])


def _merged(group: list[_Piece]) -> Portion:
    if len(group) == 1:
        return group[0].portion
    first = max((piece for piece in group if piece.is_frame), key=lambda piece: piece.extent, default=group[0])
    return replace(first.portion, nodes=[node for piece in group for node in piece.portion.nodes])
