"""Decodes messages in the JSON of OpenTelemetry's GenAI conventions in one pass, for `messages`.

Most messages have this notation. Decoding them here takes three fifths of the time of `messages` and `parts`, which
decode every notation and give the same result.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from goldspan.content import envelopes
from goldspan.content.parts import ENDS_OF_OBJECTS, Message, RequestedCall, ToolResult, unwrap_vercel_output

_ROLES = frozenset({"user", "assistant", "system", "tool"})
_MESSAGE_KEYS = frozenset({"role", "parts", "finish_reason"})
_TEXT_KEYS = frozenset({"type", "content"})
_CALL_KEYS = frozenset({"type", "id", "name", "arguments"})
_RESULT_KEYS: Mapping[frozenset[str], str] = {
    frozenset({"type", "id", "response"}): "response",
    frozenset({"type", "id", "name", "result"}): "result",
}
"""The keys of a tool result, each with the key of its value: pydantic-ai writes the second form."""


def decode_standard_message(item: Mapping[str, Any]) -> Message | None:
    """Return the message if its text parts, calls and results have the standard form; `None` for any other message."""
    role, content = item.get("role"), item.get("parts")
    if type(role) is not str or role not in _ROLES or type(content) is not list or not content:
        return None
    if not _MESSAGE_KEYS.issuperset(item):
        return None
    texts: list[str] = []
    calls: list[RequestedCall] = []
    results: list[ToolResult] = []
    for part in content:
        if type(part) is not dict:
            return None
        kind = part.get("type")
        if kind == "text":
            text = part.get("content")
            if not text or type(text) is not str or text[-1] in ENDS_OF_OBJECTS or part.keys() != _TEXT_KEYS:
                return None
            texts.append(text)
            continue
        call_id = part.get("id") if kind == "tool_call" or kind == "tool_call_response" else None
        if not call_id or type(call_id) is not str:
            return None
        if kind == "tool_call":
            name = part.get("name")
            if not name or type(name) is not str or part.keys() != _CALL_KEYS:
                return None
            calls.append(RequestedCall(name, part["arguments"], call_id))
        else:
            key = _RESULT_KEYS.get(frozenset(part))
            if key is None:
                return None
            found = envelopes.unwrap_result(part[key], unwrap_vercel_output)
            results.append(ToolResult(call_id, found.value, found.is_error))
    if (len(calls) > 1 and len({call.call_id for call in calls}) < len(calls)) or (role == "tool" and not results):
        return None
    text = texts[0] if len(texts) == 1 else "\n".join(texts) or None
    return Message(role, text, tuple(calls), tuple(results))
