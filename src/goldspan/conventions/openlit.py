"""OpenLIT, a dialect of the GenAI conventions.

It writes their operations and attributes, but calls every node of a LangGraph graph an agent, and gives a LangChain
tool that failed the id of LangChain's run in place of the call's. The calls that a model asks for stand on the model's
span, those of one answer joined with commas, whether or not content is recorded.
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
"""The nodes of LangChain's and LangGraph's ready-made agents: steps of an agent, and none themselves."""
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
    if operation == semconv.EXECUTE_TOOL and span.scope.endswith(".langchain") and span.status == "error":
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
    """What a model answered: its messages, where they are recorded, and the calls, where these do not tell them."""
    said = next(filter(None, (place(span) for place in _OUTPUT_MESSAGES)), ())
    return said if any(message.tool_calls for message in said) else (*said, _requested_calls(span.attributes))


def _requested_calls(attributes: Mapping[str, Any]) -> Message:
    """The calls that a model asked for."""
    names, ids = (_split_joined(attributes.get(key)) for key in (semconv.TOOL_NAME, semconv.TOOL_CALL_ID))
    arguments = _split_arguments(str(attributes[_ARGUMENTS]), len(names))
    ids = ids if len(ids) == len(names) else [""] * len(names)
    calls = (
        RequestedCall(name, given, call_id or None)
        for name, given, call_id in zip(names, arguments, ids, strict=True)
        if name
    )
    return Message("assistant", tool_calls=tuple(calls))


def _split_joined(joined: Any) -> list[str]:
    return str(joined).split(_SEPARATOR) if joined else []


def _split_arguments(joined: str, count: int) -> list[Any]:
    """The arguments of some calls; `ABSENT` for all of them where these cannot be told apart."""
    if count == 1:
        return [joined]
    found: list[Any] = []
    at = 0
    try:
        while at < len(joined):
            _, end = _DECODER.raw_decode(joined, at)
            found.append(joined[at:end])
            at = end + len(_SEPARATOR)
    except JSONDecodeError:
        found = []
    return found if len(found) == count else [ABSENT] * count


_DECODER = JSONDecoder()


CONVENTION = Convention(
    name="openlit",
    title="OpenLIT",
    source="https://github.com/openlit/openlit",
    versions="1.45 (Python)",
    marker_attributes=(_SDK, _APPLICATION),
    postprocess=_postprocess,
    notes=(
        "A LangGraph graph and an agno team, which are workflows by their operation, are agents.",
        "The nodes `model`, `agent` and `tools` of a graph are no agents.",
        "The call id of a LangChain tool that failed is LangChain's own, and is not used.",
        "`gen_ai.tool.name`, `gen_ai.tool.call.id` and `gen_ai.tool.args` of a model are the calls it asked for.",
    ),
    capture_setting="capture_message_content=True",
)
