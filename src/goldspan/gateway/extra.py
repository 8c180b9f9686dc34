"""The extra that the gateway needs, and what is said where it is not installed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from goldspan.errors import MissingExtraError

_PACKAGES = frozenset(
    {"grpc", "httptools", "opentelemetry.exporter.prometheus", "prometheus_client", "pydantic_settings", "starlette"}
    | {"uvicorn", "uvloop", "zstandard"}
)


@contextmanager
def needed() -> Iterator[None]:
    """Around the imports of the extra's packages: raises `MissingExtraError` where one of them is not installed."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name in _PACKAGES:
            raise MissingExtraError("goldspan serve", "server") from None
        raise
