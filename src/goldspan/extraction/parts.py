"""The parts of a model message, in every notation: texts, calls that the model asks for, and results handed back.

A part is known by its `type`, by the one key that Gemini, Bedrock and Genkit use instead, or by the name of its class.
Anything else (reasoning, images, citations) says nothing here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from goldspan.extraction import envelopes
from goldspan.extraction.notation import Constructed, constructed, plain
from goldspan.extraction.spoken import Answer, RequestedCall
from goldspan.model import ABSENT, ToolKind


class Gathered:
    """What the parts of one message say."""

    __slots__ = ("answers", "calls", "texts")

    def __init__(self) -> None:
        """Begin with nothing."""
        self.texts: list[str] = []
        self.calls: list[RequestedCall] = []
        self.answers: list[Answer] = []

    def add_call(self, call: RequestedCall | None) -> None:
        """Add a call, unless the same message says it twice (in `tool_calls` and again in `content`)."""
        if call is None:
            return
        if self.calls and call.call_id is not None and any(known.call_id == call.call_id for known in self.calls):
            return
        self.calls.append(call)

    def add_hosted_answer(self, answer: Answer) -> None:
        """Give a hosted call its result, where the call stands in the same message; else keep it as an answer."""
        for place, call in enumerate(self.calls):
            if call.call_id == answer.call_id and call.kind == "hosted":
                error = envelopes.written(answer.result) if answer.is_error else None
                self.calls[place] = call._replace(result=answer.result, error=error)
                return
        self.answers.append(answer)


def sort(part: Any, into: Gathered) -> None:
    """Add what a part says to what its message says."""
    if isinstance(part, dict):
        kind = part.get("type")
        handle = _HANDLERS.get(kind if isinstance(kind, str) and kind in _HANDLERS else kind_of(part))
        if handle is not None:
            handle(part, into)
    elif isinstance(part, str):
        _add_text(part, into)


def kind_of(part: Mapping[str, Any]) -> str:
    """What a part is: its type in the spelling of `_HANDLERS`, or nothing where it is not known."""
    kind = part.get("type") or part.get("part_kind")
    if isinstance(kind, str):
        if kind in _HANDLERS:
            return kind
        kind = kind.replace("-", "_").lower()
        if kind in _HANDLERS:
            return kind
        return "hosted_answer" if kind.endswith("_tool_result") else ""
    if isinstance(part, Constructed) and part.type_name in _CLASSES:
        return _CLASSES[part.type_name]
    for key, alone in _ALONE.items():
        if isinstance(part.get(key), dict):
            return alone
    if not _SPOKEN.isdisjoint(part):
        return "tool_result" if "call_id" in part and "content" in part else "text"
    called = not _CALLED_WITH.isdisjoint(part) and any(key in part for key in _NAMES)
    return "tool_call" if called or isinstance(part.get("function"), dict) else ""


def is_block(item: Any) -> bool:
    """Whether an item of a list is certainly a part of a message, and no value that a person or a tool wrote."""
    if not isinstance(item, dict):
        return False
    if isinstance(item, Constructed) and item.type_name in _CLASSES:
        return True
    kind = item.get("type") or item.get("part_kind")
    return isinstance(kind, str) and kind != "function" and (kind_of(item) != "" or kind in _SILENT)


def requested(call: Mapping[str, Any], *, kind: ToolKind = "tool") -> RequestedCall | None:
    """The call that a dictionary asks for, in OpenAI's `function` or written plainly; `None` without a name."""
    inner = call.get("function")
    if not isinstance(inner, dict):
        inner = call.get("custom")
        if not isinstance(inner, dict):
            inner = call
    name = _first(inner, _NAMES)
    if not isinstance(name, str) or not name:
        return None
    made = RequestedCall(name, _first(inner, _ARGUMENTS, ABSENT), identity(call, _IDS), kind)
    return made if _PROVIDED.isdisjoint(call) else _provided(call, made)


def _provided(call: Mapping[str, Any], made: RequestedCall) -> RequestedCall:
    """A call that says who runs the tool: the provider, or an MCP server."""
    if call.get("builtin") is True or call.get("providerExecuted") is True:
        made = made._replace(kind="hosted")
    server = call.get("server_label") or call.get("server_name")
    return made._replace(server=server) if isinstance(server, str) and server else made


_PROVIDED = frozenset({"builtin", "providerExecuted", "server_label", "server_name"})


def answered(part: Mapping[str, Any], *, failed: bool = False) -> Answer:
    """The result that a dictionary hands back."""
    found = envelopes.result(_first(part, _RESULTS), _vercel_output)
    is_error = failed or found.is_error or envelopes.said_to_fail(part)
    return Answer(identity(part, _ANSWERED_IDS) or found.call_id, found.value, is_error)


def identity(item: Mapping[str, Any], keys: tuple[str, ...]) -> str | None:
    """The first of some ids that an item has."""
    for key in keys:
        if key in item:
            found = item[key]
            if isinstance(found, (str, int)) and found != "":
                return str(found)
    return None


_NAMES = ("name", "toolName", "tool_name", "function_name")
_IDS = ("call_id", "toolCallId", "tool_call_id", "toolUseId", "tool_id", "id", "ref")
_ANSWERED_IDS = ("call_id", "toolCallId", "tool_call_id", "tool_use_id", "toolUseId", "tool_id", "id", "ref")
_ARGUMENTS = ("arguments", "input", "args", "tool_kwargs", "toolInput")
_RESULTS = ("response", "result", "output", "content", "value", "tool_output")
_CALLED_WITH = frozenset(_ARGUMENTS)
_WORDS = ("content", "text", "refusal")
_SPOKEN = frozenset(_WORDS)
_HOSTED_ARGUMENTS = ("action", "queries", "query", "code", "input", "prompt", "arguments")
_HOSTED_RESULTS = ("output", "outputs", "results", "result")
_SILENT = frozenset({"thinking", "redacted_thinking", "reasoning", "image", "image_url", "input_image", "document"})


def _first(item: Mapping[str, Any], keys: tuple[str, ...], missing: Any = None) -> Any:
    for key in keys:
        if key in item:
            return item[key]
    return missing


def _add_text(said: Any, into: Gathered) -> None:
    """Add a text; one that shows an object is the part that some instrumentation wrote with `repr`."""
    if not isinstance(said, str) or not said:
        return
    shown = _shown(said) if said[-1] in _CLOSING else []
    if not shown:
        into.texts.append(said)
    for part in shown:
        sort(part, into)


_CLOSING = frozenset(")]")
"""What a text ends in that shows an object, or a list of objects."""


def _shown(said: str) -> list[Any]:
    """The parts that a text shows as `Type(...)` or `[Type(...), ...]`; none for words."""
    if said.partition("(")[0].removeprefix("[") not in _CLASSES:
        return []
    read = plain(said) if said.startswith("[") else constructed(said)
    parts = read if isinstance(read, list) else [read]
    return parts if all(isinstance(part, Constructed) and is_block(part) for part in parts) else []


def _text(part: Mapping[str, Any], into: Gathered) -> None:
    if part.get("thought") is True:
        return
    said = _first(part, _WORDS)
    if isinstance(said, str):
        _add_text(said, into)
        return
    for item in said if isinstance(said, list) else [said]:
        _add_text(item.get("text") if isinstance(item, dict) else item, into)


def _call(part: Mapping[str, Any], into: Gathered) -> None:
    inner = part.get("tool_call")
    into.add_call(requested(inner if isinstance(inner, dict) else part))


def _answer(part: Mapping[str, Any], into: Gathered) -> None:
    answer = answered(part)
    if part.get("builtin") is True or part.get("providerExecuted") is True:
        into.add_hosted_answer(answer)
    else:
        into.answers.append(answer)


def _bedrock_answer(part: Mapping[str, Any], into: Gathered) -> None:
    found = envelopes.bedrock_result(part["toolResult"])
    into.answers.append(Answer(found.call_id, found.value, found.is_error) if found else answered(part["toolResult"]))


def _retry(part: Mapping[str, Any], into: Gathered) -> None:
    """Pydantic-ai asks the model to try again: after a failed call if the tool is named, else after a bad answer."""
    if part.get("tool_name"):
        into.answers.append(answered(part, failed=True))


def _inside(key: str, handle: Callable[[Mapping[str, Any], Gathered], None]) -> Callable[[Any, Gathered], None]:
    """Read the part that stands under one key of another."""

    def inner(part: Mapping[str, Any], into: Gathered) -> None:
        found = part.get(key)
        handle(found if isinstance(found, dict) else part, into)

    return inner


def _hosted(part: Mapping[str, Any], into: Gathered) -> None:
    """A call that the provider runs itself, of which the message often gives arguments and result at once."""
    call = requested(part, kind="hosted")
    if call is None:
        kind = kind_of(part)
        call = RequestedCall(kind.removesuffix("_call"), call_id=identity(part, _IDS), kind="hosted")
    if call.arguments is ABSENT:
        inner = part.get("server_tool_call")
        call = call._replace(arguments=_hosted_arguments(inner if isinstance(inner, dict) else part))
    result = next((part[key] for key in _HOSTED_RESULTS if part.get(key) is not None), ABSENT)
    error = part.get("error")
    if error is None and part.get("status") in ("failed", "incomplete"):
        error = part["status"]
    into.add_call(
        call._replace(
            result=result if result is ABSENT else envelopes.result(result).value,
            error=None if error is None else envelopes.written(error),
        )
    )


def _hosted_arguments(part: Mapping[str, Any]) -> Any:
    """What a hosted tool was given: the whole of a generic call, or the fields that are known to be arguments."""
    given = next((part[key] for key in ("arguments", "input", "action") if isinstance(part.get(key), dict)), None)
    if given is not None:
        return given
    found = {key: part[key] for key in _HOSTED_ARGUMENTS if part.get(key) is not None}
    return found or ABSENT


def _hosted_answer(part: Mapping[str, Any], into: Gathered) -> None:
    said = part.get("server_tool_call_response")
    said = said if isinstance(said, dict) else part
    found = envelopes.result(_first(said, _RESULTS, said))
    is_error = found.is_error or any(map(envelopes.said_to_fail, (part, said))) or _is_error_type(found.value)
    into.add_hosted_answer(Answer(identity(part, _ANSWERED_IDS), found.value, is_error))


def _is_error_type(value: Any) -> bool:
    """Whether a result says by its type that it is none: `web_search_tool_result_error`."""
    kind = value.get("type") if isinstance(value, dict) else None
    return isinstance(kind, str) and kind.endswith("_error")


def _vercel_output(value: Any) -> envelopes.Result | None:
    """The AI SDK's result: `{"type": "json", "value": ...}`, with `error-text` or `error-json` where it failed."""
    if not isinstance(value, dict) or value.get("type") not in _VERCEL_OUTPUTS or "value" not in value:
        return None
    said = envelopes.content_blocks(value["value"])
    return envelopes.Result(plain(value["value"] if said is None else said), is_error="error" in value["type"])


_VERCEL_OUTPUTS = ("text", "json", "content", "error-text", "error-json")
_HANDLERS: dict[str, Callable[[Mapping[str, Any], Gathered], None]] = {
    "text": _text,
    "input_text": _text,
    "output_text": _text,
    "refusal": _text,
    "user_prompt": _text,
    # Calls: GenAI and LangChain, Anthropic, OpenAI, the AI SDK and pydantic-ai (`tool-call`).
    **dict.fromkeys(("tool_call", "tool_use", "function_call", "custom_tool_call", "function"), _call),
    "nested_call": _call,
    "gemini_call": _inside("functionCall", _call),
    "gemini_call_2": _inside("function_call", _call),
    "bedrock_call": _inside("toolUse", _call),
    "genkit_call": _inside("toolRequest", _call),
    # Results, in the same order.
    **dict.fromkeys(("tool_call_response", "tool_result", "function_call_output", "custom_tool_call_output"), _answer),
    **dict.fromkeys(("tool_return", "computer_call_output", "local_shell_call_output"), _answer),
    "retry_prompt": _retry,
    "gemini_answer": _inside("functionResponse", _answer),
    "gemini_answer_2": _inside("function_response", _answer),
    "bedrock_answer": _bedrock_answer,
    "genkit_answer": _inside("toolResponse", _answer),
    # Tools that the provider runs.
    **dict.fromkeys(("server_tool_call", "server_tool_use", "mcp_tool_use", "builtin_tool_call"), _hosted),
    **dict.fromkeys(("web_search_call", "file_search_call", "code_interpreter_call", "computer_call"), _hosted),
    **dict.fromkeys(("image_generation_call", "mcp_call", "local_shell_call", "shell_call"), _hosted),
    **dict.fromkeys(("server_tool_call_response", "builtin_tool_return", "hosted_answer"), _hosted_answer),
    **dict.fromkeys(("mcp_tool_result", "web_search_tool_result"), _hosted_answer),
}
_ALONE = {
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
"""Parts without a type, known by their one key."""
_CLASSES = {
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
"""Parts that were written with `repr`, by the name of their class."""
