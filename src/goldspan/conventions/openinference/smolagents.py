"""Smolagents, as its OpenInference instrumentation shows it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from goldspan.content import literals
from goldspan.conventions.openinference.specification import INPUT
from goldspan.conventions.span_facts import RawValue, SpanFacts
from goldspan.model import SpanRecord, ToolDefinition

NOTES = (
    "Smolagents: tool spans are named after classes (`SimpleTool`), which says nothing.",
    "Smolagents: `final_answer` is a pseudo-tool.",
    "Smolagents: an agent's call by its manager has no tool span; the words around its task tell that it is one.",
)
_ENVELOPE_KEY = '"sanitize_inputs_outputs"'
"""The parameter that every smolagents tool has beside its own."""
_AGENT_CLASSES = frozenset({"ToolCallingAgent", "CodeAgent", "MultiStepAgent"})
_ANSWER, _ANSWER_CLASS = "final_answer", "FinalAnswerTool"
_DELEGATED_TASK = re.compile(
    r"You're a helpful agent named '(?P<name>[^']+)'\.\s+You have been submitted this task by your manager\."
    r"\s*---\s*Task:\s*(?P<task>.*?)\s*(?:---\s*You're helping your manager.*)?",
    re.DOTALL,
)
"""The words around the task of an agent that is called by its manager."""


def postprocess_tool(span: SpanRecord, facts: SpanFacts) -> None:
    """Tell the tool by which an agent hands in its answer."""
    given = span.attributes.get(INPUT)
    if facts.name == _ANSWER and (span.name == _ANSWER_CLASS or (isinstance(given, str) and _ENVELOPE_KEY in given)):
        facts.kind = "answer"


def postprocess_agent(span: SpanRecord, facts: SpanFacts) -> None:
    """Find an agent's task, its name and its tools; an agent that its manager called is marked as such a call."""
    attributes = span.attributes
    if "smolagents.max_steps" not in attributes and "smolagents.tools_names" not in attributes:
        return
    given = literals.plain_value(facts.input)
    # Not `smolagents.task`: it is written before the task is set, and holds that of the run before.
    task = given.get("task") if isinstance(given, Mapping) else None
    facts.input = task or facts.input
    name = span.name.removesuffix(".run")
    facts.name = facts.name or (None if name in _AGENT_CLASSES else name)
    if isinstance(task, str) and (hit := _DELEGATED_TASK.fullmatch(task.strip())):
        facts.name, facts.kind = hit["name"], "agent"
        facts.input, facts.arguments = hit["task"], RawValue({"task": hit["task"]})
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
            described = attributes.get(f"{key.removesuffix('.name')}.description")
            yield ToolDefinition(name, described if isinstance(described, str) else None)
