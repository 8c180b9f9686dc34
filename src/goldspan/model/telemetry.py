"""Which spans of a foreign instrumentation are a component, as golden files declare it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, make_dataclass
from fnmatch import fnmatchcase
from typing import Any, Literal, TypeVar


def content_digest(value: Any) -> str:
    """A short stable hash of plain values and of dataclasses; the order of dictionary keys does not matter."""
    return hashlib.blake2b(_canonical(value).encode(), digest_size=12).hexdigest()


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        return [type(value).__name__, {each.name: getattr(value, each.name) for each in fields(value)}]
    return repr(value)


_canonical = json.JSONEncoder(sort_keys=True, separators=(",", ":"), default=_plain).encode


T = TypeVar("T")


def fast_constructor(frozen: type[T]) -> type[T]:
    """A class that makes the values of a frozen, slotted dataclass in half the time.

    A frozen value is filled by way of `object.__setattr__`, one field after the other. A draft has the same slots, is
    filled like any other object, and becomes a value of the frozen class as soon as it is complete.
    """
    settle = getattr(frozen, "__post_init__", None)

    def freeze(draft: Any) -> None:
        draft.__class__ = frozen
        if settle is not None:
            settle(draft)

    described: Any = frozen
    copied = [
        (each.name, each.type, field(default=each.default, default_factory=each.default_factory))
        for each in fields(described)
    ]
    return make_dataclass(frozen.__name__, copied, namespace={"__post_init__": freeze}, slots=True, eq=False)


SpanStatus = Literal["unset", "ok", "error"]


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
        """The names of its attributes. Of a span read off the wire, nothing is decoded to answer."""
        return frozenset(self.attributes)

    def decode_attributes(self, keys: Iterable[str]) -> Mapping[str, Any]:
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


TelemetryRecord = SpanRecord | LogRecord
"""What telemetry is made of here. Metrics tell nothing of single calls."""


@dataclass(frozen=True)
class ComponentSelector:
    """The spans that are the component of that name: everything that is said must hold."""

    name: str
    span: str | None = None
    """A glob pattern of the span's name, compared without regard to case; `None`: any name."""
    attributes: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """Attributes that the span must have, with these values."""

    def matches(self, span_name: str, attributes: Mapping[str, Any]) -> bool:
        """Whether a span of that name, with those attributes, is one of them."""
        if self.span is not None and not fnmatchcase(span_name.casefold(), self.span.casefold()):
            return False
        return all(
            key in attributes and is_same_value(attributes[key], value) for key, value in self.attributes.items()
        )


def is_same_value(left: Any, right: Any) -> bool:
    """Whether two values of an attribute are the same: 1 is 1.0 and no truth value, and a tuple is a list."""
    if isinstance(left, list | tuple) and isinstance(right, list | tuple):
        return len(left) == len(right) and all(map(is_same_value, left, right))
    return isinstance(left, bool) is isinstance(right, bool) and bool(left == right)
