"""The spans of one trace as a tree, whatever order they came in and however damaged they are.

Nothing here recurses: a chain of spans may be thousands deep, and parents may form a circle.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from goldspan.extraction.conventions import CONVENTIONS, Convention, read
from goldspan.extraction.reading import Reading, Role
from goldspan.model import SpanRecord


class Node:
    """A span in its place, with what the conventions read off it and what stands around it."""

    __slots__ = (
        "_first",
        "_last",
        "agent",
        "children",
        "component",
        "enclosing_tool",
        "in_model",
        "parent",
        "reading",
        "runs_agent",
        "span",
    )

    def __init__(self, span: SpanRecord, reading: Reading) -> None:
        """Make a node that stands alone; `plant` puts it into its tree."""
        self.span = span
        self.reading = reading
        self.parent: Node | None = None
        self.children: list[Node] = []
        self.agent: str | None = reading.agent
        """The name of the agent at work around the span."""
        self.enclosing_tool: Node | None = None
        """The tool span around this one, unless an agent stands between: then it is that agent's own work."""
        self.component: Node | None = self if reading.role == "component" else None
        """The innermost component the span is part of."""
        self.in_model = False
        """Whether the span is inside a model's span."""
        self.runs_agent = False
        """For a tool: whether an agent is at work right inside it."""
        self._first = self._last = 0

    @property
    def role(self) -> Role | None:
        """What the span is to a run."""
        return self.reading.role

    @property
    def orphan(self) -> bool:
        """Whether the span names a parent that is not there."""
        return self.parent is None and self.span.parent_id is not None

    @property
    def place(self) -> tuple[float, str]:
        """Sort key: time of start, unknown times last. The span id only makes it unambiguous."""
        start = self.span.start_ns
        return (float("inf") if start is None else start, self.span.span_id)

    def contains(self, other: Node) -> bool:
        """Whether the other node is this one or below it."""
        return self._first <= other._first <= self._last

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


def plant(spans: Iterable[SpanRecord], *, conventions: Iterable[Convention] = CONVENTIONS) -> list[Node]:
    """The roots of the trees that the spans of one trace form, by time of start.

    A span that came twice counts once (the fuller one). A parent that never came makes its children roots. A circle of
    parents is cut at its earliest span.
    """
    known = tuple(conventions)
    nodes = {span_id: Node(span, read(span, known)) for span_id, span in _distinct(spans).items()}
    ordered = sorted(nodes.values(), key=lambda node: node.place)
    for node in ordered:
        parent = nodes.get(node.span.parent_id or "")
        if parent is not None and parent is not node:
            node.parent = parent
    _cut_circles(ordered)
    for node in ordered:
        if node.parent is not None:
            node.parent.children.append(node)
    roots = [node for node in ordered if node.parent is None]
    _look_around(roots)
    return roots


def _look_around(roots: list[Node]) -> None:
    """Tell every node, from the top down, what stands around it; then, from the bottom up, where its subtree ends."""
    everything = [node for root in roots for node in root.walk()]
    for number, node in enumerate(everything):
        node._first = node._last = number
        above = node.parent
        if above is None:
            continue
        node.agent = above.reading.name if above.role == "agent" and above.reading.name else above.agent or node.agent
        node.component = node.component or above.component
        node.in_model = above.role == "model" or above.in_model
        if above.role == "tool":
            node.enclosing_tool = above
        elif above.role != "agent":
            node.enclosing_tool = above.enclosing_tool
        if node.role == "agent" and node.enclosing_tool is not None:
            node.enclosing_tool.runs_agent = True
    for node in reversed(everything):
        if node.parent is not None:
            node.parent._last = max(node.parent._last, node._last)


def _distinct(spans: Iterable[SpanRecord]) -> dict[str, SpanRecord]:
    kept: dict[str, SpanRecord] = {}
    for span in spans:
        known = kept.get(span.span_id)
        if known is None or _fullness(span) > _fullness(known):
            kept[span.span_id] = span
    return kept


def _fullness(span: SpanRecord) -> tuple[int, int, str]:
    return (span.end_ns or 0, len(span.attributes), repr(sorted(span.attributes.items(), key=lambda item: item[0])))


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
