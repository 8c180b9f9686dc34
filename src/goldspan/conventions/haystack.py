"""Haystack: `haystack.*` tags of its agents, tools and chat generators, as its OpenTelemetry tracer writes them.

In version 3 every tool call has a span of its own. Before, one `ToolInvoker` ran all calls of a step, and only the
messages of the chat generator tell them apart.
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
    """Haystack's chat messages, in a list under some keys of what went into or came out of a component."""

    attribute: str
    keys: tuple[str, ...]

    def __call__(self, span: SpanRecord) -> Messages:
        """The messages of a span."""
        held = plain_value(span.attributes.get(self.attribute))
        found = next((held[key] for key in self.keys if key in held), None) if isinstance(held, Mapping) else None
        listed = found if isinstance(found, list) else [found]
        return messages.from_json(
            [_with_typed_parts(item) for item in map(parse_json_or_repr, listed) if isinstance(item, Mapping)]
        )

    def __str__(self) -> str:
        """How the documentation names the place."""
        return f"`{self.keys[0]}` in `{self.attribute}`"


def parse_json_or_repr(item: Any) -> Any:
    """A value out of JSON text, or an object as `repr` shows it."""
    return (parse_object(item) if isinstance(item, str) else None) or plain_value(item)


def _with_typed_parts(message: Mapping[str, Any]) -> Mapping[str, Any]:
    """A message whose parts say what they are; in older versions the keys of messages begin with an underscore."""
    content = message.get("content", message.get("_content"))
    parts = content if isinstance(content, list) else [content]
    return {"role": message.get("role", message.get("_role")), "content": [_typed_part(part) for part in parts]}


def _typed_part(part: Any) -> Any:
    if isinstance(part, ReprObject) and part.type_name in _JSON_KEY_OF_CLASS:
        part = {_JSON_KEY_OF_CLASS[part.type_name]: dict(part)}
    answer = part.get("tool_call_result") if isinstance(part, Mapping) else None
    if not isinstance(answer, Mapping):
        return part
    origin = answer.get("origin")
    call_id = origin.get("id") if isinstance(origin, Mapping) else None
    failed = answer.get("error") is True
    return {"type": "tool_result", "id": call_id, "result": answer.get("result"), "is_error": failed}


_JSON_KEY_OF_CLASS = {"ToolCall": "tool_call", "ToolCallResult": "tool_call_result"}
"""How JSON marks what `repr` shows by a class."""


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
        # A person was asked about the call. Where they agreed, it has a span of its own.
        facts.outcome = "denied"
        return facts if attributes.get(f"{_STRATEGY}.decision") == "reject" else None
    if attributes.get("haystack.tool.error") is True:
        said = plain_value(attributes.get(_TOOL_OUTPUT))
        facts.error = str(said["error"]) if isinstance(said, Mapping) and said.get("error") else "error"
    return facts


def _offered_tools(attributes: Mapping[str, Any]) -> tuple[ToolDefinition, ...]:
    given = plain_value(attributes.get(_LLM_INPUT) or attributes.get(_INPUT))
    tools = given.get("tools") if isinstance(given, Mapping) else None
    return _definitions(tools)


def _definitions(tools: Any) -> tuple[ToolDefinition, ...]:
    """Tools, each as `{"type": class, "data": {name, description, parameters}}`."""
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
        "A component `ToolInvoker` runs all calls of a step at once: they are read from the model's messages.",
        "A human-in-the-loop strategy that decides `reject` denied the call.",
        "`haystack.tool.error` says that a tool failed; the span itself stays without an error.",
        "A pipeline is no request by itself, since pipelines index documents, too.",
    ),
    capture_setting="HAYSTACK_CONTENT_TRACING_ENABLED=true",
)
