"""LlamaIndex in OpenInference: agents are workflows, and workflows are `CHAIN` spans."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial

from goldspan.content import literals, values
from goldspan.content.literals import parse_object
from goldspan.conventions.llama_index import HANDOFF_TOOL, is_handoff
from goldspan.conventions.openinference.specification import INPUT, OUTPUT
from goldspan.conventions.span_facts import Message, Messages, SpanFacts
from goldspan.model import SpanRecord

NOTES = (
    "LlamaIndex: the `CHAIN` span of an agent's run, such as `FunctionAgent.run`, is an agent.",
    "LlamaIndex: the tool `handoff` with `to_agent` is a hand-off.",
    "LlamaIndex: the `CHAIN` span of any other workflow's run starts a request.",
)
_RUN_SUFFIX = ".run"
_PREPARATION_SUFFIX = "._prepare_chat_with_tools"
_AGENT_SPAN_NAME = re.compile(r"\w*(?:Agent|AgentWorkflow)\.run")
_START_EVENT = '"start_event"'
"""Parameter that only the `run` method of a workflow has."""
_STOP_EVENT = "StopEvent("
_AGENT_EVENTS = ("AgentWorkflowStartEvent", "AgentOutput(")


def postprocess_chain(span: SpanRecord, facts: SpanFacts) -> None:
    """Mark the run of an agent as an agent, and the run of any other workflow as a request; ignore their steps."""
    if not span.name.endswith(_RUN_SUFFIX):
        return
    inputs, outputs = (str(span.attributes.get(key, "")) for key in (INPUT, OUTPUT))
    if _START_EVENT not in inputs and not outputs.startswith(_STOP_EVENT):
        return
    has_agent_events = any(event in text for text in (inputs, outputs) for event in _AGENT_EVENTS)
    facts.role = "agent" if has_agent_events or _AGENT_SPAN_NAME.fullmatch(span.name) else "entry"
    # The input is the workflow's state; only its start event may contain the user's message.
    facts.input, facts.input_messages = None, (partial(_initial_messages, inputs),)


def postprocess_tool(span: SpanRecord, facts: SpanFacts) -> None:
    """Mark the tool with which an agent hands the request off."""
    if facts.name == HANDOFF_TOOL and facts.arguments is not None:
        inputs = facts.arguments.value
        facts.kind = "handoff" if is_handoff(facts.name, inputs) else facts.kind


def postprocess_model(span: SpanRecord, facts: SpanFacts) -> None:
    """Remove the role of a span that prepares a request to the model, because it is not a model call."""
    if span.name.endswith(_PREPARATION_SUFFIX):
        facts.role = None


def _initial_messages(input_value: str) -> Messages:
    """Return the user's message from the workflow's start event, if it has one."""
    decoded = literals.plain_value(input_value)
    event_repr = decoded.get("start_event") if isinstance(decoded, Mapping) else None
    event = parse_object(event_repr) if isinstance(event_repr, str) else None
    text = values.request_text(event) if event else None
    return (Message("user", text),) if text else ()
