"""CrewAI: attributes that OpenLLMetry and OpenInference add to their conventions.

OpenLLMetry writes `crewai.*` attributes of crew, task and agent. OpenInference writes the whole result of a task and of
the crew. Both record the question only in these attributes. CrewAI sends its own telemetry only to its vendor.
"""

from __future__ import annotations

from collections.abc import Mapping

from goldspan.content.literals import plain_value
from goldspan.conventions.convention import AttributeMap, Convention
from goldspan.conventions.span_facts import SpanFacts
from goldspan.model import SpanRecord

_TASK = "crewai.task.description"
_RESULT = "crewai.crew.result"
_TOOLS = "crewai.agent.tools"
_CREW = "crew_key"


def _postprocess(span: SpanRecord, facts: SpanFacts) -> SpanFacts | None:
    if _CREW not in span.attributes:
        return facts
    result = plain_value(span.attributes.get("output.value"))
    if not isinstance(result, Mapping) or "raw" not in result:
        return None
    facts.input, facts.output = result.get("description"), result["raw"]
    return facts


CONVENTION = Convention(
    name="crewai",
    title="CrewAI",
    source="https://github.com/traceloop/openllmetry and https://github.com/Arize-ai/openinference",
    versions="recorded with CrewAI 1.15",
    marker_attributes=(_TASK, _RESULT, _TOOLS, _CREW),
    common_attributes=AttributeMap(input=(_TASK,), output=(_RESULT,), tool_definitions=(_TOOLS,)),
    postprocess=_postprocess,
    notes=(
        "The conventions of OpenLLMetry and OpenInference determine the roles.",
        "If a span has a `crew_key`, `output.value` holds the raw answer and, for a task, the task description.",
    ),
)
