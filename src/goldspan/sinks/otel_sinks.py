"""`EventSink` and `SpanSink`: evaluations as OpenTelemetry events, spans and attributes."""

from __future__ import annotations

from opentelemetry._logs import LoggerProvider, get_logger
from opentelemetry.context import Context
from opentelemetry.trace import (
    INVALID_SPAN_CONTEXT,
    NonRecordingSpan,
    SpanContext,
    TraceFlags,
    TracerProvider,
    get_tracer,
    set_span_in_context,
)
from opentelemetry.util.types import AnyValue, AttributeValue

from goldspan import semconv
from goldspan._version import __version__
from goldspan.model import Evaluation, Judgement, Run, Score


def run_context(run: Run) -> Context:
    """Returns a context in which the run's span is current.

    It is never empty, even if the run has no span: the SDK replaces an empty context by the application's current one.
    """
    return set_span_in_context(NonRecordingSpan(_run_span_context(run)), Context())


def _run_span_context(run: Run) -> SpanContext:
    """Returns the context of the run's span, or an invalid one; runs created in code may have other ids."""
    try:
        trace_id, span_id = int(run.trace_ids[0], 16), int(run.span_id or "", 16)
    except (IndexError, ValueError):
        return INVALID_SPAN_CONTEXT
    span = SpanContext(trace_id, span_id, is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED))
    return span if span.is_valid else INVALID_SPAN_CONTEXT


def result_attributes(evaluation: Evaluation) -> dict[str, AttributeValue]:
    """Returns the attributes of a run's span. Unknown values are left out."""
    attributes: dict[str, AttributeValue] = {
        semconv.TOOLS_USED: list(evaluation.run.tools_used),
        semconv.REVISION: evaluation.revision,
        semconv.SCORING_VERSION: evaluation.scoring_version,
    }
    if evaluation.reason:
        attributes[semconv.REASON] = evaluation.reason
    if evaluation.match is not None:
        attributes[semconv.GOLDEN_ID] = evaluation.match.golden.id
        attributes[semconv.GOLDEN_MATCH] = evaluation.match.how
        own = evaluation.run.attributes.values()
        if evaluation.match.how == "id" and all(str(value) != evaluation.run.golden_id for value in own):
            attributes[semconv.GOLDEN_ON_OTHER_SPAN] = True
        if evaluation.match.how == "near":
            attributes[semconv.GOLDEN_SIMILARITY] = evaluation.match.similarity
    if evaluation.passed is not None:
        attributes[semconv.PASSED] = evaluation.passed
    for score in evaluation.scores:
        if score.value is not None:
            attributes[semconv.SCORE_PREFIX + score.metric] = float(score.value)
    return attributes


class EventSink:
    """Emits one event for each score.

    Args:
        logger_provider: The logger provider. Default: the global one.
        scope: The name of the instrumentation scope.
    """

    def __init__(self, logger_provider: LoggerProvider | None = None, *, scope: str = "goldspan") -> None:
        self._logger = get_logger(scope, __version__, logger_provider=logger_provider)

    def submit(self, evaluation: Evaluation) -> None:
        """Emits one event for each score of a revision, or only for its changed scores."""
        context = run_context(evaluation.run)
        common = _evaluation_attributes(evaluation)
        for score in scores_to_emit(evaluation):
            self._logger.emit(
                timestamp=evaluation.run.end_ns,
                context=context,
                event_name=semconv.EVALUATION_EVENT,
                attributes={**common, **score_attributes(evaluation, score)},
            )


def scores_to_emit(evaluation: Evaluation) -> tuple[Score, ...]:
    """Returns the scores that are new in a revision."""
    scores, changes = evaluation.scores, evaluation.changes
    return scores if changes is None else tuple([score for score in scores if score.metric in changes])


def _evaluation_attributes(evaluation: Evaluation) -> dict[str, AnyValue]:
    """Returns the attributes that join the events of one run and distinguish its revisions."""
    attributes: dict[str, AnyValue] = {
        semconv.RUN_ID: evaluation.run.run_id,
        semconv.UNIT_LABEL: evaluation.run.unit,
        semconv.REVISION: evaluation.revision,
        semconv.SCORING_VERSION: evaluation.scoring_version,
    }
    if evaluation.match is not None:
        attributes[semconv.GOLDEN_ID] = evaluation.match.golden.id
        attributes[semconv.GOLDEN_MATCH] = evaluation.match.how
        if evaluation.match.how == "near":
            attributes[semconv.GOLDEN_SIMILARITY] = evaluation.match.similarity
    return attributes


def score_attributes(evaluation: Evaluation, score: Score) -> dict[str, AttributeValue]:
    """Returns a score's attributes by the semantic conventions; of a metric's error the type, never the text."""
    attributes: dict[str, AttributeValue] = {semconv.EVALUATION_NAME: score.metric}
    if score.value is not None:
        attributes[semconv.EVALUATION_VALUE] = float(score.value)
    if label := score_label(score):
        attributes[semconv.EVALUATION_LABEL] = label
    if explanation := score_explanation(evaluation, score):
        attributes[semconv.EVALUATION_EXPLANATION] = explanation
    if score.error is not None:
        attributes[semconv.ERROR_TYPE] = error_type(score.error)
    if score.judgement is not None:
        attributes |= _judgement_attributes(score.judgement)
    return attributes


def _judgement_attributes(judgement: Judgement) -> dict[str, AttributeValue]:
    """Returns the parameters and costs of a judgement, without the model's own words."""
    attributes: dict[str, AttributeValue | None] = {
        semconv.JUDGE_MODEL: judgement.model,
        semconv.JUDGE_RUBRIC: judgement.rubric,
        semconv.JUDGE_VOTES: list(judgement.votes),
        semconv.JUDGE_AGREEMENT: judgement.agreement,
        semconv.JUDGE_BETTER_TOOL: judgement.better_tool,
        semconv.JUDGE_TEMPERATURE: judgement.temperature,
        semconv.JUDGE_SEED: judgement.seed,
        semconv.JUDGE_CACHED: judgement.cached,
        semconv.JUDGE_INPUT_TOKENS: judgement.input_tokens,
        semconv.JUDGE_OUTPUT_TOKENS: judgement.output_tokens,
        semconv.JUDGE_COST: judgement.cost,
    }
    return {name: value for name, value in attributes.items() if value is not None}


def error_type(error: str) -> str:
    """Returns the type of an error such as `KeyError: 'text'`; the text may contain argument values."""
    return error.partition(":")[0]


def score_explanation(evaluation: Evaluation, score: Score) -> str | None:
    """Returns the reason of a score, else that of the run if it explains the score; `None` without a reason."""
    if score.reason:
        return score.reason
    # The reason of the run describes its faults, so it does not explain a full score of a run with faults.
    is_explained = evaluation.golden is not None and (score.value != 1 or not evaluation.comparison.faults)
    return (evaluation.reason or None) if is_explained else None


def score_label(score: Score) -> str | None:
    """Returns the label of a score: `not_evaluated` without a value, `None` without a threshold."""
    return score.label or ("not_evaluated" if score.value is None else None)


class SpanSink:
    """Creates one span `evaluate request` for each evaluation.

    The span is a child of the run's span, has no duration and starts where the run ended. It has the attributes of a
    run's span and, for each score, the event of `EventSink`. For a run without a span it is the root of a new trace.

    The attribute `goldspan.evaluation` marks these spans from their start, so that they never belong to a run.

    Args:
        tracer_provider: The tracer provider. Default: the global one.
        scope: The name of the instrumentation scope.
    """

    def __init__(self, tracer_provider: TracerProvider | None = None, *, scope: str = "goldspan") -> None:
        self._tracer = get_tracer(scope, __version__, tracer_provider)

    def submit(self, evaluation: Evaluation) -> None:
        """Starts and ends the span with all attributes and events."""
        run = evaluation.run
        at = run.end_ns if run.end_ns is not None else run.start_ns
        # The marker is last: an SDK with an attribute limit drops the earlier attributes.
        attributes: dict[str, AttributeValue] = {
            semconv.RUN_ID: run.run_id,
            semconv.UNIT_LABEL: run.unit,
            **result_attributes(evaluation),
            semconv.IS_EVALUATION: True,
        }
        span = self._tracer.start_span(f"evaluate {run.unit}", run_context(run), attributes=attributes, start_time=at)
        for score in scores_to_emit(evaluation):
            span.add_event(semconv.EVALUATION_EVENT, score_attributes(evaluation, score), timestamp=at)
        span.end(at)
