"""A meter provider of the SDK whose metrics tests read."""

from __future__ import annotations

from typing import Any

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader


class Meter:
    """A meter provider with an in-memory reader."""

    def __init__(self, **options: Any) -> None:
        self.reader = InMemoryMetricReader()
        self.provider = MeterProvider([self.reader], **options)

    def metrics(self) -> dict[str, Any]:
        """Return all recorded metrics by name."""
        data = self.reader.get_metrics_data()
        scopes = [scope for resource in data.resource_metrics for scope in resource.scope_metrics] if data else []
        return {metric.name: metric for scope in scopes for metric in scope.metrics}

    def points(self, name: str, *labels: str) -> dict[tuple[Any, ...], Any]:
        """Return the points of a metric, by the values of these labels."""
        metric = self.metrics().get(name)
        found = metric.data.data_points if metric else ()
        return {tuple((point.attributes or {}).get(label) for label in labels): point for point in found}

    def counts(self, name: str, *labels: str) -> dict[tuple[Any, ...], Any]:
        """Return the values of a counter, by the values of these labels."""
        return {values: point.value for values, point in self.points(name, *labels).items()}
