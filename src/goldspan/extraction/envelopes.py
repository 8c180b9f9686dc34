"""The envelopes that frameworks and instrumentations put around the arguments and the results of tools.

Each envelope is a function that opens it, or says `None` where a value is not of its shape. An envelope is opened only
where its whole shape matches, since a tool may well have a parameter called `kwargs` or `inputs`. The ones that only
one framework writes are opened only where its convention asks for them; `ARGUMENTS` and `RESULTS` are those whose
shape nothing else has.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from goldspan.extraction.notation import Constructed, constructed, plain
from goldspan.model import ABSENT, drafted


@dataclass(frozen=True, slots=True)
class Request:
    """The arguments of a call, and what else their envelope says of it."""

    arguments: Any
    """A dictionary; a list where they were passed by position; whatever else was found."""
    call_id: str | None = None
    name: str | None = None
    """The tool's name, where the span's may be that of a class."""


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a call, and what else its envelope says of it."""

    value: Any
    call_id: str | None = None
    name: str | None = None
    """The tool's name, where the span's may be that of a class."""
    is_error: bool = False

    @property
    def error(self) -> str | None:
        """What went wrong, where the envelope says that something did."""
        if not self.is_error:
            return None
        return self.value if isinstance(self.value, str) and self.value else written(self.value)


_Request, _Result = drafted(Request), drafted(Result)
RequestEnvelope = Callable[[Any], Request | None]
ResultEnvelope = Callable[[Any], Result | None]


def request(value: Any, *asked_for: RequestEnvelope, parameters: Mapping[str, Any] | None = None) -> Request:
    """Take arguments out of the first envelope that fits: of those asked for, then of `ARGUMENTS`.

    `parameters` is the tool's JSON schema. Where the tool itself has a parameter of an envelope's name, the value is
    none.
    """
    read = plain(value)
    if (
        isinstance(read, dict)
        and (asked_for or not _SIGNS_OF_ARGUMENTS.isdisjoint(read))
        and not (parameters and set(read) <= set(properties(parameters)))
    ):
        for envelope in (*asked_for, *ARGUMENTS):
            opened = envelope(read)
            if opened is not None:
                return opened
    return _Request(read)


def result(value: Any, *asked_for: ResultEnvelope) -> Result:
    """Take a result out of the first envelope that fits: of those asked for, then of `RESULTS`."""
    read = plain(value)
    if isinstance(read, str) and read.startswith(_MESSAGE_REPR):
        read = constructed(read) or read
    usual = (blocks,) if isinstance(read, list) else RESULTS
    if isinstance(read, list) or (isinstance(read, dict) and (asked_for or not _SIGNS_OF_RESULTS.isdisjoint(read))):
        for envelope in (*asked_for, *usual):
            opened = envelope(read)
            if opened is not None:
                return opened
    return _Result(read)


def properties(parameters: Mapping[str, Any]) -> Mapping[str, Any]:
    """The parameters of a tool by name, from its JSON schema or from a bare dictionary of its properties."""
    inner = parameters.get("properties")
    if isinstance(inner, dict):
        return inner
    if isinstance(parameters.get("type"), str) or not all(isinstance(value, dict) for value in parameters.values()):
        return {}
    return parameters


def written(value: Any) -> str:
    """A value as text for people."""
    if isinstance(value, str):
        return value
    try:
        return json.dumps(value, ensure_ascii=False, default=str)
    except (TypeError, ValueError):  # keys that JSON does not have, such as tuples
        return str(value)


# Arguments.


def called(value: Any) -> Request | None:
    """How a function was called: `{"args": [], "kwargs": {...}}`. With positional arguments alone the list is kept."""
    if not _within(value, "args", "kwargs", "sanitize_inputs_outputs") or "kwargs" not in value:
        return None
    unnamed, named = value.get("args") or [], value["kwargs"] or {}
    if not isinstance(unnamed, (list, tuple)) or not isinstance(named, dict):
        return None
    if not unnamed:
        return Request(named)
    if len(unnamed) == 1 and isinstance(unnamed[0], dict) and not named:
        return Request(unnamed[0])
    return Request({**named, "args": list(unnamed)} if named else list(unnamed))


def positional(value: Any) -> Request | None:
    """What a function was called with, each argument written as text of its own: `{"args": ["{...}"]}`."""
    if not _within(value, "args") or not isinstance(value.get("args"), list):
        return None
    read = [plain(argument) for argument in value["args"]]
    return Request(read[0] if len(read) == 1 and isinstance(read[0], dict) else read)


def callback(value: Any) -> Request | None:
    """What LangChain hands to its callbacks: `{"input_str", "inputs", "tags", "metadata", "kwargs"}`."""
    if not _within(value, "input_str", "inputs", "tags", "metadata", "kwargs", "run_id", "parent_run_id"):
        return None
    if not ({"inputs", "input_str"} & set(value) and {"tags", "metadata", "kwargs"} & set(value)):
        return None
    inputs = value.get("inputs")
    extra = value.get("kwargs")
    call_id = extra.get("tool_call_id") if isinstance(extra, dict) else None
    return Request(plain(value.get("input_str") if inputs is None else inputs), _text(call_id))


def tool_call(value: Any) -> Request | None:
    """A call as LangChain passes it on: `{"name", "args", "id", "type": "tool_call"}`."""
    if not isinstance(value, dict) or value.get("type") != "tool_call" or "name" not in value:
        return None
    given = next((value[key] for key in ("args", "arguments") if key in value), ABSENT)
    return None if given is ABSENT else Request(plain(given), _text(value.get("id")), _text(value["name"]))


def mcp_request(value: Any) -> Request | None:
    """The request of the Model Context Protocol: `{"tool_name", "arguments"}`, or the JSON-RPC call around it."""
    if isinstance(value, dict) and value.get("method") == "tools/call":
        value = value.get("params")
    name = (value.get("tool_name") or value.get("name")) if isinstance(value, dict) else None
    if name is None or not _within(value, "tool_name", "name", "arguments", "_meta", "task"):
        return None
    return Request(plain(value.get("arguments") or {}), name=_text(name))


def under(key: str) -> RequestEnvelope:
    """The envelope that is a dictionary with this one key: `{"input_args": {...}}`."""

    def single(value: Any) -> Request | None:
        return Request(plain(value[key])) if _within(value, key) and value else None

    return single


ARGUMENTS: tuple[RequestEnvelope, ...] = (called, tool_call)
"""The envelopes around arguments whose shape nothing else has."""
_SIGNS_OF_ARGUMENTS = frozenset({"kwargs", "type"})
"""Of these keys, each of them has one."""


# Results.


def langchain_constructor(value: Any) -> Result | None:
    """An object as LangChain serializes it: `{"lc": 1, "type": "constructor", "id": [...], "kwargs": {...}}`."""
    fields = constructor_fields(value)
    return None if fields is None else tool_message(fields) or Result(plain(fields.get("content", fields)))


def langchain_message(value: Any) -> Result | None:
    """A message as LangChain dumps it: `{"type": "tool", "data": {"content", "tool_call_id", "status"}}`."""
    if not _within(value, "type", "data") or not isinstance(value.get("data"), dict):
        return None
    return tool_message(value["data"])


def tool_message(value: Any) -> Result | None:
    """The message that carries a result: `content` with `tool_call_id`, or autogen's with `call_id`."""
    if not isinstance(value, dict) or "content" not in value:
        return None
    call_id = value.get("tool_call_id") or (value.get("call_id") if "is_error" in value else None)
    if call_id is None:
        return None
    content = value["content"]
    return Result(
        plain(content) if content_blocks(content) is None else plain(content_blocks(content)),
        _text(call_id),
        _text(value.get("name")),
        said_to_fail(value),
    )


def tool_output(value: Any) -> Result | None:
    """What LlamaIndex makes of a result: `{"blocks", "raw_output", "is_error"}`; the raw one is what was returned."""
    if not isinstance(value, dict) or "raw_output" not in value or not {"blocks", "content"} & set(value):
        return None
    return Result(plain(value["raw_output"]), name=_text(value.get("tool_name")), is_error=said_to_fail(value))


def mcp_result(value: Any) -> Result | None:
    """The answer of the Model Context Protocol: `{"content": [{"type": "text", "text": ...}], "isError"}`."""
    keys = ("content", "isError", "is_error", "structuredContent", "structured_content", "_meta", "meta")
    if not _within(value, *keys) or not isinstance(value.get("content"), list):
        return None
    structured = value.get("structuredContent", value.get("structured_content"))
    if structured is None:
        said = content_blocks(value["content"])
        if said is None and (value["content"] or len(value) == 1):
            return None
        structured = plain(said)
    elif _within(structured, "result") and structured:
        structured = structured["result"]  # what the Python SDK does to anything that is no dictionary
    return Result(structured, is_error=said_to_fail(value))


def blocks(value: Any) -> Result | None:
    """A list of content blocks as Anthropic writes it: `[{"type": "text", "text": ...}]`."""
    said = content_blocks(value)
    return None if said is None else Result(plain(said))


def bedrock_result(value: Any) -> Result | None:
    """The result of Bedrock and Strands: `{"toolUseId", "content": [{"text"}, {"json"}], "status"}`."""
    if not isinstance(value, dict) or "toolUseId" not in value or not isinstance(value.get("content"), list):
        return None
    said = [block.get("json", block.get("text")) for block in value["content"] if isinstance(block, dict)]
    return Result(plain(said[0]) if len(said) == 1 else said, _text(value["toolUseId"]), is_error=said_to_fail(value))


def reflected(value: Any) -> Result | None:
    """The error that Google's ADK hands to the model to reflect on: `{"response_type": "ERROR_HANDLED_...", ...}`."""
    if not isinstance(value, dict) or not str(value.get("response_type", "")).startswith("ERROR_HANDLED"):
        return None
    return Result(value.get("error_details") or value.get("error_type") or value, is_error=True)


def command(value: Any) -> Result | None:
    """A step's orders to LangGraph, `{"update": {"messages": [...]}, "goto"}`: the last message is the result."""
    if not isinstance(value, dict) or not {"update", "goto"} <= set(value):
        return None
    update = value["update"]
    said = update.get("messages") if isinstance(update, dict) else None
    return _unwrapped(said[-1]) if isinstance(said, list) and said else None


def output(value: Any) -> Result | None:
    """Any of the above inside `{"output": ...}`, as LangChain's callbacks hand it out."""
    if not isinstance(value, dict) or "output" not in value or not set(value) <= {"output", "kwargs", "tags"}:
        return None
    return _unwrapped(value["output"])


def flagged(value: Any) -> Result | None:
    """A result beside its flag: `{"result": ..., "is_error": true}`."""
    if not _within(value, "result", "is_error", "isError") or "result" not in value:
        return None
    inner = result(value["result"])
    return Result(inner.value, inner.call_id, inner.name, inner.is_error or said_to_fail(value))


def inside(key: str) -> ResultEnvelope:
    """The envelope that is a dictionary with this one key: `{"result": ...}`."""

    def single(value: Any) -> Result | None:
        return result(value[key]) if _within(value, key) and value else None

    return single


RESULTS: tuple[ResultEnvelope, ...] = (
    langchain_constructor,
    langchain_message,
    tool_message,
    tool_output,
    bedrock_result,
    mcp_result,
    blocks,
    reflected,
    command,
    output,
)
"""The envelopes around results whose shape nothing else has."""
_SIGNS_OF_RESULTS = frozenset(
    {"lc", "data", "tool_call_id", "call_id", "raw_output", "toolUseId", "content", "response_type", "update", "output"}
)
"""Of these keys, each of the envelopes above that is a dictionary has one."""


# What several notations share.


def constructor_fields(value: Any) -> Mapping[str, Any] | None:
    """The fields of an object that LangChain serialized, as a `Constructed`; `None` for anything else."""
    if not isinstance(value, dict) or value.get("lc") is None or value.get("type") != "constructor":
        return None
    path, fields = value.get("id"), value.get("kwargs")
    name = path[-1] if isinstance(path, Sequence) and path else ""
    return Constructed(str(name), fields if isinstance(fields, dict) else {})


def content_blocks(value: Any) -> str | None:
    """The text of a list of content blocks; `None` for any other value, and where a block is not text."""
    if not isinstance(value, list) or not value:
        return None
    said = [block.get("text") for block in value if isinstance(block, dict) and block.get("type") == "text"]
    if len(said) != len(value) or not all(isinstance(text, str) for text in said):
        return None
    return "\n".join(text for text in said if text is not None)


def said_to_fail(value: Mapping[str, Any]) -> bool:
    """Whether a result says of itself that it is an error."""
    flag = value.get("is_error", value.get("isError"))
    return flag is True or str(flag).lower() == "true" or value.get("status") in ("error", "failed")


_MESSAGE_REPR = ("content=", "ToolMessage(", "ToolOutput(", "FunctionExecutionResult(")
"""How the texts begin that show a result's message instead of serializing it."""


def _unwrapped(value: Any) -> Result | None:
    """The result in what is left when an outer envelope is open, if that is an envelope as well."""
    read = plain(value)
    opened = result(read)
    return opened if opened.value is not read else None


def _within(value: Any, *keys: str) -> bool:
    """Whether a value is a dictionary that has no other keys."""
    return isinstance(value, dict) and set(value) <= set(keys)


def _text(value: Any) -> str | None:
    return str(value) if isinstance(value, (str, int)) and value != "" else None
