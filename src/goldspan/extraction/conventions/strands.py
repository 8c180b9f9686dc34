"""Strands Agents: GenAI spans whose content stands in span events, in the notation of Amazon Bedrock.

Unless the latest semantic conventions are opted into, a tool's arguments are the event `gen_ai.tool.message` and its
result is the event `gen_ai.choice`. Amazon Bedrock AgentCore runs such agents and writes the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from goldspan import semconv
from goldspan.extraction import messages, values
from goldspan.extraction.convention import Convention, FromEvents, MessageSource, Places
from goldspan.extraction.envelopes import Result
from goldspan.extraction.notation import plain
from goldspan.extraction.reading import Messages, Reading, Written
from goldspan.model import SpanEvent, SpanRecord, ToolDefinition

_STARTED = "gen_ai.event.start_time"
_SYSTEMS = ("gen_ai.provider.name", "gen_ai.system")
_CHOICE = "gen_ai.choice"
_TOOL = "gen_ai.tool.message"
_DETAILS = ("gen_ai.client.inference.operation.details",)


@dataclass(frozen=True, slots=True)
class _FromBlocks:
    """Messages in events, each a list of Bedrock's content blocks as JSON text."""

    names: tuple[str, ...]

    def __call__(self, span: SpanRecord) -> Messages:
        """The messages of a span."""
        return messages.from_json([_message(event) for event in span.events if event.name in self.names])

    def __str__(self) -> str:
        """How the documentation names the place."""
        return f"the events {', '.join(f'`{name}`' for name in self.names)}"


def _message(event: SpanEvent) -> Mapping[str, Any]:
    if event.name == _CHOICE:
        return {"role": "assistant", "content": _blocks(event.attributes.get("message"))}
    return {"role": event.name.split(".")[1], "content": _blocks(event.attributes.get("content"))}


def _blocks(written: Any) -> Any:
    """Content blocks; an agent's answer is plain text instead, which may look like anything."""
    read = plain(written)
    return read if isinstance(read, list) else written


_ASKED: tuple[MessageSource, ...] = (
    FromEvents(_DETAILS, semconv.INPUT_MESSAGES),
    _FromBlocks(("gen_ai.system.message", "gen_ai.user.message", "gen_ai.assistant.message", _TOOL)),
)
_ANSWERED: tuple[MessageSource, ...] = (FromEvents(_DETAILS, semconv.OUTPUT_MESSAGES), _FromBlocks((_CHOICE,)))


def _refine(span: SpanRecord, reading: Reading) -> Reading | None:
    if all(span.attributes.get(key) != "strands-agents" for key in _SYSTEMS):
        return None
    operation = span.attributes.get(semconv.OPERATION)
    if operation == semconv.EXECUTE_TOOL:
        _refine_tool(span, reading)
    elif operation != "execute_event_loop_cycle":
        reading.role = "entry" if operation in ("invoke_swarm", "invoke_graph") else None
        reading.asked = tuple(partial(source, span) for source in _ASKED)
        reading.answered = tuple(partial(source, span) for source in _ANSWERED)
        reading.tools = (partial(_offered, span.attributes),)
    return reading


def _refine_tool(span: SpanRecord, reading: Reading) -> None:
    said = {event.name: event.attributes for event in span.events}
    if reading.arguments is None:
        calls = (call for message in _details(span, semconv.INPUT_MESSAGES) for call in message.calls)
        given = said.get(_TOOL, {}).get("content", next((call.arguments for call in calls), None))
        reading.arguments = None if given is None else Written(given)
    if reading.result is None:
        answers = (answer for message in _details(span, semconv.OUTPUT_MESSAGES) for answer in message.answers)
        returned = said.get(_CHOICE, {}).get("message", next((answer.result for answer in answers), None))
        reading.result = None if returned is None else Written(returned, _result)
    if span.attributes.get("gen_ai.tool.status") == "error" and span.status != "error":
        reading.error = _failure(reading.result)
    reading.tools = (partial(_definition, span.attributes),)


def _details(span: SpanRecord, attribute: str) -> Messages:
    return FromEvents(_DETAILS, attribute)(span)


def _definition(attributes: Mapping[str, Any]) -> tuple[ToolDefinition, ...]:
    """What a tool's span says of the tool."""
    known = {"name": "name", "description": "description", "parameters": "json_schema"}
    return messages.definitions([{key: attributes.get(f"gen_ai.tool.{said}") for key, said in known.items()}])


def _offered(attributes: Mapping[str, Any]) -> tuple[ToolDefinition, ...]:
    """The names of an agent's tools."""
    names = plain(attributes.get("gen_ai.agent.tools"))
    return messages.definitions([{"name": name} for name in names] if isinstance(names, list) else [])


def _failure(result: Written | None) -> str:
    """What went wrong: the tool's own words where it found some."""
    return result.value if result is not None and isinstance(result.value, str) else "error"


def _result(value: Any) -> Result:
    return values.result(value, _content)


def _content(value: Any) -> Result | None:
    """What the content blocks `[{"json": ...}]` and `[{"text": ...}]` hold; a list where there are several."""
    if not isinstance(value, list) or not all(isinstance(block, Mapping) and len(block) == 1 for block in value):
        return None
    held = [plain(next(iter(block.values()))) for block in value if set(block) <= {"json", "text"}]
    return Result(held[0] if len(held) == 1 else held) if len(held) == len(value) else None


CONVENTION = Convention(
    name="strands",
    title="Strands Agents",
    source="https://github.com/strands-agents/sdk-python",
    versions="1 (recorded with 1.62), with and without OTEL_SEMCONV_STABILITY_OPT_IN=gen_ai_latest_experimental",
    signs=(_STARTED,),
    everywhere=Places(
        result=(semconv.TOOL_CALL_RESULT,), arguments=(semconv.TOOL_CALL_ARGUMENTS,), session_id=("session.id",)
    ),
    open_result=_result,
    refine=_refine,
    notes=(
        "Roles and names are read as in the GenAI conventions.",
        "A tool's arguments are the event `gen_ai.tool.message`, its result the event `gen_ai.choice`.",
        "Messages stand in the events `gen_ai.*.message` and `gen_ai.choice`, or in the inference details.",
        "`invoke_swarm` and `invoke_graph` are the entries of requests in which several agents work.",
        "`gen_ai.tool.status` says `error` where a tool failed without raising.",
    ),
)
