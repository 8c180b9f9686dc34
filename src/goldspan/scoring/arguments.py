"""How far the arguments of a call agree with the expected ones.

A key that is absent equals `None`, and `None` equals `{}`. 1 equals 1.0, but `True` is no number; NaN equals NaN; lists
are ordered. Nothing here recurses: arguments may be nested as deeply as they like.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import fsum
from typing import Any

from goldspan.model import ABSENT, Agreement, Difference

_AGREED = Agreement(1.0)
_SIMPLE = frozenset({bool, float, int, str})


def agreement(expected: Mapping[str, Any], called: Any) -> Agreement | None:
    """Compare arguments key by key. `None` where the call's were not captured: then there is nothing to judge.

    Each key of either side has an equal share; a dictionary on both sides divides its share among its own keys.
    Differences name the key as a dotted path, `payment.amount`; the key is empty where the arguments are no dictionary.
    """
    if called is None:
        return None
    if not isinstance(called, dict):
        return Agreement(0.0, (Difference("", expected, called),))
    shares: list[float] = []
    differences: list[Difference] = []
    waiting: list[tuple[str, Mapping[str, Any], Mapping[str, Any], float]] = [("", expected, called, 1.0)]
    while waiting:
        path, wanted, given, share = waiting.pop()
        keys = {**wanted, **given}
        for key in keys:
            one, other = wanted.get(key, ABSENT), given.get(key, ABSENT)
            if isinstance(one, dict) and isinstance(other, dict) and (one or other):
                waiting.append((f"{path}{key}.", one, other, share / len(keys)))
            elif equal(one, other):
                shares.append(share / len(keys))
            else:
                differences.append(Difference(f"{path}{key}", one, other))
    return Agreement(min(fsum(shares), 1.0), tuple(differences)) if differences else _AGREED


def equal(expected: Any, called: Any) -> bool:
    """Whether a called value is the expected one. The one place where the two meet."""
    if type(expected) is type(called) and type(expected) in _SIMPLE:
        return _same_leaf(expected, called)
    waiting = [(expected, called)]
    while waiting:
        wanted, given = waiting.pop()
        if isinstance(wanted, dict) and isinstance(given, dict):
            waiting.extend((wanted.get(key), given.get(key)) for key in wanted.keys() | given.keys())
        elif isinstance(wanted, list | tuple) and isinstance(given, list | tuple):
            if len(wanted) != len(given):
                return False
            waiting.extend(zip(wanted, given, strict=True))
        elif _is_nothing(wanted) or _is_nothing(given):
            if not (_is_nothing(wanted) and _is_nothing(given)):
                return False
        elif isinstance(wanted, bool) is not isinstance(given, bool) or not _same_leaf(wanted, given):
            return False
    return True


def _same_leaf(wanted: Any, given: Any) -> bool:
    try:
        return bool(wanted == given) or bool(wanted != wanted and given != given)  # only NaN differs from itself
    except Exception:  # noqa: BLE001 - values of a user's own types may compare as they like
        return False


def _is_nothing(value: Any) -> bool:
    return value is None or value is ABSENT or (isinstance(value, dict) and not value)
