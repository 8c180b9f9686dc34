"""LangChain and LangGraph, as their OpenInference instrumentations show them: what is what stands in `metadata`."""

from __future__ import annotations

from collections.abc import Mapping

from goldspan.content import literals
from goldspan.conventions.openinference.specification import METADATA
from goldspan.conventions.span_facts import SpanFacts
from goldspan.model import SpanRecord

NOTES = (
    "LangChain: an agent's name is the `lc_agent_name` in `metadata`.",
    "LangGraph: the `CHAIN` span of a graph, called `LangGraph` unless the graph has a name of its own, is an agent.",
)
_GRAPH_SPAN_NAME = "LangGraph"
_LANGGRAPH_INTEGRATION = '"langgraph"'
"""The value of `ls_integration` in the metadata of everything in a graph."""
_GRAPH_NODE_KEY = '"langgraph_node"'
"""A key in the metadata of everything that a node of the graph does, and not of the graph's own run."""


def postprocess_agent(span: SpanRecord, facts: SpanFacts) -> None:
    """Find the name that the agent has in LangChain."""
    metadata = span.attributes.get(METADATA)
    if facts.name is None and isinstance(metadata, str) and "lc_agent_name" in metadata:
        read = literals.plain_value(metadata)
        name = read.get("lc_agent_name") if isinstance(read, Mapping) else None
        facts.name = facts.agent = name if isinstance(name, str) else None


def postprocess_chain(span: SpanRecord, facts: SpanFacts) -> None:
    """A graph is what its author calls an agent."""
    metadata = str(span.attributes.get(METADATA, ""))
    if span.name == _GRAPH_SPAN_NAME or (_LANGGRAPH_INTEGRATION in metadata and _GRAPH_NODE_KEY not in metadata):
        facts.role = "agent"
        postprocess_agent(span, facts)
