"""Splits and joins unmarked traces: several requests in one trace, and one request in several traces.

Only work outside of agent and entry spans is considered. Each model turn repeats the history of its request, which
shows the turns that belong together. Call ids and user messages show what else belongs to the request.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, deque
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
from goldspan.extraction.segmentation.detached_tools import attach_detached_tools, attach_servers
from goldspan.extraction.span_node import CLOCK_TOLERANCE_NS, SpanNode
from goldspan.extraction.turn_attribution import RequestedCallIndex

_MAX_CANDIDATES = 50
"""How many graphs or agents with one key, active at the same time, are compared."""


def split_by_history(segment: RunSpans) -> list[RunSpans]:
    """Returns the requests in an unmarked segment: one, unless the same agent received several requests in it."""
    if segment.is_marked or (segment.root is not None and segment.root.role == "model"):
        return [segment]
    turns = segment.turns
    if len({turn.user_texts for turn in turns}) < 2:  # several requests differ in their user messages
        return [segment]
    sequences = group_turns(turns)
    if len(sequences) < 2:
        return [segment]
    requests = [
        sequence
        for sequence in sequences
        if not _is_sub_agent(sequence) and (sequence.in_conversation or sequence.requests_tools)
    ]
    if len(requests) < 2 or not _is_same_agent(requests):
        return [segment]
    parts = {
        sequence: RunSpans("request", None, [], sequence.turns[0].node.span.span_id, is_split=True)
        for sequence in requests
    }
    owner = _owners(segment.nodes, sequences, requests)
    for node in segment.nodes:
        if node is not segment.root or node.role == "tool":
            parts[owner[node]].nodes.append(node)
    return [parts[sequence] for sequence in requests]


def stitch_traces(segments: list[RunSpans]) -> list[RunSpans]:
    """Joins the segments of several traces that are one request, and returns the joined segments in their order."""
    complete: list[RunSpans] = []
    lone: list[RunSpans] = []
    segments_per_trace = Counter(segment.trace_id for segment in segments)
    for segment in segments:
        is_lone = is_single_step(segment) and segments_per_trace[segment.trace_id] == 1
        (lone if is_lone else complete).append(segment)
    lone = attach_servers(lone, complete)
    remaining = set(attach_detached_tools([*complete, *lone]))
    complete = [segment for segment in complete if segment in remaining]
    lone = [segment for segment in lone if segment in remaining]
    joined = complete + (_FragmentJoiner(lone).join() if len(lone) > 1 else lone)
    position = {segment.trace_id: number for number, segment in reversed(list(enumerate(segments)))}
    return sorted(joined, key=lambda segment: position[segment.trace_id])


def _is_sub_agent(sequence: TurnSequence) -> bool:
    """Whether a turn sequence is the work of a tool: a call started it, or a tool span encloses it."""
    return sequence.parent is not None or any(above.role == "tool" for above in sequence.turns[0].node.ancestors())


def _is_same_agent(sequences: list[TurnSequence]) -> bool:
    """Whether all sequences have the same system message and different user messages; a prompt chain is one request."""
    system_texts = {sequence.turns[0].system_texts for sequence in sequences}
    return len(system_texts) == 1 and len({sequence.user_texts for sequence in sequences}) == len(sequences)


def _owners(
    nodes: list[SpanNode], sequences: list[TurnSequence], requests: list[TurnSequence]
) -> dict[SpanNode, TurnSequence]:
    """Maps each span to its request: by its turn, by the turn that requested the tool, else the latest request."""
    tops = {sequence: sequence for sequence in requests}
    for sequence in sequences:
        if sequence.parent in tops:
            tops[sequence] = tops[sequence.parent]
    requested = RequestedCallIndex.from_turns(turn for sequence in tops for turn in sequence.turns)
    starts = [sequence.turns[0].node.start for sequence in requests]
    owner = {turn.node: top for sequence, top in tops.items() for turn in sequence.turns}
    for node in nodes:
        if node not in owner and node.parent in owner:
            owner[node] = owner[node.parent]
    unowned = [node for node in nodes if node not in owner]
    turns = requested.match_tools(node for node in unowned if node.role == "tool")
    for node in unowned:
        latest = max(bisect_right(starts, node.start) - 1, 0)
        owner[node] = owner[turns[node].node] if node in turns else requests[latest]
    return owner


def is_single_step(segment: RunSpans) -> bool:
    """Returns whether a segment is a single step without a request span: a model turn, a tool or a graph node."""
    root = segment.root
    if root is None or root.parent is not None:
        return False
    if root.role == "model":
        return True
    return len(segment.nodes) == 1 and (root.role == "tool" or root.role in REQUEST_ROLES)


class Fragment:
    """A lone segment with the facts that connect it to others; each is computed once."""

    def __init__(self, segment: RunSpans) -> None:
        """Describe a segment that is a single step."""
        self.segment = segment
        self.node = segment.nodes[0]
        self.role = segment.root.role if segment.root is not None else None
        self.is_frame = self.role in REQUEST_ROLES
        self.start = self.node.span.start_ns
        self.end = self.node.span.end_ns

    @cached_property
    def calls(self) -> list[RequestedCall]:
        """The calls of the current request in its history."""
        return calls_since_user(self._history)

    @cached_property
    def call_ids(self) -> frozenset[str]:
        """The ids of all calls in its history, and of the call that it executed."""
        own = call_from_span(self.node).call_id if self.role == "tool" else None
        return frozenset(call_ids_in(self._history)).union((own,) if own else ())

    @cached_property
    def last_user_text(self) -> str | None:
        """The last user message."""
        return next((message.text for message in reversed(self._history) if message.is_from_user), None)

    @cached_property
    def _history(self) -> list[Message]:
        return full_history(self.node)

    @property
    def duration_key(self) -> tuple[int, str]:
        """Sort key: the duration."""
        return ((self.end or 0) - (self.start or 0), self.node.span.span_id)

    def encloses(self, other: Fragment) -> bool:
        """Whether another, shorter fragment lies within the time of this one."""
        if self.start is None or self.end is None or other.start is None or other.end is None:
            return False
        within = self.start <= other.start + CLOCK_TOLERANCE_NS and other.end <= self.end + CLOCK_TOLERANCE_NS
        return within and self.duration_key > other.duration_key

    def overlaps(self, other: Fragment) -> bool:
        """Whether two fragments were active at the same time."""
        if self.start is None or self.end is None or other.start is None or other.end is None:
            return False
        return self.start <= other.end and other.start <= self.end


class _OpenFrames:
    """The graphs and agents that are active at a point in time, by call id, arguments and user message."""

    def __init__(self, frames: Iterable[Fragment]) -> None:
        self._upcoming = deque(sorted((f for f in frames if f.start is not None), key=lambda frame: frame.start or 0))
        self._open: dict[Hashable, list[Fragment]] = {}

    def find_enclosing(self, fragment: Fragment) -> Fragment | None:
        """The longest frame that encloses a fragment and shares a call with it, else its user message."""
        if fragment.start is None:
            return None
        self._open_until(fragment.start + CLOCK_TOLERANCE_NS)
        for keys in (
            {("id", call_id) for call_id in fragment.call_ids},
            _text_keys(fragment),
            _argument_keys(fragment),
        ):
            alike = (frame for key in keys for frame in self._still_open(key, fragment.start - CLOCK_TOLERANCE_NS))
            enclosing = (frame for frame in alike if frame is not fragment and frame.encloses(fragment))
            found = max(enclosing, key=lambda frame: frame.duration_key, default=None)
            if found is not None:
                return found
        return None

    def _open_until(self, until: int) -> None:
        while self._upcoming and (start := self._upcoming[0].start or 0) <= until:
            frame = self._upcoming.popleft()
            keys: set[Hashable] = {("id", call_id) for call_id in frame.call_ids}
            keys |= {("arguments", argument_fingerprint(raw_value(call.arguments))) for call in frame.calls}
            for key in (*keys, ("text", frame.last_user_text)):
                still_open = self._still_open(key, start - CLOCK_TOLERANCE_NS)
                if len(still_open) < _MAX_CANDIDATES:
                    still_open.append(frame)

    def _still_open(self, key: Hashable, since: int) -> list[Fragment]:
        still_open = [frame for frame in self._open.get(key, ()) if (frame.end or 0) >= since]
        self._open[key] = still_open
        return still_open


def _text_keys(fragment: Fragment) -> list[Hashable]:
    return [("text", fragment.last_user_text)] if fragment.last_user_text else []


def _argument_keys(fragment: Fragment) -> list[Hashable]:
    """The arguments of a tool, which identify a call that was requested without an id."""
    arguments = call_from_span(fragment.node).arguments if fragment.role == "tool" else None
    return [] if arguments is None else [("arguments", argument_fingerprint(arguments))]


class _FragmentJoiner:
    """Joins lone segments that belong to the same request."""

    def __init__(self, lone: list[RunSpans]) -> None:
        self.fragments = [Fragment(segment) for segment in sorted(lone, key=lambda segment: segment.nodes[0].sort_key)]
        self._turns = find_model_turns(node for fragment in self.fragments for node in fragment.segment.nodes)
        self._fragment_by_node = {node: fragment for fragment in self.fragments for node in fragment.segment.nodes}
        self._joined: dict[Fragment, Fragment] = {}

    def join(self) -> list[RunSpans]:
        """Returns one segment per request."""
        self._join_to_frames()
        self._join_answers()
        self._join_calls()
        self._join_turns()
        self._join_tools()
        self._join_sessions()
        groups: dict[Fragment, list[Fragment]] = {}
        for fragment in self.fragments:
            groups.setdefault(self._top(fragment), []).append(fragment)
        return [_merge_fragments(group) for group in groups.values()]

    def _top(self, fragment: Fragment) -> Fragment:
        path: list[Fragment] = []
        while (above := self._joined.get(fragment)) is not None:
            path.append(fragment)
            fragment = above
        for step in path:
            self._joined[step] = fragment
        return fragment

    def _join(self, fragment: Fragment, other: Fragment) -> None:
        top, earlier = self._top(fragment), self._top(other)
        if top is not earlier:
            self._joined[top] = earlier

    def _join_to_frames(self) -> None:
        """Joins fragments to the graph or agent that encloses them and shares a call or the user message."""
        frames = _OpenFrames(fragment for fragment in self.fragments if fragment.is_frame)
        for fragment in self.fragments:
            frame = frames.find_enclosing(fragment)
            if frame is not None:
                self._join(fragment, frame)

    def _join_answers(self) -> None:
        """Joins two overlapping spans of one model call by their response id. Cached responses repeat their ids."""
        known: dict[str, Fragment] = {}
        for fragment in self.fragments:
            response = fragment.node.facts.call_id if fragment.role == "model" else None
            if response:
                before = known.setdefault(response, fragment)
                if before is not fragment and before.overlaps(fragment):
                    self._join(fragment, before)
                known[response] = fragment

    def _join_calls(self) -> None:
        """Joins fragments with the same user message and the same call.

        Some models restart their call ids for each request: a fragment that requests a call with the id of an earlier
        request, and does not have the call in its history, belongs to another request.
        """
        known: dict[tuple[str, str], Fragment] = {}
        for fragment in self.fragments:
            text = fragment.last_user_text
            if text is None:
                continue
            remembered = frozenset(call_ids_in(input_history(fragment.node)))
            for call_id in (call.call_id for call in fragment.calls if call.call_id):
                before = known.setdefault((text, call_id), fragment)
                if call_id in remembered or before.overlaps(fragment):
                    self._join(fragment, before)
                else:
                    known[text, call_id] = fragment

    def _join_turns(self) -> None:
        """Joins model turns that repeat each other's history, and the sub-agents that they started."""
        for sequence in group_turns(self._turns):
            first = self._fragment_by_node[(sequence.parent or sequence).turns[0].node]
            for turn in sequence.turns:
                self._join(self._fragment_by_node[turn.node], first)

    def _join_tools(self) -> None:
        """Joins tools to the turn that requested them, else to a later turn with the call in its history."""
        tools = [fragment for fragment in self.fragments if fragment.role == "tool" and fragment not in self._joined]
        if not tools or not self._turns:
            return
        requested = RequestedCallIndex.from_turns(self._turns)
        nodes = [fragment.node for fragment in tools]
        found = requested.match_tools(nodes, allow_retries=False, require_certain=True)
        unmatched = [node for node in nodes if node not in found]
        if unmatched:
            repeated = RequestedCallIndex.from_histories(self._turns)
            found |= {node: turn for node in unmatched if (turn := repeated.match_later_turn(node)) is not None}
            for retries in (False, True):
                found |= requested.match_tools((n for n in unmatched if n not in found), allow_retries=retries)
        for node, turn in found.items():
            self._join(self._fragment_by_node[node], self._fragment_by_node[turn.node])

    def _join_sessions(self) -> None:
        """Joins the remaining tools by the session that they name."""
        last: dict[str, Fragment] = {}
        for fragment in self.fragments:
            session = fragment.node.facts.session_id
            if session is None:
                continue
            if fragment.role != "tool":
                last[session] = fragment
            elif fragment not in self._joined and last.setdefault(session, fragment) is not fragment:
                self._join(fragment, last[session])


def _merge_fragments(group: list[Fragment]) -> RunSpans:
    if len(group) == 1:
        return group[0].segment
    first = max(
        (fragment for fragment in group if fragment.is_frame),
        key=lambda fragment: fragment.duration_key,
        default=group[0],
    )
    return replace(first.segment, nodes=[node for fragment in group for node in fragment.segment.nodes])
