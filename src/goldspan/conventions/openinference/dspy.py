"""DSPy, as its OpenInference instrumentation shows it: modules are `CHAIN` spans, tools have no name attribute."""

from __future__ import annotations

import re

from goldspan.conventions.openinference.specification import OUTPUT, REDACTED
from goldspan.conventions.span_facts import SpanFacts
from goldspan.model import SpanRecord

NOTES = (
    "DSPy: a tool's name stands only in the span's name, `{name}.__call__` or `{name}.acall`.",
    "DSPy: `finish` is the pseudo-tool of `dspy.ReAct`.",
    "DSPy: `ReAct.forward` and `CodeAct.forward` are agents.",
    "DSPy: the `forward` of a module that is not one of DSPy's own is where a program is entered.",
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
"""DSPy's own modules, of which programs are made."""
_FINISH_RESULTS = ("Completed.", '"Completed."', REDACTED, None)
"""What the pseudo-tool returns, and what stands in its place where results are not recorded."""


def postprocess_tool(span: SpanRecord, facts: SpanFacts) -> None:
    """Find the name of a tool, and tell the one that ends a ReAct agent's work."""
    if facts.name is not None or (hit := _TOOL_SPAN_NAME.fullmatch(span.name)) is None:
        return
    facts.span_name = hit["name"]
    if facts.span_name == "finish" and span.attributes.get(OUTPUT) in _FINISH_RESULTS and span.status != "error":
        facts.kind = "answer"


def postprocess_chain(span: SpanRecord, facts: SpanFacts) -> None:
    """Tell agents and programs from the modules they are made of."""
    hit = _MODULE_SPAN_NAME.fullmatch(span.name)
    if hit is None:
        return
    if hit["name"] in _AGENT_MODULES:
        facts.role = "agent"
    elif hit["name"] not in _INNER_MODULES:
        facts.role = "entry"
