"""The section `judge`: which model is asked whether the tools were the best choice, and how much it may cost."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

from goldspan.errors import ConfigurationError
from goldspan.gateway.extra import needed
from goldspan.gateway.settings.kinds import (
    Members,
    PerhapsCount,
    PerhapsNoNumber,
    PerhapsNoSeconds,
    Prices,
    Seconds,
    mistake,
)
from goldspan.judge.endpoint import OPENAI, URL_FORM, AnswerForm, key_in
from goldspan.judge.questions import Shown
from goldspan.judge.selection import Combination
from goldspan.judge.settings import DAILY_TOKENS, USUAL_SAMPLE, JudgeSettings

with needed():
    from pydantic import BaseModel, ConfigDict, Field, SecretStr, model_validator

CACHE = "judge.db"
"""What the file of answers is called in the data folder."""

_Share = Annotated[float, Field(ge=0, le=1)]
_Count = Annotated[int, Field(ge=1)]


class Judge(BaseModel):
    """A model that is asked whether the tools that were called were the best choice."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True, hide_input_in_errors=True)

    model: Annotated[str, Field(min_length=1)] | None = None
    """The model that is asked; null: none is, and all else here means nothing."""
    url: str = OPENAI
    """Base URL of the OpenAI-compatible endpoint where that model is."""
    api_key: SecretStr | None = Field(default=None, repr=False)
    """Its key, best said by the variable GOLDSPAN_JUDGE_API_KEY; null: OPENAI_API_KEY for OpenAI's own, else none."""
    sample: _Share = USUAL_SAMPLE
    """Which share of the runs it is asked about, 0 to 1."""
    combination: Combination = "apart"
    """min: tool_correctness becomes the lower of both; apart: it stays."""
    threshold: _Share | None = None
    """What tool_selection must reach; null: only what goldens ask for."""
    votes: _Count = 1
    """How often it is asked about a run; the median counts."""
    temperature: PerhapsNoNumber = 0.0
    """The temperature it is asked with; or off: none is sent."""
    seed: PerhapsCount = 0
    """The seed it is asked with; or off: none is sent."""
    show: Shown = "all"
    """What it is shown of calls: names, also arguments, or all with results."""
    explain: bool = False
    """Whether reasons have the model's own words, which may repeat what is in the run."""
    timeout: Seconds = 30.0
    """Seconds that all votes about a run may take."""
    concurrency: _Count = 4
    """Runs that each worker asks about at once."""
    daily_tokens: PerhapsCount = DAILY_TOKENS
    """Tokens that all workers together may spend within 24 hours; or off: no limit."""
    daily_cost: PerhapsNoSeconds | None = None
    """US dollars that they may; needs the prices; null: no limit."""
    prices: Prices = None
    """US dollars for a million tokens of questions and of answers, such as 0.25,2."""
    cache: Path | None = None
    """SQLite file in which answers, and what was spent, are kept; null: judge.db in the data folder."""
    answer_form: AnswerForm = "json_schema"
    """How the form of an answer is asked for; json_object or text for an endpoint that knows no schemas."""
    max_tokens: _Count = 1000
    """How many tokens an answer may have."""
    extra: Members = None
    """Further members of each request, such as reasoning_effort; in a variable as a JSON object."""

    @model_validator(mode="after")
    def _check(self) -> Judge:
        if not URL_FORM.fullmatch(self.url):
            raise mistake("is written as https://api.openai.com/v1; keys go into api_key", "url")
        try:
            key_in(self.api_key.get_secret_value() if self.api_key else None)
        except ConfigurationError:
            raise mistake("holds characters that no key has", "api_key") from None
        if self.daily_cost is not None and self.prices is None:
            raise mistake("needs prices beside it: what a million tokens cost", "daily_cost")
        return self

    @property
    def host(self) -> str:
        """Where what is shown to the model goes."""
        return urlsplit(self.url).netloc

    def told(self, data: Path) -> JudgeSettings | None:
        """All of it as the judge takes it; `None`: there is none."""
        if self.model is None:
            return None
        said: dict[str, Any] = {each.name: getattr(self, each.name) for each in fields(JudgeSettings)}
        said["api_key"] = self.api_key.get_secret_value() if self.api_key else None
        return JudgeSettings(**said | {"cache": self.cache or data / CACHE})
