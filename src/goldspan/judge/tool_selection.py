"""Parses a model's answers, and turns the votes into the score `tool_selection` of an evaluation.

Parsing is strict, because a run may try to influence the model.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any, Literal, TypeAlias, get_args

from goldspan.judge.prompts import JudgePrompt
from goldspan.model import Evaluation, Judgement, RequirementResult, Score
from goldspan.scoring.explanation import explain_evaluation
from goldspan.scoring.metrics.metric import THRESHOLD_TOLERANCE
from goldspan.scoring.verdict import RunVerdict, passes

TOOL_SELECTION = "tool_selection"
Combination: TypeAlias = Literal["apart", "min"]
"""`apart`: a separate score. `min`: the score it is combined with becomes the lower of both."""
COMBINATIONS: tuple[Combination, ...] = get_args(Combination)
_DEFAULT_LIMIT = 0.5
"""The limit by which votes agree or disagree if there is no threshold."""
MAX_REASON_LENGTH = 600
"""Maximum characters of a reason."""
_CODE_FENCE = "```"


@dataclass(frozen=True, slots=True)
class ModelReply:
    """The unparsed answer of a model."""

    text: str
    model: str | None = None
    """The name that the endpoint reports."""
    input_tokens: int | None = None
    """`None`: the endpoint does not report it."""
    output_tokens: int | None = None


class ModelRequestError(Exception):
    """The model gave no usable answer. The text contains no key, and of a run only what the endpoint repeats.

    Args:
        kind: The value of the label `error.type`.
        text: What happened, for people.
        is_retryable: Whether another attempt may succeed.
        retry_after: The seconds that the endpoint asks to wait, or `None`.
        is_billed: Whether the attempt may have cost tokens.
    """

    def __init__(
        self,
        kind: str,
        text: str,
        *,
        is_retryable: bool = False,
        retry_after: float | None = None,
        is_billed: bool = True,
    ) -> None:
        super().__init__(text)
        self.kind = kind
        """The value of the label `error.type`: `Timeout`, `RateLimited`, `EndpointError`, `EndpointRefused`,
        `Unreachable`, `MalformedAnswer`, `AnswerTooLarge`, `OverBudget`, or the type of a custom judge's exception."""
        self.is_retryable = is_retryable
        """Whether another attempt may succeed."""
        self.retry_after = retry_after
        """Seconds that the endpoint asks to wait, or `None`."""
        self.is_billed = is_billed
        """Whether the attempt may have cost tokens."""
        self.is_permanent = False
        """Whether every prompt will get this error until the settings are changed."""
        self.reply: ModelReply | None = None
        """The unusable reply, with the tokens that it cost."""

    def __str__(self) -> str:
        return f"{self.kind}: {super().__str__()}"


@dataclass(frozen=True, slots=True)
class Assessment:
    """A judge's rating of the tool choice of one run."""

    score: float
    """0 to 1."""
    reason: str = ""
    better_tool: str | None = None
    """The name of an offered tool that would have been better."""


def parse_assessment(reply: object, prompt: JudgePrompt) -> Assessment:
    """Return the assessment in an answer: an `Assessment`, a mapping with its fields, or JSON text of one.

    Raises `ModelRequestError` for anything else, including a score that is not a number from 0 to 1 and a tool that was
    not offered. Nothing is guessed or corrected.
    """
    if isinstance(reply, Assessment):
        reply = {"score": reply.score, "reason": reply.reason, "better_tool": reply.better_tool}
    if isinstance(reply, str):
        reply = _parse_json(reply)
    if not isinstance(reply, Mapping):
        raise _malformed_assessment("is not a JSON object")
    score, reason, better = (reply.get(key) for key in ("score", "reason", "better_tool"))
    if isinstance(score, bool) or not isinstance(score, int | float):
        raise _malformed_assessment("has a score that is not a number")
    if not 0 <= score <= 1:
        raise _malformed_assessment("has a score that is not from 0 to 1")
    if not isinstance(reason, str):
        raise _malformed_assessment("has a reason that is not a text")
    return Assessment(float(score), _clean_reason(reason), _find_tool(better, prompt))


def _parse_json(text: str) -> Any:
    try:
        return json.loads(_strip_code_fence(text))
    except (ValueError, RecursionError):
        raise _malformed_assessment("is not JSON") from None


def _strip_code_fence(text: str) -> str:
    """Return the content if the whole text is one code block, else the text."""
    block = text.strip()
    first, _, rest = block.partition("\n")
    is_block = first.rstrip() in (_CODE_FENCE, f"{_CODE_FENCE}json") and rest.endswith(_CODE_FENCE)
    return rest.removesuffix(_CODE_FENCE) if is_block else text


def _find_tool(better: Any, prompt: JudgePrompt) -> str | None:
    if better is None:
        return None
    if isinstance(better, str):
        # The prompt asks for an id. An id takes precedence over a tool that is itself named `T1`.
        number = better[1:]
        if better[:1] == "T" and number.isascii() and number.isdigit() and 1 <= int(number[:9]) <= len(prompt.tools):
            return prompt.tools[int(number[:9]) - 1]
        if better in prompt.tools:
            return better
    raise _malformed_assessment("names a tool that was not offered")


def _clean_reason(reason: str) -> str:
    """Return the reason in one line, without invisible characters."""
    text = "".join(" " if unicodedata.category(char) in ("Cc", "Zl", "Zp") else char for char in reason[:4000])
    text = "".join(char for char in text if unicodedata.category(char) not in ("Cf", "Cs", "Co", "Cn"))
    line = " ".join(text.split())
    return line if len(line) <= MAX_REASON_LENGTH else f"{line[: MAX_REASON_LENGTH - 1]}…"


def _malformed_assessment(problem: str) -> ModelRequestError:
    return ModelRequestError("MalformedAnswer", f"the model's answer {problem}", is_retryable=True)


# --- votes and scores -------------------------------------------------------------------------------------------------


def selection_score(
    assessments: Sequence[Assessment], judgement: Judgement, threshold: float | None, *, explain: bool = False
) -> Score:
    """Return the score of some votes: their median.

    The reason names tools. With `explain` it also contains the model's words, which may quote any part of the run.
    """
    value = float(median(assessment.score for assessment in assessments))
    limit = _DEFAULT_LIMIT if threshold is None else threshold
    agrees = [
        (assessment.score >= limit - THRESHOLD_TOLERANCE) == (value >= limit - THRESHOLD_TOLERANCE)
        for assessment in assessments
    ]
    nearest = min(assessments, key=lambda assessment: abs(assessment.score - value))
    judgement = replace(
        judgement,
        votes=tuple(assessment.score for assessment in assessments),
        agreement=sum(agrees) / len(agrees) if len(agrees) > 1 else None,
        better_tool=nearest.better_tool,
        words=nearest.reason or None,
    )
    text = f"{judgement.model} rates the choice of tools {value:.3g}"
    if judgement.agreement is not None:
        text += f", the median of {len(assessments)} votes of which {judgement.agreement:.0%} agree with it"
    if judgement.better_tool is not None:
        text += f"; {judgement.better_tool} would have been better"
    if explain and judgement.words:
        text += f": {judgement.words.rstrip('.')}"
    return with_threshold(Score(TOOL_SELECTION, value, reason=f"{text}.", judgement=judgement), threshold)


def not_evaluated_score(reason: str, threshold: float | None = None) -> Score:
    """Return the score of a run that lacks what a prompt needs."""
    return Score(TOOL_SELECTION, threshold=threshold, label="not_evaluated", reason=reason)


def failed_score(error: str, threshold: float | None = None) -> Score:
    """Return the score of a run for which the judge failed."""
    return Score(TOOL_SELECTION, threshold=threshold, label="not_evaluated", error=error)


def with_threshold(score: Score, threshold: float | None) -> Score:
    """Return the score with this threshold, and with the verdict if it has a value."""
    if threshold is None or score.value is None:
        return replace(score, threshold=threshold, passed=None, label=None if score.value is not None else score.label)
    passed = score.value >= threshold - THRESHOLD_TOLERANCE
    return replace(score, passed=passed, threshold=threshold, label="pass" if passed else "fail")


def with_tool_selection(
    evaluation: Evaluation, score: Score, *, combination: Combination = "apart", combined_with: str = "tool_correctness"
) -> Evaluation:
    """Return the next revision of the evaluation, with the judge's score.

    A score without a value changes no other score and no verdict. Run, golden and comparison do not change, and neither
    does the digest, which covers them. A lowered score is compared with the judge's threshold, unless the golden states
    a threshold for its metric.
    """
    scores, lowered = _merge_score(evaluation.scores, score, combined_with if combination == "min" else None)
    judged = replace(
        evaluation,
        scores=scores,
        changes=(TOOL_SELECTION,) if lowered is None else (TOOL_SELECTION, combined_with),
        **_revised_verdict(evaluation, score, lowered),
    )
    vars(judged)["digest"] = evaluation.digest  # the digest of a redacted evaluation cannot be computed again
    return judged


def _merge_score(
    scores: Sequence[Score], score: Score, combined_with: str | None
) -> tuple[tuple[Score, ...], Score | None]:
    """Return the scores with the judge's score, and the score that it lowered, if any."""
    merged = [score if each.metric == TOOL_SELECTION else each for each in scores]
    if score not in merged:
        merged.append(score)
    for index, each in enumerate(merged):
        if each.metric == combined_with and _is_lower(score, each):
            reason = f"The comparison gives {each.value:.3g}; {TOOL_SELECTION} is lower. {score.reason or ''}".rstrip()
            limit = each.threshold if each.threshold is not None and each.threshold < 1 else score.threshold
            merged[index] = with_threshold(replace(each, value=score.value, reason=reason, steps=()), limit)
            return tuple(merged), merged[index]
    return tuple(merged), None


def _revised_verdict(evaluation: Evaluation, score: Score, lowered: Score | None) -> dict[str, Any]:
    """Return the fields of the verdict that the score changes."""
    golden = evaluation.golden
    if golden is None:
        return {}
    broken = [each for each in evaluation.broken if each.about != TOOL_SELECTION]
    broken += [_missed_threshold(each) for each in (score, lowered) if each is not None and each.passed is False]
    undetermined = [each for each in evaluation.undetermined if each.about != TOOL_SELECTION or score.value is None]
    verdict = RunVerdict(tuple(broken), tuple(undetermined), evaluation.accepted_shares)
    if (verdict.broken, verdict.undetermined) == (evaluation.broken, evaluation.undetermined):
        return {}
    passed = passes(verdict.broken, verdict.undetermined, golden.unknown)
    reason = evaluation.reason
    if reason:
        reason = explain_evaluation(evaluation.comparison, evaluation.run.available_tools, verdict)
        has_failed_now = evaluation.passed is not False and passed is False
        reason = f"{reason} {score.reason}" if has_failed_now and score.reason else reason
    return {"passed": passed, "broken": verdict.broken, "undetermined": verdict.undetermined, "reason": reason}


def _missed_threshold(score: Score) -> RequirementResult:
    return RequirementResult(score.metric, f"{score.metric} {score.value:.4g} of {score.threshold:g} wanted")


def _is_lower(score: Score, other: Score) -> bool:
    return score.value is not None and other.value is not None and score.value < other.value
