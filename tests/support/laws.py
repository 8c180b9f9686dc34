"""How many examples a law gets whose examples take longer than those of others."""

from __future__ import annotations

from hypothesis import settings


def examples(share: float) -> settings:
    """A share of the examples that the profile gives each law; the profiles are in `conftest.py`."""
    return settings(max_examples=max(5, round(share * settings.default.max_examples)))
