"""The trees of spans in flight, and read-only queries on them: roles, owning requests and ancestors."""

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
"""Folded rows up to this size use an exactly sized object."""


class InFlightSpan(Generic[Live]):
    """A node of the tree: a live span, an ended record, or, after it ended without children, a row of its parent."""

    __slots__ = ("children", "folded_rows", "id", "is_scored", "live", "parent", "record", "role", "start_ns")

    def __init__(self, span_id: int, parent: InFlightSpan[Live] | None, live: Live) -> None:
        self.id = span_id
        self.parent = parent
        self.live: Live | None = live
        self.record: SpanRecord | None = None
        self.role: Role | None = None
        """`None` until it is known. A role read from a live span is kept."""
        self.start_ns: int | None = None
        """Nanoseconds since the epoch; `None` until it is read."""
        self.is_scored = False
        """Its request was released. Only the span itself is kept, to attribute the work next to it."""
        self.children: dict[int, InFlightSpan[Live]] | None = None
        self.folded_rows: SpanRows = b""
        """Rows of ended descendants that have no node."""
        if parent is not None:
            if parent.children is None:
                parent.children = {}
            parent.children[span_id] = self

    @property
    def root(self) -> InFlightSpan[Live]:
        """The local root of the node's tree."""
        node = self
        while node.parent is not None:
            node = node.parent
        return node

    def ancestors(self) -> Iterator[InFlightSpan[Live]]:
        """Yields the ancestors, from the parent upwards."""
        node = self.parent
        while node is not None:
            yield node
            node = node.parent

    def walk(self) -> Iterator[InFlightSpan[Live]]:
        """Yields the node and its descendants, parents first. The tree may be modified during the iteration."""
        pending = [self]
        while pending:
            node = pending.pop()
            if node.children:
                pending.extend(node.children.values())
            yield node

    def append_rows(self, rows: SpanRows) -> None:
        """Adds rows of ended descendants."""
        if len(self.folded_rows) < _EXACT_SIZE_BYTES:
            self.folded_rows = bytes(self.folded_rows) + rows  # no spare capacity, at the cost of a copy for each row
        else:
            self.folded_rows = bytearray(self.folded_rows) if isinstance(self.folded_rows, bytes) else self.folded_rows
            self.folded_rows += rows

    def detach(self) -> None:
        """Removes the node from its parent."""
        if self.parent is not None and self.parent.children is not None:
            self.parent.children.pop(self.id, None)
            if not self.parent.children:
                self.parent.children = None


class ReleasedSpans:
    """The spans of released requests, stored for a while so that late spans can change them."""

    __slots__ = ("awaits_successor", "changed_at", "late_rows", "pending_span_ids", "released_at", "rows")

    def __init__(self, at: float) -> None:
        self.rows = bytearray()
        """Spans that were included when their request was last scored."""
        self.late_rows = bytearray()
        """Spans that arrived since."""
        self.released_at = at
        self.changed_at: float | None = None
        """When the last late span arrived, in seconds; `None` if none has arrived since the last scoring."""
        self.pending_span_ids: set[int] = set()
        """Late spans that have started and not ended."""
        self.awaits_successor = False
        """The agent of the request handed over to another agent."""

    def __len__(self) -> int:
        """Returns the size in bytes."""
        return len(self.rows) + len(self.late_rows)

    def contains(self, span_id: int) -> bool:
        """Returns whether the span is included, ended or pending."""
        return (
            span_id in self.pending_span_ids
            or contains_span(self.rows, span_id)
            or contains_span(self.late_rows, span_id)
        )


class TraceState(Generic[Live]):
    """The state of one trace in this process: the spans in flight, and the recently released spans."""

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
        """The recently released spans."""
        self._revisions: RunRevisions | None = None
        self.has_late_children = False
        """Spans started or ended inside ended spans: a component may have changed."""
        self.was_force_released = False
        """The trace was released unfinished: later spans belong to what was released then."""
        self.is_incomplete = False
        """Spans of the trace were dropped, so that none of its runs can be scored."""
        self._expired_span_ids: dict[int, None] | None = None

    @property
    def revisions(self) -> RunRevisions:
        """The revisions of components, of runs released unfinished, and of runs that changed since."""
        if self._revisions is None:  # created on demand: most traces have no revision
            self._revisions = RunRevisions()
        return self._revisions

    def find_holder(self, span_id: int) -> InFlightSpan[Live] | None:
        """Returns the node of a span, or the node that it was folded into."""
        node = self.nodes.get(span_id)
        if node is not None:
            return node
        return next(
            (node for node in self.nodes.values() if node.folded_rows and contains_span(node.folded_rows, span_id)),
            None,
        )

    def find_released(self, span_id: int | None) -> ReleasedSpans | None:
        """Returns the released spans that contain the span."""
        if span_id is None:
            return None
        return next((released for released in reversed(self.released_spans) if released.contains(span_id)), None)

    def is_span_expired(self, span_id: int) -> bool:
        """Returns whether the span was released so long ago that it is no longer stored."""
        return self._expired_span_ids is not None and span_id in self._expired_span_ids

    def expire_spans(self, span_ids: Iterable[int]) -> bool:
        """Stores only the ids of spans from now on: what arrives for them is too late. Returns `True`."""
        if self._expired_span_ids is None:
            self._expired_span_ids = {}
        for span_id in span_ids:
            self._expired_span_ids[span_id] = None
        while len(self._expired_span_ids) > _MAX_EXPIRED_SPANS:  # bounds a trace that lives for days
            del self._expired_span_ids[next(iter(self._expired_span_ids))]
        return True


class SpanTreeReader(Generic[Live]):
    """Reads span trees without modifying them. `peek` returns the record of a live span in its current state."""

    def __init__(self, peek: Callable[[Live], SpanRecord], packer: SpanPacker) -> None:
        self._peek = peek
        self._packer = packer

    # --- one span ----------------------------------------------------------------------------------------------------

    def read_record(self, node: InFlightSpan[Live]) -> SpanRecord:
        """Returns the record of an ended span, or of a live span in its current state."""
        if node.record is not None:
            return node.record
        assert node.live is not None  # a node without a record holds the live span
        return self._peek(node.live)

    def role(self, node: InFlightSpan[Live]) -> Role | None:
        """Returns the role of a span, as far as it is known now."""
        if node.role is None and node.record is None:
            node.role = role_of(self.read_record(node))
        return node.role

    def start_ns(self, node: InFlightSpan[Live]) -> int:
        """Returns the start time in nanoseconds; 0 if it is unknown."""
        if node.start_ns is None:
            node.start_ns = self.read_record(node).start_ns or 0
        return node.start_ns

    def has_only_structural_ancestors(self, node: InFlightSpan[Live]) -> bool:
        """Returns whether all ancestors are structural: no agent, no tool, no other span of a request."""
        return all(self.role(above) in TRANSPARENT_ROLES for above in node.ancestors())

    # --- requests ----------------------------------------------------------------------------------------------------

    def top_level_nodes(self, root: InFlightSpan[Live]) -> Iterator[InFlightSpan[Live]]:
        """Yields the structural spans of a tree and the first span with another role on each path, parents first."""
        pending = [root]
        while pending:
            node = pending.pop()
            yield node
            if node.children and self.role(node) in TRANSPARENT_ROLES:
                pending.extend(node.children.values())

    def request_nodes(self, top_level: list[InFlightSpan[Live]]) -> list[InFlightSpan[Live]]:
        """Returns the nodes that represent a request, by start time."""
        return sorted((node for node in top_level if self.role(node) in REQUEST_ROLES), key=self.start_ns)

    def owning_request(self, work: InFlightSpan[Live], requests: list[InFlightSpan[Live]]) -> InFlightSpan[Live]:
        """Returns the request that owns work next to the agents, by the rule of extraction: the last one that started
        before it.
        """
        started_before = bisect_right(requests, self.start_ns(work), key=self.start_ns)
        return requests[max(started_before - 1, 0)]

    def detached_work_of(
        self, request: InFlightSpan[Live], top_level: list[InFlightSpan[Live]], requests: list[InFlightSpan[Live]]
    ) -> list[InFlightSpan[Live]]:
        """Returns the ended work next to an agent that belongs to it."""
        ended = [node for node in top_level if node.record is not None and node.role in WORK_ROLES]
        return [node for node in ended if self.owning_request(node, requests) is request]

    # --- records -----------------------------------------------------------------------------------------------------

    def subtree_records(self, node: InFlightSpan[Live]) -> Iterator[SpanRecord]:
        """Yields the spans of a subtree, live ones in their current state: a tool that is still running has been
        called.
        """
        for below in node.walk():
            record = self.read_record(below)
            yield record
            if below.folded_rows:
                yield from self._packer.unpack(record.trace_id, below.folded_rows)

    def live_records(self, node: InFlightSpan[Live]) -> list[SpanRecord]:
        """Returns the spans of a subtree that have not ended, in their current state."""
        return [self.read_record(below) for below in node.walk() if below.record is None]

    def ancestor_records(self, node: InFlightSpan[Live]) -> list[SpanRecord]:
        """Returns the ancestors of a span from its parent upwards, including ended ones that were folded."""
        path: list[SpanRecord] = []
        record = self.read_record(node)
        for above in node.ancestors():
            if record.parent_id is not None and above.id != int(record.parent_id, 16):
                path += self._folded_ancestors(above, record)
            record = self.read_record(above)
            path.append(record)
        return path

    def _folded_ancestors(self, above: InFlightSpan[Live], record: SpanRecord) -> Iterator[SpanRecord]:
        """Yields the folded spans between a span and its ancestor node, from the parent upwards."""
        folded = {found.span_id: found for found in self._packer.unpack(record.trace_id, above.folded_rows)}
        while record.parent_id is not None and (parent := folded.pop(record.parent_id, None)) is not None:
            yield parent
            record = parent

    def record_ancestors(self, trace: TraceState[Live], record: SpanRecord) -> list[SpanRecord]:
        """Returns the ancestors of a span without a node, from its parent upwards."""
        parent = trace.nodes.get(int(record.parent_id, 16)) if record.parent_id is not None else None
        return [self.read_record(parent), *self.ancestor_records(parent)] if parent is not None else []


def count_unended(node: InFlightSpan[Live]) -> int:
    """Returns the number of live spans in a subtree."""
    return sum(below.record is None for below in node.walk())
