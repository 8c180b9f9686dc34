"""Every attribute, event and metric name that goldspan writes, and those it reads from more than one place.

Names that only one convention reads stand in that convention's file. *Standard* names are those of the OpenTelemetry
semantic conventions for generative AI; *ours* begin with `goldspan.`.
"""

from __future__ import annotations

# Standard: spans of agents, tools and model calls.
OPERATION = "gen_ai.operation.name"
EXECUTE_TOOL = "execute_tool"
INVOKE_AGENT = "invoke_agent"
TOOL_NAME = "gen_ai.tool.name"
TOOL_TYPE = "gen_ai.tool.type"
TOOL_CALL_ID = "gen_ai.tool.call.id"
TOOL_CALL_ARGUMENTS = "gen_ai.tool.call.arguments"
TOOL_CALL_RESULT = "gen_ai.tool.call.result"
AGENT_NAME = "gen_ai.agent.name"
CONVERSATION_ID = "gen_ai.conversation.id"
INPUT_MESSAGES = "gen_ai.input.messages"
OUTPUT_MESSAGES = "gen_ai.output.messages"
TOOL_DEFINITIONS = "gen_ai.tool.definitions"
ERROR_TYPE = "error.type"

# Standard: the result of an evaluation, an event correlated to the evaluated span.
EVALUATION_EVENT = "gen_ai.evaluation.result"
EVALUATION_NAME = "gen_ai.evaluation.name"
EVALUATION_VALUE = "gen_ai.evaluation.score.value"
EVALUATION_LABEL = "gen_ai.evaluation.score.label"
EVALUATION_EXPLANATION = "gen_ai.evaluation.explanation"

# Standard in the making: names that test suites put on the span of a case.
TEST_CASE_NAME = "test.case.name"

# Ours: what a person puts on a span, read back by the extractor.
GOLDEN_ID = "goldspan.golden.id"
COMPONENT_NAME = "goldspan.component.name"
COMPONENT_INPUT = "goldspan.component.input"
COMPONENT_OUTPUT = "goldspan.component.output"
EXPECTED_TOOLS = "goldspan.expected_tools"
"""The expected calls as JSON, in the words of a golden's `tools`."""
METRICS = "goldspan.metrics"
"""The names of the metrics that a run asks for."""
METADATA_PREFIX = "goldspan.metadata."
INPUT = "goldspan.input"
"""What was asked, where a program says so itself."""
OUTPUT = "goldspan.output"
ENVIRONMENT = "deployment.environment.name"
OLDER_ENVIRONMENT = "deployment.environment"

# Ours: results on the run's span. `goldspan.score.` is followed by the metric's name.
TOOLS_USED = "goldspan.tools_used"
GOLDEN_MATCH = "goldspan.golden.match"
PASSED = "goldspan.passed"
SCORE_PREFIX = "goldspan.score."
REASON = "goldspan.reason"
REVISION = "goldspan.revision"
RUN_ID = "goldspan.run.id"
SCORING_VERSION = "goldspan.scoring.version"

# Ours: metrics and their labels.
SCORE_HISTOGRAM = "goldspan.score"
EVALUATIONS_COUNTER = "goldspan.evaluations"
TOOLS_COUNTER = "goldspan.tools"
METRIC_LABEL = "goldspan.metric"
LABEL_LABEL = "goldspan.label"
TOOL_LABEL = "goldspan.tool"
VERDICT_LABEL = "goldspan.verdict"
UNIT_LABEL = "goldspan.unit"
OTHER = "other"
"""The value of a label whose own value is outside the bounded set."""

# Ours: one counter for every way of losing something; the descriptions say what to do about it.
ERRORS_COUNTER = "goldspan.internal_errors"
ACTION_LABEL = "goldspan.action"
LATE_SPANS_COUNTER = "goldspan.spans.late"
EVICTED_COUNTER = "goldspan.traces.evicted"
