"""LangChain and LangGraph in OpenInference: `metadata` identifies agents and graphs."""

from __future__ import annotations

from collections.abc import Mapping

from goldspan.content import literals
from goldspan.conventions.openinference.specification import METADATA
from goldspan.conventions.span_facts import SpanFacts
from goldspan.model import SpanRecord

NOTES = (
    "LangChain: an agent's name is the `lc_agent_name` in `metadata`.",
    "LangGraph: the `CHAIN` span of a graph is an agent. It is named `LangGraph` unless the graph has its own name.",
)
_GRAPH_SPAN_NAME = "LangGraph"
_LANGGRAPH_INTEGRATION = '"langgraph"'
"""Value of `ls_integration` in the metadata of all spans of a graph."""
_GRAPH_NODE_KEY = '"langgraph_node"'
"""Key in the metadata of the spans of the graph's nodes; the span of the graph itself does not have it."""


def postprocess_agent(span: SpanRecord, facts: SpanFacts) -> None:
    """Read the agent's name from LangChain's metadata."""
    metadata = span.attributes.get(METADATA)
    if facts.name is None and isinstance(metadata, str) and "lc_agent_name" in metadata:
        decoded = literals.plain_value(metadata)
        name = decoded.get("lc_agent_name") if isinstance(decoded, Mapping) else None
        facts.name = facts.agent = name if isinstance(name, str) else None


def postprocess_chain(span: SpanRecord, facts: SpanFacts) -> None:
    """Mark the run of a graph as an agent."""
    metadata = str(span.attributes.get(METADATA, ""))
    if span.name == _GRAPH_SPAN_NAME or (_LANGGRAPH_INTEGRATION in metadata and _GRAPH_NODE_KEY not in metadata):
        facts.role = "agent"
        postprocess_agent(span, facts)
