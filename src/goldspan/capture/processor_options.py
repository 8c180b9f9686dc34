"""How spans go on to whatever stands behind a `ScoringProcessor`."""

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
from opentelemetry.util.types import AttributeValue

from goldspan.errors import ConfigurationError
from goldspan.goldens import Goldens
from goldspan.model import UNKNOWN_POLICIES, Golden, RunUnit, UnknownPolicy
from goldspan.online import Limits
from goldspan.online.pass_rate_sink import PassRateSink
from goldspan.online.sampling import ExportSampling, Sampling
from goldspan.scoring.metrics import MetricLike
from goldspan.sinks import EventSink, MetricSink, Redact, Sink, SinkLike

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from goldspan.goldens.golden_files.hot_reload import ReloadingGoldens
    from goldspan.judge.judge import Judge

T = TypeVar("T")


class ProcessorOptions(TypedDict, total=False):
    """Those of `ScoringProcessor`, apart from the goldens and `then`. What is left out is as it is there."""

    metrics: Iterable[MetricLike]
    thresholds: Mapping[str, float]
    unknown: UnknownPolicy
    sinks: Iterable[SinkLike]
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
    """What was given as a list. Raises `ConfigurationError` for what is none, such as a single text."""
    if isinstance(value, (str, bytes)) or not isinstance(value, Iterable):
        raise _option_error(name, "a list", value)
    return list(value)


def check_option_types(**values: object) -> None:
    """Raise `ConfigurationError` for the first argument, by its name, that is of another type than it should be."""
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
    """What was given. Raises `ConfigurationError` where it is of another type than is wanted."""
    if not isinstance(value, kind):
        raise _option_error(name, expected, value)
    return value


def require_seconds(name: str, value: float | None) -> float | None:
    """A time that was given, if it was. Raises `ConfigurationError` for what is none."""
    wanted = "a number of seconds above 0"
    require_type(name, value, int | float | None, wanted)
    if value is not None and not value > 0:  # nan is none either
        raise _option_error(name, wanted, value)
    return value


def _option_error(name: str, expected: str, value: object) -> ConfigurationError:
    return ConfigurationError(f"{name}= takes {expected}, not {value!r}")


def require_judge(judge: Judge | None) -> Judge | None:
    """The judge that was given, if one was. Raises `ConfigurationError` for what is none."""
    if judge is not None:
        from goldspan.judge.judge import Judge  # whoever has one has loaded it already

        require_type("judge", judge, Judge, "a goldspan.judge.Judge")
    return judge


GoldenPaths: TypeAlias = "str | os.PathLike[str] | Iterable[str | os.PathLike[str]]"
GoldensLike: TypeAlias = "Goldens | ReloadingGoldens | Iterable[Golden] | GoldenPaths | None"
"""One path or several, goldens made in code or read elsewhere, or none."""

DEFAULT_RELOAD_S = 1.0
"""Seconds between two looks at golden files, where nothing else is said."""


class LookupOptions(TypedDict, total=False):
    """How goldens are found by text; see `Goldens`, which has its own where it was made elsewhere."""

    near: float | None
    margin: float


def resolve_goldens(
    source: GoldensLike, *, reload: float | None = None, **lookup: Unpack[LookupOptions]
) -> Goldens | ReloadingGoldens:
    """The goldens meant; those of files are read again when these change, which is looked for every `reload` seconds.

    Raises `GoldspanError` where a file is missing or wrong, or the source is of another type.
    """
    if source is None:
        return Goldens(**lookup)
    if isinstance(source, Goldens) or _is_reloading_goldens(source):
        return cast("Goldens | ReloadingGoldens", source)
    items = [source] if isinstance(source, (str, os.PathLike)) else _as_list(source)
    made = [item for item in items if isinstance(item, Golden)]
    paths = [item for item in items if isinstance(item, (str, os.PathLike))]
    if len(made) == len(items):
        return Goldens(made, **lookup)
    if len(paths) == len(items):
        # Files take pydantic, which goldens made in code should not pay for.
        if reload is not None:
            from goldspan.goldens.golden_files.hot_reload import ReloadingGoldens

            return ReloadingGoldens(paths, interval=reload, **lookup)
        from goldspan.goldens import load_goldens

        return load_goldens(*paths, **lookup)
    if len(made) + len(paths) == len(items):
        raise ConfigurationError("goldens are all paths or all Golden, not some of each")
    raise _source_error(next(item for item in items if not isinstance(item, (Golden, str, os.PathLike))))


def _is_reloading_goldens(source: object) -> bool:
    """Whether it is `ReloadingGoldens`; where nobody has imported these, or is about to, it is none."""
    kind = getattr(sys.modules.get("goldspan.goldens.golden_files.hot_reload"), "ReloadingGoldens", None)
    return kind is not None and isinstance(source, kind)


def _as_list(source: object) -> list[object]:
    if isinstance(source, Iterable) and not isinstance(source, bytes):
        return list(source)
    raise _source_error(source)


def _source_error(value: object) -> ConfigurationError:
    kind = type(value).__name__
    return ConfigurationError(f"goldens are a path, several paths, Goldens or a list of Golden, not {kind}")


def default_sinks(
    logger_provider: LoggerProvider | None = None, meter_provider: MeterProvider | None = None
) -> tuple[Sink, ...]:
    """Events, metrics and figures, through these providers or the global ones.

    Which tools become labels the pipeline tells them, as soon as it has goldens and whenever it has others.
    """
    return EventSink(logger_provider), MetricSink(meter_provider), PassRateSink(meter_provider, logger_provider)


_NOOP_ON_START = (SpanProcessor.on_start, BatchSpanProcessor.on_start)
"""Those of processors that do nothing when a span starts."""


def downstream_processor(then: object) -> SpanProcessor | None:
    """What spans are handed to: the processor given, or a batch processor of the exporter given.

    Raises `ConfigurationError` for anything else.
    """
    if then is None or isinstance(then, SpanProcessor):
        return then
    if isinstance(then, SpanExporter):
        return BatchSpanProcessor(then)
    raise ConfigurationError(
        f"ScoringProcessor(then=...) takes a span exporter or a span processor, not {type(then).__name__}"
    )


def exports_in_batches(then: SpanProcessor | None) -> bool:
    """Whether spans leave later anyway, so that nobody waits for results when a span ends."""
    inner = getattr(then, "_span_processors", None)  # how the SDK's own composites keep theirs
    if inner:
        return all(map(exports_in_batches, inner))
    return isinstance(then, BatchSpanProcessor)


def handles_span_start(then: SpanProcessor | None) -> bool:
    """Whether it makes a difference to a processor that a span starts."""
    return then is not None and type(then).on_start not in _NOOP_ON_START


def copy_with_attributes(span: ReadableSpan, attributes: Mapping[str, AttributeValue]) -> ReadableSpan:
    """A copy of an ended span with more attributes; the limit on their number has done its work before."""
    return ReadableSpan(
        name=span.name,
        context=span.context,
        parent=span.parent,
        resource=span.resource,
        attributes={**(span.attributes or {}), **attributes},
        events=span.events,
        links=span.links,
        kind=span.kind,
        status=span.status,
        start_time=span.start_time,
        end_time=span.end_time,
        instrumentation_scope=span.instrumentation_scope,
    )


def sample_exports(then: SpanProcessor | None, sampling: ExportSampling) -> SpanProcessor:
    """What is handed only the traces to be exported. Raises `ConfigurationError` where nothing is handed on at all."""
    if then is None:
        raise ConfigurationError(
            "export= (GOLDSPAN_EXPORT_SAMPLE) needs then=, or OTEL_TRACES_EXPORTER=goldspan with "
            "GOLDSPAN_THEN_EXPORTER: what others at the same provider export is not its to choose"
        )
    return _ExportSamplingProcessor(then, require_type("export", sampling, ExportSampling, "an ExportSampling"))


class _ExportSamplingProcessor(SpanProcessor):
    """Hands on the spans of the traces that are to be exported, and of no other."""

    def __init__(self, then: SpanProcessor, sampling: ExportSampling) -> None:
        self._downstream = then
        self._should_export = sampling.should_export

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        """Hand a start on."""
        if self._should_export(span.context.trace_id):
            self._downstream.on_start(span, parent_context)

    def _on_ending(self, span: Span) -> None:
        if self._should_export(span.context.trace_id):
            self._downstream._on_ending(span)

    def on_end(self, span: ReadableSpan) -> None:
        """Hand a span on."""
        if self._should_export(span.context.trace_id):
            self._downstream.on_end(span)

    def shutdown(self) -> None:
        """Shut down the processor behind."""
        self._downstream.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Flush the processor behind."""
        return self._downstream.force_flush(timeout_millis)
