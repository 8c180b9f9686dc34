"""Splunk's GenAI utilities for OpenTelemetry: the standard's attributes, and a few more for steps and failures.

A model's request for a tool may be the bare word `ToolCall` in its output, so that only the span of the execution tells
which tool was asked for. The result of a LangChain tool is the `repr()` of its message.
"""

from __future__ import annotations

from goldspan.conventions.convention import ANY, Convention
from goldspan.conventions.span_facts import SpanFacts
from goldspan.model import SpanRecord

_STEP = "gen_ai.step.type"
_FINISH = "gen_ai.finish_reason"
_DESCRIPTION = "gen_ai.finish_reason_description"
_FAILED = frozenset({"failed", "error"})
_FAILED_WITHOUT_WORDS = "error"


def _postprocess(span: SpanRecord, facts: SpanFacts) -> SpanFacts:
    if facts.role == "entry":  # a step says of which type it is, as requests of other families do
        facts.role = None
    if str(span.attributes.get(_FINISH)).lower() in _FAILED:
        facts.error = str(span.attributes.get(_DESCRIPTION) or _FAILED_WITHOUT_WORDS)
    return facts


CONVENTION = Convention(
    name="splunk",
    title="Splunk GenAI utilities",
    source="https://github.com/signalfx/splunk-otel-python-contrib",
    versions="splunk-otel-util-genai 0.1, splunk-otel-instrumentation-langchain 0.1",
    roles={_STEP: {ANY: "entry"}},
    marker_attributes=(_FINISH, "gen_ai.evaluation.sampled", "gen_ai.conversation_root"),
    postprocess=_postprocess,
    notes=(
        "The attributes of OpenTelemetry's semantic conventions are read by those.",
        "A step (`gen_ai.step.type`) is a node of a graph, and no call.",
        "`gen_ai.finish_reason` = `failed` tells a failure; `gen_ai.finish_reason_description` says which.",
        "A model's part `ToolCall` does not name a tool: without the span of the tool, calls are invisible.",
    ),
    capture_setting="OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT=true",
)
