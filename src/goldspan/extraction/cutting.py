"""Which spans belong to which request or component.

A request is the work of the outermost agent (or application entry) in a trace. A trace may hold several of them; a
trace that nothing marks is one request if a model or a tool was at work in it, and none otherwise.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, field

from goldspan.extraction import values
from goldspan.extraction.asking import Requests
from goldspan.extraction.calls import call_of
from goldspan.extraction.dialogues import Dialogue, calls_since_asked, dialogues, texts_in
from goldspan.extraction.names import fold, handoff_target
from goldspan.extraction.reading import BARE, MARKS, WORK
from goldspan.extraction.times import end_of
from goldspan.extraction.tree import Node
from goldspan.model import Unit

_CANDIDATES = 50
"""Hand-offs that are looked at for an agent: the latest of them."""


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
    name: str | None = None
    """The component's name, where the unit is a component."""
    split: bool = False
    """Whether the trace holds further requests that nothing but the user's words tells apart."""
    resumed: list[Node] = field(default_factory=list)
    """What the runtime did for the request later, by itself, by time of start: the spans that stand for it or, where
    these are lost, the model's.
    """

    def __post_init__(self) -> None:
        if self.root is not None:
            self.root_id = self.root.span.span_id


_PassedOn = dict[tuple[Node | None, str | None], list[tuple[Node, Portion]]]
"""Hand-offs and their requests, by what stands around the agents and by who takes over, where that is known."""


def components(roots: list[Node], requests: Iterable[Portion]) -> list[Portion]:
    """Every marked or declared component, and every agent inside a request, with all spans below it.

    The request's own agent is none, nor is an agent that an agent of the same name stands right around: that is one
    agent, seen by two instrumentations.
    """
    outermost = {portion.root for portion in requests}
    found: list[Portion] = []
    for node in (node for root in roots for node in root.walk()):
        name = node.part
        if name is None and node.role == "agent" and node not in outermost and not _repeated(node):
            name = node.reading.name or None
        if name is not None:
            found.append(Portion("component", node, list(node.walk()), name=name))
    return found


def _repeated(agent: Node) -> bool:
    """Whether the nearest agent or tool around an agent's span is an agent of the same name."""
    owner, name = agent.owner, agent.reading.name
    return owner is not None and owner.role == "agent" and owner.reading.name == name


def requests(roots: list[Node]) -> list[Portion]:
    """The requests of one trace, by time of start."""
    found: list[Node] = []
    strays: list[Node] = []
    working: list[Node] = []
    orphans: set[Node] = set()
    for root in roots:
        found_before, strays_before = len(found), len(strays)
        _separate(root, found, strays)
        if root.orphan:
            orphans.update(found[found_before:])
        if len(strays) > strays_before:
            working.append(root)
    if not found:
        return _unmarked(working)
    # Of those that start together the longest first: it may be around the others.
    found.sort(key=lambda node: (node.start, -end_of(node.span), node.span.span_id))
    around = _around(orphans, found, strays)
    portions = _joined_by_handoff([node for node in found if node not in around])
    if around:
        owner = {node: portion for portion in portions for node in portion.nodes}
        for orphan, outer in around.items():
            owner[outer].nodes.extend(orphan.walk())
    _give_strays(strays, portions)
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


def _unmarked(tops: list[Node]) -> list[Portion]:
    """One request for the whole trace, standing on its only root or, failing that, on the parent that is missing."""
    if not tops:
        return []
    nodes = [node for top in tops for node in top.walk()]
    missing = {top.span.parent_id for top in tops if top.orphan}
    if len(tops) > 1 and len(missing) == 1 and all(top.orphan for top in tops):
        return [Portion("request", None, nodes, missing.pop() or "")]
    return [Portion("request", tops[0], nodes)]


def _around(orphans: set[Node], found: list[Node], strays: list[Node]) -> dict[Node, Node]:
    """For agents above whom a span never came, those at work around them: in one trace, most likely on their behalf.

    What is lost may have been above both, as it is with the requests of two users: then a call must tell.
    """
    begun: list[Node] = []
    around: dict[Node, Node] = {}
    calls = _Delegations(found, strays) if len(orphans) > 1 else None
    for node in found:
        outer = None
        if node in orphans:
            enclosing = (other for other in reversed(begun[-_CANDIDATES:]) if _encloses(other, node))
            outer = next((o for o in enclosing if o not in orphans or (calls and calls.lead(o, node))), None)
        if outer is None:
            begun.append(node)
        else:
            around[node] = outer
    return around


class _Delegations:
    """The calls in a trace that may have been of agents, by the name of the tool and by the words that it was given."""

    def __init__(self, found: list[Node], strays: list[Node]) -> None:
        self._strays = frozenset(strays)
        self._known: dict[Hashable, list[Node]] = {}
        steps = (step for top in (*found, *strays) for step in top.walk())
        for step in sorted((step for step in steps if step.role in WORK), key=lambda step: step.place):
            for key in dict.fromkeys(_given_by(step)):
                self._known.setdefault(key, []).append(step)

    def lead(self, outer: Node, agent: Node) -> bool:
        """Whether an agent called another one: by a tool that is around it, or in an answer of its model before."""
        keys: list[Hashable] = [(_NAME, fold(agent.reading.name))] if agent.reading.name else []
        keys += [(_WORDS, words)] if (words := _asked(agent)) else []
        steps = (step for key in keys for step in self._known.get(key, [])[-_CANDIDATES:])
        return any(self._is_of(outer, step) and _may_lead_to(step, agent) for step in steps)

    def _is_of(self, outer: Node, step: Node) -> bool:
        return outer.contains(step) or (step in self._strays and _encloses(outer, step))


_NAME, _WORDS = "name", "words"


def _given_by(step: Node) -> Iterator[Hashable]:
    """What an agent that a step called would be known by."""
    if step.role == "tool":
        made = call_of(step)
        called = [(made.name, made.arguments.value if made.arguments is not None else None)]
    else:
        called = [(call.name, call.arguments) for call in Dialogue(step).calls]
    for name, arguments in called:
        yield _NAME, fold(name)
        yield from ((_WORDS, words) for words in texts_in(arguments))


def _asked(agent: Node) -> str | None:
    """What an agent was asked, by itself or in the first turn of its model."""
    own = values.asked_text(agent.reading.input)
    speaking = (node for node in agent.walk() if node.role == "model" or node is agent)
    return own.strip() if own else next(filter(None, (Dialogue(node).opening for node in speaking)), None)


def _may_lead_to(step: Node, agent: Node) -> bool:
    return _encloses(step, agent) if step.role == "tool" else Dialogue(step).ended <= agent.start


def _encloses(outer: Node, inner: Node) -> bool:
    end, last = outer.span.end_ns, inner.span.end_ns
    return end is not None and last is not None and outer.start <= inner.start and last <= end


def _joined_by_handoff(found: list[Node]) -> list[Portion]:
    """One portion an agent, except that an agent that took over, by hand-off or by executing what another one's model
    asked for, continues the request before it.
    """
    portions: list[Portion] = []
    turns = _Turns()
    beside = {(node.parent, fold(node.reading.name or "")) for node in found}
    agents = Counter(parent for parent, _ in beside)
    passed_on: _PassedOn = {}
    for node in found:
        nodes = list(node.walk())
        take_turns = agents[node.parent] > 1
        before = _handed_over(node, passed_on) or (turns.before(node, nodes) if take_turns else None)
        if before is None:
            before = Portion("request", node, nodes, marked=True)
            portions.append(before)
        else:
            before.nodes.extend(nodes)
        if take_turns:
            turns.add(node, nodes, before)
        for step in nodes if len(found) > 1 else ():
            for name in _handoffs(step):
                target = fold(handoff_target(name) or name)
                if (node.parent, target) in beside:
                    passed_on.setdefault((node.parent, target), []).append((step, before))
                elif step.role == "tool":
                    # Not all instrumentations can tell who takes over: then it is whoever comes next.
                    passed_on.setdefault((node.parent, None), []).append((step, before))
    return portions


class _Turns:
    """The calls that agents asked for, by which others that stand beside them are known to serve the same request.

    In a conversation of agents, one asks its model, another one executes what the model asked for, and the first goes
    on with the answers.
    """

    def __init__(self) -> None:
        self._asked: dict[tuple[Node | None, str], tuple[Portion, Dialogue]] = {}
        self._left: set[tuple[Node | None, str]] = set()
        """Those of which no execution was seen."""

    def before(self, agent: Node, nodes: list[Node]) -> Portion | None:
        """The request of which an agent executes a call that it did not ask for, or with whose calls it goes on."""
        if not self._asked:
            return None
        own: set[str | None] | None = None
        for step in nodes:
            for call_id, turn in _answered_ids(step):
                place = (agent.parent, call_id)
                if place not in self._asked:
                    continue
                if own is None:
                    own = {call.call_id for step in nodes if step.role == "model" for call in Dialogue(step).calls}
                portion, asking = self._asked[place]
                if call_id not in own and (place in self._left if turn is None else turn.users in ((), asking.users)):
                    return portion
        return None

    def add(self, agent: Node, nodes: list[Node], portion: Portion) -> None:
        """Take note of what an agent asked for and executed."""
        for step in nodes:
            if step.role != "model":
                continue
            turn = Dialogue(step)
            for call in turn.calls:
                if call.call_id:
                    self._asked[agent.parent, call.call_id] = portion, turn
                    self._left.add((agent.parent, call.call_id))
        for step in nodes:
            if step.role == "tool":
                self._left.discard((agent.parent, call_of(step).call_id or ""))


def _answered_ids(step: Node) -> Iterator[tuple[str, Dialogue | None]]:
    """The id of the call that a tool executed; those with whose answers a model or an agent goes on, the last first,
    with its turn.
    """
    if step.role == "tool":
        if call_id := call_of(step).call_id:
            yield call_id, None
    elif step.role in ("model", "agent") and step.hears_calls:
        turn = Dialogue(step)
        yield from ((call.call_id, turn) for call in reversed(calls_since_asked(step.asked)) if call.call_id)


def _handoffs(step: Node) -> Iterator[str]:
    """The names of the hand-offs that a step made, or asked for: the span of one may be lost."""
    if step.role == "tool" and step.reading.kind == "handoff":
        yield call_of(step).name
    elif step.role == "model":
        yield from (call.name for call in Dialogue(step).calls if handoff_target(call.name) is not None)


def _handed_over(node: Node, passed_on: _PassedOn) -> Portion | None:
    """The request, the last one begun, that an agent beside this one passed on to it before it started."""
    name = fold(node.reading.name or "")
    handed = (passed_on.get((node.parent, target), [])[-_CANDIDATES:] for target in (name, None))
    before = [portion for steps in handed for step, portion in steps if step.start <= node.start]
    return max(before, key=lambda portion: portion.nodes[0].place, default=None)


def _give_strays(strays: list[Node], portions: list[Portion]) -> None:
    """Give working spans that stand outside to the request whose calls or words they know, else to the last one begun.

    Clocks of milliseconds may show one time for both.
    """
    in_order = sorted(strays, key=lambda node: node.place)
    starts = [portion.nodes[0].start for portion in portions]
    last_begun = {stray: portions[max(bisect_right(starts, stray.start) - 1, 0)] for stray in in_order}
    if len(portions) > 1:
        last_begun |= _known_to(portions, [stray for stray in in_order if stray.role == "model"])
    for stray in in_order:
        if stray.role == "model":
            last_begun[stray].nodes.extend(stray.walk())
    tools = [stray for stray in in_order if stray.role == "tool"]
    if len(portions) > 1 and tools:
        of_turn = {turn: portion for portion in portions for turn in dialogues(portion.nodes)}
        turns = Requests.asked_by(of_turn).before_each(tools)
        last_begun |= {tool: of_turn[turn] for tool, turn in turns.items()}
    for stray in tools:
        last_begun[stray].nodes.extend(stray.walk())


def _known_to(portions: list[Portion], models: list[Node]) -> dict[Node, Portion]:
    """The requests that made the calls a lone model asks for or remembers, or that were asked with the same words."""
    if not models:
        return {}
    knowing: dict[Hashable, list[Portion]] = {}
    for portion in portions:
        for key in dict.fromkeys(key for node in portion.nodes for key in _known_by(node)):
            knowing.setdefault(key, []).append(portion)
    found: dict[Node, Portion] = {}
    for model in models:
        for key in (*_known_by(model), *sorted(Dialogue(model).known_ids)):
            alike = knowing.get(key, [])[-_CANDIDATES:]
            begun = [portion for portion in alike if portion.nodes[0].start <= model.start]
            if begun:
                found[model] = begun[-1]
                break
    return found


def _known_by(node: Node) -> Iterator[Hashable]:
    """The ids of the calls that a span made or asked for; of a model, what the user had said, too."""
    if node.role == "tool" and (call_id := call_of(node).call_id):
        yield call_id
    elif node.role == "model":
        turn = Dialogue(node)
        yield from (call.call_id for call in turn.calls if call.call_id)
        if turn.users:
            yield turn.users
