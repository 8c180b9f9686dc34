"""Helpers that read exported spans."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

Install = Callable[..., TracerProvider]


class Exported:
    """The spans that reached the exporter."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()

    @property
    def spans(self) -> list[ReadableSpan]:
        return list(self.exporter.get_finished_spans())

    @property
    def names(self) -> list[str]:
        return [span.name for span in self.spans]

    def one(self, name: str) -> ReadableSpan:
        (span,) = [span for span in self.spans if span.name == name]
        return span

    def attributes(self, name: str) -> Mapping[str, Any]:
        return self.one(name).attributes or {}

    def processor(self) -> SimpleSpanProcessor:
        return SimpleSpanProcessor(self.exporter)
