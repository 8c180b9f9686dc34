"""The signals, partitions and resource limits of the gateway, and the response at each limit."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Literal, NamedTuple
from zlib import crc32

from goldspan.errors import ConfigurationError

Signal = Literal["traces", "logs", "metrics"]
Media = Literal["protobuf", "json"]
EntryOrigin = Literal["received", "held", "result", "enriched"]
"""Where a journal entry comes from.

`received`: from a client; `held`: from a client, exported only after scoring; `result`: written by scoring;
`enriched`: spans that were held, with results added.
"""
SCORED_ORIGINS: frozenset[EntryOrigin] = frozenset({"received", "held"})
"""Origins of the entries that are scored."""
EXPORTED_ORIGINS: frozenset[EntryOrigin] = frozenset({"received", "result", "enriched"})
"""Origins of the entries that are exported to back ends."""

PARTITION_COUNT = 32
"""Number of partitions. Each trace belongs to one partition, and one worker scores each partition."""
ALL_PARTITIONS = 2**PARTITION_COUNT - 1
"""A bit mask with every partition."""


def partition_of(trace_id: bytes) -> int:
    """Returns the partition of a trace. A checksum spreads trace ids that are not evenly distributed."""
    return crc32(trace_id) % PARTITION_COUNT


KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB


@dataclass(frozen=True, slots=True)
class ResourceLimits:
    """Limits of sizes, counts and times. `LIMITS` describes the response at each limit.

    Raises `ConfigurationError` for a limit that is not a positive number.
    """

    max_body_bytes: int = 16 * MIB
    """Bytes of a request as sent, before decompression."""
    max_inflated_bytes: int = 64 * MIB
    """Bytes of a request after decompression."""
    max_ratio: int = 200
    """Ratio of decompressed to sent bytes. Checked only above 16 MiB of decompressed bytes."""
    max_spans: int = 100_000
    """Spans, log records or metrics in one request."""
    max_attributes: int = 20_000
    """Attributes of one span or log record."""
    max_value_bytes: int = 16 * MIB
    """Bytes of one string."""
    max_values: int = 2_000_000
    """Fields, including nested ones, of all spans and log records larger than 256 KiB in one request. In JSON, commas
    and opening brackets are counted instead."""
    max_parsed_bytes: int = 192 * MIB
    """Estimated bytes of memory to parse one JSON request: about eight times its length, more with emoji. 20,000 spans
    of 12 attributes fit, or 12,000 if they contain an emoji."""
    max_connections: int = 2_000
    """Open connections."""
    max_requests: int = 256
    """Complete requests without a response yet."""
    max_received_bytes: int = 256 * MIB
    """Bytes of the bodies of requests without a response yet."""
    header_seconds: float = 10.0
    """Seconds in which the headers of a request must arrive."""
    body_seconds: float = 30.0
    """Seconds in which the body of a request must arrive."""
    keep_alive_seconds: float = 75.0
    """Seconds that a connection may be idle."""
    max_header_bytes: int = 64 * KIB
    """Bytes of the headers of a request."""
    max_journal_bytes: int = 8 * GIB
    """Bytes of acknowledged requests that the journal keeps until they are forwarded and scored."""
    max_backlog_bytes: int = 2 * GIB
    """Bytes of acknowledged requests that may wait for scoring, and separately of those held in incomplete traces."""
    max_held_bytes: int = 256 * MIB
    """Bytes of spans of incomplete traces in memory."""
    max_held_traces: int = 100_000
    """Traces that are incomplete or were scored recently."""
    max_spans_per_trace: int = 100_000
    """Spans of one trace."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            is_integer = field.type == "int"
            if isinstance(value, bool) or not isinstance(value, int if is_integer else (int, float)) or not value > 0:
                expected = "an integer of at least 1" if is_integer else "a number greater than 0"
                raise ConfigurationError(f"{field.name} must be {expected}, not {value!r}")
        if self.max_backlog_bytes > self.max_journal_bytes:
            raise ConfigurationError(
                f"max_backlog_bytes ({self.max_backlog_bytes}) must not exceed "
                f"max_journal_bytes ({self.max_journal_bytes})"
            )


MAX_DEPTH = 100
"""Nesting depth of messages and values. Not a setting: protobuf parsers, including those of back ends, define it."""


class LimitDescription(NamedTuple):
    """One row of the table of limits."""

    name: str
    default: float
    unit: str
    effect: str
    """What the gateway does when the limit is exceeded."""
    http_status: int | None = None
    """The HTTP status of the response; `None` if the limit causes no response."""
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
    _describe_limit("max_body_bytes", "bytes", "the request is refused while it is read", *_TOO_LARGE),
    _describe_limit("max_inflated_bytes", "bytes", "the request is refused while it is read", *_TOO_LARGE),
    _describe_limit("max_ratio", "times", "the request is refused while it is read", *_TOO_LARGE),
    _describe_limit("max_spans", "items", "the request is refused", *_TOO_LARGE),
    _describe_limit("max_attributes", "attributes", "the request is refused", *_TOO_LARGE),
    _describe_limit("max_value_bytes", "bytes", "the request is refused", *_TOO_LARGE),
    _describe_limit("max_values", "values", "the request is refused", *_TOO_LARGE),
    _describe_limit("max_parsed_bytes", "bytes", "the JSON request is refused before it is parsed", *_TOO_LARGE),
    LimitDescription(
        "max_depth", MAX_DEPTH, "levels", "the item is rejected, or the request is refused", 400, "INVALID_ARGUMENT"
    ),
    _describe_limit("max_connections", "connections", "the connection that has been idle longest is closed"),
    _describe_limit("max_requests", "requests", "the request is refused; the client may retry", *_TRY_LATER),
    _describe_limit(
        "max_received_bytes", "bytes", "a request is refused, slow ones first; the client may retry", *_TRY_LATER
    ),
    _describe_limit("header_seconds", "seconds", "the connection is closed"),
    _describe_limit(
        "body_seconds", "seconds", "the request is refused and the connection closed", 408, "DEADLINE_EXCEEDED"
    ),
    _describe_limit("keep_alive_seconds", "seconds", "the connection is closed"),
    _describe_limit(
        "max_header_bytes", "bytes", "the request is refused and the connection closed", 431, "RESOURCE_EXHAUSTED"
    ),
    _describe_limit("max_journal_bytes", "bytes", "the request is refused; the client may retry", *_OUT_OF_SPACE),
    _describe_limit("max_backlog_bytes", "bytes", "the request is forwarded but not scored"),
    _describe_limit("max_held_bytes", "bytes", "spans are read from the journal again when they are scored"),
    _describe_limit("max_held_traces", "traces", "the trace that has been held longest is scored early"),
    _describe_limit("max_spans_per_trace", "spans", "the trace is forwarded but not scored"),
)
"""Every limit. `goldspan.gateway.refused` counts each refusal, with the name of the limit as `goldspan.limit`."""
