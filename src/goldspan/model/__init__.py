"""The values that all packages share: telemetry, runs, goldens, comparisons and evaluations.

The values are frozen dataclasses. `None` means "not known", not "nothing" and not zero. Times are nanoseconds since the
Unix epoch.

`name_folding`: the form in which names of tools and agents are compared.
`telemetry`: spans, span events and log records, and the selectors of components.
`runs`: tool calls, and the runs that contain them.
`goldens`: goldens, and the vocabulary of tools that they use.
`value_matchers`: matchers of argument values, and values as text.
`findings`: the rows of a comparison, scores, and the faults of agents.
`evaluations`: the comparison of a run with a golden, and the evaluation.
`notebook_display`: the base class of values that notebooks and terminals display.
`markup`: paragraphs and tables as Markdown and HTML.
`rendering`: comparisons and evaluations as paragraphs and tables.
"""

from goldspan.model.evaluations import EMPTY_RUN, Comparison, Evaluation, NotEvaluatedRun
from goldspan.model.findings import (
    NO_GOLDEN_NOTE,
    Agreement,
    ComparisonRow,
    Difference,
    Fault,
    FaultKind,
    Judgement,
    RequirementResult,
    RowVerdict,
    Score,
    ScoreLabel,
)
from goldspan.model.goldens import (
    ABSENT,
    NO_VOCABULARY,
    ONCE,
    UNKNOWN_POLICIES,
    AnyOf,
    ArgumentsMatch,
    CallDepth,
    CallOrder,
    CorrectnessMode,
    CountedAttempts,
    DuplicateCalls,
    ExpectedItem,
    ExpectedTool,
    ExtraCalls,
    Golden,
    GoldenSource,
    Match,
    MatchMethod,
    Parallel,
    Times,
    Tool,
    ToolEffect,
    UnknownPolicy,
    Vocabulary,
    When,
)
from goldspan.model.runs import (
    COUNTED_TOOL_KINDS,
    CallEvidence,
    CallOutcome,
    Health,
    Run,
    RunUnit,
    ToolCall,
    ToolDefinition,
    ToolKind,
)
from goldspan.model.telemetry import (
    ComponentSelector,
    LogRecord,
    SpanEvent,
    SpanRecord,
    SpanStatus,
    TelemetryRecord,
    content_digest,
    fast_constructor,
    is_same_value,
)

__all__ = [
    "ABSENT",
    "COUNTED_TOOL_KINDS",
    "EMPTY_RUN",
    "NO_GOLDEN_NOTE",
    "NO_VOCABULARY",
    "ONCE",
    "UNKNOWN_POLICIES",
    "Agreement",
    "AnyOf",
    "ArgumentsMatch",
    "CallDepth",
    "CallEvidence",
    "CallOrder",
    "CallOutcome",
    "Comparison",
    "ComparisonRow",
    "ComponentSelector",
    "CorrectnessMode",
    "CountedAttempts",
    "Difference",
    "DuplicateCalls",
    "Evaluation",
    "ExpectedItem",
    "ExpectedTool",
    "ExtraCalls",
    "Fault",
    "FaultKind",
    "Golden",
    "GoldenSource",
    "Health",
    "Judgement",
    "LogRecord",
    "Match",
    "MatchMethod",
    "NotEvaluatedRun",
    "Parallel",
    "RequirementResult",
    "RowVerdict",
    "Run",
    "RunUnit",
    "Score",
    "ScoreLabel",
    "SpanEvent",
    "SpanRecord",
    "SpanStatus",
    "TelemetryRecord",
    "Times",
    "Tool",
    "ToolCall",
    "ToolDefinition",
    "ToolEffect",
    "ToolKind",
    "UnknownPolicy",
    "Vocabulary",
    "When",
    "content_digest",
    "fast_constructor",
    "is_same_value",
]
