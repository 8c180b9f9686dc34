"""Haystack: `haystack.*` tags of agents, tools and chat generators, from its OpenTelemetry tracer.

In version 3 every tool call has its own span. In earlier versions one `ToolInvoker` runs all calls of a step, and only
the messages of the chat generator list the individual calls.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from goldspan.content import messages
from goldspan.content.literals import ReprObject, parse_object, plain_value
from goldspan.content.tools import tool_definitions
from goldspan.conventions.convention import ANY, AttributeMap, Convention
from goldspan.conventions.span_facts import Messages, SpanFacts
from goldspan.model import SpanRecord, ToolDefinition


@dataclass(frozen=True, slots=True)
class FromChatMessages:
    """Reads Haystack's chat messages: a list under the first present key of a component's input or output."""

    attribute: str
    keys: tuple[str, ...]

    def __call__(self, span: SpanRecord) -> Messages:
        """Return the messages of a span."""
        data = plain_value(span.attributes.get(self.attribute))
        value = next((data[key] for key in self.keys if key in data), None) if isinstance(data, Mapping) else None
        items = value if isinstance(value, list) else [value]
        return messages.from_json(
            [_with_typed_parts(item) for item in map(parse_json_or_repr, items) if isinstance(item, Mapping)]
        )

    def __str__(self) -> str:
        """Return the description of the source for the documentation."""
        return f"`{self.keys[0]}` in `{self.attribute}`"


def parse_json_or_repr(item: Any) -> Any:
    """Parse an item that is JSON text or the `repr` of an object."""
    return (parse_object(item) if isinstance(item, str) else None) or plain_value(item)


def _with_typed_parts(message: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the message with typed parts. In older versions the keys of messages begin with an underscore."""
    content = message.get("content", message.get("_content"))
    parts = content if isinstance(content, list) else [content]
    return {"role": message.get("role", message.get("_role")), "content": [_typed_part(part) for part in parts]}


def _typed_part(part: Any) -> Any:
    if isinstance(part, ReprObject) and part.type_name in _JSON_KEY_OF_CLASS:
        part = {_JSON_KEY_OF_CLASS[part.type_name]: dict(part)}
    tool_result = part.get("tool_call_result") if isinstance(part, Mapping) else None
    if not isinstance(tool_result, Mapping):
        return part
    origin = tool_result.get("origin")
    call_id = origin.get("id") if isinstance(origin, Mapping) else None
    is_error = tool_result.get("error") is True
    return {"type": "tool_result", "id": call_id, "result": tool_result.get("result"), "is_error": is_error}


_JSON_KEY_OF_CLASS = {"ToolCall": "tool_call", "ToolCallResult": "tool_call_result"}
"""Key in the JSON notation for each class in the `repr` notation."""


_TOOL = "haystack.tool.name"
_TYPE = "haystack.component.type"
_INPUT, _OUTPUT = "haystack.component.input", "haystack.component.output"
_LLM_INPUT, _LLM_OUTPUT = "haystack.agent.step.llm.input", "haystack.agent.step.llm.output"
_TOOL_OUTPUT = "haystack.agent.step.tool.output"
_STRATEGY = "haystack.agent.hook.human_in_the_loop.strategy"


def _postprocess(span: SpanRecord, facts: SpanFacts) -> SpanFacts | None:
    attributes = span.attributes
    if facts.role == "tool":
        return _postprocess_tool(attributes, facts)
    if facts.role is None and str(attributes.get(_TYPE)).endswith("ChatGenerator"):
        facts.role = "model"
        facts.input_messages = (partial(FromChatMessages(_INPUT, ("messages",)), span),)
        facts.output_messages = (partial(FromChatMessages(_OUTPUT, ("replies",)), span),)
    if facts.role == "model":
        facts.tool_definitions = (partial(_offered_tools, attributes),)
    return facts


def _postprocess_tool(attributes: Mapping[str, Any], facts: SpanFacts) -> SpanFacts | None:
    if f"{_STRATEGY}.type" in attributes:
        # Haystack asked a person to confirm the call. A confirmed call also has its own span.
        facts.outcome = "denied"
        return facts if attributes.get(f"{_STRATEGY}.decision") == "reject" else None
    if attributes.get("haystack.tool.error") is True:
        output = plain_value(attributes.get(_TOOL_OUTPUT))
        facts.error = str(output["error"]) if isinstance(output, Mapping) and output.get("error") else "error"
    return facts


def _offered_tools(attributes: Mapping[str, Any]) -> tuple[ToolDefinition, ...]:
    inputs = plain_value(attributes.get(_LLM_INPUT) or attributes.get(_INPUT))
    tools = inputs.get("tools") if isinstance(inputs, Mapping) else None
    return _decode_tools(tools)


def _decode_tools(tools: Any) -> tuple[ToolDefinition, ...]:
    """Decode tools from `{"type": class, "data": {name, description, parameters}}`."""
    items = tools if isinstance(tools, list) else ()
    return tool_definitions([item["data"] for item in items if isinstance(item, Mapping) and "data" in item])


CONVENTION = Convention(
    name="haystack",
    title="Haystack",
    source="https://github.com/deepset-ai/haystack",
    versions="2.20 to 3.4",
    roles={_TOOL: {ANY: "tool"}, "haystack.agent.max_steps": {ANY: "agent"}, _LLM_OUTPUT: {ANY: "model"}},
    marker_attributes=(_TYPE,),
    attributes_by_role={
        "tool": AttributeMap(
            name=(_TOOL,),
            call_id=("haystack.tool.call.id",),
            arguments=("haystack.agent.step.tool.input",),
            result=(_TOOL_OUTPUT,),
        ),
        "agent": AttributeMap(
            input_messages=(FromChatMessages("haystack.agent.input", ("messages",)),),
            output_messages=(FromChatMessages("haystack.agent.output", ("last_message", "messages")),),
        ),
        "model": AttributeMap(
            input_messages=(FromChatMessages(_LLM_INPUT, ("messages",)),),
            output_messages=(FromChatMessages(_LLM_OUTPUT, ("replies",)),),
        ),
    },
    postprocess=_postprocess,
    notes=(
        "A component whose `haystack.component.type` ends in `ChatGenerator` is a model.",
        "A component `ToolInvoker` runs all calls of a step. goldspan reads the calls from the model's messages.",
        "A call is denied if a human-in-the-loop strategy decides `reject`.",
        "`haystack.tool.error` is set if a tool failed; the span itself has no error status.",
        "A pipeline alone is not a request, because pipelines also index documents.",
    ),
    capture_setting="HAYSTACK_CONTENT_TRACING_ENABLED=true",
)
