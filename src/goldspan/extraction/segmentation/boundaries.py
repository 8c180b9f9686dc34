"""Which spans belong to which request or component.

A request is the work of the outermost agent (or application entry) in a trace. A trace may hold several of them; a
trace that nothing marks is one request if a model or a tool was at work in it, and none otherwise.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, field

from goldspan.content import values
from goldspan.content.tools import fold_name, handoff_target
from goldspan.conventions.span_facts import REQUEST_ROLES, TRANSPARENT_ROLES, WORK_ROLES
from goldspan.extraction.model_turns import ModelTurn, argument_texts, calls_since_user, find_model_turns
from goldspan.extraction.observed_calls import call_from_span
from goldspan.extraction.span_tree import SpanNode, end_of
from goldspan.extraction.turn_attribution import RequestedCallIndex
from goldspan.model import RunUnit

_MAX_CANDIDATES = 50
"""Hand-offs that are looked at for an agent: the latest of them."""


@dataclass(slots=True, eq=False)
class RunSpans:
    """The spans of one run."""

    unit: RunUnit
    root: SpanNode | None
    """The span that stands for the run; `None` where it never arrived."""
    nodes: list[SpanNode] = field(default_factory=list)
    root_id: str = ""
    """The id of that span, known from its children even where it never arrived."""
    is_marked: bool = False
    """Whether an agent or an application says that this is a request; otherwise it is all that the trace holds."""
    name: str | None = None
    """The component's name, where the unit is a component."""
    is_split: bool = False
    """Whether the trace holds further requests that nothing but the user's words tells apart."""
    resumed: list[SpanNode] = field(default_factory=list)
    """What the runtime did for the request later, by itself, by time of start: the spans that stand for it or, where
    these are lost, the model's.
    """

    def __post_init__(self) -> None:
        if self.root is not None:
            self.root_id = self.root.span.span_id


_HandoffIndex = dict[tuple[SpanNode | None, str | None], list[tuple[SpanNode, RunSpans]]]
"""Hand-offs and their requests, by what stands around the agents and by who takes over, where that is known."""


def split_components(roots: list[SpanNode], requests: Iterable[RunSpans]) -> list[RunSpans]:
    """Every marked or declared component, and every agent inside a request, with all spans below it.

    The request's own agent is none, nor is an agent that an agent of the same name stands right around: that is one
    agent, seen by two instrumentations.
    """
    outermost = {portion.root for portion in requests}
    found: list[RunSpans] = []
    for node in (node for root in roots for node in root.walk()):
        name = node.component_name
        if name is None and node.role == "agent" and node not in outermost and not _repeats_enclosing_agent(node):
            name = node.facts.name or None
        if name is not None:
            found.append(RunSpans("component", node, list(node.walk()), name=name))
    return found


def _repeats_enclosing_agent(agent: SpanNode) -> bool:
    """Whether the nearest agent or tool around an agent's span is an agent of the same name."""
    owner, name = agent.owner, agent.facts.name
    return owner is not None and owner.role == "agent" and owner.facts.name == name


def split_requests(roots: list[SpanNode]) -> list[RunSpans]:
    """The requests of one trace, by time of start."""
    found: list[SpanNode] = []
    strays: list[SpanNode] = []
    working: list[SpanNode] = []
    orphans: set[SpanNode] = set()
    for root in roots:
        found_before, strays_before = len(found), len(strays)
        _split_marked(root, found, strays)
        if root.is_orphan:
            orphans.update(found[found_before:])
        if len(strays) > strays_before:
            working.append(root)
    if not found:
        return _unmarked_request(working)
    # Of those that start together the longest first: it may be around the others.
    found.sort(key=lambda node: (node.start, -end_of(node.span), node.span.span_id))
    around = _enclosing_agents(orphans, found, strays)
    portions = _join_handoffs([node for node in found if node not in around])
    if around:
        owner = {node: portion for portion in portions for node in portion.nodes}
        for orphan, outer in around.items():
            owner[outer].nodes.extend(orphan.walk())
    _assign_detached_spans(strays, portions)
    return portions


def _split_marked(root: SpanNode, found: list[SpanNode], strays: list[SpanNode]) -> None:
    """Split a tree into the outermost marked nodes and the working spans outside of them."""
    pending = [root]
    while pending:
        node = pending.pop()
        if node.role in REQUEST_ROLES:
            found.append(node)
        elif node.role in WORK_ROLES:
            strays.append(node)
        elif node.role in TRANSPARENT_ROLES:
            pending.extend(reversed(node.children))


def _unmarked_request(tops: list[SpanNode]) -> list[RunSpans]:
    """One request for the whole trace, standing on its only root or, failing that, on the parent that is missing."""
    if not tops:
        return []
    nodes = [node for top in tops for node in top.walk()]
    missing = {top.span.parent_id for top in tops if top.is_orphan}
    if len(tops) > 1 and len(missing) == 1 and all(top.is_orphan for top in tops):
        return [RunSpans("request", None, nodes, missing.pop() or "")]
    return [RunSpans("request", tops[0], nodes)]


def _enclosing_agents(
    orphans: set[SpanNode], found: list[SpanNode], strays: list[SpanNode]
) -> dict[SpanNode, SpanNode]:
    """For agents above whom a span never came, those at work around them: in one trace, most likely on their behalf.

    What is lost may have been above both, as it is with the requests of two users: then a call must tell.
    """
    begun: list[SpanNode] = []
    around: dict[SpanNode, SpanNode] = {}
    calls = _Delegations(found, strays) if len(orphans) > 1 else None
    for node in found:
        outer = None
        if node in orphans:
            enclosing = (other for other in reversed(begun[-_MAX_CANDIDATES:]) if _encloses(other, node))
            outer = next((o for o in enclosing if o not in orphans or (calls and calls.leads_to(o, node))), None)
        if outer is None:
            begun.append(node)
        else:
            around[node] = outer
    return around


class _Delegations:
    """The calls in a trace that may have been of agents, by the name of the tool and by the words that it was given."""

    def __init__(self, found: list[SpanNode], strays: list[SpanNode]) -> None:
        self._strays = frozenset(strays)
        self._known: dict[Hashable, list[SpanNode]] = {}
        steps = (step for top in (*found, *strays) for step in top.walk())
        for step in sorted((step for step in steps if step.role in WORK_ROLES), key=lambda step: step.sort_key):
            for key in dict.fromkeys(_delegation_keys(step)):
                self._known.setdefault(key, []).append(step)

    def leads_to(self, outer: SpanNode, agent: SpanNode) -> bool:
        """Whether an agent called another one: by a tool that is around it, or in an answer of its model before."""
        keys: list[Hashable] = [(_NAME, fold_name(agent.facts.name))] if agent.facts.name else []
        keys += [(_WORDS, words)] if (words := _agent_request_text(agent)) else []
        steps = (step for key in keys for step in self._known.get(key, [])[-_MAX_CANDIDATES:])
        return any(self._is_of(outer, step) and _may_have_started(step, agent) for step in steps)

    def _is_of(self, outer: SpanNode, step: SpanNode) -> bool:
        return outer.contains(step) or (step in self._strays and _encloses(outer, step))


_NAME, _WORDS = "name", "words"


def _delegation_keys(step: SpanNode) -> Iterator[Hashable]:
    """What an agent that a step called would be known by."""
    if step.role == "tool":
        made = call_from_span(step)
        called = [(made.name, made.arguments.value if made.arguments is not None else None)]
    else:
        called = [(call.name, call.arguments) for call in ModelTurn(step).calls]
    for name, arguments in called:
        yield _NAME, fold_name(name)
        yield from ((_WORDS, words) for words in argument_texts(arguments))


def _agent_request_text(agent: SpanNode) -> str | None:
    """What an agent was asked, by itself or in the first turn of its model."""
    own = values.request_text(agent.facts.input)
    speaking = (node for node in agent.walk() if node.role == "model" or node is agent)
    return own.strip() if own else next(filter(None, (ModelTurn(node).first_user_text for node in speaking)), None)


def _may_have_started(step: SpanNode, agent: SpanNode) -> bool:
    return _encloses(step, agent) if step.role == "tool" else ModelTurn(step).end_time <= agent.start


def _encloses(outer: SpanNode, inner: SpanNode) -> bool:
    end, last = outer.span.end_ns, inner.span.end_ns
    return end is not None and last is not None and outer.start <= inner.start and last <= end


def _join_handoffs(found: list[SpanNode]) -> list[RunSpans]:
    """One portion an agent, except that an agent that took over, by hand-off or by executing what another one's model
    asked for, continues the request before it.
    """
    portions: list[RunSpans] = []
    turns = _AgentTurns()
    beside = {(node.parent, fold_name(node.facts.name or "")) for node in found}
    agents = Counter(parent for parent, _ in beside)
    passed_on: _HandoffIndex = {}
    for node in found:
        nodes = list(node.walk())
        take_turns = agents[node.parent] > 1
        before = _find_handoff_request(node, passed_on) or (turns.find_request(node, nodes) if take_turns else None)
        if before is None:
            before = RunSpans("request", node, nodes, is_marked=True)
            portions.append(before)
        else:
            before.nodes.extend(nodes)
        if take_turns:
            turns.add(node, nodes, before)
        for step in nodes if len(found) > 1 else ():
            for name in _handoff_names(step):
                target = fold_name(handoff_target(name) or name)
                if (node.parent, target) in beside:
                    passed_on.setdefault((node.parent, target), []).append((step, before))
                elif step.role == "tool":
                    # Not all instrumentations can tell who takes over: then it is whoever comes next.
                    passed_on.setdefault((node.parent, None), []).append((step, before))
    return portions


class _AgentTurns:
    """The calls that agents asked for, by which others that stand beside them are known to serve the same request.

    In a conversation of agents, one asks its model, another one executes what the model asked for, and the first goes
    on with the answers.
    """

    def __init__(self) -> None:
        self._asked: dict[tuple[SpanNode | None, str], tuple[RunSpans, ModelTurn]] = {}
        self._left: set[tuple[SpanNode | None, str]] = set()
        """Those of which no execution was seen."""

    def find_request(self, agent: SpanNode, nodes: list[SpanNode]) -> RunSpans | None:
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
                    own = {call.call_id for step in nodes if step.role == "model" for call in ModelTurn(step).calls}
                portion, asking = self._asked[place]
                if call_id not in own and (
                    place in self._left if turn is None else turn.user_texts in ((), asking.user_texts)
                ):
                    return portion
        return None

    def add(self, agent: SpanNode, nodes: list[SpanNode], portion: RunSpans) -> None:
        """Take note of what an agent asked for and executed."""
        for step in nodes:
            if step.role != "model":
                continue
            turn = ModelTurn(step)
            for call in turn.calls:
                if call.call_id:
                    self._asked[agent.parent, call.call_id] = portion, turn
                    self._left.add((agent.parent, call.call_id))
        for step in nodes:
            if step.role == "tool":
                self._left.discard((agent.parent, call_from_span(step).call_id or ""))


def _answered_ids(step: SpanNode) -> Iterator[tuple[str, ModelTurn | None]]:
    """The id of the call that a tool executed; those with whose answers a model or an agent goes on, the last first,
    with its turn.
    """
    if step.role == "tool":
        if call_id := call_from_span(step).call_id:
            yield call_id, None
    elif step.role in ("model", "agent") and step.input_may_have_calls:
        turn = ModelTurn(step)
        yield from ((call.call_id, turn) for call in reversed(calls_since_user(step.input_messages)) if call.call_id)


def _handoff_names(step: SpanNode) -> Iterator[str]:
    """The names of the hand-offs that a step made, or asked for: the span of one may be lost."""
    if step.role == "tool" and step.facts.kind == "handoff":
        yield call_from_span(step).name
    elif step.role == "model":
        yield from (call.name for call in ModelTurn(step).calls if handoff_target(call.name) is not None)


def _find_handoff_request(node: SpanNode, passed_on: _HandoffIndex) -> RunSpans | None:
    """The request, the last one begun, that an agent beside this one passed on to it before it started."""
    name = fold_name(node.facts.name or "")
    handed = (passed_on.get((node.parent, target), [])[-_MAX_CANDIDATES:] for target in (name, None))
    before = [portion for steps in handed for step, portion in steps if step.start <= node.start]
    return max(before, key=lambda portion: portion.nodes[0].sort_key, default=None)


def _assign_detached_spans(strays: list[SpanNode], portions: list[RunSpans]) -> None:
    """Give working spans that stand outside to the request whose calls or words they know, else to the last one begun.

    Clocks of milliseconds may show one time for both.
    """
    in_order = sorted(strays, key=lambda node: node.sort_key)
    starts = [portion.nodes[0].start for portion in portions]
    last_begun = {stray: portions[max(bisect_right(starts, stray.start) - 1, 0)] for stray in in_order}
    if len(portions) > 1:
        last_begun |= _match_models(portions, [stray for stray in in_order if stray.role == "model"])
    for stray in in_order:
        if stray.role == "model":
            last_begun[stray].nodes.extend(stray.walk())
    tools = [stray for stray in in_order if stray.role == "tool"]
    if len(portions) > 1 and tools:
        of_turn = {turn: portion for portion in portions for turn in find_model_turns(portion.nodes)}
        turns = RequestedCallIndex.from_turns(of_turn).match_tools(tools)
        last_begun |= {tool: of_turn[turn] for tool, turn in turns.items()}
    for stray in tools:
        last_begun[stray].nodes.extend(stray.walk())


def _match_models(portions: list[RunSpans], models: list[SpanNode]) -> dict[SpanNode, RunSpans]:
    """The requests that made the calls a lone model asks for or remembers, or that were asked with the same words."""
    if not models:
        return {}
    knowing: dict[Hashable, list[RunSpans]] = {}
    for portion in portions:
        for key in dict.fromkeys(key for node in portion.nodes for key in _identifying_keys(node)):
            knowing.setdefault(key, []).append(portion)
    found: dict[SpanNode, RunSpans] = {}
    for model in models:
        for key in (*_identifying_keys(model), *sorted(ModelTurn(model).known_call_ids)):
            alike = knowing.get(key, [])[-_MAX_CANDIDATES:]
            begun = [portion for portion in alike if portion.nodes[0].start <= model.start]
            if begun:
                found[model] = begun[-1]
                break
    return found


def _identifying_keys(node: SpanNode) -> Iterator[Hashable]:
    """The ids of the calls that a span made or asked for; of a model, what the user had said, too."""
    if node.role == "tool" and (call_id := call_from_span(node).call_id):
        yield call_id
    elif node.role == "model":
        turn = ModelTurn(node)
        yield from (call.call_id for call in turn.calls if call.call_id)
        if turn.user_texts:
            yield turn.user_texts
