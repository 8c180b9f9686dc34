"""Evaluations as spans of their own, for back ends that take nothing else."""

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
    """A context in which the run's span is the current one.

    Never empty, even where the run has no span: an empty context would be taken for the application's current one.
    """
    return set_span_in_context(NonRecordingSpan(_run_span_context(run)), Context())


def _run_span_context(run: Run) -> SpanContext:
    """The run's span, or none; runs that were made by hand may have ids that no span has."""
    try:
        trace_id, span_id = int(run.trace_ids[0], 16), int(run.span_id or "", 16)
    except (IndexError, ValueError):
        return INVALID_SPAN_CONTEXT
    span = SpanContext(trace_id, span_id, is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED))
    return span if span.is_valid else INVALID_SPAN_CONTEXT


def result_attributes(evaluation: Evaluation) -> dict[str, AttributeValue]:
    """What is written on the span. What is not known is left out."""
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
    """Emits events through a logger provider, the global one by default, in an instrumentation scope of this name."""

    def __init__(self, logger_provider: LoggerProvider | None = None, *, scope: str = "goldspan") -> None:
        self._logger = get_logger(scope, __version__, logger_provider=logger_provider)

    def submit(self, evaluation: Evaluation) -> None:
        """Emit one event for every score, known or not, of every revision; where only some are new, for these."""
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
    """The scores that a revision says anew."""
    scores, changes = evaluation.scores, evaluation.changes
    return scores if changes is None else tuple([score for score in scores if score.metric in changes])


def _evaluation_attributes(evaluation: Evaluation) -> dict[str, AnyValue]:
    """What lets a reader of the events alone join the scores of one run and tell its revisions apart."""
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
    """One score in the words of the semantic conventions; of an error of the metric its type, never its text."""
    attributes: dict[str, AttributeValue] = {semconv.EVALUATION_NAME: score.metric}
    if score.value is not None:
        attributes[semconv.EVALUATION_VALUE] = float(score.value)
    if label := score_label(score):
        attributes[semconv.EVALUATION_LABEL] = label
    # What is said of the whole run explains what is wrong with it, and so no full score of a run with faults.
    told = evaluation.golden is not None and (score.value != 1 or not evaluation.comparison.faults)
    if explanation := score.reason or (evaluation.reason if told else None):
        attributes[semconv.EVALUATION_EXPLANATION] = explanation
    if score.error is not None:
        attributes[semconv.ERROR_TYPE] = error_type(score.error)
    if score.judgement is not None:
        attributes |= _judgement_attributes(score.judgement)
    return attributes


def _judgement_attributes(judgement: Judgement) -> dict[str, AttributeValue]:
    """How a model was asked, and what it cost; the model's own words are left out."""
    told: dict[str, AttributeValue | None] = {
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
    return {name: value for name, value in told.items() if value is not None}


def error_type(error: str) -> str:
    """The type of an error that is written as `KeyError: 'text'`: the text may hold values of arguments."""
    return error.partition(":")[0]


def score_label(score: Score) -> str | None:
    """The label of a score; a score without a value is not evaluated, one without a threshold has no label."""
    return score.label or ("not_evaluated" if score.value is None else None)


class SpanSink:
    """Makes one span `evaluate request` of every evaluation, through a tracer provider, the global one by default.

    It is a child of the run's span and takes no time: it stands where the run ended. It carries what a run's span would
    carry and, as one event a score, what an `EventSink` would emit. The evaluation of a run that has no span is the
    root of a trace of its own.

    These spans are marked from their start (`goldspan.evaluation`), and neither live nor in files part of any run.
    Their instrumentation scope has the name `scope`.
    """

    def __init__(self, tracer_provider: TracerProvider | None = None, *, scope: str = "goldspan") -> None:
        self._tracer = get_tracer(scope, __version__, tracer_provider)

    def submit(self, evaluation: Evaluation) -> None:
        """Start and end the span, with everything in it."""
        run = evaluation.run
        at = run.end_ns if run.end_ns is not None else run.start_ns
        # The mark stands last: an SDK that allows only so many attributes throws away those before it.
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
