"""DSPy, as its OpenInference instrumentation shows it: modules are `CHAIN` spans, tools have no name attribute."""

from __future__ import annotations

import re

from goldspan.extraction.conventions.openinference.attributes import OUTPUT, REDACTED
from goldspan.extraction.reading import Reading
from goldspan.model import SpanRecord

NOTES = (
    "DSPy: a tool's name stands only in the span's name, `{name}.__call__` or `{name}.acall`.",
    "DSPy: `finish` is the pseudo-tool of `dspy.ReAct`.",
    "DSPy: `ReAct.forward` and `CodeAct.forward` are agents.",
    "DSPy: the `forward` of a module that is not one of DSPy's own is where a program is entered.",
)
_TOOL = re.compile(r"(?P<name>.+)\.(?:__call__|acall)", re.DOTALL)
_MODULE = re.compile(r"(?P<name>\w+)\.a?forward")
_AGENTS = frozenset({"ReAct", "CodeAct", "Avatar"})
_PARTS = frozenset(
    {
        *("Predict", "ChainOfThought", "ChainOfThoughtWithHint", "ProgramOfThought", "MultiChainComparison"),
        *("BestOfN", "Refine", "Parallel", "KNN", "Retrieve", "Ensemble", "TypedPredictor", "TypedChainOfThought"),
    }
)
"""DSPy's own modules, of which programs are made."""
_FINISHED = ("Completed.", '"Completed."', REDACTED, None)
"""What the pseudo-tool returns, and what stands in its place where results are not recorded."""


def refine_tool(span: SpanRecord, reading: Reading) -> None:
    """Find the name of a tool, and tell the one that ends a ReAct agent's work."""
    if reading.name is not None or (hit := _TOOL.fullmatch(span.name)) is None:
        return
    reading.span_name = hit["name"]
    if reading.span_name == "finish" and span.attributes.get(OUTPUT) in _FINISHED and span.status != "error":
        reading.kind = "answer"


def refine_chain(span: SpanRecord, reading: Reading) -> None:
    """Tell agents and programs from the modules they are made of."""
    hit = _MODULE.fullmatch(span.name)
    if hit is None:
        return
    if hit["name"] in _AGENTS:
        reading.role = "agent"
    elif hit["name"] not in _PARTS:
        reading.role = "entry"
