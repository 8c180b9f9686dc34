"""The extra that asking a model over HTTP needs, and what is said where it is not installed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from goldspan.errors import MissingExtraError


@contextmanager
def needed() -> Iterator[None]:
    """Around the import of the extra's package: raises `MissingExtraError` where it is not installed."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name == "httpx2":
            raise MissingExtraError("asking a model over HTTP", "judge") from None
        raise
