"""From the spans of one run to the run: its calls, its texts, who ran it, and how well it was captured."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from goldspan import semconv
from goldspan.extraction.cutting import Portion
from goldspan.extraction.reading import MARKS, Messages, Reading
from goldspan.extraction.reconciliation import Dialogue, Reconciled, reconcile
from goldspan.extraction.tree import Node
from goldspan.model import COUNTED_KINDS, Health, Run, ToolDefinition

T = TypeVar("T")


def assemble(portion: Portion, *, golden_id_attributes: Sequence[str]) -> Run:
    """The run that a portion of a trace's spans is."""
    nodes, root = portion.nodes, portion.root
    found = reconcile(nodes)
    # What the run's own span says comes first, then what the agents inside it say, then what the model saw.
    speakers = [root.reading] if root is not None else []
    speakers += [node.reading for node in nodes if node.role in MARKS and node is not root]
    span = (root or nodes[0]).span
    return Run(
        run_id=f"{span.trace_id}:{portion.root_id}",
        unit=portion.unit,
        trace_ids=(span.trace_id,),
        span_id=portion.root_id or None,
        input=_first(*map(_input, speakers), *map(_question, found.dialogues)),
        output=_first(*map(_output, speakers), *map(_reply, sorted(found.dialogues, key=_recency))),
        session_id=_first(*(node.reading.session_id for node in nodes)),
        agent=_first(*(node.reading.name for node in nodes if node.role == "agent")),
        service=span.service,
        tool_calls=found.calls,
        available_tools=_available(nodes),
        golden_id=_golden_id(portion, golden_id_attributes),
        component=root.reading.name if root is not None and portion.unit == "component" else None,
        health=_health(portion, found),
        start_ns=_extreme(min, (node.span.start_ns for node in nodes)),
        end_ns=_extreme(max, (node.span.end_ns for node in nodes)),
    )


def _first(*candidates: T | None) -> T | None:
    return next((candidate for candidate in candidates if candidate), None)


def _extreme(choose: Callable[[Iterable[int]], int], times: Iterable[int | None]) -> int | None:
    known = [time for time in times if time is not None]
    return choose(known) if known else None


def _input(reading: Reading) -> str | None:
    return reading.input or _last_user_text(reading.asked())


def _output(reading: Reading) -> str | None:
    return reading.output or _last_text(reading.answered())


def _question(dialogue: Dialogue) -> str | None:
    return _last_user_text(dialogue.asked)


def _reply(dialogue: Dialogue) -> str | None:
    return _last_text(dialogue.answered)


def _recency(dialogue: Dialogue) -> float:
    return -dialogue.ended


def _last_user_text(messages: Messages) -> str | None:
    return next((message.text for message in reversed(messages) if message.from_user), None)


def _last_text(messages: Messages) -> str | None:
    return next((message.text for message in reversed(messages) if message.text and not message.answers), None)


def _available(nodes: list[Node]) -> tuple[ToolDefinition, ...]:
    """Every tool offered to the model, once a name; of two definitions, the one with a schema."""
    offered: dict[str, ToolDefinition] = {}
    for node in nodes:
        for tool in node.reading.tools():
            known = offered.get(tool.name)
            if known is None or (known.parameters is None and tool.parameters is not None):
                offered[tool.name] = tool
    return tuple(offered[name] for name in sorted(offered))


def _golden_id(portion: Portion, attributes: Sequence[str]) -> str | None:
    """The golden that the run's span names, else a span around it, else one inside it that is no component's."""
    places: list[Node] = []
    if portion.root is not None:
        places += [portion.root, *portion.root.ancestors()]
    own = portion.root.component if portion.root is not None else None
    places += [node for node in portion.nodes if node.component is own]
    for node in places:
        named = (node.span.attributes.get(attribute) for attribute in attributes if not _is_result(attribute, node))
        found = next((value for value in named if value is not None), None)
        if found is not None:
            return str(found)
    return None


def _is_result(attribute: str, node: Node) -> bool:
    """Whether the golden's id was put there by an earlier evaluation that found the golden by other means."""
    return attribute == semconv.GOLDEN_ID and node.span.attributes.get(semconv.GOLDEN_MATCH, "id") != "id"


def _health(portion: Portion, found: Reconciled) -> Health:
    counted = [call for call in found.calls if call.kind in COUNTED_KINDS]
    return Health(
        orphan_spans=sum(node.orphan for node in portion.nodes if node is not portion.root),
        missing_root=portion.root is None,
        dropped_attributes=sum(node.span.dropped_attributes for node in portion.nodes),
        arguments_absent=sum(call.arguments is None and call.raw_arguments is None for call in counted),
        arguments_unreadable=sum(call.raw_arguments is not None for call in counted),
        merged=found.merged,
    )
