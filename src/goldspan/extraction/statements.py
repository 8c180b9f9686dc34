"""What a program says of its own work: which golden it is for, which tools and metrics, what was asked and answered."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from goldspan import semconv
from goldspan.extraction.cutting import Portion
from goldspan.extraction.notation import plain
from goldspan.extraction.reading import MARKS, WORK
from goldspan.extraction.tree import Node

T = TypeVar("T")

ATTRIBUTES = (semconv.EXPECTED_TOOLS, semconv.METRICS, semconv.INPUT, semconv.OUTPUT)
"""Those that make a span count as known, beside the attributes that may name a golden."""


@dataclass(frozen=True, slots=True)
class Statements:
    """What the spans of one run say of it. `None` where they say nothing."""

    golden_id: str | None = None
    expected_tools: tuple[Any, ...] | None = None
    """In the words of a golden's `tools`; what cannot be read is there as the text it is."""
    metrics: tuple[str, ...] | None = None
    input: str | None = None
    output: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)


def stated(portion: Portion, golden_id_attributes: Sequence[str]) -> Statements:
    """What the spans of a run say of it.

    What was asked and answered is said by the run's own span alone, metadata also by those around it, and everything
    else by the run's own span, else by one around it, else by one inside it that is no component's and no sub-agent's.
    """
    root = portion.root
    around = list(_around(portion))
    metadata = {key: value for node in (*reversed(around), *([root] if root else ())) for key, value in _metadata(node)}
    places = [node for node in (*([root] if root else ()), *around) if node.reading.noted]
    places += _inside(portion)
    if not places:
        return Statements(metadata=metadata) if metadata else _NOTHING
    own = root.span.attributes if root is not None and root.reading.noted else {}
    return Statements(
        golden_id=_first(places, lambda node: _golden_id(node, golden_id_attributes)),
        expected_tools=_first(places, lambda node: _expected(node.span.attributes.get(semconv.EXPECTED_TOOLS))),
        metrics=_first(places, lambda node: _names(node.span.attributes.get(semconv.METRICS))),
        input=_text(own.get(semconv.INPUT)),
        output=_text(own.get(semconv.OUTPUT)),
        metadata=metadata,
    )


_NOTHING = Statements()


def _around(portion: Portion) -> Iterator[Node]:
    """The spans around a run. What is said of a request is not said of the components in it."""
    for node in portion.root.ancestors() if portion.root is not None else ():
        if portion.unit == "component" and (node.role in MARKS or node.component is node):
            return
        yield node


def _inside(portion: Portion) -> list[Node]:
    """The spans inside a run that may speak for it."""
    own = portion.root.component if portion.root is not None else None
    noted = [node for node in portion.nodes if node.reading.noted and node is not portion.root]
    if not noted:
        return noted
    busy = {node.owner for node in portion.nodes if node.role in WORK}
    agents = Counter(node.owner for node in portion.nodes if node.role == "agent")
    busy.update(owner for owner, number in agents.items() if number > 1)  # it divides the work among them
    return [node for node in noted if node.component is own and not _of_sub_agent(node, portion.root, busy)]


def _of_sub_agent(node: Node, root: Node | None, busy: set[Node | None]) -> bool:
    """Whether a span is, or is inside, an agent that works for a tool, or for an agent that is no mere frame of it.

    `busy` are those who work themselves, or have several agents work for them.
    """
    for step in (node, *node.ancestors()):
        if step is root:
            return False
        owner = step.owner
        if step.role != "agent" or owner is None:
            continue
        if owner.role == "tool" or (owner.role == "agent" and owner in busy):
            return True
    return False


def _first(places: Sequence[Node], read: Callable[[Node], T | None]) -> T | None:
    return next((found for node in places if (found := read(node)) is not None), None)


def _golden_id(node: Node, attributes: Sequence[str]) -> str | None:
    named = (node.span.attributes.get(attribute) for attribute in attributes if not _is_result(attribute, node))
    found = next((value for value in named if value is not None), None)
    return None if found is None else str(found)


def _is_result(attribute: str, node: Node) -> bool:
    """Whether the golden's id was put there by an earlier evaluation that found it elsewhere, or by other means."""
    attributes = node.span.attributes
    if attribute != semconv.GOLDEN_ID:
        return False
    return attributes.get(semconv.GOLDEN_MATCH, "id") != "id" or attributes.get(semconv.GOLDEN_ELSEWHERE) is True


def _expected(written: Any) -> tuple[Any, ...] | None:
    """Expected tools, as a structured value, as JSON, or as a list of names and JSON texts."""
    if isinstance(written, str):
        if not written.strip():
            return None
        written = plain(written)
    if isinstance(written, list | tuple):
        return tuple([_item(item) for item in written])
    return None if written is None else (written,)


def _item(written: Any) -> Any:
    """An expected tool; attributes hold lists of texts at most, so that one with arguments is JSON in them."""
    if isinstance(written, str) and written.lstrip().startswith("{"):
        return plain(written)
    return written


def _names(written: Any) -> tuple[str, ...] | None:
    """Names in a list, or in a text with commas between them; none at all say nothing."""
    given = written.split(",") if isinstance(written, str) else written
    if not isinstance(given, list | tuple):
        return None
    return tuple(dict.fromkeys(filter(None, (str(name).strip() for name in given)))) or None


def _text(written: Any) -> str | None:
    return None if written is None or written == "" else str(written)


def _metadata(node: Node) -> Iterator[tuple[str, Any]]:
    attributes = node.span.attributes
    for key in attributes:
        if key.startswith(semconv.METADATA_PREFIX):
            yield key[len(semconv.METADATA_PREFIX) :], attributes[key]
