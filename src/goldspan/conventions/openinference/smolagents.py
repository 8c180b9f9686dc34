"""smolagents in OpenInference: agents, their tasks, and calls of managed agents."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from goldspan.content import literals
from goldspan.conventions.openinference.specification import INPUT
from goldspan.conventions.span_facts import RawValue, SpanFacts
from goldspan.model import SpanRecord, ToolDefinition

NOTES = (
    "Smolagents: a tool's span has the name of its class, such as `SimpleTool`, and not the name of the tool.",
    "Smolagents: `final_answer` is a pseudo-tool.",
    "Smolagents: the call of a managed agent has no tool span. The text around the agent's task identifies the call.",
)
_ENVELOPE_KEY = '"sanitize_inputs_outputs"'
"""Parameter that smolagents adds to every tool."""
_AGENT_CLASSES = frozenset({"ToolCallingAgent", "CodeAgent", "MultiStepAgent"})
_ANSWER, _ANSWER_CLASS = "final_answer", "FinalAnswerTool"
_DELEGATED_TASK = re.compile(
    r"You're a helpful agent named '(?P<name>[^']+)'\.\s+You have been submitted this task by your manager\."
    r"\s*---\s*Task:\s*(?P<task>.*?)\s*(?:---\s*You're helping your manager.*)?",
    re.DOTALL,
)
"""Text around the task of an agent that its manager calls."""


def postprocess_tool(span: SpanRecord, facts: SpanFacts) -> None:
    """Mark the tool with which an agent returns its answer."""
    inputs = span.attributes.get(INPUT)
    if facts.name == _ANSWER and (span.name == _ANSWER_CLASS or (isinstance(inputs, str) and _ENVELOPE_KEY in inputs)):
        facts.kind = "answer"


def postprocess_agent(span: SpanRecord, facts: SpanFacts) -> None:
    """Read an agent's task, name and tools, and mark an agent that its manager called as a call."""
    attributes = span.attributes
    if "smolagents.max_steps" not in attributes and "smolagents.tools_names" not in attributes:
        return
    inputs = literals.plain_value(facts.input)
    # `smolagents.task` is not used: smolagents writes it before it sets the task, so it holds the previous task.
    task = inputs.get("task") if isinstance(inputs, Mapping) else None
    facts.input = task or facts.input
    name = span.name.removesuffix(".run")
    facts.name = facts.name or (None if name in _AGENT_CLASSES else name)
    if isinstance(task, str) and (match := _DELEGATED_TASK.fullmatch(task.strip())):
        facts.name, facts.kind = match["name"], "agent"
        facts.input, facts.arguments = match["task"], RawValue({"task": match["task"]})
        facts.result = None if facts.output is None else RawValue(facts.output)
    facts.agent = facts.name
    facts.tool_definitions += (lambda: tuple(_offered_tools(attributes)),)


def _offered_tools(attributes: Mapping[str, Any]) -> Iterator[ToolDefinition]:
    names = attributes.get("smolagents.tools_names")
    for name in names if isinstance(names, list | tuple) else ():
        if isinstance(name, str) and name != _ANSWER:
            yield ToolDefinition(name)
    for key, name in attributes.items():
        if key.startswith("smolagents.managed_agents.") and key.endswith(".name") and isinstance(name, str):
            description = attributes.get(f"{key.removesuffix('.name')}.description")
            yield ToolDefinition(name, description if isinstance(description, str) else None)
