"""Haystack: `haystack.*` tags of its agents, tools and chat generators, as its OpenTelemetry tracer writes them.

In version 3 every tool call has a span of its own. Before, one `ToolInvoker` ran all calls of a step, and only the
messages of the chat generator tell them apart.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from goldspan.extraction import messages
from goldspan.extraction.convention import ANY, Convention, Places
from goldspan.extraction.conventions.chat_messages import FromChat
from goldspan.extraction.notation import plain
from goldspan.extraction.reading import Reading
from goldspan.model import SpanRecord, ToolDefinition

_TOOL = "haystack.tool.name"
_TYPE = "haystack.component.type"
_INPUT, _OUTPUT = "haystack.component.input", "haystack.component.output"
_LLM_INPUT, _LLM_OUTPUT = "haystack.agent.step.llm.input", "haystack.agent.step.llm.output"
_TOOL_OUTPUT = "haystack.agent.step.tool.output"
_STRATEGY = "haystack.agent.hook.human_in_the_loop.strategy"


def _refine(span: SpanRecord, reading: Reading) -> Reading | None:
    attributes = span.attributes
    if reading.role == "tool":
        return _refined_tool(attributes, reading)
    if reading.role is None and str(attributes.get(_TYPE)).endswith("ChatGenerator"):
        reading.role = "model"
        reading.asked = (partial(FromChat(_INPUT, ("messages",)), span),)
        reading.answered = (partial(FromChat(_OUTPUT, ("replies",)), span),)
    if reading.role == "model":
        reading.tools = (partial(_offered, attributes),)
    return reading


def _refined_tool(attributes: Mapping[str, Any], reading: Reading) -> Reading | None:
    if f"{_STRATEGY}.type" in attributes:
        # A person was asked about the call. Where they agreed, it has a span of its own.
        reading.outcome = "denied"
        return reading if attributes.get(f"{_STRATEGY}.decision") == "reject" else None
    if attributes.get("haystack.tool.error") is True:
        said = plain(attributes.get(_TOOL_OUTPUT))
        reading.error = str(said["error"]) if isinstance(said, Mapping) and said.get("error") else "error"
    return reading


def _offered(attributes: Mapping[str, Any]) -> tuple[ToolDefinition, ...]:
    given = plain(attributes.get(_LLM_INPUT) or attributes.get(_INPUT))
    tools = given.get("tools") if isinstance(given, Mapping) else None
    return _definitions(tools)


def _definitions(tools: Any) -> tuple[ToolDefinition, ...]:
    """Tools, each as `{"type": class, "data": {name, description, parameters}}`."""
    items = tools if isinstance(tools, list) else ()
    return messages.definitions([item["data"] for item in items if isinstance(item, Mapping) and "data" in item])


CONVENTION = Convention(
    name="haystack",
    title="Haystack",
    source="https://github.com/deepset-ai/haystack",
    versions="2.20 to 3.4",
    roles={_TOOL: {ANY: "tool"}, "haystack.agent.max_steps": {ANY: "agent"}, _LLM_OUTPUT: {ANY: "model"}},
    signs=(_TYPE,),
    of={
        "tool": Places(
            name=(_TOOL,),
            call_id=("haystack.tool.call.id",),
            arguments=("haystack.agent.step.tool.input",),
            result=(_TOOL_OUTPUT,),
        ),
        "agent": Places(
            asked=(FromChat("haystack.agent.input", ("messages",)),),
            answered=(FromChat("haystack.agent.output", ("last_message", "messages")),),
        ),
        "model": Places(asked=(FromChat(_LLM_INPUT, ("messages",)),), answered=(FromChat(_LLM_OUTPUT, ("replies",)),)),
    },
    refine=_refine,
    notes=(
        "A component whose `haystack.component.type` ends in `ChatGenerator` is a model.",
        "A component `ToolInvoker` runs all calls of a step at once: they are read from the model's messages.",
        "A human-in-the-loop strategy that decides `reject` denied the call.",
        "`haystack.tool.error` says that a tool failed; the span itself stays without an error.",
        "A pipeline is no request by itself, since pipelines index documents, too.",
    ),
    content="HAYSTACK_CONTENT_TRACING_ENABLED=true",
)
