"""What a judge answers, and how it is read: strictly, for a model may be talked into anything."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from goldspan.judge.answers import AskingError
from goldspan.judge.questions import Question

LONGEST_REASON = 600
"""Characters that are kept of a reason."""
_FENCE = "```"


@dataclass(frozen=True, slots=True)
class Opinion:
    """What a judge thinks of the choice of tools of one run."""

    score: float
    """0 to 1."""
    reason: str = ""
    better_tool: str | None = None
    """The name of an offered tool that would have been better."""


def opinion_in(answered: object, question: Question) -> Opinion:
    """The opinion in an answer: an `Opinion`, a mapping with its fields, or JSON text of one.

    Raises `AskingError` for anything else: for a score that is no number from 0 to 1, and for a tool that was not
    offered. Nothing is guessed or put right.
    """
    if isinstance(answered, Opinion):
        answered = {"score": answered.score, "reason": answered.reason, "better_tool": answered.better_tool}
    if isinstance(answered, str):
        answered = _parsed(answered)
    if not isinstance(answered, Mapping):
        raise _malformed("is no JSON object")
    score, reason, better = (answered.get(key) for key in ("score", "reason", "better_tool"))
    if isinstance(score, bool) or not isinstance(score, int | float):
        raise _malformed("has no number as its score")
    if not 0 <= score <= 1:
        raise _malformed("has a score that is not from 0 to 1")
    if not isinstance(reason, str):
        raise _malformed("has no text as its reason")
    return Opinion(float(score), _readable(reason), _tool(better, question))


def _parsed(text: str) -> Any:
    try:
        return json.loads(_unfenced(text))
    except (ValueError, RecursionError):
        raise _malformed("is no JSON") from None


def _unfenced(text: str) -> str:
    """What stands in the one code block that a text is; any other text as it is."""
    block = text.strip()
    first, _, rest = block.partition("\n")
    is_block = first.rstrip() in (_FENCE, f"{_FENCE}json") and rest.endswith(_FENCE)
    return rest.removesuffix(_FENCE) if is_block else text


def _tool(better: Any, question: Question) -> str | None:
    if better is None:
        return None
    if isinstance(better, str):
        # By its id, as it is asked for: anybody may call a tool `T1`.
        number = better[1:]
        if better[:1] == "T" and number.isascii() and number.isdigit() and 1 <= int(number[:9]) <= len(question.tools):
            return question.tools[int(number[:9]) - 1]
        if better in question.tools:
            return better
    raise _malformed("names a tool that was not offered")


def _readable(reason: str) -> str:
    """A reason in one line, without what cannot be seen."""
    seen = "".join(" " if unicodedata.category(each) in ("Cc", "Zl", "Zp") else each for each in reason[:4000])
    seen = "".join(each for each in seen if unicodedata.category(each) not in ("Cf", "Cs", "Co", "Cn"))
    told = " ".join(seen.split())
    return told if len(told) <= LONGEST_REASON else f"{told[: LONGEST_REASON - 1]}…"


def _malformed(what: str) -> AskingError:
    return AskingError("MalformedAnswer", f"the model's answer {what}", again=True)
