"""Splunk's GenAI utilities: GenAI attributes, and additional attributes for steps and failures.

A call in a model's output may be only the word `ToolCall`; then only the span of the execution names the tool. The
result of a LangChain tool is the `repr()` of its message.
"""

from __future__ import annotations

from goldspan.conventions.convention import ANY, Convention
from goldspan.conventions.span_facts import SpanFacts
from goldspan.model import SpanRecord

_STEP = "gen_ai.step.type"
_FINISH = "gen_ai.finish_reason"
_DESCRIPTION = "gen_ai.finish_reason_description"
_FAILED = frozenset({"failed", "error"})
_DEFAULT_ERROR = "error"


def _postprocess(span: SpanRecord, facts: SpanFacts) -> SpanFacts:
    if facts.role == "entry":  # a step of a graph is not a request
        facts.role = None
    if str(span.attributes.get(_FINISH)).lower() in _FAILED:
        facts.error = str(span.attributes.get(_DESCRIPTION) or _DEFAULT_ERROR)
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
        "The GenAI convention reads the standard attributes.",
        "A step (`gen_ai.step.type`) is a node of a graph, not a call.",
        "`gen_ai.finish_reason` is `failed` on failure; `gen_ai.finish_reason_description` is the error.",
        "The part `ToolCall` of a model's message names no tool. goldspan sees the call only if the tool has a span.",
    ),
    capture_setting="OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT=true",
)
