"""Defines decoded telemetry (spans, span events, log records) and the selectors of components."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, make_dataclass
from fnmatch import fnmatchcase
from typing import Any, Literal, TypeVar


def content_digest(value: Any) -> str:
    """Returns a short stable hash of plain values and dataclasses. It ignores the order of dictionary keys."""
    return hashlib.blake2b(_canonical(value).encode(), digest_size=12).hexdigest()


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        return [type(value).__name__, {each.name: getattr(value, each.name) for each in fields(value)}]
    return repr(value)


_canonical = json.JSONEncoder(sort_keys=True, separators=(",", ":"), default=_plain).encode


T = TypeVar("T")


def fast_constructor(frozen: type[T]) -> type[T]:
    """Returns a class that creates values of a frozen, slotted dataclass in half the time.

    A frozen dataclass sets each field with `object.__setattr__`. The returned class has the same slots, sets them by
    plain assignment, and then changes the class of the object to the frozen one.
    """
    post_init = getattr(frozen, "__post_init__", None)

    def freeze(draft: Any) -> None:
        draft.__class__ = frozen
        if post_init is not None:
            post_init(draft)

    dataclass_type: Any = frozen
    copied_fields = [
        (each.name, each.type, field(default=each.default, default_factory=each.default_factory))
        for each in fields(dataclass_type)
    ]
    return make_dataclass(
        frozen.__name__,
        copied_fields,
        bases=dataclass_type.__bases__,  # of another layout, the class of an object cannot be changed
        namespace={"__post_init__": freeze},
        slots=True,
        eq=False,
    )


SpanStatus = Literal["unset", "ok", "error"]


@dataclass(frozen=True, slots=True)
class SpanEvent:
    """A timestamped event on a span, such as `exception`."""

    name: str
    attributes: Mapping[str, Any]
    time_ns: int | None = None


@dataclass(slots=True, eq=False)
class SpanRecord:
    """One ended span of any SDK, wire format or file. It must not be changed.

    Unlike the other values it is not frozen: a process creates millions, and a frozen one takes three times as long.
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
    status: SpanStatus = "unset"
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

    def attribute_names(self) -> frozenset[str]:
        """Returns the names of the attributes. A span in wire format decodes no value for this."""
        return frozenset(self.attributes)

    def decode_attributes(self, keys: Iterable[str]) -> Mapping[str, Any]:
        """Returns a mapping with these attributes, which must exist. A span in wire format decodes no others."""
        return self.attributes

    def __eq__(self, other: object) -> bool:
        """Whether all fields are equal, whatever the source of the spans."""
        if not isinstance(other, SpanRecord):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in SpanRecord.__dataclass_fields__)


@dataclass(frozen=True, slots=True)
class LogRecord:
    """One OTLP log record. Instrumentations write messages as log events, and some agents write tool calls."""

    name: str
    """The event name: the field `event_name`, else the attribute `event.name`, else empty."""
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


TelemetryRecord = SpanRecord | LogRecord
"""The telemetry that goldspan reads. Metrics contain no single calls."""


@dataclass(frozen=True)
class ComponentSelector:
    """Selects the spans that are the component of that name. All conditions must hold."""

    name: str
    span: str | None = None
    """A glob pattern of the span's name, which ignores case; `None`: any name."""
    attributes: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """Attributes that the span must have, with their values."""

    def matches(self, span_name: str, attributes: Mapping[str, Any]) -> bool:
        """Whether a span with that name and these attributes is selected."""
        if self.span is not None and not fnmatchcase(span_name.casefold(), self.span.casefold()):
            return False
        return all(
            key in attributes and is_same_value(attributes[key], value) for key, value in self.attributes.items()
        )


def is_same_value(left: Any, right: Any) -> bool:
    """Whether two attribute values are equal: 1 equals 1.0 but not `True`, and a tuple equals a list."""
    if isinstance(left, list | tuple) and isinstance(right, list | tuple):
        return len(left) == len(right) and all(map(is_same_value, left, right))
    return isinstance(left, bool) is isinstance(right, bool) and bool(left == right)
