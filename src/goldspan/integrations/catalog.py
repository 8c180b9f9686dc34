"""`create_product`: the product of a name such as `phoenix` or `phoenix:https://host`, for settings."""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

from goldspan.errors import ConfigurationError

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider

    from goldspan.integrations.product import Product
    from goldspan.integrations.product_sink import ProductSink


class ProductEntry(NamedTuple):
    """Where the class of a product is, and what configures it."""

    module: str
    """The module in `goldspan.integrations`."""
    class_name: str
    variables: tuple[str, ...]
    """The product's own variables, which `from_environment` reads: the address, then the tokens."""


CATALOG: Mapping[str, ProductEntry] = {
    "phoenix": ProductEntry("phoenix", "Phoenix", ("PHOENIX_COLLECTOR_ENDPOINT", "PHOENIX_API_KEY")),
    "mlflow": ProductEntry(
        "mlflow",
        "MLflow",
        ("MLFLOW_TRACKING_URI", "MLFLOW_TRACKING_TOKEN", "MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD"),
    ),
    "langfuse": ProductEntry(
        "langfuse",
        "Langfuse",
        ("LANGFUSE_BASE_URL", "LANGFUSE_HOST", "LANGFUSE_PUBLIC_KEY", "LANGFUSE_SECRET_KEY"),
    ),
    "langsmith": ProductEntry(
        "langsmith",
        "LangSmith",
        ("LANGSMITH_ENDPOINT", "LANGSMITH_API_KEY", "LANGSMITH_PROJECT", "LANGSMITH_WORKSPACE_ID"),
    ),
    "datadog": ProductEntry(
        "datadog", "Datadog", ("DD_SITE", "DD_API_KEY", "DD_LLMOBS_ML_APP", "DD_SERVICE", "OTEL_SERVICE_NAME")
    ),
    "braintrust": ProductEntry(
        "braintrust", "Braintrust", ("BRAINTRUST_API_URL", "BRAINTRUST_API_KEY", "BRAINTRUST_PARENT")
    ),
    "opik": ProductEntry("opik", "Opik", ("OPIK_URL_OVERRIDE", "OPIK_API_KEY", "OPIK_WORKSPACE", "OPIK_PROJECT_NAME")),
}
"""The products by their names in settings."""


def create_product(name: str, environment: Mapping[str, str] = os.environ) -> Product:
    """Return the product of a name, or of a name and an address: `phoenix`, `phoenix:https://host`.

    The rest of its configuration is in the product's own variables. Raises `ConfigurationError` for an unknown name.
    """
    kind, colon, base_url = name.partition(":")
    entry = CATALOG.get(kind)
    if entry is None:
        raise ConfigurationError(_unknown_product_error(kind))
    if colon and not base_url:
        raise ConfigurationError(f"the product {name!r} lacks an address; write {kind} or {kind}:https://host")
    product_class: type[Product] = getattr(import_module(f"goldspan.integrations.{entry.module}"), entry.class_name)
    return product_class.from_environment(base_url or None, environment)


def create_product_sink(name: str, *, meter_provider: MeterProvider | None = None) -> ProductSink:
    """Return a sink that writes into the product of a name; see `create_product`."""
    from goldspan.integrations.product_sink import ProductSink  # most programs use none

    return ProductSink(create_product(name), meter_provider=meter_provider)


def _unknown_product_error(name: str) -> str:
    from goldspan.goldens.spelling import nearest_word  # loads rapidfuzz, which only mistakes need

    nearest = nearest_word(name, CATALOG)
    hint = f" Did you mean {nearest!r}?" if nearest else ""
    return f"there is no product {name!r}; the products are {', '.join(CATALOG)}.{hint}"
