"""What trees of spans in flight say: what each span is to a request, whose work it is, and what stands around it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from typing import Generic

from goldspan.extraction import Role, role_of
from goldspan.extraction.reading import BARE, MARKS, WORK
from goldspan.model import SpanRecord
from goldspan.online.forest import Live, Node, Trace
from goldspan.online.packing import Packer


class Trees(Generic[Live]):
    """Reads trees and changes nothing in them. `peek` reads a live span as it is now."""

    def __init__(self, peek: Callable[[Live], SpanRecord], packer: Packer) -> None:
        self._peek = peek
        self._packer = packer

    # --- one span ----------------------------------------------------------------------------------------------------

    def current(self, node: Node[Live]) -> SpanRecord:
        """A span as it ended or, as long as it has not, as it is now."""
        if node.record is not None:
            return node.record
        assert node.live is not None  # a node holds one or the other
        return self._peek(node.live)

    def role(self, node: Node[Live]) -> Role | None:
        """What it is to a request, as far as is known now."""
        if node.role is None and node.record is None:
            node.role = role_of(self.current(node))
        return node.role

    def start(self, node: Node[Live]) -> int:
        """When it started, in nanoseconds; 0 where that is not known."""
        if node.start is None:
            node.start = self.current(node).start_ns or 0
        return node.start

    def is_in_the_open(self, node: Node[Live]) -> bool:
        """Whether only bare spans stand around it: no agent, no tool, nothing else of a request."""
        return all(self.role(above) in BARE for above in node.ancestors())

    # --- requests ----------------------------------------------------------------------------------------------------

    def surface(self, root: Node[Live]) -> Iterator[Node[Live]]:
        """The bare spans of a tree, and the first span with a role on each way down: parents first."""
        pending = [root]
        while pending:
            node = pending.pop()
            yield node
            if node.children and self.role(node) in BARE:
                pending.extend(node.children.values())

    def marks(self, surface: list[Node[Live]]) -> list[Node[Live]]:
        """Those that stand for a request, in the order in which they began."""
        return sorted((node for node in surface if self.role(node) in MARKS), key=self.start)

    def request_of(self, stray: Node[Live], marks: list[Node[Live]]) -> Node[Live]:
        """Whose work a span beside the agents is, as extraction has it: of the one begun last before it."""
        begun = bisect_right(marks, self.start(stray), key=self.start)
        return marks[max(begun - 1, 0)]

    def strays_of(self, mark: Node[Live], surface: list[Node[Live]], marks: list[Node[Live]]) -> list[Node[Live]]:
        """The work that has ended beside an agent and belongs to it."""
        ended = [node for node in surface if node.record is not None and node.role in WORK]
        return [stray for stray in ended if self.request_of(stray, marks) is mark]

    # --- records -----------------------------------------------------------------------------------------------------

    def records(self, node: Node[Live]) -> Iterator[SpanRecord]:
        """The spans of a subtree, live ones as they are now: a tool that is still at work has been called."""
        for below in node.walk():
            record = self.current(below)
            yield record
            if below.folded:
                yield from self._packer.unpack(record.trace_id, below.folded)

    def live_ones(self, node: Node[Live]) -> list[SpanRecord]:
        """The spans of a subtree that have not ended, as they are now."""
        return [self.current(below) for below in node.walk() if below.record is None]

    def path(self, node: Node[Live]) -> list[SpanRecord]:
        """What stands around a span, from its parent upwards; among it what has ended and was folded since."""
        path: list[SpanRecord] = []
        record = self.current(node)
        for above in node.ancestors():
            if record.parent_id is not None and above.id != int(record.parent_id, 16):
                path += self._folded_between(above, record)
            record = self.current(above)
            path.append(record)
        return path

    def _folded_between(self, above: Node[Live], record: SpanRecord) -> Iterator[SpanRecord]:
        """What stands between a span and the node that its parent was folded into, from the parent upwards."""
        folded = {each.span_id: each for each in self._packer.unpack(record.trace_id, above.folded)}
        while record.parent_id is not None and (parent := folded.pop(record.parent_id, None)) is not None:
            yield parent
            record = parent

    def around(self, trace: Trace[Live], record: SpanRecord) -> list[SpanRecord]:
        """What stands around a span that has no node itself, from its parent upwards."""
        parent = trace.nodes.get(int(record.parent_id, 16)) if record.parent_id is not None else None
        return [self.current(parent), *self.path(parent)] if parent is not None else []


def unended(node: Node[Live]) -> int:
    """How many spans of a subtree are live."""
    return sum(below.record is None for below in node.walk())
