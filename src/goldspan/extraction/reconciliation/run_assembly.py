"""Builds a run from its spans: calls, input and output, agent, annotations and capture health."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from itertools import chain
from typing import Any, TypeVar

from goldspan import semconv
from goldspan.content import values
from goldspan.content.literals import plain_value
from goldspan.content.tools import fold_name, tool_definitions
from goldspan.conventions.span_facts import REQUEST_ROLES, WORK_ROLES, Messages, RawValue
from goldspan.extraction.model_turns import ModelTurn
from goldspan.extraction.observed_calls import call_from_span
from goldspan.extraction.reconciliation import run_checks
from goldspan.extraction.reconciliation.call_reconciliation import ReconciledCalls, reconcile
from goldspan.extraction.segmentation.boundaries import RunSpans
from goldspan.extraction.span_tree import CLOCK_TOLERANCE_NS, UNKNOWN_TIME, SpanNode
from goldspan.model import COUNTED_TOOL_KINDS, Health, Run, SpanRecord, ToolDefinition, fast_constructor

T = TypeVar("T")

ANNOTATION_ATTRIBUTES = (semconv.EXPECTED_TOOLS, semconv.METRICS, semconv.INPUT, semconv.OUTPUT)
"""The attributes that mark a span as recognised, besides the attributes that may name a golden."""


@dataclass(frozen=True, slots=True)
class RunAnnotations:
    """The annotations in the spans of one run. `None` if there is none."""

    golden_id: str | None = None
    expected_tools: tuple[Any, ...] | None = None
    """In the format of a golden's `tools`; what cannot be parsed is kept as text."""
    metrics: tuple[str, ...] | None = None
    input: str | None = None
    output: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)


def read_annotations(segment: RunSpans, golden_id_attributes: Sequence[str]) -> RunAnnotations:
    """Reads the annotations in the spans of a run.

    Input and output are read only from the run's root span, metadata also from the spans that enclose it. All others
    are read from the root span, else from an enclosing span, else from an inner span outside of components and
    sub-agents.
    """
    root = segment.root
    enclosing = list(_enclosing_spans(segment))
    metadata = {
        key: value for node in (*reversed(enclosing), *([root] if root else ())) for key, value in _metadata(node)
    }
    annotated = [node for node in (*([root] if root else ()), *enclosing) if node.facts.is_annotated]
    annotated += _inner_spans(segment)
    if not annotated:
        return RunAnnotations(metadata=metadata) if metadata else _NO_ANNOTATIONS
    own = root.span.attributes if root is not None and root.facts.is_annotated else {}
    return RunAnnotations(
        golden_id=_first_known(annotated, lambda node: _golden_id(node, golden_id_attributes)),
        expected_tools=_first_known(
            annotated, lambda node: _parse_expected_tools(node.span.attributes.get(semconv.EXPECTED_TOOLS))
        ),
        metrics=_first_known(annotated, lambda node: _parse_names(node.span.attributes.get(semconv.METRICS))),
        input=_optional_text(own.get(semconv.INPUT)),
        output=_optional_text(own.get(semconv.OUTPUT)),
        metadata=metadata,
    )


_NO_ANNOTATIONS = RunAnnotations()


def _enclosing_spans(segment: RunSpans) -> Iterator[SpanNode]:
    """The spans that enclose a run. Annotations of a request do not apply to the components in it."""
    for node in segment.root.ancestors() if segment.root is not None else ():
        if segment.unit == "component" and (node.role in REQUEST_ROLES or node.component is node):
            return
        yield node


def _inner_spans(segment: RunSpans) -> list[SpanNode]:
    """The spans inside a run whose annotations apply to it."""
    own = segment.root.component if segment.root is not None else None
    annotated = [node for node in segment.nodes if node.facts.is_annotated and node is not segment.root]
    if not annotated:
        return annotated
    busy = {node.owner for node in segment.nodes if node.role in WORK_ROLES}
    agents = Counter(node.owner for node in segment.nodes if node.role == "agent")
    busy.update(owner for owner, number in agents.items() if number > 1)  # the owner distributes work to several agents
    return [node for node in annotated if node.component is own and not _is_of_sub_agent(node, segment.root, busy)]


def _is_of_sub_agent(node: SpanNode, root: SpanNode | None, busy: set[SpanNode | None]) -> bool:
    """Whether a span is, or is inside, an agent that works for a tool or for an agent with its own work.

    `busy` are the owners of model and tool spans, or of several agents.
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


def _first_known(nodes: Sequence[SpanNode], read: Callable[[SpanNode], T | None]) -> T | None:
    return next((found for node in nodes if (found := read(node)) is not None), None)


def _golden_id(node: SpanNode, attributes: Sequence[str]) -> str | None:
    values_by_attribute = (
        node.span.attributes.get(attribute) for attribute in attributes if not _is_evaluation_result(attribute, node)
    )
    found = next((value for value in values_by_attribute if value is not None), None)
    return None if found is None else str(found)


def _is_evaluation_result(attribute: str, node: SpanNode) -> bool:
    """Whether an earlier evaluation set the golden id without an explicit id on this span."""
    attributes = node.span.attributes
    if attribute != semconv.GOLDEN_ID:
        return False
    return attributes.get(semconv.GOLDEN_MATCH, "id") != "id" or attributes.get(semconv.GOLDEN_ON_OTHER_SPAN) is True


def _parse_expected_tools(value: Any) -> tuple[Any, ...] | None:
    """Parses expected tools from a structured value, JSON, or a list of names and JSON texts."""
    if isinstance(value, str):
        if not value.strip():
            return None
        value = plain_value(value)
    if isinstance(value, list | tuple):
        return tuple([_parse_expected_tool(item) for item in value])
    return None if value is None else (value,)


def _parse_expected_tool(value: Any) -> Any:
    """Parses one expected tool. A tool with arguments is JSON text, because attributes support only lists of texts."""
    if isinstance(value, str) and value.lstrip().startswith("{"):
        return plain_value(value)
    return value


def _parse_names(value: Any) -> tuple[str, ...] | None:
    """Parses names from a list or from comma-separated text; `None` if there are no names."""
    names = value.split(",") if isinstance(value, str) else value
    if not isinstance(names, list | tuple):
        return None
    return tuple(dict.fromkeys(filter(None, (str(name).strip() for name in names)))) or None


def _optional_text(value: Any) -> str | None:
    return None if value is None or value == "" else str(value)


def _metadata(node: SpanNode) -> Iterator[tuple[str, Any]]:
    attributes = node.span.attributes
    for key in attributes:
        if key.startswith(semconv.METADATA_PREFIX):
            yield key[len(semconv.METADATA_PREFIX) :], attributes[key]


_Run, _Health = fast_constructor(Run), fast_constructor(Health)


def assemble_run(segment: RunSpans, *, golden_id_attributes: Sequence[str], other_call_ids: Container[str] = ()) -> Run:
    """Builds the run of a segment; `other_call_ids` are the ids of calls that other runs made."""
    nodes, root = segment.nodes, segment.root
    offered = _offered_tools(nodes, root)
    # If a tool is a component, the tool itself is evaluated and is not one of its calls.
    is_tool_component = segment.unit == "component" and root is not None and root.role == "tool"
    found = reconcile(nodes[1:] if is_tool_component else nodes, offered, other_call_ids=other_call_ids)
    annotations = read_annotations(segment, golden_id_attributes)
    # Texts of the root span come first, then those of the agents inside it, then those of the models. Texts inside
    # tools come last: the agent or model in a tool received another request.
    in_tools = _spans_in_tools(nodes)
    sources = [root] if root is not None and (is_tool_component or root.role not in WORK_ROLES) else []
    sources += [node for node in nodes if node.role in REQUEST_ROLES and node is not root]
    outside = [node for node in sources if node not in in_tools]
    inside = [node for node in sources if node in in_tools]
    turns = [turn for turn in found.turns if turn.node not in in_tools]
    turns += [turn for turn in found.turns if turn.node in in_tools]
    span = (root or nodes[0]).span
    traces = tuple(dict.fromkeys([span.trace_id, *[node.span.trace_id for node in nodes]]))
    return _Run(
        run_id=_run_id(span.trace_id, segment),
        unit=segment.unit,
        trace_ids=traces,
        span_id=segment.root_id or None,
        input=_first_truthy(
            chain((annotations.input,), map(_input, outside), map(_turn_input, turns), map(_input, inside))
        ),
        output=_first_truthy(
            chain(
                (annotations.output,),
                map(_output, reversed(segment.resumed)),
                map(_output, outside),
                map(_turn_output, sorted(found.turns, key=_recency)),
                map(_output, inside),
            )
        ),
        session_id=_first_truthy(node.facts.session_id for node in chain(nodes, nodes[0].ancestors())),
        agent=_agent_name(segment),
        service=span.service,
        tool_calls=found.calls,
        available_tools=offered,
        golden_id=annotations.golden_id,
        component=segment.name,
        conventions=_conventions(nodes),
        health=_health(segment, found, offered, stitched=len(traces) - 1),
        start_ns=min([node.span.start_ns for node in nodes if node.span.start_ns is not None], default=None),
        end_ns=max([node.span.end_ns for node in nodes if node.span.end_ns is not None], default=None),
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


def _spans_in_tools(nodes: list[SpanNode]) -> set[SpanNode]:
    """The spans inside a tool; `nodes` are in pre-order."""
    in_tools: set[SpanNode] = set()
    for node in nodes:
        if node.parent is not None and (node.parent.role == "tool" or node.parent in in_tools):
            in_tools.add(node)
    return in_tools


def _environment(span: SpanRecord) -> str | None:
    """The deployment environment, from the resource."""
    resource = span.resource
    named = resource.get(semconv.ENVIRONMENT) or resource.get(semconv.DEPRECATED_ENVIRONMENT)
    return str(named) if named else None


def _agent_name(segment: RunSpans) -> str | None:
    """The name of the first named agent that is no sub-agent, else the agent name in the root span.

    For a component, the name of the agent that it is, or that it works for, takes precedence. A sub-agent is inside a
    tool, or inside an agent with its own model or tool spans; an agent without such spans only wraps others.
    """
    nodes, root = segment.nodes, segment.root
    if segment.unit == "component" and root is not None:
        own = root.facts.name if root.role == "agent" else root.agent
        if own:
            return own
    busy = {node.owner for node in nodes if node.role in WORK_ROLES}
    employers: set[SpanNode | None] = set()
    for node in nodes:  # in pre-order
        if node.role == "tool" or (node.role == "agent" and node in busy) or node.parent in employers:
            employers.add(node)
    agents = (node for node in nodes if node.role == "agent" and node.parent not in employers)
    named = _first_truthy(node.facts.name for node in agents if node is root or not node.is_orphan)
    return named or (root.facts.agent or None if root is not None and root.role in REQUEST_ROLES else None)


def _first_truthy(candidates: Iterable[T | None]) -> T | None:
    return next((candidate for candidate in candidates if candidate), None)


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
    return next((message.text for message in reversed(messages) if message.is_from_user and message.text), None)


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
    return tuple(offered[name] for name in sorted(offered))


def _merge_definitions(known: ToolDefinition, other: ToolDefinition) -> ToolDefinition:
    best = other if known.parameters is None and other.parameters is not None else known
    if known.read_only is None and other.read_only is None:
        return best
    return replace(best, read_only=known.read_only if known.read_only is not None else other.read_only)


def _conventions(nodes: list[SpanNode]) -> tuple[str, ...]:
    return tuple(sorted({name for node in nodes if node.role is not None for name in node.facts.conventions}))


def _health(segment: RunSpans, found: ReconciledCalls, offered: Iterable[ToolDefinition], *, stitched: int) -> Health:
    nodes = segment.nodes
    counted = [call for call in found.calls if call.kind in COUNTED_TOOL_KINDS]
    absent = sum([call.arguments is None and call.raw_arguments is None for call in counted])
    content_off = _is_content_off(nodes, found)
    invisible = not found.calls and not run_checks.would_show_calls(nodes, segment.root)
    return _Health(
        orphan_spans=sum([node.is_orphan for node in nodes if node.parent is None and node is not segment.root]),
        missing_root=segment.root is None and not segment.is_split,
        stitched=stitched,
        split=segment.is_split,
        dropped_attributes=sum([node.span.dropped_attributes for node in nodes]),
        arguments_absent=absent,
        arguments_unreadable=sum([call.raw_arguments is not None for call in counted]),
        content_off=content_off,
        lookalikes=_tool_lookalikes(nodes, {fold_name(tool.name) for tool in offered}),
        merged=found.merged_count,
        merged_beside=found.contradictions.merged_beside,
        calls_nested=found.contradictions.nested,
        calls_unpaired=found.contradictions.unpaired,
        calls_unanswered=found.contradictions.unanswered,
        results_unknown=found.contradictions.results_unknown,
        began_late=_count_late_spans(nodes, segment.root),
        calls_invisible=invisible,
        without_content=run_checks.instrumentations_without_content(nodes)
        if absent or content_off or invisible
        else (),
        unknown_families=_tree_root(nodes).unknown_families if invisible else (),
        unknown_spans=run_checks.count_unknown_spans(nodes, segment.root),
        fallback=tuple(sorted({name for node in nodes if (name := node.facts.guessed_from) is not None})),
        idle_agents=run_checks.idle_agents(nodes),
    )


def _count_late_spans(nodes: list[SpanNode], root: SpanNode | None) -> int:
    """The number of spans that started after the root span ended; outside the root, after the top span ended.

    Only times of one process are compared, because the clocks of two processes differ. Only spans with a role count.
    """
    if root is None or root.span.end_ns is None:
        return 0
    root_end = root.span.end_ns + CLOCK_TOLERANCE_NS
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


def _tool_lookalikes(nodes: list[SpanNode], offered: set[str]) -> tuple[str, ...]:
    """The names of spans without a role that are named like an offered tool, or like tool spans in general.

    Spans that directly enclose a tool or are inside one do not count.
    """
    unknown = _tree_root(nodes).unknown_span_names.union(
        node.span.name for node in nodes if node.role is None and not _wraps_tool(node)
    )
    return tuple(sorted([name for name in unknown if _is_named_like_tool(name) or fold_name(name) in offered]))


def _tree_root(nodes: list[SpanNode]) -> SpanNode:
    return next(reversed([nodes[0], *nodes[0].ancestors()]))


def _wraps_tool(node: SpanNode) -> bool:
    return node.enclosing_tool is not None or any(child.role == "tool" for child in node.children)


_TOOL_SPAN_NAME = re.compile(
    r"(?:^|[\W_])(?:tool|function)[\W_]?call(?:[\W_]|$)|^(?:call|execute|run)[\W_]tool\b", re.IGNORECASE
)
"""Common names of tool spans that follow no convention."""


@lru_cache(maxsize=16384)
def _is_named_like_tool(span_name: str) -> bool:
    return _TOOL_SPAN_NAME.search(span_name) is not None
