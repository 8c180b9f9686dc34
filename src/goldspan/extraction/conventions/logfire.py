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

from goldspan.extraction import messages, values
from goldspan.extraction.convention import Convention
from goldspan.extraction.reading import Messages, Reading, Role, Written
from goldspan.model import SpanRecord, ToolDefinition

_TEMPLATE = "logfire.msg_template"
_SCHEMA = "logfire.json_schema"
_RETURN = "return"
_NAMED = re.compile(r"(?P<role>execute_tool|invoke_agent) (?:\{(?P<key>[\w.]+)[^}]*\}|(?P<name>[^\s{]+))")
_NAMED_ROLES: dict[str, Role] = {"execute_tool": "tool", "invoke_agent": "agent"}


def _refine(span: SpanRecord, reading: Reading) -> Reading | None:
    template = str(span.attributes.get(_TEMPLATE))
    named = _NAMED.match(template)
    if named is not None:
        return _function(span, reading, named)
    for beginning, read in _INTEGRATIONS.items():
        if template.startswith(beginning):
            return read(span, reading)
    if span.scope.endswith("claude_agent_sdk") and "tool_input" in span.attributes:
        return _claude_tool(span, reading)
    return None


def _function(span: SpanRecord, reading: Reading, named: re.Match[str]) -> Reading:
    """A function that its author named by the GenAI conventions."""
    attributes = span.attributes
    reading.role = _NAMED_ROLES[named["role"]]
    reading.span_name = named["name"] or str(attributes.get(named["key"]))
    recorded = _recorded(attributes, without=(_RETURN, named["key"]))
    if reading.role == "tool":
        reading.arguments = None if recorded is None else Written(recorded)
        reading.result = Written(attributes[_RETURN]) if _RETURN in attributes else None
    else:
        reading.name = reading.agent = reading.span_name
        reading.input, reading.output = recorded, attributes.get(_RETURN)
    return reading


def _recorded(attributes: Mapping[str, Any], *, without: tuple[str | None, ...]) -> dict[str, Any] | None:
    """The attributes of a span that are values of its function; `None` where it does not say which are."""
    schema = values.plain(attributes.get(_SCHEMA))
    listed = schema.get("properties") if isinstance(schema, Mapping) else None
    if not isinstance(listed, Mapping):
        return None
    return {
        key: _value(attributes[key], kind) for key, kind in listed.items() if key in attributes and key not in without
    }


def _value(written: Any, kind: Any) -> Any:
    """Only objects and lists are written as JSON: a text that looks like a number is a text."""
    nested = isinstance(kind, Mapping) and kind.get("type") in ("object", "array")
    return values.plain(written) if nested else written


def _agents_function(span: SpanRecord, reading: Reading) -> Reading:
    attributes = span.attributes
    reading.role, reading.name = "tool", _text(attributes.get("name"))
    reading.arguments, reading.result = Written(attributes.get("input")), Written(attributes.get("output"))
    reading.error = _agents_error(attributes)
    served_by = values.plain(attributes.get("mcp_data"))
    reading.server = _text(served_by.get("server")) if isinstance(served_by, Mapping) else None
    return reading


def _agents_handoff(span: SpanRecord, reading: Reading) -> Reading:
    reading.role, reading.kind = "tool", "handoff"
    reading.name = _text(span.attributes.get("to_agent"))
    return reading


def _agents_agent(span: SpanRecord, reading: Reading) -> Reading:
    reading.role = "agent"
    reading.name = reading.agent = _text(span.attributes.get("name"))
    return reading


def _agents_trace(span: SpanRecord, reading: Reading) -> Reading:
    reading.role = "entry"
    group = span.attributes.get("group_id")
    reading.session_id = None if group == "null" else _text(group)
    return reading


def _agents_error(attributes: Mapping[str, Any]) -> str | None:
    error = values.plain(attributes.get("error"))
    if isinstance(error, Mapping):
        data = error.get("data")
        error = (data.get("error") if isinstance(data, Mapping) else None) or error.get("message")
    return None if error is None else str(error)


def _model(span: SpanRecord, reading: Reading) -> Reading:
    reading.role = "model"
    reading.asked = (partial(_asked, span.attributes),)
    reading.answered = (partial(_answered, span.attributes),)
    reading.tools = (partial(_offered, span.attributes),)
    return reading


def _asked(attributes: Mapping[str, Any]) -> Messages:
    said = _conversation(attributes)
    return said[: len(said) - len(_answered(attributes))]


def _answered(attributes: Mapping[str, Any]) -> Messages:
    """What the assistant said last: question and answer stand in one list."""
    said = _conversation(attributes)
    begin = len(said)
    while begin and said[begin - 1].role == "assistant":
        begin -= 1
    return said[begin:]


def _conversation(attributes: Mapping[str, Any]) -> Messages:
    events = values.plain(attributes.get("events"))
    if isinstance(events, list):
        return messages.from_json(events)
    request, response = (values.plain(attributes.get(key)) for key in ("request_data", "response_data"))
    said = request.get("messages") if isinstance(request, Mapping) else None
    reply = response.get("message") if isinstance(response, Mapping) else None
    return messages.from_json([*(said if isinstance(said, list) else ()), *((reply,) if reply else ())])


def _offered(attributes: Mapping[str, Any]) -> tuple[ToolDefinition, ...]:
    """The tools in what was sent or, of the Responses API in the Agents SDK, in what came back and repeats them."""
    for key in ("request_data", "response"):
        told = values.plain(attributes.get(key))
        if isinstance(told, Mapping) and told.get("tools"):
            return messages.definitions(told["tools"])
    return ()


def _mcp_call(span: SpanRecord, reading: Reading) -> Reading:
    request = values.plain(span.attributes.get("request"))
    parameters = request.get("params") if isinstance(request, Mapping) else None
    if isinstance(parameters, Mapping):
        reading.role, reading.name = "tool", _text(parameters.get("name"))
        reading.arguments = Written(parameters.get("arguments") or {})
    if "response" in span.attributes:
        reading.result = Written(span.attributes["response"], values.result)
    return reading


def _claude_conversation(span: SpanRecord, reading: Reading) -> Reading:
    attributes = span.attributes
    reading.role = "entry"
    reading.input, reading.session_id = attributes.get("prompt"), _text(attributes.get("session_id"))
    return reading


def _claude_turn(span: SpanRecord, reading: Reading) -> Reading:
    said = {"role": "assistant", "content": values.plain(span.attributes.get("content"))}
    reading.role = "model"
    reading.answered = (partial(messages.from_json, [said]),)
    return reading


def _claude_tool(span: SpanRecord, reading: Reading) -> Reading:
    attributes = span.attributes
    reading.role, reading.span_name = "tool", span.name
    reading.arguments = Written(attributes["tool_input"])
    reading.result = Written(attributes["tool_response"]) if "tool_response" in attributes else None
    reading.error = _text(attributes.get("error"))
    return reading


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


_INTEGRATIONS: dict[str, Callable[[SpanRecord, Reading], Reading]] = {
    "Function: {name}": _agents_function,
    "Handoff: {from_agent}": _agents_handoff,
    "Agent run: {name": _agents_agent,
    "OpenAI Agents trace: {name}": _agents_trace,
    "Responses API": _model,
    "Chat completion with ": _model,
    "Chat Completion with ": _model,
    "Message with ": _model,
    "MCP request: tools/call": _mcp_call,
    "MCP server handle request: tools/call": _mcp_call,
    "claude.conversation": _claude_conversation,
    "claude.assistant.turn": _claude_turn,
}
"""How the message templates of Logfire's integrations begin."""

CONVENTION = Convention(
    name="logfire",
    title="Logfire",
    source="https://github.com/pydantic/logfire",
    versions="3 to 5",
    signs=(_TEMPLATE,),
    refine=_refine,
    notes=(
        "A function is a tool if its span is called `execute_tool X`, an agent if it is called `invoke_agent X`.",
        "Its arguments are the attributes that `logfire.json_schema` lists, except `return`.",
        "The integrations (OpenAI, its Agents SDK, Anthropic, MCP 1, Claude Agent SDK) are known by message templates.",
    ),
    content="@logfire.instrument(record_return=True)",
)
