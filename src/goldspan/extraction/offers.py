"""The tools that were offered to a model, in the notations of several providers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache, wraps
from typing import Any, TypeVar

from goldspan.extraction.notation import plain
from goldspan.model import ToolDefinition

T = TypeVar("T")
_LONGEST = 32_768
"""Characters of a text that is remembered."""


def read_once(read: Callable[[Any], T]) -> Callable[[Any], T]:
    """Read the same text once. What a model is offered is repeated on each of its spans, in one request as in the next.

    A service has few such texts, and what they give is shared: it must not be changed.
    """
    known = lru_cache(maxsize=256)(read)

    @wraps(read)
    def remembered(raw: Any) -> T:
        return known(raw) if isinstance(raw, str) and len(raw) <= _LONGEST else read(raw)

    return remembered


@read_once
def definitions(raw: Any) -> tuple[ToolDefinition, ...]:
    """Tools offered to a model: the notations of OpenAI, Anthropic, Gemini, Bedrock, MCP, LangChain and GenAI."""
    return tuple(_definitions(plain(raw), 4))


_HOLDERS = ("tools", "function_declarations", "functionDeclarations")
_WRAPPERS = ("function", "toolSpec", "tool_spec")
_SCHEMAS = (
    "parameters",
    "input_schema",
    "inputSchema",
    "parameters_json_schema",
    "parametersJsonSchema",
    "args_schema",
    "inputs",
)
_schema = read_once(plain)
_READ_ONLY = ("readOnlyHint", "read_only_hint")
_DESTRUCTIVE = ("destructiveHint", "destructive_hint")


def _definitions(found: Any, levels: int) -> Iterator[ToolDefinition]:
    if isinstance(found, (list, tuple)) and levels:
        for item in found:
            yield from definitions(item) if isinstance(item, str) else _definitions(plain(item), levels - 1)
    elif isinstance(found, dict):
        held = next((found[key] for key in _HOLDERS if isinstance(found.get(key), list)), None)
        if held is not None:
            yield from _definitions(held, levels - 1)
        elif (tool := _definition(found)) is not None:
            yield tool


def _definition(tool: Mapping[str, Any]) -> ToolDefinition | None:
    inner = next((tool[key] for key in _WRAPPERS if isinstance(tool.get(key), dict)), tool)
    name, description = inner.get("name"), inner.get("description")
    if not isinstance(name, str) or not name:
        return None
    schema = _schema(next((inner[key] for key in _SCHEMAS if inner.get(key)), None))
    if isinstance(schema, dict) and isinstance(schema.get("json"), dict):
        schema = schema["json"]
    return ToolDefinition(
        name=name,
        description=description if isinstance(description, str) else None,
        parameters=schema if isinstance(schema, dict) else None,
        read_only=_read_only([tool] if inner is tool else [inner, tool]),
    )


def _read_only(notations: Iterable[Mapping[str, Any]]) -> bool | None:
    """What the annotations of an MCP server say of its tool, in whichever notation of the tool they stand."""
    told = [notes for tool in notations for notes in _annotations(tool)]
    hint = next((hint for notes in told if (hint := _hint(notes, _READ_ONLY)) is not None), None)
    # Only what is not read-only can destroy; what does not destroy may still add.
    return False if hint is None and any(_hint(notes, _DESTRUCTIVE) for notes in told) else hint


def _annotations(tool: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The annotations as the protocol places them, then in the metadata: pydantic-ai's, and LangChain's of its own."""
    metadata = tool.get("metadata")
    inside = metadata.get("annotations") if isinstance(metadata, Mapping) else None
    return (place for place in (tool.get("annotations"), inside, metadata) if isinstance(place, Mapping))


def _hint(notes: Mapping[str, Any], spellings: Iterable[str]) -> bool | None:
    return next((notes[key] for key in spellings if isinstance(notes.get(key), bool)), None)
