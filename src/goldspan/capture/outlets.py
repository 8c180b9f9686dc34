"""The sinks that a setting names."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from opentelemetry._logs import LoggerProvider
from opentelemetry.metrics import MeterProvider

from goldspan.errors import ConfigurationError
from goldspan.online.figure_sink import FigureSink
from goldspan.sinks import BackgroundSink, EventSink, JsonLinesSink, MetricSink, SinkLike, SpanSink

FORMS = "attributes, events, metrics, figures, spans, jsonl:PATH, store:PATH"


def sinks_from(
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
        "figures": lambda: FigureSink(meter_provider, logger_provider),
        "spans": SpanSink,
    }
    made: list[SinkLike] = []
    for name in dict.fromkeys(names):
        form, _, path = name.partition(":")
        if path and form in ("jsonl", "store"):
            made.append(BackgroundSink(_file(form, path), meter_provider=meter_provider))
        elif name in plain:
            made.append(plain[name]())
        elif name != "attributes":
            raise ConfigurationError(f"there is no sink {name!r}; there are {FORMS}")
    return made


def _file(form: str, path: str) -> SinkLike:
    if form == "jsonl":
        return JsonLinesSink(path)
    from goldspan.store import open_store  # takes SQLite, which nobody else should pay for

    return open_store(path)
