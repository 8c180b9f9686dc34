"""A judge as settings have it: variables, goldspan.yaml, the command line."""

from __future__ import annotations

import os
import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, fields
from typing import Any, Protocol, TypeAlias, runtime_checkable

from opentelemetry.metrics import MeterProvider

from goldspan.cases.case_fields import parse_tool_definition
from goldspan.errors import ConfigurationError, GoldspanError
from goldspan.goldens.spelling import join_words, short_repr
from goldspan.judge.cache import JudgeCache
from goldspan.judge.model_endpoint import OPENAI_BASE_URL, AnswerForm, ModelEndpoint
from goldspan.judge.prompts import CALL_DETAILS, CallDetail, JudgePrompt
from goldspan.judge.tool_selection import COMBINATIONS, Combination
from goldspan.judge.usage import Budget, Prices, Usage, UsageCounters
from goldspan.model import Run, ToolDefinition
from goldspan.sinks import Redact

AskFunction: TypeAlias = "Callable[[JudgePrompt], Awaitable[Any]]"
"""Answers with an `Opinion`, an `Answer`, a mapping with the fields of an opinion, or JSON text of one."""


@runtime_checkable
class ModelClient(Protocol):
    """What is asked over connections that are opened once for many questions."""

    model: str

    @property
    def identity(self) -> str:
        """What tells its answers from those of others, in a cache."""
        ...

    def connect(self) -> AbstractAsyncContextManager[AskFunction]:
        """A function that asks, for as long as this is open."""
        ...


class Judge:
    """Asks a model, or anybody else, whether the tools of a run were the best choice: the metric `tool_selection`.

    `ask` is a `ModelEndpoint`, or an asynchronous function of a `Question`. `model` is what answers are recorded and
    kept under; a function has its own name where nothing is said.

    What is asked: `available_tools` are the tools that were offered, where runs do not show it themselves. `show` says
    what is shown of calls: `names`, also `arguments`, or `all` with results. `redact` makes of an evaluation what may
    be shown at all. `temperature` and `seed` go with each question and are recorded; `None` sends none. With `votes`
    above 1 it is asked so often, with the seeds that follow, and the median counts; more than half must answer.

    What becomes of it: `threshold` makes a gate of it, unless a golden has a threshold for `tool_selection`.
    `combination="min"` also lowers `combined_with`, by default `tool_correctness`, to the lower of both.
    With `explain` the reason has the model's words, which may repeat what is in the run; without, they stand in
    `score.judgement.words` alone.

    What it may take: `timeout` in seconds for all votes and attempts of a run together, `retries` after the first
    attempt of a vote, `patience` in seconds for an endpoint that wants to be left alone (`Retry-After`), `concurrency`
    runs at once, a `budget` of tokens and money. Money needs `prices`.

    `cache` is an SQLite file in which answers are kept, and what was spent; without, both last as long as the judge.
    While the application runs, `samples` says which runs are judged (`Sampling(0.1).keeps`), `max_queue` how many may
    wait, and `drain` for how many seconds its end waits for verdicts. `meter_provider` is where its counters go.

    Raises `ConfigurationError` when it is made wrongly. Nothing that goes wrong afterwards is raised: it is an `error`
    in the score.
    """

    def __init__(
        self,
        ask: ModelClient | AskFunction,
        *,
        model: str | None = None,
        available_tools: Iterable[Any] | None = None,
        show: CallDetail = "all",
        redact: Redact | None = None,
        temperature: float | None = 0.0,
        seed: int | None = 0,
        votes: int = 1,
        max_tokens: int = 1000,
        threshold: float | None = None,
        combination: Combination = "apart",
        combined_with: str = "tool_correctness",
        explain: bool = False,
        timeout: float = 30.0,
        retries: int = 3,
        retry_after_budget: float = 60.0,
        concurrency: int = 4,
        budget: Budget | None = None,
        prices: Prices | None = None,
        cache: str | os.PathLike[str] | None = None,
        sampler: Callable[[Run], bool] | None = None,
        max_queue: int = 1000,
        drain_timeout: float = 5.0,
        meter_provider: MeterProvider | None = None,
    ) -> None:
        if isinstance(ask, type) or not (isinstance(ask, ModelClient) or callable(ask)):
            raise ConfigurationError(
                f"a judge is a ModelEndpoint or an async function of a question, not {short_repr(ask)}"
            )
        self.ask = ask
        own_name = ask.model if isinstance(ask, ModelClient) else getattr(ask, "__name__", type(ask).__name__)
        self.model: str = model or own_name
        self.available_tools = None if available_tools is None else _tool_definitions(available_tools)
        self.show = _require_choice("show", show, CALL_DETAILS)
        self.redact = redact
        self.temperature = None if temperature is None else _require_number("temperature", temperature, 0)
        self.seed = None if seed is None else _require_integer("seed", seed, 0)
        self.votes = _require_integer("votes", votes, 1)
        self.max_tokens = _require_integer("max_tokens", max_tokens, 1)
        self.threshold = None if threshold is None else _require_number("threshold", threshold, 0, 1)
        self.combination = _require_choice("combination", combination, COMBINATIONS)
        self.combined_with = combined_with
        self.explain = explain
        self.timeout = _require_number("timeout", timeout, 0.001)
        self.retries = _require_integer("retries", retries, 0)
        self.retry_after_budget = _require_number("retry_after_budget", retry_after_budget, 0)
        self.concurrency = _require_integer("concurrency", concurrency, 1)
        self.budget = budget or Budget()
        self.prices = prices
        if self.budget.cost is not None and prices is None:
            raise ConfigurationError("a budget of money needs prices: what a million tokens cost")
        self.sampler = sampler
        self.max_queue = _require_integer("max_queue", max_queue, 1)
        self.drain_timeout = _require_number("drain_timeout", drain_timeout, 0)
        self.cache = JudgeCache(cache)
        self.cache.check()
        self.counters = UsageCounters(meter_provider, has_prices=prices is not None)

    @property
    def usage(self) -> Usage:
        """What it has done so far, and what that cost."""
        return self.counters.usage

    @property
    def identity(self) -> str:
        """What tells its answers from those of others, in a cache."""
        return self.ask.identity if isinstance(self.ask, ModelClient) else _function_name(self.ask)

    def should_judge(self, run: Run) -> bool:
        """Whether a run is to be judged while the application runs."""
        return self.sampler is None or self.sampler(run)

    def renew(self) -> None:
        """Begin anew in a forked child."""
        self.cache.renew()

    def close(self) -> None:
        """Let go of the file of answers."""
        self.cache.close()


def _function_name(ask: AskFunction) -> str:
    """Which function it is, among those of the program."""
    kind = type(ask)
    return f"{getattr(ask, '__module__', kind.__module__)}:{getattr(ask, '__qualname__', kind.__qualname__)}"


def _tool_definitions(tools: Iterable[Any]) -> tuple[ToolDefinition, ...]:
    if isinstance(tools, str | bytes) or not isinstance(tools, Iterable):
        raise ConfigurationError(f"available_tools is a list of names or definitions, not {short_repr(tools)}")
    try:
        return tuple(map(parse_tool_definition, tools))
    except GoldspanError as error:
        raise ConfigurationError(str(error)) from None


def _require_choice(name: str, given: Any, known: tuple[Any, ...]) -> Any:
    if given not in known:
        raise ConfigurationError(f"{name} is {join_words(known, last='or')}, not {short_repr(given)}")
    return given


def _require_integer(name: str, given: Any, least: int) -> int:
    if isinstance(given, bool) or not isinstance(given, int) or given < least:
        raise ConfigurationError(f"{name} is a whole number of at least {least}, not {short_repr(given)}")
    return given


def _require_number(name: str, given: Any, least: float, most: float = sys.float_info.max) -> float:
    if isinstance(given, bool) or not isinstance(given, int | float) or not least <= given <= most:
        limits = f"of at least {least:g}" if most == sys.float_info.max else f"from {least:g} to {most:g}"
        raise ConfigurationError(f"{name} is a number {limits}, not {short_repr(given)}")
    return float(given)


DEFAULT_SAMPLE = 0.1
DEFAULT_DAILY_TOKENS = 1_000_000

KEY_VARIABLE = "OPENAI_API_KEY"
"""Where the clients of OpenAI look for a key, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeSettings:
    """What a judge can be told. A key never shows in what this prints."""

    model: str
    """The model that is asked."""
    url: str = OPENAI_BASE_URL
    """Base URL of an OpenAI-compatible endpoint, to which `/chat/completions` is appended."""
    api_key: str | None = field(default=None, repr=False)
    """Its key. `None`: the variable OPENAI_API_KEY where the endpoint is OpenAI's, else none."""
    sample: float = DEFAULT_SAMPLE
    """Which share of the runs is judged while the application runs, 0 to 1."""
    combination: Combination = "apart"
    threshold: float | None = None
    votes: int = 1
    temperature: float | None = 0.0
    seed: int | None = 0
    show: CallDetail = "all"
    explain: bool = False
    timeout: float = 30.0
    concurrency: int = 4
    daily_tokens: int | None = DEFAULT_DAILY_TOKENS
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

    def create_judge(
        self, *, samples: Callable[[Run], bool] | None = None, meter_provider: MeterProvider | None = None, **more: Any
    ) -> Judge:
        """The judge that they say. Raises `GoldspanError` for what cannot be, also where the extra is not there."""
        key = self.api_key
        if key is None and self.url.rstrip("/") == OPENAI_BASE_URL:
            key = os.environ.get(KEY_VARIABLE) or None
            if key is None:
                raise ConfigurationError(
                    f"the judge needs a key for {OPENAI_BASE_URL}: set {KEY_VARIABLE} or GOLDSPAN_JUDGE_API_KEY, or name "
                    "another endpoint with GOLDSPAN_JUDGE_URL"
                )
        asked = ModelEndpoint(
            self.model, base_url=self.url, api_key=key, answer_form=self.answer_form, extra=self.extra
        )
        return Judge(
            asked,
            budget=Budget(self.daily_tokens, self.daily_cost),
            prices=None if self.prices is None else Prices(*self.prices),
            sampler=samples,
            meter_provider=meter_provider,
            **{name: getattr(self, name) for name in _JUDGE_PARAMETERS},
            **more,
        )


_JUDGE_PARAMETERS = (
    *("combination", "threshold", "votes", "temperature", "seed", "show", "explain"),
    *("timeout", "concurrency", "cache", "max_tokens"),
)
"""What is called the same in a `Judge`."""

SETTING_NAMES = tuple(each.name for each in fields(JudgeSettings))
