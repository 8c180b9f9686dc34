"""Turns the votes of a judge into the score `tool_selection`, and merges it into an evaluation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from statistics import median
from typing import Any, Literal, TypeAlias, get_args

from goldspan.judge.model_replies import Assessment
from goldspan.model import Evaluation, Judgement, RequirementResult, Score
from goldspan.scoring.explanation import explain_evaluation
from goldspan.scoring.metrics.metric import THRESHOLD_TOLERANCE
from goldspan.scoring.verdict import RunVerdict, passes

TOOL_SELECTION = "tool_selection"
Combination: TypeAlias = Literal["apart", "min"]
"""`apart`: a score of its own. `min`: the score it is combined with becomes the lower of both."""
COMBINATIONS: tuple[Combination, ...] = get_args(Combination)
_DEFAULT_LIMIT = 0.5
"""What parts votes where there is no threshold."""


def selection_score(
    assessments: Sequence[Assessment], judgement: Judgement, threshold: float | None, *, explain: bool = False
) -> Score:
    """The score that some votes come to: their median.

    The reason names tools. With `explain` it also has the model's words, which may repeat anything that is in the run.
    """
    value = float(median(opinion.score for opinion in assessments))
    limit = _DEFAULT_LIMIT if threshold is None else threshold
    same = [
        (opinion.score >= limit - THRESHOLD_TOLERANCE) == (value >= limit - THRESHOLD_TOLERANCE)
        for opinion in assessments
    ]
    nearest = min(assessments, key=lambda opinion: abs(opinion.score - value))
    judgement = replace(
        judgement,
        votes=tuple(opinion.score for opinion in assessments),
        agreement=sum(same) / len(same) if len(same) > 1 else None,
        better_tool=nearest.better_tool,
        words=nearest.reason or None,
    )
    told = f"{judgement.model} rates the choice of tools {value:.3g}"
    if judgement.agreement is not None:
        told += f", the median of {len(assessments)} votes of which {judgement.agreement:.0%} agree with it"
    if judgement.better_tool is not None:
        told += f"; {judgement.better_tool} would have been better"
    if explain and judgement.words:
        told += f": {judgement.words.rstrip('.')}"
    return with_threshold(Score(TOOL_SELECTION, value, reason=f"{told}.", judgement=judgement), threshold)


def not_evaluated_score(reason: str, threshold: float | None = None) -> Score:
    """The score of a run of which too little is known to ask."""
    return Score(TOOL_SELECTION, threshold=threshold, label="not_evaluated", reason=reason)


def failed_score(error: str, threshold: float | None = None) -> Score:
    """The score of a run at which the judge failed."""
    return Score(TOOL_SELECTION, threshold=threshold, label="not_evaluated", error=error)


def with_threshold(score: Score, threshold: float | None) -> Score:
    """A known score beside what it must reach."""
    if threshold is None or score.value is None:
        return replace(score, threshold=threshold, passed=None, label=None if score.value is not None else score.label)
    passed = score.value >= threshold - THRESHOLD_TOLERANCE
    return replace(score, passed=passed, threshold=threshold, label="pass" if passed else "fail")


def with_tool_selection(
    evaluation: Evaluation, score: Score, *, combination: Combination = "apart", combined_with: str = "tool_correctness"
) -> Evaluation:
    """The evaluation with what the judge says in it, as the one after it.

    What a model could not say changes no other score, and leaves the verdict as it is. Run, golden and comparison stay
    what they were, and so does the digest, which is of these. A score that is lowered is held against the judge's
    threshold where the golden states none of its own.
    """
    scores, lowered = _merge_score(evaluation.scores, score, combined_with if combination == "min" else None)
    judged = replace(
        evaluation,
        scores=scores,
        changes=(TOOL_SELECTION,) if lowered is None else (TOOL_SELECTION, combined_with),
        **_revised_verdict(evaluation, score, lowered),
    )
    vars(judged)["digest"] = evaluation.digest  # that of a redacted evaluation is its own
    return judged


def _merge_score(
    scores: Sequence[Score], score: Score, combined_with: str | None
) -> tuple[tuple[Score, ...], Score | None]:
    """The scores with that one among them, and the score that it lowered, as it is now."""
    found = [score if each.metric == TOOL_SELECTION else each for each in scores]
    if score not in found:
        found.append(score)
    for place, each in enumerate(found):
        if each.metric == combined_with and _is_lower(score, each):
            told = f"Compared it is {each.value:.3g}, and {TOOL_SELECTION} is lower. {score.reason or ''}".rstrip()
            limit = each.threshold if each.threshold is not None and each.threshold < 1 else score.threshold
            found[place] = with_threshold(replace(each, value=score.value, reason=told, steps=()), limit)
            return tuple(found), found[place]
    return tuple(found), None


def _revised_verdict(evaluation: Evaluation, score: Score, lowered: Score | None) -> dict[str, Any]:
    """The fields of an evaluation that say its verdict, where the score changes any of them."""
    golden = evaluation.golden
    if golden is None:
        return {}
    broken = [each for each in evaluation.broken if each.about != TOOL_SELECTION]
    broken += [_missed_threshold(each) for each in (score, lowered) if each is not None and each.passed is False]
    unjudged = [each for each in evaluation.undetermined if each.about != TOOL_SELECTION or score.value is None]
    verdict = RunVerdict(tuple(broken), tuple(unjudged), evaluation.accepted_shares)
    if (verdict.broken, verdict.undetermined) == (evaluation.broken, evaluation.undetermined):
        return {}
    passed = passes(verdict.broken, verdict.undetermined, golden.unknown)
    told = evaluation.reason
    if told:
        told = explain_evaluation(evaluation.comparison, evaluation.run.available_tools, verdict)
        lost = evaluation.passed is not False and passed is False
        told = f"{told} {score.reason}" if lost and score.reason else told
    return {"passed": passed, "broken": verdict.broken, "undetermined": verdict.undetermined, "reason": told}


def _missed_threshold(score: Score) -> RequirementResult:
    return RequirementResult(score.metric, f"{score.metric} {score.value:.4g} of {score.threshold:g} wanted")


def _is_lower(score: Score, other: Score) -> bool:
    return score.value is not None and other.value is not None and score.value < other.value
