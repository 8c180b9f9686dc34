"""Laws that hold for many values: how many examples are tried, and which of a list of cases broke one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from hypothesis import settings


def examples(share: float) -> settings:
    """A share of the examples that the profile gives each law; the profiles are in `conftest.py`."""
    return settings(max_examples=max(5, round(share * settings.default.max_examples)))


@contextmanager
def case(*values: object) -> Iterator[None]:
    """Name these values in what goes wrong with them: hundreds of cases cost less in one test than in one test each."""
    try:
        yield
    except Exception as error:
        raise AssertionError(f"in the case {', '.join(map(repr, values))}: {error!r}") from error
