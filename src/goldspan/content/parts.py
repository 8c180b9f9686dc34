"""Defines messages, calls and tool results, and parses the parts of a message in every notation.

A part is identified by its `type`, by the key that Gemini, Bedrock and Genkit use instead, or by its class name. Other
parts (reasoning, images, citations) are ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from goldspan.content import envelopes
from goldspan.content.literals import ReprObject, parse_object, plain_value
from goldspan.model import ABSENT, ToolKind


class RequestedCall(NamedTuple):
    """A tool call that a model requested in a message."""

    name: str
    arguments: Any = ABSENT
    """As written: text or structured values."""
    call_id: str | None = None
    kind: ToolKind = "tool"
    """`hosted` if the message states that the provider runs the tool."""
    result: Any = ABSENT
    """The result of a hosted call, which is in the same message."""
    error: str | None = None
    """The error of a hosted call."""
    server: str | None = None
    """The MCP server that owns the tool, if the message names it."""


class ToolResult(NamedTuple):
    """The result of a tool call that was returned to the model."""

    call_id: str | None
    result: Any = None
    is_error: bool = False


class Message(NamedTuple):
    """One message of a model's input or output."""

    role: str
    """`system`, `user`, `assistant` or `tool`."""
    text: str | None = None
    tool_calls: tuple[RequestedCall, ...] = ()
    tool_results: tuple[ToolResult, ...] = ()

    @property
    def is_from_user(self) -> bool:
        """Whether the user wrote the message. Some clients return tool results under the user's role."""
        return self.role == "user" and (bool(self.text) or not self.tool_results)


Messages = tuple[Message, ...]


class MessageContent:
    """Collects the content of the parts of one message."""

    __slots__ = ("texts", "tool_calls", "tool_results")

    def __init__(self) -> None:
        """Start without content."""
        self.texts: list[str] = []
        self.tool_calls: list[RequestedCall] = []
        self.tool_results: list[ToolResult] = []

    def add_call(self, call: RequestedCall | None) -> None:
        """Add a call, unless the message contains it already (in `tool_calls` and again in `content`)."""
        if call is None:
            return
        if (
            self.tool_calls
            and call.call_id is not None
            and any(known.call_id == call.call_id for known in self.tool_calls)
        ):
            return
        self.tool_calls.append(call)

    def add_hosted_result(self, answer: ToolResult) -> None:
        """Attach a result to the hosted call in the same message; without such a call, add it as a tool result."""
        for place, call in enumerate(self.tool_calls):
            if call.call_id == answer.call_id and call.kind == "hosted":
                error = envelopes.to_text(answer.result) if answer.is_error else None
                self.tool_calls[place] = call._replace(result=answer.result, error=error)
                return
        self.tool_results.append(answer)


def add_part(part: Any, into: MessageContent) -> None:
    """Add the content of a part to its message."""
    if isinstance(part, dict):
        kind = part.get("type")
        handle = _HANDLERS.get(kind if isinstance(kind, str) and kind in _HANDLERS else part_kind(part))
        if handle is not None:
            handle(part, into)
    elif isinstance(part, str):
        _add_text(part, into)


def part_kind(part: Mapping[str, Any]) -> str:
    """Return the kind of a part as a key of `_HANDLERS`; empty if unknown."""
    kind = part.get("type") or part.get("part_kind")
    if isinstance(kind, str):
        if kind in _HANDLERS:
            return kind
        kind = kind.replace("-", "_").lower()
        if kind in _HANDLERS:
            return kind
        return "hosted_answer" if kind.endswith("_tool_result") else ""
    if isinstance(part, ReprObject) and part.type_name in _KIND_BY_CLASS:
        return _KIND_BY_CLASS[part.type_name]
    for key, alone in _KIND_BY_KEY.items():
        if isinstance(part.get(key), dict):
            return alone
    if not _TEXT_KEY_SET.isdisjoint(part):
        return "tool_result" if "call_id" in part and "content" in part else "text"
    called = not _ARGUMENT_KEYS.isdisjoint(part) and any(key in part for key in _NAMES)
    return "tool_call" if called or isinstance(part.get("function"), dict) else ""


def is_content_block(item: Any) -> bool:
    """Whether an item of a list is certainly a part of a message, not a value that a person or a tool wrote."""
    if not isinstance(item, dict):
        return False
    if isinstance(item, ReprObject) and item.type_name in _KIND_BY_CLASS:
        return True
    kind = item.get("type") or item.get("part_kind")
    return isinstance(kind, str) and kind != "function" and (part_kind(item) != "" or kind in _IGNORED_KINDS)


def parse_call(call: Mapping[str, Any], *, kind: ToolKind = "tool") -> RequestedCall | None:
    """Parse a requested call, inside OpenAI's `function` or at the top level; `None` if it has no name."""
    inner = call.get("function")
    if not isinstance(inner, dict):
        inner = call.get("custom")
        if not isinstance(inner, dict):
            inner = call
    name = _first_value(inner, _NAMES)
    if not isinstance(name, str) or not name:
        return None
    requested = RequestedCall(name, _first_value(inner, _ARGUMENTS, ABSENT), first_id(call, _CALL_ID_KEYS), kind)
    return requested if _PROVIDER_KEYS.isdisjoint(call) else _with_provider(call, requested)


def _with_provider(call: Mapping[str, Any], requested: RequestedCall) -> RequestedCall:
    """Add the provider or the MCP server that runs the tool to a call."""
    if call.get("builtin") is True or call.get("providerExecuted") is True:
        requested = requested._replace(kind="hosted")
    server = call.get("server_label") or call.get("server_name")
    return requested._replace(server=server) if isinstance(server, str) and server else requested


_PROVIDER_KEYS = frozenset({"builtin", "providerExecuted", "server_label", "server_name"})


def parse_result(part: Mapping[str, Any], *, failed: bool = False) -> ToolResult:
    """Parse a tool result."""
    found = envelopes.unwrap_result(_first_value(part, _RESULTS), unwrap_vercel_output)
    is_error = failed or found.is_error or envelopes.reports_failure(part)
    return ToolResult(first_id(part, _RESULT_ID_KEYS) or found.call_id, found.value, is_error)


def first_id(item: Mapping[str, Any], keys: tuple[str, ...]) -> str | None:
    """Return the first id that an item has under one of the keys."""
    for key in keys:
        if key in item:
            found = item[key]
            if isinstance(found, (str, int)) and found != "":
                return str(found)
    return None


_NAMES = ("name", "toolName", "tool_name", "function_name")
_CALL_ID_KEYS = ("call_id", "toolCallId", "tool_call_id", "toolUseId", "tool_id", "id", "ref")
_RESULT_ID_KEYS = ("call_id", "toolCallId", "tool_call_id", "tool_use_id", "toolUseId", "tool_id", "id", "ref")
_ARGUMENTS = ("arguments", "input", "args", "tool_kwargs", "toolInput")
_RESULTS = ("response", "result", "output", "content", "value", "tool_output")
_ARGUMENT_KEYS = frozenset(_ARGUMENTS)
_TEXT_KEYS = ("content", "text", "refusal")
_TEXT_KEY_SET = frozenset(_TEXT_KEYS)
_HOSTED_ARGUMENTS = ("action", "queries", "query", "code", "input", "prompt", "arguments")
_HOSTED_RESULTS = ("output", "outputs", "results", "result")
_IGNORED_KINDS = frozenset(
    {"thinking", "redacted_thinking", "reasoning", "image", "image_url", "input_image", "document"}
)


def _first_value(item: Mapping[str, Any], keys: tuple[str, ...], missing: Any = None) -> Any:
    for key in keys:
        if key in item:
            return item[key]
    return missing


def _add_text(text: Any, into: MessageContent) -> None:
    """Add a text. A text that shows an object is a part that an instrumentation wrote with `repr`."""
    if not isinstance(text, str) or not text:
        return
    shown = _parse_shown_parts(text) if text[-1] in ENDS_OF_OBJECTS else []
    if not shown:
        into.texts.append(text)
    for part in shown:
        add_part(part, into)


ENDS_OF_OBJECTS = frozenset(")]")
"""The last characters of a text that shows an object or a list of objects."""


def _parse_shown_parts(text: str) -> list[Any]:
    """Parse the parts in a text `Type(...)` or `[Type(...), ...]`; none for prose."""
    if text.partition("(")[0].removeprefix("[") not in _KIND_BY_CLASS:
        return []
    read = plain_value(text) if text.startswith("[") else parse_object(text)
    parts = read if isinstance(read, list) else [read]
    return parts if all(isinstance(part, ReprObject) and is_content_block(part) for part in parts) else []


def _add_text_part(part: Mapping[str, Any], into: MessageContent) -> None:
    if part.get("thought") is True:
        return
    text = _first_value(part, _TEXT_KEYS)
    if isinstance(text, str):
        _add_text(text, into)
        return
    for item in text if isinstance(text, list) else [text]:
        _add_text(item.get("text") if isinstance(item, dict) else item, into)


def _add_call_part(part: Mapping[str, Any], into: MessageContent) -> None:
    inner = part.get("tool_call")
    into.add_call(parse_call(inner if isinstance(inner, dict) else part))


def _add_result_part(part: Mapping[str, Any], into: MessageContent) -> None:
    answer = parse_result(part)
    if part.get("builtin") is True or part.get("providerExecuted") is True:
        into.add_hosted_result(answer)
    else:
        into.tool_results.append(answer)


def _add_bedrock_result(part: Mapping[str, Any], into: MessageContent) -> None:
    found = envelopes.bedrock_result(part["toolResult"])
    into.tool_results.append(
        ToolResult(found.call_id, found.value, found.is_error) if found else parse_result(part["toolResult"])
    )


def _add_retry_result(part: Mapping[str, Any], into: MessageContent) -> None:
    """Add the failed call that pydantic-ai asks the model to retry. Without a tool name, it is not about a call."""
    if part.get("tool_name"):
        into.tool_results.append(parse_result(part, failed=True))


def _handle_nested(
    key: str, handle: Callable[[Mapping[str, Any], MessageContent], None]
) -> Callable[[Any, MessageContent], None]:
    """Return a handler of parts that hold the actual part under one key."""

    def inner(part: Mapping[str, Any], into: MessageContent) -> None:
        found = part.get(key)
        handle(found if isinstance(found, dict) else part, into)

    return inner


def _add_hosted_call(part: Mapping[str, Any], into: MessageContent) -> None:
    """Add a call that the provider runs. The message often holds its arguments and its result."""
    call = parse_call(part, kind="hosted")
    if call is None:
        kind = part_kind(part)
        call = RequestedCall(kind.removesuffix("_call"), call_id=first_id(part, _CALL_ID_KEYS), kind="hosted")
    if call.arguments is ABSENT:
        inner = part.get("server_tool_call")
        call = call._replace(arguments=_hosted_arguments(inner if isinstance(inner, dict) else part))
    result = next((part[key] for key in _HOSTED_RESULTS if part.get(key) is not None), ABSENT)
    error = part.get("error")
    if error is None and part.get("status") in ("failed", "incomplete"):
        error = part["status"]
    into.add_call(
        call._replace(
            result=result if result is ABSENT else envelopes.unwrap_result(result).value,
            error=None if error is None else envelopes.to_text(error),
        )
    )


def _hosted_arguments(part: Mapping[str, Any]) -> Any:
    """Return the arguments of a hosted call: those of a generic call, or the fields that are known arguments."""
    arguments = next((part[key] for key in ("arguments", "input", "action") if isinstance(part.get(key), dict)), None)
    if arguments is not None:
        return arguments
    found = {key: part[key] for key in _HOSTED_ARGUMENTS if part.get(key) is not None}
    return found or ABSENT


def _add_hosted_result(part: Mapping[str, Any], into: MessageContent) -> None:
    response = part.get("server_tool_call_response")
    response = response if isinstance(response, dict) else part
    found = envelopes.unwrap_result(_first_value(response, _RESULTS, response))
    is_error = found.is_error or any(map(envelopes.reports_failure, (part, response))) or _is_error_type(found.value)
    into.add_hosted_result(ToolResult(first_id(part, _RESULT_ID_KEYS), found.value, is_error))


def _is_error_type(value: Any) -> bool:
    """Whether the type of a result is that of an error: `web_search_tool_result_error`."""
    kind = value.get("type") if isinstance(value, dict) else None
    return isinstance(kind, str) and kind.endswith("_error")


def unwrap_vercel_output(value: Any) -> envelopes.CallResult | None:
    """Unwrap the AI SDK's result: `{"type": "json", "value": ...}`, with `error-text` or `error-json` on failure."""
    if not isinstance(value, dict) or value.get("type") not in _VERCEL_OUTPUTS or "value" not in value:
        return None
    text = envelopes.content_blocks_text(value["value"])
    return envelopes.CallResult(
        plain_value(value["value"] if text is None else text), is_error="error" in value["type"]
    )


_VERCEL_OUTPUTS = ("text", "json", "content", "error-text", "error-json")
_HANDLERS: dict[str, Callable[[Mapping[str, Any], MessageContent], None]] = {
    "text": _add_text_part,
    "input_text": _add_text_part,
    "output_text": _add_text_part,
    "refusal": _add_text_part,
    "user_prompt": _add_text_part,
    # Calls: GenAI and LangChain, Anthropic, OpenAI, the AI SDK and pydantic-ai (`tool-call`).
    **dict.fromkeys(("tool_call", "tool_use", "function_call", "custom_tool_call", "function"), _add_call_part),
    "nested_call": _add_call_part,
    "gemini_call": _handle_nested("functionCall", _add_call_part),
    "gemini_call_2": _handle_nested("function_call", _add_call_part),
    "bedrock_call": _handle_nested("toolUse", _add_call_part),
    "genkit_call": _handle_nested("toolRequest", _add_call_part),
    # Results, in the same order.
    **dict.fromkeys(
        ("tool_call_response", "tool_result", "function_call_output", "custom_tool_call_output"), _add_result_part
    ),
    **dict.fromkeys(("tool_return", "computer_call_output", "local_shell_call_output"), _add_result_part),
    "retry_prompt": _add_retry_result,
    "gemini_answer": _handle_nested("functionResponse", _add_result_part),
    "gemini_answer_2": _handle_nested("function_response", _add_result_part),
    "bedrock_answer": _add_bedrock_result,
    "genkit_answer": _handle_nested("toolResponse", _add_result_part),
    # Tools that the provider runs.
    **dict.fromkeys(("server_tool_call", "server_tool_use", "mcp_tool_use", "builtin_tool_call"), _add_hosted_call),
    **dict.fromkeys(
        ("web_search_call", "file_search_call", "code_interpreter_call", "computer_call"), _add_hosted_call
    ),
    **dict.fromkeys(("image_generation_call", "mcp_call", "local_shell_call", "shell_call"), _add_hosted_call),
    **dict.fromkeys(("server_tool_call_response", "builtin_tool_return", "hosted_answer"), _add_hosted_result),
    **dict.fromkeys(("mcp_tool_result", "web_search_tool_result"), _add_hosted_result),
}
_KIND_BY_KEY = {
    "tool_call": "nested_call",
    "functionCall": "gemini_call",
    "function_call": "gemini_call_2",
    "toolUse": "bedrock_call",
    "toolRequest": "genkit_call",
    "functionResponse": "gemini_answer",
    "function_response": "gemini_answer_2",
    "toolResult": "bedrock_answer",
    "toolResponse": "genkit_answer",
}
"""Kinds of parts without a type, by their key."""
_KIND_BY_CLASS = {
    **dict.fromkeys(
        ("ResponseFunctionToolCall", "FunctionCall", "ToolCall", "ToolCallPart", "ToolUseBlock"), "tool_call"
    ),
    **dict.fromkeys(("ToolCallBlock", "ToolSelection", "ChatCompletionMessageFunctionToolCall"), "tool_call"),
    **dict.fromkeys(("FunctionExecutionResult", "ToolReturnPart", "ToolResultBlock"), "tool_result"),
    "ResponseFunctionWebSearch": "web_search_call",
    "ResponseFileSearchToolCall": "file_search_call",
    "ResponseCodeInterpreterToolCall": "code_interpreter_call",
    "McpCall": "mcp_call",
    **dict.fromkeys(("TextBlock", "TextPart", "UserPromptPart", "ResponseOutputText", "TextContent"), "text"),
}
"""Kinds of parts written with `repr`, by class name."""
