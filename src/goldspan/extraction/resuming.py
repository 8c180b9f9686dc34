"""Requests that went on by themselves: what a runtime did for them later, in another trace and with no user asking.

A coding agent starts a command in the background, answers, and takes a further turn when the command has ended. That
turn has the session of the request and knows its history, but so has the next request. Only an id that the runtime
gives to each request of the user, and to all that it does for it, tells which one it belongs to.
"""

from __future__ import annotations

from collections.abc import Iterable

from goldspan.extraction import values
from goldspan.extraction.cutting import Portion
from goldspan.extraction.tree import Node


def rejoin(portions: Iterable[Portion]) -> list[Portion]:
    """The portions, without those in which nobody asks for anything and that serve a request begun before.

    These become part of the last one in which somebody did; order stays.
    """
    given = list(portions)
    bearing = {id(portion): own for portion in given if (own := _bearing(portion))}
    if len(bearing) < 2:
        return given
    last: dict[tuple[str | None, str | None], Portion] = {}
    joined: set[int] = set()
    for portion in sorted((portion for portion in given if id(portion) in bearing), key=_begun):
        nodes = bearing[id(portion)]
        served = dict.fromkeys((node.span.service, node.reading.request_id) for node in nodes)
        before = next((last[request] for request in served if request in last), None)
        if before is not None and not _asks(portion, nodes):
            before.nodes.extend(portion.nodes)
            before.resumed.extend(nodes if portion.root is None else [portion.root])
            joined.add(id(portion))
        else:
            last.update(dict.fromkeys(served, portion))
    return [portion for portion in given if id(portion) not in joined]


def _bearing(portion: Portion) -> list[Node]:
    """The spans of a portion that bear the id of a request."""
    return [node for node in portion.nodes if node.reading.request_id]


def _begun(portion: Portion) -> tuple[int, int, str]:
    return portion.nodes[0].place


def _asks(portion: Portion, bearing: Iterable[Node]) -> bool:
    """Whether the user says something in a portion. What a sub-agent is asked, the user did not say: it bears no id."""
    speaking = [*bearing, *([portion.root] if portion.root is not None else [])]
    return any(
        values.asked_text(node.reading.input) or any(message.from_user and message.text for message in node.asked)
        for node in speaking
    )
