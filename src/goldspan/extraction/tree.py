"""The spans of one trace as a tree, whatever order they came in and however damaged they are.

Nothing here recurses: a chain of spans may be thousands deep, and parents may form a circle.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from operator import attrgetter

from goldspan.extraction.fallback import families
from goldspan.extraction.reading import MARKS, Messages, Reading, Role, are_quiet, first_messages, is_there
from goldspan.extraction.recognition import EVALUATION, NOTHING, Conventions
from goldspan.extraction.selection import Selection
from goldspan.extraction.times import NEVER, start_of
from goldspan.model import SpanRecord


class Node:
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
        "enclosing_model",
        "enclosing_tool",
        "leaked",
        "owner",
        "parent",
        "part",
        "place",
        "reading",
        "role",
        "runs_agent",
        "span",
        "start",
        "unknown",
        "unknown_spans",
    )

    def __init__(self, span: SpanRecord, reading: Reading, part: str | None = None) -> None:
        """Make a node that stands alone; `plant` puts it into its tree."""
        self.span = span
        self.reading = reading
        self.role: Role | None = reading.role
        """What the span is to a run."""
        self.start = NEVER if span.start_ns is None else span.start_ns
        """Time of start, unknown times last."""
        self.place: tuple[int, int, str] = (self.start, NEVER if span.end_ns is None else span.end_ns, span.span_id)
        """Sort key: time of start, then of the end: a clock of milliseconds may show the end of one span and the start
        of the next as one time. The span id only makes it unambiguous.
        """
        self.parent: Node | None = None
        self.children: list[Node] = []
        self.agent: str | None = reading.agent or None
        """The name of the agent at work around the span."""
        self.enclosing_tool: Node | None = None
        """The tool span around this one, unless an agent stands between: then it is that agent's own work."""
        self.part = (reading.name or span.name) if reading.role == "component" else part
        """The name of the component that the span stands for, because it is marked as one or declared to be one."""
        self.component: Node | None = self if reading.role == "component" or part is not None else None
        """The innermost component the span is part of, sub-agents not counted."""
        self.enclosing_model: Node | None = None
        """The model's span around this one, unless a tool or an agent stands between: then it is work of theirs."""
        self.owner: Node | None = None
        """The nearest agent, entry or tool above."""
        self.leaked = False
        """Whether its parent is a span of the request before, which had ended."""
        self.runs_agent = False
        """For a tool: whether an agent is at work right inside it."""
        self.unknown: frozenset[str] = frozenset()
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
    def asked(self) -> Messages:
        """What the model, or the agent, was asked: read once, since it may be long."""
        if self._asked is None:
            self._asked = first_messages(self.reading.asked)
        return self._asked

    @property
    def answered(self) -> Messages:
        """What it answered."""
        if self._answered is None:
            self._answered = first_messages(self.reading.answered)
        return self._answered

    @property
    def speaks(self) -> bool:
        """Whether it may have been asked or may have answered something: told without reading, which costs."""
        return is_there(self.reading.asked) or is_there(self.reading.answered)

    @property
    def hears_calls(self) -> bool:
        """Whether there may be calls, or answers to calls, in what it was asked."""
        if self._hears_calls is None:
            self._hears_calls = not are_quiet(self.reading.asked)
        return self._hears_calls and self._asked != ()

    @property
    def says_calls(self) -> bool:
        """Whether there may be calls in what it answered."""
        if self._says_calls is None:
            self._says_calls = not are_quiet(self.reading.answered)
        return self._says_calls and self._answered != ()

    @property
    def number(self) -> int:
        """Its place in its trace's trees, each span before those inside it and siblings by time of start."""
        return self._first

    @property
    def unknown_families(self) -> tuple[str, ...]:
        """For a root: how the attributes begin of the spans of its trace that no convention knows."""
        if self._families is None:
            self._families = families(self._strangers)
        return self._families

    @property
    def orphan(self) -> bool:
        """Whether the span names a parent that is not there."""
        return self.parent is None and self.span.parent_id is not None and not self.leaked

    def contains(self, other: Node) -> bool:
        """Whether the other node is this one or below it. Nodes of another trace never are."""
        return self._first <= other._first <= self._last and self.span.trace_id == other.span.trace_id

    def ancestors(self) -> Iterator[Node]:
        """From the parent upwards."""
        node = self.parent
        while node is not None:
            yield node
            node = node.parent

    def walk(self) -> Iterator[Node]:
        """The node and all below it, each before its children, children by time of start."""
        pending = [self]
        while pending:
            node = pending.pop()
            yield node
            pending.extend(reversed(node.children))


def plant(spans: Collection[SpanRecord], *, conventions: Conventions, selected: Selection | None = None) -> list[Node]:
    """The roots of the trees that the spans of one trace form, by time of start; none where no convention knows one.

    A span that no convention knows, such as an application's own, is no node, unless it is a root, a `selected`
    component or has lost attributes; those below it hang on what is above it. A span that came twice counts once (the
    fuller one). A parent that never came makes its children roots. A circle of parents is cut at its earliest span.
    Evaluations that were exported as spans are passed over.
    """
    distinct = _distinct(spans)
    nodes: dict[str, Node] = {}
    unknown: dict[str, SpanRecord] = {}
    selecting = selected or None
    found = list(distinct.values())
    for span, reading in zip(found, conventions.read_all(found), strict=True):
        if reading is EVALUATION:
            continue
        span_id = span.span_id
        part = None if selecting is None else selecting.name_of(span)
        if reading is NOTHING and part is None and not span.dropped_attributes:
            unknown[span_id] = span
        else:
            nodes[span_id] = Node(span, reading, part)
    if not nodes:
        return []
    _hang(nodes, distinct)
    _count_unknown(nodes, unknown)
    ordered = sorted(nodes.values(), key=_place)
    # In a circle somebody starts before their parent, which happens otherwise, too, but rarely.
    if any(node.parent is not None and node.parent.start >= node.start for node in ordered):
        _cut_circles(ordered)
    for node in ordered:
        if node.parent is not None:
            node.parent.children.append(node)
    roots = _with_leaked([node for node in ordered if node.parent is None], ordered)
    _look_around(roots)
    names = frozenset([span.name for span in unknown.values()])
    for root in roots:
        root.unknown = names
        root._strangers = unknown.values()
    return roots


def fell(roots: list[Node]) -> None:
    """Take trees apart that nobody needs any more.

    Parents and children hold each other, so that otherwise only the garbage collector could free them.
    """
    pending = [*roots]
    while pending:
        node = pending.pop()
        pending += node.children
        node.children.clear()


def _hang(nodes: dict[str, Node], spans: Mapping[str, SpanRecord]) -> None:
    """Give every node the nearest node above it; a plain span above which there is nothing becomes a node for that."""
    nearest: dict[str, Node] = {}
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
                above = nodes[span_id] = Node(spans[span_id], NOTHING)
            elif above is None and span_id in spans:
                path[span_id] = spans[span_id]
                span_id = path[span_id].parent_id
            elif above is None:
                break
        if above is None and path:
            top = next(reversed(path))
            above = nodes[top] = Node(path[top], NOTHING)
        if above is not None:
            nearest.update(dict.fromkeys(path, above))
        if above is not node:
            node.parent = above


def _count_unknown(nodes: Mapping[str, Node], unknown: Mapping[str, SpanRecord]) -> None:
    """Tell every node how many spans that are no nodes it is the nearest node above."""
    nearest: dict[str, Node | None] = {}
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


def _with_leaked(roots: list[Node], ordered: list[Node]) -> list[Node]:
    """The roots, and the requests that only seem to be inside an earlier one of the same name.

    Where a framework loses hold of its context, the next request hangs below the last span of the one before, which had
    ended by then.
    """
    names = [node.reading.name for node in ordered if node.role in MARKS]
    if len(set(names)) == len(names):
        return roots
    leaked: list[Node] = []
    pending: list[tuple[Node, Node | None]] = [(root, None) for root in roots]
    while pending:
        node, around = pending.pop()
        if node.role in MARKS:
            if around is not None and _leaked(node, around):
                node.leaked = True
                leaked.append(node)
            around = node
        pending.extend((child, around) for child in node.children)
    for parent in {node.parent for node in leaked if node.parent is not None}:
        parent.children = [child for child in parent.children if not child.leaked]
    for node in leaked:
        node.parent = None
    return sorted(roots + leaked, key=_place) if leaked else roots


def _leaked(node: Node, around: Node) -> bool:
    if node.reading.name is None or node.reading.name != around.reading.name:
        return False
    end, start = around.span.end_ns, node.span.start_ns
    return end is not None and start is not None and end <= start


def _look_around(roots: list[Node]) -> None:
    """Tell every node, from the top down, what stands around it; then, from the bottom up, where its subtree ends."""
    everything = [node for root in roots for node in root.walk()]
    for number, node in enumerate(everything):
        node._first = node._last = number
        above = node.parent
        if above is None:
            continue
        role = above.role
        node.agent = above.reading.name if role == "agent" and above.reading.name else above.agent or node.agent
        node.component = node.component or above.component
        node.owner = above if role == "tool" or role in MARKS else above.owner
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


_place = attrgetter("place")


def _distinct(spans: Collection[SpanRecord]) -> dict[str, SpanRecord]:
    kept = {span.span_id: span for span in spans}
    if len(kept) == len(spans):
        return kept
    kept = {}
    for span in spans:
        known = kept.get(span.span_id)
        if known is None or _fullness(span) > _fullness(known):
            kept[span.span_id] = span
    return kept


def _fullness(span: SpanRecord) -> tuple[int, int, int, str]:
    """Sort key by what two exports of one span can differ in; the last part only makes it unambiguous."""
    attributes = sorted(span.attributes.items(), key=lambda item: item[0])
    rest = (attributes, span.events, span.status, span.status_message, span.parent_id, span.name, span.start_ns)
    return (span.end_ns or 0, len(span.attributes), len(span.events), repr(rest))


def _cut_circles(ordered: list[Node]) -> None:
    """Detach, in every circle of parents, the span that started first."""
    rooted: set[Node] = set()
    for node in ordered:
        path: list[Node] = []
        on_path: set[Node] = set()
        step: Node | None = node
        while step is not None and step not in rooted and step not in on_path:
            path.append(step)
            on_path.add(step)
            step = step.parent
        if step is not None and step in on_path:
            circle = path[path.index(step) :]
            min(circle, key=lambda member: member.place).parent = None
        rooted.update(path)
