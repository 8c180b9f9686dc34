"""Telemetry as it came: spans, log records, and the events in them. Times are nanoseconds since the Unix epoch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Status = Literal["unset", "ok", "error"]


@dataclass(frozen=True, slots=True)
class SpanEvent:
    """A timestamped event on a span, such as `exception`."""

    name: str
    attributes: Mapping[str, Any]
    time_ns: int | None = None


@dataclass(slots=True, eq=False)
class SpanRecord:
    """One ended span, whatever SDK, wire format or file it came from. Nobody changes one that is made.

    Alone among these values it is not frozen: a process meets millions, and freezing one triples the time to make it.
    """

    trace_id: str
    """32 lower-case hexadecimal digits."""
    span_id: str
    """16 lower-case hexadecimal digits."""
    parent_id: str | None
    name: str
    attributes: Mapping[str, Any]
    """Plain Python values; structured OTLP values become lists and dictionaries."""
    start_ns: int | None = None
    end_ns: int | None = None
    status: Status = "unset"
    status_message: str = ""
    events: tuple[SpanEvent, ...] = ()
    kind: int = 0
    """The OTLP span kind: 0 unspecified, 1 internal, 2 server, 3 client, 4 producer, 5 consumer."""
    scope: str = ""
    """The name of the instrumentation scope."""
    resource: Mapping[str, Any] = field(default_factory=dict)
    dropped_attributes: int = 0

    @property
    def service(self) -> str | None:
        """The `service.name` of the process that made the span."""
        name = self.resource.get("service.name")
        return name if isinstance(name, str) else None

    def keys(self) -> frozenset[str]:
        """The names of its attributes. Of a span read off the wire, nothing is decoded to answer."""
        return frozenset(self.attributes)

    def values_of(self, keys: Iterable[str]) -> Mapping[str, Any]:
        """Attributes among which are these, all of which it has. Of a span read off the wire, no others are decoded."""
        return self.attributes

    def __eq__(self, other: object) -> bool:
        """Whether both say the same, wherever they came from."""
        if not isinstance(other, SpanRecord):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in SpanRecord.__dataclass_fields__)


@dataclass(frozen=True, slots=True)
class LogRecord:
    """One OTLP log record. Instrumentations report messages, and some agents whole tool calls, as log events."""

    name: str
    """The event's name: the field of that name, else the attribute `event.name`, else empty."""
    attributes: Mapping[str, Any]
    """Plain Python values."""
    body: Any = None
    """Text, or a plain structured value."""
    trace_id: str | None = None
    """32 lower-case hexadecimal digits; `None` for a log outside any trace."""
    span_id: str | None = None
    """The span during which the log was written."""
    time_ns: int | None = None
    """The time of the event, else the time at which it was observed."""
    scope: str = ""
    """The name of the instrumentation scope."""
    resource: Mapping[str, Any] = field(default_factory=dict)


Record = SpanRecord | LogRecord
"""What telemetry is made of here. Metrics tell nothing of single calls."""
