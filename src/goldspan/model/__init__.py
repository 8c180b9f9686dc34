"""The values that travel through goldspan: spans, tool calls, runs, goldens, comparisons, scores, evaluations.

They are plain frozen dataclasses without behaviour beyond reading themselves. `None` always means "not known",
never "nothing" and never zero. Times are nanoseconds since the Unix epoch.
"""

from goldspan.model.digests import content_digest
from goldspan.model.drafts import drafted
from goldspan.model.evaluations import (
    ABSENT,
    Agreement,
    Comparison,
    Difference,
    Evaluation,
    Label,
    Row,
    Score,
    Verdict,
)
from goldspan.model.goldens import (
    NO_VOCABULARY,
    Attempts,
    Effect,
    ExpectedTool,
    Golden,
    Match,
    MatchedBy,
    Order,
    Tool,
    Vocabulary,
)
from goldspan.model.runs import (
    COUNTED_KINDS,
    Evidence,
    Health,
    Outcome,
    Run,
    ToolCall,
    ToolDefinition,
    ToolKind,
    Unit,
)
from goldspan.model.telemetry import LogRecord, Record, SpanEvent, SpanRecord, Status

__all__ = [
    "ABSENT",
    "COUNTED_KINDS",
    "NO_VOCABULARY",
    "Agreement",
    "Attempts",
    "Comparison",
    "Difference",
    "Effect",
    "Evaluation",
    "Evidence",
    "ExpectedTool",
    "Golden",
    "Health",
    "Label",
    "LogRecord",
    "Match",
    "MatchedBy",
    "Order",
    "Outcome",
    "Record",
    "Row",
    "Run",
    "Score",
    "SpanEvent",
    "SpanRecord",
    "Status",
    "Tool",
    "ToolCall",
    "ToolDefinition",
    "ToolKind",
    "Unit",
    "Verdict",
    "Vocabulary",
    "content_digest",
    "drafted",
]
