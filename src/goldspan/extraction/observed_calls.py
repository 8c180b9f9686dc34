"""One tool call while its witnesses are gathered, and the tool spans that are its first witnesses.

A call may leave several spans: the framework's, an MCP client's inside it, an MCP server's inside that, and those of a
second instrumentation. They are one call.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from goldspan.content import values
from goldspan.content.envelopes import CallArguments, CallResult
from goldspan.content.tools import fold_name, is_same_name, server_prefix, undecorate
from goldspan.conventions.span_facts import RawValue
from goldspan.extraction.model_turns import ModelTurn
from goldspan.extraction.span_tree import UNKNOWN_TIME, SpanNode, end_of
from goldspan.model import ABSENT, CallOutcome, SpanRecord, ToolCall, ToolDefinition, ToolKind, fast_constructor

_NUMBER_PARTS = re.compile(r"[0-9]{1,18}|[^0-9]+")
_AWAITABLE_REPR = re.compile(r"<(?:coroutine|generator|async_generator) object ")
"""What a wrapper that does not wait takes for the result of a tool in Python."""
_MAX_OPEN_CALLS = 64
"""Calls begun last, among which the one around a span without its parent is looked for."""
_MAX_ARGUMENT_DEPTH = 50
"""Levels of arguments: what differs only below is taken for the same."""
_MAX_OVERLAP_DISTANCE = 256
"""How far apart, in the order of a run's calls, two may be to be told that they ran at the same time."""
T = TypeVar("T")


class RequestOrder(NamedTuple):
    """When a model asked for a call: a sort key."""

    time_ns: int = UNKNOWN_TIME
    """The end of the model's span."""
    turn: int = 0
    """The number of its dialogue: a clock may show one time for several."""
    position: int = 0
    """Within the message."""


_NOT_REQUESTED = RequestOrder()


@dataclass(slots=True, eq=False)
class ObservedCall:
    """What is known of one call so far."""

    name: str
    kind: ToolKind = "tool"
    call_id: str | None = None
    arguments: RawValue | None = None
    result: RawValue | None = None
    error: str | None = None
    outcome: CallOutcome | None = None
    server: str | None = None
    agent: str | None = None
    is_unnamed: bool = False
    """Whether the name is that of the span, for want of a better one."""
    node: SpanNode | None = None
    """The outermost span of its execution; `None`: only requested."""
    start_ns: int | None = None
    end_ns: int | None = None
    request_order: RequestOrder | None = None
    """When the model asked for it."""
    history_position: int = UNKNOWN_TIME
    """Its place among the calls that a history repeats."""
    requesting_turn: ModelTurn | None = None
    """The turn in which it did."""
    merged_count: int = 0
    """Witnesses beyond the first."""
    doubtful_merges: int = 0
    """Those among them that tell a result of their own beside another one of the same instrumentation."""

    @property
    def sort_key(self) -> tuple[int, RequestOrder, int, tuple[tuple[int, str], ...], int, int, str]:
        """Sort key: time of start, ties in the order in which the model asked or in which a history repeats them, then
        as their spans stand in their tree; the id only makes it unambiguous.

        Where no time is known, ids of calls that count up are followed.
        """
        start = UNKNOWN_TIME if self.start_ns is None else self.start_ns
        node = self.node
        number, identity = (0, self.call_id or "") if node is None else (node.tree_index, node.span.span_id)
        counted = _natural_order(self.call_id) if self.start_ns is None and self.call_id else ()
        return (
            start,
            self.request_order or _NOT_REQUESTED,
            self.history_position,
            counted,
            number,
            self.end_ns or 0,
            identity,
        )

    def absorb(self, other: ObservedCall) -> None:
        """Take what another witness of the same call knows better."""
        self.merged_count += 1 + other.merged_count
        self.doubtful_merges += other.doubtful_merges
        self.call_id = self.call_id or other.call_id
        self.error = self.error or other.error
        self.outcome = self.outcome or other.outcome
        self.server = self.server or other.server or server_prefix(self.name, tool_name=other.name)
        self.agent = self.agent or other.agent
        if self.arguments is None or (
            other.has_named_arguments and (not self.has_named_arguments or self._wraps(other))
        ):
            self.arguments = other.arguments
        self.result = self.result or other.result
        if self.kind == "tool":
            self.kind = other.kind

    def shorten_to(self, beside: ObservedCall) -> None:
        """Take the end of a witness beside this one, neither inside the other, if it is earlier and the call was over.

        It was if the witness knows what came of it. One that does not may have only begun the call, or have been left
        open until the request ended. A tool that goes on in the background is over once the agent has its handle: that
        is its result.
        """
        if beside.end_ns is not None and beside._is_finished:
            self.end_ns = beside.end_ns if self.end_ns is None else min(self.end_ns, beside.end_ns)

    def complete_from_history(self, told: ObservedCall) -> None:
        """Take what a history knows of the call beyond what is known; it is no further witness."""
        merged = self.merged_count
        if self.is_unnamed and not is_same_name(self.name, told.name):
            self.name = told.name
        self.absorb(told)
        self.is_unnamed, self.merged_count = False, merged

    @property
    def _is_finished(self) -> bool:
        """Whether it tells a failure or a result, and not that somebody is still to decide or to await it."""
        if self.outcome == "deferred" or (self.error is None and self.result is None):
            return False
        returned = self.result.raw if self.result is not None else None
        return not (isinstance(returned, str) and _AWAITABLE_REPR.match(returned))

    @property
    def has_named_arguments(self) -> bool:
        """Whether the arguments are known by name: some instrumentations write a single one bare, or none."""
        return self.arguments is not None and isinstance(self.arguments.value, dict)

    def _wraps(self, other: ObservedCall) -> bool:
        """Whether this call shows the one parameter of a function around the tool, and the other what was in it."""
        own = self.arguments.value if self.arguments is not None else None
        if not isinstance(own, dict) or len(own) != 1:
            return False
        inner = other.arguments.value if other.arguments is not None else None
        return bool(inner) and any(_equal(inner, value) for value in own.values())

    def has_same_arguments(self, arguments: RawValue | None) -> bool:
        """Whether arguments of another witness are known to be equal to this call's."""
        if self.arguments is None or arguments is None:
            return False
        return _equal(self.arguments.value, arguments.value)

    def overlaps(self, other: ObservedCall) -> bool:
        """Whether two calls ran at the same time.

        Calls of which the order is not known count as such: requests of one message, and calls without any time.
        """
        if self.node is None and other.node is None:
            return (
                self.request_order is not None and other.request_order is not None and self._requested_together(other)
            )
        if self.start_ns is None and other.start_ns is None:
            return self._requested_together(other)
        if self.start_ns is None or other.start_ns is None or self.end_ns is None or other.end_ns is None:
            return False
        if self.start_ns == other.start_ns:  # a clock too coarse to tell which came first
            return self._requested_together(other) and not _nested(self, other)
        return self.start_ns < other.end_ns and other.start_ns < self.end_ns and not _nested(self, other)

    def _requested_together(self, other: ObservedCall) -> bool:
        """Whether the model may have asked for both in one message."""
        if self.request_order is None or other.request_order is None:
            return True
        return self.request_order[:2] == other.request_order[:2]


def executed_calls(nodes: Iterable[SpanNode]) -> list[ObservedCall]:
    """One call for every execution among some spans, however many spans it left, by time of start."""
    calls: list[ObservedCall] = []
    of_node: dict[SpanNode, ObservedCall] = {}
    of_id: dict[str, list[ObservedCall]] = {}
    side_by_side: list[tuple[ObservedCall, ObservedCall]] = []
    witnesses: dict[ObservedCall, list[SpanNode]] = {}
    for node in _outermost_first(nodes):
        seen = call_from_span(node)
        known = of_node.get(node.enclosing_tool) if node.enclosing_tool is not None else None
        if known is None or not _same_call(known, seen):
            # Two instrumentations beside each other: one id, one name, at the same time.
            beside = of_id.get(seen.call_id or "", ())[-_MAX_OPEN_CALLS:]
            known = next(
                (call for call in beside if _same_call(call, seen) and _may_be_one_execution(call, seen)), None
            )
            if known is not None:
                side_by_side.append((known, seen))
        if known is None and node.owner is None:
            # The span between the framework's and the protocol's, or the server's, may have never come.
            served = (
                call
                for call in reversed(calls[-_MAX_OPEN_CALLS:])
                if _same_call(call, seen) and _is_served_within(seen, call)
            )
            known = next((call for call in served if not _has_sibling_witness(node, witnesses[call])), None)
        if known is not None:
            inside = node.enclosing_tool is not None and of_node[node.enclosing_tool] is known
            alike = not inside and any(
                _instrumentation_key(node) == _instrumentation_key(other) for other in witnesses[known]
            )
            known.doubtful_merges += alike and known._is_finished and seen._is_finished
            witnesses[known].append(node)
            known.absorb(seen)
        else:
            known = seen
            calls.append(seen)
            witnesses[seen] = [node]
        of_node[node] = known
        if known.call_id:
            under = of_id.setdefault(known.call_id, [])
            if not under or under[-1] is not known:
                under.append(known)
    # Only now: until all witnesses are found, a call lasts as long as the longest says.
    for known, seen in side_by_side:
        known.shorten_to(seen)
    return sorted(calls, key=lambda call: call.sort_key)


def call_from_span(node: SpanNode) -> ObservedCall:
    """What the span of a tool tells of its call."""
    reading, span = node.facts, node.span
    # Some instrumentations tell the call's id, the tool's real name or its failure only inside what it returned.
    asked = _unwrapped_as(reading.arguments, CallArguments) or _NO_REQUEST
    told = _unwrapped_as(reading.result, CallResult) or _NO_RESULT
    name = reading.name if reading.name is not None else told.name if told.name is not None else asked.name
    spoken = name if name is not None else reading.span_name
    return ObservedCall(
        name=span.name if spoken is None else spoken,
        is_unnamed=name is None,
        kind=reading.kind or ("agent" if node.runs_agent else "tool"),
        call_id=reading.call_id or told.call_id or asked.call_id,
        arguments=reading.arguments,
        result=reading.result,
        # A call that waits has not failed, though it left its span by an exception.
        error=None if reading.outcome == "deferred" else reading.error or span_error(span) or told.error,
        outcome=reading.outcome,
        server=reading.server,
        agent=node.agent,
        node=node,
        start_ns=span.start_ns,
        end_ns=span.end_ns,
    )


def _natural_order(call_id: str) -> tuple[tuple[int, str], ...]:
    """An id in which numbers are compared as numbers."""
    return tuple((int(part), "") if part[0] in "0123456789" else (-1, part) for part in _NUMBER_PARTS.findall(call_id))


_NO_REQUEST = CallArguments(None)
_NO_RESULT = CallResult(None)


def _outermost_first(nodes: Iterable[SpanNode]) -> list[SpanNode]:
    """The spans of tools by time of start, the longest first, but none before the one around it, whatever their clocks
    say.
    """
    begun: dict[SpanNode, tuple[int, int]] = {}
    for node in filter(_is_call, nodes):
        around = begun.get(node.enclosing_tool) if node.enclosing_tool is not None else None
        start, depth = around or (node.start, 0)
        begun[node] = max(start, node.start), depth + 1
    return sorted(begun, key=lambda node: (begun[node], -end_of(node.span), node.span.span_id))


def _is_call(node: SpanNode) -> bool:
    """Whether a span is a tool at work, or an agent that another one called without a tool's span around it."""
    if node.role == "agent" and node.facts.kind == "agent" and node.enclosing_tool is None:
        return any(above.role == "agent" for above in node.ancestors())
    return node.role == "tool"


def raw_value(value: Any) -> RawValue | None:
    """A value out of a message; `None` where the message has none."""
    return None if value is ABSENT or value is None else RawValue(value)


def build_tool_calls(calls: Iterable[ObservedCall], offered: Iterable[ToolDefinition]) -> tuple[ToolCall, ...]:
    """The calls of a run in order, each knowing which others ran at the same time.

    The schemas of the tools that were offered give names to arguments that were written without. A server that is known
    from one call is also that of others that bear its name. Of thousands of calls at once, each is laid beside those
    nearest to it.
    """
    schemas = {fold_name(tool.name): tool for tool in offered}
    calls = list(calls)
    servers = frozenset([call.server for call in calls if call.server])
    ordered = sorted(calls, key=lambda call: call.sort_key)
    beside: list[list[int]] = [[] for _ in ordered]
    for first, call in enumerate(ordered):
        horizon = call.start_ns if call.end_ns is None else call.end_ns
        for second in range(first + 1, min(first + _MAX_OVERLAP_DISTANCE, len(ordered))):
            start = ordered[second].start_ns
            if call.start_ns is not None and (horizon is None or start is None or start > horizon):
                break
            if call.overlaps(ordered[second]):
                beside[first].append(second)
                beside[second].append(first)
    return tuple(
        _build_tool_call(
            call, offered=schemas, servers=servers, concurrent_with=tuple(sorted(others)) if others else ()
        )
        for call, others in zip(ordered, beside, strict=True)
    )


def span_error(span: SpanRecord) -> str | None:
    """What a span says went wrong: its exception, its status message, or its type of error."""
    kind = span.attributes.get("error.type")
    if span.status != "error" and kind is None:
        return None
    exceptions = (event.attributes for event in span.events if event.name == "exception")
    told = (said.get("exception.message") or said.get("exception.type") for said in exceptions)
    return str(next((text for text in told if text), span.status_message or kind or "error"))


def argument_fingerprint(arguments: RawValue | None) -> Hashable:
    """The same for equal arguments, and only for those: what they are known by among thousands of calls."""
    return None if arguments is None else _freeze(arguments.value, _MAX_ARGUMENT_DEPTH)


def _freeze(value: Any, levels: int) -> Hashable:
    if isinstance(value, Mapping):
        return frozenset((key, _freeze(inner, levels - 1)) for key, inner in value.items()) if levels else None
    if isinstance(value, (list, tuple)):
        return tuple(_freeze(inner, levels - 1) for inner in value) if levels else None
    return value if isinstance(value, Hashable) else repr(value)


def _equal(one: Any, other: Any) -> bool:
    try:
        return bool(one == other)
    except RecursionError:  # nested more deeply than anything that can be compared
        return False


def _unwrapped_as(written: RawValue | None, kind: type[T]) -> T | None:
    opened = written.unwrapped if written is not None else None
    return opened if isinstance(opened, kind) else None


def _same_call(call: ObservedCall, seen: ObservedCall) -> bool:
    # A span without any name is a part of the call it stands in: asking for permission, or the execution itself.
    if seen.name and not is_same_name(call.name, seen.name):
        return False
    if call.call_id and seen.call_id and call.call_id != seen.call_id:
        return False
    return call.arguments is None or seen.arguments is None or call.has_same_arguments(seen.arguments)


def _may_be_one_execution(call: ObservedCall, seen: ObservedCall) -> bool:
    """Whether two witnesses of one id can be of one call. A refusal comes before or after the call that never ran."""
    return call.overlaps(seen) or "denied" in (call.outcome, seen.outcome)


def _has_sibling_witness(node: SpanNode, witnesses: Iterable[SpanNode]) -> bool:
    """Whether a span stands beside one of its kind among the witnesses of a call: then it is of another call."""
    return any(
        node.span.parent_id == other.span.parent_id
        and _instrumentation_key(node)[:2] == _instrumentation_key(other)[:2]
        for other in witnesses
    )


def _instrumentation_key(node: SpanNode) -> tuple[str, int, str]:
    """Who writes such spans: the instrumentation, at which end of a call, under which name."""
    return node.span.scope, node.span.kind, node.span.name


def _is_served_within(seen: ObservedCall, call: ObservedCall) -> bool:
    """Whether a witness, of the protocol or of another service, was made while a call ran."""
    if seen.start_ns is None or call.start_ns is None or seen.end_ns is None or call.end_ns is None:
        return False
    if seen.node is None or call.node is None or not (call.start_ns <= seen.start_ns and seen.end_ns <= call.end_ns):
        return False
    return "mcp" in seen.node.facts.conventions or seen.node.span.service != call.node.span.service


def _nested(one: ObservedCall, other: ObservedCall) -> bool:
    """Whether one call was made by the other: then they overlap, but their order is known."""
    if one.node is None or other.node is None:
        return False
    return one.node.contains(other.node) or other.node.contains(one.node)


_ToolCall = fast_constructor(ToolCall)


def _build_tool_call(
    call: ObservedCall,
    *,
    offered: Mapping[str, ToolDefinition],
    servers: frozenset[str],
    concurrent_with: tuple[int, ...],
) -> ToolCall:
    name, server = undecorate(call.name)
    if servers and server is None and call.server is None:
        server = undecorate(call.name, servers)[1]
    definition = offered.get(fold_name(call.name)) if offered else None
    parameters = definition.parameters if definition is not None else None
    arguments, unread = (None, None) if call.arguments is None else call.arguments.named_arguments(parameters)
    result = None if call.result is None else call.result.value
    error = call.error or ("error" if call.outcome == "error" else None)
    known_to_end = call.node is not None or call.result is not None
    return _ToolCall(
        name=name,
        raw_name=call.name,
        server=call.server or server,
        arguments=arguments,
        raw_arguments=unread,
        result=result,
        error=error,
        error_guess=values.guess_error(result) if error is None else None,
        outcome=call.outcome or ("error" if error is not None else "ok" if known_to_end else None),
        call_id=call.call_id or None,
        kind=call.kind,
        evidence="executed" if call.node is not None else "requested",
        agent=call.agent,
        span_id=call.node.span.span_id if call.node is not None else None,
        start_ns=call.start_ns,
        end_ns=call.end_ns,
        concurrent_with=concurrent_with,
    )
