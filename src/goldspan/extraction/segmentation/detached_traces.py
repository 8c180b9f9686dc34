"""Requests that went on by themselves: what a runtime did for them later, in another trace and with no user asking.

A coding agent starts a command in the background, answers, and takes a further turn when the command has ended. That
turn has the session of the request and knows its history, but so has the next request. Only an id that the runtime
gives to each request of the user, and to all that it does for it, tells which one it belongs to.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass

from goldspan.content import values
from goldspan.content.tools import name_suffixes
from goldspan.extraction.observed_calls import call_from_span
from goldspan.extraction.segmentation.boundaries import RunSpans
from goldspan.extraction.span_tree import CLOCK_TOLERANCE_NS, SpanNode

_SERVER_KIND = 2
"""OTLP's kind of a span that answers a request from outside."""
_MAX_OPEN_CALLS = 64
"""Calls of one name begun last that are looked at for the one around a server's span."""


def attach_servers(lone: list[RunSpans], others: Iterable[RunSpans]) -> list[RunSpans]:
    """The lone portions but those of servers, which are given to the portions among the `others` that called them.

    What no call is found for stays: a server's operator may look at nothing else.
    """
    served = [portion for portion in lone if _is_server(portion.nodes[0])]
    if not served:
        return lone
    calling = _ToolSpanIndex(others)
    given = set()
    for portion in served:
        caller = calling.find_caller(portion.nodes[0])
        if caller is not None:
            caller.nodes.extend(portion.nodes)
            given.add(portion)
    return [portion for portion in lone if portion not in given]


def _is_server(node: SpanNode) -> bool:
    return node.role == "tool" and "mcp" in node.facts.conventions and node.span.kind == _SERVER_KIND


class _ToolSpanIndex:
    """The spans of tools by name, in the order of their starts."""

    def __init__(self, portions: Iterable[RunSpans]) -> None:
        self._of_name: dict[str, list[tuple[SpanNode, RunSpans]]] = {}
        for portion in portions:
            for node in portion.nodes:
                if node.role == "tool" and node.span.start_ns is not None and node.span.end_ns is not None:
                    for name in name_suffixes(call_from_span(node).name):
                        self._of_name.setdefault(name, []).append((node, portion))
        for calls in self._of_name.values():
            calls.sort(key=lambda call: call[0].sort_key)

    def find_caller(self, server: SpanNode) -> RunSpans | None:
        """The portion of the call that was at work while a server was; of several, that of the shortest."""
        start, end = server.span.start_ns, server.span.end_ns
        if start is None or end is None:
            return None
        calls = self._of_name.get(name_suffixes(call_from_span(server).name)[0], [])
        begun = bisect_right(calls, start + CLOCK_TOLERANCE_NS, key=lambda call: call[0].start)
        fitting = [
            call
            for call in calls[max(0, begun - _MAX_OPEN_CALLS) : begun]
            if _end_time(call[0]) + CLOCK_TOLERANCE_NS >= end
        ]
        return min(fitting, key=_duration_key)[1] if fitting else None


def _end_time(node: SpanNode) -> int:
    return node.span.end_ns or 0


def _duration_key(call: tuple[SpanNode, RunSpans]) -> tuple[int, tuple[int, int, str]]:
    node = call[0]
    return _end_time(node) - node.start, node.sort_key


def attach_detached_tools(portions: list[RunSpans]) -> list[RunSpans]:
    """The portions but those of tools alone that belong to another one, to which their spans are given; order stays."""
    strays = [portion for portion in portions if _is_detached(portion)]
    if not strays or len(strays) == len(portions):
        return portions
    known = set(strays)
    requests = _RequestIndex([portion for portion in portions if portion not in known and not _is_single_turn(portion)])
    given: set[RunSpans] = set()
    for stray in sorted(strays, key=lambda portion: (portion.nodes[0].sort_key, _trace_id(portion))):
        request = requests.find_active(stray)
        if request is not None:
            request.nodes.extend(stray.nodes)
            given.add(stray)
    return [portion for portion in portions if portion not in given]


def _trace_id(portion: RunSpans) -> str:
    return portion.nodes[0].span.trace_id


def _is_detached(portion: RunSpans) -> bool:
    """Whether nobody is at work in a trace but tools, and those whom tools call."""
    if portion.is_marked or portion.is_split:
        return False
    working = [node.role for node in portion.nodes if node.owner is None and node.role is not None]
    return "tool" in working and "model" not in working


def _is_single_turn(portion: RunSpans) -> bool:
    """Whether a trace is a single call of a model: what it asked for tells whose tools are whose better than time."""
    return portion.root is not None and portion.root.role == "model"


@dataclass(frozen=True, slots=True)
class _RequestInterval:
    """A request, and the time from its first span to its last."""

    portion: RunSpans
    start_ns: int
    end_ns: int


class _RequestIndex:
    """The requests by the ids that they have."""

    def __init__(self, portions: list[RunSpans]) -> None:
        self._of_id: dict[Hashable, list[_RequestInterval]] = {}
        for portion in portions:
            starts = [node.span.start_ns for node in portion.nodes if node.span.start_ns is not None]
            ends = [node.span.end_ns for node in portion.nodes if node.span.end_ns is not None]
            if starts and ends:
                extent = _RequestInterval(portion, min(starts), max(ends))
                for key in dict.fromkeys(_correlation_ids(portion)):
                    self._of_id.setdefault(key, []).append(extent)

    def find_active(self, stray: RunSpans) -> RunSpans | None:
        """The only request with an id of the tools that was at work when they started."""
        start = min((node.span.start_ns for node in stray.nodes if node.span.start_ns is not None), default=None)
        if start is None:
            return None
        for key in dict.fromkeys(_correlation_ids(stray)):
            at_work = [each for each in self._of_id.get(key, ()) if each.start_ns <= start <= each.end_ns]
            if at_work:
                return at_work[0].portion if len(at_work) == 1 else None
        return None


def _correlation_ids(portion: RunSpans) -> Iterator[Hashable]:
    """The ids by which the spans of one service may know each other, the closest first."""
    around: list[SpanNode] = [*portion.nodes, *portion.nodes[0].ancestors()]
    for node in around:
        if node.facts.request_id:
            yield "request", node.span.service, node.facts.request_id
    for node in around:
        if node.facts.session_id:
            yield "session", node.span.service, node.facts.session_id


def join_resumed_requests(portions: Iterable[RunSpans]) -> list[RunSpans]:
    """The portions, without those in which nobody asks for anything and that serve a request begun before.

    These become part of the last one in which somebody did; order stays.
    """
    given = list(portions)
    bearing = {id(portion): own for portion in given if (own := _spans_with_request_id(portion))}
    if len(bearing) < 2:
        return given
    last: dict[tuple[str | None, str | None], RunSpans] = {}
    joined: set[int] = set()
    for portion in sorted((portion for portion in given if id(portion) in bearing), key=_start_key):
        nodes = bearing[id(portion)]
        served = dict.fromkeys((node.span.service, node.facts.request_id) for node in nodes)
        before = next((last[request] for request in served if request in last), None)
        if before is not None and not _has_user_input(portion, nodes):
            before.nodes.extend(portion.nodes)
            before.resumed.extend(nodes if portion.root is None else [portion.root])
            joined.add(id(portion))
        else:
            last.update(dict.fromkeys(served, portion))
    return [portion for portion in given if id(portion) not in joined]


def _spans_with_request_id(portion: RunSpans) -> list[SpanNode]:
    """The spans of a portion that bear the id of a request."""
    return [node for node in portion.nodes if node.facts.request_id]


def _start_key(portion: RunSpans) -> tuple[int, int, str]:
    return portion.nodes[0].sort_key


def _has_user_input(portion: RunSpans, bearing: Iterable[SpanNode]) -> bool:
    """Whether the user says something in a portion. What a sub-agent is asked, the user did not say: it bears no id."""
    speaking = [*bearing, *([portion.root] if portion.root is not None else [])]
    return any(
        values.request_text(node.facts.input)
        or any(message.is_from_user and message.text for message in node.input_messages)
        for node in speaking
    )
