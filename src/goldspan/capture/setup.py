"""`goldspan.instrument()`: everything that live scoring needs, in one line."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar, cast

from opentelemetry import _logs, trace
from opentelemetry import metrics as api_metrics
from opentelemetry._logs import LoggerProvider
from opentelemetry.metrics import MeterProvider
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SpanExporter

from goldspan._locks import ForkSafeLock
from goldspan.capture import providers
from goldspan.capture.environment import EnvironmentSettings, misspelled_variables, read_environment, variable_name
from goldspan.capture.processor import ScoringProcessor, has_active_processor
from goldspan.capture.processor_options import (
    DEFAULT_RELOAD_S,
    GoldensLike,
    LookupOptions,
    ProcessorOptions,
    resolve_goldens,
)
from goldspan.errors import ConfigurationError, GoldspanError
from goldspan.online import Limits
from goldspan.online.pass_rate_sink import PassRateSink
from goldspan.online.sampling import ExportSampling, Sampling, parse_sampling
from goldspan.scoring.metrics.registry import resolve_metrics
from goldspan.sinks import BackgroundSink, EventSink, JsonLinesSink, MetricSink, SinkLike, SpanSink

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from typing_extensions import Unpack

    from goldspan.judge.judge import Judge

SINK_FORMS = "attributes, events, metrics, figures, spans, jsonl:PATH, store:PATH"


def build_sinks(
    names: Iterable[str],
    *,
    logger_provider: LoggerProvider | None = None,
    meter_provider: MeterProvider | None = None,
) -> list[SinkLike]:
    """The sinks meant by names such as `events` and `jsonl:results.jsonl`; `attributes` need none.

    What writes to a disk does so on a thread of its own. Raises `GoldspanError` for an unknown name, and for a file
    that cannot be written.
    """
    plain: dict[str, Callable[[], SinkLike]] = {
        "events": lambda: EventSink(logger_provider),
        "metrics": lambda: MetricSink(meter_provider),
        "figures": lambda: PassRateSink(meter_provider, logger_provider),
        "spans": SpanSink,
    }
    made: list[SinkLike] = []
    for name in dict.fromkeys(names):
        form, _, path = name.partition(":")
        if path and form in ("jsonl", "store"):
            made.append(BackgroundSink(_open_file_sink(form, path), meter_provider=meter_provider))
        elif name in plain:
            made.append(plain[name]())
        elif name != "attributes":
            raise ConfigurationError(f"there is no sink {name!r}; there are {SINK_FORMS}")
    return made


def _open_file_sink(form: str, path: str) -> SinkLike:
    if form == "jsonl":
        return JsonLinesSink(path)
    from goldspan.store import open_store  # takes SQLite, which nobody else should pay for

    return open_store(path)


P = ParamSpec("P")
T = TypeVar("T")

_log = logging.getLogger("goldspan")

startup_lock = ForkSafeLock()
"""Held from the look at what is at work until something is: threads that start goldspan at once start it once."""


class _Flushable(Protocol):
    def shutdown(self) -> object: ...

    def force_flush(self) -> object: ...


@dataclass(frozen=True, slots=True)
class Instrumentation:
    """What `instrument()` started. Programs that simply exit need not keep it: the SDK flushes at exit."""

    _processor: ScoringProcessor | None = None
    _providers: tuple[_Flushable, ...] = ()

    @property
    def added_processor(self) -> bool:
        """Whether anything was: not where something was at work already, or where the environment says no."""
        return self._processor is not None

    def force_flush(self) -> None:
        """Send what has been recorded so far."""
        for part in self._components:  # in this order: scoring makes events and metrics
            part.force_flush()

    def shutdown(self) -> None:
        """Send what has been recorded so far, and stop."""
        for part in self._components:
            part.shutdown()

    @property
    def _components(self) -> tuple[_Flushable, ...]:
        return self._providers if self._processor is None else (self._processor, *self._providers)


def instrument(
    goldens: GoldensLike = None,
    *,
    then: SpanExporter | SpanProcessor | None = None,
    **options: Unpack[ProcessorOptions],
) -> Instrumentation:
    """Score every run of this process from now on.

    Where the program has no tracer provider, one is made from the `OTEL_*` variables, with a logger and a meter
    provider if these are missing too; `then` takes the place of the exporters that `OTEL_TRACES_EXPORTER` names. A
    provider that is there already (Logfire, Langfuse, auto-instrumentation) is added to and never replaced. Where a
    `ScoringProcessor` is at work in this process, nothing is added; nor is it where `GOLDSPAN_DISABLED` or
    `OTEL_SDK_DISABLED` says so. The log says where results go, and warns where they would be lost.

    The `options` are those of `ScoringProcessor`. The `GOLDSPAN_*` variables stand in for what is not given here: see
    `goldspan.capture.environment`.

    Raises `GoldspanError` when something is set up wrongly.
    """
    with startup_lock:
        settings = read_environment()
        if why := disabled_reason(settings):
            _log.info("goldspan: %s; instrument() does nothing", why)
            return Instrumentation()
        provider = trace.get_tracer_provider()
        beside = not isinstance(provider, trace.ProxyTracerProvider)
        add = getattr(provider, "add_span_processor", None)
        if beside and add is None:
            raise ConfigurationError(f"the tracer provider {_type_name(provider)} takes no span processors")
        if then is None and not beside:
            then = providers.batch_processor(providers.span_exporters())
            if then is None:
                settings = replace(settings, export_sample=None)  # nothing is exported as it is
        processor = build_processor(settings, goldens, then=then, **options)
        if add is not None:
            add(processor)
            made: tuple[_Flushable, ...] = ()
        else:
            made = _install_missing_providers(processor)
        _log_destinations(provider if beside else None, processor)
        return Instrumentation(processor, made)


def build_processor(
    settings: EnvironmentSettings,
    goldens: GoldensLike = None,
    *,
    then: SpanExporter | SpanProcessor | None = None,
    **options: Unpack[ProcessorOptions],
) -> ScoringProcessor:
    """A processor as the settings have it, but for what is given. Raises `GoldspanError` when something is wrong."""
    for complaint in misspelled_variables():
        _log.warning("goldspan: %s", complaint)
    _check_metrics(settings, options)
    chosen: dict[str, Any] = {
        "reload": DEFAULT_RELOAD_S,
        **settings.arguments_for("processor"),
        **_combined_options(settings, options),
        **options,
    }
    lookup = cast(LookupOptions, settings.arguments_for("goldens"))
    if goldens is None:
        found = _name_variable_on_error("goldens", resolve_goldens, settings.goldens, reload=chosen["reload"], **lookup)
    else:
        found = resolve_goldens(goldens, reload=chosen["reload"], **lookup)
    if "sinks" not in chosen and settings.sinks is not None:
        chosen["sinks"] = _name_variable_on_error(
            "sinks",
            build_sinks,
            settings.sinks,
            logger_provider=chosen.get("logger_provider"),
            meter_provider=chosen.get("meter_provider"),
        )
        chosen.setdefault("attributes", "attributes" in settings.sinks)
    processor = ScoringProcessor(found, then=then, **chosen)
    if (judge := chosen.get("judge")) is not None:
        _log.info("goldspan asks a judge, %s, which is shown the runs it is asked about (%s)", judge.ask, judge.show)
    return processor


def _combined_options(settings: EnvironmentSettings, explicit: ProcessorOptions) -> ProcessorOptions:
    """What several settings make together, and is not given."""
    options = ProcessorOptions()
    if limits := settings.arguments_for("limits"):
        options["limits"] = Limits(**limits)
    if settings.judge_model is not None and "judge" not in explicit:
        options["judge"] = _name_variable_on_error("judge_model", build_judge, settings, explicit.get("meter_provider"))
    if settings.sample is not None or settings.sample_rules is not None:
        options["sampling"] = _name_variable_on_error(
            "sample_rules", parse_sampling, settings.sample, settings.sample_rules
        )
    if settings.export_sample is not None and settings.export_sample < 1:
        options["export"] = ExportSampling(settings.export_sample)
    return options


def build_judge(settings: EnvironmentSettings, meter_provider: MeterProvider | None = None) -> Judge:
    """The judge that the variables say. Raises `GoldspanError` where that cannot be."""
    from goldspan.judge.judge import JudgeSettings  # most programs ask no model

    chosen = JudgeSettings(**settings.arguments_for("judge"))
    return chosen.create_judge(samples=Sampling(chosen.sample).should_sample, meter_provider=meter_provider)


def _check_metrics(settings: EnvironmentSettings, options: ProcessorOptions) -> None:
    """Raise `ConfigurationError`, naming the variable, for metrics that there are not."""
    metrics = None if "metrics" in options else settings.metrics
    _name_variable_on_error("metrics", resolve_metrics, metrics)
    if "thresholds" not in options:
        _name_variable_on_error("thresholds", resolve_metrics, metrics, settings.thresholds)


def _name_variable_on_error(setting: str, make: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """What is made of a setting. Raises `ConfigurationError`, naming its variable."""
    try:
        return make(*args, **kwargs)
    except GoldspanError as error:
        raise ConfigurationError(f"{variable_name(setting)}: {error}") from error


def disabled_reason(settings: EnvironmentSettings) -> str | None:
    """Why nothing is to be added to this process, if there is a reason."""
    if settings.disabled:
        return "GOLDSPAN_DISABLED is set"
    if os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return "OTEL_SDK_DISABLED is true"
    if has_active_processor():
        return "a ScoringProcessor is at work already, and goes on as it is until it is shut down"
    return None


def _install_missing_providers(processor: ScoringProcessor) -> tuple[_Flushable, ...]:
    """Set the providers that are missing; the tracer provider is."""
    made: list[_Flushable] = []
    if not _is_real_provider(_logs.get_logger_provider()) and (logger_provider := providers.build_logger_provider()):
        _logs.set_logger_provider(logger_provider)
        made.append(logger_provider)
    if not _is_real_provider(api_metrics.get_meter_provider()) and (meter_provider := providers.build_meter_provider()):
        api_metrics.set_meter_provider(meter_provider)
        made.append(meter_provider)
    tracer_provider = TracerProvider()
    tracer_provider.add_span_processor(processor)
    trace.set_tracer_provider(tracer_provider)
    return (tracer_provider, *made)


def _log_destinations(existing_provider: object, processor: ScoringProcessor) -> None:
    receives = {
        "events": _is_real_provider(_logs.get_logger_provider()),
        "metrics": _is_real_provider(api_metrics.get_meter_provider()),
    }
    asked = [_required_signal(sink) for sink in processor.sinks]
    annotates = processor.annotated_spans
    exported = existing_provider is not None or annotates == "runs"  # the provider that was made has no other processor
    live = [_ANNOTATION_DESCRIPTIONS[annotates]] if annotates != "none" and exported else []
    live += [name for name, does in receives.items() if does and name in asked]
    live += ["other sinks"] if None in asked else []
    where = (
        f"beside {_type_name(existing_provider)}"
        if existing_provider
        else "with providers made from the OTEL_* variables"
    )
    places = ", ".join(live) or "nowhere"
    _log.info("goldspan scores %s; goldens: %d; results go to %s", where, len(processor.goldens), places)
    for name, does in receives.items():
        if name in asked and not does:
            _log.warning("goldspan: nothing receives %s: %s", name, _MISSING_PROVIDER_REASONS[name])


def _required_signal(sink: object) -> str | None:
    """Which provider must be there for what a sink makes; `None` for sinks that go elsewhere."""
    if isinstance(sink, EventSink):
        return "events"
    return "metrics" if isinstance(sink, (MetricSink, PassRateSink)) else None


_ANNOTATION_DESCRIPTIONS = {"runs": "attributes of runs' spans", "traced": "attributes of @goldspan.trace spans"}
_MISSING_PROVIDER_REASONS = {
    "events": "this program has no OpenTelemetry logger provider, or OTEL_LOGS_EXPORTER is none",
    "metrics": "this program has no OpenTelemetry meter provider, or OTEL_METRICS_EXPORTER is none",
}


def _is_real_provider(provider: object) -> bool:
    """Whether a provider is more than the placeholder of the API, which throws away what it gets."""
    return not type(provider).__module__.startswith(("opentelemetry._logs", "opentelemetry.metrics"))


def _type_name(value: object) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"
