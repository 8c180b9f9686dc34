"""CrewAI in OpenInference: crews and flows are `CHAIN` spans, and delegation is a tool."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from goldspan.content import literals
from goldspan.content.envelopes import CallArguments
from goldspan.content.literals import parse_object
from goldspan.conventions.openinference.specification import INPUT
from goldspan.conventions.span_facts import SpanFacts
from goldspan.model import SpanRecord
from goldspan.model.name_folding import fold_name

NOTES = (
    "CrewAI: the `CHAIN` span of a crew or a flow (`crew_key`, `flow_id`) starts a request.",
    "CrewAI: `Delegate work to coworker` and `Ask question to coworker` call another agent.",
    "CrewAI: if a tool was called through `ToolUsage`, the `calling` in `input.value` holds its arguments.",
)
_DELEGATION_TOOLS = frozenset({"delegateworktocoworker", "askquestiontocoworker"})
_COWORKER = "coworker"
_ENTRY_ATTRIBUTES = ("crew_key", "crew_id", "flow_id")


def postprocess_chain(span: SpanRecord, facts: SpanFacts) -> None:
    """Mark a crew or a flow as a request. A request may contain several agents."""
    if any(key in span.attributes for key in _ENTRY_ATTRIBUTES):
        facts.role = "entry"


def postprocess_tool(span: SpanRecord, facts: SpanFacts) -> None:
    """Mark a tool that delegates work or a question to another agent of the crew as an agent."""
    if (
        facts.name is not None
        and fold_name(facts.name) in _DELEGATION_TOOLS
        and _COWORKER in str(span.attributes.get(INPUT))
    ):
        facts.kind = "agent"


def unwrap_tool_usage(value: Any) -> CallArguments | None:
    """Unwrap the arguments of CrewAI's own function, as older versions record: `{"tool_string", "calling", ...}`."""
    if not isinstance(value, Mapping) or not {"tool_string", "calling"} <= set(value):
        return None
    calling = value["calling"]
    call = parse_object(calling) if isinstance(calling, str) else calling
    return CallArguments(literals.plain_value(call.get("arguments") or {})) if isinstance(call, Mapping) else None
