"""LangChain's run metadata, which tracers copy into `metadata` whatever else they write.

It names the agent and the conversation, and tells the run of a graph from the runs of its nodes. Where OpenInference
writes it, its own rules apply.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from goldspan.content import literals
from goldspan.conventions.convention import Convention
from goldspan.conventions.span_facts import SpanFacts
from goldspan.model import SpanRecord


def messages_in_state(state: Any) -> list[Any]:
    """The messages in a graph's state, as written; none in anything else."""
    said = state.get("messages") if isinstance(state, Mapping) else None
    return said if isinstance(said, list) else []


def is_graph_run(input_state: Any, output_state: Any) -> bool:
    """Whether a chain is a whole graph: it returns its state, in which what it was asked comes before what it said.

    A node of a graph returns only what it adds.
    """
    asked = messages_in_state(input_state)
    words = _message_content(asked[-1]) if asked else None
    return bool(words) and any(_message_content(item) == words for item in messages_in_state(output_state)[:-1])


def _message_content(item: Any) -> Any:
    """What a message says: of a dictionary, of an object that LangChain serialized, or of a role and its words."""
    if isinstance(item, Mapping):
        fields = item.get("kwargs") if item.get("type") == "constructor" else item
        return fields.get("content") if isinstance(fields, Mapping) else None
    return item[1] if isinstance(item, list) and len(item) == _ROLE_CONTENT_PAIR else item


_ROLE_CONTENT_PAIR = 2


_METADATA = "metadata"
_OPENINFERENCE_KIND = "openinference.span.kind"
_AGENT_NAME = "lc_agent_name"
_INTEGRATION = "ls_integration"
_GRAPH_NODE = "langgraph_node"
_GRAPH_INTEGRATIONS = ("langgraph", "langchain_create_agent")
_LANGCHAIN_KEYS = frozenset({_AGENT_NAME, _INTEGRATION, _GRAPH_NODE})
"""What nobody but LangChain writes."""
_FLATTENED_PREFIX = "langfuse.observation.metadata."
_SESSION_KEYS = ("thread_id", "session_id", "conversation_id")


def _postprocess(span: SpanRecord, facts: SpanFacts) -> SpanFacts | None:
    told = None if _OPENINFERENCE_KIND in span.attributes else _run_metadata(span)
    if told is None or _LANGCHAIN_KEYS.isdisjoint(told):
        return None
    session = next((told[key] for key in _SESSION_KEYS if told.get(key)), None)
    facts.session_id = None if session is None else str(session)
    if _is_whole_graph(span, told):
        facts.role = "agent"
        name = told.get(_AGENT_NAME) or span.name
        facts.name = facts.agent = name if isinstance(name, str) else None
    return facts


def _run_metadata(span: SpanRecord) -> Mapping[str, Any] | None:
    """The metadata, as one JSON text or, flattened by Langfuse, each value as a JSON text of its own."""
    written = span.attributes.get(_METADATA)
    if not isinstance(written, str):
        flattened = {
            key: span.attributes.get(f"{_FLATTENED_PREFIX}{key}") for key in (*_LANGCHAIN_KEYS, *_SESSION_KEYS)
        }
        return {key: literals.plain_value(value) for key, value in flattened.items() if value is not None}
    told = literals.plain_value(written) if any(key in written for key in _LANGCHAIN_KEYS) else None
    return told if isinstance(told, Mapping) else None


def _is_whole_graph(span: SpanRecord, metadata: Mapping[str, Any]) -> bool:
    """Whether a span is the run of a whole graph: one inside a node of another graph has that node's metadata too."""
    if metadata.get(_INTEGRATION) not in _GRAPH_INTEGRATIONS:
        return False
    return metadata.get(_GRAPH_NODE) is None or (
        span.name == metadata.get(_AGENT_NAME) and span.name != metadata[_GRAPH_NODE]
    )


CONVENTION = Convention(
    name="langchain",
    title="LangChain run metadata",
    source="https://github.com/langchain-ai/langchain",
    versions="LangChain 1, LangGraph 1; written by MLflow and Langfuse",
    marker_attributes=(_METADATA, f"{_FLATTENED_PREFIX}{_AGENT_NAME}", f"{_FLATTENED_PREFIX}{_INTEGRATION}"),
    postprocess=_postprocess,
    notes=(
        "`lc_agent_name` in `metadata` is the agent's name; a graph that has none is called by its span.",
        "`thread_id`, `session_id` or `conversation_id` in `metadata` is the session's.",
    ),
)
