"""Queues pending requests of an exporter, converts and splits them."""

from __future__ import annotations

import base64
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from google.protobuf.json_format import ParseDict, ParseError
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from goldspan.gateway.decoding.json_validation import exclusive_parsing
from goldspan.gateway.exporting.backoff import INITIAL_BACKOFF_SECONDS, backoff_seconds
from goldspan.gateway.journal.journal_file import JournalEntry
from goldspan.gateway.resource_limits import Media, Signal
from goldspan.otlp.decode_results import DecodeError
from goldspan.otlp.json_fields import parse_json
from goldspan.otlp.protobuf_errors import PROTOBUF_ERRORS

MAX_ENTRIES_AHEAD = 1_000
"""Maximum number of entries sent beyond the first pending one. They are sent again after a `kill -9`."""
MAX_QUEUE_BYTES = 16 * 2**20
"""No more entries are read while the queue holds this many bytes."""
POISON_STRIKES = 10
POISON_ACCEPTED_REQUESTS = 500
"""A request is dropped after `POISON_STRIKES` failures while the back end accepted this many other requests."""

_REQUEST_TYPES: Mapping[Signal, Any] = {
    "traces": ExportTraceServiceRequest,
    "logs": ExportLogsServiceRequest,
    "metrics": ExportMetricsServiceRequest,
}
_NESTING_FIELDS: Mapping[Signal, tuple[str, str, str]] = {
    "traces": ("resource_spans", "scope_spans", "spans"),
    "logs": ("resource_logs", "scope_logs", "log_records"),
    "metrics": ("resource_metrics", "scope_metrics", "metrics"),
}
_ID_FIELDS = frozenset({"traceId", "spanId", "parentSpanId"})
_DEPRECATED_NAMES = {f"instrumentationLibrary{items}": f"scope{items}" for items in ("Spans", "Logs", "Metrics")} | {
    "instrumentationLibrary": "scope"
}
"""OTLP's field names for scopes before 2022, and their current names. The messages are the same."""


class OutgoingRequest(NamedTuple):
    """The body of one request and its encoding."""

    media: Media
    body: bytes


@dataclass(slots=True, eq=False)
class PendingEntry:
    """A journal entry that is not yet accepted or rejected."""

    key: int
    position: int
    """Number of entries read before it."""
    size: int
    requests: deque[OutgoingRequest]
    """The requests still to send: one for the entry, or several after a split."""
    accepted_before: int
    """Number of requests that the back end had accepted when the entry was read."""
    accepted_at_attempt: int
    """The same at the last attempt."""
    attempts: int = 0
    strikes: int = 0
    """Number of repeated failures while the back end accepted other requests."""
    retry_at: float = 0.0
    is_in_flight: bool = False
    backoff_round: int = 0
    """`Backoff.round` at the last attempt."""

    def record_failure(
        self, now: float, accepted: int, *, is_throttled: bool, random_fraction: Callable[[], float]
    ) -> None:
        """Record a failed attempt. If other requests were accepted meanwhile, the entry gets its own backoff."""
        self.attempts += 1
        if accepted > self.accepted_at_attempt and self.attempts > 1 and not is_throttled:
            self.strikes += 1
            self.retry_at = now + backoff_seconds(
                self.strikes, initial=INITIAL_BACKOFF_SECONDS, random_fraction=random_fraction
            )
        self.accepted_at_attempt = accepted

    def is_poison(self, accepted: int) -> bool:
        """Whether this entry itself must be at fault, because the back end accepted many other requests."""
        return self.strikes >= POISON_STRIKES and accepted - self.accepted_before >= POISON_ACCEPTED_REQUESTS

    def replace_first_request(self, requests: Iterable[OutgoingRequest]) -> None:
        """Replace the first request by others."""
        self.requests.popleft()
        self.requests.extendleft(reversed([*requests]))


class SendingQueue:
    """A bounded queue of pending entries in journal order. It is not thread-safe."""

    def __init__(self) -> None:
        self._entries: dict[int, PendingEntry] = {}
        self._read_count = 0
        self.queued_bytes = 0
        """Total size of the queued entries."""

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def first_key(self) -> int | None:
        """Key of the first pending entry, or `None`."""
        return next(iter(self._entries), None)

    def add(self, entry: JournalEntry, accepted: int) -> None:
        """Add an entry. `accepted` is the number of requests that the back end has accepted so far."""
        request = OutgoingRequest(entry.media, entry.body)
        self._entries[entry.key] = PendingEntry(
            entry.key, self._read_count, len(entry.body), deque([request]), accepted, accepted
        )
        self._read_count += 1
        self.queued_bytes += len(entry.body)

    def next_due(self, now: float) -> PendingEntry | None:
        """Return the first of the due entries with the fewest attempts, or `None`."""
        due = [entry for entry in self._idle_entries() if entry.retry_at <= now]
        return min(due, key=lambda entry: entry.attempts, default=None)

    def next_due_time(self) -> float | None:
        """Return the time at which the next entry is due, or `None` if none is waiting."""
        return min((entry.retry_at for entry in self._idle_entries()), default=None)

    def has_capacity(self) -> bool:
        """Whether to read more entries: every queued entry was attempted, and the queue is below its limits."""
        if self.queued_bytes >= MAX_QUEUE_BYTES:
            return False
        first = next(iter(self._entries.values()), None)
        # Each attempt allows one more entry: only accepted requests show that the first entry itself is at fault.
        if first is not None and self._read_count - first.position >= MAX_ENTRIES_AHEAD + first.attempts:
            return False
        return all(entry.attempts or entry.is_in_flight for entry in self._entries.values())

    def complete_request(self, pending: PendingEntry) -> None:
        """Remove the first request of an entry, and the entry with its last request."""
        pending.requests.popleft()
        pending.attempts = pending.strikes = 0
        if not pending.requests:
            del self._entries[pending.key]
            self.queued_bytes -= pending.size

    def _idle_entries(self) -> list[PendingEntry]:
        return [entry for entry in self._entries.values() if not entry.is_in_flight]


def json_to_protobuf(signal: Signal, body: bytes) -> bytes:
    """Convert an OTLP/JSON request to protobuf, which gRPC needs.

    OTLP/JSON is proto3 JSON except for its IDs, which are hexadecimal. The function converts them to base64, and the
    protobuf library parses the rest. Unknown fields (including snake_case names) and invalid spans, log records and
    metrics are dropped, as OTLP/JSON requires of receivers.

    Raises `DecodeError` if the body is not a request.
    """
    with exclusive_parsing(body):
        try:
            text = body.decode("utf-8-sig").strip()
            document, end = parse_json(text)
        except ValueError as error:
            raise DecodeError("not JSON") from error
        if end < len(text) or not isinstance(document, dict):
            raise DecodeError("not a JSON object")
        proto3_document = _to_proto3_json(document)
        try:
            return _serialize(proto3_document, signal)
        except ParseError:
            _drop_invalid_items(proto3_document, signal)
        try:
            return _serialize(proto3_document, signal)
        except ParseError as error:
            raise DecodeError("not OTLP/JSON") from error


def to_protobuf(signal: Signal, request: OutgoingRequest) -> OutgoingRequest:
    """Return the request in protobuf. Raises `DecodeError` if it cannot be decoded."""
    return (
        request if request.media == "protobuf" else OutgoingRequest("protobuf", json_to_protobuf(signal, request.body))
    )


def split_in_half(signal: Signal, request: OutgoingRequest) -> tuple[OutgoingRequest, OutgoingRequest] | None:
    """Split a request into two with about half of the items each. Returns `None` if it cannot be split.

    The split is between resources, else between scopes, else between items. Both halves contain the levels above it.
    """
    try:
        first = _REQUEST_TYPES[signal].FromString(to_protobuf(signal, request).body)
    except (*PROTOBUF_ERRORS, DecodeError):
        return None
    second = type(first)()
    second.CopyFrom(first)
    if not _split_first_list(first, second, _NESTING_FIELDS[signal]):
        return None
    return OutgoingRequest("protobuf", first.SerializeToString()), OutgoingRequest(
        "protobuf", second.SerializeToString()
    )


def _split_first_list(first: Any, second: Any, levels: tuple[str, ...]) -> bool:
    for level in levels:
        left, right = getattr(first, level), getattr(second, level)
        if not left:
            return False
        if len(left) > 1:
            half = len(left) // 2
            del left[half:]
            del right[:half]
            return True
        first, second = left[0], right[0]
    return False


def _serialize(document: Any, signal: Signal) -> bytes:
    request = ParseDict(document, _REQUEST_TYPES[signal](), ignore_unknown_fields=True)
    return bytes(request.SerializeToString())


def _to_proto3_json(node: Any) -> Any:
    """Convert part of an OTLP/JSON document to proto3 JSON. Attribute keys are values in it and stay unchanged."""
    if isinstance(node, dict):
        return {
            _DEPRECATED_NAMES.get(name, name): _id_to_base64(value) if name in _ID_FIELDS else _to_proto3_json(value)
            for name, value in node.items()
            if "_" not in name
        }
    if isinstance(node, list):
        return [_to_proto3_json(item) for item in node if item is not None]
    return node


def _id_to_base64(value: Any) -> Any:
    try:
        return base64.b64encode(bytes.fromhex(value)).decode()
    except (ValueError, TypeError):
        return value if value is None else False  # not valid as bytes, so the item is dropped


def _drop_invalid_items(document: Any, signal: Signal) -> None:
    for scope, field in _scopes_with_items(document, signal):
        scope[field] = [item for item in scope[field] if _is_valid_item(item, field, signal)]


def _scopes_with_items(document: Any, signal: Signal) -> Iterator[tuple[dict[str, Any], str]]:
    """Yield each scope object with a list of items, and the name of that list."""
    resources, scopes, items = (_camel_case(level) for level in _NESTING_FIELDS[signal])
    for resource in _child_objects(document, resources):
        for scope in _child_objects(resource, scopes):
            if isinstance(scope.get(items), list):
                yield scope, items


def _child_objects(parent: Any, field: str) -> list[dict[str, Any]]:
    children = parent.get(field) if isinstance(parent, dict) else None
    return [child for child in children if isinstance(child, dict)] if isinstance(children, list) else []


def _is_valid_item(item: Any, field: str, signal: Signal) -> bool:
    resources, scopes, _ = (_camel_case(level) for level in _NESTING_FIELDS[signal])
    document = {resources: [{scopes: [{field: [item]}]}]}
    try:
        _serialize(document, signal)
    except ParseError:
        return False
    return True


def _camel_case(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(map(str.capitalize, rest))
