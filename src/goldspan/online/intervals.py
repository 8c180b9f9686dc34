"""How sure a share of passes is: an interval for people, and limits that hold at every moment."""

from __future__ import annotations

import math
from collections.abc import Callable

Z_95 = 1.959963984540054
"""The 0.975 quantile of the normal distribution."""
_HALVINGS = 40
_LOG_PI = math.log(math.pi)


def wilson_interval(passed: int, judged: int, z: float = Z_95) -> tuple[float, float] | None:
    """The Wilson score interval of a pass rate, 95 % by default; `None` where nothing was judged.

    With p = passed/judged and n = judged: (p + z²/2n ± z √(p(1-p)/n + z²/4n²)) / (1 + z²/n). It stays within 0 and 1
    and is sensible where everything passed. E. B. Wilson, "Probable inference, the law of succession, and statistical
    inference", JASA 22 (1927); recommended for small n by Brown, Cai and DasGupta, Statistical Science 16 (2001).
    """
    if not judged:
        return None
    rate, square = passed / judged, z * z
    middle = rate + square / (2 * judged)
    half = z * math.sqrt(rate * (1 - rate) / judged + square / (4 * judged * judged))
    # The formula gives exactly 0 and 1 at the ends; floats only nearly.
    low = 0.0 if passed == 0 else (middle - half) / (1 + square / judged)
    high = 1.0 if passed == judged else (middle + half) / (1 + square / judged)
    return low, high


def lasting_limits(passed: int, judged: int, error: float) -> tuple[float, float]:
    """Limits of a pass rate that may be looked at after every run: with probability 1 - `error` all of them hold.

    The rates p for which the Beta(1/2, 1/2) mixture of likelihoods is less than 1/`error` times the likelihood of p;
    by Ville's inequality the true rate is ever outside with probability `error` at most. H. Robbins, "Statistical
    methods related to the law of the iterated logarithm", Annals of Mathematical Statistics 41 (1970).
    """
    failed = judged - passed
    mixture = math.lgamma(passed + 0.5) + math.lgamma(failed + 0.5) - math.lgamma(judged + 1) - _LOG_PI
    least = mixture + math.log(error)

    def likely(rate: float) -> bool:
        return _times_log(passed, rate) + _times_log(failed, 1 - rate) > least

    rate = passed / judged if judged else 0.5
    low = 0.0 if likely(0.0) else _edge(likely, rate, 0.0)
    high = 1.0 if likely(1.0) else _edge(likely, rate, 1.0)
    return low, high


def _times_log(count: int, rate: float) -> float:
    if not count:
        return 0.0
    return count * math.log(rate) if rate > 0 else -math.inf


def _edge(likely: Callable[[float], bool], inside: float, outside: float) -> float:
    """The last rate outside, between one that is likely and one that is not."""
    for _ in range(_HALVINGS):
        middle = (inside + outside) / 2
        if likely(middle):
            inside = middle
        else:
            outside = middle
    return outside
