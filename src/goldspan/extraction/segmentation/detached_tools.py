"""Attaches servers, tools and resumed work that are separate traces to their request.

The rules for tool traces (`has_only_tools`, `correlation_keys`, `active_interval`, `starts_during`) are the same for
trace files and for live scoring.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass

from goldspan.content import values
from goldspan.content.tools import name_suffixes
from goldspan.conventions.span_facts import REQUEST_ROLES, Role, SpanFacts
from goldspan.extraction.observed_calls import call_from_span
from goldspan.extraction.segmentation.boundaries import RunSpans
from goldspan.extraction.span_node import CLOCK_TOLERANCE_NS, SpanNode
from goldspan.model import SpanRecord

_SERVER_KIND = 2
"""OTLP's kind of a span that answers a request from outside."""
_MAX_OPEN_CALLS = 64
"""How many of the latest calls of one name are checked for the one around a server's span."""


def has_only_tools(roles: Iterable[Role | None]) -> bool:
    """Returns whether spans with these roles contain a tool, and no agent, application entry or model."""
    tools = False
    for role in roles:
        if role in REQUEST_ROLES or role == "model":
            return False
        tools = tools or role == "tool"
    return tools


def correlation_keys(spans: Iterable[tuple[SpanRecord, SpanFacts]]) -> Iterator[Hashable]:
    """Yields the keys that spans of one request share: request ids first, then session ids, each with the service."""
    spans = list(spans)
    yield from (("request", span.service, facts.request_id) for span, facts in spans if facts.request_id)
    yield from (("session", span.service, facts.session_id) for span, facts in spans if facts.session_id)


def active_interval(spans: Iterable[SpanRecord]) -> tuple[int, int] | None:
    """Returns the first start and the last end of some spans, or `None` if either is unknown."""
    spans = list(spans)
    start = min((span.start_ns for span in spans if span.start_ns is not None), default=None)
    end = max((span.end_ns for span in spans if span.end_ns is not None), default=None)
    return None if start is None or end is None else (start, end)


def starts_during(spans: Iterable[SpanRecord], interval: tuple[int, int] | None) -> bool:
    """Returns whether the first of some spans started within an interval."""
    start = min((span.start_ns for span in spans if span.start_ns is not None), default=None)
    return start is not None and interval is not None and interval[0] <= start <= interval[1]


def attach_detached_tools(segments: list[RunSpans]) -> list[RunSpans]:
    """Adds the spans of detached tool traces to the request that they belong to.

    A tool trace belongs to a request if both have an id in common and the tools started during exactly one request with
    that id. Request ids take precedence over session ids.

    Returns the other segments, in the same order.
    """
    detached = [segment for segment in segments if is_detached(segment)]
    if not detached or len(detached) == len(segments):
        return segments
    excluded = set(detached)
    requests = _RequestIndex(
        [segment for segment in segments if segment not in excluded and not is_single_turn(segment)]
    )
    attached: set[RunSpans] = set()
    for segment in sorted(detached, key=lambda segment: (segment.nodes[0].sort_key, segment.trace_id)):
        request = requests.find_active(segment)
        if request is not None:
            request.nodes.extend(segment.nodes)
            attached.add(segment)
    return [segment for segment in segments if segment not in attached]


def is_detached(segment: RunSpans) -> bool:
    """Returns whether only tools, and what tools call, are at work in a trace."""
    if segment.is_marked or segment.is_split:
        return False
    return has_only_tools(node.role for node in segment.nodes if node.owner is None)


def is_single_turn(segment: RunSpans) -> bool:
    """Returns whether a trace is a single model call, whose calls identify its tools better than time does."""
    return segment.root is not None and segment.root.role == "model"


@dataclass(frozen=True, slots=True)
class _ActiveRequest:
    """A request and the time from its first span to its last."""

    segment: RunSpans
    interval: tuple[int, int]


class _RequestIndex:
    """Requests by correlation key."""

    def __init__(self, segments: list[RunSpans]) -> None:
        self._by_key: dict[Hashable, list[_ActiveRequest]] = {}
        for segment in segments:
            interval = active_interval(node.span for node in segment.nodes)
            if interval is not None:
                request = _ActiveRequest(segment, interval)
                for key in dict.fromkeys(segment_keys(segment)):
                    self._by_key.setdefault(key, []).append(request)

    def find_active(self, tools: RunSpans) -> RunSpans | None:
        """The only request with a key of a tool trace that was active when the tools started."""
        spans = [node.span for node in tools.nodes]
        for key in dict.fromkeys(segment_keys(tools)):
            active = [request for request in self._by_key.get(key, ()) if starts_during(spans, request.interval)]
            if active:
                return active[0].segment if len(active) == 1 else None
        return None


def segment_keys(segment: RunSpans) -> Iterator[Hashable]:
    """Yields the correlation keys of the spans of a segment, and of the spans around it."""
    around = (*segment.nodes, *segment.nodes[0].ancestors())
    return correlation_keys((node.span, node.facts) for node in around)


def attach_servers(lone: list[RunSpans], others: Iterable[RunSpans]) -> list[RunSpans]:
    """Adds the spans of MCP servers among the `lone` segments to the segments among the `others` that called them.

    Returns the remaining lone segments. A server without a matching call remains: the operator of a server may have
    only the server's own traces.
    """
    servers = [segment for segment in lone if is_lone_server(segment.nodes[0])]
    if not servers:
        return lone
    calls = _ToolSpanIndex(others)
    attached = set()
    for segment in servers:
        caller = calls.find_caller(segment.nodes[0])
        if caller is not None:
            caller.nodes.extend(segment.nodes)
            attached.add(segment)
    return [segment for segment in lone if segment not in attached]


def is_lone_server(node: SpanNode) -> bool:
    """Returns whether a span is the execution of a tool that an MCP server recorded."""
    return node.role == "tool" and "mcp" in node.facts.conventions and node.span.kind == _SERVER_KIND


class _ToolSpanIndex:
    """Tool spans by name, ordered by start time."""

    def __init__(self, segments: Iterable[RunSpans]) -> None:
        self._by_name: dict[str, list[tuple[SpanNode, RunSpans]]] = {}
        for segment in segments:
            for node in segment.nodes:
                if node.role == "tool" and node.span.start_ns is not None and node.span.end_ns is not None:
                    for name in name_suffixes(call_from_span(node).name):
                        self._by_name.setdefault(name, []).append((node, segment))
        for calls in self._by_name.values():
            calls.sort(key=lambda call: call[0].sort_key)

    def find_caller(self, server: SpanNode) -> RunSpans | None:
        """The segment with the shortest call that encloses a server's span in time."""
        start, end = server.span.start_ns, server.span.end_ns
        if start is None or end is None:
            return None
        calls = self._by_name.get(name_suffixes(call_from_span(server).name)[0], [])
        until = bisect_right(calls, start + CLOCK_TOLERANCE_NS, key=lambda call: call[0].start)
        enclosing = [
            call
            for call in calls[max(0, until - _MAX_OPEN_CALLS) : until]
            if _end_time(call[0]) + CLOCK_TOLERANCE_NS >= end
        ]
        return min(enclosing, key=_duration_key)[1] if enclosing else None


def _end_time(node: SpanNode) -> int:
    return node.span.end_ns or 0


def _duration_key(call: tuple[SpanNode, RunSpans]) -> tuple[int, tuple[int, int, str]]:
    node = call[0]
    return _end_time(node) - node.start, node.sort_key


def join_resumed_requests(segments: Iterable[RunSpans]) -> list[RunSpans]:
    """Joins work that a runtime resumed for a request, without user input, to that request.

    A coding agent starts a command in the background, answers, and takes a further turn in another trace when the
    command has ended. That turn has the session and the history of the request, but so has the next request. Only an
    id that the runtime gives to each request of the user, and to all work for it, tells them apart.

    Returns the remaining segments, in the same order.
    """
    segments = list(segments)
    spans_by_segment = {id(segment): nodes for segment in segments if (nodes := _spans_with_request_id(segment))}
    if len(spans_by_segment) < 2:
        return segments
    latest: dict[tuple[str | None, str | None], RunSpans] = {}
    joined: set[int] = set()
    for segment in sorted((segment for segment in segments if id(segment) in spans_by_segment), key=_start_key):
        nodes = spans_by_segment[id(segment)]
        keys = dict.fromkeys((node.span.service, node.facts.request_id) for node in nodes)
        earlier = next((latest[key] for key in keys if key in latest), None)
        if earlier is not None and not _has_user_input(segment, nodes):
            earlier.nodes.extend(segment.nodes)
            earlier.resumed.extend(nodes if segment.root is None else [segment.root])
            joined.add(id(segment))
        else:
            latest.update(dict.fromkeys(keys, segment))
    return [segment for segment in segments if id(segment) not in joined]


def _spans_with_request_id(segment: RunSpans) -> list[SpanNode]:
    return [node for node in segment.nodes if node.facts.request_id]


def _start_key(segment: RunSpans) -> tuple[int, int, str]:
    return segment.nodes[0].sort_key


def _has_user_input(segment: RunSpans, identified: Iterable[SpanNode]) -> bool:
    """Whether a segment contains user input. The input of a sub-agent is no user input: its span has no request id."""
    nodes = [*identified, *([segment.root] if segment.root is not None else [])]
    return any(
        values.request_text(node.facts.input)
        or any(message.is_from_user and message.text for message in node.input_messages)
        for node in nodes
    )
