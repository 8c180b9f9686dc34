"""pydantic-ai: GenAI spans with names that differ between versions of `InstrumentationSettings`.

Versions 1 and 2 name the spans `agent run` and `running tool` and write arguments into `tool_arguments`. Version 1
writes messages as lists of event bodies. From version 3 on, only the attributes of the whole run are specific to
pydantic-ai.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from goldspan import semconv
from goldspan.content import messages
from goldspan.content.literals import plain_value
from goldspan.content.tools import cache_by_text, tool_definitions
from goldspan.conventions.convention import ANY, AttributeMap, Convention, FromJson
from goldspan.conventions.span_facts import Messages, SpanFacts
from goldspan.model import SpanRecord, ToolDefinition, ToolKind

_ALL_MESSAGES = "pydantic_ai.all_messages"
_ALL_EVENTS = "all_messages_events"
_EVENTS = "events"
_PARAMETERS = "model_request_parameters"
_ARGUMENTS = "tool_arguments"
_DEFERRAL = "pydantic_ai.tool.deferral.name"
_RUN_ID = "gen_ai.agent.call.id"
_OUTPUT_FUNCTION = "running output function"
_FINAL_RESULT_TOOL = "final_result"
_CHOICE = "gen_ai.choice"
_TOOL_KIND_BY_KEY: dict[str, ToolKind] = {"function_tools": "tool", "output_tools": "answer"}
_DEFERRED = ("unapproved", "external")
"""Kinds of tools that wait for an approval or run outside the agent."""


@dataclass(frozen=True, slots=True)
class _FromEventBodies:
    """Reads the input messages or the output messages from an attribute that holds a list of event bodies."""

    attribute: str
    is_output: bool | None = None
    """`True` selects the model's answers, `False` all other messages, `None` all messages."""

    def __call__(self, span: SpanRecord) -> Messages:
        """Return the messages of a span."""
        bodies = plain_value(span.attributes.get(self.attribute))
        selected = (body for body in bodies if self._includes(body)) if isinstance(bodies, list) else ()
        return tuple(message for body in selected for message in messages.from_event(body["event.name"], body))

    def _includes(self, body: Any) -> bool:
        name = body.get("event.name") if isinstance(body, Mapping) else None
        return isinstance(name, str) and self.is_output in (None, name == _CHOICE)

    def __str__(self) -> str:
        """Return the description of the source for the documentation."""
        selection = {None: "", True: " (choices)", False: " (all but the choices)"}[self.is_output]
        return f"`{self.attribute}`{selection}"


def _postprocess(span: SpanRecord, facts: SpanFacts) -> SpanFacts:
    attributes = span.attributes
    if str(attributes.get("logfire.msg", span.name)).startswith(_OUTPUT_FUNCTION):
        facts.kind = "answer"
    if _DEFERRAL in attributes:
        facts.outcome = "deferred"
    if _PARAMETERS in attributes:
        facts.tool_definitions = (partial(_offered_tools, attributes[_PARAMETERS]),)
    return facts


@cache_by_text
def _offered_tools(parameters: Any) -> tuple[ToolDefinition, ...]:
    """Return the tools, with their kinds, from the parameters of a request to the model."""
    return tuple(_tool_definitions(plain_value(parameters)))


def _tool_definitions(parameters: Any) -> Iterator[ToolDefinition]:
    for key, kind in _TOOL_KIND_BY_KEY.items():
        items = parameters.get(key) if isinstance(parameters, Mapping) else None
        for item in items if isinstance(items, list) else ():
            is_deferred = isinstance(item, Mapping) and item.get("kind") in _DEFERRED
            yield from (replace(tool, kind=kind, deferred=is_deferred) for tool in tool_definitions(item))


CONVENTION = Convention(
    name="pydantic_ai",
    title="pydantic-ai",
    source="https://github.com/pydantic/pydantic-ai",
    versions="0.1 to 2, instrumentation versions 1 to 6",
    roles={
        _ARGUMENTS: {ANY: "tool"},
        _ALL_MESSAGES: {ANY: "agent"},
        _ALL_EVENTS: {ANY: "agent"},
    },
    marker_attributes=(_PARAMETERS, _DEFERRAL, _RUN_ID, _FINAL_RESULT_TOOL),
    attributes_by_role={
        "tool": AttributeMap(name=(semconv.TOOL_NAME,), arguments=(_ARGUMENTS,), result=("tool_response",)),
        "agent": AttributeMap(
            name=(semconv.AGENT_NAME, "agent_name"),
            input_messages=(FromJson(_ALL_MESSAGES), _FromEventBodies(_ALL_EVENTS)),
        ),
    },
    common_attributes=AttributeMap(
        output=(_FINAL_RESULT_TOOL,),
        input_messages=(_FromEventBodies(_EVENTS, is_output=False),),
        output_messages=(_FromEventBodies(_EVENTS, is_output=True),),
    ),
    span_name_templates={"tool": ("running tool: {name}",)},
    postprocess=_postprocess,
    notes=(
        "A call is deferred if its span has `pydantic_ai.tool.deferral.name`.",
        "A call without a span is deferred if `model_request_parameters` marks its tool as `unapproved` or `external`.",
        "The output tools in `model_request_parameters`, such as `final_result`, and output functions are answers.",
    ),
    capture_setting="InstrumentationSettings(include_content=True)",
)
