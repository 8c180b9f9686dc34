"""Anthropic's SDKs (Python, TypeScript): GenAI spans of model calls, the tool runner and its tools.

`anthropic.tool_result.content` holds a tool's result as content blocks. By default the SDKs record only metadata.
"""

from __future__ import annotations

from goldspan.conventions.convention import AttributeMap, Convention

_STOP_REASON = "anthropic.message.stop_reason"

CONVENTION = Convention(
    name="anthropic_sdk",
    title="Anthropic SDKs",
    source="https://github.com/anthropics/anthropic-sdk-typescript, https://github.com/anthropics/anthropic-sdk-python",
    versions="1.10 (TypeScript), 2.10 (Python)",
    marker_attributes=("anthropic.tool_result.content", "anthropic.session.id", _STOP_REASON),
    common_attributes=AttributeMap(
        result=("anthropic.tool_result.content",), session_id=("anthropic.session.id",), finish_reason=(_STOP_REASON,)
    ),
    capture_setting='the telemetry option contentMode: "content"',
)
