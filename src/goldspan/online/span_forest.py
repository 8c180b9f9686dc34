"""What trees of spans in flight say: what each span is to a request, whose work it is, and what stands around it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from typing import Generic, TypeVar

from goldspan.conventions.span_facts import REQUEST_ROLES, TRANSPARENT_ROLES, WORK_ROLES
from goldspan.extraction import Role, role_of
from goldspan.model import SpanRecord
from goldspan.online.assembled_spans import RunRevisions, SpanPacker, SpanRows, contains_span

Live = TypeVar("Live")

_MAX_EXPIRED_SPANS = 4_096
_EXACT_SIZE_BYTES = 8_192
"""Bytes up to which folded rows take no more room than they need."""


class InFlightSpan(Generic[Live]):
    """A span in flight: live until it ends, a record afterwards, and a row of its parent when nothing hangs from it."""

    __slots__ = ("children", "folded_rows", "id", "is_scored", "live", "parent", "record", "role", "start_ns")

    def __init__(self, span_id: int, parent: InFlightSpan[Live] | None, live: Live) -> None:
        self.id = span_id
        self.parent = parent
        self.live: Live | None = live
        self.record: SpanRecord | None = None
        self.role: Role | None = None
        """`None` as long as it is not known; what is seen on a live span stays."""
        self.start_ns: int | None = None
        """Nanoseconds since the epoch; `None` as long as nobody asked."""
        self.is_scored = False
        """Its request has been given out; only the span itself is kept, to tell what does not belong to others."""
        self.children: dict[int, InFlightSpan[Live]] | None = None
        self.folded_rows: SpanRows = b""
        """Rows of spans below it that have ended and have no node any more."""
        if parent is not None:
            if parent.children is None:
                parent.children = {}
            parent.children[span_id] = self

    @property
    def root(self) -> InFlightSpan[Live]:
        """The local root it hangs from."""
        node = self
        while node.parent is not None:
            node = node.parent
        return node

    def ancestors(self) -> Iterator[InFlightSpan[Live]]:
        """From the parent upwards."""
        node = self.parent
        while node is not None:
            yield node
            node = node.parent

    def walk(self) -> Iterator[InFlightSpan[Live]]:
        """The node and everything below it that has a node, parents first. The tree may be cut while it is walked."""
        pending = [self]
        while pending:
            node = pending.pop()
            if node.children:
                pending.extend(node.children.values())
            yield node

    def append_rows(self, rows: SpanRows) -> None:
        """Keep ended spans below it as rows."""
        if len(self.folded_rows) < _EXACT_SIZE_BYTES:
            self.folded_rows = bytes(self.folded_rows) + rows  # as large as need be, and copied once more with each row
        else:
            self.folded_rows = bytearray(self.folded_rows) if isinstance(self.folded_rows, bytes) else self.folded_rows
            self.folded_rows += rows

    def detach(self) -> None:
        """Take it from its parent."""
        if self.parent is not None and self.parent.children is not None:
            self.parent.children.pop(self.id, None)
            if not self.parent.children:
                self.parent.children = None


class ReleasedSpans:
    """The spans of requests that were given out, kept for a while: what ends late changes them."""

    __slots__ = ("awaits_successor", "changed_at", "late_rows", "pending_span_ids", "released_at", "rows")

    def __init__(self, at: float) -> None:
        self.rows = bytearray()
        """Spans that were there when their request was scored last."""
        self.late_rows = bytearray()
        """Spans that came since."""
        self.released_at = at
        self.changed_at: float | None = None
        """When the last late span came, in seconds; `None`: none has come since they were scored last."""
        self.pending_span_ids: set[int] = set()
        """Late spans that have started, and not ended."""
        self.awaits_successor = False
        """The agent whose request it is handed over to another one."""

    def __len__(self) -> int:
        """Its size in bytes."""
        return len(self.rows) + len(self.late_rows)

    def contains(self, span_id: int) -> bool:
        """Whether a span is among them, ended or on its way."""
        return (
            span_id in self.pending_span_ids
            or contains_span(self.rows, span_id)
            or contains_span(self.late_rows, span_id)
        )


class TraceState(Generic[Live]):
    """What one process knows of one trace: the spans in flight, and those that were given out lately."""

    __slots__ = (
        "_expired_span_ids",
        "_revisions",
        "has_late_children",
        "id",
        "is_incomplete",
        "last_active",
        "nodes",
        "opened_at",
        "released_spans",
        "was_force_released",
    )

    def __init__(self, trace_id: int, now: float) -> None:
        self.id = trace_id
        self.nodes: dict[int, InFlightSpan[Live]] = {}
        self.opened_at = now
        self.last_active = now
        """When a span started or ended last, in seconds."""
        self.released_spans: tuple[ReleasedSpans, ...] = ()
        """What was given out lately."""
        self._revisions: RunRevisions | None = None
        self.has_late_children = False
        """Spans started or ended in it inside of what had ended before: a component may have become more."""
        self.was_force_released = False
        """It was taken as it was before: what comes since belongs to what was given out then."""
        self.is_incomplete = False
        """Spans of it were not taken in: nothing that is said of it would be true."""
        self._expired_span_ids: dict[int, None] | None = None

    @property
    def revisions(self) -> RunRevisions:
        """What was given out of components, of runs that were not complete then, and of those that changed since."""
        if self._revisions is None:  # most traces need none
            self._revisions = RunRevisions()
        return self._revisions

    def find_holder(self, span_id: int) -> InFlightSpan[Live] | None:
        """The node of a span, or the one that it was folded into."""
        node = self.nodes.get(span_id)
        if node is not None:
            return node
        return next(
            (node for node in self.nodes.values() if node.folded_rows and contains_span(node.folded_rows, span_id)),
            None,
        )

    def find_released(self, span_id: int | None) -> ReleasedSpans | None:
        """The requests given out that a span was part of."""
        if span_id is None:
            return None
        return next((given for given in reversed(self.released_spans) if given.contains(span_id)), None)

    def is_span_expired(self, span_id: int) -> bool:
        """Whether a span was given out so long ago that it is no longer kept."""
        return self._expired_span_ids is not None and span_id in self._expired_span_ids

    def remove_subtree(self, node: InFlightSpan[Live], *, keep_itself: bool = False) -> None:
        """Drop everything below a node, and the node."""
        for gone in list(node.walk()):
            if gone is not node or not keep_itself:
                self.nodes.pop(gone.id, None)
        node.children, node.folded_rows = None, b""
        if not keep_itself:
            node.detach()

    def expire_spans(self, span_ids: Iterable[int]) -> bool:
        """Remember spans that are no longer kept by their ids alone: what still comes of them is too late."""
        if self._expired_span_ids is None:
            self._expired_span_ids = {}
        for span_id in span_ids:
            self._expired_span_ids[span_id] = None
        while len(self._expired_span_ids) > _MAX_EXPIRED_SPANS:  # a trace that lives for days must not grow
            del self._expired_span_ids[next(iter(self._expired_span_ids))]
        return True


class SpanTreeReader(Generic[Live]):
    """Reads trees and changes nothing in them. `peek` reads a live span as it is now."""

    def __init__(self, peek: Callable[[Live], SpanRecord], packer: SpanPacker) -> None:
        self._peek = peek
        self._packer = packer

    # --- one span ----------------------------------------------------------------------------------------------------

    def read_record(self, node: InFlightSpan[Live]) -> SpanRecord:
        """A span as it ended or, as long as it has not, as it is now."""
        if node.record is not None:
            return node.record
        assert node.live is not None  # a node holds one or the other
        return self._peek(node.live)

    def role(self, node: InFlightSpan[Live]) -> Role | None:
        """What it is to a request, as far as is known now."""
        if node.role is None and node.record is None:
            node.role = role_of(self.read_record(node))
        return node.role

    def start_ns(self, node: InFlightSpan[Live]) -> int:
        """When it started, in nanoseconds; 0 where that is not known."""
        if node.start_ns is None:
            node.start_ns = self.read_record(node).start_ns or 0
        return node.start_ns

    def has_only_structural_ancestors(self, node: InFlightSpan[Live]) -> bool:
        """Whether only bare spans stand around it: no agent, no tool, nothing else of a request."""
        return all(self.role(above) in TRANSPARENT_ROLES for above in node.ancestors())

    # --- requests ----------------------------------------------------------------------------------------------------

    def top_level_nodes(self, root: InFlightSpan[Live]) -> Iterator[InFlightSpan[Live]]:
        """The bare spans of a tree, and the first span with a role on each way down: parents first."""
        pending = [root]
        while pending:
            node = pending.pop()
            yield node
            if node.children and self.role(node) in TRANSPARENT_ROLES:
                pending.extend(node.children.values())

    def request_nodes(self, surface: list[InFlightSpan[Live]]) -> list[InFlightSpan[Live]]:
        """Those that stand for a request, in the order in which they began."""
        return sorted((node for node in surface if self.role(node) in REQUEST_ROLES), key=self.start_ns)

    def owning_request(self, stray: InFlightSpan[Live], marks: list[InFlightSpan[Live]]) -> InFlightSpan[Live]:
        """Whose work a span beside the agents is, as extraction has it: of the one begun last before it."""
        begun = bisect_right(marks, self.start_ns(stray), key=self.start_ns)
        return marks[max(begun - 1, 0)]

    def detached_work_of(
        self, request: InFlightSpan[Live], surface: list[InFlightSpan[Live]], marks: list[InFlightSpan[Live]]
    ) -> list[InFlightSpan[Live]]:
        """The work that has ended beside an agent and belongs to it."""
        ended = [node for node in surface if node.record is not None and node.role in WORK_ROLES]
        return [stray for stray in ended if self.owning_request(stray, marks) is request]

    # --- records -----------------------------------------------------------------------------------------------------

    def subtree_records(self, node: InFlightSpan[Live]) -> Iterator[SpanRecord]:
        """The spans of a subtree, live ones as they are now: a tool that is still at work has been called."""
        for below in node.walk():
            record = self.read_record(below)
            yield record
            if below.folded_rows:
                yield from self._packer.unpack(record.trace_id, below.folded_rows)

    def live_records(self, node: InFlightSpan[Live]) -> list[SpanRecord]:
        """The spans of a subtree that have not ended, as they are now."""
        return [self.read_record(below) for below in node.walk() if below.record is None]

    def ancestor_records(self, node: InFlightSpan[Live]) -> list[SpanRecord]:
        """What stands around a span, from its parent upwards; among it what has ended and was folded since."""
        path: list[SpanRecord] = []
        record = self.read_record(node)
        for above in node.ancestors():
            if record.parent_id is not None and above.id != int(record.parent_id, 16):
                path += self._folded_ancestors(above, record)
            record = self.read_record(above)
            path.append(record)
        return path

    def _folded_ancestors(self, above: InFlightSpan[Live], record: SpanRecord) -> Iterator[SpanRecord]:
        """What stands between a span and the node that its parent was folded into, from the parent upwards."""
        folded = {each.span_id: each for each in self._packer.unpack(record.trace_id, above.folded_rows)}
        while record.parent_id is not None and (parent := folded.pop(record.parent_id, None)) is not None:
            yield parent
            record = parent

    def record_ancestors(self, trace: TraceState[Live], record: SpanRecord) -> list[SpanRecord]:
        """What stands around a span that has no node itself, from its parent upwards."""
        parent = trace.nodes.get(int(record.parent_id, 16)) if record.parent_id is not None else None
        return [self.read_record(parent), *self.ancestor_records(parent)] if parent is not None else []


def count_unended(node: InFlightSpan[Live]) -> int:
    """How many spans of a subtree are live."""
    return sum(below.record is None for below in node.walk())
