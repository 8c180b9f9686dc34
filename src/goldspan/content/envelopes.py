"""Unwraps arguments and results from the envelopes that frameworks put around them.

Each envelope has one function, an opener, which returns the content or `None` if a value has another shape. An opener
compares the whole shape, because a tool may have a parameter called `kwargs` or `inputs`. `ARGUMENT_OPENERS` and
`RESULT_OPENERS` have unique shapes and apply to all values. The other openers apply only for conventions that pass
them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from goldspan.content.literals import ReprObject, parse_object, plain_value
from goldspan.model import ABSENT


# Both are not frozen: a run creates hundreds, and a frozen one takes three times as long.
@dataclass(slots=True)
class CallArguments:
    """The arguments of a call, and the other facts that their envelope states."""

    arguments: Any
    """A dictionary, a list of positional arguments, or any other value."""
    call_id: str | None = None
    name: str | None = None
    """The tool's name, where the span's may be that of a class."""


@dataclass(slots=True)
class CallResult:
    """The result of a call, and the other facts that its envelope states."""

    value: Any
    call_id: str | None = None
    name: str | None = None
    """The tool's name, where the span's may be that of a class."""
    is_error: bool = False

    @property
    def error(self) -> str | None:
        """The result as text if the envelope reports an error, else `None`."""
        if not self.is_error:
            return None
        return self.value if isinstance(self.value, str) and self.value else to_text(self.value)


ArgumentOpener = Callable[[Any], CallArguments | None]
ResultOpener = Callable[[Any], CallResult | None]


def unwrap_arguments(
    value: Any, *openers: ArgumentOpener, parameters: Mapping[str, Any] | None = None
) -> CallArguments:
    """Unwrap arguments with the first opener that accepts them: of `openers`, then of `ARGUMENT_OPENERS`.

    `parameters` is the tool's JSON schema. A value whose keys are all parameters of the tool is not an envelope.
    """
    read = plain_value(value)
    if isinstance(read, dict):
        usual = () if _ARGUMENT_MARKER_KEYS.isdisjoint(read) else ARGUMENT_OPENERS
        if (openers or usual) and not (parameters and set(read) <= set(schema_properties(parameters))):
            for envelope in (*openers, *usual):
                opened = envelope(read)
                if opened is not None:
                    return opened
    return CallArguments(read)


def unwrap_result(value: Any, *openers: ResultOpener) -> CallResult:
    """Unwrap a result with the first opener that accepts it: of `openers`, then of `RESULT_OPENERS`."""
    read = plain_value(value)
    if isinstance(read, str) and read.startswith(_MESSAGE_REPR):
        read = parse_object(read) or read
    if isinstance(read, dict):
        usual = () if _RESULT_MARKER_KEYS.isdisjoint(read) else RESULT_OPENERS
    elif isinstance(read, list):
        usual = (text_blocks,)
    else:
        return CallResult(read)
    for envelope in (*openers, *usual):
        opened = envelope(read)
        if opened is not None:
            return opened
    return CallResult(read)


def schema_properties(parameters: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the parameters of a tool by name, from its JSON schema or from a plain dictionary of its properties."""
    inner = parameters.get("properties")
    if isinstance(inner, dict):
        return inner
    if isinstance(parameters.get("type"), str) or not all(isinstance(value, dict) for value in parameters.values()):
        return {}
    return parameters


def to_text(value: Any) -> str:
    """Return a value as text to display."""
    if isinstance(value, str):
        return value
    try:
        return json.dumps(value, ensure_ascii=False, default=str)
    except (TypeError, ValueError):  # keys that JSON cannot represent, such as tuples
        return str(value)


# Arguments.


def python_call(value: Any) -> CallArguments | None:
    """Unwrap a Python call: `{"args": [], "kwargs": {...}}`. Positional arguments alone stay a list."""
    if not _has_only_keys(value, "args", "kwargs", "sanitize_inputs_outputs") or "kwargs" not in value:
        return None
    positional, named = value.get("args") or [], value["kwargs"] or {}
    if not isinstance(positional, (list, tuple)) or not isinstance(named, dict):
        return None
    if not positional:
        return CallArguments(named)
    if len(positional) == 1 and isinstance(positional[0], dict) and not named:
        return CallArguments(positional[0])
    return CallArguments({**named, "args": list(positional)} if named else list(positional))


def positional_arguments(value: Any) -> CallArguments | None:
    """Unwrap positional arguments, each written as separate text: `{"args": ["{...}"]}`."""
    if not _has_only_keys(value, "args") or not isinstance(value.get("args"), list):
        return None
    read = [plain_value(argument) for argument in value["args"]]
    return CallArguments(read[0] if len(read) == 1 and isinstance(read[0], dict) else read)


def langchain_callback(value: Any) -> CallArguments | None:
    """Unwrap the arguments of LangChain's callbacks: `{"input_str", "inputs", "tags", "metadata", "kwargs"}`."""
    if not _has_only_keys(value, "input_str", "inputs", "tags", "metadata", "kwargs", "run_id", "parent_run_id"):
        return None
    if not ({"inputs", "input_str"} & set(value) and {"tags", "metadata", "kwargs"} & set(value)):
        return None
    inputs = value.get("inputs")
    extra = value.get("kwargs")
    call_id = extra.get("tool_call_id") if isinstance(extra, dict) else None
    return CallArguments(plain_value(value.get("input_str") if inputs is None else inputs), _optional_text(call_id))


def langchain_tool_call(value: Any) -> CallArguments | None:
    """Unwrap LangChain's tool call: `{"name", "args", "id", "type": "tool_call"}`."""
    if not isinstance(value, dict) or value.get("type") != "tool_call" or "name" not in value:
        return None
    arguments = next((value[key] for key in ("args", "arguments") if key in value), ABSENT)
    return (
        None
        if arguments is ABSENT
        else CallArguments(plain_value(arguments), _optional_text(value.get("id")), _optional_text(value["name"]))
    )


def mcp_request(value: Any) -> CallArguments | None:
    """Unwrap a request of the Model Context Protocol: `{"tool_name", "arguments"}`, or the JSON-RPC call around it."""
    if isinstance(value, dict) and value.get("method") == "tools/call":
        value = value.get("params")
    name = (value.get("tool_name") or value.get("name")) if isinstance(value, dict) else None
    if name is None or not _has_only_keys(value, "tool_name", "name", "arguments", "_meta", "task"):
        return None
    return CallArguments(plain_value(value.get("arguments") or {}), name=_optional_text(name))


def keyed_arguments(key: str) -> ArgumentOpener:
    """Return the opener of a dictionary with this one key: `{"input_args": {...}}`."""

    def single(value: Any) -> CallArguments | None:
        return CallArguments(plain_value(value[key])) if _has_only_keys(value, key) and value else None

    return single


ARGUMENT_OPENERS: tuple[ArgumentOpener, ...] = (python_call, langchain_tool_call)
"""The openers of arguments that apply to all conventions, because the shapes are unique."""
_ARGUMENT_MARKER_KEYS = frozenset({"kwargs", "type"})
"""Each envelope of `ARGUMENT_OPENERS` has one of these keys."""


# Results.


def langchain_constructor(value: Any) -> CallResult | None:
    """Unwrap LangChain's serialized object: `{"lc": 1, "type": "constructor", "id": [...], "kwargs": {...}}`."""
    fields = constructor_fields(value)
    return None if fields is None else tool_message(fields) or CallResult(plain_value(fields.get("content", fields)))


def langchain_message(value: Any) -> CallResult | None:
    """Unwrap LangChain's message: `{"type": "tool", "data": {"content", "tool_call_id", "status"}}`."""
    if not _has_only_keys(value, "type", "data") or not isinstance(value.get("data"), dict):
        return None
    return tool_message(value["data"])


def tool_message(value: Any) -> CallResult | None:
    """Unwrap a tool message: `content` with `tool_call_id`, or autogen's with `call_id`."""
    if not isinstance(value, dict) or "content" not in value:
        return None
    call_id = value.get("tool_call_id") or (value.get("call_id") if "is_error" in value else None)
    if call_id is None:
        return None
    content = value["content"]
    return CallResult(
        plain_value(content) if content_blocks_text(content) is None else plain_value(content_blocks_text(content)),
        _optional_text(call_id),
        _optional_text(value.get("name")),
        reports_failure(value),
    )


def tool_output(value: Any) -> CallResult | None:
    """Unwrap LlamaIndex's tool output: `{"blocks", "raw_output", "is_error"}`. The tool returned `raw_output`."""
    if not isinstance(value, dict) or "raw_output" not in value or not {"blocks", "content"} & set(value):
        return None
    return CallResult(
        plain_value(value["raw_output"]), name=_optional_text(value.get("tool_name")), is_error=reports_failure(value)
    )


def mcp_result(value: Any) -> CallResult | None:
    """Unwrap a result of the Model Context Protocol: `{"content": [{"type": "text", "text": ...}], "isError"}`."""
    keys = ("content", "isError", "is_error", "structuredContent", "structured_content", "_meta", "meta")
    if not _has_only_keys(value, *keys) or not isinstance(value.get("content"), list):
        return None
    structured = value.get("structuredContent", value.get("structured_content"))
    if structured is None:
        text = content_blocks_text(value["content"])
        if text is None and (value["content"] or len(value) == 1):
            return None
        structured = plain_value(text)
    elif _has_only_keys(structured, "result") and structured:
        structured = structured["result"]  # the Python SDK wraps every result that is not a dictionary
    return CallResult(structured, is_error=reports_failure(value))


def text_blocks(value: Any) -> CallResult | None:
    """Unwrap a list of text blocks in Anthropic's notation: `[{"type": "text", "text": ...}]`."""
    text = content_blocks_text(value)
    return None if text is None else CallResult(plain_value(text))


def bedrock_result(value: Any) -> CallResult | None:
    """Unwrap a result of Bedrock or Strands: `{"toolUseId", "content": [{"text"}, {"json"}], "status"}`."""
    if not isinstance(value, dict) or "toolUseId" not in value or not isinstance(value.get("content"), list):
        return None
    contents = [block.get("json", block.get("text")) for block in value["content"] if isinstance(block, dict)]
    return CallResult(
        plain_value(contents[0]) if len(contents) == 1 else contents,
        _optional_text(value["toolUseId"]),
        is_error=reports_failure(value),
    )


def adk_reflected_error(value: Any) -> CallResult | None:
    """Unwrap the error that Google's ADK returns to the model: `{"response_type": "ERROR_HANDLED_...", ...}`."""
    if not isinstance(value, dict) or not str(value.get("response_type", "")).startswith("ERROR_HANDLED"):
        return None
    return CallResult(value.get("error_details") or value.get("error_type") or value, is_error=True)


def langgraph_command(value: Any) -> CallResult | None:
    """Unwrap a LangGraph command, `{"update": {"messages": [...]}, "goto"}`. The last message is the result."""
    if not isinstance(value, dict) or not {"update", "goto"} <= set(value):
        return None
    update = value["update"]
    messages = update.get("messages") if isinstance(update, dict) else None
    return _unwrap_inner(messages[-1]) if isinstance(messages, list) and messages else None


def langchain_output(value: Any) -> CallResult | None:
    """Unwrap any of the above inside `{"output": ...}`, which LangChain's callbacks write."""
    if not isinstance(value, dict) or "output" not in value or not set(value) <= {"output", "kwargs", "tags"}:
        return None
    return _unwrap_inner(value["output"])


def flagged_result(value: Any) -> CallResult | None:
    """Unwrap a result with an error flag: `{"result": ..., "is_error": true}`."""
    if not _has_only_keys(value, "result", "is_error", "isError") or "result" not in value:
        return None
    inner = unwrap_result(value["result"])
    return CallResult(inner.value, inner.call_id, inner.name, inner.is_error or reports_failure(value))


def keyed_result(key: str) -> ResultOpener:
    """Return the opener of a dictionary with this one key: `{"result": ...}`."""

    def single(value: Any) -> CallResult | None:
        return unwrap_result(value[key]) if _has_only_keys(value, key) and value else None

    return single


RESULT_OPENERS: tuple[ResultOpener, ...] = (
    langchain_constructor,
    langchain_message,
    tool_message,
    tool_output,
    bedrock_result,
    mcp_result,
    text_blocks,
    adk_reflected_error,
    langgraph_command,
    langchain_output,
)
"""The openers of results that apply to all conventions, because the shapes are unique."""
_RESULT_MARKER_KEYS = frozenset(
    {"lc", "data", "tool_call_id", "call_id", "raw_output", "toolUseId", "content", "response_type", "update", "output"}
)
"""Each envelope of `RESULT_OPENERS` that is a dictionary has one of these keys."""


# Helpers that several notations share.


def constructor_fields(value: Any) -> Mapping[str, Any] | None:
    """Return the fields of an object that LangChain serialized, as a `ReprObject`; `None` for any other value."""
    if not isinstance(value, dict) or value.get("lc") is None or value.get("type") != "constructor":
        return None
    path, fields = value.get("id"), value.get("kwargs")
    name = path[-1] if isinstance(path, Sequence) and path else ""
    return ReprObject(str(name), fields if isinstance(fields, dict) else {})


def content_blocks_text(value: Any) -> str | None:
    """Return the text of a list of text blocks; `None` for any other value, and if one block is not text."""
    if not isinstance(value, list) or not value:
        return None
    texts = [block.get("text") for block in value if isinstance(block, dict) and block.get("type") == "text"]
    if len(texts) != len(value) or not all(isinstance(text, str) for text in texts):
        return None
    return "\n".join(text for text in texts if text is not None)


def reports_failure(value: Mapping[str, Any]) -> bool:
    """Whether a result has an error flag or an error status."""
    flag = value.get("is_error", value.get("isError"))
    return flag is True or str(flag).lower() == "true" or value.get("status") in ("error", "failed")


_MESSAGE_REPR = ("content=", "ToolMessage(", "ToolOutput(", "FunctionExecutionResult(")
"""The first characters of a result message written with `repr` or `str`."""


def _unwrap_inner(value: Any) -> CallResult | None:
    """Unwrap the content of an outer envelope; `None` if it is not an envelope, too."""
    read = plain_value(value)
    opened = unwrap_result(read)
    return opened if opened.value is not read else None


def _has_only_keys(value: Any, *keys: str) -> bool:
    """Whether a value is a dictionary without other keys than these."""
    return isinstance(value, dict) and set(value) <= set(keys)


def _optional_text(value: Any) -> str | None:
    return str(value) if isinstance(value, (str, int)) and value != "" else None
