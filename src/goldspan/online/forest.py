"""Spans in flight as trees: where each hangs, what it is to a run, and what can be forgotten."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar

from goldspan.extraction import Role
from goldspan.model import SpanRecord

Live = TypeVar("Live")

_SPENT_KEPT = 4_096


class Node(Generic[Live]):
    """A span in flight: live until it ends, a record afterwards."""

    __slots__ = ("children", "id", "live", "parent", "record", "role", "scored", "start")

    def __init__(self, span_id: int, parent: Node[Live] | None, live: Live) -> None:
        self.id = span_id
        self.parent = parent
        self.live: Live | None = live
        self.record: SpanRecord | None = None
        self.role: Role | None = None
        """`None` as long as it is not known; what is seen on a live span stays."""
        self.start: int | None = None
        """Nanoseconds since the epoch; `None` as long as nobody asked."""
        self.scored = False
        """Its request has been given out; only the span itself is kept, to tell what does not belong to others."""
        self.children: dict[int, Node[Live]] = {}
        if parent is not None:
            parent.children[span_id] = self

    @property
    def root(self) -> Node[Live]:
        """The local root it hangs from."""
        node = self
        while node.parent is not None:
            node = node.parent
        return node

    def ancestors(self) -> Iterator[Node[Live]]:
        """From the parent upwards."""
        node = self.parent
        while node is not None:
            yield node
            node = node.parent

    def walk(self) -> Iterator[Node[Live]]:
        """The node and everything below it, parents first. The tree may be cut while it is walked."""
        pending = [self]
        while pending:
            node = pending.pop()
            pending.extend(node.children.values())
            yield node


class Trace(Generic[Live]):
    """What one process knows of one trace: the spans in flight, and the ids of those that are done."""

    __slots__ = ("_spent", "nodes")

    def __init__(self) -> None:
        self.nodes: dict[int, Node[Live]] = {}
        self._spent: dict[int, None] = {}

    def add(self, span_id: int, parent_id: int | None, live: Live) -> None:
        """Hang a span that started under its parent, or make it a root where the parent is not of this process."""
        if parent_id is not None and parent_id in self._spent:
            self._spend(span_id)
            return
        parent = self.nodes.get(parent_id) if parent_id is not None else None
        self.nodes[span_id] = Node(span_id, parent, live)

    def forget(self, node: Node[Live], *, keep_itself: bool = False) -> None:
        """Drop everything below a node, and the node. What still comes of them is late."""
        for gone in list(node.walk()):
            if gone is not node or not keep_itself:
                self.nodes.pop(gone.id, None)
                self._spend(gone.id)
        node.children.clear()
        if not keep_itself and node.parent is not None:
            node.parent.children.pop(node.id, None)

    def _spend(self, span_id: int) -> None:
        self._spent[span_id] = None
        if len(self._spent) > _SPENT_KEPT:  # a trace that lives for days must not grow
            del self._spent[next(iter(self._spent))]
