"""Reads tool calls from tool spans, and merges the spans and messages that describe the same call.

One call may produce several spans: the framework's, an MCP client's inside it, an MCP server's inside that, and those
of a second instrumentation.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, NamedTuple, TypeVar

from goldspan.content.envelopes import CallArguments, CallResult
from goldspan.content.parts import RequestedCall
from goldspan.content.tools import is_same_name, server_prefix
from goldspan.conventions.span_facts import RawValue
from goldspan.extraction.model_turns import ModelTurn
from goldspan.extraction.span_node import UNKNOWN_TIME, SpanNode
from goldspan.model import ABSENT, CallOutcome, SpanRecord, ToolKind

_NUMBER_PARTS = re.compile(r"[0-9]{1,18}|[^0-9]+")
_AWAITABLE_REPR = re.compile(r"<(?:coroutine|generator|async_generator) object ")
"""The result that a wrapper records for a Python tool if it does not await it."""
_MAX_OPEN_CALLS = 64
"""How many of the latest calls are checked for the one that encloses a span without its parent."""
_MAX_ARGUMENT_DEPTH = 50
"""The depth to which arguments are compared: a difference below it is ignored."""
T = TypeVar("T")


class RequestOrder(NamedTuple):
    """When a model requested a call: a sort key."""

    time_ns: int = UNKNOWN_TIME
    """The end of the model span."""
    turn: int = 0
    """The number of the turn: several turns may have the same time."""
    position: int = 0
    """The position within the message."""


_NOT_REQUESTED = RequestOrder()


@dataclass(slots=True, eq=False)
class ObservedCall:
    """The facts that spans and messages show about one call."""

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
    """Whether the name is that of the span because no other name is known."""
    node: SpanNode | None = None
    """The outermost span of its execution; `None` if the call was only requested."""
    start_ns: int | None = None
    end_ns: int | None = None
    request_order: RequestOrder | None = None
    """When the model requested it."""
    history_position: int = UNKNOWN_TIME
    """Its position among the calls that a history repeats."""
    requesting_turn: ModelTurn | None = None
    """The turn that requested it."""
    merged_count: int = 0
    """The number of merged observations beyond the first."""
    doubtful_merges: int = 0
    """The number of merges of two spans of the same instrumentation that both have a result."""

    @property
    def sort_key(self) -> tuple[int, RequestOrder, int, tuple[tuple[int, str], ...], int, int, str]:
        """Sort key: the start time, then the order of the requests or of the history, then the order of the spans.

        Without a start time, numbers in the call ids determine the order. The last id makes the order deterministic.
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
        """Merge another observation of the same call: missing and less complete facts are replaced."""
        self.merged_count += 1 + other.merged_count
        self.doubtful_merges += other.doubtful_merges
        self.call_id = self.call_id or other.call_id
        self.error = self.error or other.error
        self.outcome = self.outcome or other.outcome
        self.server = self.server or other.server or server_prefix(self.name, tool_name=other.name)
        self.agent = self.agent or other.agent
        if self._is_improved_by(other.arguments):
            self.arguments = other.arguments
        self.result = self.result or other.result
        if self.kind == "tool":
            self.kind = other.kind

    def absorb_request(self, request: RequestedCall) -> None:
        """Merge a model's request for the call, as `absorb` merges an observed call without a span."""
        self.merged_count += 1
        self.call_id = self.call_id or request.call_id
        self.error = self.error or request.error
        if not self.server:
            is_same_name = self.name == request.name  # the usual case, in which no name has a prefix
            self.server = request.server or (None if is_same_name else server_prefix(self.name, tool_name=request.name))
        if self._may_be_improved:
            requested = raw_value(request.arguments)
            if self._is_improved_by(requested):
                self.arguments = requested
        if self.result is None:
            self.result = raw_value(request.result)
        if self.kind == "tool":
            self.kind = request.kind

    def shorten_to(self, sibling: ObservedCall) -> None:
        """Use the end of a sibling span of the same call if it is earlier and the sibling has an outcome.

        A sibling without an outcome may only have started the call, or may have stayed open until the request ended. A
        tool that continues in the background ends when the agent receives its handle: the handle is the result.
        """
        if sibling.end_ns is not None and sibling._is_finished:
            self.end_ns = sibling.end_ns if self.end_ns is None else min(self.end_ns, sibling.end_ns)

    def complete_from_history(self, request: RequestedCall) -> None:
        """Merge the facts that a history repeats about the call, without counting another observation."""
        merged = self.merged_count
        if self.is_unnamed and not is_same_name(self.name, request.name):
            self.name = request.name
        self.absorb_request(request)
        self.is_unnamed, self.merged_count = False, merged

    @property
    def _is_finished(self) -> bool:
        """Whether the call has an error or a result, and is neither deferred nor unawaited."""
        if self.outcome == "deferred" or (self.error is None and self.result is None):
            return False
        returned = self.result.raw if self.result is not None else None
        return not (isinstance(returned, str) and _AWAITABLE_REPR.match(returned))

    @property
    def has_named_arguments(self) -> bool:
        """Whether the arguments have names: some instrumentations write a single argument without its name."""
        return self.arguments is not None and isinstance(self.arguments.value, dict)

    @property
    def _may_be_improved(self) -> bool:
        """Whether other observed arguments may be more complete. Most arguments have several names, or plain values."""
        own = None if self.arguments is None else self.arguments.value
        if not isinstance(own, dict):
            return True
        return len(own) == 1 and isinstance(next(iter(own.values())), dict)

    def _is_improved_by(self, arguments: RawValue | None) -> bool:
        """Whether other observed arguments are more complete: they have names, or a wrapper function received them.

        The other arguments are parsed only if it depends on them: a history repeats those of most calls.
        """
        if self.arguments is None or arguments is None:
            return self.arguments is None
        own = self.arguments.value
        if not isinstance(own, dict):
            return isinstance(arguments.value, dict)
        # The single argument of a wrapper function is a dictionary: the arguments of the wrapped one.
        inner = next(iter(own.values())) if len(own) == 1 else None
        return isinstance(inner, dict) and bool(inner) and _equal(arguments.value, inner)

    def has_same_arguments(self, arguments: RawValue | None) -> bool:
        """Returns whether both arguments are known and equal."""
        if self.arguments is None or arguments is None:
            return False
        return _equal(self.arguments.value, arguments.value)

    def overlaps(self, other: ObservedCall) -> bool:
        """Returns whether two calls ran at the same time.

        Calls whose order is unknown count as overlapping: requests of one message, and calls without times.
        """
        if self.node is None and other.node is None:
            return (
                self.request_order is not None and other.request_order is not None and self._requested_together(other)
            )
        if self.start_ns is None and other.start_ns is None:
            return self._requested_together(other)
        if self.start_ns is None or other.start_ns is None or self.end_ns is None or other.end_ns is None:
            return False
        if self.start_ns == other.start_ns:  # the clock is too coarse to show the order
            return self._requested_together(other) and not _nested(self, other)
        return self.start_ns < other.end_ns and other.start_ns < self.end_ns and not _nested(self, other)

    def _requested_together(self, other: ObservedCall) -> bool:
        """Whether the model may have requested both in one message."""
        if self.request_order is None or other.request_order is None:
            return True
        return self.request_order[:2] == other.request_order[:2]


def executed_calls(nodes: Iterable[SpanNode]) -> list[ObservedCall]:
    """Returns one call for every execution, however many spans it has, by start time."""
    calls: list[ObservedCall] = []
    call_by_node: dict[SpanNode, ObservedCall] = {}
    calls_by_id: dict[str, list[ObservedCall]] = {}
    sibling_pairs: list[tuple[ObservedCall, ObservedCall]] = []
    spans_of_call: dict[ObservedCall, list[SpanNode]] = {}
    for node in _outermost_first(nodes):
        seen = call_from_span(node)
        known = call_by_node.get(node.enclosing_tool) if node.enclosing_tool is not None else None
        if known is None or not _same_call(known, seen):
            known = None
            # Sibling spans of two instrumentations have the same id and name, and overlap.
            for call in calls_by_id.get(seen.call_id or "", ())[-_MAX_OPEN_CALLS:]:
                if _same_call(call, seen) and _may_be_one_execution(call, seen):
                    known = call
                    sibling_pairs.append((call, seen))
                    break
        if known is None and node.owner is None and calls:
            # The span between the framework's span and that of the protocol or the server may be missing.
            enclosing = (
                call
                for call in reversed(calls[-_MAX_OPEN_CALLS:])
                if _same_call(call, seen) and _is_served_within(seen, call)
            )
            known = next((call for call in enclosing if not _has_sibling_span(node, spans_of_call[call])), None)
        if known is not None:
            inside = node.enclosing_tool is not None and call_by_node[node.enclosing_tool] is known
            is_same_instrumentation = not inside and any(
                _instrumentation_key(node) == _instrumentation_key(other) for other in spans_of_call[known]
            )
            known.doubtful_merges += is_same_instrumentation and known._is_finished and seen._is_finished
            spans_of_call[known].append(node)
            known.absorb(seen)
        else:
            known = seen
            calls.append(seen)
            spans_of_call[seen] = [node]
        call_by_node[node] = known
        if known.call_id:
            same_id = calls_by_id.setdefault(known.call_id, [])
            if not same_id or same_id[-1] is not known:
                same_id.append(known)
    # Only after all spans are merged: until then, the longest span determines the end of a call.
    for known, seen in sibling_pairs:
        known.shorten_to(seen)
    return in_order(calls)


def call_from_span(node: SpanNode) -> ObservedCall:
    """Returns the call that a tool span describes."""
    facts, span = node.facts, node.span
    # Some instrumentations write the call id, the tool's name or its error only inside the arguments or the result.
    request = _unwrapped_as(facts.arguments, CallArguments) or _NO_REQUEST
    response = _unwrapped_as(facts.result, CallResult) or _NO_RESULT
    name = facts.name if facts.name is not None else response.name if response.name is not None else request.name
    display_name = name if name is not None else facts.span_name
    return ObservedCall(
        name=span.name if display_name is None else display_name,
        is_unnamed=name is None,
        kind=facts.kind or ("agent" if node.runs_agent else "tool"),
        call_id=facts.call_id or response.call_id or request.call_id,
        arguments=facts.arguments,
        result=facts.result,
        # A deferred call has not failed, although an exception ended its span.
        error=None if facts.outcome == "deferred" else facts.error or span_error(span) or response.error,
        outcome=facts.outcome,
        server=facts.server,
        agent=node.agent,
        node=node,
        start_ns=span.start_ns,
        end_ns=span.end_ns,
    )


def _natural_order(call_id: str) -> tuple[tuple[int, str], ...]:
    """A sort key that compares the numbers in an id as numbers."""
    return tuple((int(part), "") if part[0] in "0123456789" else (-1, part) for part in _NUMBER_PARTS.findall(call_id))


_NO_REQUEST = CallArguments(None)
_NO_RESULT = CallResult(None)


def _outermost_first(nodes: Iterable[SpanNode]) -> list[SpanNode]:
    """Tool spans by start time, the longest first, but never before the span that encloses them."""
    order: dict[SpanNode, tuple[int, int, int, str]] = {}
    for node in nodes:
        if node.role != "tool" and (node.role != "agent" or not _is_called_agent(node)):
            continue
        outer = order.get(node.enclosing_tool) if node.enclosing_tool is not None else None
        start, end, span_id = node.sort_key
        depth = 0
        if outer is not None:
            start, depth = max(outer[0], start), outer[1] + 1
        order[node] = start, depth, -end, span_id
    return sorted(order, key=order.__getitem__)


def _is_called_agent(node: SpanNode) -> bool:
    """Whether an agent span is the call of another agent, without a tool span around it."""
    if node.facts.kind != "agent" or node.enclosing_tool is not None:
        return False
    return any(above.role == "agent" for above in node.ancestors())


def in_order(calls: list[ObservedCall]) -> list[ObservedCall]:
    """Returns the calls in their order."""
    if len(calls) < 2:
        return calls
    starts = {call.start_ns for call in calls}
    are_distinct = len(starts) == len(calls) and None not in starts  # as is usual; then no other part of the key counts
    return sorted(calls, key=_START if are_distinct else _SORT_KEY)


_START, _SORT_KEY = attrgetter("start_ns"), attrgetter("sort_key")


def raw_value(value: Any) -> RawValue | None:
    """Wraps a value from a message; `None` if the message has none."""
    return None if value is ABSENT or value is None else RawValue(value)


def span_error(span: SpanRecord) -> str | None:
    """Returns the error of a span: its exception, its status message or its error type."""
    kind = span.attributes.get("error.type")
    if span.status != "error" and kind is None:
        return None
    exceptions = (event.attributes for event in span.events if event.name == "exception")
    texts = (attributes.get("exception.message") or attributes.get("exception.type") for attributes in exceptions)
    return str(next((text for text in texts if text), span.status_message or kind or "error"))


def argument_fingerprint(arguments: RawValue | None) -> Hashable:
    """Returns a hashable key that is equal for equal arguments, and only for those."""
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
    except RecursionError:  # nested too deeply to be compared
        return False


def _unwrapped_as(value: RawValue | None, kind: type[T]) -> T | None:
    unwrapped = value.unwrapped if value is not None else None
    return unwrapped if isinstance(unwrapped, kind) else None


def _same_call(call: ObservedCall, seen: ObservedCall) -> bool:
    # A span without a name is a part of the enclosing call: a permission request or the execution itself.
    if seen.name and not is_same_name(call.name, seen.name):
        return False
    if call.call_id and seen.call_id and call.call_id != seen.call_id:
        return False
    return call.arguments is None or seen.arguments is None or call.has_same_arguments(seen.arguments)


def _may_be_one_execution(call: ObservedCall, seen: ObservedCall) -> bool:
    """Whether two spans with one call id can be of one call. A denied call has no execution that could overlap."""
    return call.overlaps(seen) or "denied" in (call.outcome, seen.outcome)


def _has_sibling_span(node: SpanNode, spans: Iterable[SpanNode]) -> bool:
    """Whether a call already has a sibling span of the same instrumentation: then a span belongs to another call."""
    return any(
        node.span.parent_id == other.span.parent_id
        and _instrumentation_key(node)[:2] == _instrumentation_key(other)[:2]
        for other in spans
    )


def _instrumentation_key(node: SpanNode) -> tuple[str, int, str]:
    """The instrumentation scope, the kind and the name of a span."""
    return node.span.scope, node.span.kind, node.span.name


def _is_served_within(seen: ObservedCall, call: ObservedCall) -> bool:
    """Whether a span of the MCP protocol or of another service lies within the time of a call."""
    if seen.start_ns is None or call.start_ns is None or seen.end_ns is None or call.end_ns is None:
        return False
    if seen.node is None or call.node is None or not (call.start_ns <= seen.start_ns and seen.end_ns <= call.end_ns):
        return False
    return "mcp" in seen.node.facts.conventions or seen.node.span.service != call.node.span.service


def _nested(one: ObservedCall, other: ObservedCall) -> bool:
    """Whether one call encloses the other: then they overlap in time, but their order is known."""
    if one.node is None or other.node is None:
        return False
    return one.node.contains(other.node) or other.node.contains(one.node)
