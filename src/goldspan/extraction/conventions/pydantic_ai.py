"""pydantic-ai: GenAI spans with names of its own, which differ between the versions of its `InstrumentationSettings`.

Versions 1 and 2 call the spans `agent run` and `running tool` and keep arguments in `tool_arguments`; version 1 writes
messages as lists of event bodies. From version 3 on only what the agent's span says of the whole run is its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from goldspan import semconv
from goldspan.extraction import messages
from goldspan.extraction.convention import ANY, Convention, FromJson, Places
from goldspan.extraction.notation import plain
from goldspan.extraction.offers import read_once
from goldspan.extraction.reading import Messages, Reading
from goldspan.model import SpanRecord, ToolDefinition, ToolKind

_ALL_MESSAGES = "pydantic_ai.all_messages"
_ALL_EVENTS = "all_messages_events"
_EVENTS = "events"
_PARAMETERS = "model_request_parameters"
_ARGUMENTS = "tool_arguments"
_DEFERRAL = "pydantic_ai.tool.deferral.name"
_RUN = "gen_ai.agent.call.id"
_OUTPUT_FUNCTION = "running output function"
_FINAL = "final_result"
_CHOICE = "gen_ai.choice"
_OFFERED: dict[str, ToolKind] = {"function_tools": "tool", "output_tools": "answer"}
_DEFERRED = ("unapproved", "external")
"""Kinds of tools that are not executed before somebody else has been asked."""


@dataclass(frozen=True, slots=True)
class _FromBodies:
    """Messages in one attribute that holds a list of event bodies: the model's answer, or what came before it."""

    attribute: str
    answers: bool | None = None
    """Whether the model's answers are wanted, or everything else; `None`: all."""

    def __call__(self, span: SpanRecord) -> Messages:
        """The messages of a span."""
        bodies = plain(span.attributes.get(self.attribute))
        wanted = (body for body in bodies if self._wants(body)) if isinstance(bodies, list) else ()
        return tuple(message for body in wanted for message in messages.from_event(body["event.name"], body))

    def _wants(self, body: Any) -> bool:
        name = body.get("event.name") if isinstance(body, Mapping) else None
        return isinstance(name, str) and self.answers in (None, name == _CHOICE)

    def __str__(self) -> str:
        """How the documentation names the place."""
        which = {None: "", True: " (choices)", False: " (all but the choices)"}[self.answers]
        return f"`{self.attribute}`{which}"


def _refine(span: SpanRecord, reading: Reading) -> Reading:
    attributes = span.attributes
    if str(attributes.get("logfire.msg", span.name)).startswith(_OUTPUT_FUNCTION):
        reading.kind = "answer"
    if _DEFERRAL in attributes:
        reading.outcome = "deferred"
    if _PARAMETERS in attributes:
        reading.tools = (partial(_offered, attributes[_PARAMETERS]),)
    return reading


@read_once
def _offered(parameters: Any) -> tuple[ToolDefinition, ...]:
    """The tools in the parameters of a request to the model, which tell the kinds of tools apart."""
    return tuple(_definitions(plain(parameters)))


def _definitions(parameters: Any) -> Iterator[ToolDefinition]:
    for key, kind in _OFFERED.items():
        listed = parameters.get(key) if isinstance(parameters, Mapping) else None
        for item in listed if isinstance(listed, list) else ():
            deferred = isinstance(item, Mapping) and item.get("kind") in _DEFERRED
            yield from (replace(tool, kind=kind, deferred=deferred) for tool in messages.definitions(item))


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
    signs=(_PARAMETERS, _DEFERRAL, _RUN, _FINAL),
    of={
        "tool": Places(name=(semconv.TOOL_NAME,), arguments=(_ARGUMENTS,), result=("tool_response",)),
        "agent": Places(
            name=(semconv.AGENT_NAME, "agent_name"),
            asked=(FromJson(_ALL_MESSAGES), _FromBodies(_ALL_EVENTS)),
        ),
    },
    everywhere=Places(
        output=(_FINAL,), asked=(_FromBodies(_EVENTS, answers=False),), answered=(_FromBodies(_EVENTS, answers=True),)
    ),
    span_names={"tool": ("running tool: {name}",)},
    refine=_refine,
    notes=(
        "A call is deferred where `pydantic_ai.tool.deferral.name` says so.",
        "So is one without a span, of a tool that `model_request_parameters` calls `unapproved` or `external`.",
        "The output tools listed there, such as `final_result`, and output functions hand in the agent's answer.",
    ),
    content="InstrumentationSettings(include_content=True)",
)
