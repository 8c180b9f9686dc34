"""CrewAI, as its OpenInference instrumentation shows it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from goldspan.content import literals
from goldspan.content.envelopes import CallArguments
from goldspan.content.literals import parse_object
from goldspan.content.tools import fold_name
from goldspan.conventions.openinference.specification import INPUT
from goldspan.conventions.span_facts import SpanFacts
from goldspan.model import SpanRecord

NOTES = (
    "CrewAI: the `CHAIN` span of a crew or a flow (`crew_key`, `flow_id`) is where an application is entered.",
    "CrewAI: `Delegate work to coworker` and `Ask question to coworker` call another agent.",
    "CrewAI: of a tool used through `ToolUsage`, the arguments are those of the `calling` in `input.value`.",
)
_DELEGATION_TOOLS = frozenset({"delegateworktocoworker", "askquestiontocoworker"})
_COWORKER = "coworker"
_ENTRY_ATTRIBUTES = ("crew_key", "crew_id", "flow_id")


def postprocess_chain(span: SpanRecord, facts: SpanFacts) -> None:
    """A crew or a flow is one request, however many agents work in it."""
    if any(key in span.attributes for key in _ENTRY_ATTRIBUTES):
        facts.role = "entry"


def postprocess_tool(span: SpanRecord, facts: SpanFacts) -> None:
    """A tool that hands work, or a question, to another agent of the crew is that agent."""
    if (
        facts.name is not None
        and fold_name(facts.name) in _DELEGATION_TOOLS
        and _COWORKER in str(span.attributes.get(INPUT))
    ):
        facts.kind = "agent"


def unwrap_tool_usage(value: Any) -> CallArguments | None:
    """How CrewAI's own function was called, which older versions record instead: `{"tool_string", "calling", ...}`."""
    if not isinstance(value, Mapping) or not {"tool_string", "calling"} <= set(value):
        return None
    calling = value["calling"]
    shown = parse_object(calling) if isinstance(calling, str) else calling
    return CallArguments(literals.plain_value(shown.get("arguments") or {})) if isinstance(shown, Mapping) else None
