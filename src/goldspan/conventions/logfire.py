"""Logfire: spans of application functions, and of integrations that do not follow GenAI conventions.

Logfire does not mark spans as tools. A function is a tool if the application named its span accordingly, as in
`@logfire.instrument("execute_tool search")`. Each argument is one attribute, the result is `return`, and
`logfire.json_schema` lists these attributes. The GenAI convention reads the spans that Pydantic AI writes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from goldspan.content import envelopes, literals, messages
from goldspan.content.tools import tool_definitions
from goldspan.conventions.convention import Convention
from goldspan.conventions.span_facts import Messages, RawValue, Role, SpanFacts
from goldspan.model import SpanRecord, ToolDefinition

_TEMPLATE = "logfire.msg_template"
_SCHEMA = "logfire.json_schema"
_RETURN_KEY = "return"
_GENAI_TEMPLATE = re.compile(r"(?P<role>execute_tool|invoke_agent) (?:\{(?P<key>[\w.]+)[^}]*\}|(?P<name>[^\s{]+))")
_ROLE_BY_OPERATION: dict[str, Role] = {"execute_tool": "tool", "invoke_agent": "agent"}


def _postprocess(span: SpanRecord, facts: SpanFacts) -> SpanFacts | None:
    template = str(span.attributes.get(_TEMPLATE))
    match = _GENAI_TEMPLATE.match(template)
    if match is not None:
        return _postprocess_function(span, facts, match)
    for prefix, postprocess in _POSTPROCESSOR_BY_TEMPLATE_PREFIX.items():
        if template.startswith(prefix):
            return postprocess(span, facts)
    if span.scope.endswith("claude_agent_sdk") and "tool_input" in span.attributes:
        return _postprocess_claude_tool(span, facts)
    return None


def _postprocess_function(span: SpanRecord, facts: SpanFacts, match: re.Match[str]) -> SpanFacts:
    """Read a function whose span the application named by the GenAI conventions."""
    attributes = span.attributes
    facts.role = _ROLE_BY_OPERATION[match["role"]]
    facts.span_name = match["name"] or str(attributes.get(match["key"]))
    recorded = _function_values(attributes, without=(_RETURN_KEY, match["key"]))
    if facts.role == "tool":
        facts.arguments = None if recorded is None else RawValue(recorded)
        facts.result = RawValue(attributes[_RETURN_KEY]) if _RETURN_KEY in attributes else None
    else:
        facts.name = facts.agent = facts.span_name
        facts.input, facts.output = recorded, attributes.get(_RETURN_KEY)
    return facts


def _function_values(attributes: Mapping[str, Any], *, without: tuple[str | None, ...]) -> dict[str, Any] | None:
    """Return the attributes that the span's schema lists as values of the function; `None` without a schema."""
    schema = literals.plain_value(attributes.get(_SCHEMA))
    properties = schema.get("properties") if isinstance(schema, Mapping) else None
    if not isinstance(properties, Mapping):
        return None
    return {
        key: _decode_value(attributes[key], kind)
        for key, kind in properties.items()
        if key in attributes and key not in without
    }


def _decode_value(raw: Any, kind: Any) -> Any:
    """Decode objects and lists, which Logfire writes as JSON. Text that looks like a number remains text."""
    is_nested = isinstance(kind, Mapping) and kind.get("type") in ("object", "array")
    return literals.plain_value(raw) if is_nested else raw


def _postprocess_agents_function(span: SpanRecord, facts: SpanFacts) -> SpanFacts:
    attributes = span.attributes
    facts.role, facts.name = "tool", _non_empty_text(attributes.get("name"))
    facts.arguments, facts.result = RawValue(attributes.get("input")), RawValue(attributes.get("output"))
    facts.error = _agents_error(attributes)
    mcp_data = literals.plain_value(attributes.get("mcp_data"))
    facts.server = _non_empty_text(mcp_data.get("server")) if isinstance(mcp_data, Mapping) else None
    return facts


def _postprocess_agents_handoff(span: SpanRecord, facts: SpanFacts) -> SpanFacts:
    facts.role, facts.kind = "tool", "handoff"
    facts.name = _non_empty_text(span.attributes.get("to_agent"))
    return facts


def _postprocess_agents_agent(span: SpanRecord, facts: SpanFacts) -> SpanFacts:
    facts.role = "agent"
    facts.name = facts.agent = _non_empty_text(span.attributes.get("name"))
    return facts


def _postprocess_agents_trace(span: SpanRecord, facts: SpanFacts) -> SpanFacts:
    facts.role = "entry"
    group = span.attributes.get("group_id")
    facts.session_id = None if group == "null" else _non_empty_text(group)
    return facts


def _agents_error(attributes: Mapping[str, Any]) -> str | None:
    error = literals.plain_value(attributes.get("error"))
    if isinstance(error, Mapping):
        data = error.get("data")
        error = (data.get("error") if isinstance(data, Mapping) else None) or error.get("message")
    return None if error is None else str(error)


def _postprocess_model(span: SpanRecord, facts: SpanFacts) -> SpanFacts:
    facts.role = "model"
    facts.input_messages = (partial(_input_messages, span.attributes),)
    facts.output_messages = (partial(_output_messages, span.attributes),)
    facts.tool_definitions = (partial(_offered_tools, span.attributes),)
    return facts


def _input_messages(attributes: Mapping[str, Any]) -> Messages:
    all_messages = _all_messages(attributes)
    return all_messages[: len(all_messages) - len(_output_messages(attributes))]


def _output_messages(attributes: Mapping[str, Any]) -> Messages:
    """Return the last messages of the assistant, because input and output are in one list."""
    all_messages = _all_messages(attributes)
    begin = len(all_messages)
    while begin and all_messages[begin - 1].role == "assistant":
        begin -= 1
    return all_messages[begin:]


def _all_messages(attributes: Mapping[str, Any]) -> Messages:
    events = literals.plain_value(attributes.get("events"))
    if isinstance(events, list):
        return messages.from_json(events)
    request, response = (literals.plain_value(attributes.get(key)) for key in ("request_data", "response_data"))
    history = request.get("messages") if isinstance(request, Mapping) else None
    reply = response.get("message") if isinstance(response, Mapping) else None
    return messages.from_json([*(history if isinstance(history, list) else ()), *((reply,) if reply else ())])


def _offered_tools(attributes: Mapping[str, Any]) -> tuple[ToolDefinition, ...]:
    """Return the tools in the request, or in the response, which repeats them for the Agents SDK's Responses API."""
    for key in ("request_data", "response"):
        payload = literals.plain_value(attributes.get(key))
        if isinstance(payload, Mapping) and payload.get("tools"):
            return tool_definitions(payload["tools"])
    return ()


def _postprocess_mcp_call(span: SpanRecord, facts: SpanFacts) -> SpanFacts:
    request = literals.plain_value(span.attributes.get("request"))
    parameters = request.get("params") if isinstance(request, Mapping) else None
    if isinstance(parameters, Mapping):
        facts.role, facts.name = "tool", _non_empty_text(parameters.get("name"))
        facts.arguments = RawValue(parameters.get("arguments") or {})
    if "response" in span.attributes:
        facts.result = RawValue(span.attributes["response"], envelopes.unwrap_result)
    return facts


def _postprocess_claude_conversation(span: SpanRecord, facts: SpanFacts) -> SpanFacts:
    attributes = span.attributes
    facts.role = "entry"
    facts.input, facts.session_id = attributes.get("prompt"), _non_empty_text(attributes.get("session_id"))
    return facts


def _postprocess_claude_turn(span: SpanRecord, facts: SpanFacts) -> SpanFacts:
    message = {"role": "assistant", "content": literals.plain_value(span.attributes.get("content"))}
    facts.role = "model"
    facts.output_messages = (partial(messages.from_json, [message]),)
    return facts


def _postprocess_claude_tool(span: SpanRecord, facts: SpanFacts) -> SpanFacts:
    attributes = span.attributes
    facts.role, facts.span_name = "tool", span.name
    facts.arguments = RawValue(attributes["tool_input"])
    facts.result = RawValue(attributes["tool_response"]) if "tool_response" in attributes else None
    facts.error = _non_empty_text(attributes.get("error"))
    return facts


def _non_empty_text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


_POSTPROCESSOR_BY_TEMPLATE_PREFIX: dict[str, Callable[[SpanRecord, SpanFacts], SpanFacts]] = {
    "Function: {name}": _postprocess_agents_function,
    "Handoff: {from_agent}": _postprocess_agents_handoff,
    "Agent run: {name": _postprocess_agents_agent,
    "OpenAI Agents trace: {name}": _postprocess_agents_trace,
    "Responses API": _postprocess_model,
    "Chat completion with ": _postprocess_model,
    "Chat Completion with ": _postprocess_model,
    "Message with ": _postprocess_model,
    "MCP request: tools/call": _postprocess_mcp_call,
    "MCP server handle request: tools/call": _postprocess_mcp_call,
    "claude.conversation": _postprocess_claude_conversation,
    "claude.assistant.turn": _postprocess_claude_turn,
}
"""Postprocessor by the prefix of the message template that a Logfire integration writes."""

CONVENTION = Convention(
    name="logfire",
    title="Logfire",
    source="https://github.com/pydantic/logfire",
    versions="3 to 5",
    marker_attributes=(_TEMPLATE,),
    postprocess=_postprocess,
    notes=(
        "A function with a span named `execute_tool X` is a tool, and one with a span named `invoke_agent X` an agent.",
        "The arguments of the function are the attributes that `logfire.json_schema` lists, except `return`.",
        "Message templates identify the integrations: OpenAI, its Agents SDK, Anthropic, MCP 1 and Claude Agent SDK.",
    ),
    capture_setting="@logfire.instrument(record_return=True)",
)
