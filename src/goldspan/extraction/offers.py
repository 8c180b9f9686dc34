"""The tools that were offered to a model, in the notations of several providers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
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
    )
