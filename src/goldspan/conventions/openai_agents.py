"""OpenTelemetry's own instrumentation of the OpenAI Agents SDK: GenAI spans with one agent name.

Every span has the same `gen_ai.agent.name`, `OpenAI Agent`, unless the application set another name; only the names of
the agents' spans distinguish the agents. Tool calls in messages are the `repr` of Python objects.
"""

from __future__ import annotations

from goldspan import semconv
from goldspan.conventions.convention import Convention
from goldspan.conventions.span_facts import SpanFacts
from goldspan.model import SpanRecord

_DESCRIPTION = "gen_ai.agent.description"
_DEFAULT_AGENT_NAME = "OpenAI Agent"
_AGENT_SPAN_PREFIX = f"{semconv.INVOKE_AGENT} "


def _postprocess(span: SpanRecord, facts: SpanFacts) -> SpanFacts | None:
    attributes = span.attributes
    if attributes.get(semconv.AGENT_NAME) != _DEFAULT_AGENT_NAME:
        return None
    agent = (
        span.name.removeprefix(_AGENT_SPAN_PREFIX) if span.name.startswith(_AGENT_SPAN_PREFIX) else _DEFAULT_AGENT_NAME
    )
    facts.agent = "" if agent == _DEFAULT_AGENT_NAME else agent
    if attributes.get(semconv.OPERATION) == semconv.INVOKE_AGENT:
        facts.name = facts.agent
    return facts


CONVENTION = Convention(
    name="openai_agents",
    title="OpenTelemetry instrumentation of the OpenAI Agents SDK",
    source="https://pypi.org/project/opentelemetry-instrumentation-openai-agents-v2",
    versions="0.1",
    marker_attributes=(_DESCRIPTION,),
    postprocess=_postprocess,
    notes=(
        "`OpenAI Agent` is the default name of every agent.",
        "The span's name, such as `invoke_agent trip-agent`, contains the actual name.",
    ),
    capture_setting="OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT=span_and_event",
)
