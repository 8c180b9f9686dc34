"""`goldspan.instrument()`: everything that live scoring needs, in one line."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from opentelemetry import _logs, trace
from opentelemetry import metrics as api_metrics
from opentelemetry.sdk.trace import SpanProcessor, SynchronousMultiSpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter

from goldspan.capture import providers
from goldspan.capture.processor import ScoringProcessor, at_work
from goldspan.capture.settings import from_environment
from goldspan.capture.sources import GoldensLike
from goldspan.errors import ConfigurationError
from goldspan.scoring.metrics import MetricLike

_log = logging.getLogger("goldspan")


class _Part(Protocol):
    def shutdown(self) -> object: ...

    def force_flush(self) -> object: ...


@dataclass(frozen=True, slots=True)
class Instrumentation:
    """What `instrument()` started. Programs that simply exit need not keep it: the SDK flushes at exit."""

    _parts: tuple[_Part, ...] = ()

    def force_flush(self) -> None:
        """Send what has been recorded so far."""
        for part in self._parts:
            part.force_flush()

    def shutdown(self) -> None:
        """Send what has been recorded so far, and stop."""
        for part in self._parts:
            part.shutdown()


def instrument(
    goldens: GoldensLike = None,
    *,
    metrics: Iterable[MetricLike] | None = None,
    thresholds: Mapping[str, float] | None = None,
    then: SpanExporter | SpanProcessor | None = None,
) -> Instrumentation:
    """Score every run of this process from now on.

    Where the program has no tracer provider, one is made from the `OTEL_*` variables, with a logger and a meter
    provider if these are missing too; `then` takes the place of the exporters that `OTEL_TRACES_EXPORTER` names. A
    provider that is there already (Logfire, Langfuse, auto-instrumentation) is added to and never replaced. Where a
    `ScoringProcessor` is at work in this process, nothing is added. The `GOLDSPAN_*` variables stand in for what is
    not given here: see `goldspan.capture.settings`. The log says where results go, and warns where they would be lost.

    Raises `GoldspanError` when something is set up wrongly.
    """
    if at_work():
        _log.info("goldspan: a ScoringProcessor is at work already; instrument() adds no second one")
        return Instrumentation()
    settings = from_environment()
    provider = trace.get_tracer_provider()
    beside = not isinstance(provider, trace.ProxyTracerProvider)
    add = getattr(provider, "add_span_processor", None)
    if beside and add is None:
        raise ConfigurationError(f"the tracer provider {_type(provider)} takes no span processors")
    processor = ScoringProcessor(
        settings.goldens if goldens is None else goldens,
        then=then if beside or then is not None else _exporting(),
        metrics=settings.metrics if metrics is None else metrics,
        thresholds=settings.thresholds if thresholds is None else thresholds,
        golden_id_attributes=settings.golden_id_attributes,
        max_traces=settings.max_traces,
        max_spans=settings.max_spans,
    )
    if add is not None:
        add(processor)
        parts: tuple[_Part, ...] = (processor,)
    else:
        parts = _make_providers(processor)
    _say_where_results_go(provider if beside else None, processor)
    return Instrumentation(parts)


def _exporting() -> SpanProcessor | None:
    """What exports the spans of a provider of our own."""
    batches = [BatchSpanProcessor(exporter) for exporter in providers.span_exporters()]
    if len(batches) < 2:
        return batches[0] if batches else None
    together = SynchronousMultiSpanProcessor()  # type: ignore[no-untyped-call]
    for batch in batches:
        together.add_span_processor(batch)
    return together


def _make_providers(processor: ScoringProcessor) -> tuple[_Part, ...]:
    """Set the providers that are missing; the tracer provider is."""
    made: list[_Part] = []
    if not _receives(_logs.get_logger_provider()) and (logger_provider := providers.logger_provider()):
        _logs.set_logger_provider(logger_provider)
        made.append(logger_provider)
    if not _receives(api_metrics.get_meter_provider()) and (meter_provider := providers.meter_provider()):
        api_metrics.set_meter_provider(meter_provider)
        made.append(meter_provider)
    tracer_provider = TracerProvider()
    tracer_provider.add_span_processor(processor)
    trace.set_tracer_provider(tracer_provider)
    return (tracer_provider, *made)


def _say_where_results_go(beside: object, processor: ScoringProcessor) -> None:
    sinks = {
        "events": _receives(_logs.get_logger_provider()),
        "metrics": _receives(api_metrics.get_meter_provider()),
    }
    live = ["attributes of runs' spans" if processor.exports else "attributes of @goldspan.trace spans"]
    live += [sink for sink, receives in sinks.items() if receives]
    where = f"beside {_type(beside)}" if beside else "with providers made from the OTEL_* variables"
    _log.info("goldspan scores %s; goldens: %d; results go to %s", where, len(processor.goldens), ", ".join(live))
    for sink, receives in sinks.items():
        if not receives:
            _log.warning("goldspan: nothing receives %s: %s", sink, _REMEDIES[sink])


_REMEDIES = {
    "events": "this program has no OpenTelemetry logger provider, or OTEL_LOGS_EXPORTER is none",
    "metrics": "this program has no OpenTelemetry meter provider, or OTEL_METRICS_EXPORTER is none",
}


def _receives(provider: object) -> bool:
    """Whether a provider is more than the placeholder of the API, which throws away what it gets."""
    return not type(provider).__module__.startswith(("opentelemetry._logs", "opentelemetry.metrics"))


def _type(value: object) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"
