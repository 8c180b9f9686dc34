"""`goldspan.instrument()`: everything that live scoring needs, in one line."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar, cast

from opentelemetry import _logs, trace
from opentelemetry import metrics as api_metrics
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SpanExporter

from goldspan._locks import ModuleLock
from goldspan.capture import providers
from goldspan.capture.options import Options
from goldspan.capture.outlets import sinks_from
from goldspan.capture.processor import ScoringProcessor, at_work
from goldspan.capture.settings import Settings, from_environment, mistyped, variable_of
from goldspan.capture.sources import RELOAD_S, GoldensLike, Lookup, goldens_from
from goldspan.errors import ConfigurationError, GoldspanError
from goldspan.online import Limits
from goldspan.online.figure_sink import FigureSink
from goldspan.online.sampling import ExportSampling, Sampling, sampling_from_text
from goldspan.scoring.registry import resolve
from goldspan.sinks import EventSink, MetricSink

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from typing_extensions import Unpack

    from goldspan.judge.judges import Judge

P = ParamSpec("P")
T = TypeVar("T")

_log = logging.getLogger("goldspan")

starting = ModuleLock()
"""Held from the look at what is at work until something is: threads that start goldspan at once start it once."""


class _Part(Protocol):
    def shutdown(self) -> object: ...

    def force_flush(self) -> object: ...


@dataclass(frozen=True, slots=True)
class Instrumentation:
    """What `instrument()` started. Programs that simply exit need not keep it: the SDK flushes at exit."""

    _processor: ScoringProcessor | None = None
    _providers: tuple[_Part, ...] = ()

    @property
    def added(self) -> bool:
        """Whether anything was: not where something was at work already, or where the environment says no."""
        return self._processor is not None

    def force_flush(self) -> None:
        """Send what has been recorded so far."""
        for part in self._parts:  # in this order: scoring makes events and metrics
            part.force_flush()

    def shutdown(self) -> None:
        """Send what has been recorded so far, and stop."""
        for part in self._parts:
            part.shutdown()

    @property
    def _parts(self) -> tuple[_Part, ...]:
        return self._providers if self._processor is None else (self._processor, *self._providers)


def instrument(
    goldens: GoldensLike = None,
    *,
    then: SpanExporter | SpanProcessor | None = None,
    **options: Unpack[Options],
) -> Instrumentation:
    """Score every run of this process from now on.

    Where the program has no tracer provider, one is made from the `OTEL_*` variables, with a logger and a meter
    provider if these are missing too; `then` takes the place of the exporters that `OTEL_TRACES_EXPORTER` names. A
    provider that is there already (Logfire, Langfuse, auto-instrumentation) is added to and never replaced. Where a
    `ScoringProcessor` is at work in this process, nothing is added; nor is it where `GOLDSPAN_DISABLED` or
    `OTEL_SDK_DISABLED` says so. The log says where results go, and warns where they would be lost.

    The `options` are those of `ScoringProcessor`. The `GOLDSPAN_*` variables stand in for what is not given here: see
    `goldspan.capture.settings`.

    Raises `GoldspanError` when something is set up wrongly.
    """
    with starting:
        settings = from_environment()
        if why := reason_to_stay_off(settings):
            _log.info("goldspan: %s; instrument() does nothing", why)
            return Instrumentation()
        provider = trace.get_tracer_provider()
        beside = not isinstance(provider, trace.ProxyTracerProvider)
        add = getattr(provider, "add_span_processor", None)
        if beside and add is None:
            raise ConfigurationError(f"the tracer provider {_type(provider)} takes no span processors")
        if then is None and not beside:
            then = providers.in_batches(providers.span_exporters())
            if then is None:
                settings = replace(settings, export_sample=None)  # nothing is exported as it is
        processor = processor_from(settings, goldens, then=then, **options)
        if add is not None:
            add(processor)
            made: tuple[_Part, ...] = ()
        else:
            made = _make_providers(processor)
        _say_where_results_go(provider if beside else None, processor)
        return Instrumentation(processor, made)


def processor_from(
    settings: Settings,
    goldens: GoldensLike = None,
    *,
    then: SpanExporter | SpanProcessor | None = None,
    **options: Unpack[Options],
) -> ScoringProcessor:
    """A processor as the settings have it, but for what is given. Raises `GoldspanError` when something is wrong."""
    for complaint in mistyped():
        _log.warning("goldspan: %s", complaint)
    _check_metrics(settings, options)
    chosen: dict[str, Any] = {
        "reload": RELOAD_S,
        **settings.said("processor"),
        **_derived(settings, options),
        **options,
    }
    lookup = cast(Lookup, settings.said("goldens"))
    if goldens is None:
        found = _naming("goldens", goldens_from, settings.goldens, reload=chosen["reload"], **lookup)
    else:
        found = goldens_from(goldens, reload=chosen["reload"], **lookup)
    if "sinks" not in chosen and settings.sinks is not None:
        chosen["sinks"] = _naming(
            "sinks",
            sinks_from,
            settings.sinks,
            logger_provider=chosen.get("logger_provider"),
            meter_provider=chosen.get("meter_provider"),
        )
        chosen.setdefault("attributes", "attributes" in settings.sinks)
    processor = ScoringProcessor(found, then=then, **chosen)
    if (judge := chosen.get("judge")) is not None:
        _log.info("goldspan asks a judge, %s, which is shown the runs it is asked about (%s)", judge.ask, judge.show)
    return processor


def _derived(settings: Settings, given: Options) -> Options:
    """What several settings make together, and is not given."""
    options = Options()
    if limits := settings.said("limits"):
        options["limits"] = Limits(**limits)
    if settings.judge_model is not None and "judge" not in given:
        options["judge"] = _naming("judge_model", judge_from, settings, given.get("meter_provider"))
    if settings.sample is not None or settings.sample_rules is not None:
        options["sampling"] = _naming("sample_rules", sampling_from_text, settings.sample, settings.sample_rules)
    if settings.export_sample is not None and settings.export_sample < 1:
        options["export"] = ExportSampling(settings.export_sample)
    return options


def judge_from(settings: Settings, meter_provider: MeterProvider | None = None) -> Judge:
    """The judge that the variables say. Raises `GoldspanError` where that cannot be."""
    from goldspan.judge.settings import JudgeSettings  # most programs ask no model

    chosen = JudgeSettings(**settings.said("judge"))
    return chosen.judge(samples=Sampling(chosen.sample).keeps, meter_provider=meter_provider)


def _check_metrics(settings: Settings, options: Options) -> None:
    """Raise `ConfigurationError`, naming the variable, for metrics that there are not."""
    metrics = None if "metrics" in options else settings.metrics
    _naming("metrics", resolve, metrics)
    if "thresholds" not in options:
        _naming("thresholds", resolve, metrics, settings.thresholds)


def _naming(setting: str, make: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """What is made of a setting. Raises `ConfigurationError`, naming its variable."""
    try:
        return make(*args, **kwargs)
    except GoldspanError as error:
        raise ConfigurationError(f"{variable_of(setting)}: {error}") from error


def reason_to_stay_off(settings: Settings) -> str | None:
    """Why nothing is to be added to this process, if there is a reason."""
    if settings.disabled:
        return "GOLDSPAN_DISABLED is set"
    if os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return "OTEL_SDK_DISABLED is true"
    if at_work():
        return "a ScoringProcessor is at work already, and goes on as it is until it is shut down"
    return None


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
    receives = {
        "events": _receives(_logs.get_logger_provider()),
        "metrics": _receives(api_metrics.get_meter_provider()),
    }
    asked = [_received_as(sink) for sink in processor.sinks]
    annotates = processor.annotates
    exported = beside is not None or annotates == "runs"  # the provider that was made has no other processor
    live = [_ANNOTATED[annotates]] if annotates != "none" and exported else []
    live += [name for name, does in receives.items() if does and name in asked]
    live += ["other sinks"] if None in asked else []
    where = f"beside {_type(beside)}" if beside else "with providers made from the OTEL_* variables"
    places = ", ".join(live) or "nowhere"
    _log.info("goldspan scores %s; goldens: %d; results go to %s", where, len(processor.goldens), places)
    for name, does in receives.items():
        if name in asked and not does:
            _log.warning("goldspan: nothing receives %s: %s", name, _REMEDIES[name])


def _received_as(sink: object) -> str | None:
    """Which provider must be there for what a sink makes; `None` for sinks that go elsewhere."""
    if isinstance(sink, EventSink):
        return "events"
    return "metrics" if isinstance(sink, (MetricSink, FigureSink)) else None


_ANNOTATED = {"runs": "attributes of runs' spans", "traced": "attributes of @goldspan.trace spans"}
_REMEDIES = {
    "events": "this program has no OpenTelemetry logger provider, or OTEL_LOGS_EXPORTER is none",
    "metrics": "this program has no OpenTelemetry meter provider, or OTEL_METRICS_EXPORTER is none",
}


def _receives(provider: object) -> bool:
    """Whether a provider is more than the placeholder of the API, which throws away what it gets."""
    return not type(provider).__module__.startswith(("opentelemetry._logs", "opentelemetry.metrics"))


def _type(value: object) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"
