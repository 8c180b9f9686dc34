"""What asking may cost."""

from __future__ import annotations

from dataclasses import dataclass

from goldspan.errors import ConfigurationError
from goldspan.judge.ledger import Spent

_MILLION = 1_000_000
_ROUNDING = 1e-9
"""Dollars by which sums of many small prices may be off."""


@dataclass(frozen=True, slots=True)
class Prices:
    """US dollars for a million tokens. Raises `ConfigurationError` for what is no price."""

    input: float
    output: float

    def __post_init__(self) -> None:
        for name in ("input", "output"):
            _check(f"the price of {name} tokens", getattr(self, name), least=0)

    def cost(self, input_tokens: int, output_tokens: int) -> float:
        """US dollars for so many tokens."""
        return (input_tokens * self.input + output_tokens * self.output) / _MILLION


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
                _check(f"the judge's budget of {'tokens' if name == 'tokens' else 'money'}", amount, least=0)

    def allows(self, spent: Spent) -> bool:
        """Whether so much may be spent."""
        return (self.tokens is None or spent.tokens <= self.tokens) and (
            self.cost is None or spent.cost <= self.cost + _ROUNDING
        )


def _check(what: str, amount: object, *, least: float) -> None:
    if isinstance(amount, bool) or not isinstance(amount, int | float) or not least <= amount < float("inf"):
        raise ConfigurationError(f"{what} is a number of at least {least}, not {amount!r}")
