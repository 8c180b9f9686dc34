"""Laminar: `lmnr.span.type` with `lmnr.span.input` and `.output`.

The name of a tool is the name of its span. Model spans follow the GenAI conventions or OpenLLMetry's older ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from goldspan import semconv
from goldspan.content import envelopes
from goldspan.conventions.convention import AttributeMap, Convention, FromFlattened, FromJson

_INPUT = "lmnr.span.input"
_OUTPUT = "lmnr.span.output"


def _unwrap_arguments(value: Any) -> Any:
    """Unwrap the arguments. The JavaScript SDK writes them as a list."""
    if isinstance(value, list) and len(value) == 1 and isinstance(value[0], Mapping):
        return value[0]
    return envelopes.unwrap_arguments(value)


CONVENTION = Convention(
    name="laminar",
    title="Laminar",
    source="https://github.com/lmnr-ai/lmnr-python, https://github.com/lmnr-ai/lmnr-ts",
    versions="0.5 to 0.8 (Python), 0.6 to 0.8 (JavaScript)",
    roles={"lmnr.span.type": {"tool": "tool", "llm": "model", "cached": "model"}},
    marker_attributes=(_INPUT, "lmnr.association.properties.session_id"),
    attributes_by_role={
        "tool": AttributeMap(arguments=(_INPUT,), result=(_OUTPUT,)),
        "model": AttributeMap(
            input_messages=(FromJson(semconv.INPUT_MESSAGES), FromFlattened("gen_ai.prompt"), FromJson(_INPUT)),
            output_messages=(FromJson(semconv.OUTPUT_MESSAGES), FromFlattened("gen_ai.completion"), FromJson(_OUTPUT)),
            tool_definitions=(semconv.TOOL_DEFINITIONS,),
        ),
    },
    common_attributes=AttributeMap(
        input=(_INPUT,), output=(_OUTPUT,), session_id=("lmnr.association.properties.session_id",)
    ),
    span_name_templates={"tool": ("{name}",)},
    unwrap_arguments=_unwrap_arguments,
)
