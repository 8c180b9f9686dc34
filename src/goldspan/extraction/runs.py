"""From the spans of one run to the run: its calls, its texts, who ran it, and how well it was captured."""

from __future__ import annotations

import json
import re
from collections.abc import Container, Iterable, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from itertools import chain
from typing import Any, TypeVar

from goldspan import semconv
from goldspan.extraction import consistency, values, visibility
from goldspan.extraction.calls import call_of
from goldspan.extraction.cutting import Portion
from goldspan.extraction.dialogues import Dialogue
from goldspan.extraction.names import fold
from goldspan.extraction.offers import definitions
from goldspan.extraction.reading import MARKS, WORK, Messages, Written
from goldspan.extraction.reconciliation import Reconciled, reconcile
from goldspan.extraction.statements import stated
from goldspan.extraction.times import JITTER_NS, NEVER
from goldspan.extraction.tree import Node
from goldspan.model import COUNTED_KINDS, Health, Run, SpanRecord, ToolDefinition, drafted

T = TypeVar("T")
_Run, _Health = drafted(Run), drafted(Health)


def assemble(portion: Portion, *, golden_id_attributes: Sequence[str], elsewhere: Container[str] = ()) -> Run:
    """The run that a portion of a trace's spans is; `elsewhere` are the ids of calls that other runs made."""
    nodes, root = portion.nodes, portion.root
    offered = _available(nodes, root)
    # A tool that is a component by itself is what is scored, and no call that it made.
    itself = portion.unit == "component" and root is not None and root.role == "tool"
    found = reconcile(nodes[1:] if itself else nodes, offered, elsewhere=elsewhere)
    said = stated(portion, golden_id_attributes)
    # What the run's own span says comes first, then what the agents inside it say, then what the model saw; and only
    # then what was said in a tool: the agent or the model at work in one was asked something else.
    serving = _serving(nodes)
    speakers = [root] if root is not None and (itself or root.role not in WORK) else []
    speakers += [node for node in nodes if node.role in MARKS and node is not root]
    ranked = [node for node in speakers if node not in serving], [node for node in speakers if node in serving]
    asked = [turn for turn in found.dialogues if turn.node not in serving]
    asked += [turn for turn in found.dialogues if turn.node in serving]
    span = (root or nodes[0]).span
    traces = tuple(dict.fromkeys([span.trace_id, *[node.span.trace_id for node in nodes]]))
    return _Run(
        run_id=_id(span.trace_id, portion),
        unit=portion.unit,
        trace_ids=traces,
        span_id=portion.root_id or None,
        input=_first(chain((said.input,), map(_input, ranked[0]), map(_question, asked), map(_input, ranked[1]))),
        output=_first(
            chain(
                (said.output,),
                map(_output, reversed(portion.resumed)),
                map(_output, ranked[0]),
                map(_reply, sorted(found.dialogues, key=_recency)),
                map(_output, ranked[1]),
            )
        ),
        session_id=_first(node.reading.session_id for node in chain(nodes, nodes[0].ancestors())),
        agent=_agent(portion),
        service=span.service,
        tool_calls=found.calls,
        available_tools=offered,
        golden_id=said.golden_id,
        component=portion.name,
        conventions=_conventions(nodes),
        health=_health(portion, found, offered, stitched=len(traces) - 1),
        start_ns=min([node.span.start_ns for node in nodes if node.span.start_ns is not None], default=None),
        end_ns=max([node.span.end_ns for node in nodes if node.span.end_ns is not None], default=None),
        metadata=said.metadata,
        expected_tools=said.expected_tools,
        metrics=said.metrics,
        environment=_environment(span),
        span_name=root.span.name if root is not None else None,
        attributes=root.span.attributes if root is not None else {},
    )


def _id(trace_id: str, portion: Portion) -> str:
    """What tells a run from every other: a span may be a request and a component at once."""
    request_id = f"{trace_id}:{portion.root_id}"
    return request_id if portion.unit == "request" else f"{request_id}:{portion.unit}"


def _serving(nodes: list[Node]) -> set[Node]:
    """The spans that are at work in a tool. In `nodes` each span stands before those inside it."""
    serving: set[Node] = set()
    for node in nodes:
        if node.parent is not None and (node.parent.role == "tool" or node.parent in serving):
            serving.add(node)
    return serving


def _environment(span: SpanRecord) -> str | None:
    """Where the process ran, as its resource says."""
    resource = span.resource
    named = resource.get(semconv.ENVIRONMENT) or resource.get(semconv.OLDER_ENVIRONMENT)
    return str(named) if named else None


def _agent(portion: Portion) -> str | None:
    """The name of the first agent that has one and is no sub-agent; else what the request's own span calls its agent.

    Of a component, first the name of the agent that it is, or that it works for.
    A sub-agent is at work in a tool, or in an agent that works itself: one that does not is a mere frame around others.
    """
    nodes, root = portion.nodes, portion.root
    if portion.unit == "component" and root is not None:
        own = root.reading.name if root.role == "agent" else root.agent
        if own:
            return own
    busy = {node.owner for node in nodes if node.role in WORK}
    employers: set[Node | None] = set()
    for node in nodes:  # each stands before those inside it
        if node.role == "tool" or (node.role == "agent" and node in busy) or node.parent in employers:
            employers.add(node)
    agents = (node for node in nodes if node.role == "agent" and node.parent not in employers)
    named = _first(node.reading.name for node in agents if node is root or not node.orphan)
    return named or (root.reading.agent or None if root is not None and root.role in MARKS else None)


def _first(candidates: Iterable[T | None]) -> T | None:
    return next((candidate for candidate in candidates if candidate), None)


def _input(node: Node) -> str | None:
    if node.role == "tool":  # it is a component by itself
        return _first_text(call_of(node).arguments)
    return values.asked_text(node.reading.input) or _last_user_text(node.asked)


def _output(node: Node) -> str | None:
    if node.role == "tool":
        return _told(None if node.reading.result is None else node.reading.result.value)
    return values.answered_text(node.reading.output) or _last_text(node.answered)


def _first_text(arguments: Written | None) -> str | None:
    """What a tool was asked: the first of its arguments that is text, as of a decorated component, else all of them."""
    value = None if arguments is None else arguments.value
    texts = (each for each in value.values() if isinstance(each, str)) if isinstance(value, dict) else ()
    return next(iter(texts), None) or _told(value)


def _told(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _question(dialogue: Dialogue) -> str | None:
    return _last_user_text(dialogue.asked)


def _reply(dialogue: Dialogue) -> str | None:
    return _last_text(dialogue.answered)


def _recency(dialogue: Dialogue) -> int:
    return -dialogue.ended


def _last_user_text(messages: Messages) -> str | None:
    return next((message.text for message in reversed(messages) if message.from_user and message.text), None)


def _last_text(messages: Messages) -> str | None:
    return next((message.text for message in reversed(messages) if message.text and not message.answers), None)


def _available(nodes: list[Node], root: Node | None) -> tuple[ToolDefinition, ...]:
    """Every tool offered to the model, once a name: of two definitions the one with a schema, and what either says."""
    offered: dict[str, ToolDefinition] = {}
    last: tuple[ToolDefinition, ...] = ()
    places = [place for node in nodes for place in node.reading.tools]
    if root is not None and not root.reading.tools and semconv.TOOL_DEFINITIONS in root.span.attributes:
        # A program may say it of any span that stands for a run, of which conventions may know nothing.
        places.append(partial(definitions, root.span.attributes[semconv.TOOL_DEFINITIONS]))
    for place in places:
        found = place()
        if found is last:  # what is offered is repeated on each span, and the same text is read once
            continue
        last = found
        for tool in found:
            known = offered.get(tool.name)
            if known is not tool:
                offered[tool.name] = tool if known is None else _fuller(known, tool)
    return tuple(offered[name] for name in sorted(offered))


def _fuller(known: ToolDefinition, other: ToolDefinition) -> ToolDefinition:
    best = other if known.parameters is None and other.parameters is not None else known
    if known.read_only is None and other.read_only is None:
        return best
    return replace(best, read_only=known.read_only if known.read_only is not None else other.read_only)


def _conventions(nodes: list[Node]) -> tuple[str, ...]:
    return tuple(sorted({name for node in nodes if node.role is not None for name in node.reading.by}))


def _health(portion: Portion, found: Reconciled, offered: Iterable[ToolDefinition], *, stitched: int) -> Health:
    nodes = portion.nodes
    counted = [call for call in found.calls if call.kind in COUNTED_KINDS]
    absent = sum([call.arguments is None and call.raw_arguments is None for call in counted])
    content_off = _content_off(nodes, found)
    invisible = not found.calls and not visibility.calls_would_show(nodes, portion.root)
    return _Health(
        orphan_spans=sum([node.orphan for node in nodes if node.parent is None and node is not portion.root]),
        missing_root=portion.root is None and not portion.split,
        stitched=stitched,
        split=portion.split,
        dropped_attributes=sum([node.span.dropped_attributes for node in nodes]),
        arguments_absent=absent,
        arguments_unreadable=sum([call.raw_arguments is not None for call in counted]),
        content_off=content_off,
        lookalikes=_lookalikes(nodes, {fold(tool.name) for tool in offered}),
        merged=found.merged,
        merged_beside=found.doubts.merged_beside,
        calls_nested=found.doubts.nested,
        calls_unpaired=found.doubts.unpaired,
        calls_unanswered=found.doubts.unanswered,
        results_unknown=found.doubts.results_unknown,
        began_late=_began_late(nodes, portion.root),
        calls_invisible=invisible,
        without_content=visibility.without_content(nodes) if absent or content_off or invisible else (),
        unknown_families=_root_of(nodes).unknown_families if invisible else (),
        unknown_spans=visibility.unknown_spans(nodes, portion.root),
        fallback=tuple(sorted({name for node in nodes if (name := node.reading.guessed_by) is not None})),
        idle_agents=consistency.idle_agents(nodes),
    )


def _began_late(nodes: list[Node], root: Node | None) -> int:
    """How many spans began when the run's own had ended: of those beside it, when all that stands around had, too.

    Only times of one process are compared, because the clocks of two differ; and only spans count that are something to
    a run, whatever else golden files declare.
    """
    if root is None or root.span.end_ns is None:
        return 0
    over = root.span.end_ns + JITTER_NS
    late = [node for node in nodes if over < node.start < NEVER and node.role is not None]
    late = [node for node in late if node.span.resource == root.span.resource]
    if not late:
        return 0
    top = next(reversed([root, *root.ancestors()]))
    all_over = NEVER if top.span.end_ns is None else top.span.end_ns + JITTER_NS
    return sum([root.contains(node) or (all_over < node.start and top.contains(node)) for node in late])


def _content_off(nodes: list[Node], found: Reconciled) -> bool:
    """Whether work was done, and not a word of it recorded."""
    if any(call.arguments is not None or call.result is not None or call.raw_arguments for call in found.calls):
        return False
    silent = all(not (node.asked or node.answered) for node in nodes if node.role in WORK or node.role in MARKS)
    return silent and not any(node.reading.input or node.reading.output for node in nodes)


def _lookalikes(nodes: list[Node], offered: set[str]) -> tuple[str, ...]:
    """Spans without a role that are called like a tool that was offered, or like tool spans in general.

    What only stands around a tool or inside one is not meant.
    """
    unknown = _root_of(nodes).unknown.union(
        node.span.name for node in nodes if node.role is None and not _wraps_tool(node)
    )
    return tuple(sorted([name for name in unknown if _is_called_like_tools(name) or fold(name) in offered]))


def _root_of(nodes: list[Node]) -> Node:
    return next(reversed([nodes[0], *nodes[0].ancestors()]))


def _wraps_tool(node: Node) -> bool:
    return node.enclosing_tool is not None or any(child.role == "tool" for child in node.children)


_TOOL_SPAN = re.compile(
    r"(?:^|[\W_])(?:tool|function)[\W_]?call(?:[\W_]|$)|^(?:call|execute|run)[\W_]tool\b", re.IGNORECASE
)
"""What people call a span of a tool, where no convention tells them."""


@lru_cache(maxsize=16384)
def _is_called_like_tools(span_name: str) -> bool:
    return _TOOL_SPAN.search(span_name) is not None
