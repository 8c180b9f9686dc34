"""Which spans belong to which request or component.

A request is the work of the outermost agent (or application entry) in a trace. A trace may hold several of them; a
trace that nothing marks is one request if a model or a tool was at work in it, and none otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from goldspan.extraction.calls import asks_for
from goldspan.extraction.dialogues import Dialogue
from goldspan.extraction.reading import BARE, MARKS, WORK
from goldspan.extraction.tree import Node
from goldspan.model import Unit


@dataclass(slots=True, eq=False)
class Portion:
    """The spans of one run."""

    unit: Unit
    root: Node | None
    """The span that stands for the run; `None` where it never arrived."""
    nodes: list[Node] = field(default_factory=list)
    root_id: str = ""
    """The id of that span, known from its children even where it never arrived."""
    marked: bool = False
    """Whether an agent or an application says that this is a request; otherwise it is all that the trace holds."""
    split: bool = False
    """Whether the trace holds further requests that nothing but the user's words tells apart."""

    def __post_init__(self) -> None:
        if self.root is not None:
            self.root_id = self.root.span.span_id


def components(roots: list[Node]) -> list[Portion]:
    """Every marked component with all spans below it."""
    marked = (node for root in roots for node in root.walk() if node.role == "component")
    return [Portion("component", node, list(node.walk())) for node in marked]


def requests(roots: list[Node]) -> list[Portion]:
    """The requests of one trace, by time of start."""
    found: list[Node] = []
    strays: list[Node] = []
    for root in roots:
        _separate(root, found, strays)
    if not found:
        return _unmarked(roots, strays)
    portions = _joined_by_handoff(sorted(found, key=lambda node: node.place))
    for stray in strays:
        _nearest(stray, portions).nodes.extend(stray.walk())
    return portions


def _separate(root: Node, found: list[Node], strays: list[Node]) -> None:
    """Split a tree into the outermost marked nodes and the working spans outside of them."""
    pending = [root]
    while pending:
        node = pending.pop()
        if node.role in MARKS:
            found.append(node)
        elif node.role in WORK:
            strays.append(node)
        elif node.role in BARE:
            pending.extend(reversed(node.children))


def _unmarked(roots: list[Node], strays: list[Node]) -> list[Portion]:
    """One request for the whole trace, standing on its only root or, failing that, on the parent that is missing."""
    if not strays:
        return []
    tops = sorted({_top(stray) for stray in strays}, key=lambda node: node.place)
    nodes = [node for top in tops for node in top.walk()]
    missing = {top.span.parent_id for top in tops if top.orphan}
    if len(tops) > 1 and len(missing) == 1 and all(top.orphan for top in tops):
        return [Portion("request", None, nodes, missing.pop() or "")]
    return [Portion("request", tops[0], nodes)]


def _top(node: Node) -> Node:
    top = node
    for top in node.ancestors():  # noqa: B007 - the last ancestor is the answer
        pass
    return top


def _joined_by_handoff(found: list[Node]) -> list[Portion]:
    """One portion an agent, except that an agent that took over by hand-off continues the request before it."""
    portions: list[Portion] = []
    for node in found:
        nodes = list(node.walk())
        before = next((portion for portion in reversed(portions) if _hands_over(portion, node)), None)
        if before is not None:
            before.nodes.extend(nodes)
        else:
            portions.append(Portion("request", node, nodes, marked=True))
    return portions


def _hands_over(before: Portion, node: Node) -> bool:
    """Whether an earlier agent beside this one passed the request on before this one started."""
    if before.root is None or before.root.parent is not node.parent:
        return False
    return any(
        step.role == "tool" and step.reading.kind == "handoff" and step.place <= node.place for step in before.nodes
    )


def _nearest(stray: Node, portions: list[Portion]) -> Portion:
    """The request whose model asked for a stray tool, else the one that was last begun when the stray span started.

    Clocks of milliseconds may show one time for both.
    """
    begun = [portion for portion in portions if portion.root is not None and portion.root.place[0] <= stray.place[0]]
    if len(begun) > 1 and stray.role == "tool":
        begun = [portion for portion in begun if any(asks_for(turn, stray) for turn in _turns(portion))] or begun
    return begun[-1] if begun else portions[0]


def _turns(portion: Portion) -> list[Dialogue]:
    return [Dialogue(node) for node in portion.nodes if node.role == "model"]
