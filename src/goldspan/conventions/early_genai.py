"""GenAI attributes without operations, as older and smaller instrumentations write them.

`gen_ai.request.model` alone identifies a model call and `gen_ai.tool.name` a tool; messages are JSON text in
`gen_ai.prompt` and `gen_ai.completion`, or numbered attributes below them. Koog (JetBrains) writes such tools.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from goldspan import semconv
from goldspan.content import messages
from goldspan.content.flat_attributes import unflatten
from goldspan.content.literals import plain_value
from goldspan.conventions.convention import ANY, AttributeMap, Convention, FromJson
from goldspan.conventions.span_facts import Messages
from goldspan.model import SpanRecord

_MODEL = "gen_ai.request.model"
_PROMPT = "gen_ai.prompt"
_COMPLETION = "gen_ai.completion"
_NUMBERED_MARKERS = (f"{_PROMPT}.0.role", f"{_PROMPT}.0.content", f"{_COMPLETION}.0.role", f"{_COMPLETION}.0.content")


@dataclass(frozen=True, slots=True)
class _FromNumbered:
    """Reads messages from numbered attributes, `{prefix}.{number}.{field}`. Koog writes calls as JSON in `content`."""

    prefix: str

    def __call__(self, span: SpanRecord) -> Messages:
        """Return the messages of a span."""
        return messages.from_json([_decode_calls(item) for item in unflatten(span.attributes, self.prefix)])

    def is_present(self, span: SpanRecord) -> bool:
        """Whether the span may have messages."""
        return any(key.startswith(f"{self.prefix}.") for key in span.attributes)

    def __str__(self) -> str:
        """Return the description of the source for the documentation."""
        return f"`{self.prefix}.N.*`"


def _decode_calls(item: Any) -> Any:
    content = item.get("content") if isinstance(item, Mapping) else None
    calls = plain_value(content) if isinstance(content, str) and content.startswith("[{") else None
    if isinstance(calls, list) and all(map(_is_call, calls)):
        return {"role": "assistant", "tool_calls": calls}
    return item


def _is_call(item: Any) -> bool:
    return isinstance(item, Mapping) and isinstance(item.get("function"), Mapping) and "arguments" in item["function"]


CONVENTION = Convention(
    name="early_genai",
    title="GenAI attributes without operations",
    source="https://github.com/open-telemetry/semantic-conventions/tree/v1.26.0/docs/gen-ai, "
    "https://docs.koog.ai/opentelemetry-support",
    is_shared=True,
    versions="before 1.27; Koog 0.2 to 0.5",
    roles={semconv.TOOL_NAME: {ANY: "tool"}, _MODEL: {ANY: "model"}},
    marker_attributes=_NUMBERED_MARKERS,
    attributes_by_role={
        "tool": AttributeMap(
            name=(semconv.TOOL_NAME,),
            call_id=(semconv.TOOL_CALL_ID,),
            arguments=(semconv.TOOL_CALL_ARGUMENTS, "input.value"),
            result=(semconv.TOOL_CALL_RESULT, "output.value"),
        ),
        "model": AttributeMap(input_messages=(FromJson(_PROMPT),), output_messages=(FromJson(_COMPLETION),)),
    },
    common_attributes=AttributeMap(
        agent=(semconv.AGENT_NAME,),
        input_messages=(_FromNumbered(_PROMPT),),
        output_messages=(_FromNumbered(_COMPLETION),),
    ),
    excluded_by=(semconv.OPERATION, "gen_ai.span.kind"),
    span_name_templates={"tool": ("tool.{name}",)},
    notes=("If a span has an operation or a kind, another convention determines its role.",),
)
