"""Haystack's chat messages, whoever traces them: as JSON, or as `repr` shows them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from goldspan.extraction import messages
from goldspan.extraction.notation import Constructed, constructed, plain
from goldspan.extraction.reading import Messages
from goldspan.model import SpanRecord


@dataclass(frozen=True, slots=True)
class FromChat:
    """Haystack's chat messages, in a list under some keys of what went into or came out of a component."""

    attribute: str
    keys: tuple[str, ...]

    def __call__(self, span: SpanRecord) -> Messages:
        """The messages of a span."""
        held = plain(span.attributes.get(self.attribute))
        found = next((held[key] for key in self.keys if key in held), None) if isinstance(held, Mapping) else None
        listed = found if isinstance(found, list) else [found]
        return messages.from_json([_spelled_out(item) for item in map(shown, listed) if isinstance(item, Mapping)])

    def __str__(self) -> str:
        """How the documentation names the place."""
        return f"`{self.keys[0]}` in `{self.attribute}`"


def shown(item: Any) -> Any:
    """A value out of JSON text, or an object as `repr` shows it."""
    return (constructed(item) if isinstance(item, str) else None) or plain(item)


def _spelled_out(message: Mapping[str, Any]) -> Mapping[str, Any]:
    """A message whose parts say what they are; in older versions the keys of messages begin with an underscore."""
    content = message.get("content", message.get("_content"))
    parts = content if isinstance(content, list) else [content]
    return {"role": message.get("role", message.get("_role")), "content": [_part(part) for part in parts]}


def _part(part: Any) -> Any:
    if isinstance(part, Constructed) and part.type_name in _KEYS:
        part = {_KEYS[part.type_name]: dict(part)}
    answer = part.get("tool_call_result") if isinstance(part, Mapping) else None
    if not isinstance(answer, Mapping):
        return part
    origin = answer.get("origin")
    call_id = origin.get("id") if isinstance(origin, Mapping) else None
    failed = answer.get("error") is True
    return {"type": "tool_result", "id": call_id, "result": answer.get("result"), "is_error": failed}


_KEYS = {"ToolCall": "tool_call", "ToolCallResult": "tool_call_result"}
"""How JSON marks what `repr` shows by a class."""
