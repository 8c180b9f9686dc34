"""Validates the arguments of `ScoringProcessor`, builds its pipeline and wraps the next processor."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, TypedDict, TypeVar, cast

from opentelemetry._logs import LoggerProvider
from opentelemetry.context import Context
from opentelemetry.metrics import MeterProvider
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter

from goldspan.errors import ConfigurationError
from goldspan.goldens import Goldens
from goldspan.model import UNKNOWN_POLICIES, Golden, RunUnit, UnknownPolicy
from goldspan.online import Limits, Pipeline, check_units
from goldspan.online.pass_rate_sink import PassRateSink
from goldspan.online.sampling import ExportSampling, Sampling
from goldspan.scoring.metrics import MetricLike
from goldspan.sinks import EventSink, MetricSink, Redact, Sink, SinkLike, as_sink

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from goldspan.goldens.golden_files.hot_reload import ReloadingGoldens
    from goldspan.judge.judge import Judge

T = TypeVar("T")


class ProcessorOptions(TypedDict, total=False):
    """The keyword arguments of `ScoringProcessor` other than `goldens` and `then`, with the same defaults.

    `instrument` also accepts names of sinks.
    """

    metrics: Iterable[MetricLike]
    thresholds: Mapping[str, float]
    unknown: UnknownPolicy
    sinks: Iterable[SinkLike | str]
    attributes: bool
    logger_provider: LoggerProvider
    meter_provider: MeterProvider
    golden_id_attributes: Sequence[str]
    units: Sequence[RunUnit]
    redact: Redact
    sampling: Sampling
    export: ExportSampling
    budget: float
    judge: Judge
    background: bool
    threads: bool
    reload: float | None
    limits: Limits


def require_list(name: str, value: Iterable[T]) -> list[T]:
    """Returns the argument as a list. Raises `ConfigurationError` for a text or another value that is not a list."""
    if isinstance(value, (str, bytes)) or not isinstance(value, Iterable):
        raise _option_error(name, "a list", value)
    return list(value)


def check_option_types(**values: object) -> None:
    """Raises `ConfigurationError`, naming the argument, for the first argument of a wrong type."""
    for name, value in values.items():
        require_type(name, value, *_OPTION_TYPES[name])
    unknown = values.get("unknown")
    if unknown is not None and unknown not in UNKNOWN_POLICIES:
        raise _option_error("unknown", " or ".join(map(repr, UNKNOWN_POLICIES)), unknown)


_BOOLEAN = "True or False"
_OPTION_TYPES: Mapping[str, tuple[Any, str]] = {
    "attributes": (bool, _BOOLEAN),
    "background": (bool | None, _BOOLEAN),
    "limits": (Limits, "a Limits"),
    "logger_provider": (LoggerProvider | None, "a logger provider"),
    "meter_provider": (MeterProvider | None, "a meter provider"),
    "redact": (Callable | None, "a function of an evaluation"),
    "sampling": (Sampling | None, "a Sampling"),
    "threads": (bool, _BOOLEAN),
    "thresholds": (Mapping | None, "a mapping of metrics to numbers"),
    "unknown": (str | None, " or ".join(map(repr, UNKNOWN_POLICIES))),
}


def require_type(name: str, value: T, kind: Any, expected: str) -> T:
    """Returns the argument. Raises `ConfigurationError` if its type is wrong."""
    if not isinstance(value, kind):
        raise _option_error(name, expected, value)
    return value


def require_seconds(name: str, value: float | None) -> float | None:
    """Returns the number of seconds, or `None`. Raises `ConfigurationError` unless it is above 0."""
    expected = "a number of seconds above 0"
    require_type(name, value, int | float | None, expected)
    if value is not None and not value > 0:  # `not ... > 0` also rejects NaN
        raise _option_error(name, expected, value)
    return value


def _option_error(name: str, expected: str, value: object) -> ConfigurationError:
    return ConfigurationError(f"{name}= must be {expected}, not {value!r}")


def require_judge(judge: Judge | None) -> Judge | None:
    """Returns the judge, or `None`. Raises `ConfigurationError` for another type."""
    if judge is not None:
        from goldspan.judge.judge import Judge  # already loaded if there is a judge

        require_type("judge", judge, Judge, "a goldspan.judge.Judge")
    return judge


GoldenPaths: TypeAlias = "str | os.PathLike[str] | Iterable[str | os.PathLike[str]]"
GoldensLike: TypeAlias = "Goldens | ReloadingGoldens | Iterable[Golden] | GoldenPaths | None"
"""One path or several, goldens created in code or loaded elsewhere, or none."""

DEFAULT_RELOAD_S = 1.0
"""Seconds between two checks of golden files, unless configured."""


class LookupOptions(TypedDict, total=False):
    """How goldens are found by text; see `Goldens`. They do not apply to a `Goldens` object, which has its own."""

    near: float | None
    margin: float


def resolve_goldens(
    source: GoldensLike, *, reload: float | None = None, **lookup: Unpack[LookupOptions]
) -> Goldens | ReloadingGoldens:
    """Returns the goldens of a source; golden files are checked for changes every `reload` seconds.

    Raises `GoldspanError` if a file is missing or invalid, or the source has a wrong type.
    """
    if source is None:
        return Goldens(**lookup)
    if isinstance(source, Goldens) or _is_reloading_goldens(source):
        return cast("Goldens | ReloadingGoldens", source)
    items = [source] if isinstance(source, (str, os.PathLike)) else _as_list(source)
    goldens = [item for item in items if isinstance(item, Golden)]
    paths = [item for item in items if isinstance(item, (str, os.PathLike))]
    if len(goldens) == len(items):
        return Goldens(goldens, **lookup)
    if len(paths) == len(items):
        # Reading files loads pydantic, which goldens created in code do not need.
        if reload is not None:
            from goldspan.goldens.golden_files.hot_reload import ReloadingGoldens

            return ReloadingGoldens(paths, interval=reload, **lookup)
        from goldspan.goldens import load_goldens

        return load_goldens(*paths, **lookup)
    if len(goldens) + len(paths) == len(items):
        raise ConfigurationError("goldens must be either all paths or all Golden, not a mixture")
    raise _source_error(next(item for item in items if not isinstance(item, (Golden, str, os.PathLike))))


def _is_reloading_goldens(source: object) -> bool:
    """Returns whether it is a `ReloadingGoldens`, without importing that class."""
    kind = getattr(sys.modules.get("goldspan.goldens.golden_files.hot_reload"), "ReloadingGoldens", None)
    return kind is not None and isinstance(source, kind)


def _as_list(source: object) -> list[object]:
    if isinstance(source, Iterable) and not isinstance(source, bytes):
        return list(source)
    raise _source_error(source)


def _source_error(value: object) -> ConfigurationError:
    kind = type(value).__name__
    return ConfigurationError(f"goldens must be a path, several paths, Goldens or a list of Golden, not {kind}")


def default_sinks(
    logger_provider: LoggerProvider | None = None, meter_provider: MeterProvider | None = None
) -> tuple[Sink, ...]:
    """Returns the sinks for events, metrics and pass rates, through these providers or the global ones.

    The pipeline passes the goldens to `adopt`, which determines the tools that become metric labels.
    """
    return EventSink(logger_provider), MetricSink(meter_provider), PassRateSink(meter_provider, logger_provider)


def build_pipeline(
    goldens: GoldensLike,
    *,
    metrics: Iterable[MetricLike] | None,
    thresholds: Mapping[str, float] | None,
    unknown: UnknownPolicy | None,
    sinks: Iterable[SinkLike] | None,
    logger_provider: LoggerProvider | None,
    meter_provider: MeterProvider | None,
    golden_id_attributes: Sequence[str] | None,
    units: Sequence[RunUnit],
    redact: Redact | None,
    sampling: Sampling | None,
    budget: float | None,
    judge: Judge | None,
    reload: float | None,
    limits: Limits,
) -> Pipeline:
    """Returns the pipeline for the arguments of `ScoringProcessor`. Raises `GoldspanError` if one is invalid."""
    check_option_types(limits=limits, thresholds=thresholds, redact=redact, sampling=sampling, unknown=unknown)
    check_option_types(logger_provider=logger_provider, meter_provider=meter_provider)
    resolved_goldens = resolve_goldens(goldens, reload=require_seconds("reload", reload))
    if sinks is None:
        sinks = default_sinks(logger_provider, meter_provider)
    return Pipeline(
        resolved_goldens,
        sinks=[as_sink(sink) for sink in require_list("sinks", sinks)],
        metrics=None if metrics is None else require_list("metrics", metrics),
        thresholds=thresholds,
        unknown=unknown,
        golden_id_attributes=(
            None if golden_id_attributes is None else require_list("golden_id_attributes", golden_id_attributes)
        ),
        units=check_units(require_list("units", units)),
        redact=redact,
        sampling=sampling,
        budget=require_seconds("budget", budget),
        judge=require_judge(judge),
    )


_NOOP_ON_START = (SpanProcessor.on_start, BatchSpanProcessor.on_start)
"""The `on_start` methods that do nothing."""


def downstream_processor(then: object) -> SpanProcessor | None:
    """Returns the processor to which spans are forwarded; an exporter is wrapped in a `BatchSpanProcessor`.

    Raises `ConfigurationError` for anything else.
    """
    if then is None or isinstance(then, SpanProcessor):
        return then
    if isinstance(then, SpanExporter):
        return BatchSpanProcessor(then)
    raise ConfigurationError(
        f"ScoringProcessor(then=...) must be a span exporter or a span processor, not {type(then).__name__}"
    )


def exports_in_batches(then: SpanProcessor | None) -> bool:
    """Returns whether spans are exported later anyway, so that results need not be ready when a span ends."""
    inner = getattr(then, "_span_processors", None)  # the attribute of the SDK's composite processors
    if inner:
        return all(map(exports_in_batches, inner))
    return isinstance(then, BatchSpanProcessor)


def handles_span_start(then: SpanProcessor | None) -> bool:
    """Returns whether the processor implements `on_start`."""
    return then is not None and type(then).on_start not in _NOOP_ON_START


def sample_exports(then: SpanProcessor | None, sampling: ExportSampling) -> SpanProcessor:
    """Returns a processor that forwards only the sampled traces. Raises `ConfigurationError` without a downstream
    processor.
    """
    if then is None:
        raise ConfigurationError(
            "export= (GOLDSPAN_EXPORT_SAMPLE) needs then=, or OTEL_TRACES_EXPORTER=goldspan with "
            "GOLDSPAN_THEN_EXPORTER: goldspan cannot sample what other processors of the provider export"
        )
    return _ExportSamplingProcessor(then, require_type("export", sampling, ExportSampling, "an ExportSampling"))


class _ExportSamplingProcessor(SpanProcessor):
    """Forwards the spans of the sampled traces only."""

    def __init__(self, then: SpanProcessor, sampling: ExportSampling) -> None:
        self._downstream = then
        self._should_export = sampling.should_export

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        """Forwards the start of a span."""
        if self._should_export(span.context.trace_id):
            self._downstream.on_start(span, parent_context)

    def _on_ending(self, span: Span) -> None:
        if self._should_export(span.context.trace_id):
            self._downstream._on_ending(span)

    def on_end(self, span: ReadableSpan) -> None:
        """Forwards an ended span."""
        if self._should_export(span.context.trace_id):
            self._downstream.on_end(span)

    def shutdown(self) -> None:
        """Shuts down the downstream processor."""
        self._downstream.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Flushes the downstream processor."""
        return self._downstream.force_flush(timeout_millis)
