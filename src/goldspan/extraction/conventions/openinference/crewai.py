"""CrewAI, as its OpenInference instrumentation shows it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from goldspan.extraction import values
from goldspan.extraction.conventions.openinference.attributes import INPUT
from goldspan.extraction.envelopes import Request
from goldspan.extraction.names import fold
from goldspan.extraction.notation import constructed
from goldspan.extraction.reading import Reading
from goldspan.model import SpanRecord

NOTES = (
    "CrewAI: the `CHAIN` span of a crew or a flow (`crew_key`, `flow_id`) is where an application is entered.",
    "CrewAI: `Delegate work to coworker` and `Ask question to coworker` call another agent.",
    "CrewAI: of a tool used through `ToolUsage`, the arguments are those of the `calling` in `input.value`.",
)
_DELEGATES = frozenset({"delegateworktocoworker", "askquestiontocoworker"})
_COWORKER = "coworker"
_ENTRIES = ("crew_key", "crew_id", "flow_id")


def refine_chain(span: SpanRecord, reading: Reading) -> None:
    """A crew or a flow is one request, however many agents work in it."""
    if any(key in span.attributes for key in _ENTRIES):
        reading.role = "entry"


def refine_tool(span: SpanRecord, reading: Reading) -> None:
    """A tool that hands work, or a question, to another agent of the crew is that agent."""
    if reading.name is not None and fold(reading.name) in _DELEGATES and _COWORKER in str(span.attributes.get(INPUT)):
        reading.kind = "agent"


def tool_usage(value: Any) -> Request | None:
    """How CrewAI's own function was called, which older versions record instead: `{"tool_string", "calling", ...}`."""
    if not isinstance(value, Mapping) or not {"tool_string", "calling"} <= set(value):
        return None
    calling = value["calling"]
    shown = constructed(calling) if isinstance(calling, str) else calling
    return Request(values.plain(shown.get("arguments") or {})) if isinstance(shown, Mapping) else None
