"""Laminar: `lmnr.span.type` with `lmnr.span.input` and `.output`.

The name of a tool is the name of its span. Model spans follow the GenAI conventions or OpenLLMetry's older ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from goldspan import semconv
from goldspan.extraction import values
from goldspan.extraction.convention import Convention, FromFlat, FromJson, Places

_INPUT = "lmnr.span.input"
_OUTPUT = "lmnr.span.output"


def _arguments(value: Any) -> Any:
    """The JavaScript SDK writes the list of what a function was called with."""
    if isinstance(value, list) and len(value) == 1 and isinstance(value[0], Mapping):
        return value[0]
    return values.request(value)


CONVENTION = Convention(
    name="laminar",
    title="Laminar",
    source="https://github.com/lmnr-ai/lmnr-python, https://github.com/lmnr-ai/lmnr-ts",
    versions="0.5 to 0.8 (Python), 0.6 to 0.8 (JavaScript)",
    roles={"lmnr.span.type": {"tool": "tool", "llm": "model", "cached": "model"}},
    signs=(_INPUT, "lmnr.association.properties.session_id"),
    of={
        "tool": Places(arguments=(_INPUT,), result=(_OUTPUT,)),
        "model": Places(
            asked=(FromJson(semconv.INPUT_MESSAGES), FromFlat("gen_ai.prompt"), FromJson(_INPUT)),
            answered=(FromJson(semconv.OUTPUT_MESSAGES), FromFlat("gen_ai.completion"), FromJson(_OUTPUT)),
            tools=(semconv.TOOL_DEFINITIONS,),
        ),
    },
    everywhere=Places(input=(_INPUT,), output=(_OUTPUT,), session_id=("lmnr.association.properties.session_id",)),
    span_names={"tool": ("{name}",)},
    open_arguments=_arguments,
)
