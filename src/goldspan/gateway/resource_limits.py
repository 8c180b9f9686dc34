"""How much the gateway takes: every bound, and what is answered at it."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Literal, NamedTuple
from zlib import crc32

from goldspan.errors import ConfigurationError

Signal = Literal["traces", "logs", "metrics"]
Media = Literal["protobuf", "json"]
EntryOrigin = Literal["received", "held", "result", "enriched"]
"""`received` from a client, or from there and `held` until it is scored; the `result` of scoring, or what was held,
`enriched` with results.
"""
SCORED_ORIGINS: frozenset[EntryOrigin] = frozenset({"received", "held"})
"""What is scored."""
EXPORTED_ORIGINS: frozenset[EntryOrigin] = frozenset({"received", "result", "enriched"})
"""What is handed on."""

PARTITION_COUNT = 32
"""Each trace is in one of so many partitions, and each partition is scored by one worker."""
ALL_PARTITIONS = 2**PARTITION_COUNT - 1


def partition_of(trace_id: bytes) -> int:
    """The partition of a trace. Not all makers of trace ids fill them evenly, so it is taken from a checksum."""
    return crc32(trace_id) % PARTITION_COUNT


KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB


@dataclass(frozen=True, slots=True)
class ResourceLimits:
    """Bounds of what is taken, kept and waited for. `LIMITS` says what happens at each.

    Raises `ConfigurationError` for a bound that is no positive number.
    """

    max_body_bytes: int = 16 * MIB
    """Bytes of a request as it was sent, before inflating."""
    max_inflated_bytes: int = 64 * MIB
    """Bytes of a request after inflating."""
    max_ratio: int = 200
    """How many times as many bytes inflating may make of those sent. Only looked at above 16 MiB of them."""
    max_spans: int = 100_000
    """Spans, log records or metrics of a request."""
    max_attributes: int = 20_000
    """Attributes of a span or log record."""
    max_value_bytes: int = 16 * MIB
    """Bytes of one text."""
    max_values: int = 2_000_000
    """Fields of all kinds, nested ones too, of the spans and log records of a request that are larger than 256 KiB; in
    JSON, all commas and all brackets that open."""
    max_parsed_bytes: int = 192 * MIB
    """Bytes of memory that a request in JSON may take while it is parsed, as estimated from what is in it: about eight
    times its length, more with emoji. 20,000 spans of 12 attributes are let in, 12,000 where an emoji is among them."""
    max_connections: int = 2_000
    """Connections that are open at once."""
    max_requests: int = 256
    """Requests that are complete and not answered."""
    max_received_bytes: int = 256 * MIB
    """Bytes of the bodies of requests that are received and not answered."""
    header_seconds: float = 10.0
    """Seconds in which the head of a request has to be here."""
    body_seconds: float = 30.0
    """Seconds in which the body of a request has to be here."""
    keep_alive_seconds: float = 75.0
    """Seconds for which a connection may be idle."""
    max_header_bytes: int = 64 * KIB
    """Bytes of the head of a request."""
    max_journal_bytes: int = 8 * GIB
    """Bytes of acknowledged requests that are kept until they are forwarded and scored."""
    max_backlog_bytes: int = 2 * GIB
    """Bytes of acknowledged requests that may wait to be scored, and as many of those held until they are whole."""
    max_held_bytes: int = 256 * MIB
    """Bytes of spans in memory, of traces that are not whole."""
    max_held_traces: int = 100_000
    """Traces that are not whole, or were scored lately."""
    max_spans_per_trace: int = 100_000
    """Spans of one trace."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            whole = field.type == "int"
            if isinstance(value, bool) or not isinstance(value, int if whole else (int, float)) or not value > 0:
                wanted = "a whole number of at least 1" if whole else "a number of more than 0"
                raise ConfigurationError(f"{field.name} is {wanted}, not {value!r}")
        if self.max_backlog_bytes > self.max_journal_bytes:
            raise ConfigurationError(
                f"max_backlog_bytes, {self.max_backlog_bytes}, is more than all that the journal keeps "
                f"(max_journal_bytes, {self.max_journal_bytes})"
            )


MAX_DEPTH = 100
"""How deep messages and values may nest. Not a setting: it is what protobuf's parsers allow, those of back ends too."""


class LimitDescription(NamedTuple):
    """One line of the table of limits."""

    name: str
    default: float
    unit: str
    effect: str
    """What happens to what goes beyond it."""
    http_status: int | None = None
    """How it is answered over HTTP; `None` where there is nobody to answer."""
    grpc_code: str | None = None


_DEFAULTS = ResourceLimits()
_TOO_LARGE = 413, "RESOURCE_EXHAUSTED"
_TRY_LATER = 429, "RESOURCE_EXHAUSTED"
_OUT_OF_SPACE = 503, "UNAVAILABLE"


def _describe_limit(
    name: str, unit: str, effect: str, status: int | None = None, code: str | None = None
) -> LimitDescription:
    return LimitDescription(name, getattr(_DEFAULTS, name), unit, effect, status, code)


LIMITS: tuple[LimitDescription, ...] = (
    _describe_limit("max_body_bytes", "bytes", "the request is refused as soon as they are passed", *_TOO_LARGE),
    _describe_limit("max_inflated_bytes", "bytes", "the request is refused as soon as they are passed", *_TOO_LARGE),
    _describe_limit("max_ratio", "times", "the request is refused as soon as it is passed", *_TOO_LARGE),
    _describe_limit("max_spans", "items", "the request is refused", *_TOO_LARGE),
    _describe_limit("max_attributes", "attributes", "the request is refused", *_TOO_LARGE),
    _describe_limit("max_value_bytes", "bytes", "the request is refused", *_TOO_LARGE),
    _describe_limit("max_values", "values", "the request is refused", *_TOO_LARGE),
    _describe_limit("max_parsed_bytes", "bytes", "the request, which is in JSON, is refused unparsed", *_TOO_LARGE),
    LimitDescription(
        "max_depth", MAX_DEPTH, "levels", "the item is left out, or the request refused", 400, "INVALID_ARGUMENT"
    ),
    _describe_limit(
        "max_connections", "connections", "the connection that has waited longest for its client is closed"
    ),
    _describe_limit("max_requests", "requests", "the request is refused and may come again", *_TRY_LATER),
    _describe_limit(
        "max_received_bytes", "bytes", "a request is refused, slow ones first, and may come again", *_TRY_LATER
    ),
    _describe_limit("header_seconds", "seconds", "the connection is closed"),
    _describe_limit(
        "body_seconds", "seconds", "the request is refused and the connection closed", 408, "DEADLINE_EXCEEDED"
    ),
    _describe_limit("keep_alive_seconds", "seconds", "the connection is closed"),
    _describe_limit(
        "max_header_bytes", "bytes", "the request is refused and the connection closed", 431, "RESOURCE_EXHAUSTED"
    ),
    _describe_limit("max_journal_bytes", "bytes", "the request is refused and may come again", *_OUT_OF_SPACE),
    _describe_limit("max_backlog_bytes", "bytes", "the request is forwarded and not scored"),
    _describe_limit("max_held_bytes", "bytes", "spans are read from the journal once more when they are scored"),
    _describe_limit("max_held_traces", "traces", "the trace that has been held for longest is scored as it is"),
    _describe_limit("max_spans_per_trace", "spans", "the trace is forwarded and not scored"),
)
"""Every bound. Each refusal is counted as `goldspan.gateway.refused` with the limit's name as `goldspan.limit`."""
