"""OpenLIT: GenAI spans with different agents, call ids and requested calls.

OpenLIT writes GenAI operations and attributes, but marks every node of a LangGraph graph as an agent, and writes the id
of LangChain's run instead of the call id if a LangChain tool failed. The model's span lists the calls that the model
requested, joined with commas, whether or not content is recorded.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from json import JSONDecodeError, JSONDecoder
from typing import Any

from goldspan import semconv
from goldspan.conventions.convention import Convention, FromEvents, FromJson
from goldspan.conventions.span_facts import Message, Messages, RequestedCall, SpanFacts
from goldspan.model import ABSENT, SpanRecord

_SDK = "telemetry.sdk.name"
_APPLICATION = "gen_ai.application_name"
_WORKFLOW = "gen_ai.workflow.name"
_PROVIDER = "gen_ai.provider.name"
_INNER_NODES = frozenset({"model", "agent", "tools", "call_model", "model_request"})
"""Nodes of LangChain's and LangGraph's prebuilt agents, which are steps of an agent and not agents."""
_RUN_ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_ARGUMENTS = "gen_ai.tool.args"
_SEPARATOR = ", "
_OUTPUT_MESSAGES = (
    FromJson(semconv.OUTPUT_MESSAGES),
    FromEvents(("gen_ai.client.inference.operation.details",), semconv.OUTPUT_MESSAGES),
)
_TEAM_ATTRIBUTES = ("gen_ai.agno.team.agents", "gen_ai.graph.status", "gen_ai.graph.message_count")


def _postprocess(span: SpanRecord, facts: SpanFacts) -> SpanFacts | None:
    attributes = span.attributes
    operation = attributes.get(semconv.OPERATION)
    # Some tools keep no scopes: then the id alone decides.
    is_langchain = not span.scope or span.scope.endswith(".langchain")
    if operation == semconv.EXECUTE_TOOL and is_langchain and span.status == "error":
        if _RUN_ID.fullmatch(str(attributes.get(semconv.TOOL_CALL_ID))):
            facts.call_id = ""
    elif operation == semconv.INVOKE_AGENT and attributes.get(_PROVIDER) == "langgraph":
        node = str(attributes.get(semconv.AGENT_NAME))
        # Middleware adds nodes such as `Summarization.before_model`.
        if node in _INNER_NODES or "." in node:
            facts.role, facts.name, facts.agent = "aside", "", ""
    elif operation == "invoke_workflow" and any(key in attributes for key in _TEAM_ATTRIBUTES):
        name = attributes.get(_WORKFLOW)
        facts.role = "agent"
        facts.name = facts.agent = name if isinstance(name, str) else None
    elif operation == "chat" and _ARGUMENTS in attributes:
        facts.output_messages = (partial(_output_messages, span),)
    return facts


def _output_messages(span: SpanRecord) -> Messages:
    """Return the recorded messages of a model, and add the requested calls if the messages do not have them."""
    recorded = next(filter(None, (source(span) for source in _OUTPUT_MESSAGES)), ())
    return (
        recorded if any(message.tool_calls for message in recorded) else (*recorded, _requested_calls(span.attributes))
    )


def _requested_calls(attributes: Mapping[str, Any]) -> Message:
    """Return the calls that a model requested."""
    names, ids = (_split_joined(attributes.get(key)) for key in (semconv.TOOL_NAME, semconv.TOOL_CALL_ID))
    arguments = _split_arguments(str(attributes[_ARGUMENTS]), len(names))
    ids = ids if len(ids) == len(names) else [""] * len(names)
    calls = (
        RequestedCall(name, call_arguments, call_id or None)
        for name, call_arguments, call_id in zip(names, arguments, ids, strict=True)
        if name
    )
    return Message("assistant", tool_calls=tuple(calls))


def _split_joined(joined: Any) -> list[str]:
    return str(joined).split(_SEPARATOR) if joined else []


def _split_arguments(joined: str, count: int) -> list[Any]:
    """Return the arguments of each call, or `ABSENT` for all calls if the text cannot be split."""
    if count == 1:
        return [joined]
    texts: list[Any] = []
    start = 0
    try:
        while start < len(joined):
            _, end = _DECODER.raw_decode(joined, start)
            texts.append(joined[start:end])
            start = end + len(_SEPARATOR)
    except JSONDecodeError:
        texts = []
    return texts if len(texts) == count else [ABSENT] * count


_DECODER = JSONDecoder()


CONVENTION = Convention(
    name="openlit",
    title="OpenLIT",
    source="https://github.com/openlit/openlit",
    versions="1.45 (Python)",
    marker_attributes=(_SDK, _APPLICATION),
    postprocess=_postprocess,
    notes=(
        "A LangGraph graph and an agno team are agents, although their operation is `invoke_workflow`.",
        "The nodes `model`, `agent` and `tools` of a graph are not agents.",
        "If a LangChain tool failed, its call id is the id of LangChain's run; goldspan ignores it.",
        "On a model's span, `gen_ai.tool.name`, `gen_ai.tool.call.id` and `gen_ai.tool.args` are the requested calls.",
    ),
    capture_setting="capture_message_content=True",
)
