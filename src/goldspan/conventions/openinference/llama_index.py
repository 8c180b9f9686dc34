"""LlamaIndex, as its OpenInference instrumentation shows it: agents are workflows, and workflows `CHAIN` spans."""

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
    "LlamaIndex: the `CHAIN` span of any other workflow's run is where an application is entered.",
)
_RUN_SUFFIX = ".run"
_PREPARATION_SUFFIX = "._prepare_chat_with_tools"
_AGENT_SPAN_NAME = re.compile(r"\w*(?:Agent|AgentWorkflow)\.run")
_START_EVENT = '"start_event"'
"""The parameter of every workflow's `run` that no other chain has."""
_STOP_EVENT = "StopEvent("
_AGENT_EVENTS = ("AgentWorkflowStartEvent", "AgentOutput(")


def postprocess_chain(span: SpanRecord, facts: SpanFacts) -> None:
    """Tell the run of a workflow, and of an agent, from their steps."""
    if not span.name.endswith(_RUN_SUFFIX):
        return
    given, returned = (str(span.attributes.get(key, "")) for key in (INPUT, OUTPUT))
    if _START_EVENT not in given and not returned.startswith(_STOP_EVENT):
        return
    by_events = any(event in text for text in (given, returned) for event in _AGENT_EVENTS)
    facts.role = "agent" if by_events or _AGENT_SPAN_NAME.fullmatch(span.name) else "entry"
    # What stands there is the workflow's state, of which only the first event may be words of the user.
    facts.input, facts.input_messages = None, (partial(_initial_messages, given),)


def postprocess_tool(span: SpanRecord, facts: SpanFacts) -> None:
    """Tell the tool by which an agent passes the request on."""
    if facts.name == HANDOFF_TOOL and facts.arguments is not None:
        given = facts.arguments.value
        facts.kind = "handoff" if is_handoff(facts.name, given) else facts.kind


def postprocess_model(span: SpanRecord, facts: SpanFacts) -> None:
    """The preparation of a question is no model's work, and what it returns is no answer."""
    if span.name.endswith(_PREPARATION_SUFFIX):
        facts.role = None


def _initial_messages(input_value: str) -> Messages:
    """What the workflow was started with, where its first event says so."""
    read = literals.plain_value(input_value)
    event = read.get("start_event") if isinstance(read, Mapping) else None
    shown = parse_object(event) if isinstance(event, str) else None
    text = values.request_text(shown) if shown else None
    return (Message("user", text),) if text else ()
