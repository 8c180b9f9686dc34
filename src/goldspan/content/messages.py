"""Decodes model messages in every notation, and caches histories that turns repeat.

Instrumentations write JSON lists of messages (OpenTelemetry GenAI, OpenAI's chat and responses, Anthropic, Gemini,
Bedrock, the AI SDK, LangChain, pydantic-ai), numbered attributes (`llm.input_messages.0.message.role`), bodies of log
events, and the `repr` of Python objects.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from goldspan.content import envelopes, parts
from goldspan.content.flat_attributes import TEXT_TYPES, flat_rows, nest_row
from goldspan.content.literals import ReprObject, parse_json_list, parse_object, plain_value
from goldspan.content.parts import Message, Messages, ToolResult
from goldspan.content.standard_messages import decode_standard_message
from goldspan.model import ABSENT

_MAX_HISTORIES = 8
"""Histories whose beginning is compared with another text. Few programs extend more at the same time."""
_MAX_TEXTS = 4096
"""Texts whose messages are cached."""
_MAX_HISTORY_CHARS = 1_000_000
"""The longest history that is cached, in characters."""
_MAX_CACHED_CHARS = 4_000_000
"""The characters of the texts that are cached. Their messages take a multiple of them."""
_JSON_WHITESPACE = " \t\n\r"
"""The whitespace that JSON allows between tokens."""


class _MessageCache:
    """The decoded messages of some spans, and the most recently decoded histories, the latest last."""

    __slots__ = ("_chars", "histories", "message_by_row", "messages_by_text")

    def __init__(self) -> None:
        self.message_by_row: dict[Hashable, Message] = {}
        """Messages by the paths and the values of their numbered attributes."""
        self.messages_by_text: dict[str, Messages] = {}
        self.histories: dict[str, Messages] = {}
        """Messages by their JSON without the closing bracket."""
        self._chars = 0

    def make_room(self, chars: int) -> None:
        """Prepare for a text of this length: if the cache is full, forget all texts."""
        self._chars += chars
        entries = len(self.messages_by_text) + len(self.message_by_row)
        if entries >= _MAX_TEXTS or self._chars > _MAX_CACHED_CHARS:
            self.messages_by_text.clear()
            self.message_by_row.clear()
            self._chars = chars


_active_cache: ContextVar[_MessageCache | None] = ContextVar("goldspan_histories", default=None)


@contextmanager
def cache_histories() -> Iterator[None]:
    """Cache decoded messages within the block, for this thread or task only. A block inside uses the same cache.

    A text is decoded once, in however many spans and traces it is.
    """
    if _active_cache.get() is not None:
        yield
        return
    token = _active_cache.set(_MessageCache())
    try:
        yield
    finally:
        _active_cache.reset(token)


def from_json(raw: Any) -> Messages:
    """Return the messages in a JSON text or a structured value; none if it is not a list of messages.

    The objects that providers put around messages (`choices`, `candidates`, `output` ...) are unwrapped.
    """
    if raw is None:
        return ()
    if not isinstance(raw, str):
        return _decode_list(plain_value(raw))
    cache = _active_cache.get()
    if cache is None:
        return _decode_text(raw, {})
    found = cache.messages_by_text.get(raw)
    if found is None:
        found = _decode_text(raw, cache.histories)
        if len(raw) <= _MAX_HISTORY_CHARS:
            cache.make_room(len(raw))
            cache.messages_by_text[raw] = found
    return found


def _decode_text(text: str, histories: dict[str, Messages]) -> Messages:
    """Return the messages in a text. Of a JSON list, only the messages that no cached history has are decoded."""
    if text[:1] != "[":
        return _decode_list(plain_value(text))
    for beginning in filter(text.startswith, histories):
        found = histories[beginning]
        rest = text[len(beginning) :].lstrip(_JSON_WHITESPACE)
        if rest == "]":
            return found
        added = parse_json_list(f"[{rest[1:]}") if rest[:1] == "," else None
        if added:
            found += _decode_list(added)
            del histories[beginning]
            break
    else:
        items = parse_json_list(text)
        if items is None:
            return _decode_list(plain_value(text))
        found = _decode_list(items)
    if len(found) > 1 and len(text) <= _MAX_HISTORY_CHARS:
        histories[text.rstrip()[:-1]] = found
        if len(histories) > _MAX_HISTORIES:
            del histories[next(iter(histories))]
    return found


def may_contain_calls(text: str) -> bool:
    """Whether messages as text may contain a tool call or a tool result. `False` is certain."""
    folded = text.lower()
    # Every notation of a call contains one of these words. A word in prose only costs the decoding.
    # Not a loop, which takes twice as long: this runs on every text of a model.
    return "tool" in folded or "call" in folded or "arg" in folded or "input" in folded or "function" in folded


def from_flat(attributes: Mapping[str, Any], prefix: str, inner: str = "") -> Messages:
    """Return the messages in attributes `{prefix}.{number}.{inner}.{field}`, in the order of their numbers."""
    cache = _active_cache.get()
    known = {} if cache is None else cache.message_by_row
    found: list[Message] = []
    for paths, row in flat_rows(attributes, prefix):
        key = (inner, paths, row)
        try:
            message = known.get(key)
        except TypeError:  # an attribute with several values
            message = None
        if message is None:
            message = _decode_message(_message_fields(nest_row(paths, row), inner))
            if cache is not None and TEXT_TYPES.issuperset(map(type, row)):
                cache.make_room(sum([len(value) for value in row if type(value) is str]))
                known[key] = message
        found.append(message)
    return tuple(found)


def from_event(name: str, body: Any) -> Messages:
    """Return the message in a log event of the GenAI conventions: `gen_ai.user.message`, `gen_ai.choice` and so on."""
    read = plain_value(body) if not isinstance(body, str) or body.lstrip().startswith("{") else body
    item = read if isinstance(read, dict) else {"content": read}
    return from_json({**item, _EVENT: name})


def certain_messages(value: Any) -> Messages:
    """Return the messages in a value that is certainly a message or a list of messages; else none."""
    items = list(_items(value, (), _MAX_NESTING))
    return tuple(map(_decode_message, items)) if any(map(_is_message, items)) else ()


def _decode_list(value: Any) -> Messages:
    """Return the messages in a value. Each item is decoded independently of the others."""
    if isinstance(value, list):
        found: list[Message] = []
        for item in value:
            message = decode_standard_message(item) or _decode_plain_message(item) if isinstance(item, dict) else None
            if message is None:
                break
            found.append(message)
        else:
            return tuple(found)
    return tuple(map(_decode_message, _items(value, _HOLDERS, _MAX_NESTING)))


_MAX_NESTING = 6
"""Levels of lists and wrapping objects around messages that are unwrapped."""
_EVENT = "event.name"
_HOLDERS = (
    *("messages", "choices", "generations", "candidates", "contents", "all_messages", "chat_history"),
    *("inputs", "input", "outputs", "output", "update", "response", "request", "result"),
)
_PYTHON_CALL_KEYS = {"args", "kwargs"}
"""The keys of recorded function arguments, for example of a function that calls a model."""
_CONTENT = ("parts", "contents", "content", "blocks", "text")
_ROLES = {
    **dict.fromkeys(("user", "human"), "user"),
    **dict.fromkeys(("assistant", "ai", "model", "aimessagechunk", "chatbot"), "assistant"),
    **dict.fromkeys(("system", "developer"), "system"),
    **dict.fromkeys(("tool", "function"), "tool"),
}
_ROLE_BY_CLASS = {
    **dict.fromkeys(("HumanMessage", "HumanMessageChunk", "UserMessage", "UserPromptPart"), "user"),
    **dict.fromkeys(("AIMessage", "AIMessageChunk", "AssistantMessage", "ModelResponse"), "assistant"),
    **dict.fromkeys(("ResponseOutputMessage", "ChatCompletionMessage", "ResultMessage"), "assistant"),
    **dict.fromkeys(("ToolCallRequestEvent", "ToolCallSummaryMessage"), "assistant"),
    **dict.fromkeys(("ToolMessage", "FunctionMessage", "ToolCallExecutionEvent"), "tool"),
    "FunctionExecutionResultMessage": "tool",
    "SystemMessage": "system",
}


def _items(value: Any, holders: tuple[str, ...], levels: int) -> Iterator[Mapping[str, Any]]:
    """Yield the dictionaries that are messages from the lists and objects around them."""
    if isinstance(value, str):
        # Inside a list: JSON text, or the `repr` or `str` of a message.
        value = parse_object(value) or (plain_value(value) if value.lstrip().startswith("{") else None)
    elif _is_role_and_content(value):
        value = {"role": value[0], "content": value[1]}
    if isinstance(value, (list, tuple)) and levels:
        for item in value:
            yield from _items(item, holders, levels - 1)
    elif isinstance(value, dict):
        yield from _unwrap_holders(_unwrap_langchain(value), holders, levels)


def _is_role_and_content(value: Any) -> bool:
    """Whether a value is a message in the short form that LangChain accepts: `("user", "Where is order 8?")`."""
    return isinstance(value, (list, tuple)) and len(value) == 2 and value[0] in _PAIR_ROLES and bool(value[1])


_PAIR_ROLES = ("user", "human", "assistant", "ai", "system")


def _decode_plain_message(item: Mapping[str, Any]) -> Message | None:
    """Return a message that needs no unwrapping, which is cheap to recognise; `None` for any other item."""
    role = item.get("role")
    if (
        isinstance(role, str)
        and role in _ROLES
        and _WRAPPER_KEYS.isdisjoint(item)
        and not _CONTENT_KEYS.isdisjoint(item)
        and not isinstance(item.get("content"), dict)
    ):
        return _decode_message(item)
    return None


_WRAPPER_KEYS = frozenset({"message", "data", "lc"})
"""A message in a LangChain envelope or in another message has one of these keys."""


def _unwrap_holders(item: Mapping[str, Any], holders: tuple[str, ...], levels: int) -> Iterator[Mapping[str, Any]]:
    """Yield the item if it is a message, else the messages inside it."""
    for key in ("message", "content"):
        inner = item.get(key)
        if isinstance(inner, dict) and (key == "message" or "parts" in inner):
            inner = _unwrap_langchain(inner)
            yield inner if _role(inner) else {**inner, "role": "assistant" if key == "message" else _role(item)}
            return
    if levels and holders and not _is_message(item):
        for key in holders:
            if isinstance(item.get(key), (list, dict)) and item[key]:
                yield from _items(item[key], holders, levels - 1)
                return
        if item.keys() == _PYTHON_CALL_KEYS:
            for given in (item["args"], list(item["kwargs"].values()) if isinstance(item["kwargs"], dict) else ()):
                yield from _items(given, holders, levels - 1)
            return
    yield item


def _unwrap_langchain(item: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the fields of a message that LangChain serialized as a constructor or as `{"type", "data"}`."""
    fields = envelopes.constructor_fields(item)
    if fields is not None:
        return fields
    inner = item.get("data")
    if isinstance(inner, dict) and str(item.get("type")).lower() in _ROLES:
        return {**inner, "type": item["type"]}
    return item


def _is_message(item: Mapping[str, Any]) -> bool:
    """Whether a dictionary is certainly a message, or an item of OpenAI's responses that acts as one."""
    if _role(item) in _KNOWN_ROLES and not _CONTENT_KEYS.isdisjoint(item):
        return True
    kind = item.get("type")
    return isinstance(kind, str) and kind != "function" and parts.part_kind(item) not in ("", "text")


_KNOWN_ROLES = frozenset(_ROLES.values())
_CONTENT_KEYS = frozenset({*_CONTENT, "tool_calls"})


def _role(item: Mapping[str, Any]) -> str:
    """Return the role of a message; empty if the item states none. An unknown role is returned unchanged."""
    role = item.get("role")
    if isinstance(role, str) and role:
        return _ROLES.get(role) or _ROLES.get(role.lower(), role)
    kind = item.get("type")
    if isinstance(kind, str) and kind != "function" and kind.lower() in _ROLES:
        return _ROLES[kind.lower()]
    event = item.get(_EVENT)
    if isinstance(event, str) and event.startswith("gen_ai."):
        return "assistant" if event == "gen_ai.choice" else _ROLES.get(event.split(".")[1], "")
    if item.get("kind") in ("request", "response") and isinstance(item.get("parts"), list):
        return "assistant" if item["kind"] == "response" else _pydantic_ai_request_role(item["parts"])
    return _role_from_repr(item) if isinstance(item, ReprObject) else ""


def _pydantic_ai_request_role(content: list[Any]) -> str:
    """Return the role of a request of pydantic-ai, which may contain system prompts, user prompts and results."""
    kinds = {part.get("part_kind") for part in content if isinstance(part, dict)}
    return "user" if "user-prompt" in kinds else "tool" if kinds & {"tool-return", "retry-prompt"} else "system"


def _role_from_repr(item: ReprObject) -> str:
    """Return the role of a message parsed from a `repr`, by its class or by autogen's `source`."""
    name = item.type_name or str(item.get("type") or "")
    if name in _ROLE_BY_CLASS:
        return _ROLE_BY_CLASS[name]
    if name == "ModelRequest" or "content" not in item:
        return "user" if name == "ModelRequest" else ""
    source = item.get("source")
    if isinstance(source, str):
        return _ROLES.get(source.lower(), "assistant")
    # The `str` of a LangChain message has no class. Some fields are set only by a tool or a model.
    if "additional_kwargs" not in item:
        return ""
    if item.get("tool_call_id"):
        return "tool"
    by_model = item.get("usage_metadata") or item.get("response_metadata") or "tool_calls" in item
    return "assistant" if by_model else "user"


def _decode_message(item: Mapping[str, Any]) -> Message:
    role = _role(item)
    gathered = parts.MessageContent()
    for part in _content_parts(item, role):
        parts.add_part(part, gathered)
    if not _CALL_KEYS.isdisjoint(item):
        _add_calls(_sibling_calls(item, role), gathered)
    if not (gathered.tool_calls or gathered.tool_results) and (
        role == "tool" or not _RESULT_ID_FIELD_SET.isdisjoint(item)
    ):
        answer = _message_result(item, gathered)
        if answer is not None:
            gathered.tool_results.append(answer)
            role = "tool" if role == "user" else role
    texts, calls, answers = gathered.texts, gathered.tool_calls, gathered.tool_results
    text = texts[0] if len(texts) == 1 else "\n".join(texts) or None
    return Message(role or _role_from_content(gathered), text, tuple(calls), tuple(answers))


def _role_from_content(gathered: parts.MessageContent) -> str:
    """Return the role that the content implies; empty if none."""
    return "assistant" if gathered.tool_calls else "tool" if gathered.tool_results else ""


def _content_parts(item: Mapping[str, Any], role: str) -> Iterable[Any]:
    for key in _CONTENT:
        found = item.get(key)
        if not found:
            continue
        if isinstance(found, str):
            return _parse_content_blocks(found, only_text=role == "tool") or [found]
        if isinstance(found, list):
            return found
        if isinstance(found, dict) and role != "tool":
            return [found]
    return [item] if not role and parts.part_kind(item) != "text" else ()


def _parse_content_blocks(written: str, *, only_text: bool) -> list[Any]:
    """Return the content blocks that a tracer wrote as JSON text; none for prose and for other data."""
    if not written.lstrip().startswith("[{"):
        return []
    read = plain_value(written)
    if not isinstance(read, list) or (only_text and envelopes.content_blocks_text(read) is None):
        return []
    return read if all(map(parts.is_content_block, read)) else []


def _sibling_calls(item: Mapping[str, Any], role: str) -> list[Mapping[str, Any]]:
    """Return the calls in the separate field that all providers except Anthropic and Google use."""
    listed = item.get("tool_calls") or item.get("toolCalls")
    if not listed and isinstance(extra := item.get("additional_kwargs"), dict):
        listed = extra.get("tool_calls")
    listed = plain_value(listed)
    found: list[Mapping[str, Any]] = []
    if isinstance(listed, (list, tuple)):
        found += (call for call in map(plain_value, listed) if isinstance(call, dict))
    alone = item.get("function_call")
    if isinstance(alone, dict) and role:
        found.append(alone)
    elif item.get("function_call_name"):
        given = item.get("function_call_arguments_json", item.get("function_call_arguments", ABSENT))
        found.append({"name": item["function_call_name"], "arguments": given})
    return found


_CALL_KEYS = frozenset({"tool_calls", "toolCalls", "additional_kwargs", "function_call", "function_call_name"})


def _add_calls(calls: Iterable[Mapping[str, Any]], gathered: parts.MessageContent) -> None:
    """Add the calls beside a message's content, except those that the content contains already."""
    known = [call for call in gathered.tool_calls if call.call_id is None]
    for call in calls:
        inner = call.get("tool_call")
        requested = parts.parse_call(inner if isinstance(inner, dict) else call)
        if known and requested in known:
            known.remove(requested)
        else:
            gathered.add_call(requested)


def _message_result(item: Mapping[str, Any], gathered: parts.MessageContent) -> ToolResult | None:
    """Return the tool result that a whole message represents, or `None`."""
    extra = item.get("additional_kwargs")
    call_id = parts.first_id(item, _RESULT_ID_FIELDS)
    if call_id is None and _role(item) != "tool":
        return None
    call_id = call_id or parts.first_id(extra if isinstance(extra, dict) else item, (*_RESULT_ID_FIELDS, "id"))
    content = item.get("content")
    if not isinstance(content, (dict, list)) or gathered.texts:
        content = "\n".join(gathered.texts) or None
    if content is None and call_id is None:
        return None
    return ToolResult(call_id, envelopes.unwrap_result(content).value, envelopes.reports_failure(item))


_RESULT_ID_FIELDS = ("tool_call_id", "toolCallId", "tool_use_id", "call_id")
_RESULT_ID_FIELD_SET = frozenset(_RESULT_ID_FIELDS)


def _message_fields(item: Any, inner: str) -> Mapping[str, Any]:
    """Return the fields of one message without the key that flattening adds at each level."""
    if not isinstance(item, dict):
        return {}
    message = item.get(inner) if inner else item
    if not isinstance(message, dict):
        message = {}
    if isinstance(message.get("contents"), list):
        message = {**message, "contents": [_flatten_block(block) for block in message["contents"]]}
    # autogen writes results as JSON beside the message.
    results = item.get("function")
    if isinstance(results, list) and message.get("role") == "function":
        answers = (read for read in map(plain_value, results) if isinstance(read, dict))
        message = {**message, "parts": [{**answer, "type": "tool_result"} for answer in answers]}
    return message


def _flatten_block(block: Any) -> Any:
    inner = block.get("message_content") if isinstance(block, dict) else None
    return {**block, **inner} if isinstance(inner, dict) else block
