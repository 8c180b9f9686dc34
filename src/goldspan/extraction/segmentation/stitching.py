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

from goldspan.content.parts import Message, RequestedCall
from goldspan.conventions.span_facts import REQUEST_ROLES
from goldspan.extraction.model_turns import (
    TurnSequence,
    call_ids_in,
    calls_since_user,
    find_model_turns,
    full_history,
    group_turns,
    input_history,
)
from goldspan.extraction.observed_calls import argument_fingerprint, call_from_span, raw_value
from goldspan.extraction.segmentation.boundaries import RunSpans
from goldspan.extraction.segmentation.detached_traces import attach_detached_tools, attach_servers
from goldspan.extraction.span_tree import CLOCK_TOLERANCE_NS, SpanNode
from goldspan.extraction.turn_attribution import RequestedCallIndex

_MAX_CANDIDATES = 50
"""How many graphs or agents that are alike, and at work at the same time, are told apart."""


def split_by_history(portion: RunSpans) -> list[RunSpans]:
    """The requests in an unmarked portion: one, unless the same agent was asked several things in it."""
    if portion.is_marked or (portion.root is not None and portion.root.role == "model"):
        return [portion]
    every = group_turns(find_model_turns(portion.nodes))
    requests = [
        thread for thread in every if not _is_sub_agent(thread) and (thread.in_conversation or thread.requests_tools)
    ]
    if len(requests) < 2 or not _is_same_agent(requests):
        return [portion]
    found = {
        thread: RunSpans("request", None, [], thread.turns[0].node.span.span_id, is_split=True) for thread in requests
    }
    owner = _owners(portion.nodes, every, requests)
    for node in portion.nodes:
        if node is not portion.root or node.role == "tool":
            found[owner[node]].nodes.append(node)
    return [found[thread] for thread in requests]


def stitch_traces(portions: Iterable[RunSpans]) -> list[RunSpans]:
    """Join the portions of several traces that are one request."""
    whole: list[RunSpans] = []
    lone: list[RunSpans] = []
    of_trace: dict[str, int] = {}
    given = list(portions)
    if len(given) < 2:
        return given
    for portion in given:
        of_trace[_trace_id(portion)] = of_trace.get(_trace_id(portion), 0) + 1
    for portion in given:
        (lone if _is_single_step(portion) and of_trace[_trace_id(portion)] == 1 else whole).append(portion)
    lone = attach_servers(lone, whole)
    left = set(attach_detached_tools([*whole, *lone]))
    whole, lone = [portion for portion in whole if portion in left], [portion for portion in lone if portion in left]
    joined = whole + (_FragmentJoiner(lone).join() if len(lone) > 1 else lone)
    place = {portion.nodes[0].span.trace_id: at for at, portion in reversed(list(enumerate(given)))}
    return sorted(joined, key=lambda portion: place[portion.nodes[0].span.trace_id])


def _is_sub_agent(thread: TurnSequence) -> bool:
    """Whether a thread is the work of a tool: of one whose call started it, or above its span."""
    return thread.parent is not None or any(above.role == "tool" for above in thread.turns[0].node.ancestors())


def _is_same_agent(found: list[TurnSequence]) -> bool:
    """Whether all threads obey the same instructions on different words; a chain of prompts is one request."""
    return len({thread.turns[0].system_texts for thread in found}) == 1 and len({t.user_texts for t in found}) == len(
        found
    )


def _owners(
    nodes: list[SpanNode], every: list[TurnSequence], requests: list[TurnSequence]
) -> dict[SpanNode, TurnSequence]:
    """The request that each span is part of: by a turn, the tool that was asked for, or else the last one begun."""
    tops = {thread: thread for thread in requests}
    for thread in every:
        if thread.parent in tops:
            tops[thread] = tops[thread.parent]
    asked = RequestedCallIndex.from_turns(turn for thread in tops for turn in thread.turns)
    starts = [thread.turns[0].node.start for thread in requests]
    owner = {turn.node: top for thread, top in tops.items() for turn in thread.turns}
    for node in nodes:
        if node not in owner and node.parent in owner:
            owner[node] = owner[node.parent]
    left = [node for node in nodes if node not in owner]
    turns = asked.match_tools(node for node in left if node.role == "tool")
    for node in left:
        begun = max(bisect_right(starts, node.start) - 1, 0)
        owner[node] = owner[turns[node].node] if node in turns else requests[begun]
    return owner


def _trace_id(portion: RunSpans) -> str:
    return portion.nodes[0].span.trace_id


def _is_single_step(portion: RunSpans) -> bool:
    """Whether a portion is one piece of work without a request around it: a model's turn, a tool, a graph's node."""
    root = portion.root
    if root is None or root.parent is not None:
        return False
    if root.role == "model":
        return True
    return len(portion.nodes) == 1 and (root.role == "tool" or root.role in REQUEST_ROLES)


class _Fragment:
    """A lone portion, and what it knows: read once."""

    def __init__(self, portion: RunSpans) -> None:
        self.portion = portion
        self.node = portion.nodes[0]
        self.role = portion.root.role if portion.root is not None else None
        self.is_frame = self.role in REQUEST_ROLES
        self.start = self.node.span.start_ns
        self.end = self.node.span.end_ns

    @cached_property
    def calls(self) -> list[RequestedCall]:
        """The calls of the present request that it shows."""
        return calls_since_user(self._history)

    @cached_property
    def call_ids(self) -> frozenset[str]:
        """The ids of all calls that it knows or made."""
        own = call_from_span(self.node).call_id if self.role == "tool" else None
        return frozenset(call_ids_in(self._history)).union((own,) if own else ())

    @cached_property
    def last_user_text(self) -> str | None:
        """What the user said last."""
        return next((message.text for message in reversed(self._history) if message.is_from_user), None)

    @cached_property
    def _history(self) -> list[Message]:
        return full_history(self.node)

    @property
    def duration_key(self) -> tuple[int, str]:
        """Sort key: how long it took."""
        return ((self.end or 0) - (self.start or 0), self.node.span.span_id)

    def encloses(self, other: _Fragment) -> bool:
        """Whether another piece, a shorter one, was at work within the time of this one."""
        if self.start is None or self.end is None or other.start is None or other.end is None:
            return False
        within = self.start <= other.start + CLOCK_TOLERANCE_NS and other.end <= self.end + CLOCK_TOLERANCE_NS
        return within and self.duration_key > other.duration_key

    def overlaps(self, other: _Fragment) -> bool:
        """Whether two pieces were at work at the same time."""
        if self.start is None or self.end is None or other.start is None or other.end is None:
            return False
        return self.start <= other.end and other.start <= self.end


class _OpenFrames:
    """The graphs and agents that are at work, as time goes on, by what they know."""

    def __init__(self, frames: Iterable[_Fragment]) -> None:
        self._coming = deque(sorted((f for f in frames if f.start is not None), key=lambda frame: frame.start or 0))
        self._open: dict[Hashable, list[_Fragment]] = {}

    def find_enclosing(self, piece: _Fragment) -> _Fragment | None:
        """The longest of those that enclose a piece and know one of its calls, or else were asked the same words."""
        if piece.start is None:
            return None
        self._begin(piece.start + CLOCK_TOLERANCE_NS)
        for keys in ({("id", call_id) for call_id in piece.call_ids}, _text_keys(piece), _argument_keys(piece)):
            alike = (frame for key in keys for frame in self._still_open(key, piece.start - CLOCK_TOLERANCE_NS))
            enclosing = (frame for frame in alike if frame is not piece and frame.encloses(piece))
            found = max(enclosing, key=lambda frame: frame.duration_key, default=None)
            if found is not None:
                return found
        return None

    def _begin(self, until: int) -> None:
        while self._coming and (begun := self._coming[0].start or 0) <= until:
            frame = self._coming.popleft()
            keys: set[Hashable] = {("id", call_id) for call_id in frame.call_ids}
            keys |= {("deed", argument_fingerprint(raw_value(call.arguments))) for call in frame.calls}
            for key in (*keys, ("words", frame.last_user_text)):
                still_open = self._still_open(key, begun - CLOCK_TOLERANCE_NS)
                if len(still_open) < _MAX_CANDIDATES:
                    still_open.append(frame)

    def _still_open(self, key: Hashable, since: int) -> list[_Fragment]:
        left = [frame for frame in self._open.get(key, ()) if (frame.end or 0) >= since]
        self._open[key] = left
        return left


def _text_keys(piece: _Fragment) -> list[Hashable]:
    return [("words", piece.last_user_text)] if piece.last_user_text else []


def _argument_keys(piece: _Fragment) -> list[Hashable]:
    """What a tool did, as one who asked for it without an id would know it: its arguments."""
    made = call_from_span(piece.node).arguments if piece.role == "tool" else None
    return [] if made is None else [("deed", argument_fingerprint(made))]


class _FragmentJoiner:
    """Lone portions and what joins them."""

    def __init__(self, lone: list[RunSpans]) -> None:
        self.pieces = [_Fragment(portion) for portion in sorted(lone, key=lambda portion: portion.nodes[0].sort_key)]
        self._turns = find_model_turns(node for piece in self.pieces for node in piece.portion.nodes)
        self._of_node = {node: piece for piece in self.pieces for node in piece.portion.nodes}
        self._joined: dict[_Fragment, _Fragment] = {}

    def join(self) -> list[RunSpans]:
        """One portion a request."""
        self._join_to_frames()
        self._join_answers()
        self._join_calls()
        self._join_turns()
        self._join_tools()
        self._join_sessions()
        groups: dict[_Fragment, list[_Fragment]] = {}
        for piece in self.pieces:
            groups.setdefault(self._top(piece), []).append(piece)
        return [_merge_fragments(group) for group in groups.values()]

    def _top(self, piece: _Fragment) -> _Fragment:
        path: list[_Fragment] = []
        while (above := self._joined.get(piece)) is not None:
            path.append(piece)
            piece = above
        for step in path:
            self._joined[step] = piece
        return piece

    def _join(self, piece: _Fragment, other: _Fragment) -> None:
        top, earlier = self._top(piece), self._top(other)
        if top is not earlier:
            self._joined[top] = earlier

    def _join_to_frames(self) -> None:
        """Pieces inside the time of a graph or agent that knows what they did, or was asked with the same words."""
        frames = _OpenFrames(piece for piece in self.pieces if piece.is_frame)
        for piece in self.pieces:
            around = frames.find_enclosing(piece)
            if around is not None:
                self._join(piece, around)

    def _join_answers(self) -> None:
        """Two spans of one call of a model, which its response's id tells. Answers out of a cache repeat their ids."""
        known: dict[str, _Fragment] = {}
        for piece in self.pieces:
            response = piece.node.facts.call_id if piece.role == "model" else None
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
        known: dict[tuple[str, str], _Fragment] = {}
        for piece in self.pieces:
            words = piece.last_user_text
            if words is None:
                continue
            remembered = frozenset(call_ids_in(input_history(piece.node)))
            for call_id in (call.call_id for call in piece.calls if call.call_id):
                before = known.setdefault((words, call_id), piece)
                if call_id in remembered or before.overlaps(piece):
                    self._join(piece, before)
                else:
                    known[words, call_id] = piece

    def _join_turns(self) -> None:
        """Turns of a model that repeat each other's history, and the sub-agents that they started."""
        for thread in group_turns(self._turns):
            first = self._of_node[(thread.parent or thread).turns[0].node]
            for turn in thread.turns:
                self._join(self._of_node[turn.node], first)

    def _join_tools(self) -> None:
        """Tools that a turn before them asked for or, where that turn is lost, that a later one has in its history."""
        tools = [piece for piece in self.pieces if piece.role == "tool" and piece not in self._joined]
        if not tools or not self._turns:
            return
        asked = RequestedCallIndex.from_turns(self._turns)
        nodes = [piece.node for piece in tools]
        found = asked.match_tools(nodes, allow_retries=False, require_certain=True)
        left = [node for node in nodes if node not in found]
        if left:
            known = RequestedCallIndex.from_histories(self._turns)
            found |= {node: turn for node in left if (turn := known.match_later_turn(node)) is not None}
            for again in (False, True):
                found |= asked.match_tools((node for node in left if node not in found), allow_retries=again)
        for node, turn in found.items():
            self._join(self._of_node[node], self._of_node[turn.node])

    def _join_sessions(self) -> None:
        """Tools that nothing else joins: the session they name gathers them."""
        last: dict[str, _Fragment] = {}
        for piece in self.pieces:
            session = piece.node.facts.session_id
            if session is None:
                continue
            if piece.role != "tool":
                last[session] = piece
            elif piece not in self._joined and last.setdefault(session, piece) is not piece:
                self._join(piece, last[session])


def _merge_fragments(group: list[_Fragment]) -> RunSpans:
    if len(group) == 1:
        return group[0].portion
    first = max((piece for piece in group if piece.is_frame), key=lambda piece: piece.duration_key, default=group[0])
    return replace(first.portion, nodes=[node for piece in group for node in piece.portion.nodes])
