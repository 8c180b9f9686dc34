"""Spring AI: Micrometer observations with `spring.ai.kind` and the operation `framework`.

Spring AI does not write messages on spans. It writes arguments and results if a setting enables them. From version 2
on, tool calls also follow the GenAI conventions. If a tool throws an exception, the model gets its message as the
result, and the status of the span is OK: `DefaultToolCallingManager` and `DefaultToolExecutionExceptionProcessor`.
"""

from __future__ import annotations

from goldspan import semconv
from goldspan.conventions.convention import AttributeMap, Convention
from goldspan.conventions.span_facts import SpanFacts
from goldspan.model import SpanRecord

_KIND = "spring.ai.kind"
_DEFINITION = "spring.ai.tool.definition"


def _postprocess(span: SpanRecord, facts: SpanFacts) -> SpanFacts:
    if str(span.attributes.get(_KIND)).lower() == "vector_store":
        facts.kind = "retrieval"
    return facts


CONVENTION = Convention(
    name="spring_ai",
    title="Spring AI",
    source="https://docs.spring.io/spring-ai/reference/observability/index.html",
    versions="1.0 to 2.0 (recorded with 2.0.1)",
    roles={_KIND: {"tool_call": "tool", "vector_store": "tool", "chat_client": "entry"}},
    attributes_by_role={
        "tool": AttributeMap(
            name=(f"{_DEFINITION}.name", semconv.TOOL_NAME),
            call_id=("spring.ai.tool.call.id", semconv.TOOL_CALL_ID),
            arguments=("spring.ai.tool.call.arguments",),
            result=("spring.ai.tool.call.result",),
        ),
    },
    common_attributes=AttributeMap(session_id=("spring.ai.chat.client.conversation.id",)),
    span_name_templates={"tool": ("tool_call {name}", "execute_tool {name}")},
    postprocess=_postprocess,
    notes=(
        "A query of a vector store is a retrieval.",
        "Spans have neither the question nor the answer, so goldens are found by selectors or ids.",
        "The message of a tool's exception is the result of its call, not its error.",
    ),
    capture_setting="spring.ai.tools.observations.include-content=true",
)
