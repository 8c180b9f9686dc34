"""Counts the requests, tokens and cost of a judge; its budget and prices."""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace

from opentelemetry.metrics import MeterProvider, get_meter

from goldspan import semconv
from goldspan._version import __version__
from goldspan.errors import ConfigurationError
from goldspan.judge.cache import Spending
from goldspan.sinks.drop_counters import drop_counter
from goldspan.sinks.fork_safety import renew_after_fork


@dataclass(frozen=True, slots=True)
class Usage:
    """What a judge has done since it was made."""

    requests: int = 0
    """Attempts to get an answer, successful or not."""
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float | None = None
    """US dollars; `None`: no prices were given."""
    judged: int = 0
    """Runs with a verdict."""
    cached: int = 0
    """Of those, the runs of which every vote was known from before."""
    failed: int = 0
    """Runs without a verdict, because the judge failed."""
    over_budget: int = 0
    """Runs without one, because the budget was spent."""
    not_asked: int = 0
    """Runs of which too little is known to ask: no offered tools, or no request."""
    dropped: int = 0
    """Runs without one, because too many waited, or the process ended."""
    outdated: int = 0
    """Verdicts that nobody got, because the run had changed meanwhile."""


class UsageCounters:
    """Counts; any thread may."""

    def __init__(self, meter_provider: MeterProvider | None = None, *, has_prices: bool = False) -> None:
        meter = get_meter("goldspan", __version__, meter_provider=meter_provider)
        self.renew()
        renew_after_fork(self)
        self._usage = Usage(cost=0.0 if has_prices else None)
        self._losses = {name: drop_counter(name, meter_provider) for name in _DROP_COUNTER_NAMES}
        self._requests = meter.create_counter(
            semconv.JUDGE_REQUESTS_COUNTER,
            unit="{request}",
            description="Questions that were put to the judge's model, every attempt, by what came of them.",
        )
        self._tokens = meter.create_counter(
            semconv.JUDGE_TOKENS_COUNTER,
            unit="{token}",
            description="Tokens that the judge's questions and answers took, as its endpoint says.",
        )
        self._cost = meter.create_counter(
            semconv.JUDGE_COST_COUNTER,
            unit="{USD}",
            description="US dollars that the judge's tokens cost, by the prices that were given.",
        )
        self._runs = meter.create_counter(
            semconv.JUDGE_RUNS_COUNTER,
            unit="{run}",
            description="Runs that the judge was to judge, by what came of it.",
        )

    def renew(self) -> None:
        """In a forked child: a lock that nobody holds. What was counted stays."""
        self._lock = threading.Lock()

    @property
    def usage(self) -> Usage:
        """What there was so far."""
        return self._usage

    def record_request(self, outcome: str, input_tokens: int, output_tokens: int, cost: float | None) -> None:
        """Count an attempt."""
        with self._lock:
            usage = self._usage
            self._usage = replace(
                usage,
                requests=usage.requests + 1,
                input_tokens=usage.input_tokens + input_tokens,
                output_tokens=usage.output_tokens + output_tokens,
                cost=None if usage.cost is None else usage.cost + (cost or 0.0),
            )
        self._requests.add(1, {semconv.OUTCOME_LABEL: outcome})
        for direction, number in (("input", input_tokens), ("output", output_tokens)):
            if number:
                self._tokens.add(number, {semconv.TOKEN_TYPE_LABEL: direction})
        if cost:
            self._cost.add(cost)

    def record_judged(self, *, cached: bool) -> None:
        """Count a run that has a verdict now."""
        self._add(judged=1, cached=int(cached))
        self._runs.add(1, {semconv.OUTCOME_LABEL: "cached" if cached else "judged"})

    def record_not_asked(self) -> None:
        """Count a run of which too little is known."""
        self._add(not_asked=1)
        self._runs.add(1, {semconv.OUTCOME_LABEL: "not_asked"})

    def record_failure(self, kind: str) -> None:
        """Count a run that the judge failed at, or had no budget for."""
        over = kind == OVER_BUDGET_ERROR
        self._add(over_budget=int(over), failed=int(not over))
        self._runs.add(1, {semconv.OUTCOME_LABEL: "over_budget" if over else "failed"})
        if over:
            self._losses[semconv.JUDGE_OVER_BUDGET_COUNTER].add(1)
        else:
            self._losses[semconv.JUDGE_FAILED_COUNTER].add(1, {semconv.ERROR_TYPE: kind})

    def record_dropped(self, number: int = 1) -> None:
        """Count runs that are not judged."""
        self._add(dropped=number)
        self._losses[semconv.JUDGE_DROPPED_COUNTER].add(number)

    def record_outdated(self) -> None:
        """Count a verdict about a run that has changed since."""
        self._add(outdated=1)
        self._losses[semconv.JUDGE_OUTDATED_COUNTER].add(1)

    def _add(self, **more: int) -> None:
        with self._lock:
            grown = {name: getattr(self._usage, name) + number for name, number in more.items()}
            self._usage = replace(self._usage, **grown)


OVER_BUDGET_ERROR = "OverBudget"
_DROP_COUNTER_NAMES = (
    semconv.JUDGE_DROPPED_COUNTER,
    semconv.JUDGE_FAILED_COUNTER,
    semconv.JUDGE_OVER_BUDGET_COUNTER,
    semconv.JUDGE_OUTDATED_COUNTER,
)


_TOKENS_PER_PRICE_UNIT = 1_000_000
_COST_TOLERANCE = 1e-9
"""Dollars by which sums of many small prices may be off."""


@dataclass(frozen=True, slots=True)
class Prices:
    """US dollars for a million tokens. Raises `ConfigurationError` for what is no price."""

    input: float
    output: float

    def __post_init__(self) -> None:
        for name in ("input", "output"):
            _require_amount(f"the price of {name} tokens", getattr(self, name), minimum=0)

    def cost(self, input_tokens: int, output_tokens: int) -> float:
        """US dollars for so many tokens."""
        return (input_tokens * self.input + output_tokens * self.output) / _TOKENS_PER_PRICE_UNIT


@dataclass(frozen=True, slots=True)
class Budget:
    """What may be spent within 24 hours, whenever they begin; `None`: as much as it takes.

    Before a question is asked, what it may cost at most is set aside: so the budget is never passed, and the last part
    of it may stay unused. Raises `ConfigurationError` for what is no amount.
    """

    tokens: int | None = None
    """Of questions and answers together."""
    cost: float | None = None
    """US dollars. Needs prices."""

    def __post_init__(self) -> None:
        for name in ("tokens", "cost"):
            if (amount := getattr(self, name)) is not None:
                _require_amount(f"the judge's budget of {'tokens' if name == 'tokens' else 'money'}", amount, minimum=0)

    def allows(self, spending: Spending) -> bool:
        """Whether so much may be spent."""
        return (self.tokens is None or spending.tokens <= self.tokens) and (
            self.cost is None or spending.cost <= self.cost + _COST_TOLERANCE
        )


def _require_amount(name: str, amount: object, *, minimum: float) -> None:
    if isinstance(amount, bool) or not isinstance(amount, int | float) or not minimum <= amount < float("inf"):
        raise ConfigurationError(f"{name} is a number of at least {minimum}, not {amount!r}")
