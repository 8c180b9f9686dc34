"""Compares tool names, and parses the definitions of tools offered to a model, in all notations."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import lru_cache, wraps
from itertools import islice
from typing import Any, TypeVar

from goldspan.content.flat_attributes import TEXT_TYPES, FlatRows
from goldspan.content.literals import plain_value
from goldspan.model import ToolDefinition
from goldspan.model.name_folding import SEPARATORS, fold_name

_WORD_STARTS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_NAMESPACE = re.compile(r"(?:functions|default_api)[.:](?=.)", re.DOTALL)
_MCP = re.compile(r"mcp__(?P<server>.+?)__(?P<tool>.+)", re.DOTALL)
_NON_WORD = re.compile(r"[\W_]+")
_MAX_PREFIX_SEPARATORS = 16
"""The most separators in a name that are tried as the end of a server prefix."""
_HANDOFF_PREFIXES = ("handoff to ", "handoff_to_", "transfer_to_")


@lru_cache(maxsize=16384)
def name_words(name: str) -> tuple[str, ...]:
    """Return the words of a name in lower case: `searchHotels` and `search_hotels` have the same two."""
    return tuple(filter(None, SEPARATORS.split(_WORD_STARTS.sub("_", name).casefold())))


def undecorate(raw: str, servers: Collection[str] = ()) -> tuple[str, str | None]:
    """Split a decorated name into the tool's own name and its MCP server, or `None` if it names no server.

    Known decorations are the namespaces `functions.` and `default_api.`, which models add to a tool's name, and
    `mcp__server__tool`, which most MCP hosts show to the model. Other forms (`server_tool`, `server.tool`,
    `mcp-server-tool`, ...) may be plain names, so they are split only if the server is one of the known `servers`. The
    server is returned in the spelling of `servers`.
    """
    if servers and (found := _split_known_server(raw, servers)):
        return found
    return _split_known_prefix(raw)


def is_same_name(one: str, other: str) -> bool:
    """Whether two names can refer to the same tool. The longer one may begin with its server's name."""
    return name_suffixes(one)[0] in name_suffixes(other) or name_suffixes(other)[0] in name_suffixes(one)


@lru_cache(maxsize=16384)
def name_suffixes(name: str) -> tuple[str, ...]:
    """Return the folded name and its folded suffixes after each separator. One of them is the tool's own name.

    `orders_add` may be the tool `add` of the server `orders`. `research` has no separator and cannot be `search`.
    """
    own = undecorate(name)[0]
    ends = islice(_NON_WORD.finditer(own), _MAX_PREFIX_SEPARATORS)
    return tuple(dict.fromkeys(filter(None, (fold_name(own), *(fold_name(own[gap.end() :]) for gap in ends))))) or ("",)


@lru_cache(maxsize=16384)
def server_prefix(decorated: str, *, tool_name: str) -> str | None:
    """Return the server in a decorated name whose tool name is known, or `None` if the name has another form.

    Returns `orders` for `orders_add` if an MCP span names the tool `add`. Hosts may also change the separators within
    the tool's own name.
    """
    name = _without_namespace(decorated)
    if fold_name(name) == fold_name(tool_name):
        return None
    for gap in SEPARATORS.finditer(name):
        if fold_name(name[gap.end() :]) == fold_name(tool_name):
            return _server_without_prefix(name[: gap.start()])
    return None


@lru_cache(maxsize=16384)
def handoff_target(name: str) -> str | None:
    """Return the target agent in the name of a hand-off, or `None` if the name has another form.

    Frameworks offer a hand-off to the model as a tool `transfer_to_X`. A plain tool may have such a name, too, so the
    name alone does not make a call a hand-off.
    """
    return next((name[len(prefix) :] for prefix in _HANDOFF_PREFIXES if name.startswith(prefix)), None)


@lru_cache(maxsize=16384)
def _split_known_prefix(raw: str) -> tuple[str, str | None]:
    name = _without_namespace(raw)
    hit = _MCP.fullmatch(name)
    return (hit["tool"], hit["server"]) if hit else (name, None)


def _without_namespace(raw: str) -> str:
    hit = _NAMESPACE.match(raw)
    return raw[hit.end() :] if hit else raw


def _split_known_server(raw: str, servers: Collection[str]) -> tuple[str, str] | None:
    splits = ((_tool_after_server(raw, server), server) for server in servers if server)
    found = [(tool, server) for tool, server in splits if tool]
    # With the servers `orders` and `orders_eu`, `orders_eu_add` belongs to the second: the shortest rest is the tool.
    return min(found, key=lambda split: (len(split[0]), split), default=None)


@lru_cache(maxsize=16384)
def _tool_after_server(raw: str, server: str) -> str:
    """Return the rest of a decorated name after the server; empty if the name does not begin with the server."""
    name = _without_namespace(raw)
    owners = (fold_name(server), fold_name(f"mcp_{server}"))
    rests = (name[gap.end() :] for gap in SEPARATORS.finditer(name) if fold_name(name[: gap.start()]) in owners)
    return next(rests, "")


def _server_without_prefix(prefix: str) -> str | None:
    """Return the server in the prefix of a tool's name: `orders` for `orders`, `mcp__orders` and `mcp-orders`."""
    first, *rest = SEPARATORS.split(prefix, maxsplit=1)
    server = (rest[0] if rest else "") if first == "mcp" else prefix
    return server or None


S = TypeVar("S")
T = TypeVar("T")
_MAX_CACHED_SOURCES = 256
_MAX_CACHED_TEXT = 32_768
"""The longest text that is cached, in characters."""
_KEY_CHARS = 64
"""How many characters of a text are a part of its key."""


def cache_by_text(read: Callable[[Any], T]) -> Callable[[Any], T]:
    """Cache a parser by its text. Every model span of a service repeats the same few tool definitions.

    All callers share the parsed value, so they must not modify it.
    """
    cached_read = _cache_by_key(read)

    @wraps(read)
    def wrapper(raw: Any) -> T:
        if not isinstance(raw, str) or len(raw) > _MAX_CACHED_TEXT:
            return read(raw)
        return cached_read(raw, (len(raw), raw[-_KEY_CHARS:]))

    return wrapper


def cache_by_rows(read: Callable[[FlatRows], T]) -> Callable[[FlatRows], T]:
    """Cache a parser of numbered attributes by their names and texts, as `cache_by_text` does for one text."""
    cached_read = _cache_by_key(read)

    @wraps(read)
    def wrapper(rows: FlatRows) -> T:
        texts = [value for _, values in rows for value in values if value is not None]
        if not TEXT_TYPES.issuperset(map(type, texts)):
            return read(rows)
        size = sum(map(len, texts))
        return cached_read(rows, (size, texts[-1][-_KEY_CHARS:])) if 0 < size <= _MAX_CACHED_TEXT else read(rows)

    return wrapper


def _cache_by_key(read: Callable[[S], T]) -> Callable[[S, tuple[int, str]], T]:
    """Cache a parser of texts. Each key, a length and the last characters, caches the latest text that has it.

    Comparing two equal texts takes an eighth of the time of hashing one.
    """
    latest: dict[tuple[int, str], tuple[S, T]] = {}

    def cached_read(source: S, key: tuple[int, str]) -> T:
        known = latest.get(key)
        if known is not None and known[0] == source:
            return known[1]
        value = read(source)
        if len(latest) >= _MAX_CACHED_SOURCES:
            latest.clear()
        latest[key] = source, value
        return value

    return cached_read


@cache_by_text
def tool_definitions(raw: Any) -> tuple[ToolDefinition, ...]:
    """Parse tool definitions in the notations of OpenAI, Anthropic, Gemini, Bedrock, MCP, LangChain and GenAI."""
    return tuple(_iter_definitions(plain_value(raw), 4))


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
_parse_schema = cache_by_text(plain_value)
_READ_ONLY = ("readOnlyHint", "read_only_hint")
_DESTRUCTIVE = ("destructiveHint", "destructive_hint")


def _iter_definitions(found: Any, levels: int) -> Iterator[ToolDefinition]:
    if isinstance(found, (list, tuple)) and levels:
        for item in found:
            yield from (
                tool_definitions(item) if isinstance(item, str) else _iter_definitions(plain_value(item), levels - 1)
            )
    elif isinstance(found, dict):
        held = next((found[key] for key in _HOLDERS if isinstance(found.get(key), list)), None)
        if held is not None:
            yield from _iter_definitions(held, levels - 1)
        elif (tool := _parse_definition(found)) is not None:
            yield tool


def _parse_definition(tool: Mapping[str, Any]) -> ToolDefinition | None:
    inner = next((tool[key] for key in _WRAPPERS if isinstance(tool.get(key), dict)), tool)
    name, description = inner.get("name"), inner.get("description")
    if not isinstance(name, str) or not name:
        return None
    schema = _parse_schema(next((inner[key] for key in _SCHEMAS if inner.get(key)), None))
    if isinstance(schema, dict) and isinstance(schema.get("json"), dict):
        schema = schema["json"]
    return ToolDefinition(
        name=name,
        description=description if isinstance(description, str) else None,
        parameters=schema if isinstance(schema, dict) else None,
        read_only=_is_read_only([tool] if inner is tool else [inner, tool]),
    )


def _is_read_only(notations: Iterable[Mapping[str, Any]]) -> bool | None:
    """Return whether an MCP server's annotations declare the tool read-only; `None` if they do not state it."""
    annotations = [notes for tool in notations for notes in _mcp_annotations(tool)]
    hint = next((hint for notes in annotations if (hint := _boolean_hint(notes, _READ_ONLY)) is not None), None)
    # A destructive tool is not read-only. A tool that is not destructive may still add data.
    return False if hint is None and any(_boolean_hint(notes, _DESTRUCTIVE) for notes in annotations) else hint


def _mcp_annotations(tool: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the annotations in the protocol's place, then those in the metadata (pydantic-ai, LangChain)."""
    metadata = tool.get("metadata")
    inside = metadata.get("annotations") if isinstance(metadata, Mapping) else None
    return (place for place in (tool.get("annotations"), inside, metadata) if isinstance(place, Mapping))


def _boolean_hint(notes: Mapping[str, Any], spellings: Iterable[str]) -> bool | None:
    return next((notes[key] for key in spellings if isinstance(notes.get(key), bool)), None)
