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
from goldspan.content import envelopes, messages
from goldspan.content.envelopes import CallResult
from goldspan.content.literals import plain_value
from goldspan.content.tools import tool_definitions
from goldspan.conventions.convention import AttributeMap, Convention, FromEvents, MessageSource
from goldspan.conventions.span_facts import Messages, RawValue, SpanFacts
from goldspan.model import SpanEvent, SpanRecord, ToolDefinition

_START_TIME = "gen_ai.event.start_time"
_SYSTEMS = ("gen_ai.provider.name", "gen_ai.system")
_CHOICE = "gen_ai.choice"
_TOOL = "gen_ai.tool.message"
_DETAILS_EVENTS = ("gen_ai.client.inference.operation.details",)


@dataclass(frozen=True, slots=True)
class _FromContentBlocks:
    """Messages in events, each a list of Bedrock's content blocks as JSON text."""

    names: tuple[str, ...]

    def __call__(self, span: SpanRecord) -> Messages:
        """The messages of a span."""
        return messages.from_json([_message_of_event(event) for event in span.events if event.name in self.names])

    def __str__(self) -> str:
        """How the documentation names the place."""
        return f"the events {', '.join(f'`{name}`' for name in self.names)}"


def _message_of_event(event: SpanEvent) -> Mapping[str, Any]:
    if event.name == _CHOICE:
        return {"role": "assistant", "content": _content_blocks(event.attributes.get("message"))}
    return {"role": event.name.split(".")[1], "content": _content_blocks(event.attributes.get("content"))}


def _content_blocks(raw: Any) -> Any:
    """Content blocks; an agent's answer is plain text instead, which may look like anything."""
    read = plain_value(raw)
    return read if isinstance(read, list) else raw


_INPUT_MESSAGES: tuple[MessageSource, ...] = (
    FromEvents(_DETAILS_EVENTS, semconv.INPUT_MESSAGES),
    _FromContentBlocks(("gen_ai.system.message", "gen_ai.user.message", "gen_ai.assistant.message", _TOOL)),
)
_OUTPUT_MESSAGES: tuple[MessageSource, ...] = (
    FromEvents(_DETAILS_EVENTS, semconv.OUTPUT_MESSAGES),
    _FromContentBlocks((_CHOICE,)),
)


def _postprocess(span: SpanRecord, facts: SpanFacts) -> SpanFacts | None:
    if all(span.attributes.get(key) != "strands-agents" for key in _SYSTEMS):
        return None
    operation = span.attributes.get(semconv.OPERATION)
    if operation == semconv.EXECUTE_TOOL:
        _postprocess_tool(span, facts)
    elif operation != "execute_event_loop_cycle":
        facts.role = "entry" if operation in ("invoke_swarm", "invoke_graph") else None
        facts.input_messages = tuple(partial(source, span) for source in _INPUT_MESSAGES)
        facts.output_messages = tuple(partial(source, span) for source in _OUTPUT_MESSAGES)
        facts.tool_definitions = (partial(_offered_tools, span.attributes),)
    return facts


def _postprocess_tool(span: SpanRecord, facts: SpanFacts) -> None:
    said = {event.name: event.attributes for event in span.events}
    if facts.arguments is None:
        calls = (call for message in _detail_messages(span, semconv.INPUT_MESSAGES) for call in message.tool_calls)
        given = said.get(_TOOL, {}).get("content", next((call.arguments for call in calls), None))
        facts.arguments = None if given is None else RawValue(given)
    if facts.result is None:
        answers = (
            answer for message in _detail_messages(span, semconv.OUTPUT_MESSAGES) for answer in message.tool_results
        )
        returned = said.get(_CHOICE, {}).get("message", next((answer.result for answer in answers), None))
        facts.result = None if returned is None else RawValue(returned, _unwrap_result)
    if span.attributes.get("gen_ai.tool.status") == "error" and span.status != "error":
        facts.error = _failure_text(facts.result)
    facts.tool_definitions = (partial(_tool_definition, span.attributes),)


def _detail_messages(span: SpanRecord, attribute: str) -> Messages:
    return FromEvents(_DETAILS_EVENTS, attribute)(span)


def _tool_definition(attributes: Mapping[str, Any]) -> tuple[ToolDefinition, ...]:
    """What a tool's span says of the tool."""
    known = {"name": "name", "description": "description", "parameters": "json_schema"}
    return tool_definitions([{key: attributes.get(f"gen_ai.tool.{said}") for key, said in known.items()}])


def _offered_tools(attributes: Mapping[str, Any]) -> tuple[ToolDefinition, ...]:
    """The names of an agent's tools."""
    names = plain_value(attributes.get("gen_ai.agent.tools"))
    return tool_definitions([{"name": name} for name in names] if isinstance(names, list) else [])


def _failure_text(result: RawValue | None) -> str:
    """What went wrong: the tool's own words where it found some."""
    return result.value if result is not None and isinstance(result.value, str) else "error"


def _unwrap_result(value: Any) -> CallResult:
    return envelopes.unwrap_result(value, _unwrap_content)


def _unwrap_content(value: Any) -> CallResult | None:
    """What the content blocks `[{"json": ...}]` and `[{"text": ...}]` hold; a list where there are several."""
    if not isinstance(value, list) or not all(isinstance(block, Mapping) and len(block) == 1 for block in value):
        return None
    held = [plain_value(next(iter(block.values()))) for block in value if set(block) <= {"json", "text"}]
    return CallResult(held[0] if len(held) == 1 else held) if len(held) == len(value) else None


CONVENTION = Convention(
    name="strands",
    title="Strands Agents",
    source="https://github.com/strands-agents/sdk-python",
    versions="1 (recorded with 1.62), with and without OTEL_SEMCONV_STABILITY_OPT_IN=gen_ai_latest_experimental",
    marker_attributes=(_START_TIME,),
    common_attributes=AttributeMap(
        result=(semconv.TOOL_CALL_RESULT,), arguments=(semconv.TOOL_CALL_ARGUMENTS,), session_id=("session.id",)
    ),
    unwrap_result=_unwrap_result,
    postprocess=_postprocess,
    notes=(
        "Roles and names are read as in the GenAI conventions.",
        "A tool's arguments are the event `gen_ai.tool.message`, its result the event `gen_ai.choice`.",
        "Messages stand in the events `gen_ai.*.message` and `gen_ai.choice`, or in the inference details.",
        "`invoke_swarm` and `invoke_graph` are the entries of requests in which several agents work.",
        "`gen_ai.tool.status` says `error` where a tool failed without raising.",
    ),
)
