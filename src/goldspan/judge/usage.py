"""Counts the requests, tokens and cost of a judge, and defines its budget and prices."""

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
    """The numbers of a judge since it was created."""

    requests: int = 0
    """Attempts, successful or not."""
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float | None = None
    """US dollars; `None` without prices."""
    judged: int = 0
    """Runs with a verdict."""
    cached: int = 0
    """Judged runs of which every vote was in the cache."""
    failed: int = 0
    """Runs without a verdict, because the judge failed."""
    over_budget: int = 0
    """Runs without a verdict, because the budget was spent."""
    not_asked: int = 0
    """Runs that lack what a prompt needs: the offered tools or the request."""
    dropped: int = 0
    """Runs without a verdict, because the queue was full or the process ended."""
    outdated: int = 0
    """Verdicts that were discarded, because the run had changed meanwhile."""


class UsageCounters:
    """Counts in `Usage` and in OpenTelemetry metrics. It is thread-safe."""

    def __init__(self, meter_provider: MeterProvider | None = None, *, has_prices: bool = False) -> None:
        meter = get_meter("goldspan", __version__, meter_provider=meter_provider)
        self.renew()
        renew_after_fork(self)
        self._usage = Usage(cost=0.0 if has_prices else None)
        self._drop_counters = {name: drop_counter(name, meter_provider) for name in _DROP_COUNTER_NAMES}
        self._requests = meter.create_counter(
            semconv.JUDGE_REQUESTS_COUNTER,
            unit="{request}",
            description="Attempts to get an answer from the judge's model, by outcome.",
        )
        self._tokens = meter.create_counter(
            semconv.JUDGE_TOKENS_COUNTER,
            unit="{token}",
            description="Tokens of the judge's prompts and answers, as its endpoint reports them.",
        )
        self._cost = meter.create_counter(
            semconv.JUDGE_COST_COUNTER,
            unit="{USD}",
            description="US dollars that the judge's tokens cost, by the configured prices.",
        )
        self._runs = meter.create_counter(
            semconv.JUDGE_RUNS_COUNTER,
            unit="{run}",
            description="Runs that were selected for the judge, by outcome.",
        )

    def renew(self) -> None:
        """Replace the lock in a forked child. The counts stay."""
        self._lock = threading.Lock()

    @property
    def usage(self) -> Usage:
        """The numbers so far."""
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
        """Count a run with a verdict."""
        self._add(judged=1, cached=int(cached))
        self._runs.add(1, {semconv.OUTCOME_LABEL: "cached" if cached else "judged"})

    def record_not_asked(self) -> None:
        """Count a run that lacks what a prompt needs."""
        self._add(not_asked=1)
        self._runs.add(1, {semconv.OUTCOME_LABEL: "not_asked"})

    def record_failure(self, kind: str) -> None:
        """Count a run without a verdict: the judge failed, or the budget was spent."""
        is_over_budget = kind == OVER_BUDGET_ERROR
        self._add(over_budget=int(is_over_budget), failed=int(not is_over_budget))
        self._runs.add(1, {semconv.OUTCOME_LABEL: "over_budget" if is_over_budget else "failed"})
        if is_over_budget:
            self._drop_counters[semconv.JUDGE_OVER_BUDGET_COUNTER].add(1)
        else:
            self._drop_counters[semconv.JUDGE_FAILED_COUNTER].add(1, {semconv.ERROR_TYPE: kind})

    def record_dropped(self, number: int = 1) -> None:
        """Count runs that are dropped before they are judged."""
        self._add(dropped=number)
        self._drop_counters[semconv.JUDGE_DROPPED_COUNTER].add(number)

    def record_outdated(self) -> None:
        """Count a verdict that was discarded because its run had changed."""
        self._add(outdated=1)
        self._drop_counters[semconv.JUDGE_OUTDATED_COUNTER].add(1)

    def _add(self, **increments: int) -> None:
        with self._lock:
            increased = {name: getattr(self._usage, name) + number for name, number in increments.items()}
            self._usage = replace(self._usage, **increased)


OVER_BUDGET_ERROR = "OverBudget"
_DROP_COUNTER_NAMES = (
    semconv.JUDGE_DROPPED_COUNTER,
    semconv.JUDGE_FAILED_COUNTER,
    semconv.JUDGE_OVER_BUDGET_COUNTER,
    semconv.JUDGE_OUTDATED_COUNTER,
)


_TOKENS_PER_PRICE_UNIT = 1_000_000
_COST_TOLERANCE = 1e-9
"""US dollars by which the rounding of sums may exceed the budget."""


@dataclass(frozen=True, slots=True)
class Prices:
    """US dollars per million tokens. Raises `ConfigurationError` for an invalid price."""

    input: float
    output: float

    def __post_init__(self) -> None:
        for name in ("input", "output"):
            _require_amount(f"the price of {name} tokens", getattr(self, name), minimum=0)

    def cost(self, input_tokens: int, output_tokens: int) -> float:
        """Return the cost in US dollars."""
        return (input_tokens * self.input + output_tokens * self.output) / _TOKENS_PER_PRICE_UNIT


@dataclass(frozen=True, slots=True)
class Budget:
    """The maximum spending within any 24 hours; `None`: no limit.

    The maximum cost of a request is reserved before it is sent. So the budget is never exceeded, and its last part may
    stay unused. Raises `ConfigurationError` for an invalid amount.
    """

    tokens: int | None = None
    """Tokens of prompts and answers together."""
    cost: float | None = None
    """US dollars. Needs prices."""

    def __post_init__(self) -> None:
        for name in ("tokens", "cost"):
            if (amount := getattr(self, name)) is not None:
                _require_amount(f"the judge's budget of {'tokens' if name == 'tokens' else 'money'}", amount, minimum=0)

    def allows(self, spending: Spending) -> bool:
        """Return whether the budget allows this spending."""
        return (self.tokens is None or spending.tokens <= self.tokens) and (
            self.cost is None or spending.cost <= self.cost + _COST_TOLERANCE
        )


def _require_amount(name: str, amount: object, *, minimum: float) -> None:
    if isinstance(amount, bool) or not isinstance(amount, int | float) or not minimum <= amount < float("inf"):
        raise ConfigurationError(f"{name} is a number of at least {minimum}, not {amount!r}")
