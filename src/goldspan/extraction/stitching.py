"""Requests that their trace does not show: several in one trace, and one over several traces.

Only what no agent and no application marks is looked at. The history that each turn of a model repeats tells which
turns are one request; the ids of calls, or the words of the user, tell what else belongs to it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from goldspan.extraction.calls import JITTER_NS, asks_for, call_of
from goldspan.extraction.cutting import Portion
from goldspan.extraction.dialogues import Dialogue, Thread, calls_since_asked, dialogues, history, ids_in, threads
from goldspan.extraction.names import fold
from goldspan.extraction.reading import MARKS, Written
from goldspan.extraction.tree import Node

_CANDIDATES = 50
"""How many of those that are alike are tried, the latest first."""


def parts(portion: Portion) -> list[Portion]:
    """The requests in an unmarked portion: one, unless the same agent was asked several things in it."""
    if portion.marked or portion.root is None or portion.root.role == "model":
        return [portion]
    asked = [thread for thread in threads(dialogues(portion.nodes)) if thread.above is None]
    requests = [thread for thread in asked if thread.followed or thread.calls_tools]
    if len(requests) < 2 or not _same_agent(requests):
        return [portion]
    found = {thread: Portion("request", None, [], thread.turns[0].node.span.span_id, split=True) for thread in requests}
    for node in portion.nodes:
        if node is not portion.root and (owner := _owner(node, requests)) is not None:
            found[owner].nodes.append(node)
    return [found[thread] for thread in requests]


def stitch(portions: Iterable[Portion]) -> list[Portion]:
    """Join the portions of several traces that are one request."""
    whole: list[Portion] = []
    lone: list[Portion] = []
    of_trace: dict[str, int] = {}
    given = list(portions)
    for portion in given:
        of_trace[_trace(portion)] = of_trace.get(_trace(portion), 0) + 1
    for portion in given:
        (lone if _is_lone(portion) and of_trace[_trace(portion)] == 1 else whole).append(portion)
    joined = whole + (_Gathering(lone).portions() if len(lone) > 1 else lone)
    place = {portion.nodes[0].span.trace_id: at for at, portion in reversed(list(enumerate(given)))}
    return sorted(joined, key=lambda portion: place[portion.nodes[0].span.trace_id])


def _same_agent(found: list[Thread]) -> bool:
    """Whether all threads obey the same instructions on different words; a chain of prompts is one request."""
    return len({thread.turns[0].instructions for thread in found}) == 1 and len({t.users for t in found}) == len(found)


def _owner(node: Node, requests: list[Thread]) -> Thread | None:
    """The request that a span is part of: by its own turn, the tool that was asked for, or else the last one begun."""
    begun = [thread for thread in requests if thread.turns[0].node.place <= node.place]
    for thread in requests:
        if any(turn.node.contains(node) for turn in thread.turns):
            return thread
    if node.role == "tool":
        asking = [thread for thread in begun if any(asks_for(turn, node) for turn in thread.turns)]
        begun = asking or begun
    return begun[-1] if begun else requests[0]


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


class _Gathering:
    """Lone portions and what joins them."""

    def __init__(self, lone: list[Portion]) -> None:
        self.lone = sorted(lone, key=lambda portion: portion.nodes[0].place)
        self._of_node = {node: portion for portion in lone for node in portion.nodes}
        self._joined: dict[Portion, Portion] = {}

    def portions(self) -> list[Portion]:
        """One portion a request."""
        self._join_to_frames()
        self._join_answers()
        self._join_calls()
        self._join_turns()
        self._join_tools()
        self._join_sessions()
        groups: dict[int, list[Portion]] = {}
        for portion in self.lone:
            groups.setdefault(id(self._top(portion)), []).append(portion)
        return [_merged(group) for group in groups.values()]

    def _top(self, portion: Portion) -> Portion:
        while (above := self._joined.get(portion)) is not None:
            portion = above
        return portion

    def _join(self, portion: Portion, other: Portion) -> None:
        top, earlier = self._top(portion), self._top(other)
        if top is not earlier:
            self._joined[top] = earlier

    def _join_to_frames(self) -> None:
        """Pieces inside the time of a graph or agent that knows their call ids, or was asked with the same words."""
        frames = [portion for portion in self.lone if _role(portion) in MARKS]
        if not frames:
            return
        of_id: dict[str, list[Portion]] = {}
        of_words: dict[str, list[Portion]] = {}
        for frame in frames:
            for call_id in _ids(frame):
                of_id.setdefault(call_id, []).append(frame)
            if words := _words(frame):
                of_words.setdefault(words, []).append(frame)
        for portion in self.lone:
            known = [frame for call_id in sorted(_ids(portion)) for frame in of_id.get(call_id, ())]
            alike = of_words.get(_words(portion) or "", ())
            doing = frames if _role(portion) == "tool" else ()
            asking = [frame for frame in doing[-_CANDIDATES:] if _asked_in(frame, portion)]
            for candidates in (known, alike[-_CANDIDATES:], asking):
                around = [frame for frame in candidates if frame is not portion and _encloses(frame, portion)]
                if around:
                    self._join(portion, max(around, key=_extent))
                    break

    def _join_answers(self) -> None:
        """Two spans of one call of a model, which its response's id tells."""
        known: dict[str, Portion] = {}
        for portion in self.lone:
            response = portion.nodes[0].reading.call_id if _role(portion) == "model" else None
            if response and known.setdefault(response, portion) is not portion:
                self._join(portion, known[response])

    def _join_calls(self) -> None:
        """Pieces that were asked with the same words and know the same call."""
        known: dict[tuple[str, str], Portion] = {}
        for portion in self.lone:
            words = _words(portion)
            if words is None:
                continue
            for call_id in (call.call_id for call in calls_since_asked(history(portion.nodes[0])) if call.call_id):
                self._join(portion, known.setdefault((words, call_id), portion))

    def _join_turns(self) -> None:
        """Turns of a model that repeat each other's history, and the sub-agents that they started."""
        free = [portion for portion in self.lone if _role(portion) == "model"]
        turns = dialogues(node for portion in free for node in portion.nodes)
        for thread in threads(turns):
            first = self._of_node[(thread.above or thread).turns[0].node]
            for turn in thread.turns:
                self._join(self._of_node[turn.node], first)

    def _join_tools(self) -> None:
        """Tools that a turn before them asked for."""
        asked: dict[str, list[Dialogue]] = {}
        for turn in dialogues(node for portion in self.lone for node in portion.nodes):
            for call in turn.calls:
                asked.setdefault(call.call_id or fold(call.name), []).append(turn)
        for portion in self.lone:
            if _role(portion) != "tool" or portion in self._joined:
                continue
            tool = portion.nodes[0]
            made = call_of(tool)
            known = asked.get(made.call_id or "", []) or asked.get(fold(made.name), [])
            fitting = [turn for turn in known[-_CANDIDATES:] if asks_for(turn, tool)]
            if fitting:
                self._join(portion, self._of_node[fitting[-1].node])

    def _join_sessions(self) -> None:
        """Tools that nothing else joins: the session they name gathers them."""
        last: dict[str, Portion] = {}
        for portion in self.lone:
            session = portion.nodes[0].reading.session_id
            if session is None:
                continue
            if _role(portion) != "tool":
                last[session] = portion
            elif portion not in self._joined and last.setdefault(session, portion) is not portion:
                self._join(portion, last[session])


def _role(portion: Portion) -> str | None:
    return portion.root.role if portion.root is not None else None


def _merged(group: list[Portion]) -> Portion:
    if len(group) == 1:
        return group[0]
    frames = [portion for portion in group if _role(portion) in MARKS]
    first = max(frames, key=_extent) if frames else group[0]
    return replace(first, nodes=[node for portion in group for node in portion.nodes])


def _asked_in(frame: Portion, tool: Portion) -> bool:
    """Whether the history of a frame has a call with the arguments of a tool."""
    made = call_of(tool.nodes[0])
    asked = (Written(call.arguments) for call in calls_since_asked(history(frame.nodes[0])))
    return any(made.same_values(arguments) for arguments in asked)


def _ids(portion: Portion) -> frozenset[str]:
    node = portion.nodes[0]
    own = call_of(node).call_id if node.role == "tool" else None
    return frozenset(ids_in(history(node))).union((own,) if own else ())


def _words(portion: Portion) -> str | None:
    said = (message.text for message in reversed(history(portion.nodes[0])) if message.from_user)
    return next(said, None)


def _encloses(frame: Portion, portion: Portion) -> bool:
    outer, inner = frame.nodes[0].span, portion.nodes[0].span
    if outer.start_ns is None or outer.end_ns is None or inner.start_ns is None or inner.end_ns is None:
        return False
    return (
        outer.start_ns <= inner.start_ns + JITTER_NS
        and inner.end_ns <= outer.end_ns + JITTER_NS
        and _extent(frame) > _extent(portion)
    )


def _extent(portion: Portion) -> tuple[int, str]:
    span = portion.nodes[0].span
    return ((span.end_ns or 0) - (span.start_ns or 0), span.span_id)
