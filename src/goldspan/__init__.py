"""goldspan tells, for every request an LLM agent serves, whether the agent called the right tools."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from goldspan._version import __version__

if TYPE_CHECKING:
    from goldspan.capture.decorator import trace
    from goldspan.capture.processor import ScoringProcessor
    from goldspan.capture.setup import instrument
    from goldspan.errors import (
        ConfigurationError,
        GoldenError,
        GoldspanError,
        GoldspanWarning,
        MissingExtraError,
        TraceFileError,
    )
    from goldspan.extraction import extract
    from goldspan.goldens import Goldens, load_goldens
    from goldspan.model import (
        Comparison,
        Evaluation,
        ExpectedTool,
        Golden,
        Health,
        LogRecord,
        Match,
        Run,
        Score,
        SpanEvent,
        SpanRecord,
        Tool,
        ToolCall,
        ToolDefinition,
        Vocabulary,
    )
    from goldspan.otlp import load_runs
    from goldspan.scoring import compare, evaluate

# Where each public name lives. They are imported on first use, so that `import goldspan` in an application costs next
# to nothing: no pydantic, no protobuf.
_HOMES = {
    "goldspan.capture.decorator": ("trace",),
    "goldspan.capture.processor": ("ScoringProcessor",),
    "goldspan.capture.setup": ("instrument",),
    "goldspan.errors": (
        "ConfigurationError",
        "GoldenError",
        "GoldspanError",
        "GoldspanWarning",
        "MissingExtraError",
        "TraceFileError",
    ),
    "goldspan.extraction": ("extract",),
    "goldspan.goldens": ("Goldens", "load_goldens"),
    "goldspan.model": (
        "Comparison",
        "Evaluation",
        "ExpectedTool",
        "Golden",
        "Health",
        "LogRecord",
        "Match",
        "Run",
        "Score",
        "SpanEvent",
        "SpanRecord",
        "Tool",
        "ToolCall",
        "ToolDefinition",
        "Vocabulary",
    ),
    "goldspan.otlp": ("load_runs",),
    "goldspan.scoring": ("compare", "evaluate"),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
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
    "LogRecord",
    "Match",
    "MissingExtraError",
    "Run",
    "Score",
    "ScoringProcessor",
    "SpanEvent",
    "SpanRecord",
    "Tool",
    "ToolCall",
    "ToolDefinition",
    "TraceFileError",
    "Vocabulary",
    "__version__",
    "compare",
    "evaluate",
    "extract",
    "instrument",
    "load_goldens",
    "load_runs",
    "trace",
]


def __getattr__(name: str) -> Any:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module 'goldspan' has no attribute {name!r}")
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
