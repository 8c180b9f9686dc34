"""LlamaIndex, as its OpenInference instrumentation shows it: agents are workflows, and workflows `CHAIN` spans."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial

from goldspan.extraction import values
from goldspan.extraction.conventions.llama_index import HANDOFF, is_handoff
from goldspan.extraction.conventions.openinference.attributes import INPUT, OUTPUT
from goldspan.extraction.notation import constructed
from goldspan.extraction.reading import Message, Messages, Reading
from goldspan.model import SpanRecord

NOTES = (
    "LlamaIndex: the `CHAIN` span of an agent's run, such as `FunctionAgent.run`, is an agent.",
    "LlamaIndex: the tool `handoff` with `to_agent` is a hand-off.",
    "LlamaIndex: the `CHAIN` span of any other workflow's run is where an application is entered.",
)
_RUN = ".run"
_PREPARATION = "._prepare_chat_with_tools"
_AGENT_CLASS = re.compile(r"\w*(?:Agent|AgentWorkflow)\.run")
_STARTED = '"start_event"'
"""The parameter of every workflow's `run` that no other chain has."""
_STOPPED = "StopEvent("
_AGENT_EVENTS = ("AgentWorkflowStartEvent", "AgentOutput(")


def refine_chain(span: SpanRecord, reading: Reading) -> None:
    """Tell the run of a workflow, and of an agent, from their steps."""
    if not span.name.endswith(_RUN):
        return
    given, returned = (str(span.attributes.get(key, "")) for key in (INPUT, OUTPUT))
    if _STARTED not in given and not returned.startswith(_STOPPED):
        return
    by_events = any(event in text for text in (given, returned) for event in _AGENT_EVENTS)
    reading.role = "agent" if by_events or _AGENT_CLASS.fullmatch(span.name) else "entry"
    # What stands there is the workflow's state, of which only the first event may be words of the user.
    reading.input, reading.asked = None, (partial(_question, given),)


def refine_tool(span: SpanRecord, reading: Reading) -> None:
    """Tell the tool by which an agent passes the request on."""
    if reading.name == HANDOFF and reading.arguments is not None:
        given = reading.arguments.value
        reading.kind = "handoff" if is_handoff(reading.name, given) else reading.kind


def refine_model(span: SpanRecord, reading: Reading) -> None:
    """The preparation of a question is no model's work, and what it returns is no answer."""
    if span.name.endswith(_PREPARATION):
        reading.role = None


def _question(given: str) -> Messages:
    """What the workflow was started with, where its first event says so."""
    read = values.plain(given)
    event = read.get("start_event") if isinstance(read, Mapping) else None
    shown = constructed(event) if isinstance(event, str) else None
    text = values.asked_text(shown) if shown else None
    return (Message("user", text),) if text else ()
