"""LangChain's run metadata, which tracers copy into `metadata` whatever else they write.

It names the agent and the conversation, and tells the run of a graph from the runs of its nodes. Where OpenInference
writes it, its own rules apply.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from goldspan.extraction import values
from goldspan.extraction.convention import Convention
from goldspan.extraction.reading import Reading
from goldspan.model import SpanRecord

_METADATA = "metadata"
_KNOWN_BETTER = "openinference.span.kind"
_AGENT = "lc_agent_name"
_INTEGRATION = "ls_integration"
_NODE = "langgraph_node"
_GRAPHS = ("langgraph", "langchain_create_agent")
_OWN = frozenset({_AGENT, _INTEGRATION, _NODE})
"""What nobody but LangChain writes."""
_FLATTENED = "langfuse.observation.metadata."
_SESSIONS = ("thread_id", "session_id", "conversation_id")


def _refine(span: SpanRecord, reading: Reading) -> Reading | None:
    told = None if _KNOWN_BETTER in span.attributes else _told(span)
    if told is None or _OWN.isdisjoint(told):
        return None
    session = next((told[key] for key in _SESSIONS if told.get(key)), None)
    reading.session_id = None if session is None else str(session)
    if _is_graph(span, told):
        reading.role = "agent"
        name = told.get(_AGENT) or span.name
        reading.name = reading.agent = name if isinstance(name, str) else None
    return reading


def _told(span: SpanRecord) -> Mapping[str, Any] | None:
    """The metadata, as one JSON text or, flattened by Langfuse, each value as a JSON text of its own."""
    written = span.attributes.get(_METADATA)
    if not isinstance(written, str):
        flattened = {key: span.attributes.get(f"{_FLATTENED}{key}") for key in (*_OWN, *_SESSIONS)}
        return {key: values.plain(value) for key, value in flattened.items() if value is not None}
    told = values.plain(written) if any(key in written for key in _OWN) else None
    return told if isinstance(told, Mapping) else None


def _is_graph(span: SpanRecord, told: Mapping[str, Any]) -> bool:
    """Whether a span is the run of a whole graph: one inside a node of another graph has that node's metadata too."""
    if told.get(_INTEGRATION) not in _GRAPHS:
        return False
    return told.get(_NODE) is None or (span.name == told.get(_AGENT) and span.name != told[_NODE])


CONVENTION = Convention(
    name="langchain",
    title="LangChain run metadata",
    source="https://github.com/langchain-ai/langchain",
    versions="LangChain 1, LangGraph 1; written by MLflow and Langfuse",
    signs=(_METADATA, f"{_FLATTENED}{_AGENT}", f"{_FLATTENED}{_INTEGRATION}"),
    refine=_refine,
    notes=(
        "`lc_agent_name` in `metadata` is the agent's name; a graph that has none is called by its span.",
        "`thread_id`, `session_id` or `conversation_id` in `metadata` is the session's.",
    ),
)
