"""Google's Agent Development Kit (Python, Go, Java): GenAI spans, with content in one of three places.

The first schema writes content into `gcp.vertex.agent.*` attributes of tool spans and `call_llm` spans. The current
default writes content only into log events. The newest opt-in writes it into the standard attributes. Some spans look
like tool calls but are not: after parallel calls, a span `(merged tools)` repeats all of them. In TypeScript, the span
of a failed call has only a name, because the SDK writes the attributes after the tool has returned.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from goldspan import semconv
from goldspan.content import envelopes
from goldspan.content.literals import plain_value
from goldspan.content.parts import RequestedCall, ToolResult
from goldspan.content.tools import tool_definitions
from goldspan.conventions.convention import ANY, AttributeMap, Convention, FromEvents, FromJson, MessageSource
from goldspan.conventions.span_facts import Message, Messages, SpanFacts
from goldspan.model import SpanRecord, ToolDefinition, ToolKind

_PREFIX = "gcp.vertex.agent."
_ARGUMENTS = f"{_PREFIX}tool_call_args"
_TOOL_RESPONSE = f"{_PREFIX}tool_response"
_MODEL_REQUEST = f"{_PREFIX}llm_request"
_MODEL_RESPONSE = f"{_PREFIX}llm_response"
_MERGED_TOOLS = "(merged tools)"
_MERGED_SPANS = ("(merged)", _MERGED_TOOLS)
"""Suffixes of the names of the spans that repeat parallel calls."""
_NOT_SPECIFIED = "<not specified>"
_DETAILS = ("gen_ai.client.inference.operation.details",)
_EXECUTION_PREFIX = "execute_tool "
_THROWN_PREFIX = "Error in tool '"
_JAVA_ERROR = {"status": "error", "message": "An internal error occurred."}
"""The result of a function that threw an exception in Java: `FunctionTool.java`. The exception is only logged."""
_TRANSFER = "transfer_to_agent"
_KINDS: dict[str, ToolKind] = {
    "TransferToAgentTool": "handoff",
    "AgentTool": "agent",
    "GoogleSearchTool": "hosted",
    "VertexAiSearchTool": "hosted",
    "UrlContextTool": "hosted",
}
"""Tool kind by the tool's class, which `gen_ai.tool.type` names."""
_EMPTY_VALUES: tuple[Any, ...] = ("{}", {})
"""Values that replace content if recording is disabled."""


@dataclass(frozen=True, slots=True)
class _FromMessages:
    """Reads messages, unwraps results that ADK wrapped in `{"result": ...}`, and drops ids that ADK invented."""

    source: MessageSource

    def __call__(self, span: SpanRecord) -> Messages:
        """Return the messages of a span."""
        found = tuple(map(_unwrap_message, self.source(span)))
        invented = {call.call_id for message in found for call in message.tool_calls if _is_invented_id(call)}
        return tuple(_without_ids(message, invented) for message in found) if invented else found

    def __str__(self) -> str:
        """Return the description of the source for the documentation."""
        return str(self.source)


def _is_invented_id(call: RequestedCall) -> bool:
    """Whether ADK made the id of the tool's name and the number of the part, because the model gave none.

    Calls of several turns share such an id, and the spans of these calls have others.
    """
    name, _, number = (call.call_id or "").rpartition("_")
    return name == call.name and number.isdecimal()


def _without_ids(message: Message, ids: Container[str | None]) -> Message:
    calls = (call._replace(call_id=None) if call.call_id in ids else call for call in message.tool_calls)
    results = (each._replace(call_id=None) if each.call_id in ids else each for each in message.tool_results)
    return message._replace(tool_calls=tuple(calls), tool_results=tuple(results))


def _unwrap_message(message: Message) -> Message:
    return (
        message._replace(tool_results=tuple(map(_unwrap_tool_result, message.tool_results)))
        if message.tool_results
        else message
    )


def _unwrap_tool_result(tool_result: ToolResult) -> ToolResult:
    unwrapped = _unwrap_result(tool_result.result)
    return tool_result._replace(result=unwrapped.value, is_error=tool_result.is_error or unwrapped.is_error)


def _postprocess(span: SpanRecord, facts: SpanFacts) -> SpanFacts:
    attributes = span.attributes
    if not attributes:
        facts.role, facts.outcome = ("tool", "error") if span.name.startswith(_EXECUTION_PREFIX) else (None, None)
    name = attributes.get(semconv.TOOL_NAME)
    if name == _MERGED_TOOLS or (name is None and span.name.endswith(_MERGED_SPANS)):
        return SpanFacts("aside", facts.conventions)
    if name is not None:
        facts.role = "tool"
        facts.kind = "handoff" if name == _TRANSFER else _KINDS.get(str(attributes.get(semconv.TOOL_TYPE)))
    if attributes.get(semconv.TOOL_CALL_ID) == _NOT_SPECIFIED:
        facts.call_id = ""
    if facts.role == "model":
        facts.tool_definitions = (partial(_offered_tools, attributes[_MODEL_REQUEST]),)
    if attributes.get(_ARGUMENTS) in _EMPTY_VALUES and attributes.get(_TOOL_RESPONSE) in _EMPTY_VALUES:
        facts.arguments = facts.result = None
    return facts


def _offered_tools(request: Any) -> tuple[ToolDefinition, ...]:
    """Return the tools in the configuration of a request to the model."""
    decoded = plain_value(request)
    return tool_definitions(decoded.get("config")) if isinstance(decoded, Mapping) else ()


def _unwrap_result(value: Any) -> envelopes.CallResult:
    """Unwrap a result: ADK wraps every value that is not a dictionary, and describes a thrown error in a sentence."""
    return envelopes.unwrap_result(value, _thrown_error, envelopes.keyed_result("result"))


def _thrown_error(value: Any) -> envelopes.CallResult | None:
    """Return the error that a function threw in Java, or in TypeScript: `{"error": "Error in tool 'X': ..."}`."""
    if value == _JAVA_ERROR:
        return envelopes.CallResult(value["message"], is_error=True)
    error_text = value.get("error") if isinstance(value, Mapping) and len(value) == 1 else None
    is_thrown = isinstance(error_text, str) and error_text.startswith(_THROWN_PREFIX)
    return envelopes.CallResult(error_text, is_error=True) if is_thrown else None


CONVENTION = Convention(
    name="google_adk",
    title="Google Agent Development Kit",
    source="https://github.com/google/adk-python, https://github.com/google/adk-go, https://github.com/google/adk-java",
    versions="1 and 2 (Python), 0.2 to 1 (Go), 0.2 to 1 (Java, recorded with 1.8)",
    roles={_ARGUMENTS: {ANY: "tool"}, _MODEL_REQUEST: {ANY: "model"}},
    bare_span_scopes=frozenset({"gcp.vertex.agent"}),
    marker_attributes=(f"{_PREFIX}event_id", f"{_PREFIX}invocation_id", _TOOL_RESPONSE),
    attributes_by_role={
        "tool": AttributeMap(name=(semconv.TOOL_NAME,), arguments=(_ARGUMENTS,)),
        "model": AttributeMap(
            input_messages=(_FromMessages(FromJson(_MODEL_REQUEST)),), output_messages=(FromJson(_MODEL_RESPONSE),)
        ),
    },
    common_attributes=AttributeMap(
        result=(_TOOL_RESPONSE, semconv.TOOL_CALL_RESULT),
        session_id=(f"{_PREFIX}session_id",),
        input_messages=(
            _FromMessages(FromJson(semconv.INPUT_MESSAGES)),
            _FromMessages(FromEvents(_DETAILS, semconv.INPUT_MESSAGES)),
        ),
        output_messages=(
            _FromMessages(FromJson(semconv.OUTPUT_MESSAGES)),
            _FromMessages(FromEvents(_DETAILS, semconv.OUTPUT_MESSAGES)),
        ),
    ),
    span_name_templates={"tool": ("execute_tool {name}", "tool_call [{name}]")},
    unwrap_result=_unwrap_result,
    postprocess=_postprocess,
    notes=(
        "The span `(merged tools)` after parallel calls is not a call.",
        "`transfer_to_agent` is a hand-off. An `AgentTool` is an agent.",
        "goldspan ignores the call id `<not specified>`, and ids such as `book_0`, which ADK invents for messages.",
        'ADK wraps results that are not dictionaries in `{"result": ...}`.',
        "TypeScript: a span `execute_tool X` without attributes is a failed call.",
        'TypeScript: a result `{"error": "Error in tool \'X\': ..."}` is an error that the tool threw.',
        "Java: a result with the status `error` and the message `An internal error occurred.` is an exception.",
        "A result in which the plugin ReflectAndRetry reports a failure is an error, regardless of the span's status.",
    ),
    capture_setting="OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT=SPAN_AND_EVENT, or "
    "ADK_CAPTURE_MESSAGE_CONTENT_IN_SPANS=true with ADK_TELEMETRY_SCHEMA_VERSION_OPT_IN=1",
)
