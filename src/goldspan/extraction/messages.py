"""Model messages in the notations of several conventions, read into one.

Two families cover nearly everything: JSON lists of messages (OpenTelemetry GenAI `parts`, OpenAI and Anthropic
`content` and `tool_calls`), and messages flattened into numbered attributes (`llm.input_messages.0.message.role`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from goldspan.extraction import values
from goldspan.extraction.reading import Answer, Message, Messages, RequestedCall
from goldspan.model import ABSENT, ToolDefinition

_RESULT_KEYS = ("response", "result", "content", "output")


def from_json(raw: Any) -> Messages:
    """Messages from a JSON text or a structured value; anything that is not a list of messages gives none."""
    read = values.plain(raw)
    if isinstance(read, dict):
        read = [read]
    if not isinstance(read, list):
        return ()
    return tuple(_message(item) for item in read if isinstance(item, Mapping))


def from_flat(attributes: Mapping[str, Any], prefix: str, inner: str = "") -> Messages:
    """Messages flattened into attributes `{prefix}.{number}.{inner}{field}`, in the order of their numbers."""
    return tuple(_message(item) for item in _unflattened(attributes, prefix, inner))


def definitions(raw: Any) -> tuple[ToolDefinition, ...]:
    """Tools offered to a model: the OpenAI, Anthropic and GenAI notations of a list of tools."""
    read = values.plain(raw)
    return tuple(_definitions(read if isinstance(read, list) else [read]))


def _definitions(items: Iterable[Any]) -> Iterator[ToolDefinition]:
    for item in items:
        tool = values.plain(item)
        if not isinstance(tool, Mapping):
            continue
        inner = _function(tool)
        name = inner.get("name")
        if not isinstance(name, str) or not name:
            continue
        schema = values.plain(inner.get("parameters") or inner.get("input_schema") or inner.get("inputSchema"))
        description = inner.get("description")
        yield ToolDefinition(
            name=name,
            description=description if isinstance(description, str) else None,
            parameters=schema if isinstance(schema, Mapping) else None,
        )


def _message(item: Mapping[str, Any]) -> Message:
    texts: list[str] = []
    calls: list[RequestedCall] = []
    answers: list[Answer] = []
    for part in _parts(item):
        if isinstance(part, str):
            texts.append(part)
        elif isinstance(part, Mapping):
            _sort_part(part, texts, calls, answers)
    for call in item.get("tool_calls") or ():
        if isinstance(call, Mapping):
            _add_call(call, calls)
    role = str(item.get("role") or "")
    if (call_id := item.get("tool_call_id")) and not answers:
        answers.append(Answer(str(call_id), values.plain("".join(texts)) if texts else None))
    elif role == "tool" and not answers and texts:
        answers.append(Answer(None, values.plain("".join(texts))))
    return Message(role, "\n".join(texts) or None, tuple(calls), tuple(answers))


def _parts(item: Mapping[str, Any]) -> Iterable[Any]:
    for key in ("parts", "contents", "content"):
        found = item.get(key)
        if isinstance(found, str) and found:
            # Some tracers write a list of content blocks as text, others just text.
            read = values.plain(found) if found.lstrip().startswith("[{") else found
            return read if isinstance(read, list) else [found]
        if isinstance(found, list) and found:
            return found
    return ()


def _sort_part(part: Mapping[str, Any], texts: list[str], calls: list[RequestedCall], answers: list[Answer]) -> None:
    kind = str(part.get("type") or "")
    nested = part.get("tool_call")
    if isinstance(nested, Mapping):
        _add_call(nested, calls)
    elif kind in ("tool_call", "tool_use", "function_call") and part.get("name"):
        _add_call(part, calls)
    elif kind in ("tool_call_response", "tool_result", "function_call_output"):
        call_id = part.get("id") or part.get("tool_use_id") or part.get("tool_call_id") or part.get("call_id")
        result = next((part[key] for key in _RESULT_KEYS if key in part), None)
        answers.append(
            Answer(str(call_id) if call_id else None, values.plain(result), bool(part.get("is_error", False)))
        )
    elif kind in ("", "text", "input_text", "output_text"):
        said = part.get("content", part.get("text"))
        if isinstance(said, str) and said:
            texts.append(said)


def _add_call(call: Mapping[str, Any], calls: list[RequestedCall]) -> None:
    """Add a call, unless the same message says it twice (in `tool_calls` and again in `content`)."""
    inner = _function(call)
    name = inner.get("name")
    if not isinstance(name, str) or not name:
        return
    call_id = call.get("id") or call.get("call_id")
    if call_id and any(known.call_id == call_id for known in calls):
        return
    arguments = next((inner[key] for key in ("arguments", "input", "args") if key in inner), ABSENT)
    calls.append(RequestedCall(name, arguments, str(call_id) if call_id else None))


def _function(item: Mapping[str, Any]) -> Mapping[str, Any]:
    """OpenAI wraps name and arguments (or schema) in `function`; others write them plainly."""
    inner = item.get("function")
    return inner if isinstance(inner, Mapping) else item


def _unflattened(attributes: Mapping[str, Any], prefix: str, inner: str) -> list[dict[str, Any]]:
    """Numbered attributes as nested dictionaries; numbered levels become lists in the order of their numbers."""
    tree: dict[str, Any] = {}
    start = prefix + "."
    for key, value in attributes.items():
        if not key.startswith(start):
            continue
        path = key[len(start) :].split(".")
        node = tree
        for step in path[:-1]:
            below = node.setdefault(step, {})
            if not isinstance(below, dict):
                break
            node = below
        else:
            node.setdefault(path[-1], value)
    return [_pruned(item, inner) for item in _listed(tree)]


def _listed(node: Mapping[str, Any]) -> list[Any]:
    return [node[key] for key in sorted((key for key in node if key.isdigit()), key=int)]


def _pruned(item: Any, inner: str) -> dict[str, Any]:
    """One message's fields, without the wrapping names that flattening puts around each level."""
    fields = item.get(inner, {}) if inner and isinstance(item, dict) else item
    if not isinstance(fields, dict):
        return {}
    message = {key: value for key, value in fields.items() if not isinstance(value, dict)}
    for key in ("tool_calls", "contents"):
        if isinstance(fields.get(key), dict):
            message[key] = [_block(block) for block in _listed(fields[key])]
    return message


def _block(block: Any) -> Any:
    if not isinstance(block, dict):
        return block
    flat: dict[str, Any] = {}
    for key, value in block.items():
        if key == "message_content" and isinstance(value, dict):
            flat.update(value)
        elif key == "tool_call" and isinstance(value, dict):
            flat.update({"type": "tool_call", **value, **value.get("function", {})})
        else:
            flat[key] = value
    return flat
