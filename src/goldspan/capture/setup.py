"""`goldspan.instrument()`: configures providers, sinks and the scoring processor in one call."""

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
    require_list,
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
    from goldspan.model import Evaluation
    from goldspan.store import Store

SINK_NAMES = ("attributes", "events", "metrics", "figures", "spans", "jsonl:PATH", "store:PATH")
"""The names of sinks, without those of products."""


def build_sinks(
    names: Iterable[str],
    *,
    logger_provider: LoggerProvider | None = None,
    meter_provider: MeterProvider | None = None,
) -> list[SinkLike]:
    """Returns the sinks for names such as `events`, `jsonl:results.jsonl` and `phoenix`; `attributes` needs no sink.

    Sinks that write to a disk or to a product run on a background thread. Raises `ConfigurationError` for an unknown
    name and for a file that cannot be written, and `MissingExtraError` for a product without its extra.
    """
    factories: dict[str, Callable[[], SinkLike]] = {
        "events": lambda: EventSink(logger_provider),
        "metrics": lambda: MetricSink(meter_provider),
        "figures": lambda: PassRateSink(meter_provider, logger_provider),
        "spans": SpanSink,
    }
    sinks: list[SinkLike] = []
    for name in dict.fromkeys(names):
        kind, colon, path = name.partition(":")
        if path and kind in _FILE_SINKS:
            sinks.append(BackgroundSink(_open_file_sink(kind, path), meter_provider=meter_provider))
        elif name in factories:
            sinks.append(factories[name]())
        elif kind in _FILE_SINKS:
            raise ConfigurationError(f"the sink {name!r} lacks a path; write {kind}:PATH")
        elif colon and kind in ("attributes", *factories):
            raise ConfigurationError(f"the sink {kind!r} takes no path, but is declared as {name!r}")
        elif name != "attributes":
            sinks.append(_create_product_sink(name, meter_provider))
    return sinks


def _resolve_sinks(sinks: Iterable[SinkLike | str], options: ProcessorOptions) -> list[SinkLike]:
    """Returns the sinks with those that are given by their names."""
    resolved: list[SinkLike] = []
    for sink in require_list("sinks", sinks):
        if isinstance(sink, str):
            resolved += build_sinks(
                [sink],
                logger_provider=options.get("logger_provider"),
                meter_provider=options.get("meter_provider"),
            )
        else:
            resolved.append(sink)
    return resolved


_FILE_SINKS = ("jsonl", "store")


def _open_file_sink(kind: str, path: str) -> SinkLike:
    if kind == "jsonl":
        return JsonLinesSink(path)
    from goldspan.store import open_store  # loads SQLite, which other programs do not need

    return StoreSink(open_store(path))


class StoreSink:
    """Writes into a store that only this sink uses, and closes it at the end."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def submit(self, evaluation: Evaluation) -> None:
        """Stores one evaluation."""
        self._store.submit(evaluation)

    def submit_many(self, evaluations: Iterable[Evaluation]) -> None:
        """Stores evaluations in one transaction."""
        self._store.submit_many(evaluations)

    def shutdown(self) -> None:
        """Closes the store."""
        self._store.close()


def _create_product_sink(name: str, meter_provider: MeterProvider | None) -> SinkLike:
    from goldspan.integrations.catalog import CATALOG, create_product_sink  # most programs write into no product

    if name.partition(":")[0] not in CATALOG:
        raise ConfigurationError(_unknown_sink_error(name, (*SINK_NAMES, *CATALOG)))
    return create_product_sink(name, meter_provider=meter_provider)


def _unknown_sink_error(name: str, names: Iterable[str]) -> str:
    from goldspan.goldens.spelling import nearest_word  # loads rapidfuzz, which only mistakes need

    kind, colon, path = name.partition(":")
    nearest = nearest_word(kind, [known.partition(":")[0] for known in names])
    if nearest in _FILE_SINKS:
        nearest = f"{nearest}:{path if colon and path else 'PATH'}"
    hint = f" Did you mean {nearest!r}?" if nearest else ""
    return f"there is no sink {name!r}; the sinks are {', '.join(names)}.{hint}"


P = ParamSpec("P")
T = TypeVar("T")

_log = logging.getLogger("goldspan")

startup_lock = ForkSafeLock()
"""Held from the check for an active processor until one is created, so that concurrent threads create only one."""


class _Flushable(Protocol):
    def shutdown(self) -> object: ...

    def force_flush(self) -> object: ...


@dataclass(frozen=True, slots=True)
class Instrumentation:
    """The handle that `instrument()` returns. A program may discard it: the SDK flushes at exit."""

    _processor: ScoringProcessor | None = None
    _providers: tuple[_Flushable, ...] = ()

    @property
    def added_processor(self) -> bool:
        """Whether `instrument()` added a processor; `False` if one was active already or the environment disables
        goldspan.
        """
        return self._processor is not None

    def force_flush(self) -> None:
        """Exports everything that has been recorded."""
        for component in self._components:  # the processor first: it produces events and metrics
            component.force_flush()

    def shutdown(self) -> None:
        """Exports everything that has been recorded, and stops."""
        for component in self._components:
            component.shutdown()

    @property
    def _components(self) -> tuple[_Flushable, ...]:
        return self._providers if self._processor is None else (self._processor, *self._providers)


def instrument(
    goldens: GoldensLike = None,
    *,
    then: SpanExporter | SpanProcessor | None = None,
    **options: Unpack[ProcessorOptions],
) -> Instrumentation:
    """Scores every run of this process from now on.

    If the program has no tracer provider, this function creates one from the `OTEL_*` variables, and also a logger and
    a meter provider if these are missing. It adds a processor to an existing provider (Logfire, Langfuse,
    auto-instrumentation) and never replaces it. It does nothing if a `ScoringProcessor` is active in this process, or
    if `GOLDSPAN_DISABLED` or `OTEL_SDK_DISABLED` is set. It logs where results go, and warns if nothing receives them.

    A `GOLDSPAN_*` variable supplies each argument that is not passed; see `goldspan.capture.environment`.

    Args:
        goldens: A path, several paths, `Goldens`, or a list of `Golden`. Default: `GOLDSPAN_GOLDENS`.
        then: The exporter or span processor to which spans are forwarded. Default: the exporters of
            `OTEL_TRACES_EXPORTER` if this function creates the tracer provider, else none.
        metrics: The metrics to compute, instead of those that the goldens list.
        thresholds: The minimum value for each metric, instead of the thresholds of the goldens.
        unknown: The policy for statements that cannot be evaluated: `"not_evaluated"`, `"ignore"` or `"fail"`.
        sinks: The sinks, functions or names (as in `GOLDSPAN_SINKS`) that receive evaluations. Default: events,
            metrics and pass rates.
        attributes: Whether results are written on spans.
        logger_provider: The logger provider of the default sinks. Default: the global one.
        meter_provider: The meter provider of the default sinks and of the drop counters. Default: the global one.
        golden_id_attributes: Names of the span attributes that hold a golden's id, in order of precedence.
        units: The units to score: some of `"request"`, `"component"` and `"conversation"`.
        redact: A function that returns the evaluation that may leave the process, or `None` to drop it.
        sampling: Selects the runs that are scored.
        export: Selects the traces that are forwarded to `then`.
        budget: Seconds that the metrics of one run may take.
        judge: A model that judges runs on a separate thread.
        background: Whether a background thread scores the spans.
        threads: Whether threads and thread pool tasks keep the context in which they were started.
        reload: Seconds between two checks whether golden files have changed; `None` disables the checks.
        limits: Bounds for the memory and the time that spans in flight may take.

    Returns:
        A handle to flush and to shut down what this function created.

    Raises:
        GoldspanError: If an argument or a variable is invalid, or a golden file cannot be read.
    """
    with startup_lock:
        settings = read_environment()
        if reason := disabled_reason(settings):
            _log.info("goldspan: %s; instrument() does nothing", reason)
            return Instrumentation()
        provider = trace.get_tracer_provider()
        has_provider = not isinstance(provider, trace.ProxyTracerProvider)
        add = getattr(provider, "add_span_processor", None)
        if has_provider and add is None:
            raise ConfigurationError(f"the tracer provider {_type_name(provider)} accepts no span processors")
        if then is None and not has_provider:
            then = providers.batch_processor(providers.span_exporters())
            if then is None:
                settings = replace(settings, export_sample=None)  # there is no export to sample
        processor = build_processor(settings, goldens, then=then, **options)
        if add is not None:
            add(processor)
            new_providers: tuple[_Flushable, ...] = ()
        else:
            new_providers = _install_missing_providers(processor)
        _log_destinations(provider if has_provider else None, processor)
        return Instrumentation(processor, new_providers)


def build_processor(
    settings: EnvironmentSettings,
    goldens: GoldensLike = None,
    *,
    then: SpanExporter | SpanProcessor | None = None,
    **options: Unpack[ProcessorOptions],
) -> ScoringProcessor:
    """Returns a processor configured by the settings and the explicit options. Raises `GoldspanError` if either is
    invalid.
    """
    for warning in misspelled_variables():
        _log.warning("goldspan: %s", warning)
    _check_metrics(settings, options)
    arguments: dict[str, Any] = {
        "reload": DEFAULT_RELOAD_S,
        **settings.arguments_for("processor"),
        **_combined_options(settings, options),
        **options,
    }
    lookup = cast(LookupOptions, settings.arguments_for("goldens"))
    if goldens is None:
        resolved = _name_variable_on_error(
            "goldens", resolve_goldens, settings.goldens, reload=arguments["reload"], **lookup
        )
    else:
        resolved = resolve_goldens(goldens, reload=arguments["reload"], **lookup)
    if "sinks" in options:
        arguments["sinks"] = _resolve_sinks(options["sinks"], options)
    elif settings.sinks is not None:
        arguments["sinks"] = _name_variable_on_error(
            "sinks",
            build_sinks,
            settings.sinks,
            logger_provider=arguments.get("logger_provider"),
            meter_provider=arguments.get("meter_provider"),
        )
        arguments.setdefault("attributes", "attributes" in settings.sinks)
    processor = ScoringProcessor(resolved, then=then, **arguments)
    if (judge := arguments.get("judge")) is not None:
        _log.info("goldspan sends the judged runs to the model %s (%s)", judge.ask, judge.show)
    return processor


def _combined_options(settings: EnvironmentSettings, explicit: ProcessorOptions) -> ProcessorOptions:
    """Returns the options that are built from several settings and are not passed explicitly."""
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
    """Returns the judge that the variables configure. Raises `GoldspanError` if they are invalid."""
    from goldspan.judge.judge import JudgeSettings  # most programs use no judge

    judge_settings = JudgeSettings(**settings.arguments_for("judge"))
    return judge_settings.create_judge(
        samples=Sampling(judge_settings.sample).should_sample, meter_provider=meter_provider
    )


def _check_metrics(settings: EnvironmentSettings, options: ProcessorOptions) -> None:
    """Raises `ConfigurationError`, naming the variable, for an unknown metric."""
    metrics = None if "metrics" in options else settings.metrics
    _name_variable_on_error("metrics", resolve_metrics, metrics)
    if "thresholds" not in options:
        _name_variable_on_error("thresholds", resolve_metrics, metrics, settings.thresholds)


def _name_variable_on_error(setting: str, make: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Returns `make(...)`. Raises `ConfigurationError` with the name of the setting's variable."""
    try:
        return make(*args, **kwargs)
    except GoldspanError as error:
        raise ConfigurationError(f"{variable_name(setting)}: {error}") from error


def disabled_reason(settings: EnvironmentSettings) -> str | None:
    """Returns why this process must not get a processor, or `None`."""
    if settings.disabled:
        return "GOLDSPAN_DISABLED is set"
    if os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return "OTEL_SDK_DISABLED is true"
    if has_active_processor():
        return "a ScoringProcessor is already active in this process"
    return None


def _install_missing_providers(processor: ScoringProcessor) -> tuple[_Flushable, ...]:
    """Installs a tracer provider with the processor, and the logger and meter providers that are missing."""
    created: list[_Flushable] = []
    if not _is_real_provider(_logs.get_logger_provider()) and (logger_provider := providers.build_logger_provider()):
        _logs.set_logger_provider(logger_provider)
        created.append(logger_provider)
    if not _is_real_provider(api_metrics.get_meter_provider()) and (meter_provider := providers.build_meter_provider()):
        api_metrics.set_meter_provider(meter_provider)
        created.append(meter_provider)
    tracer_provider = TracerProvider()
    tracer_provider.add_span_processor(processor)
    trace.set_tracer_provider(tracer_provider)
    return (tracer_provider, *created)


def _log_destinations(existing_provider: object, processor: ScoringProcessor) -> None:
    receives = {
        "events": _is_real_provider(_logs.get_logger_provider()),
        "metrics": _is_real_provider(api_metrics.get_meter_provider()),
    }
    required = [_required_signal(sink) for sink in processor.sinks]
    annotated = processor.annotated_spans
    exported = existing_provider is not None or annotated == "runs"  # a new provider has no other processor
    destinations = [_ANNOTATION_DESCRIPTIONS[annotated]] if annotated != "none" and exported else []
    destinations += [signal for signal, received in receives.items() if received and signal in required]
    destinations += ["other sinks"] if None in required else []
    provider = (
        f"the existing {_type_name(existing_provider)}"
        if existing_provider
        else "providers created from the OTEL_* variables"
    )
    results = ", ".join(destinations) or "nowhere"
    _log.info("goldspan uses %s; goldens: %d; results go to %s", provider, len(processor.goldens), results)
    for signal, received in receives.items():
        if signal in required and not received:
            _log.warning("goldspan: nothing receives %s: %s", signal, _MISSING_PROVIDER_REASONS[signal])


def _required_signal(sink: object) -> str | None:
    """Returns the signal whose provider a sink needs; `None` for sinks that write elsewhere."""
    if isinstance(sink, EventSink):
        return "events"
    return "metrics" if isinstance(sink, (MetricSink, PassRateSink)) else None


_ANNOTATION_DESCRIPTIONS = {"runs": "attributes of runs' spans", "traced": "attributes of @goldspan.trace spans"}
_MISSING_PROVIDER_REASONS = {
    "events": "this program has no OpenTelemetry logger provider, or OTEL_LOGS_EXPORTER is none",
    "metrics": "this program has no OpenTelemetry meter provider, or OTEL_METRICS_EXPORTER is none",
}


def _is_real_provider(provider: object) -> bool:
    """Returns whether a provider is more than the API's placeholder, which discards everything."""
    return not type(provider).__module__.startswith(("opentelemetry._logs", "opentelemetry.metrics"))


def _type_name(value: object) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"
