"""An evaluation as attributes of the run's span. They carry names and numbers, never the value of an argument."""

from __future__ import annotations

from opentelemetry.util.types import AttributeValue

from goldspan import semconv
from goldspan.model import Evaluation


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
            attributes[semconv.GOLDEN_ELSEWHERE] = True
        if evaluation.match.how == "near":
            attributes[semconv.GOLDEN_SIMILARITY] = evaluation.match.similarity
    if evaluation.passed is not None:
        attributes[semconv.PASSED] = evaluation.passed
    for score in evaluation.scores:
        if score.value is not None:
            attributes[semconv.SCORE_PREFIX + score.metric] = float(score.value)
    return attributes
