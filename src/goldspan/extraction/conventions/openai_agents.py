"""OpenTelemetry's own instrumentation of the OpenAI Agents SDK, a dialect of the GenAI conventions.

Every span carries the same `gen_ai.agent.name`, `OpenAI Agent`, unless the application has set another: only the names
of the agents' spans tell them apart. Tool calls in messages are the `repr` of Python objects.
"""

from __future__ import annotations

from goldspan import semconv
from goldspan.extraction.convention import Convention
from goldspan.extraction.reading import Reading
from goldspan.model import SpanRecord

_DESCRIPTION = "gen_ai.agent.description"
_ANYBODY = "OpenAI Agent"
_AGENT_SPAN = f"{semconv.INVOKE_AGENT} "


def _refine(span: SpanRecord, reading: Reading) -> Reading | None:
    attributes = span.attributes
    if attributes.get(semconv.AGENT_NAME) != _ANYBODY:
        return None
    named = span.name.removeprefix(_AGENT_SPAN) if span.name.startswith(_AGENT_SPAN) else _ANYBODY
    reading.agent = "" if named == _ANYBODY else named
    if attributes.get(semconv.OPERATION) == semconv.INVOKE_AGENT:
        reading.name = reading.agent
    return reading


CONVENTION = Convention(
    name="openai_agents",
    title="OpenTelemetry instrumentation of the OpenAI Agents SDK",
    source="https://pypi.org/project/opentelemetry-instrumentation-openai-agents-v2",
    versions="0.1",
    signs=(_DESCRIPTION,),
    refine=_refine,
    notes=(
        "The agent name `OpenAI Agent` stands for any agent: `invoke_agent trip-agent`, the span's name, tells which.",
    ),
    content="OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT=span_and_event",
)
