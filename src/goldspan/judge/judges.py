"""A judge: whom to ask, how, how much it may cost, and what becomes of the answer."""

from __future__ import annotations

import os
import sys
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol, TypeAlias, runtime_checkable

from opentelemetry.metrics import MeterProvider

from goldspan.cases.dialects import definition_of
from goldspan.errors import ConfigurationError, GoldspanError
from goldspan.goldens.words import listed, shown
from goldspan.judge.budget import Budget, Prices
from goldspan.judge.counting import Counting, Usage
from goldspan.judge.ledger import Ledger
from goldspan.judge.questions import SHOWN, Question, Shown
from goldspan.judge.selection import COMBINATIONS, Combination
from goldspan.model import Run, ToolDefinition
from goldspan.sinks import Redact

Ask: TypeAlias = "Callable[[Question], Awaitable[Any]]"
"""Answers with an `Opinion`, an `Answer`, a mapping with the fields of an opinion, or JSON text of one."""


@runtime_checkable
class Asker(Protocol):
    """What is asked over connections that are opened once for many questions."""

    model: str

    @property
    def identity(self) -> str:
        """What tells its answers from those of others, in a cache."""
        ...

    def opened(self) -> AbstractAsyncContextManager[Ask]:
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
        ask: Asker | Ask,
        *,
        model: str | None = None,
        available_tools: Iterable[Any] | None = None,
        show: Shown = "all",
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
        patience: float = 60.0,
        concurrency: int = 4,
        budget: Budget | None = None,
        prices: Prices | None = None,
        cache: str | os.PathLike[str] | None = None,
        samples: Callable[[Run], bool] | None = None,
        max_queue: int = 1000,
        drain: float = 5.0,
        meter_provider: MeterProvider | None = None,
    ) -> None:
        if isinstance(ask, type) or not (isinstance(ask, Asker) or callable(ask)):
            raise ConfigurationError(f"a judge is a ModelEndpoint or an async function of a question, not {shown(ask)}")
        self.ask = ask
        own_name = ask.model if isinstance(ask, Asker) else getattr(ask, "__name__", type(ask).__name__)
        self.model: str = model or own_name
        self.available_tools = None if available_tools is None else _definitions(available_tools)
        self.show = _one_of("show", show, SHOWN)
        self.redact = redact
        self.temperature = None if temperature is None else _number("temperature", temperature, 0)
        self.seed = None if seed is None else _whole("seed", seed, 0)
        self.votes = _whole("votes", votes, 1)
        self.max_tokens = _whole("max_tokens", max_tokens, 1)
        self.threshold = None if threshold is None else _number("threshold", threshold, 0, 1)
        self.combination = _one_of("combination", combination, COMBINATIONS)
        self.combined_with = combined_with
        self.explain = explain
        self.timeout = _number("timeout", timeout, 0.001)
        self.retries = _whole("retries", retries, 0)
        self.patience = _number("patience", patience, 0)
        self.concurrency = _whole("concurrency", concurrency, 1)
        self.budget = budget or Budget()
        self.prices = prices
        if self.budget.cost is not None and prices is None:
            raise ConfigurationError("a budget of money needs prices: what a million tokens cost")
        self.samples = samples
        self.max_queue = _whole("max_queue", max_queue, 1)
        self.drain = _number("drain", drain, 0)
        self.ledger = Ledger(cache)
        self.ledger.check()
        self.counting = Counting(meter_provider, priced=prices is not None)

    @property
    def usage(self) -> Usage:
        """What it has done so far, and what that cost."""
        return self.counting.usage

    @property
    def identity(self) -> str:
        """What tells its answers from those of others, in a cache."""
        return self.ask.identity if isinstance(self.ask, Asker) else _named(self.ask)

    def wants(self, run: Run) -> bool:
        """Whether a run is to be judged while the application runs."""
        return self.samples is None or self.samples(run)

    def renew(self) -> None:
        """Begin anew in a forked child."""
        self.ledger.renew()

    def close(self) -> None:
        """Let go of the file of answers."""
        self.ledger.close()


def _named(ask: Ask) -> str:
    """Which function it is, among those of the program."""
    kind = type(ask)
    return f"{getattr(ask, '__module__', kind.__module__)}:{getattr(ask, '__qualname__', kind.__qualname__)}"


def _definitions(tools: Iterable[Any]) -> tuple[ToolDefinition, ...]:
    if isinstance(tools, str | bytes) or not isinstance(tools, Iterable):
        raise ConfigurationError(f"available_tools is a list of names or definitions, not {shown(tools)}")
    try:
        return tuple(map(definition_of, tools))
    except GoldspanError as error:
        raise ConfigurationError(str(error)) from None


def _one_of(name: str, given: Any, known: tuple[Any, ...]) -> Any:
    if given not in known:
        raise ConfigurationError(f"{name} is {listed(known, last='or')}, not {shown(given)}")
    return given


def _whole(name: str, given: Any, least: int) -> int:
    if isinstance(given, bool) or not isinstance(given, int) or given < least:
        raise ConfigurationError(f"{name} is a whole number of at least {least}, not {shown(given)}")
    return given


def _number(name: str, given: Any, least: float, most: float = sys.float_info.max) -> float:
    if isinstance(given, bool) or not isinstance(given, int | float) or not least <= given <= most:
        limits = f"of at least {least:g}" if most == sys.float_info.max else f"from {least:g} to {most:g}"
        raise ConfigurationError(f"{name} is a number {limits}, not {shown(given)}")
    return float(given)
