"""Parses the answer of a judge strictly: a run may try to influence the model."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from goldspan.judge.prompts import JudgePrompt


@dataclass(frozen=True, slots=True)
class ModelReply:
    """What came back from a model, before it is read."""

    text: str
    model: str | None = None
    """As the endpoint names it."""
    input_tokens: int | None = None
    """`None`: the endpoint does not say."""
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
        """What labels tell it by: `Timeout`, `RateLimited`, `EndpointError`, `EndpointRefused`, `Unreachable`,
        `MalformedAnswer`, `AnswerTooLarge`, `OverBudget`; or the type of what a judge of one's own raised."""
        self.is_retryable = is_retryable
        """Whether to ask again may help."""
        self.retry_after = retry_after
        """Seconds that the endpoint wants to be left alone."""
        self.is_billed = is_billed
        """Whether the attempt cost tokens, as far as one can tell."""
        self.is_permanent = False
        """Whether it will be the same for every question, until somebody changes the settings."""
        self.reply: ModelReply | None = None
        """What was answered all the same, with the tokens that it cost."""

    def __str__(self) -> str:
        return f"{self.kind}: {super().__str__()}"


MAX_REASON_LENGTH = 600
"""Characters that are kept of a reason."""
_CODE_FENCE = "```"


@dataclass(frozen=True, slots=True)
class Assessment:
    """What a judge thinks of the choice of tools of one run."""

    score: float
    """0 to 1."""
    reason: str = ""
    better_tool: str | None = None
    """The name of an offered tool that would have been better."""


def parse_assessment(reply: object, question: JudgePrompt) -> Assessment:
    """The opinion in an answer: an `Opinion`, a mapping with its fields, or JSON text of one.

    Raises `AskingError` for anything else: for a score that is no number from 0 to 1, and for a tool that was not
    offered. Nothing is guessed or put right.
    """
    if isinstance(reply, Assessment):
        reply = {"score": reply.score, "reason": reply.reason, "better_tool": reply.better_tool}
    if isinstance(reply, str):
        reply = _parse_json(reply)
    if not isinstance(reply, Mapping):
        raise _malformed_assessment("is no JSON object")
    score, reason, better = (reply.get(key) for key in ("score", "reason", "better_tool"))
    if isinstance(score, bool) or not isinstance(score, int | float):
        raise _malformed_assessment("has no number as its score")
    if not 0 <= score <= 1:
        raise _malformed_assessment("has a score that is not from 0 to 1")
    if not isinstance(reason, str):
        raise _malformed_assessment("has no text as its reason")
    return Assessment(float(score), _clean_reason(reason), _find_tool(better, question))


def _parse_json(text: str) -> Any:
    try:
        return json.loads(_strip_code_fence(text))
    except (ValueError, RecursionError):
        raise _malformed_assessment("is no JSON") from None


def _strip_code_fence(text: str) -> str:
    """What stands in the one code block that a text is; any other text as it is."""
    block = text.strip()
    first, _, rest = block.partition("\n")
    is_block = first.rstrip() in (_CODE_FENCE, f"{_CODE_FENCE}json") and rest.endswith(_CODE_FENCE)
    return rest.removesuffix(_CODE_FENCE) if is_block else text


def _find_tool(better: Any, question: JudgePrompt) -> str | None:
    if better is None:
        return None
    if isinstance(better, str):
        # By its id, as it is asked for: anybody may call a tool `T1`.
        number = better[1:]
        if better[:1] == "T" and number.isascii() and number.isdigit() and 1 <= int(number[:9]) <= len(question.tools):
            return question.tools[int(number[:9]) - 1]
        if better in question.tools:
            return better
    raise _malformed_assessment("names a tool that was not offered")


def _clean_reason(reason: str) -> str:
    """A reason in one line, without what cannot be seen."""
    seen = "".join(" " if unicodedata.category(each) in ("Cc", "Zl", "Zp") else each for each in reason[:4000])
    seen = "".join(each for each in seen if unicodedata.category(each) not in ("Cf", "Cs", "Co", "Cn"))
    told = " ".join(seen.split())
    return told if len(told) <= MAX_REASON_LENGTH else f"{told[: MAX_REASON_LENGTH - 1]}…"


def _malformed_assessment(what: str) -> ModelRequestError:
    return ModelRequestError("MalformedAnswer", f"the model's answer {what}", is_retryable=True)
