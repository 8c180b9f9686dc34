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
from goldspan.extraction import envelopes, messages, values
from goldspan.extraction.convention import ANY, Convention, FromEvents, FromJson, MessageSource, Places
from goldspan.extraction.notation import plain
from goldspan.extraction.reading import Answer, Message, Messages, Reading
from goldspan.model import SpanRecord, ToolDefinition, ToolKind

_PREFIX = "gcp.vertex.agent."
_ARGUMENTS = f"{_PREFIX}tool_call_args"
_RESPONSE = f"{_PREFIX}tool_response"
_REQUEST = f"{_PREFIX}llm_request"
_ANSWER = f"{_PREFIX}llm_response"
_MERGED = "(merged tools)"
_MERGED_SPANS = ("(merged)", _MERGED)
"""How the names of such spans end."""
_NOT_SPECIFIED = "<not specified>"
_EXECUTION = "execute_tool "
_THROWN = "Error in tool '"
_TRANSFER = "transfer_to_agent"
_KINDS: dict[str, ToolKind] = {
    "TransferToAgentTool": "handoff",
    "AgentTool": "agent",
    "GoogleSearchTool": "hosted",
    "VertexAiSearchTool": "hosted",
    "UrlContextTool": "hosted",
}
"""`gen_ai.tool.type` is the class of the tool."""
_EMPTY: tuple[Any, ...] = ("{}", {})
"""What is written where content is switched off."""


@dataclass(frozen=True, slots=True)
class _Unwrapped:
    """Messages in which results that are no dictionary stand inside `{"result": ...}`."""

    place: MessageSource

    def __call__(self, span: SpanRecord) -> Messages:
        """The messages of a span."""
        return tuple(map(_unwrapped, self.place(span)))

    def __str__(self) -> str:
        """How the documentation names the place."""
        return str(self.place)


def _unwrapped(message: Message) -> Message:
    return message._replace(answers=tuple(map(_answer, message.answers))) if message.answers else message


def _answer(answer: Answer) -> Answer:
    opened = _result(answer.result)
    return answer._replace(result=opened.value, is_error=answer.is_error or opened.is_error)


def _refine(span: SpanRecord, reading: Reading) -> Reading:
    attributes = span.attributes
    if not attributes:
        reading.role, reading.outcome = ("tool", "error") if span.name.startswith(_EXECUTION) else (None, None)
    name = attributes.get(semconv.TOOL_NAME)
    if name == _MERGED or (name is None and span.name.endswith(_MERGED_SPANS)):
        return Reading("aside", reading.by)
    if name is not None:
        reading.role = "tool"
        reading.kind = "handoff" if name == _TRANSFER else _KINDS.get(str(attributes.get(semconv.TOOL_TYPE)))
    if attributes.get(semconv.TOOL_CALL_ID) == _NOT_SPECIFIED:
        reading.call_id = ""
    if reading.role == "model":
        reading.tools = (partial(_offered, attributes[_REQUEST]),)
    if attributes.get(_ARGUMENTS) in _EMPTY and attributes.get(_RESPONSE) in _EMPTY:
        reading.arguments = reading.result = None
    return reading


def _offered(request: Any) -> tuple[ToolDefinition, ...]:
    """The tools in the configuration that goes with a request to the model."""
    read = plain(request)
    return messages.definitions(read.get("config")) if isinstance(read, Mapping) else ()


def _result(value: Any) -> values.Result:
    """Anything but a dictionary is wrapped into one, and what a function threw is told in a sentence."""
    return values.result(value, _thrown, envelopes.inside("result"))


def _thrown(value: Any) -> envelopes.Result | None:
    """What a function of TypeScript threw: `{"error": "Error in tool 'X': ..."}`."""
    told = value.get("error") if isinstance(value, Mapping) and len(value) == 1 else None
    is_ours = isinstance(told, str) and told.startswith(_THROWN)
    return envelopes.Result(told, is_error=True) if is_ours else None


CONVENTION = Convention(
    name="google_adk",
    title="Google Agent Development Kit",
    source="https://github.com/google/adk-python, https://github.com/google/adk-go, https://github.com/google/adk-java",
    versions="1 and 2 (Python), 0.2 to 1 (Go), 0.2 to 1 (Java)",
    roles={_ARGUMENTS: {ANY: "tool"}, _REQUEST: {ANY: "model"}},
    scopes=frozenset({"gcp.vertex.agent"}),
    signs=(f"{_PREFIX}event_id", f"{_PREFIX}invocation_id", _RESPONSE),
    of={
        "tool": Places(name=(semconv.TOOL_NAME,), arguments=(_ARGUMENTS,)),
        "model": Places(asked=(_Unwrapped(FromJson(_REQUEST)),), answered=(FromJson(_ANSWER),)),
    },
    everywhere=Places(
        result=(_RESPONSE, semconv.TOOL_CALL_RESULT),
        session_id=(f"{_PREFIX}session_id",),
        asked=(
            _Unwrapped(FromJson(semconv.INPUT_MESSAGES)),
            _Unwrapped(FromEvents(("gen_ai.client.inference.operation.details",), semconv.INPUT_MESSAGES)),
        ),
    ),
    span_names={"tool": ("execute_tool {name}", "tool_call [{name}]")},
    open_result=_result,
    refine=_refine,
    notes=(
        "The span `(merged tools)` after parallel calls is no call.",
        "`transfer_to_agent` is a hand-off, an `AgentTool` an agent.",
        "A call id `<not specified>` is none.",
        'Results that are no dictionary stand inside `{"result": ...}`.',
        "TypeScript: a span `execute_tool X` without any attribute is a call that failed.",
        'TypeScript: a result `{"error": "Error in tool \'X\': ..."}` is what the tool threw.',
        "A result in which the plugin ReflectAndRetry reports a failure is an error, whatever the span's status is.",
    ),
    content="OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT=SPAN_AND_EVENT, or "
    "ADK_CAPTURE_MESSAGE_CONTENT_IN_SPANS=true with ADK_TELEMETRY_SCHEMA_VERSION_OPT_IN=1",
)
