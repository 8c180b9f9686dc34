"""The LLM judge (`Judge`), and `JudgeSettings`, from which variables and commands create one."""

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
"""A function that answers a prompt: with an `Assessment`, a `ModelReply`, a mapping with the fields of an assessment,
or JSON text of one."""


@runtime_checkable
class ModelClient(Protocol):
    """A model that is reached over connections which stay open for many prompts."""

    model: str

    @property
    def identity(self) -> str:
        """The part of the cache key that identifies the model and its endpoint."""
        ...

    def connect(self) -> AbstractAsyncContextManager[AskFunction]:
        """Open the connections; yields a function that sends a prompt while the context is open."""
        ...


class Judge:
    """Asks a model whether the called tools of a run were the best choice: the metric `tool_selection`, 0 to 1.

    A judge never fails the program: after construction, every failure is the `error` of a score.

    Args:
        ask: A `ModelEndpoint`, or an asynchronous function of a `JudgePrompt`.
        model: The name under which answers are recorded and cached. Default: the endpoint's model, or the name of the
            function.
        available_tools: The tools that were offered, for runs that do not record them: names or definitions.
        show: What the prompt contains of each call: `"names"`, also `"arguments"`, or `"all"` with results.
        redact: Returns the evaluation that may be sent, or `None` to send nothing.
        temperature: Sent with each prompt and recorded. `None`: not sent.
        seed: Sent with each prompt and recorded; further votes use the next numbers. `None`: not sent.
        votes: Number of votes for each run. The median counts; more than half of the votes must be answered.
        max_tokens: Maximum length of an answer.
        threshold: A run with a lower `tool_selection` fails, unless its golden states a threshold for the metric.
            `None`: the score does not affect the verdict.
        combination: `"apart"` keeps a separate score. `"min"` also lowers the score of `combined_with` to the lower of
            both.
        combined_with: The metric that `"min"` lowers.
        explain: Whether the reason of the score contains the model's words, which may quote any part of the run.
            Otherwise only `score.judgement.words` has them.
        timeout: Seconds for all votes and attempts of a run together.
        retries: Further attempts after the first one of a vote.
        retry_after_budget: Seconds that a run waits in addition to `timeout` when an endpoint sends `Retry-After`.
        concurrency: Runs that are judged at the same time.
        budget: Maximum of tokens and US dollars in 24 hours. Default: no limit.
        prices: US dollars per million tokens. A budget in dollars needs them.
        cache: SQLite file for answers and for what was spent. `None`: both are kept in memory while the judge exists.
        sampler: Returns whether a run is judged in a running application, such as `Sampling(0.1).keeps`. Default: all
            runs.
        max_queue: Runs that may wait in a running application; further ones are dropped and counted.
        drain_timeout: Seconds that the shutdown of a running application waits for verdicts.
        meter_provider: Receives the counters of the judge. Default: the global provider.

    Raises:
        ConfigurationError: An argument is invalid, or the cache file cannot be used.
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
                f"a judge is a ModelEndpoint or an async function of a prompt, not {short_repr(ask)}"
            )
        self.ask = ask
        default_name = ask.model if isinstance(ask, ModelClient) else getattr(ask, "__name__", type(ask).__name__)
        self.model: str = model or default_name
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
            raise ConfigurationError("a budget in dollars needs prices per million tokens")
        self.sampler = sampler
        self.max_queue = _require_integer("max_queue", max_queue, 1)
        self.drain_timeout = _require_number("drain_timeout", drain_timeout, 0)
        self.cache = JudgeCache(cache)
        self.cache.check()
        self.counters = UsageCounters(meter_provider, has_prices=prices is not None)

    @property
    def usage(self) -> Usage:
        """The numbers of requests, tokens and runs so far, and the cost."""
        return self.counters.usage

    @property
    def identity(self) -> str:
        """The part of the cache key that identifies what answers."""
        return self.ask.identity if isinstance(self.ask, ModelClient) else _function_name(self.ask)

    def should_judge(self, run: Run) -> bool:
        """Return whether a run is judged in a running application."""
        return self.sampler is None or self.sampler(run)

    def renew(self) -> None:
        """Reset the connections in a forked child."""
        self.cache.renew()

    def close(self) -> None:
        """Close the cache file."""
        self.cache.close()


def _function_name(ask: AskFunction) -> str:
    """Return the qualified name of the function."""
    kind = type(ask)
    return f"{getattr(ask, '__module__', kind.__module__)}:{getattr(ask, '__qualname__', kind.__qualname__)}"


def _tool_definitions(tools: Iterable[Any]) -> tuple[ToolDefinition, ...]:
    if isinstance(tools, str | bytes) or not isinstance(tools, Iterable):
        raise ConfigurationError(f"available_tools is a list of names or definitions, not {short_repr(tools)}")
    try:
        return tuple(map(parse_tool_definition, tools))
    except GoldspanError as error:
        raise ConfigurationError(str(error)) from None


def _require_choice(name: str, value: Any, choices: tuple[Any, ...]) -> Any:
    if value not in choices:
        raise ConfigurationError(f"{name} is {join_words(choices, last='or')}, not {short_repr(value)}")
    return value


def _require_integer(name: str, value: Any, minimum: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < minimum:
        raise ConfigurationError(f"{name} is a whole number of at least {minimum}, not {short_repr(value)}")
    return value


def _require_number(name: str, value: Any, minimum: float, maximum: float = sys.float_info.max) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not minimum <= value <= maximum:
        limits = f"of at least {minimum:g}" if maximum == sys.float_info.max else f"from {minimum:g} to {maximum:g}"
        raise ConfigurationError(f"{name} is a number {limits}, not {short_repr(value)}")
    return float(value)


DEFAULT_SAMPLE = 0.1
DEFAULT_DAILY_TOKENS = 1_000_000

KEY_VARIABLE = "OPENAI_API_KEY"
"""The variable from which OpenAI's clients read their key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeSettings:
    """The settings of a judge that asks an endpoint. The `repr` does not contain the key."""

    model: str
    """The name of the model."""
    url: str = OPENAI_BASE_URL
    """Base URL of an OpenAI-compatible endpoint, to which `/chat/completions` is appended."""
    api_key: str | None = field(default=None, repr=False)
    """The key of the endpoint. `None`: the variable OPENAI_API_KEY for OpenAI's endpoint, else no key."""
    sample: float = DEFAULT_SAMPLE
    """The share of runs that is judged in a running application, 0 to 1."""
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
    """Maximum of tokens in 24 hours; `None`: no limit."""
    daily_cost: float | None = None
    """Maximum of US dollars in 24 hours; `None`: no limit."""
    prices: tuple[float, float] | None = None
    """US dollars per million input tokens, and per million output tokens."""
    cache: str | os.PathLike[str] | None = None
    answer_form: AnswerForm = "json_schema"
    max_tokens: int = 1000
    extra: Mapping[str, Any] | None = None
    """Further members of each request body."""

    def create_judge(
        self,
        *,
        samples: Callable[[Run], bool] | None = None,
        meter_provider: MeterProvider | None = None,
        **parameters: Any,
    ) -> Judge:
        """Create the judge. Raises `GoldspanError` for invalid settings, or without the extra `judge`."""
        key = self.api_key
        if key is None and self.url.rstrip("/") == OPENAI_BASE_URL:
            key = os.environ.get(KEY_VARIABLE) or None
            if key is None:
                raise ConfigurationError(
                    f"the judge needs a key for {OPENAI_BASE_URL}: set {KEY_VARIABLE} or GOLDSPAN_JUDGE_API_KEY, or "
                    "name another endpoint with GOLDSPAN_JUDGE_URL"
                )
        endpoint = ModelEndpoint(
            self.model, base_url=self.url, api_key=key, answer_form=self.answer_form, extra=self.extra
        )
        return Judge(
            endpoint,
            budget=Budget(self.daily_tokens, self.daily_cost),
            prices=None if self.prices is None else Prices(*self.prices),
            sampler=samples,
            meter_provider=meter_provider,
            **{name: getattr(self, name) for name in _JUDGE_PARAMETERS},
            **parameters,
        )


_JUDGE_PARAMETERS = (
    *("combination", "threshold", "votes", "temperature", "seed", "show", "explain"),
    *("timeout", "concurrency", "cache", "max_tokens"),
)
"""Settings that have the same name as a parameter of `Judge`."""

SETTING_NAMES = tuple(setting.name for setting in fields(JudgeSettings))
