"""`SpanNode`: a span in the tree of its trace, with its facts, its messages and what encloses it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from goldspan.conventions.fallback import attribute_families
from goldspan.conventions.span_facts import (
    Messages,
    RequestedCall,
    Role,
    SpanFacts,
    first_messages,
    has_no_tool_calls,
    is_any_present,
)
from goldspan.model import SpanRecord

UNKNOWN_TIME = 1 << 64
"""Represents an unknown time and sorts last: times in OTLP are unsigned 64-bit integers."""
CLOCK_TOLERANCE_NS = 2_000_000
"""The tolerance for comparing times: some SDKs take starts from a millisecond clock and ends from another one."""


def start_of(span: SpanRecord) -> int:
    """Returns the start time of a span, or `UNKNOWN_TIME`."""
    return UNKNOWN_TIME if span.start_ns is None else span.start_ns


def end_of(span: SpanRecord) -> int:
    """Returns the end time of a span, or `UNKNOWN_TIME`."""
    return UNKNOWN_TIME if span.end_ns is None else span.end_ns


class TraceTrees:
    """What the nodes of one trace share."""

    __slots__ = ("_unknown_families", "_unknown_span_names", "_unknown_spans", "nodes")

    def __init__(self, unknown: Collection[SpanRecord]) -> None:
        self.nodes: list[SpanNode] = []
        """All nodes, in pre-order, siblings by start time."""
        self._unknown_spans = unknown
        self._unknown_span_names: frozenset[str] | None = None
        self._unknown_families: tuple[str, ...] | None = None

    @property
    def unknown_span_names(self) -> frozenset[str]:
        """The names of the spans that no convention recognises."""
        if self._unknown_span_names is None:
            self._unknown_span_names = frozenset([span.name for span in self._unknown_spans])
        return self._unknown_span_names

    @property
    def unknown_families(self) -> tuple[str, ...]:
        """The attribute prefixes of the spans that no convention recognises."""
        if self._unknown_families is None:
            self._unknown_families = attribute_families(self._unknown_spans)
        return self._unknown_families


_NO_TRACE = TraceTrees(())


class SpanNode:
    """A span in its tree, with the facts that the conventions found and the spans that enclose it."""

    __slots__ = (
        "_first",
        "_input_may_have_calls",
        "_input_messages",
        "_input_texts",
        "_last",
        "_output_may_have_calls",
        "_output_messages",
        "_requested_calls",
        "_trees",
        "agent",
        "children",
        "component",
        "component_name",
        "enclosing_model",
        "enclosing_tool",
        "facts",
        "is_leaked",
        "owner",
        "parent",
        "role",
        "runs_agent",
        "sort_key",
        "span",
        "start",
        "unknown_spans",
    )

    def __init__(self, span: SpanRecord, facts: SpanFacts, declared_component: str | None = None) -> None:
        """Create a node without parent and children; `build_trees` links it."""
        self.span = span
        self.facts = facts
        self.role: Role | None = facts.role
        """The span's role in a run."""
        self.start = UNKNOWN_TIME if span.start_ns is None else span.start_ns
        """The start time; an unknown time sorts last."""
        self.sort_key: tuple[int, int, str] = (
            self.start,
            UNKNOWN_TIME if span.end_ns is None else span.end_ns,
            span.span_id,
        )
        """Sort key: start time, then end time, because a millisecond clock may show the end of one span and the start
        of the next as the same time. The span id makes the order deterministic.
        """
        self.parent: SpanNode | None = None
        self.children: Sequence[SpanNode] = ()
        """The nodes directly below, by start time."""
        self.agent: str | None = facts.agent or None
        """The name of the agent that encloses the span."""
        self.enclosing_tool: SpanNode | None = None
        """The tool span that encloses this one, if no agent is between them: otherwise it is that agent's work."""
        self.component_name = (facts.name or span.name) if facts.role == "component" else declared_component
        """The name of the component that the span stands for, by its mark or by declaration."""
        self.component: SpanNode | None = self if facts.role == "component" or declared_component is not None else None
        """The innermost component that contains the span, not counting sub-agents."""
        self.enclosing_model: SpanNode | None = None
        """The model span that encloses this one, if no tool and no agent is between them."""
        self.owner: SpanNode | None = None
        """The nearest agent, entry or tool above."""
        self.is_leaked = False
        """Whether the parent is a span of the previous request, which had already ended."""
        self.runs_agent = False
        """For a tool: whether it directly contains an agent."""
        self.unknown_spans = 0
        """The number of unrecognised spans, which have no node, whose nearest node above is this one."""
        self._trees = _NO_TRACE
        self._first = self._last = 0
        self._input_messages: Messages | None = None
        self._output_messages: Messages | None = None
        self._requested_calls: tuple[RequestedCall, ...] | None = None
        self._input_texts: tuple[str, ...] | None = None
        self._input_may_have_calls: bool | None = None
        self._output_may_have_calls: bool | None = None

    @property
    def input_messages(self) -> Messages:
        """The input messages of the model or agent; decoded once, because they may be long."""
        if self._input_messages is None:
            self._input_messages = first_messages(self.facts.input_messages)
        return self._input_messages

    @property
    def output_messages(self) -> Messages:
        """The output messages of the model or agent; decoded once."""
        if self._output_messages is None:
            self._output_messages = first_messages(self.facts.output_messages)
        return self._output_messages

    @property
    def requested_calls(self) -> tuple[RequestedCall, ...]:
        """The tool calls in the output messages; collected once."""
        if self._requested_calls is None:
            messages = self.output_messages if self.output_may_have_calls else ()
            self._requested_calls = tuple([call for message in messages for call in message.tool_calls])
        return self._requested_calls

    @property
    def user_texts(self) -> tuple[str, ...]:
        """The user messages in the input, in order; collected once, because each step of extraction compares them."""
        if self._input_texts is None:
            # A user message with a text is from the user, whatever else it contains.
            self._input_texts = tuple(
                [message.text.strip() for message in self.input_messages if message.role == "user" and message.text]
            )
        return self._input_texts

    @property
    def has_messages(self) -> bool:
        """Whether the span may have input or output messages; does not decode them."""
        return is_any_present(self.facts.input_messages) or is_any_present(self.facts.output_messages)

    @property
    def input_may_have_calls(self) -> bool:
        """Whether the input may contain tool calls or tool results."""
        if self._input_may_have_calls is None:
            self._input_may_have_calls = not has_no_tool_calls(self.facts.input_messages)
        return self._input_may_have_calls and self._input_messages != ()

    @property
    def output_may_have_calls(self) -> bool:
        """Whether the output may contain tool calls."""
        if self._output_may_have_calls is None:
            self._output_may_have_calls = not has_no_tool_calls(self.facts.output_messages)
        return self._output_may_have_calls and self._output_messages != ()

    @property
    def tree_index(self) -> int:
        """The position in a pre-order walk of the trace's trees, siblings by start time."""
        return self._first

    @property
    def unknown_span_names(self) -> frozenset[str]:
        """The names of the spans of the trace that no convention recognises."""
        return self._trees.unknown_span_names

    @property
    def unknown_families(self) -> tuple[str, ...]:
        """The attribute prefixes of the spans of the trace that no convention recognises."""
        return self._trees.unknown_families

    @property
    def is_orphan(self) -> bool:
        """Whether the span names a parent that is missing."""
        return self.parent is None and self.span.parent_id is not None and not self.is_leaked

    def contains(self, other: SpanNode) -> bool:
        """Returns whether another node is this one or below it. A node of another trace never is."""
        return self._first <= other._first <= self._last and self.span.trace_id == other.span.trace_id

    def ancestors(self) -> Iterator[SpanNode]:
        """Yields the nodes above, from the parent upwards."""
        node = self.parent
        while node is not None:
            yield node
            node = node.parent

    def walk(self) -> Iterator[SpanNode]:
        """Yields the node and all nodes below it in pre-order, children by start time."""
        return iter(self._trees.nodes[self._first : self._last + 1])
