"""Splunk's GenAI utilities for OpenTelemetry: the standard's attributes, and a few more for steps and failures.

A model's request for a tool may be the bare word `ToolCall` in its output, so that only the span of the execution tells
which tool was asked for. The result of a LangChain tool is the `repr()` of its message.
"""

from __future__ import annotations

from goldspan.extraction.convention import ANY, Convention
from goldspan.extraction.reading import Reading
from goldspan.model import SpanRecord

_STEP = "gen_ai.step.type"
_FINISH = "gen_ai.finish_reason"
_DESCRIPTION = "gen_ai.finish_reason_description"
_FAILED = frozenset({"failed", "error"})
_FAILED_WITHOUT_WORDS = "error"


def _refine(span: SpanRecord, reading: Reading) -> Reading:
    if reading.role == "entry":  # a step says of which type it is, as requests of other families do
        reading.role = None
    if str(span.attributes.get(_FINISH)).lower() in _FAILED:
        reading.error = str(span.attributes.get(_DESCRIPTION) or _FAILED_WITHOUT_WORDS)
    return reading


CONVENTION = Convention(
    name="splunk",
    title="Splunk GenAI utilities",
    source="https://github.com/signalfx/splunk-otel-python-contrib",
    versions="splunk-otel-util-genai 0.1, splunk-otel-instrumentation-langchain 0.1",
    roles={_STEP: {ANY: "entry"}},
    signs=(_FINISH, "gen_ai.evaluation.sampled", "gen_ai.conversation_root"),
    refine=_refine,
    notes=(
        "The attributes of OpenTelemetry's semantic conventions are read by those.",
        "A step (`gen_ai.step.type`) is a node of a graph, and no call.",
        "`gen_ai.finish_reason` = `failed` tells a failure; `gen_ai.finish_reason_description` says which.",
        "A model's part `ToolCall` does not name a tool: without the span of the tool, calls are invisible.",
    ),
    content="OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT=true",
)
