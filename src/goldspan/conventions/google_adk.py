"""Google's Agent Development Kit (Python, Go, Java): GenAI spans, with content in one of three places.

The first schema keeps content in `gcp.vertex.agent.*` attributes of the tool's and of a `call_llm` span; the present
default keeps it in log events alone, and the newest opt-in in the standard attributes. Some of what looks like a tool
call is none: after parallel calls a span `(merged tools)` repeats them all. In TypeScript, the span of a call that
failed has a name and nothing else: its attributes are written once the tool has returned.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from goldspan import semconv
from goldspan.content import envelopes
from goldspan.content.literals import plain_value
from goldspan.content.parts import ToolResult
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
"""How the names of such spans end."""
_NOT_SPECIFIED = "<not specified>"
_EXECUTION_PREFIX = "execute_tool "
_THROWN_PREFIX = "Error in tool '"
_TRANSFER = "transfer_to_agent"
_KINDS: dict[str, ToolKind] = {
    "TransferToAgentTool": "handoff",
    "AgentTool": "agent",
    "GoogleSearchTool": "hosted",
    "VertexAiSearchTool": "hosted",
    "UrlContextTool": "hosted",
}
"""`gen_ai.tool.type` is the class of the tool."""
_EMPTY_VALUES: tuple[Any, ...] = ("{}", {})
"""What is written where content is switched off."""


@dataclass(frozen=True, slots=True)
class _FromUnwrapped:
    """Messages in which results that are no dictionary stand inside `{"result": ...}`."""

    place: MessageSource

    def __call__(self, span: SpanRecord) -> Messages:
        """The messages of a span."""
        return tuple(map(_unwrap_message, self.place(span)))

    def __str__(self) -> str:
        """How the documentation names the place."""
        return str(self.place)


def _unwrap_message(message: Message) -> Message:
    return (
        message._replace(tool_results=tuple(map(_unwrap_tool_result, message.tool_results)))
        if message.tool_results
        else message
    )


def _unwrap_tool_result(answer: ToolResult) -> ToolResult:
    opened = _unwrap_result(answer.result)
    return answer._replace(result=opened.value, is_error=answer.is_error or opened.is_error)


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
    """The tools in the configuration that goes with a request to the model."""
    read = plain_value(request)
    return tool_definitions(read.get("config")) if isinstance(read, Mapping) else ()


def _unwrap_result(value: Any) -> envelopes.CallResult:
    """Anything but a dictionary is wrapped into one, and what a function threw is told in a sentence."""
    return envelopes.unwrap_result(value, _thrown_error, envelopes.keyed_result("result"))


def _thrown_error(value: Any) -> envelopes.CallResult | None:
    """What a function of TypeScript threw: `{"error": "Error in tool 'X': ..."}`."""
    told = value.get("error") if isinstance(value, Mapping) and len(value) == 1 else None
    is_ours = isinstance(told, str) and told.startswith(_THROWN_PREFIX)
    return envelopes.CallResult(told, is_error=True) if is_ours else None


CONVENTION = Convention(
    name="google_adk",
    title="Google Agent Development Kit",
    source="https://github.com/google/adk-python, https://github.com/google/adk-go, https://github.com/google/adk-java",
    versions="1 and 2 (Python), 0.2 to 1 (Go), 0.2 to 1 (Java)",
    roles={_ARGUMENTS: {ANY: "tool"}, _MODEL_REQUEST: {ANY: "model"}},
    bare_span_scopes=frozenset({"gcp.vertex.agent"}),
    marker_attributes=(f"{_PREFIX}event_id", f"{_PREFIX}invocation_id", _TOOL_RESPONSE),
    attributes_by_role={
        "tool": AttributeMap(name=(semconv.TOOL_NAME,), arguments=(_ARGUMENTS,)),
        "model": AttributeMap(
            input_messages=(_FromUnwrapped(FromJson(_MODEL_REQUEST)),), output_messages=(FromJson(_MODEL_RESPONSE),)
        ),
    },
    common_attributes=AttributeMap(
        result=(_TOOL_RESPONSE, semconv.TOOL_CALL_RESULT),
        session_id=(f"{_PREFIX}session_id",),
        input_messages=(
            _FromUnwrapped(FromJson(semconv.INPUT_MESSAGES)),
            _FromUnwrapped(FromEvents(("gen_ai.client.inference.operation.details",), semconv.INPUT_MESSAGES)),
        ),
    ),
    span_name_templates={"tool": ("execute_tool {name}", "tool_call [{name}]")},
    unwrap_result=_unwrap_result,
    postprocess=_postprocess,
    notes=(
        "The span `(merged tools)` after parallel calls is no call.",
        "`transfer_to_agent` is a hand-off, an `AgentTool` an agent.",
        "A call id `<not specified>` is none.",
        'Results that are no dictionary stand inside `{"result": ...}`.',
        "TypeScript: a span `execute_tool X` without any attribute is a call that failed.",
        'TypeScript: a result `{"error": "Error in tool \'X\': ..."}` is what the tool threw.',
        "A result in which the plugin ReflectAndRetry reports a failure is an error, whatever the span's status is.",
    ),
    capture_setting="OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT=SPAN_AND_EVENT, or "
    "ADK_CAPTURE_MESSAGE_CONTENT_IN_SPANS=true with ADK_TELEMETRY_SCHEMA_VERSION_OPT_IN=1",
)
