"""Smolagents, as its OpenInference instrumentation shows it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from goldspan.extraction import values
from goldspan.extraction.conventions.openinference.attributes import INPUT
from goldspan.extraction.reading import Reading, Written
from goldspan.model import SpanRecord, ToolDefinition

NOTES = (
    "Smolagents: tool spans are named after classes (`SimpleTool`), which says nothing.",
    "Smolagents: `final_answer` is a pseudo-tool.",
    "Smolagents: an agent's call by its manager has no tool span; the words around its task tell that it is one.",
)
_ENVELOPE = '"sanitize_inputs_outputs"'
"""The parameter that every smolagents tool has beside its own."""
_AGENT_CLASSES = frozenset({"ToolCallingAgent", "CodeAgent", "MultiStepAgent"})
_ANSWER, _ANSWER_CLASS = "final_answer", "FinalAnswerTool"
_DELEGATED = re.compile(
    r"You're a helpful agent named '(?P<name>[^']+)'\.\s+You have been submitted this task by your manager\."
    r"\s*---\s*Task:\s*(?P<task>.*?)\s*(?:---\s*You're helping your manager.*)?",
    re.DOTALL,
)
"""The words around the task of an agent that is called by its manager."""


def refine_tool(span: SpanRecord, reading: Reading) -> None:
    """Tell the tool by which an agent hands in its answer."""
    given = span.attributes.get(INPUT)
    if reading.name == _ANSWER and (span.name == _ANSWER_CLASS or (isinstance(given, str) and _ENVELOPE in given)):
        reading.kind = "answer"


def refine_agent(span: SpanRecord, reading: Reading) -> None:
    """Find an agent's task, its name and its tools; an agent that its manager called is marked as such a call."""
    attributes = span.attributes
    if "smolagents.max_steps" not in attributes and "smolagents.tools_names" not in attributes:
        return
    given = values.plain(reading.input)
    # Not `smolagents.task`: it is written before the task is set, and holds that of the run before.
    task = given.get("task") if isinstance(given, Mapping) else None
    reading.input = task or reading.input
    name = span.name.removesuffix(".run")
    reading.name = reading.name or (None if name in _AGENT_CLASSES else name)
    if isinstance(task, str) and (hit := _DELEGATED.fullmatch(task.strip())):
        reading.name, reading.kind = hit["name"], "agent"
        reading.input, reading.arguments = hit["task"], Written({"task": hit["task"]})
        reading.result = None if reading.output is None else Written(reading.output)
    reading.agent = reading.name
    reading.tools += (lambda: tuple(_offered(attributes)),)


def _offered(attributes: Mapping[str, Any]) -> Iterator[ToolDefinition]:
    names = attributes.get("smolagents.tools_names")
    for name in names if isinstance(names, list | tuple) else ():
        if isinstance(name, str) and name != _ANSWER:
            yield ToolDefinition(name)
    for key, name in attributes.items():
        if key.startswith("smolagents.managed_agents.") and key.endswith(".name") and isinstance(name, str):
            described = attributes.get(f"{key.removesuffix('.name')}.description")
            yield ToolDefinition(name, described if isinstance(described, str) else None)
