"""One tool call while its witnesses are gathered, and the tool spans that are its first witnesses.

A call may leave several spans: the framework's, an MCP client's inside it, an MCP server's inside that, and those of a
second instrumentation. They are one call.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from goldspan.extraction import values
from goldspan.extraction.dialogues import NEVER, Dialogue
from goldspan.extraction.envelopes import Request, Result
from goldspan.extraction.names import fold, server_of, undecorate
from goldspan.extraction.reading import Written
from goldspan.extraction.tree import Node
from goldspan.model import Outcome, SpanRecord, ToolCall, ToolDefinition, ToolKind

_NEAR = 64
"""Calls begun last, among which the one around a span without its parent is looked for."""
T = TypeVar("T")
JITTER_NS = 2_000_000
"""Some SDKs take starts from a clock of milliseconds and ends from another one."""


@dataclass(slots=True, eq=False)
class Call:
    """What is known of one call so far."""

    name: str
    kind: ToolKind = "tool"
    call_id: str | None = None
    arguments: Written | None = None
    result: Written | None = None
    error: str | None = None
    outcome: Outcome | None = None
    server: str | None = None
    agent: str | None = None
    nameless: bool = False
    """Whether the name is that of the span, for want of a better one."""
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
        self.outcome = self.outcome or other.outcome
        self.server = self.server or other.server or server_of(self.name, bare=other.name)
        self.agent = self.agent or other.agent
        if self.arguments is None or (other.named and (not self.named or self._wraps(other))):
            self.arguments = other.arguments
        self.result = self.result or other.result
        if self.kind == "tool":
            self.kind = other.kind

    def confirm(self, told: Call) -> None:
        """Take what a history knows of the call beyond what is known; it is no further witness."""
        merged = self.merged
        if self.nameless and not same_name(self.name, told.name):
            self.name = told.name
        self.absorb(told)
        self.nameless, self.merged = False, merged

    @property
    def named(self) -> bool:
        """Whether the arguments are known by name: some instrumentations write a single one bare, or none."""
        return self.arguments is not None and isinstance(self.arguments.value, dict)

    def _wraps(self, other: Call) -> bool:
        """Whether this call shows the one parameter of a function around the tool, and the other what was in it."""
        own, inner = (call.arguments.value if call.arguments is not None else None for call in (self, other))
        return isinstance(own, dict) and len(own) == 1 and bool(inner) and inner in own.values()

    def same_values(self, arguments: Written | None) -> bool:
        """Whether arguments of another witness are known to be equal to this call's."""
        if self.arguments is None or arguments is None:
            return False
        return bool(self.arguments.value == arguments.value)

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
    for node in sorted(filter(_is_call, nodes), key=lambda node: node.place):
        seen = call_of(node)
        known = of_node.get(node.enclosing_tool) if node.enclosing_tool is not None else None
        if known is None or not _same_call(known, seen):
            # Two instrumentations beside each other: one id, one name, at the same time.
            beside = of_id.get(seen.call_id or "", ())
            known = next((call for call in beside if _same_call(call, seen) and _beside(call, seen)), None)
        if known is None and node.orphan and "mcp" in node.reading.by:
            # The span between the framework's and the protocol's never came.
            around = (call for call in reversed(calls[-_NEAR:]) if _same_call(call, seen) and _within(seen, call))
            known = next(around, None)
        if known is not None:
            known.absorb(seen)
        else:
            known = seen
            calls.append(seen)
        of_node[node] = known
        if known.call_id:
            of_id.setdefault(known.call_id, []).append(known)
    return calls


def call_of(node: Node) -> Call:
    """What the span of a tool tells of its call."""
    reading, span = node.reading, node.span
    # Some instrumentations tell the call's id, the tool's real name or its failure only inside what it returned.
    asked = _opened(reading.arguments, Request) or Request(None)
    told = _opened(reading.result, Result) or Result(None)
    names = (reading.name, told.name, asked.name, reading.span_name)
    return Call(
        name=next((name for name in names if name is not None), span.name),
        nameless=all(name is None for name in names[:3]),
        kind=reading.kind or ("agent" if node.runs_agent else "tool"),
        call_id=reading.call_id or told.call_id or asked.call_id,
        arguments=reading.arguments,
        result=reading.result,
        # A call that waits has not failed, though it left its span by an exception.
        error=None if reading.outcome == "deferred" else reading.error or error_of(span) or told.error,
        outcome=reading.outcome,
        server=reading.server,
        agent=node.agent,
        node=node,
        start_ns=span.start_ns,
        end_ns=span.end_ns,
    )


def _is_call(node: Node) -> bool:
    """Whether a span is a tool at work, or an agent that another one called without a tool's span around it."""
    if node.role == "agent" and node.reading.kind == "agent" and node.enclosing_tool is None:
        return any(above.role == "agent" for above in node.ancestors())
    return node.role == "tool"


def asks_for(turn: Dialogue, tool: Node) -> bool:
    """Whether a model's turn asks for the tool that a span executed, before it did; best by the call's id."""
    if turn.ended > (tool.span.start_ns or 0) + JITTER_NS:
        return False
    made = call_of(tool)
    if made.call_id and any(asked.call_id for asked in turn.calls):
        return any(asked.call_id == made.call_id for asked in turn.calls)
    return any(same_name(asked.name, made.name) for asked in turn.calls)


def finish(calls: Iterable[Call], offered: Iterable[ToolDefinition]) -> tuple[ToolCall, ...]:
    """The calls of a run in order, each knowing which others ran at the same time.

    The schemas of the tools that were offered give names to arguments that were written without.
    """
    schemas = {fold(tool.name): tool for tool in offered}
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
        _finished(call, offered=schemas, concurrent_with=tuple(sorted(others)))
        for call, others in zip(ordered, beside, strict=True)
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


def _opened(written: Written | None, kind: type[T]) -> T | None:
    opened = written.opened if written is not None else None
    return opened if isinstance(opened, kind) else None


def _same_call(call: Call, seen: Call) -> bool:
    # A span without any name is a part of the call it stands in: asking for permission, or the execution itself.
    if seen.name and not same_name(call.name, seen.name):
        return False
    if call.call_id and seen.call_id and call.call_id != seen.call_id:
        return False
    return call.arguments is None or seen.arguments is None or call.same_values(seen.arguments)


def _beside(call: Call, seen: Call) -> bool:
    """Whether two witnesses of one id can be of one call. A refusal comes before or after the call that never ran."""
    return call.overlaps(seen) or "denied" in (call.outcome, seen.outcome)


def _within(seen: Call, call: Call) -> bool:
    """Whether a witness was made while a call ran."""
    if seen.start_ns is None or call.start_ns is None or seen.end_ns is None or call.end_ns is None:
        return False
    return call.start_ns <= seen.start_ns and seen.end_ns <= call.end_ns


def _nested(one: Call, other: Call) -> bool:
    """Whether one call was made by the other: then they overlap, but their order is known."""
    if one.node is None or other.node is None:
        return False
    return one.node.contains(other.node) or other.node.contains(one.node)


def _finished(call: Call, *, offered: Mapping[str, ToolDefinition], concurrent_with: tuple[int, ...]) -> ToolCall:
    name, server = undecorate(call.name)
    parameters = offered[fold(call.name)].parameters if fold(call.name) in offered else None
    arguments, unread = (None, None) if call.arguments is None else call.arguments.named(parameters)
    result = None if call.result is None else call.result.value
    known_to_end = call.node is not None or call.result is not None
    return ToolCall(
        name=name,
        raw_name=call.name,
        server=call.server or server,
        arguments=arguments,
        raw_arguments=unread,
        result=result,
        error=call.error,
        error_guess=values.complaint(result) if call.error is None else None,
        outcome=call.outcome or ("error" if call.error is not None else "ok" if known_to_end else None),
        call_id=call.call_id or None,
        kind=call.kind,
        evidence="executed" if call.node is not None else "requested",
        agent=call.agent,
        span_id=call.node.span.span_id if call.node is not None else None,
        start_ns=call.start_ns,
        end_ns=call.end_ns,
        concurrent_with=concurrent_with,
    )
