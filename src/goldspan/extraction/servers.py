"""Servers of tools that lost hold of the context: what they did is a trace of its own, and no request.

Most MCP servers hang their span below the client's. Where that fails, the call that was at work at the same time and
has the name tells whose it is.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

from goldspan.extraction.calls import call_of
from goldspan.extraction.cutting import Portion
from goldspan.extraction.names import tails
from goldspan.extraction.times import JITTER_NS
from goldspan.extraction.tree import Node

_SERVER = 2
"""OTLP's kind of a span that answers a request from outside."""
_NEAR = 64
"""Calls of one name begun last that are looked at for the one around a server's span."""


def without_servers(lone: list[Portion], others: Iterable[Portion]) -> list[Portion]:
    """The lone portions but those of servers, which are given to the portions among the `others` that called them.

    What no call is found for stays: a server's operator may look at nothing else.
    """
    served = [portion for portion in lone if _is_server(portion.nodes[0])]
    if not served:
        return lone
    calling = _Calling(others)
    given = set()
    for portion in served:
        caller = calling.around(portion.nodes[0])
        if caller is not None:
            caller.nodes.extend(portion.nodes)
            given.add(portion)
    return [portion for portion in lone if portion not in given]


def _is_server(node: Node) -> bool:
    return node.role == "tool" and "mcp" in node.reading.by and node.span.kind == _SERVER


class _Calling:
    """The spans of tools by name, in the order of their starts."""

    def __init__(self, portions: Iterable[Portion]) -> None:
        self._of_name: dict[str, list[tuple[Node, Portion]]] = {}
        for portion in portions:
            for node in portion.nodes:
                if node.role == "tool" and node.span.start_ns is not None and node.span.end_ns is not None:
                    for name in tails(call_of(node).name):
                        self._of_name.setdefault(name, []).append((node, portion))
        for calls in self._of_name.values():
            calls.sort(key=lambda call: call[0].place)

    def around(self, server: Node) -> Portion | None:
        """The portion of the call that was at work while a server was; of several, that of the shortest."""
        start, end = server.span.start_ns, server.span.end_ns
        if start is None or end is None:
            return None
        calls = self._of_name.get(tails(call_of(server).name)[0], [])
        begun = bisect_right(calls, start + JITTER_NS, key=lambda call: call[0].start)
        fitting = [call for call in calls[max(0, begun - _NEAR) : begun] if _end(call[0]) + JITTER_NS >= end]
        return min(fitting, key=_extent)[1] if fitting else None


def _end(node: Node) -> int:
    return node.span.end_ns or 0


def _extent(call: tuple[Node, Portion]) -> tuple[int, tuple[int, int, str]]:
    node = call[0]
    return _end(node) - node.start, node.place
