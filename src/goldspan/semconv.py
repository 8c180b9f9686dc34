"""Lists the attribute, event and metric names that goldspan writes or reads in several modules.

Names that only one convention reads are in that convention's module. *Standard* names are those of the OpenTelemetry
semantic conventions for generative AI; goldspan's own names start with `goldspan.`.
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

# Proposed standard: names that test suites set on the span of a case.
TEST_CASE_NAME = "test.case.name"

# Goldspan: attributes that a program sets on a span, and extraction reads.
GOLDEN_ID = "goldspan.golden.id"
COMPONENT_NAME = "goldspan.component.name"
COMPONENT_INPUT = "goldspan.component.input"
COMPONENT_OUTPUT = "goldspan.component.output"
EXPECTED_TOOLS = "goldspan.expected_tools"
"""The expected calls as JSON, in the format of a golden's `tools`."""
METRICS = "goldspan.metrics"
"""The names of the metrics to measure for a run."""
METADATA_PREFIX = "goldspan.metadata."
INPUT = "goldspan.input"
"""The text of the request, if the program sets it."""
OUTPUT = "goldspan.output"
ENVIRONMENT = "deployment.environment.name"
DEPRECATED_ENVIRONMENT = "deployment.environment"

# Goldspan: results on the run's span. The metric's name follows `goldspan.score.`.
TOOLS_USED = "goldspan.tools_used"
GOLDEN_MATCH = "goldspan.golden.match"
GOLDEN_ON_OTHER_SPAN = "goldspan.golden.elsewhere"
"""True if another span of the run names the golden."""
GOLDEN_SIMILARITY = "goldspan.golden.similarity"
"""The similarity of the request and the input of its golden, 0 to 1, if the golden was found by similarity."""
PASSED = "goldspan.passed"
SCORE_PREFIX = "goldspan.score."
REASON = "goldspan.reason"
REVISION = "goldspan.revision"
RUN_ID = "goldspan.run.id"
SCORING_VERSION = "goldspan.scoring.version"

# Goldspan: the spans of `@goldspan.trace` functions.
INSTRUMENTATION_SCOPE = "goldspan"
"""The instrumentation scope of these spans."""

# Goldspan: evaluations as separate spans, named `evaluate` and the unit.
IS_EVALUATION = "goldspan.evaluation"
"""True on a span that represents an evaluation, set at its start. Such spans are never part of a run."""

# Goldspan: metrics and their labels.
SCORE_HISTOGRAM = "goldspan.score"
EVALUATIONS_COUNTER = "goldspan.evaluations"
REVISIONS_COUNTER = "goldspan.revisions"
TOOLS_COUNTER = "goldspan.tools"
HEALTH_COUNTER = "goldspan.health"
PROBLEM_LABEL = "goldspan.problem"
METRIC_LABEL = "goldspan.metric"
SCORE_LABEL_LABEL = "goldspan.label"
TOOL_LABEL = "goldspan.tool"
VERDICT_LABEL = "goldspan.verdict"
UNIT_LABEL = "goldspan.unit"
OTHER_LABEL_VALUE = "other"
"""The label value for all values outside the bounded set."""

# Ours: pass rates over time, and the event that one has changed. Their labels are those above and of the run.
PASS_RATE_GAUGE = "goldspan.pass_rate"
PASS_RATE_LOW_GAUGE = "goldspan.pass_rate.low"
PASS_RATE_HIGH_GAUGE = "goldspan.pass_rate.high"
CHANGE_EVENT = "goldspan.change"
CHANGE_DIRECTION = "goldspan.change.direction"
"""`fall` or `rise`."""
CHANGE_BEFORE = "goldspan.change.before"
CHANGE_AFTER = "goldspan.change.after"
CHANGE_RUNS_BEFORE = "goldspan.change.runs_before"
CHANGE_RUNS_AFTER = "goldspan.change.runs_after"
CHANGE_SINCE = "goldspan.change.since"
"""Seconds since the epoch."""

# Ours: one counter for every way of losing something; the descriptions say what to do about it.
ERRORS_COUNTER = "goldspan.internal_errors"
ACTION_LABEL = "goldspan.action"
LATE_SPANS_COUNTER = "goldspan.spans.late"
TOO_LATE_SPANS_COUNTER = "goldspan.spans.too_late"
DUPLICATE_SPANS_COUNTER = "goldspan.spans.duplicate"
UNSCORED_SPANS_COUNTER = "goldspan.spans.unscored"
EVICTED_COUNTER = "goldspan.traces.evicted"
UNENDED_RUNS_COUNTER = "goldspan.runs.unended"
SAMPLED_OUT_COUNTER = "goldspan.runs.sampled_out"
OVER_BUDGET_COUNTER = "goldspan.evaluations.over_budget"
INVISIBLE_RUNS_COUNTER = "goldspan.runs.calls_invisible"
RELOAD_FAILURES_COUNTER = "goldspan.goldens.reload_failures"
SINK_DROPPED_COUNTER = "goldspan.sink.dropped"
SINK_LABEL = "goldspan.sink"

# Ours: on the event of a score that a model gave, how it was asked and what it said, but for its own words.
JUDGE_MODEL = "goldspan.judge.model"
JUDGE_RUBRIC = "goldspan.judge.rubric"
JUDGE_VOTES = "goldspan.judge.votes"
JUDGE_AGREEMENT = "goldspan.judge.agreement"
JUDGE_BETTER_TOOL = "goldspan.judge.better_tool"
JUDGE_TEMPERATURE = "goldspan.judge.temperature"
JUDGE_SEED = "goldspan.judge.seed"
JUDGE_CACHED = "goldspan.judge.cached"
JUDGE_INPUT_TOKENS = "goldspan.judge.input_tokens"
JUDGE_OUTPUT_TOKENS = "goldspan.judge.output_tokens"
JUDGE_COST = "goldspan.judge.cost"

# Ours: what asking a model cost, what came of it, and what was lost on the way.
JUDGE_REQUESTS_COUNTER = "goldspan.judge.requests"
JUDGE_TOKENS_COUNTER = "goldspan.judge.tokens"
JUDGE_COST_COUNTER = "goldspan.judge.spent"
JUDGE_RUNS_COUNTER = "goldspan.judge.runs"
JUDGE_DROPPED_COUNTER = "goldspan.judge.dropped"
JUDGE_FAILED_COUNTER = "goldspan.judge.failed"
JUDGE_OVER_BUDGET_COUNTER = "goldspan.judge.over_budget"
JUDGE_OUTDATED_COUNTER = "goldspan.judge.outdated"
OUTCOME_LABEL = "goldspan.outcome"
TOKEN_TYPE_LABEL = "gen_ai.token.type"
"""Standard: `input` or `output`."""

# Ours: what the gateway counts, and the scope by which its own telemetry is known when it comes back.
GATEWAY_SCOPE = "goldspan.gateway"
GATEWAY_REQUESTS = "goldspan.gateway.requests"
GATEWAY_ITEMS = "goldspan.gateway.items"
GATEWAY_BYTES = "goldspan.gateway.bytes"
GATEWAY_REFUSED = "goldspan.gateway.refused"
GATEWAY_REJECTED = "goldspan.gateway.rejected"
GATEWAY_FORWARDED = "goldspan.gateway.forwarded"
GATEWAY_FORWARD_RETRIES = "goldspan.gateway.forward.retries"
GATEWAY_FORWARD_REJECTED = "goldspan.gateway.forward.rejected"
GATEWAY_FORWARD_LEFT_OUT = "goldspan.gateway.forward.left_out"
GATEWAY_SHED = "goldspan.gateway.scoring.shed"
GATEWAY_UNREADABLE = "goldspan.gateway.scoring.unreadable"
GATEWAY_JOURNAL_SIZE = "goldspan.gateway.journal.size"
GATEWAY_SCORING_BACKLOG = "goldspan.gateway.scoring.backlog"
GATEWAY_FORWARD_BACKLOG = "goldspan.gateway.forward.backlog"
GATEWAY_HELD_TRACES = "goldspan.gateway.traces.held"
BACKEND_LABEL = "goldspan.backend"
