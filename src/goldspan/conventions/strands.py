"""Strands Agents: GenAI spans whose content is in span events, in the notation of Amazon Bedrock.

Unless the application opts in to the latest semantic conventions, the event `gen_ai.tool.message` holds a tool's
arguments and the event `gen_ai.choice` holds its result. Agents on Amazon Bedrock AgentCore write the same spans.
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
    """Reads messages from events that hold Bedrock's content blocks as JSON text."""

    names: tuple[str, ...]

    def __call__(self, span: SpanRecord) -> Messages:
        """Return the messages of a span."""
        return messages.from_json([_message_of_event(event) for event in span.events if event.name in self.names])

    def __str__(self) -> str:
        """Return the description of the source for the documentation."""
        return f"the events {', '.join(f'`{name}`' for name in self.names)}"


def _message_of_event(event: SpanEvent) -> Mapping[str, Any]:
    if event.name == _CHOICE:
        return {"role": "assistant", "content": _content_blocks(event.attributes.get("message"))}
    return {"role": event.name.split(".")[1], "content": _content_blocks(event.attributes.get("content"))}


def _content_blocks(raw: Any) -> Any:
    """Decode content blocks. An agent's answer is plain text, which remains unchanged."""
    decoded = plain_value(raw)
    return decoded if isinstance(decoded, list) else raw


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
    attributes_by_event = {event.name: event.attributes for event in span.events}
    if facts.arguments is None:
        calls = (call for message in _detail_messages(span, semconv.INPUT_MESSAGES) for call in message.tool_calls)
        raw_arguments = attributes_by_event.get(_TOOL, {}).get(
            "content", next((call.arguments for call in calls), None)
        )
        facts.arguments = None if raw_arguments is None else RawValue(raw_arguments)
    if facts.result is None:
        tool_results = (
            tool_result
            for message in _detail_messages(span, semconv.OUTPUT_MESSAGES)
            for tool_result in message.tool_results
        )
        raw_result = attributes_by_event.get(_CHOICE, {}).get(
            "message", next((tool_result.result for tool_result in tool_results), None)
        )
        facts.result = None if raw_result is None else RawValue(raw_result, _unwrap_result)
    if span.attributes.get("gen_ai.tool.status") == "error" and span.status != "error":
        facts.error = _failure_text(facts.result)
    facts.tool_definitions = (partial(_tool_definition, span.attributes),)


def _detail_messages(span: SpanRecord, attribute: str) -> Messages:
    return FromEvents(_DETAILS_EVENTS, attribute)(span)


def _tool_definition(attributes: Mapping[str, Any]) -> tuple[ToolDefinition, ...]:
    """Return the definition of the tool on a tool's span."""
    suffixes = {"name": "name", "description": "description", "parameters": "json_schema"}
    return tool_definitions([{key: attributes.get(f"gen_ai.tool.{suffix}") for key, suffix in suffixes.items()}])


def _offered_tools(attributes: Mapping[str, Any]) -> tuple[ToolDefinition, ...]:
    """Return the tools of an agent, of which only the names are recorded."""
    names = plain_value(attributes.get("gen_ai.agent.tools"))
    return tool_definitions([{"name": name} for name in names] if isinstance(names, list) else [])


def _failure_text(result: RawValue | None) -> str:
    """Return the error: the tool's result if it is text, otherwise `error`."""
    return result.value if result is not None and isinstance(result.value, str) else "error"


def _unwrap_result(value: Any) -> CallResult:
    return envelopes.unwrap_result(value, _unwrap_content)


def _unwrap_content(value: Any) -> CallResult | None:
    """Unwrap the content blocks `[{"json": ...}]` and `[{"text": ...}]`. Several blocks become a list."""
    if not isinstance(value, list) or not all(isinstance(block, Mapping) and len(block) == 1 for block in value):
        return None
    contents = [plain_value(next(iter(block.values()))) for block in value if set(block) <= {"json", "text"}]
    return CallResult(contents[0] if len(contents) == 1 else contents) if len(contents) == len(value) else None


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
        "The GenAI convention determines roles and names.",
        "The event `gen_ai.tool.message` holds a tool's arguments, and the event `gen_ai.choice` holds its result.",
        "Messages are in the events `gen_ai.*.message` and `gen_ai.choice`, or in the inference details.",
        "The operations `invoke_swarm` and `invoke_graph` are requests that several agents handle.",
        "`gen_ai.tool.status` is `error` if a tool reported a failure without an exception.",
    ),
)
