"""Splits one trace into requests and components.

A request is the work of the outermost agent or application entry in a trace. A trace may contain several requests. A
trace without an agent or entry span is one request if it contains a model or tool span, and none otherwise.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, field

from goldspan.content import values
from goldspan.content.tools import handoff_target
from goldspan.conventions.span_facts import REQUEST_ROLES, TRANSPARENT_ROLES, WORK_ROLES
from goldspan.extraction.model_turns import ModelTurn, argument_texts, calls_since_user, find_model_turns
from goldspan.extraction.observed_calls import call_from_span
from goldspan.extraction.span_node import SpanNode, end_of
from goldspan.extraction.turn_attribution import RequestedCallIndex
from goldspan.model import RunUnit
from goldspan.model.name_folding import fold_name

_MAX_CANDIDATES = 50
"""How many of the latest hand-offs and spans are checked for one agent."""


@dataclass(slots=True, eq=False)
class RunSpans:
    """The spans of one run."""

    unit: RunUnit
    root: SpanNode | None
    """The span that stands for the run; `None` if it never arrived."""
    nodes: list[SpanNode] = field(default_factory=list)
    root_id: str = ""
    """The id of that span, which its children name even if it never arrived."""
    is_marked: bool = False
    """Whether an agent or entry span marks the request; otherwise the request is all work in the trace."""
    name: str | None = None
    """The component's name, if the unit is a component."""
    is_split: bool = False
    """Whether the trace contains further requests that only the user's messages distinguish."""
    resumed: list[SpanNode] = field(default_factory=list)
    """The root spans, by start time, of work that the runtime resumed for the request later without user input; the
    model spans if these are missing.
    """
    _turns: list[ModelTurn] = field(default_factory=list, init=False)
    _nodes_with_turns: int = field(default=0, init=False)
    """How many of the nodes the turns were found in: nodes are only ever added."""

    def __post_init__(self) -> None:
        if self.root is not None:
            self.root_id = self.root.span.span_id

    @property
    def turns(self) -> list[ModelTurn]:
        """The turns of the model spans, by time; found again only if nodes were added."""
        if self._nodes_with_turns != len(self.nodes):
            self._turns, self._nodes_with_turns = find_model_turns(self.nodes), len(self.nodes)
        return self._turns

    @property
    def trace_id(self) -> str:
        """The trace of the first span."""
        return self.nodes[0].span.trace_id


_HandoffIndex = dict[tuple[SpanNode | None, str | None], list[tuple[SpanNode, RunSpans]]]
"""Hand-offs and their requests, by the parent span of the agents and by the agent that takes over, if known."""


def split_components(roots: list[SpanNode], requests: Iterable[RunSpans]) -> list[RunSpans]:
    """Returns every marked or declared component and every agent inside a request, with all spans below it.

    The request's own agent is not a component. Nor is an agent directly inside an agent of the same name: these are two
    spans of one agent, from two instrumentations.
    """
    outermost = {segment.root for segment in requests}
    found: list[RunSpans] = []
    for node in (node for root in roots for node in root.walk()):
        name = node.component_name
        if name is None and node.role == "agent" and node not in outermost and not _repeats_enclosing_agent(node):
            name = node.facts.name or None
        if name is not None:
            found.append(RunSpans("component", node, list(node.walk()), name=name))
    return found


def _repeats_enclosing_agent(agent: SpanNode) -> bool:
    """Whether the nearest agent or tool that encloses an agent is an agent of the same name."""
    owner, name = agent.owner, agent.facts.name
    return owner is not None and owner.role == "agent" and owner.facts.name == name


def split_requests(roots: list[SpanNode]) -> list[RunSpans]:
    """Returns the requests of one trace, by start time."""
    marked: list[SpanNode] = []
    detached: list[SpanNode] = []
    roots_with_detached: list[SpanNode] = []
    orphans: set[SpanNode] = set()
    for root in roots:
        marked_before, detached_before = len(marked), len(detached)
        _split_marked(root, marked, detached)
        if root.is_orphan:
            orphans.update(marked[marked_before:])
        if len(detached) > detached_before:
            roots_with_detached.append(root)
    if not marked:
        return _unmarked_request(roots_with_detached)
    if len(marked) == 1 and not detached:
        return [RunSpans("request", marked[0], list(marked[0].walk()), is_marked=True)]
    # Of spans that start at the same time, the longest comes first: it may enclose the others.
    marked.sort(key=lambda node: (node.start, -end_of(node.span), node.span.span_id))
    enclosing = _enclosing_agents(orphans, marked, detached)
    segments = _join_handoffs([node for node in marked if node not in enclosing])
    if enclosing:
        owner = {node: segment for segment in segments for node in segment.nodes}
        for orphan, outer in enclosing.items():
            owner[outer].nodes.extend(orphan.walk())
    _assign_detached_spans(detached, segments)
    return segments


def _split_marked(root: SpanNode, marked: list[SpanNode], detached: list[SpanNode]) -> None:
    """Collects the outermost agents and entries of a tree, and the model and tool spans outside of them."""
    pending = [root]
    while pending:
        node = pending.pop()
        if node.role in REQUEST_ROLES:
            marked.append(node)
        elif node.role in WORK_ROLES:
            detached.append(node)
        elif node.role in TRANSPARENT_ROLES:
            pending.extend(reversed(node.children))


def _unmarked_request(tops: list[SpanNode]) -> list[RunSpans]:
    """One request for the whole trace; its root is the only root or, if there are several, their missing parent."""
    if not tops:
        return []
    nodes = [node for top in tops for node in top.walk()]
    missing = {top.span.parent_id for top in tops if top.is_orphan}
    if len(tops) > 1 and len(missing) == 1 and all(top.is_orphan for top in tops):
        return [RunSpans("request", None, nodes, missing.pop() or "")]
    return [RunSpans("request", tops[0], nodes)]


def _enclosing_agents(
    orphans: set[SpanNode], marked: list[SpanNode], detached: list[SpanNode]
) -> dict[SpanNode, SpanNode]:
    """Maps agents whose parent is missing to the agent that encloses them in time and most likely called them.

    If the parent of both is missing, they may be requests of two users: then a call must connect them.
    """
    earlier: list[SpanNode] = []
    enclosing: dict[SpanNode, SpanNode] = {}
    calls = _Delegations(marked, detached) if len(orphans) > 1 else None
    for node in marked:
        outer = None
        if node in orphans:
            candidates = (other for other in reversed(earlier[-_MAX_CANDIDATES:]) if _encloses(other, node))
            outer = next((o for o in candidates if o not in orphans or (calls and calls.leads_to(o, node))), None)
        if outer is None:
            earlier.append(node)
        else:
            enclosing[node] = outer
    return enclosing


class _Delegations:
    """The calls in a trace that may have started agents, by tool name and by the texts in their arguments."""

    def __init__(self, marked: list[SpanNode], detached: list[SpanNode]) -> None:
        self._detached = frozenset(detached)
        self._steps_by_key: dict[Hashable, list[SpanNode]] = {}
        steps = (step for top in (*marked, *detached) for step in top.walk())
        for step in sorted((step for step in steps if step.role in WORK_ROLES), key=lambda step: step.sort_key):
            for key in dict.fromkeys(_delegation_keys(step)):
                self._steps_by_key.setdefault(key, []).append(step)

    def leads_to(self, outer: SpanNode, agent: SpanNode) -> bool:
        """Whether an agent called another one: by a tool that encloses it, or in an earlier output of its model."""
        keys: list[Hashable] = [(_NAME, fold_name(agent.facts.name))] if agent.facts.name else []
        keys += [(_TEXT, text)] if (text := _agent_request_text(agent)) else []
        steps = (step for key in keys for step in self._steps_by_key.get(key, [])[-_MAX_CANDIDATES:])
        return any(self._is_of(outer, step) and _may_have_started(step, agent) for step in steps)

    def _is_of(self, outer: SpanNode, step: SpanNode) -> bool:
        return outer.contains(step) or (step in self._detached and _encloses(outer, step))


_NAME, _TEXT = "name", "text"


def _delegation_keys(step: SpanNode) -> Iterator[Hashable]:
    """The keys of the agents that a tool span or a model span may have called."""
    if step.role == "tool":
        call = call_from_span(step)
        called = [(call.name, call.arguments.value if call.arguments is not None else None)]
    else:
        called = [(call.name, call.arguments) for call in step.requested_calls]
    for name, arguments in called:
        yield _NAME, fold_name(name)
        yield from ((_TEXT, text) for text in argument_texts(arguments))


def _agent_request_text(agent: SpanNode) -> str | None:
    """The request text of an agent: from its own input, else from the first turn of its model."""
    own = values.request_text(agent.facts.input)
    speaking = (node for node in agent.walk() if node.role == "model" or node is agent)
    return own.strip() if own else next(filter(None, (ModelTurn(node).first_user_text for node in speaking)), None)


def _may_have_started(step: SpanNode, agent: SpanNode) -> bool:
    return _encloses(step, agent) if step.role == "tool" else ModelTurn(step).end_time <= agent.start


def _encloses(outer: SpanNode, inner: SpanNode) -> bool:
    end, last = outer.span.end_ns, inner.span.end_ns
    return end is not None and last is not None and outer.start <= inner.start and last <= end


def _join_handoffs(found: list[SpanNode]) -> list[RunSpans]:
    """Builds one request per agent, but joins an agent to an earlier request that it continues.

    An agent continues a request by a hand-off, or by executing a call that another agent's model requested.
    """
    segments: list[RunSpans] = []
    turns = _AgentTurns()
    siblings = {(node.parent, fold_name(node.facts.name or "")) for node in found}
    agents = Counter(parent for parent, _ in siblings)
    handoffs: _HandoffIndex = {}
    for node in found:
        nodes = list(node.walk())
        take_turns = agents[node.parent] > 1
        segment = _find_handoff_request(node, handoffs) or (turns.find_request(node, nodes) if take_turns else None)
        if segment is None:
            segment = RunSpans("request", node, nodes, is_marked=True)
            segments.append(segment)
        else:
            segment.nodes.extend(nodes)
        if take_turns:
            turns.add(node, nodes, segment)
        for step in nodes if len(found) > 1 else ():
            for name in _handoff_names(step):
                target = fold_name(handoff_target(name) or name)
                if (node.parent, target) in siblings:
                    handoffs.setdefault((node.parent, target), []).append((step, segment))
                elif step.role == "tool":
                    # Some instrumentations do not record the agent that takes over: then it is the next one.
                    handoffs.setdefault((node.parent, None), []).append((step, segment))
    return segments


class _AgentTurns:
    """The calls that agents requested, which connect sibling agents to the same request.

    In a conversation of agents, one agent calls its model, another one executes the calls that the model requested, and
    the first continues with the results.
    """

    def __init__(self) -> None:
        self._requested: dict[tuple[SpanNode | None, str], tuple[RunSpans, ModelTurn]] = {}
        self._not_executed: set[tuple[SpanNode | None, str]] = set()

    def find_request(self, agent: SpanNode, nodes: list[SpanNode]) -> RunSpans | None:
        """The request whose calls an agent executes without requesting them, or whose results it continues with."""
        if not self._requested:
            return None
        own: set[str | None] | None = None
        for step in nodes:
            for call_id, turn in _answered_ids(step):
                key = (agent.parent, call_id)
                if key not in self._requested:
                    continue
                if own is None:
                    own = {call.call_id for step in nodes if step.role == "model" for call in step.requested_calls}
                segment, requesting = self._requested[key]
                if call_id not in own and (
                    key in self._not_executed if turn is None else turn.user_texts in ((), requesting.user_texts)
                ):
                    return segment
        return None

    def add(self, agent: SpanNode, nodes: list[SpanNode], segment: RunSpans) -> None:
        """Records the calls that an agent requested and executed."""
        for step in nodes:
            if step.role != "model":
                continue
            turn = ModelTurn(step)
            for call in turn.calls:
                if call.call_id:
                    self._requested[agent.parent, call.call_id] = segment, turn
                    self._not_executed.add((agent.parent, call.call_id))
        for step in nodes:
            if step.role == "tool":
                self._not_executed.discard((agent.parent, call_from_span(step).call_id or ""))


def _answered_ids(step: SpanNode) -> Iterator[tuple[str, ModelTurn | None]]:
    """The id of the call that a tool executed; or the ids of the calls whose results a model or an agent continues
    with, the last first, each with the turn.
    """
    if step.role == "tool":
        if call_id := call_from_span(step).call_id:
            yield call_id, None
    elif step.role in ("model", "agent") and step.input_may_have_calls:
        turn = ModelTurn(step)
        yield from ((call.call_id, turn) for call in reversed(calls_since_user(step.input_messages)) if call.call_id)


def _handoff_names(step: SpanNode) -> Iterator[str]:
    """The names of the hand-offs that a span executed or requested: the span of a hand-off may be missing."""
    if step.role == "tool" and step.facts.kind == "handoff":
        yield call_from_span(step).name
    elif step.role == "model":
        yield from (call.name for call in step.requested_calls if handoff_target(call.name) is not None)


def _find_handoff_request(node: SpanNode, handoffs: _HandoffIndex) -> RunSpans | None:
    """The latest request that a sibling agent handed off to this agent before it started."""
    name = fold_name(node.facts.name or "")
    candidates = (handoffs.get((node.parent, target), [])[-_MAX_CANDIDATES:] for target in (name, None))
    earlier = [segment for steps in candidates for step, segment in steps if step.start <= node.start]
    return max(earlier, key=lambda segment: segment.nodes[0].sort_key, default=None)


def _assign_detached_spans(detached: list[SpanNode], segments: list[RunSpans]) -> None:
    """Adds model and tool spans outside of all requests to one of the requests.

    A span belongs to the request that shares its calls or user messages, else to the latest one that started before
    it or, because a millisecond clock may show the same time for both, with it.
    """
    in_order = sorted(detached, key=lambda node: node.sort_key)
    starts = [segment.nodes[0].start for segment in segments]
    owner = {node: segments[max(bisect_right(starts, node.start) - 1, 0)] for node in in_order}
    if len(segments) > 1:
        owner |= _match_models(segments, [node for node in in_order if node.role == "model"])
    for node in in_order:
        if node.role == "model":
            owner[node].nodes.extend(node.walk())
    tools = [node for node in in_order if node.role == "tool"]
    if len(segments) > 1 and tools:
        segment_by_turn = {turn: segment for segment in segments for turn in segment.turns}
        turns = RequestedCallIndex.from_turns(segment_by_turn).match_tools(tools)
        owner |= {tool: segment_by_turn[turn] for tool, turn in turns.items()}
    for tool in tools:
        owner[tool].nodes.extend(tool.walk())


def _match_models(segments: list[RunSpans], models: list[SpanNode]) -> dict[SpanNode, RunSpans]:
    """Maps model spans to the request that shares a call, in the output or the history, or the user messages."""
    if not models:
        return {}
    segments_by_key: dict[Hashable, list[RunSpans]] = {}
    for segment in segments:
        for key in dict.fromkeys(key for node in segment.nodes for key in _identifying_keys(node)):
            segments_by_key.setdefault(key, []).append(segment)
    found: dict[SpanNode, RunSpans] = {}
    for model in models:
        for key in (*_identifying_keys(model), *sorted(ModelTurn(model).known_call_ids)):
            candidates = segments_by_key.get(key, [])[-_MAX_CANDIDATES:]
            earlier = [segment for segment in candidates if segment.nodes[0].start <= model.start]
            if earlier:
                found[model] = earlier[-1]
                break
    return found


def _identifying_keys(node: SpanNode) -> Iterator[Hashable]:
    """The ids of the calls that a span executed or requested; for a model, also the user messages."""
    if node.role == "tool" and (call_id := call_from_span(node).call_id):
        yield call_id
    elif node.role == "model":
        turn = ModelTurn(node)
        yield from (call.call_id for call in turn.calls if call.call_id)
        if turn.user_texts:
            yield turn.user_texts
