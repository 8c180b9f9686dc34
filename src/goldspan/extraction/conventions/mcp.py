"""The Model Context Protocol: spans of clients and servers, of which only `tools/call` is a tool call.

A call leaves a span in the client, one in the server, and often one more in the framework around them; they are joined
into one. Everything else (`initialize`, `tools/list`, `prompts/get` ...) says nothing about what an agent did.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from goldspan import semconv
from goldspan.extraction import envelopes, values
from goldspan.extraction.convention import Convention, Places
from goldspan.extraction.notation import plain
from goldspan.extraction.reading import Reading, Written
from goldspan.model import SpanRecord

_METHOD = "mcp.method.name"
_RPC_METHOD = "rpc.method"
_CALL = "tools/call"
_COMPONENT = "fastmcp.component.key"
_ARGUMENT = "mcp.request.argument."
_RESULT = "mcp.tool.result.content"
_FAILED = ("mcp.tool.result.is_error", "mcp.tool.is_error")


def _refine(span: SpanRecord, reading: Reading) -> Reading | None:
    attributes = span.attributes
    if _METHOD not in attributes and (reading.role is None or not _is_mcp(attributes)):
        return None
    if reading.role is None:
        return reading
    reading.name = reading.name or _component(attributes.get(_COMPONENT))
    reading.span_name = _last_word(span.name)
    if reading.arguments is None:
        one_by_one = {
            key.removeprefix(_ARGUMENT): plain(value) for key, value in attributes.items() if key.startswith(_ARGUMENT)
        }
        reading.arguments = Written(one_by_one) if one_by_one else None
    if any(str(attributes.get(key)).lower() == "true" for key in _FAILED):
        reading.error = values.text(attributes.get(_RESULT)) or "tool_error"
    return reading


def _is_mcp(attributes: Mapping[str, Any]) -> bool:
    return "mcp" in str(attributes.get("rpc.system")) or any(key.startswith("mcp.") for key in attributes)


def _component(key: Any) -> str | None:
    """The tool in a key of fastmcp's, such as `tool:greet@v2` or `greet`."""
    if not isinstance(key, str):
        return None
    return key.removeprefix("tool:").partition("@")[0] or None


def _last_word(name: str) -> str | None:
    """The tool in a span's name such as `tools/call add` or `MCP send tools/call add`."""
    return name.partition(f"{_CALL} ")[2] or None


def _arguments(value: Any) -> values.Request:
    return values.request(value, envelopes.mcp_request)


CONVENTION = Convention(
    name="mcp",
    title="Model Context Protocol",
    source="https://github.com/open-telemetry/semantic-conventions-genai/blob/main/docs/gen-ai/mcp.md, "
    "https://github.com/modelcontextprotocol/python-sdk, https://github.com/jlowin/fastmcp, Sentry's SDKs",
    shared=True,
    versions="all published; mcp 2, fastmcp 2.13 to 4",
    roles={_METHOD: {_CALL: "tool"}, _RPC_METHOD: {_CALL: "tool"}},
    of={
        "tool": Places(
            name=(semconv.TOOL_NAME, "mcp.tool.name"),
            arguments=(semconv.TOOL_CALL_ARGUMENTS, "mcp.request.arguments", "mcp.tool.arguments"),
            result=(semconv.TOOL_CALL_RESULT, _RESULT, "mcp.tool.result"),
            server=("mcp.server.name", "fastmcp.server.name"),
        )
    },
    open_arguments=_arguments,
    refine=_refine,
    notes=(
        "Only the method `tools/call` is a tool call.",
        "The name of the tool is looked for in `fastmcp.component.key` and in the span's name, too.",
        "Arguments may stand in one attribute each: `mcp.request.argument.city`.",
        "`mcp.session.id` is the session of the protocol, not of the user, and is not read.",
    ),
    content="gen_ai.tool.call.arguments and gen_ai.tool.call.result are opt-in attributes of MCP instrumentations",
)
