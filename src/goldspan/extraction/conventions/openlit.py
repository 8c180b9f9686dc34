"""OpenLIT, a dialect of the GenAI conventions.

It writes their operations and attributes, but calls every node of a LangGraph graph an agent, and gives a LangChain
tool that failed the id of LangChain's run in place of the call's.
"""

from __future__ import annotations

import re

from goldspan import semconv
from goldspan.extraction.convention import Convention
from goldspan.extraction.reading import Reading
from goldspan.model import SpanRecord

_SDK = "telemetry.sdk.name"
_APPLICATION = "gen_ai.application_name"
_WORKFLOW = "gen_ai.workflow.name"
_PROVIDER = "gen_ai.provider.name"
_NODES = frozenset({"model", "agent", "tools", "call_model", "model_request"})
"""The nodes of LangChain's and LangGraph's ready-made agents: steps of an agent, and none themselves."""
_RUN_ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_TEAMS = ("gen_ai.agno.team.agents", "gen_ai.graph.status", "gen_ai.graph.message_count")


def _refine(span: SpanRecord, reading: Reading) -> Reading | None:
    attributes = span.attributes
    operation = attributes.get(semconv.OPERATION)
    if operation == semconv.EXECUTE_TOOL and span.scope.endswith(".langchain") and span.status == "error":
        if _RUN_ID.fullmatch(str(attributes.get(semconv.TOOL_CALL_ID))):
            reading.call_id = ""
    elif operation == semconv.INVOKE_AGENT and attributes.get(_PROVIDER) == "langgraph":
        node = str(attributes.get(semconv.AGENT_NAME))
        # Middleware adds nodes such as `Summarization.before_model`.
        if node in _NODES or "." in node:
            reading.role, reading.name, reading.agent = "aside", "", ""
    elif operation == "invoke_workflow" and any(key in attributes for key in _TEAMS):
        name = attributes.get(_WORKFLOW)
        reading.role = "agent"
        reading.name = reading.agent = name if isinstance(name, str) else None
    return reading


CONVENTION = Convention(
    name="openlit",
    title="OpenLIT",
    source="https://github.com/openlit/openlit",
    versions="1.45 (Python)",
    signs=(_SDK, _APPLICATION),
    refine=_refine,
    notes=(
        "A LangGraph graph and an agno team, which are workflows by their operation, are agents.",
        "The nodes `model`, `agent` and `tools` of a graph are no agents.",
        "The call id of a LangChain tool that failed is LangChain's own, and is not used.",
    ),
    content="capture_message_content=True",
)
