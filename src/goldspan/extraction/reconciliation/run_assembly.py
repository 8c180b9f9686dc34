"""Builds a run from its spans: calls, input and output, agent, annotations and capture health."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any, TypeVar

from goldspan import semconv
from goldspan.content import values
from goldspan.content.tools import tool_definitions
from goldspan.conventions.span_facts import REQUEST_ROLES, WORK_ROLES, Messages, RawValue
from goldspan.extraction.model_turns import ModelTurn
from goldspan.extraction.observed_calls import call_from_span
from goldspan.extraction.reconciliation import run_checks
from goldspan.extraction.reconciliation.call_reconciliation import ReconciledCalls, reconcile
from goldspan.extraction.reconciliation.run_annotations import read_annotations
from goldspan.extraction.segmentation.boundaries import RunSpans
from goldspan.extraction.span_node import CLOCK_TOLERANCE_NS, UNKNOWN_TIME, SpanNode
from goldspan.model import COUNTED_TOOL_KINDS, Health, Run, SpanRecord, ToolDefinition, fast_constructor
from goldspan.model.name_folding import fold_name

T = TypeVar("T")

_Run, _Health = fast_constructor(Run), fast_constructor(Health)


def assemble_run(segment: RunSpans, *, golden_id_attributes: Sequence[str], other_call_ids: Container[str] = ()) -> Run:
    """Builds the run of a segment; `other_call_ids` are the ids of calls that other runs made."""
    nodes, root = segment.nodes, segment.root
    spans = _SpanSummary(nodes, root)
    offered = _offered_tools(nodes, root)
    # If a tool is a component, the tool itself is evaluated and is not one of its calls.
    is_tool_component = segment.unit == "component" and root is not None and root.role == "tool"
    if is_tool_component:
        found = reconcile(nodes[1:], offered, other_call_ids=other_call_ids)
    else:
        found = reconcile(nodes, offered, turns=segment.turns, other_call_ids=other_call_ids)
    annotations = read_annotations(segment, golden_id_attributes)
    # Texts of the root span come first, then those of the agents inside it, then those of the models. Texts inside
    # tools come last: the agent or model in a tool received another request.
    in_tools = spans.in_tools
    outside = [root] if root is not None and (is_tool_component or root.role not in WORK_ROLES) else []
    outside += [node for node in spans.request_nodes if node is not root]
    inside: list[SpanNode] = []
    turns: Sequence[ModelTurn] = found.turns
    if in_tools:
        inside = [node for node in outside if node in in_tools]
        outside = [node for node in outside if node not in in_tools]
        turns = sorted(turns, key=lambda turn: turn.node in in_tools)
    span = (root or nodes[0]).span
    traces = tuple(dict.fromkeys((span.trace_id, *spans.trace_ids)))
    return _Run(
        run_id=_run_id(span.trace_id, segment),
        unit=segment.unit,
        trace_ids=traces,
        span_id=segment.root_id or None,
        input=annotations.input
        or _first_text(_input, outside)
        or _first_text(_turn_input, turns)
        or _first_text(_input, inside),
        output=annotations.output
        or _first_text(_output, reversed(segment.resumed))
        or _first_text(_output, outside)
        or _first_text(_turn_output, sorted(found.turns, key=_recency))
        or _first_text(_output, inside),
        session_id=spans.session_id or _first_text(_session_id, nodes[0].ancestors()),
        agent=_agent_name(segment, spans.agents),
        service=span.service,
        tool_calls=found.calls,
        available_tools=offered,
        golden_id=annotations.golden_id,
        component=segment.name,
        conventions=tuple(sorted(spans.conventions)),
        health=_health(segment, spans, found, offered, stitched=len(traces) - 1),
        start_ns=spans.start_ns,
        end_ns=spans.end_ns,
        metadata=annotations.metadata,
        expected_tools=annotations.expected_tools,
        metrics=annotations.metrics,
        environment=_environment(span),
        span_name=root.span.name if root is not None else None,
        attributes=root.span.attributes if root is not None else {},
    )


def _run_id(trace_id: str, segment: RunSpans) -> str:
    """A unique run id. It includes the unit, because a span may be a request and a component."""
    request_id = f"{trace_id}:{segment.root_id}"
    return request_id if segment.unit == "request" else f"{request_id}:{segment.unit}"


class _SpanSummary:
    """What a run needs to know of all its spans, collected in one pass over them."""

    __slots__ = (
        "agents",
        "conventions",
        "dropped_attributes",
        "end_ns",
        "fallback",
        "in_tools",
        "last_start_ns",
        "orphans",
        "request_nodes",
        "session_id",
        "start_ns",
        "trace_ids",
        "unknown_names",
        "unknown_spans",
    )

    def __init__(self, nodes: list[SpanNode], root: SpanNode | None) -> None:
        """Collect from `nodes` in pre-order."""
        self.trace_ids: dict[str, None] = {}
        self.agents: list[SpanNode] = []
        self.request_nodes: list[SpanNode] = []
        """Agents and entries."""
        self.in_tools: set[SpanNode] = set()
        """The spans inside a tool."""
        self.unknown_names: set[str] = set()
        """The names of spans without a role that neither enclose a tool nor are inside one."""
        session_id: str | None = None
        orphans = dropped_attributes = unknown_spans = 0
        conventions: set[tuple[str, ...]] = set()
        latest_conventions: tuple[str, ...] | None = None
        guessed: set[str] = set()
        starts: list[int] = []
        ends: list[int] = []
        in_tools, trace_ids = self.in_tools, self.trace_ids
        for node in nodes:
            span, facts, role, parent = node.span, node.facts, node.role, node.parent
            trace_ids[span.trace_id] = None
            if span.start_ns is not None:
                starts.append(span.start_ns)
            if span.end_ns is not None:
                ends.append(span.end_ns)
            if parent is None:
                orphans += node is not root and node.is_orphan
            elif parent.role == "tool" or (in_tools and parent in in_tools):
                in_tools.add(node)
            session_id = session_id or facts.session_id
            dropped_attributes += span.dropped_attributes
            unknown_spans += node.unknown_spans
            if role is None:
                unknown_spans += not facts.conventions and node is not root
                if not _wraps_tool(node):
                    self.unknown_names.add(span.name)
            else:
                if facts.conventions is not latest_conventions:  # most spans of one convention share the tuple
                    conventions.add(latest_conventions := facts.conventions)
                if role in REQUEST_ROLES:
                    self.request_nodes.append(node)
                    if role == "agent":
                        self.agents.append(node)
            if facts.guessed_from is not None:
                guessed.add(facts.guessed_from)
        self.orphans, self.dropped_attributes, self.unknown_spans = orphans, dropped_attributes, unknown_spans
        self.session_id = session_id
        self.start_ns, self.end_ns = min(starts, default=None), max(ends, default=None)
        self.last_start_ns = max(starts, default=None)
        self.conventions = frozenset().union(*conventions) if conventions else frozenset[str]()
        self.fallback = tuple(sorted(guessed))


def _environment(span: SpanRecord) -> str | None:
    """The deployment environment, from the resource."""
    resource = span.resource
    named = resource.get(semconv.ENVIRONMENT) or resource.get(semconv.DEPRECATED_ENVIRONMENT)
    return str(named) if named else None


def _agent_name(segment: RunSpans, agents: list[SpanNode]) -> str | None:
    """The name of the first named agent that is no sub-agent, else the agent name in the root span.

    For a component, the name of the agent that it is, or that it works for, takes precedence. A sub-agent is inside a
    tool, or inside an agent with its own model or tool spans; an agent without such spans only wraps others.
    """
    nodes, root = segment.nodes, segment.root
    if segment.unit == "component" and root is not None:
        own = root.facts.name if root.role == "agent" else root.agent
        if own:
            return own
    if agents and agents[0] is root and nodes[0] is root and root.facts.name:
        return root.facts.name
    busy = {node.owner for node in nodes if node.role in WORK_ROLES}
    employers: set[SpanNode | None] = set()
    for node in nodes:  # in pre-order
        if node.role == "tool" or (node.role == "agent" and node in busy) or node.parent in employers:
            employers.add(node)
    own_agents = [node for node in agents if node.parent not in employers and (node is root or not node.is_orphan)]
    named = next((node.facts.name for node in own_agents if node.facts.name), None)
    return named or (root.facts.agent or None if root is not None and root.role in REQUEST_ROLES else None)


def _first_text(read: Callable[[T], str | None], items: Iterable[T]) -> str | None:
    """The first text that `read` returns for one of the items and that is not empty."""
    for item in items:
        if text := read(item):
            return text
    return None


def _session_id(node: SpanNode) -> str | None:
    return node.facts.session_id


def _input(node: SpanNode) -> str | None:
    if node.role == "tool":  # the tool is a component
        return _tool_input_text(call_from_span(node).arguments)
    return values.request_text(node.facts.input) or _last_user_text(node.input_messages)


def _output(node: SpanNode) -> str | None:
    if node.role == "tool":
        return _as_text(None if node.facts.result is None else node.facts.result.value)
    return values.response_text(node.facts.output) or _last_text(node.output_messages)


def _tool_input_text(arguments: RawValue | None) -> str | None:
    """The input text of a tool component: its first text argument, else all arguments."""
    value = None if arguments is None else arguments.value
    texts = (item for item in value.values() if isinstance(item, str)) if isinstance(value, dict) else ()
    return next(iter(texts), None) or _as_text(value)


def _as_text(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _turn_input(turn: ModelTurn) -> str | None:
    return _last_user_text(turn.input_messages)


def _turn_output(turn: ModelTurn) -> str | None:
    return _last_text(turn.output_messages)


def _recency(turn: ModelTurn) -> int:
    return -turn.end_time


def _last_user_text(messages: Messages) -> str | None:
    return next((message.text for message in reversed(messages) if message.role == "user" and message.text), None)


def _last_text(messages: Messages) -> str | None:
    return next((message.text for message in reversed(messages) if message.text and not message.tool_results), None)


def _offered_tools(nodes: list[SpanNode], root: SpanNode | None) -> tuple[ToolDefinition, ...]:
    """The tools offered to the model, one definition per name; a definition with a schema takes precedence."""
    offered: dict[str, ToolDefinition] = {}
    last: tuple[ToolDefinition, ...] = ()
    places = [place for node in nodes for place in node.facts.tool_definitions]
    if root is not None and not root.facts.tool_definitions and semconv.TOOL_DEFINITIONS in root.span.attributes:
        # A program may set the attribute on any root span, including one that no convention recognises.
        places.append(partial(tool_definitions, root.span.attributes[semconv.TOOL_DEFINITIONS]))
    for place in places:
        found = place()
        if found is last:  # each span repeats the definitions, and equal text is decoded once
            continue
        last = found
        for tool in found:
            known = offered.get(tool.name)
            if known is not tool:
                offered[tool.name] = tool if known is None else _merge_definitions(known, tool)
    return tuple([offered[name] for name in sorted(offered)])


def _merge_definitions(known: ToolDefinition, other: ToolDefinition) -> ToolDefinition:
    best = other if known.parameters is None and other.parameters is not None else known
    if known.read_only is None and other.read_only is None:
        return best
    return replace(best, read_only=known.read_only if known.read_only is not None else other.read_only)


def _health(
    segment: RunSpans,
    spans: _SpanSummary,
    found: ReconciledCalls,
    offered: Iterable[ToolDefinition],
    *,
    stitched: int,
) -> Health:
    nodes = segment.nodes
    counted = [call for call in found.calls if call.kind in COUNTED_TOOL_KINDS]
    absent = sum([call.arguments is None and call.raw_arguments is None for call in counted])
    content_off = _is_content_off(nodes, found)
    invisible = not found.calls and not run_checks.would_show_calls(nodes, segment.root)
    return _Health(
        orphan_spans=spans.orphans,
        missing_root=segment.root is None and not segment.is_split,
        stitched=stitched,
        split=segment.is_split,
        dropped_attributes=spans.dropped_attributes,
        arguments_absent=absent,
        arguments_unreadable=sum([call.raw_arguments is not None for call in counted]),
        content_off=content_off,
        lookalikes=_tool_lookalikes(nodes[0], spans.unknown_names, offered),
        merged=found.merged_count,
        merged_beside=found.contradictions.merged_beside,
        calls_nested=found.contradictions.nested,
        calls_unpaired=found.contradictions.unpaired,
        calls_unanswered=found.contradictions.unanswered,
        results_unknown=found.contradictions.results_unknown,
        began_late=_count_late_spans(nodes, segment.root, spans.last_start_ns),
        calls_invisible=invisible,
        without_content=run_checks.instrumentations_without_content(nodes)
        if absent or content_off or invisible
        else (),
        unknown_families=nodes[0].unknown_families if invisible else (),
        unknown_spans=spans.unknown_spans,
        fallback=spans.fallback,
        idle_agents=run_checks.idle_agents(nodes, spans.agents),
    )


def _count_late_spans(nodes: list[SpanNode], root: SpanNode | None, last_start_ns: int | None) -> int:
    """The number of spans that started after the root span ended; outside the root, after the top span ended.

    Only times of one process are compared, because the clocks of two processes differ. Only spans with a role count.
    """
    if root is None or root.span.end_ns is None or last_start_ns is None:
        return 0
    root_end = root.span.end_ns + CLOCK_TOLERANCE_NS
    if last_start_ns <= root_end:
        return 0
    late = [node for node in nodes if root_end < node.start < UNKNOWN_TIME and node.role is not None]
    late = [node for node in late if node.span.resource == root.span.resource]
    if not late:
        return 0
    top = next(reversed([root, *root.ancestors()]))
    top_end = UNKNOWN_TIME if top.span.end_ns is None else top.span.end_ns + CLOCK_TOLERANCE_NS
    return sum([root.contains(node) or (top_end < node.start and top.contains(node)) for node in late])


def _is_content_off(nodes: list[SpanNode], found: ReconciledCalls) -> bool:
    """Whether no content of the recorded work is recorded."""
    if any(call.arguments is not None or call.result is not None or call.raw_arguments for call in found.calls):
        return False
    without_messages = all(
        not (node.input_messages or node.output_messages)
        for node in nodes
        if node.role in WORK_ROLES or node.role in REQUEST_ROLES
    )
    return without_messages and not any(node.facts.input or node.facts.output for node in nodes)


def _tool_lookalikes(node: SpanNode, unknown: set[str], offered: Iterable[ToolDefinition]) -> tuple[str, ...]:
    """The names of unrecognised spans that are named like an offered tool, or like tool spans in general.

    `unknown` are the names inside the run; those in the whole trace of its first node are added.
    """
    unknown = unknown.union(node.unknown_span_names)
    if not unknown:
        return ()
    tools = {fold_name(tool.name) for tool in offered}
    return tuple(sorted([name for name in unknown if _is_named_like_tool(name) or fold_name(name) in tools]))


def _wraps_tool(node: SpanNode) -> bool:
    return node.enclosing_tool is not None or any(child.role == "tool" for child in node.children)


_TOOL_SPAN_NAME = re.compile(
    r"(?:^|[\W_])(?:tool|function)[\W_]?call(?:[\W_]|$)|^(?:call|execute|run)[\W_]tool\b", re.IGNORECASE
)
"""Common names of tool spans that follow no convention."""


@lru_cache(maxsize=16384)
def _is_named_like_tool(span_name: str) -> bool:
    return _TOOL_SPAN_NAME.search(span_name) is not None
