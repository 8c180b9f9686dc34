"""Evaluations as OpenTelemetry events: one `gen_ai.evaluation.result` a score, correlated to the run's span."""

from __future__ import annotations

from opentelemetry._logs import LoggerProvider, get_logger
from opentelemetry.util.types import AnyValue, AttributeValue

from goldspan import semconv
from goldspan._version import __version__
from goldspan.model import Evaluation, Judgement, Score
from goldspan.sinks.correlation import context_of


class EventSink:
    """Emits events through a logger provider, the global one by default, in an instrumentation scope of this name."""

    def __init__(self, logger_provider: LoggerProvider | None = None, *, scope: str = "goldspan") -> None:
        self._logger = get_logger(scope, __version__, logger_provider=logger_provider)

    def submit(self, evaluation: Evaluation) -> None:
        """Emit one event for every score, known or not, of every revision; where only some are new, for these."""
        context = context_of(evaluation.run)
        common = _common(evaluation)
        for score in changed_scores(evaluation):
            self._logger.emit(
                timestamp=evaluation.run.end_ns,
                context=context,
                event_name=semconv.EVALUATION_EVENT,
                attributes={**common, **score_attributes(evaluation, score)},
            )


def changed_scores(evaluation: Evaluation) -> tuple[Score, ...]:
    """The scores that a revision says anew."""
    scores, changes = evaluation.scores, evaluation.changes
    return scores if changes is None else tuple([score for score in scores if score.metric in changes])


def _common(evaluation: Evaluation) -> dict[str, AnyValue]:
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
    if label := label_of(score):
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


def label_of(score: Score) -> str | None:
    """The label of a score; a score without a value is not evaluated, one without a threshold has no label."""
    return score.label or ("not_evaluated" if score.value is None else None)
