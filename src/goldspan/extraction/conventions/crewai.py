"""CrewAI: what its instrumentations write beside the conventions that they follow.

OpenLLMetry writes `crewai.*` attributes of crew, task and agent, OpenInference the whole result of a task and of the
crew. Both tell the question only there. CrewAI's own telemetry goes to its makers and to nobody else.
"""

from __future__ import annotations

from collections.abc import Mapping

from goldspan.extraction.convention import Convention, Places
from goldspan.extraction.notation import plain
from goldspan.extraction.reading import Reading
from goldspan.model import SpanRecord

_TASK = "crewai.task.description"
_RESULT = "crewai.crew.result"
_TOOLS = "crewai.agent.tools"
_CREW = "crew_key"


def _refine(span: SpanRecord, reading: Reading) -> Reading | None:
    if _CREW not in span.attributes:
        return reading
    result = plain(span.attributes.get("output.value"))
    if not isinstance(result, Mapping) or "raw" not in result:
        return None
    reading.input, reading.output = result.get("description"), result["raw"]
    return reading


CONVENTION = Convention(
    name="crewai",
    title="CrewAI",
    source="https://github.com/traceloop/openllmetry and https://github.com/Arize-ai/openinference",
    versions="recorded with CrewAI 1.15",
    signs=(_TASK, _RESULT, _TOOLS, _CREW),
    everywhere=Places(input=(_TASK,), output=(_RESULT,), tools=(_TOOLS,)),
    refine=_refine,
    notes=(
        "Roles are read as in OpenLLMetry and OpenInference.",
        "With a `crew_key`, `output.value` holds the raw answer and, of a task, its description.",
    ),
)
