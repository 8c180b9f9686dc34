"""DSPy in OpenInference: modules are `CHAIN` spans, and tools have no name attribute."""

from __future__ import annotations

import re

from goldspan.conventions.openinference.specification import OUTPUT, REDACTED
from goldspan.conventions.span_facts import SpanFacts
from goldspan.model import SpanRecord

NOTES = (
    "DSPy: only the span's name, `{name}.__call__` or `{name}.acall`, contains the tool's name.",
    "DSPy: `finish` is the pseudo-tool of `dspy.ReAct`.",
    "DSPy: `ReAct.forward` and `CodeAct.forward` are agents.",
    "DSPy: the `forward` of a module that is not part of DSPy itself starts a request.",
)
_TOOL_SPAN_NAME = re.compile(r"(?P<name>.+)\.(?:__call__|acall)", re.DOTALL)
_MODULE_SPAN_NAME = re.compile(r"(?P<name>\w+)\.a?forward")
_AGENT_MODULES = frozenset({"ReAct", "CodeAct", "Avatar"})
_INNER_MODULES = frozenset(
    {
        *("Predict", "ChainOfThought", "ChainOfThoughtWithHint", "ProgramOfThought", "MultiChainComparison"),
        *("BestOfN", "Refine", "Parallel", "KNN", "Retrieve", "Ensemble", "TypedPredictor", "TypedChainOfThought"),
    }
)
"""DSPy's own modules, from which applications build programs."""
_FINISH_RESULTS = ("Completed.", '"Completed."', REDACTED, None)
"""Results of the pseudo-tool, including the values that replace a result that was not recorded."""


def postprocess_tool(span: SpanRecord, facts: SpanFacts) -> None:
    """Read the tool's name from the span's name, and mark the pseudo-tool that ends a ReAct agent's work."""
    if facts.name is not None or (match := _TOOL_SPAN_NAME.fullmatch(span.name)) is None:
        return
    facts.span_name = match["name"]
    if facts.span_name == "finish" and span.attributes.get(OUTPUT) in _FINISH_RESULTS and span.status != "error":
        facts.kind = "answer"


def postprocess_chain(span: SpanRecord, facts: SpanFacts) -> None:
    """Mark agent modules as agents, and modules of the application as requests."""
    match = _MODULE_SPAN_NAME.fullmatch(span.name)
    if match is None:
        return
    if match["name"] in _AGENT_MODULES:
        facts.role = "agent"
    elif match["name"] not in _INNER_MODULES:
        facts.role = "entry"
