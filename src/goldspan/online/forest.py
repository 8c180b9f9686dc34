"""Spans in flight as trees: where each hangs, what it is to a run, and what can be forgotten or folded away."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Generic, TypeVar

from goldspan.extraction import Role
from goldspan.model import SpanRecord
from goldspan.online.packing import Rows, holds
from goldspan.online.portions import Known

Live = TypeVar("Live")

_SPENT_KEPT = 4_096
_EXACT = 8_192
"""Bytes up to which folded rows take no more room than they need."""


class Node(Generic[Live]):
    """A span in flight: live until it ends, a record afterwards, and a row of its parent when nothing hangs from it."""

    __slots__ = ("children", "folded", "id", "live", "parent", "record", "role", "scored", "start")

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
        self.children: dict[int, Node[Live]] | None = None
        self.folded: Rows = b""
        """Rows of spans below it that have ended and have no node any more."""
        if parent is not None:
            if parent.children is None:
                parent.children = {}
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
        """The node and everything below it that has a node, parents first. The tree may be cut while it is walked."""
        pending = [self]
        while pending:
            node = pending.pop()
            if node.children:
                pending.extend(node.children.values())
            yield node

    def fold(self, rows: Rows) -> None:
        """Keep ended spans below it as rows."""
        if len(self.folded) < _EXACT:
            self.folded = bytes(self.folded) + rows  # as large as need be, and copied once more with each row
        else:
            self.folded = bytearray(self.folded) if isinstance(self.folded, bytes) else self.folded
            self.folded += rows

    def unhook(self) -> None:
        """Take it from its parent."""
        if self.parent is not None and self.parent.children is not None:
            self.parent.children.pop(self.id, None)
            if not self.parent.children:
                self.parent.children = None


class Given:
    """The spans of requests that were given out, kept for a while: what ends late changes them."""

    __slots__ = ("at", "changed", "handed_over", "late", "pending", "rows")

    def __init__(self, at: float) -> None:
        self.rows = bytearray()
        """Spans that were there when their request was scored last."""
        self.late = bytearray()
        """Spans that came since."""
        self.at = at
        self.changed: float | None = None
        """When the last late span came, in seconds; `None`: none has come since they were scored last."""
        self.pending: set[int] = set()
        """Late spans that have started, and not ended."""
        self.handed_over = False
        """The agent whose request it is handed over to another one."""

    def __len__(self) -> int:
        """Its size in bytes."""
        return len(self.rows) + len(self.late)

    def holds(self, span_id: int) -> bool:
        """Whether a span is among them, ended or on its way."""
        return span_id in self.pending or holds(self.rows, span_id) or holds(self.late, span_id)


class Trace(Generic[Live]):
    """What one process knows of one trace: the spans in flight, and those that were given out lately."""

    __slots__ = ("_known", "_spent", "active", "born", "given", "id", "lost", "nodes", "outgrown", "released")

    def __init__(self, trace_id: int, now: float) -> None:
        self.id = trace_id
        self.nodes: dict[int, Node[Live]] = {}
        self.born = now
        self.active = now
        """When a span started or ended last, in seconds."""
        self.given: tuple[Given, ...] = ()
        """What was given out lately."""
        self._known: Known | None = None
        self.outgrown = False
        """Spans started or ended in it inside of what had ended before: a component may have become more."""
        self.released = False
        """It was taken as it was before: what comes since belongs to what was given out then."""
        self.lost = False
        """Spans of it were not taken in: nothing that is said of it would be true."""
        self._spent: dict[int, None] | None = None

    @property
    def known(self) -> Known:
        """What was given out of components, of runs that were not complete then, and of those that changed since."""
        if self._known is None:  # most traces need none
            self._known = Known()
        return self._known

    def holder_of(self, span_id: int) -> Node[Live] | None:
        """The node of a span, or the one that it was folded into."""
        node = self.nodes.get(span_id)
        if node is not None:
            return node
        return next((node for node in self.nodes.values() if node.folded and holds(node.folded, span_id)), None)

    def given_with(self, span_id: int | None) -> Given | None:
        """The requests given out that a span was part of."""
        if span_id is None:
            return None
        return next((given for given in reversed(self.given) if given.holds(span_id)), None)

    def is_spent(self, span_id: int) -> bool:
        """Whether a span was given out so long ago that it is no longer kept."""
        return self._spent is not None and span_id in self._spent

    def cut(self, node: Node[Live], *, keep_itself: bool = False) -> None:
        """Drop everything below a node, and the node."""
        for gone in list(node.walk()):
            if gone is not node or not keep_itself:
                self.nodes.pop(gone.id, None)
        node.children, node.folded = None, b""
        if not keep_itself:
            node.unhook()

    def spend(self, span_ids: Iterable[int]) -> bool:
        """Remember spans that are no longer kept by their ids alone: what still comes of them is too late."""
        if self._spent is None:
            self._spent = {}
        for span_id in span_ids:
            self._spent[span_id] = None
        while len(self._spent) > _SPENT_KEPT:  # a trace that lives for days must not grow
            del self._spent[next(iter(self._spent))]
        return True
