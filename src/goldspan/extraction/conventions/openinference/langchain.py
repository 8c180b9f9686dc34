"""LangChain and LangGraph, as their OpenInference instrumentations show them: what is what stands in `metadata`."""

from __future__ import annotations

from collections.abc import Mapping

from goldspan.extraction import values
from goldspan.extraction.conventions.openinference.attributes import METADATA
from goldspan.extraction.reading import Reading
from goldspan.model import SpanRecord

NOTES = (
    "LangChain: an agent's name is the `lc_agent_name` in `metadata`.",
    "LangGraph: the `CHAIN` span of a graph, called `LangGraph` unless the graph has a name of its own, is an agent.",
)
_GRAPH = "LangGraph"
_INTEGRATION = '"langgraph"'
"""The value of `ls_integration` in the metadata of everything in a graph."""
_IN_A_NODE = '"langgraph_node"'
"""A key in the metadata of everything that a node of the graph does, and not of the graph's own run."""


def refine_agent(span: SpanRecord, reading: Reading) -> None:
    """Find the name that the agent has in LangChain."""
    metadata = span.attributes.get(METADATA)
    if reading.name is None and isinstance(metadata, str) and "lc_agent_name" in metadata:
        read = values.plain(metadata)
        name = read.get("lc_agent_name") if isinstance(read, Mapping) else None
        reading.name = reading.agent = name if isinstance(name, str) else None


def refine_chain(span: SpanRecord, reading: Reading) -> None:
    """A graph is what its author calls an agent."""
    metadata = str(span.attributes.get(METADATA, ""))
    if span.name == _GRAPH or (_INTEGRATION in metadata and _IN_A_NODE not in metadata):
        reading.role = "agent"
        refine_agent(span, reading)
