"""Turns the import error of an optional package into an error that names the extra to install."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Literal, TypeAlias

from goldspan.errors import MissingExtraError

Extra: TypeAlias = Literal[
    "server",
    "web",
    "judge",
    "integrations",
    "mcp",
    "zstd",
    "parquet",
    "fsspec",
    "spark",
    "pandas",
    "polars",
    "postgres",
    "kafka",
]
"""The extras of the distribution: `pip install 'goldspan[server]'`."""

_EXTRAS: Mapping[Extra, tuple[str, frozenset[str]]] = {
    "server": (
        "goldspan serve",
        frozenset(
            {"grpc", "httptools", "opentelemetry.exporter.prometheus", "prometheus_client", "pydantic_settings"}
            | {"starlette", "uvicorn", "uvloop", "zstandard"}
        ),
    ),
    "web": ("the page", frozenset({"jinja2", "markupsafe", "starlette", "uvicorn"})),
    "integrations": ("an integration", frozenset({"httpx2"})),
    "judge": ("asking a model over HTTP", frozenset({"httpx2"})),
    "zstd": ("reading zstd files", frozenset({"zstandard"})),
    "parquet": ("reading and writing Parquet", frozenset({"pyarrow", "pyarrow.parquet"})),
    "fsspec": ("reading traces by URL", frozenset({"fsspec", "fsspec.core"})),
    "postgres": ("a store in PostgreSQL", frozenset({"psycopg", "psycopg_pool"})),
    "spark": ("scoring with Spark", frozenset({"pandas", "pyarrow", "pyspark"})),
    "pandas": ("a pandas data frame", frozenset({"pandas"})),
    "polars": ("a polars data frame", frozenset({"polars"})),
    "kafka": ("reading Kafka", frozenset({"confluent_kafka"})),
    "mcp": ("the MCP server", frozenset({"mcp", "mcp_types", "anyio", "starlette"})),
}
"""Each extra with the feature that needs it, as the error names it, and the modules that it installs."""


@contextmanager
def require_extra(extra: Extra) -> Iterator[None]:
    """Raise `MissingExtraError` if an import inside the `with` block fails because the extra is not installed.

    The import error of any other module passes unchanged.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        feature, modules = _EXTRAS[extra]
        if error.name in modules:
            raise MissingExtraError(feature, extra) from None
        raise
