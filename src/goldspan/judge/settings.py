"""A judge as settings have it: variables, goldspan.yaml, the command line."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from opentelemetry.metrics import MeterProvider

from goldspan.errors import ConfigurationError
from goldspan.judge.budget import Budget, Prices
from goldspan.judge.endpoint import OPENAI, AnswerForm, ModelEndpoint
from goldspan.judge.judges import Judge
from goldspan.judge.questions import Shown
from goldspan.judge.selection import Combination
from goldspan.model import Run

USUAL_SAMPLE = 0.1
DAILY_TOKENS = 1_000_000

KEY_VARIABLE = "OPENAI_API_KEY"
"""Where the clients of OpenAI look for a key, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeSettings:
    """What a judge can be told. A key never shows in what this prints."""

    model: str
    """The model that is asked."""
    url: str = OPENAI
    """Base URL of an OpenAI-compatible endpoint, to which `/chat/completions` is appended."""
    api_key: str | None = field(default=None, repr=False)
    """Its key. `None`: the variable OPENAI_API_KEY where the endpoint is OpenAI's, else none."""
    sample: float = USUAL_SAMPLE
    """Which share of the runs is judged while the application runs, 0 to 1."""
    combination: Combination = "apart"
    threshold: float | None = None
    votes: int = 1
    temperature: float | None = 0.0
    seed: int | None = 0
    show: Shown = "all"
    explain: bool = False
    timeout: float = 30.0
    concurrency: int = 4
    daily_tokens: int | None = DAILY_TOKENS
    """Tokens that may be spent within 24 hours; `None`: no limit."""
    daily_cost: float | None = None
    """US dollars that may be."""
    prices: tuple[float, float] | None = None
    """US dollars for a million tokens of questions, and of answers."""
    cache: str | os.PathLike[str] | None = None
    answer_form: AnswerForm = "json_schema"
    max_tokens: int = 1000
    extra: Mapping[str, Any] | None = None
    """Further members of each request."""

    def judge(
        self, *, samples: Callable[[Run], bool] | None = None, meter_provider: MeterProvider | None = None, **more: Any
    ) -> Judge:
        """The judge that they say. Raises `GoldspanError` for what cannot be, also where the extra is not there."""
        key = self.api_key
        if key is None and self.url.rstrip("/") == OPENAI:
            key = os.environ.get(KEY_VARIABLE) or None
            if key is None:
                raise ConfigurationError(
                    f"the judge needs a key for {OPENAI}: set {KEY_VARIABLE} or GOLDSPAN_JUDGE_API_KEY, or name "
                    "another endpoint with GOLDSPAN_JUDGE_URL"
                )
        asked = ModelEndpoint(
            self.model, base_url=self.url, api_key=key, answer_form=self.answer_form, extra=self.extra
        )
        return Judge(
            asked,
            budget=Budget(self.daily_tokens, self.daily_cost),
            prices=None if self.prices is None else Prices(*self.prices),
            samples=samples,
            meter_provider=meter_provider,
            **{name: getattr(self, name) for name in _SHARED},
            **more,
        )


_SHARED = (
    *("combination", "threshold", "votes", "temperature", "seed", "show", "explain"),
    *("timeout", "concurrency", "cache", "max_tokens"),
)
"""What is called the same in a `Judge`."""

NAMES = tuple(each.name for each in fields(JudgeSettings))
