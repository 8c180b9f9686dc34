"""Model Context Protocol: spans of clients and servers; only the method `tools/call` is a tool call.

The client and the server write a span for each call, and often the framework around them does too; goldspan joins these
spans into one call. Other methods (`initialize`, `tools/list`, `prompts/get` ...) are not work of an agent.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from goldspan import semconv
from goldspan.content import envelopes, values
from goldspan.content.literals import plain_value
from goldspan.conventions.convention import AttributeMap, Convention
from goldspan.conventions.span_facts import RawValue, SpanFacts
from goldspan.model import SpanRecord

_METHOD = "mcp.method.name"
_RPC_METHOD = "rpc.method"
_CALL_METHOD = "tools/call"
_COMPONENT_KEY = "fastmcp.component.key"
_ARGUMENT_PREFIX = "mcp.request.argument."
_RESULT = "mcp.tool.result.content"
_ERROR_FLAGS = ("mcp.tool.result.is_error", "mcp.tool.is_error")


def _postprocess(span: SpanRecord, facts: SpanFacts) -> SpanFacts | None:
    attributes = span.attributes
    if _METHOD not in attributes and (facts.role is None or not _is_mcp(attributes)):
        return None
    if facts.role is None:
        return facts
    facts.name = facts.name or _tool_from_component_key(attributes.get(_COMPONENT_KEY))
    facts.span_name = _tool_from_span_name(span.name)
    if facts.arguments is None:
        arguments = {
            key.removeprefix(_ARGUMENT_PREFIX): plain_value(value)
            for key, value in attributes.items()
            if key.startswith(_ARGUMENT_PREFIX)
        }
        facts.arguments = RawValue(arguments) if arguments else None
    if any(str(attributes.get(key)).lower() == "true" for key in _ERROR_FLAGS):
        facts.error = values.message_text(attributes.get(_RESULT)) or "tool_error"
    return facts


def _is_mcp(attributes: Mapping[str, Any]) -> bool:
    return "mcp" in str(attributes.get("rpc.system")) or any(key.startswith("mcp.") for key in attributes)


def _tool_from_component_key(key: Any) -> str | None:
    """Return the tool's name from fastmcp's component key, such as `tool:greet@v2` or `greet`."""
    if not isinstance(key, str):
        return None
    return key.removeprefix("tool:").partition("@")[0] or None


def _tool_from_span_name(name: str) -> str | None:
    """Return the tool's name from the span's name, such as `tools/call add` or `MCP send tools/call add`."""
    return name.partition(f"{_CALL_METHOD} ")[2] or None


def _unwrap_arguments(value: Any) -> envelopes.CallArguments:
    return envelopes.unwrap_arguments(value, envelopes.mcp_request)


CONVENTION = Convention(
    name="mcp",
    title="Model Context Protocol",
    source="https://github.com/open-telemetry/semantic-conventions-genai/blob/main/docs/gen-ai/mcp.md, "
    "https://github.com/modelcontextprotocol/python-sdk, https://github.com/jlowin/fastmcp, Sentry's SDKs",
    is_shared=True,
    versions="all published; mcp 2, fastmcp 2.13 to 4",
    roles={_METHOD: {_CALL_METHOD: "tool"}, _RPC_METHOD: {_CALL_METHOD: "tool"}},
    attributes_by_role={
        "tool": AttributeMap(
            name=(semconv.TOOL_NAME, "mcp.tool.name"),
            arguments=(semconv.TOOL_CALL_ARGUMENTS, "mcp.request.arguments", "mcp.tool.arguments"),
            result=(semconv.TOOL_CALL_RESULT, _RESULT, "mcp.tool.result"),
            server=("mcp.server.name", "fastmcp.server.name"),
        )
    },
    unwrap_arguments=_unwrap_arguments,
    postprocess=_postprocess,
    notes=(
        "Only the method `tools/call` is a tool call.",
        "The name of the tool may also be in `fastmcp.component.key` or in the span's name.",
        "Each argument may be a separate attribute, such as `mcp.request.argument.city`.",
        "goldspan ignores `mcp.session.id`, because it identifies the session of the protocol, not of the user.",
    ),
    capture_setting=(
        "gen_ai.tool.call.arguments and gen_ai.tool.call.result are opt-in attributes of MCP instrumentations"
    ),
)
