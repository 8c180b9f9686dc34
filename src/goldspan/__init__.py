"""goldspan evaluates, for every request an LLM agent serves, whether the agent called the right tools."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from goldspan._locks import ForkSafeLock
from goldspan._version import __version__

if TYPE_CHECKING:
    from goldspan import judge, profiles, sinks
    from goldspan.capture.annotations import expect, update_current_span
    from goldspan.capture.decorator import trace
    from goldspan.capture.processor import ScoringProcessor
    from goldspan.capture.setup import instrument
    from goldspan.capture.threads import carry_context_into_threads
    from goldspan.cases.case_evaluation import evaluate_cases
    from goldspan.errors import (
        ConfigurationError,
        GoldenError,
        GoldspanError,
        GoldspanWarning,
        MissingExtraError,
        ResultsError,
        StoreError,
        TraceFileError,
    )
    from goldspan.extraction import extract
    from goldspan.goldens import Goldens, load_goldens
    from goldspan.model import (
        AnyOf,
        Comparison,
        Evaluation,
        ExpectedTool,
        Golden,
        Health,
        Judgement,
        LogRecord,
        Match,
        Parallel,
        Run,
        Score,
        SpanEvent,
        SpanRecord,
        Times,
        Tool,
        ToolCall,
        ToolDefinition,
        Vocabulary,
        When,
    )
    from goldspan.online.limits import Limits
    from goldspan.otlp import load_runs
    from goldspan.scoring import compare, evaluate
    from goldspan.scoring.metrics.registry import metric
    from goldspan.store.data_frames import to_pandas, to_polars
    from goldspan.testing.agent_cases import evaluate_agent, evaluate_agent_async
    from goldspan.testing.assertions import ToolsAssertionError, assert_tools
    from goldspan.testing.results_file import read_results

# The module of each public name. Names are imported on first use, so that `import goldspan` loads neither pydantic nor
# protobuf.
_NAMES_BY_MODULE = {
    "goldspan.capture.annotations": ("expect", "update_current_span"),
    "goldspan.capture.decorator": ("trace",),
    "goldspan.capture.processor": ("ScoringProcessor",),
    "goldspan.capture.setup": ("instrument",),
    "goldspan.capture.threads": ("carry_context_into_threads",),
    "goldspan.errors": (
        "ConfigurationError",
        "GoldenError",
        "GoldspanError",
        "GoldspanWarning",
        "MissingExtraError",
        "ResultsError",
        "StoreError",
        "TraceFileError",
    ),
    "goldspan.extraction": ("extract",),
    "goldspan.goldens": ("Goldens", "load_goldens"),
    "goldspan.model": (
        "AnyOf",
        "Comparison",
        "Evaluation",
        "ExpectedTool",
        "Golden",
        "Health",
        "Judgement",
        "LogRecord",
        "Match",
        "Parallel",
        "Run",
        "Score",
        "SpanEvent",
        "SpanRecord",
        "Times",
        "Tool",
        "ToolCall",
        "ToolDefinition",
        "Vocabulary",
        "When",
    ),
    "goldspan.online.limits": ("Limits",),
    "goldspan.otlp": ("load_runs",),
    "goldspan.scoring": ("compare", "evaluate"),
    "goldspan.cases.case_evaluation": ("evaluate_cases",),
    "goldspan.scoring.metrics.registry": ("metric",),
    "goldspan.store.data_frames": ("to_pandas", "to_polars"),
    "goldspan.testing.agent_cases": ("evaluate_agent", "evaluate_agent_async"),
    "goldspan.testing.assertions": ("ToolsAssertionError", "assert_tools"),
    "goldspan.testing.results_file": ("read_results",),
}
_SUBMODULES = {"judge": "goldspan.judge", "profiles": "goldspan.profiles", "sinks": "goldspan.sinks"}
_MODULE_BY_NAME = {name: module for module, names in _NAMES_BY_MODULE.items() for name in names}

__all__ = [
    "AnyOf",
    "Comparison",
    "ConfigurationError",
    "Evaluation",
    "ExpectedTool",
    "Golden",
    "GoldenError",
    "Goldens",
    "GoldspanError",
    "GoldspanWarning",
    "Health",
    "Judgement",
    "Limits",
    "LogRecord",
    "Match",
    "MissingExtraError",
    "Parallel",
    "ResultsError",
    "Run",
    "Score",
    "ScoringProcessor",
    "SpanEvent",
    "SpanRecord",
    "StoreError",
    "Times",
    "Tool",
    "ToolCall",
    "ToolDefinition",
    "ToolsAssertionError",
    "TraceFileError",
    "Vocabulary",
    "When",
    "__version__",
    "assert_tools",
    "carry_context_into_threads",
    "compare",
    "evaluate",
    "evaluate_agent",
    "evaluate_agent_async",
    "evaluate_cases",
    "expect",
    "extract",
    "instrument",
    "judge",
    "load_goldens",
    "load_runs",
    "metric",
    "profiles",
    "read_results",
    "sinks",
    "to_pandas",
    "to_polars",
    "trace",
    "update_current_span",
]


_import_lock = ForkSafeLock()
"""Held during the import of a name. If threads import parts of one package in different orders, they wait for each
other, and Python resolves the deadlock by returning a partially initialized module to one of them."""


def __getattr__(name: str) -> Any:
    if name not in _SUBMODULES and name not in _MODULE_BY_NAME:
        raise AttributeError(f"module 'goldspan' has no attribute {name!r}")
    with _import_lock:
        value = (
            import_module(_SUBMODULES[name])
            if name in _SUBMODULES
            else getattr(import_module(_MODULE_BY_NAME[name]), name)
        )
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
