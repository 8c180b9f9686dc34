"""LangChain's run metadata, which the tracers of several families copy into `metadata`.

The metadata names the agent and the conversation, and distinguishes the run of a graph from the runs of its nodes. The
OpenInference convention has its own rules for this metadata.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from goldspan.content import literals
from goldspan.conventions.convention import Convention
from goldspan.conventions.span_facts import SpanFacts
from goldspan.model import SpanRecord


def messages_in_state(state: Any) -> list[Any]:
    """Return the unparsed messages in a graph's state, or no messages for any other value."""
    history = state.get("messages") if isinstance(state, Mapping) else None
    return history if isinstance(history, list) else []


def is_graph_run(input_state: Any, output_state: Any) -> bool:
    """Whether a chain is the run of a graph: its output state repeats the request and continues with further messages.

    A node of a graph returns only the messages that it adds.
    """
    inputs = messages_in_state(input_state)
    request = _message_content(inputs[-1]) if inputs else None
    return bool(request) and any(_message_content(item) == request for item in messages_in_state(output_state)[:-1])


def _message_content(item: Any) -> Any:
    """Return the content of a message: a dictionary, a serialized LangChain object, or a pair of role and content."""
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
"""Keys that only LangChain writes."""
_FLATTENED_PREFIX = "langfuse.observation.metadata."
_SESSION_KEYS = ("thread_id", "session_id", "conversation_id")


def _postprocess(span: SpanRecord, facts: SpanFacts) -> SpanFacts | None:
    run_metadata = None if _OPENINFERENCE_KIND in span.attributes else _run_metadata(span)
    if run_metadata is None or _LANGCHAIN_KEYS.isdisjoint(run_metadata):
        return None
    session = next((run_metadata[key] for key in _SESSION_KEYS if run_metadata.get(key)), None)
    facts.session_id = None if session is None else str(session)
    if _is_whole_graph(span, run_metadata):
        facts.role = "agent"
        name = run_metadata.get(_AGENT_NAME) or span.name
        facts.name = facts.agent = name if isinstance(name, str) else None
    return facts


def _run_metadata(span: SpanRecord) -> Mapping[str, Any] | None:
    """Return the metadata from one JSON text, or from the attributes into which Langfuse flattens it."""
    metadata = span.attributes.get(_METADATA)
    if not isinstance(metadata, str):
        flattened = {
            key: span.attributes.get(f"{_FLATTENED_PREFIX}{key}") for key in (*_LANGCHAIN_KEYS, *_SESSION_KEYS)
        }
        return {key: literals.plain_value(value) for key, value in flattened.items() if value is not None}
    run_metadata = literals.plain_value(metadata) if any(key in metadata for key in _LANGCHAIN_KEYS) else None
    return run_metadata if isinstance(run_metadata, Mapping) else None


def _is_whole_graph(span: SpanRecord, metadata: Mapping[str, Any]) -> bool:
    """Whether the span is the run of a graph. A graph inside another graph's node inherits the node's metadata."""
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
        "`lc_agent_name` in `metadata` is the agent's name. A graph without it has the name of its span.",
        "`thread_id`, `session_id` or `conversation_id` in `metadata` is the session id.",
    ),
)
