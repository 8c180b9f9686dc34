"""The extra that asking a model over HTTP needs, and what is said where it is not installed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from goldspan.errors import MissingExtraError

_SERVER_PACKAGES = frozenset(
    {"grpc", "httptools", "opentelemetry.exporter.prometheus", "prometheus_client", "pydantic_settings", "starlette"}
    | {"uvicorn", "uvloop", "zstandard"}
)


@contextmanager
def require_server_extra() -> Iterator[None]:
    """Around the imports of the extra's packages: raises `MissingExtraError` where one of them is not installed."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name in _SERVER_PACKAGES:
            raise MissingExtraError("goldspan serve", "server") from None
        raise


_WEB_PACKAGES = frozenset({"jinja2", "markupsafe", "starlette", "uvicorn"})


@contextmanager
def require_web_extra() -> Iterator[None]:
    """Around the imports of the extra's packages: raises `MissingExtraError` where one of them is not installed."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name in _WEB_PACKAGES:
            raise MissingExtraError("the page", "web") from None
        raise


@contextmanager
def require_judge_extra() -> Iterator[None]:
    """Around the import of the extra's package: raises `MissingExtraError` where it is not installed."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name == "httpx2":
            raise MissingExtraError("asking a model over HTTP", "judge") from None
        raise
