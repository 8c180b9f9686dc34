"""The extra that the page needs, and what is said where it is not installed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from goldspan.errors import MissingExtraError

_PACKAGES = frozenset({"jinja2", "markupsafe", "starlette", "uvicorn"})


@contextmanager
def needed() -> Iterator[None]:
    """Around the imports of the extra's packages: raises `MissingExtraError` where one of them is not installed."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name in _PACKAGES:
            raise MissingExtraError("the page", "web") from None
        raise
