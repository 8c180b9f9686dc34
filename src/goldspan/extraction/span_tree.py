"""Arranges the spans of one trace as a tree, in whatever order they arrive and if some are missing.

No function recurses: a chain of spans may be thousands deep, and parents may form a cycle.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from operator import attrgetter

from goldspan.conventions.classification import EVALUATION_FACTS, UNKNOWN_FACTS, ConventionSet, DeclaredComponents
from goldspan.conventions.fallback import attribute_families
from goldspan.conventions.span_facts import (
    REQUEST_ROLES,
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


class _TraceTrees:
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
        if self._unknown_span_names is None:
            self._unknown_span_names = frozenset([span.name for span in self._unknown_spans])
        return self._unknown_span_names

    @property
    def unknown_families(self) -> tuple[str, ...]:
        if self._unknown_families is None:
            self._unknown_families = attribute_families(self._unknown_spans)
        return self._unknown_families


_NO_TRACE = _TraceTrees(())


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


def build_trees(
    spans: Collection[SpanRecord], *, conventions: ConventionSet, components: DeclaredComponents | None = None
) -> list[SpanNode]:
    """Builds the trees that the spans of one trace form, and returns their roots by start time.

    A span that no convention recognises, such as an application span, becomes a node only if it is a root, is selected
    by `components` or has lost attributes; otherwise its children are attached to the nearest node above it. Of
    repeated spans the most complete one counts. The children of a missing parent are roots. A cycle of parents is
    broken at its earliest span. Evaluations that were exported as spans are ignored.

    Returns an empty list if no convention recognises a span.
    """
    spans_by_id = _deduplicate(spans)
    nodes: dict[str, SpanNode] = {}
    unknown: dict[str, SpanRecord] = {}
    selectors = components or None
    distinct = list(spans_by_id.values())
    for span, facts in zip(distinct, conventions.classify_trace(distinct), strict=True):
        if facts is EVALUATION_FACTS:
            continue
        span_id = span.span_id
        component = None if selectors is None else selectors.match(span)
        if facts is UNKNOWN_FACTS and component is None and not span.dropped_attributes:
            unknown[span_id] = span
        else:
            nodes[span_id] = SpanNode(span, facts, component)
    if not nodes:
        return []
    _link_parents(nodes, spans_by_id)
    _count_unknown(nodes, unknown)
    ordered = sorted(nodes.values(), key=_sort_key)
    # A cycle always contains a span that does not start after its parent. This is rare otherwise.
    if any(node.parent is not None and node.parent.start >= node.start for node in ordered):
        _break_cycles(ordered)
    roots: list[SpanNode] = []
    for node in ordered:
        parent = node.parent
        if parent is None:
            roots.append(node)
        elif parent.children:
            parent.children.append(node)  # type: ignore[attr-defined]
        else:
            parent.children = [node]
    roots = _detach_leaked_requests(roots, ordered)
    _annotate_nodes(roots, _TraceTrees(unknown.values()))
    return roots


def release_trees(roots: list[SpanNode]) -> None:
    """Breaks the reference cycles of trees that are no longer needed.

    Parents and children reference each other; without this, only the garbage collector can free them.
    """
    if not roots:
        return
    nodes = roots[0]._trees.nodes
    for node in nodes:
        node.children = ()
    nodes.clear()


def _link_parents(nodes: dict[str, SpanNode], spans: Mapping[str, SpanRecord]) -> None:
    """Sets the parent of every node to the nearest node above; an unrecognised root above a node becomes a node."""
    nearest: dict[str, SpanNode] = {}
    for node in tuple(nodes.values()):
        span_id = node.span.parent_id
        above = nodes.get(span_id) if span_id is not None else None
        if above is not None and above is not node:
            node.parent = above
            continue
        path: dict[str, SpanRecord] = {}
        above = None
        while span_id is not None and above is None:
            above = nodes.get(span_id) or nearest.get(span_id)
            if above is None and span_id in path:  # a cycle of unrecognised spans
                cycle = list(path)[list(path).index(span_id) :]
                span_id = min(cycle, key=lambda member: (start_of(spans[member]), member))
                above = nodes[span_id] = SpanNode(spans[span_id], UNKNOWN_FACTS)
            elif above is None and span_id in spans:
                path[span_id] = spans[span_id]
                span_id = path[span_id].parent_id
            elif above is None:
                break
        if above is None and path:
            top = next(reversed(path))
            above = nodes[top] = SpanNode(path[top], UNKNOWN_FACTS)
        if above is not None:
            nearest.update(dict.fromkeys(path, above))
        if above is not node:
            node.parent = above


def _count_unknown(nodes: Mapping[str, SpanNode], unknown: Mapping[str, SpanRecord]) -> None:
    """Counts, for every node, the unrecognised spans whose nearest node above it is."""
    nearest: dict[str, SpanNode | None] = {}
    for span_id, span in unknown.items():
        step = span.parent_id
        if step is None or span_id in nodes:
            continue
        above = nodes.get(step)
        if above is None and step in unknown:
            path: list[str] = []
            while step is not None and step in unknown and step not in nodes and step not in nearest:
                nearest[step] = None  # a cycle ends here
                path.append(step)
                step = unknown[step].parent_id
            above = (nodes.get(step) or nearest.get(step)) if step is not None else None
            nearest.update(dict.fromkeys(path, above))
        if above is not None:
            above.unknown_spans += 1


def _detach_leaked_requests(roots: list[SpanNode], ordered: list[SpanNode]) -> list[SpanNode]:
    """Returns the roots, and the requests that are wrongly placed inside an earlier one of the same name.

    If a framework does not reset its context, the next request becomes a child of the last span of the previous
    request, which has already ended.
    """
    names = [node.facts.name for node in ordered if node.role in REQUEST_ROLES]
    if len(set(names)) == len(names):
        return roots
    leaked: list[SpanNode] = []
    pending: list[tuple[SpanNode, SpanNode | None]] = [(root, None) for root in roots]
    while pending:
        node, around = pending.pop()
        if node.role in REQUEST_ROLES:
            if around is not None and _is_leaked_request(node, around):
                node.is_leaked = True
                leaked.append(node)
            around = node
        pending.extend((child, around) for child in node.children)
    for parent in {node.parent for node in leaked if node.parent is not None}:
        parent.children = [child for child in parent.children if not child.is_leaked]
    for node in leaked:
        node.parent = None
    return sorted(roots + leaked, key=_sort_key) if leaked else roots


def _is_leaked_request(node: SpanNode, around: SpanNode) -> bool:
    if node.facts.name is None or node.facts.name != around.facts.name:
        return False
    end, start = around.span.end_ns, node.span.start_ns
    return end is not None and start is not None and end <= start


def _annotate_nodes(roots: list[SpanNode], trees: _TraceTrees) -> None:
    """Numbers the nodes, and sets what encloses each, from the top down; then where subtrees end, from the bottom up.

    What encloses the children of one node is worked out once for all of them.
    """
    nodes = trees.nodes
    pending = roots[::-1]
    while pending:
        node = pending.pop()
        node._trees = trees
        node._first = node._last = len(nodes)
        nodes.append(node)
        children = node.children
        if not children:
            continue
        pending += children[::-1]
        role = node.role
        agent = (node.facts.name if role == "agent" else None) or node.agent
        component = node.component
        owner = node if role == "tool" or role in REQUEST_ROLES else node.owner
        # Some instrumentations run tools inside the model span that requested them, and agents inside tools.
        model = node if role == "model" else None if role in ("tool", "agent") else node.enclosing_model
        tool = node if role == "tool" else None if role == "agent" else node.enclosing_tool
        for child in children:
            child.agent = agent or child.agent
            child.component = child.component or component
            child.owner = owner
            child.enclosing_model = model
            child.enclosing_tool = tool
            if tool is not None and child.role == "agent":
                tool.runs_agent = True
    for node in reversed(nodes):
        if node.children:
            node._last = node.children[-1]._last


_sort_key = attrgetter("sort_key")


def _deduplicate(spans: Collection[SpanRecord]) -> dict[str, SpanRecord]:
    kept = {span.span_id: span for span in spans}
    if len(kept) == len(spans):
        return kept
    kept = {}
    for span in spans:
        known = kept.get(span.span_id)
        if known is None or _completeness(span) > _completeness(known):
            kept[span.span_id] = span
    return kept


def _completeness(span: SpanRecord) -> tuple[int, int, int, str]:
    """Sort key for two exports of one span; the last part makes the order deterministic."""
    attributes = sorted(span.attributes.items(), key=lambda item: item[0])
    rest = (attributes, span.events, span.status, span.status_message, span.parent_id, span.name, span.start_ns)
    return (span.end_ns or 0, len(span.attributes), len(span.events), repr(rest))


def _break_cycles(ordered: list[SpanNode]) -> None:
    """Detach, in every cycle of parents, the span that started first."""
    rooted: set[SpanNode] = set()
    for node in ordered:
        path: list[SpanNode] = []
        on_path: set[SpanNode] = set()
        step: SpanNode | None = node
        while step is not None and step not in rooted and step not in on_path:
            path.append(step)
            on_path.add(step)
            step = step.parent
        if step is not None and step in on_path:
            cycle = path[path.index(step) :]
            min(cycle, key=lambda member: member.sort_key).parent = None
        rooted.update(path)
