"""Logfire: spans of people's own functions, and of Logfire's integrations that do not follow the GenAI conventions.

Logfire marks no span as a tool. A function is one where its span is called so, as in
`@logfire.instrument("execute_tool search")`; its arguments are one attribute each, its result is `return`, and
`logfire.json_schema` lists them all. What Pydantic AI writes through Logfire is read by the GenAI convention.
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
    named = _GENAI_TEMPLATE.match(template)
    if named is not None:
        return _postprocess_function(span, facts, named)
    for beginning, read in _POSTPROCESSORS.items():
        if template.startswith(beginning):
            return read(span, facts)
    if span.scope.endswith("claude_agent_sdk") and "tool_input" in span.attributes:
        return _postprocess_claude_tool(span, facts)
    return None


def _postprocess_function(span: SpanRecord, facts: SpanFacts, named: re.Match[str]) -> SpanFacts:
    """A function that its author named by the GenAI conventions."""
    attributes = span.attributes
    facts.role = _ROLE_BY_OPERATION[named["role"]]
    facts.span_name = named["name"] or str(attributes.get(named["key"]))
    recorded = _function_values(attributes, without=(_RETURN_KEY, named["key"]))
    if facts.role == "tool":
        facts.arguments = None if recorded is None else RawValue(recorded)
        facts.result = RawValue(attributes[_RETURN_KEY]) if _RETURN_KEY in attributes else None
    else:
        facts.name = facts.agent = facts.span_name
        facts.input, facts.output = recorded, attributes.get(_RETURN_KEY)
    return facts


def _function_values(attributes: Mapping[str, Any], *, without: tuple[str | None, ...]) -> dict[str, Any] | None:
    """The attributes of a span that are values of its function; `None` where it does not say which are."""
    schema = literals.plain_value(attributes.get(_SCHEMA))
    listed = schema.get("properties") if isinstance(schema, Mapping) else None
    if not isinstance(listed, Mapping):
        return None
    return {
        key: _decode_value(attributes[key], kind)
        for key, kind in listed.items()
        if key in attributes and key not in without
    }


def _decode_value(raw: Any, kind: Any) -> Any:
    """Only objects and lists are written as JSON: a text that looks like a number is a text."""
    nested = isinstance(kind, Mapping) and kind.get("type") in ("object", "array")
    return literals.plain_value(raw) if nested else raw


def _postprocess_agents_function(span: SpanRecord, facts: SpanFacts) -> SpanFacts:
    attributes = span.attributes
    facts.role, facts.name = "tool", _non_empty_text(attributes.get("name"))
    facts.arguments, facts.result = RawValue(attributes.get("input")), RawValue(attributes.get("output"))
    facts.error = _agents_error(attributes)
    served_by = literals.plain_value(attributes.get("mcp_data"))
    facts.server = _non_empty_text(served_by.get("server")) if isinstance(served_by, Mapping) else None
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
    said = _all_messages(attributes)
    return said[: len(said) - len(_output_messages(attributes))]


def _output_messages(attributes: Mapping[str, Any]) -> Messages:
    """What the assistant said last: question and answer stand in one list."""
    said = _all_messages(attributes)
    begin = len(said)
    while begin and said[begin - 1].role == "assistant":
        begin -= 1
    return said[begin:]


def _all_messages(attributes: Mapping[str, Any]) -> Messages:
    events = literals.plain_value(attributes.get("events"))
    if isinstance(events, list):
        return messages.from_json(events)
    request, response = (literals.plain_value(attributes.get(key)) for key in ("request_data", "response_data"))
    said = request.get("messages") if isinstance(request, Mapping) else None
    reply = response.get("message") if isinstance(response, Mapping) else None
    return messages.from_json([*(said if isinstance(said, list) else ()), *((reply,) if reply else ())])


def _offered_tools(attributes: Mapping[str, Any]) -> tuple[ToolDefinition, ...]:
    """The tools in what was sent or, of the Responses API in the Agents SDK, in what came back and repeats them."""
    for key in ("request_data", "response"):
        told = literals.plain_value(attributes.get(key))
        if isinstance(told, Mapping) and told.get("tools"):
            return tool_definitions(told["tools"])
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
    said = {"role": "assistant", "content": literals.plain_value(span.attributes.get("content"))}
    facts.role = "model"
    facts.output_messages = (partial(messages.from_json, [said]),)
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


_POSTPROCESSORS: dict[str, Callable[[SpanRecord, SpanFacts], SpanFacts]] = {
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
"""How the message templates of Logfire's integrations begin."""

CONVENTION = Convention(
    name="logfire",
    title="Logfire",
    source="https://github.com/pydantic/logfire",
    versions="3 to 5",
    marker_attributes=(_TEMPLATE,),
    postprocess=_postprocess,
    notes=(
        "A function is a tool if its span is called `execute_tool X`, an agent if it is called `invoke_agent X`.",
        "Its arguments are the attributes that `logfire.json_schema` lists, except `return`.",
        "The integrations (OpenAI, its Agents SDK, Anthropic, MCP 1, Claude Agent SDK) are known by message templates.",
    ),
    capture_setting="@logfire.instrument(record_return=True)",
)
