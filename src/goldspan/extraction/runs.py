"""From the spans of one run to the run: its calls, its texts, who ran it, and how well it was captured."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import chain
from typing import TypeVar

from goldspan import semconv
from goldspan.extraction import values
from goldspan.extraction.cutting import Portion
from goldspan.extraction.dialogues import Dialogue
from goldspan.extraction.names import fold
from goldspan.extraction.reading import MARKS, WORK, Messages
from goldspan.extraction.reconciliation import Reconciled, reconcile
from goldspan.extraction.tree import Node
from goldspan.model import COUNTED_KINDS, Health, Run, ToolDefinition, drafted

T = TypeVar("T")
_Run, _Health = drafted(Run), drafted(Health)


def assemble(portion: Portion, *, golden_id_attributes: Sequence[str], elsewhere: Container[str] = ()) -> Run:
    """The run that a portion of a trace's spans is; `elsewhere` are the ids of calls that other runs made."""
    nodes, root = portion.nodes, portion.root
    offered = _available(nodes)
    found = reconcile(nodes, offered, elsewhere=elsewhere)
    # What the run's own span says comes first, then what the agents inside it say, then what the model saw; and only
    # then what was said in a tool: the agent or the model at work in one was asked something else.
    serving = _serving(nodes)
    speakers = [root] if root is not None and root.role not in WORK else []
    speakers += [node for node in nodes if node.role in MARKS and node is not root]
    ranked = [node for node in speakers if node not in serving], [node for node in speakers if node in serving]
    asked = [turn for turn in found.dialogues if turn.node not in serving]
    asked += [turn for turn in found.dialogues if turn.node in serving]
    span = (root or nodes[0]).span
    traces = tuple(dict.fromkeys([span.trace_id, *[node.span.trace_id for node in nodes]]))
    return _Run(
        run_id=f"{span.trace_id}:{portion.root_id}",
        unit=portion.unit,
        trace_ids=traces,
        span_id=portion.root_id or None,
        input=_first(chain(map(_input, ranked[0]), map(_question, asked), map(_input, ranked[1]))),
        output=_first(
            chain(
                map(_output, reversed(portion.resumed)),
                map(_output, ranked[0]),
                map(_reply, sorted(found.dialogues, key=_recency)),
                map(_output, ranked[1]),
            )
        ),
        session_id=_first(node.reading.session_id for node in chain(nodes, nodes[0].ancestors())),
        agent=_agent(nodes, root),
        service=span.service,
        tool_calls=found.calls,
        available_tools=offered,
        golden_id=_golden_id(portion, golden_id_attributes),
        component=root.reading.name if root is not None and portion.unit == "component" else None,
        conventions=_conventions(nodes),
        health=_health(portion, found, offered, stitched=len(traces) - 1),
        start_ns=min([node.span.start_ns for node in nodes if node.span.start_ns is not None], default=None),
        end_ns=max([node.span.end_ns for node in nodes if node.span.end_ns is not None], default=None),
    )


def _serving(nodes: list[Node]) -> set[Node]:
    """The spans that are at work in a tool. In `nodes` each span stands before those inside it."""
    serving: set[Node] = set()
    for node in nodes:
        if node.parent is not None and (node.parent.role == "tool" or node.parent in serving):
            serving.add(node)
    return serving


def _agent(nodes: list[Node], root: Node | None) -> str | None:
    """The name of the first agent that has one and is no sub-agent; else what the request's own span calls its agent.

    A sub-agent is at work in a tool, or in an agent that works itself: one that does not is a mere frame around others.
    """
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
    return values.asked_text(node.reading.input) or _last_user_text(node.asked)


def _output(node: Node) -> str | None:
    return values.answered_text(node.reading.output) or _last_text(node.answered)


def _question(dialogue: Dialogue) -> str | None:
    return _last_user_text(dialogue.asked)


def _reply(dialogue: Dialogue) -> str | None:
    return _last_text(dialogue.answered)


def _recency(dialogue: Dialogue) -> float:
    return -dialogue.ended


def _last_user_text(messages: Messages) -> str | None:
    return next((message.text for message in reversed(messages) if message.from_user and message.text), None)


def _last_text(messages: Messages) -> str | None:
    return next((message.text for message in reversed(messages) if message.text and not message.answers), None)


def _available(nodes: list[Node]) -> tuple[ToolDefinition, ...]:
    """Every tool offered to the model, once a name: of two definitions the one with a schema, and what either says."""
    offered: dict[str, ToolDefinition] = {}
    last: tuple[ToolDefinition, ...] = ()
    for place in (place for node in nodes for place in node.reading.tools):
        found = place()
        if found is last:  # what is offered is repeated on each span, and the same text is read once
            continue
        last = found
        for tool in found:
            known = offered.get(tool.name)
            offered[tool.name] = tool if known is None else _fuller(known, tool)
    return tuple(offered[name] for name in sorted(offered))


def _fuller(known: ToolDefinition, other: ToolDefinition) -> ToolDefinition:
    best = other if known.parameters is None and other.parameters is not None else known
    if known.read_only is None and other.read_only is None:
        return best
    return replace(best, read_only=known.read_only if known.read_only is not None else other.read_only)


def _golden_id(portion: Portion, attributes: Sequence[str]) -> str | None:
    """The golden that the run's span names, else a span around it, else one inside it that is no component's."""
    places: list[Node] = []
    if portion.root is not None:
        places += [portion.root, *portion.root.ancestors()]
    own = portion.root.component if portion.root is not None else None
    places += [node for node in portion.nodes if node.reading.noted and node.component is own]
    for node in places:
        named = (node.span.attributes.get(attribute) for attribute in attributes if not _is_result(attribute, node))
        found = next((value for value in named if value is not None), None) if node.reading.noted else None
        if found is not None:
            return str(found)
    return None


def _is_result(attribute: str, node: Node) -> bool:
    """Whether the golden's id was put there by an earlier evaluation that found the golden by other means."""
    return attribute == semconv.GOLDEN_ID and node.span.attributes.get(semconv.GOLDEN_MATCH, "id") != "id"


def _conventions(nodes: list[Node]) -> tuple[str, ...]:
    return tuple(sorted({name for node in nodes if node.role is not None for name in node.reading.by}))


def _health(portion: Portion, found: Reconciled, offered: Iterable[ToolDefinition], *, stitched: int) -> Health:
    nodes = portion.nodes
    counted = [call for call in found.calls if call.kind in COUNTED_KINDS]
    return _Health(
        orphan_spans=sum([node.orphan for node in nodes if node.parent is None and node is not portion.root]),
        missing_root=portion.root is None and not portion.split,
        stitched=stitched,
        split=portion.split,
        dropped_attributes=sum([node.span.dropped_attributes for node in nodes]),
        arguments_absent=sum([call.arguments is None and call.raw_arguments is None for call in counted]),
        arguments_unreadable=sum([call.raw_arguments is not None for call in counted]),
        content_off=_content_off(nodes, found),
        lookalikes=_lookalikes(nodes, {fold(tool.name) for tool in offered}),
        merged=found.merged,
    )


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
    root = next(reversed([nodes[0], *nodes[0].ancestors()]))
    unknown = root.unknown.union(node.span.name for node in nodes if node.role is None and not _wraps_tool(node))
    return tuple(sorted([name for name in unknown if _is_called_like_tools(name) or fold(name) in offered]))


def _wraps_tool(node: Node) -> bool:
    return node.enclosing_tool is not None or any(child.role == "tool" for child in node.children)


_TOOL_SPAN = re.compile(
    r"(?:^|[\W_])(?:tool|function)[\W_]?call(?:[\W_]|$)|^(?:call|execute|run)[\W_]tool\b", re.IGNORECASE
)
"""What people call a span of a tool, where no convention tells them."""


@lru_cache(maxsize=16384)
def _is_called_like_tools(span_name: str) -> bool:
    return _TOOL_SPAN.search(span_name) is not None
