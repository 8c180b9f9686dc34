"""Arranges the spans of one trace as a tree, in whatever order they arrive and if some are missing.

No function recurses: a chain of spans may be thousands deep, and parents may form a cycle.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from operator import attrgetter

from goldspan.conventions.classification import EVALUATION_FACTS, UNKNOWN_FACTS, ConventionSet, DeclaredComponents
from goldspan.conventions.span_facts import (
    REQUEST_ROLES,
)
from goldspan.extraction.span_node import SpanNode, TraceTrees, start_of
from goldspan.model import SpanRecord


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
    _annotate_nodes(roots, TraceTrees(unknown.values()))
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


def _annotate_nodes(roots: list[SpanNode], trees: TraceTrees) -> None:
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
