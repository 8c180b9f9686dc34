"""The spans of one trace as a tree, whatever order they came in and however damaged they are.

Nothing here recurses: a chain of spans may be thousands deep, and parents may form a circle.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from operator import attrgetter

from goldspan.conventions.classification import EVALUATION_FACTS, UNKNOWN_FACTS, ConventionSet, DeclaredComponents
from goldspan.conventions.fallback import attribute_families
from goldspan.conventions.span_facts import (
    REQUEST_ROLES,
    Messages,
    Role,
    SpanFacts,
    first_messages,
    has_no_tool_calls,
    is_any_present,
)
from goldspan.model import SpanRecord

UNKNOWN_TIME = 1 << 64
"""Stands for a time that is not known, and sorts last: OTLP's times are unsigned integers of 64 bits."""
CLOCK_TOLERANCE_NS = 2_000_000
"""Some SDKs take starts from a clock of milliseconds and ends from another one."""


def start_of(span: SpanRecord) -> int:
    """When a span started; `NEVER` where that is not known."""
    return UNKNOWN_TIME if span.start_ns is None else span.start_ns


def end_of(span: SpanRecord) -> int:
    """When a span ended; `NEVER` where that is not known."""
    return UNKNOWN_TIME if span.end_ns is None else span.end_ns


class SpanNode:
    """A span in its place, with what the conventions read off it and what stands around it."""

    __slots__ = (
        "_answered",
        "_asked",
        "_families",
        "_first",
        "_hears_calls",
        "_last",
        "_says_calls",
        "_strangers",
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
        "unknown_span_names",
        "unknown_spans",
    )

    def __init__(self, span: SpanRecord, reading: SpanFacts, part: str | None = None) -> None:
        """Make a node that stands alone; `plant` puts it into its tree."""
        self.span = span
        self.facts = reading
        self.role: Role | None = reading.role
        """What the span is to a run."""
        self.start = UNKNOWN_TIME if span.start_ns is None else span.start_ns
        """Time of start, unknown times last."""
        self.sort_key: tuple[int, int, str] = (
            self.start,
            UNKNOWN_TIME if span.end_ns is None else span.end_ns,
            span.span_id,
        )
        """Sort key: time of start, then of the end: a clock of milliseconds may show the end of one span and the start
        of the next as one time. The span id only makes it unambiguous.
        """
        self.parent: SpanNode | None = None
        self.children: list[SpanNode] = []
        self.agent: str | None = reading.agent or None
        """The name of the agent at work around the span."""
        self.enclosing_tool: SpanNode | None = None
        """The tool span around this one, unless an agent stands between: then it is that agent's own work."""
        self.component_name = (reading.name or span.name) if reading.role == "component" else part
        """The name of the component that the span stands for, because it is marked as one or declared to be one."""
        self.component: SpanNode | None = self if reading.role == "component" or part is not None else None
        """The innermost component the span is part of, sub-agents not counted."""
        self.enclosing_model: SpanNode | None = None
        """The model's span around this one, unless a tool or an agent stands between: then it is work of theirs."""
        self.owner: SpanNode | None = None
        """The nearest agent, entry or tool above."""
        self.is_leaked = False
        """Whether its parent is a span of the request before, which had ended."""
        self.runs_agent = False
        """For a tool: whether an agent is at work right inside it."""
        self.unknown_span_names: frozenset[str] = frozenset()
        """For a root: the names of the spans of its trace that no convention knows."""
        self._strangers: Collection[SpanRecord] = ()
        self._families: tuple[str, ...] | None = None
        self.unknown_spans = 0
        """How many spans without a node hang on this one: no convention knows them."""
        self._first = self._last = 0
        self._asked: Messages | None = None
        self._answered: Messages | None = None
        self._hears_calls: bool | None = None
        self._says_calls: bool | None = None

    @property
    def input_messages(self) -> Messages:
        """What the model, or the agent, was asked: read once, since it may be long."""
        if self._asked is None:
            self._asked = first_messages(self.facts.input_messages)
        return self._asked

    @property
    def output_messages(self) -> Messages:
        """What it answered."""
        if self._answered is None:
            self._answered = first_messages(self.facts.output_messages)
        return self._answered

    @property
    def has_messages(self) -> bool:
        """Whether it may have been asked or may have answered something: told without reading, which costs."""
        return is_any_present(self.facts.input_messages) or is_any_present(self.facts.output_messages)

    @property
    def input_may_have_calls(self) -> bool:
        """Whether there may be calls, or answers to calls, in what it was asked."""
        if self._hears_calls is None:
            self._hears_calls = not has_no_tool_calls(self.facts.input_messages)
        return self._hears_calls and self._asked != ()

    @property
    def output_may_have_calls(self) -> bool:
        """Whether there may be calls in what it answered."""
        if self._says_calls is None:
            self._says_calls = not has_no_tool_calls(self.facts.output_messages)
        return self._says_calls and self._answered != ()

    @property
    def tree_index(self) -> int:
        """Its place in its trace's trees, each span before those inside it and siblings by time of start."""
        return self._first

    @property
    def unknown_families(self) -> tuple[str, ...]:
        """For a root: how the attributes begin of the spans of its trace that no convention knows."""
        if self._families is None:
            self._families = attribute_families(self._strangers)
        return self._families

    @property
    def is_orphan(self) -> bool:
        """Whether the span names a parent that is not there."""
        return self.parent is None and self.span.parent_id is not None and not self.is_leaked

    def contains(self, other: SpanNode) -> bool:
        """Whether the other node is this one or below it. Nodes of another trace never are."""
        return self._first <= other._first <= self._last and self.span.trace_id == other.span.trace_id

    def ancestors(self) -> Iterator[SpanNode]:
        """From the parent upwards."""
        node = self.parent
        while node is not None:
            yield node
            node = node.parent

    def walk(self) -> Iterator[SpanNode]:
        """The node and all below it, each before its children, children by time of start."""
        pending = [self]
        while pending:
            node = pending.pop()
            yield node
            pending.extend(reversed(node.children))


def build_trees(
    spans: Collection[SpanRecord], *, conventions: ConventionSet, components: DeclaredComponents | None = None
) -> list[SpanNode]:
    """The roots of the trees that the spans of one trace form, by time of start; none where no convention knows one.

    A span that no convention knows, such as an application's own, is no node, unless it is a root, a `selected`
    component or has lost attributes; those below it hang on what is above it. A span that came twice counts once (the
    fuller one). A parent that never came makes its children roots. A circle of parents is cut at its earliest span.
    Evaluations that were exported as spans are passed over.
    """
    distinct = _deduplicate(spans)
    nodes: dict[str, SpanNode] = {}
    unknown: dict[str, SpanRecord] = {}
    selecting = components or None
    found = list(distinct.values())
    for span, reading in zip(found, conventions.classify_trace(found), strict=True):
        if reading is EVALUATION_FACTS:
            continue
        span_id = span.span_id
        part = None if selecting is None else selecting.match(span)
        if reading is UNKNOWN_FACTS and part is None and not span.dropped_attributes:
            unknown[span_id] = span
        else:
            nodes[span_id] = SpanNode(span, reading, part)
    if not nodes:
        return []
    _link_parents(nodes, distinct)
    _count_unknown(nodes, unknown)
    ordered = sorted(nodes.values(), key=_sort_key)
    # In a circle somebody starts before their parent, which happens otherwise, too, but rarely.
    if any(node.parent is not None and node.parent.start >= node.start for node in ordered):
        _break_cycles(ordered)
    for node in ordered:
        if node.parent is not None:
            node.parent.children.append(node)
    roots = _detach_leaked_requests([node for node in ordered if node.parent is None], ordered)
    _annotate_nodes(roots)
    names = frozenset([span.name for span in unknown.values()])
    for root in roots:
        root.unknown_span_names = names
        root._strangers = unknown.values()
    return roots


def release_trees(roots: list[SpanNode]) -> None:
    """Take trees apart that nobody needs any more.

    Parents and children hold each other, so that otherwise only the garbage collector could free them.
    """
    pending = [*roots]
    while pending:
        node = pending.pop()
        pending += node.children
        node.children.clear()


def _link_parents(nodes: dict[str, SpanNode], spans: Mapping[str, SpanRecord]) -> None:
    """Give every node the nearest node above it; a plain span above which there is nothing becomes a node for that."""
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
            if above is None and span_id in path:  # a circle that nobody else would cut
                circle = list(path)[list(path).index(span_id) :]
                span_id = min(circle, key=lambda member: (start_of(spans[member]), member))
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
    """Tell every node how many spans that are no nodes it is the nearest node above."""
    nearest: dict[str, SpanNode | None] = {}
    for span_id, span in unknown.items():
        step = span.parent_id
        if step is None or span_id in nodes:
            continue
        above = nodes.get(step)
        if above is None and step in unknown:
            path: list[str] = []
            while step is not None and step in unknown and step not in nodes and step not in nearest:
                nearest[step] = None  # a circle ends here
                path.append(step)
                step = unknown[step].parent_id
            above = (nodes.get(step) or nearest.get(step)) if step is not None else None
            nearest.update(dict.fromkeys(path, above))
        if above is not None:
            above.unknown_spans += 1


def _detach_leaked_requests(roots: list[SpanNode], ordered: list[SpanNode]) -> list[SpanNode]:
    """The roots, and the requests that only seem to be inside an earlier one of the same name.

    Where a framework loses hold of its context, the next request hangs below the last span of the one before, which had
    ended by then.
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


def _annotate_nodes(roots: list[SpanNode]) -> None:
    """Tell every node, from the top down, what stands around it; then, from the bottom up, where its subtree ends."""
    everything = [node for root in roots for node in root.walk()]
    for number, node in enumerate(everything):
        node._first = node._last = number
        above = node.parent
        if above is None:
            continue
        role = above.role
        node.agent = above.facts.name if role == "agent" and above.facts.name else above.agent or node.agent
        node.component = node.component or above.component
        node.owner = above if role == "tool" or role in REQUEST_ROLES else above.owner
        # Some instrumentations run tools inside the span of the model that asked for them, and agents inside tools.
        if role == "model":
            node.enclosing_model = above
        elif role not in ("tool", "agent"):
            node.enclosing_model = above.enclosing_model
        if role == "tool":
            node.enclosing_tool = above
        elif role != "agent":
            node.enclosing_tool = above.enclosing_tool
        if node.role == "agent" and node.enclosing_tool is not None:
            node.enclosing_tool.runs_agent = True
    for node in reversed(everything):
        above = node.parent
        if above is not None and above._last < node._last:
            above._last = node._last


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
    """Sort key by what two exports of one span can differ in; the last part only makes it unambiguous."""
    attributes = sorted(span.attributes.items(), key=lambda item: item[0])
    rest = (attributes, span.events, span.status, span.status_message, span.parent_id, span.name, span.start_ns)
    return (span.end_ns or 0, len(span.attributes), len(span.events), repr(rest))


def _break_cycles(ordered: list[SpanNode]) -> None:
    """Detach, in every circle of parents, the span that started first."""
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
            circle = path[path.index(step) :]
            min(circle, key=lambda member: member.sort_key).parent = None
        rooted.update(path)
