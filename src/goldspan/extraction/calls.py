"""One tool call while its witnesses are gathered, and the tool spans that are its first witnesses.

A call may leave several spans: the framework's, an MCP client's inside it, an MCP server's inside that, and those of a
second instrumentation. They are one call.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from goldspan.extraction import values
from goldspan.extraction.names import fold, undecorate
from goldspan.extraction.tree import Node
from goldspan.model import ABSENT, SpanRecord, ToolCall, ToolKind

NEVER = float("inf")
"""A time that is not known sorts last."""


@dataclass(slots=True, eq=False)
class Call:
    """What is known of one call so far."""

    name: str
    kind: ToolKind = "tool"
    call_id: str | None = None
    arguments: Any = ABSENT
    result: Any = ABSENT
    error: str | None = None
    agent: str | None = None
    node: Node | None = None
    """The outermost span of its execution; `None`: only requested."""
    start_ns: int | None = None
    end_ns: int | None = None
    asked_at: tuple[float, int] | None = None
    """When the model asked for it: the end of the model's span, and the place within its message."""
    merged: int = 0
    """Witnesses beyond the first."""

    @property
    def place(self) -> tuple[float, tuple[float, int], str]:
        """Sort key: time of start, ties in the order in which the model asked; the id only makes it unambiguous."""
        start = NEVER if self.start_ns is None else self.start_ns
        identity = self.node.span.span_id if self.node is not None else self.call_id or ""
        return (start, self.asked_at or (NEVER, 0), identity)

    def absorb(self, other: Call) -> None:
        """Take what another witness of the same call knows better."""
        self.merged += 1 + other.merged
        self.call_id = self.call_id or other.call_id
        self.error = self.error or other.error
        self.agent = self.agent or other.agent
        if other.named and not self.named:
            self.arguments = other.arguments
        if self.result is ABSENT:
            self.result = other.result
        if self.kind == "tool":
            self.kind = other.kind

    @property
    def named(self) -> bool:
        """Whether the arguments are known by name: some instrumentations write a single one bare, or none."""
        return isinstance(values.arguments(self.arguments)[0], dict)

    def same_values(self, arguments: Any) -> bool:
        """Whether arguments of another witness are known to be equal to this call's."""
        if _absent(self.arguments) or _absent(arguments):
            return False
        return values.arguments(self.arguments) == values.arguments(arguments)

    def overlaps(self, other: Call) -> bool:
        """Whether two calls ran at the same time; requests of one message count as such, their order is not known."""
        if self.node is None and other.node is None:
            return self.asked_at is not None and other.asked_at is not None and self.asked_at[0] == other.asked_at[0]
        if self.start_ns is None or other.start_ns is None or self.end_ns is None or other.end_ns is None:
            return False
        return self.start_ns < other.end_ns and other.start_ns < self.end_ns and not _nested(self, other)


def executed(nodes: Iterable[Node]) -> list[Call]:
    """One call for every execution among some spans, however many spans it left, by time of start."""
    calls: list[Call] = []
    of_node: dict[Node, Call] = {}
    of_id: dict[str, list[Call]] = {}
    for node in sorted((node for node in nodes if node.role == "tool"), key=lambda node: node.place):
        seen = _of_span(node)
        known = of_node.get(node.enclosing_tool) if node.enclosing_tool is not None else None
        if known is None or not _same_call(known, seen):
            # Two instrumentations beside each other: one id, one name, at the same time.
            beside = of_id.get(seen.call_id or "", ())
            known = next((call for call in beside if _same_call(call, seen) and call.overlaps(seen)), None)
        if known is not None:
            known.absorb(seen)
        else:
            known = seen
            calls.append(seen)
        of_node[node] = known
        if known.call_id:
            of_id.setdefault(known.call_id, []).append(known)
    return calls


def finish(calls: Iterable[Call]) -> tuple[ToolCall, ...]:
    """The calls of a run in order, each knowing which others ran at the same time."""
    ordered = sorted(calls, key=lambda call: call.place)
    beside: list[list[int]] = [[] for _ in ordered]
    for first, call in enumerate(ordered):
        horizon = call.start_ns if call.end_ns is None else call.end_ns
        for second in range(first + 1, len(ordered)):
            start = ordered[second].start_ns
            if horizon is None or start is None or start > horizon:
                break
            if call.overlaps(ordered[second]):
                beside[first].append(second)
                beside[second].append(first)
    return tuple(
        _finished(call, concurrent_with=tuple(sorted(others))) for call, others in zip(ordered, beside, strict=True)
    )


def error_of(span: SpanRecord) -> str | None:
    """What a span says went wrong: its exception, its status message, or its type of error."""
    kind = span.attributes.get("error.type")
    if span.status != "error" and kind is None:
        return None
    exceptions = (event.attributes for event in span.events if event.name == "exception")
    told = (said.get("exception.message") or said.get("exception.type") for said in exceptions)
    return str(next((text for text in told if text), span.status_message or kind or "error"))


def same_name(one: str, other: str) -> bool:
    """Whether two names can mean one tool; the longer may carry its server's name in front."""
    short, long = sorted((fold(undecorate(one)[0]), fold(undecorate(other)[0])), key=len)
    return short == long or (bool(short) and long.endswith(short))


def _of_span(node: Node) -> Call:
    reading, span = node.reading, node.span
    return Call(
        name=reading.name if reading.name is not None else span.name,
        kind="agent" if node.runs_agent and reading.kind == "tool" else reading.kind,
        call_id=reading.call_id,
        arguments=reading.arguments,
        result=reading.result,
        error=reading.error or error_of(span),
        agent=node.agent,
        node=node,
        start_ns=span.start_ns,
        end_ns=span.end_ns,
    )


def _same_call(call: Call, seen: Call) -> bool:
    if not same_name(call.name, seen.name):
        return False
    if call.call_id and seen.call_id and call.call_id != seen.call_id:
        return False
    return _absent(call.arguments) or _absent(seen.arguments) or call.same_values(seen.arguments)


def _nested(one: Call, other: Call) -> bool:
    """Whether one call was made by the other: then they overlap, but their order is known."""
    if one.node is None or other.node is None:
        return False
    return one.node.contains(other.node) or other.node.contains(one.node)


def _absent(arguments: Any) -> bool:
    return arguments is ABSENT or arguments is None


def _finished(call: Call, *, concurrent_with: tuple[int, ...]) -> ToolCall:
    name, server = undecorate(call.name)
    arguments, unread = values.arguments(call.arguments)
    result = None if call.result is ABSENT else values.plain(call.result)
    known_to_end = call.node is not None or call.result is not ABSENT
    return ToolCall(
        name=name,
        raw_name=call.name,
        server=server,
        arguments=arguments,
        raw_arguments=unread,
        result=result,
        error=call.error,
        error_guess=values.complaint(result) if call.error is None else None,
        outcome="error" if call.error is not None else "ok" if known_to_end else None,
        call_id=call.call_id,
        kind=call.kind,
        evidence="executed" if call.node is not None else "requested",
        agent=call.agent,
        span_id=call.node.span.span_id if call.node is not None else None,
        start_ns=call.start_ns,
        end_ns=call.end_ns,
        concurrent_with=concurrent_with,
    )
