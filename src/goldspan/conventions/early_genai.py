"""GenAI attributes from before there were operations, which older and lighter instrumentations still write.

A model call is known by `gen_ai.request.model` and a tool by `gen_ai.tool.name` alone; messages are JSON text in
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
    """Messages in numbered attributes, `{prefix}.{number}.{field}`; Koog's calls stand in `content` as JSON text."""

    prefix: str

    def __call__(self, span: SpanRecord) -> Messages:
        """The messages of a span."""
        return messages.from_json([_decode_calls(item) for item in unflatten(span.attributes, self.prefix)])

    def is_present(self, span: SpanRecord) -> bool:
        """Whether the span has something there."""
        return any(key.startswith(f"{self.prefix}.") for key in span.attributes)

    def __str__(self) -> str:
        """How the documentation names the place."""
        return f"`{self.prefix}.N.*`"


def _decode_calls(item: Any) -> Any:
    content = item.get("content") if isinstance(item, Mapping) else None
    listed = plain_value(content) if isinstance(content, str) and content.startswith("[{") else None
    if isinstance(listed, list) and all(map(_is_call, listed)):
        return {"role": "assistant", "tool_calls": listed}
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
    notes=("Where a span names its operation or its kind, that decides what it is.",),
)
