"""The entries that are on their way to a back end: read from the journal, and not settled yet."""

from __future__ import annotations

import base64
import random
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from google.protobuf.json_format import ParseDict, ParseError
from google.protobuf.message import DecodeError as ProtobufError
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from goldspan.gateway.decoding.json_validation import exclusive_parsing
from goldspan.gateway.journal.journal_entries import JournalEntry
from goldspan.gateway.resource_limits import Media, Signal
from goldspan.otlp.decode_results import DecodeError
from goldspan.otlp.json_fields import parse_json

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
_DEPRECATED_NAMES = {f"instrumentationLibrary{what}": f"scope{what}" for what in ("Spans", "Logs", "Metrics")} | {
    "instrumentationLibrary": "scope"
}
"""What OTLP called scopes before 2022, with the names of today: the messages are the same."""


class OutgoingRequest(NamedTuple):
    """What is sent as one request."""

    media: Media
    body: bytes


def json_to_protobuf(signal: Signal, body: bytes) -> bytes:
    """A request in OTLP/JSON as the same in protobuf, which gRPC needs.

    OTLP/JSON is proto3 JSON but for its ids, which are hexadecimal there: they are put into base64, and protobuf's own
    reader does the rest. Fields that OTLP/JSON does not know (snake_case names among them) are left out, and so is any
    single span, log record or metric that is wrong, as receivers of OTLP/JSON are to do.

    Raises `DecodeError` for what is no request at all.
    """
    with exclusive_parsing(body):
        try:
            text = body.decode("utf-8-sig").strip()
            document, end = parse_json(text)
        except ValueError as error:
            raise DecodeError("no JSON") from error
        if end < len(text) or not isinstance(document, dict):
            raise DecodeError("no JSON object")
        plain = _to_proto3_json(document)
        try:
            return _serialize(plain, signal)
        except ParseError:
            _drop_invalid_items(plain, signal)
        try:
            return _serialize(plain, signal)
        except ParseError as error:
            raise DecodeError("no OTLP/JSON") from error


def to_protobuf(signal: Signal, request: OutgoingRequest) -> OutgoingRequest:
    """The same in protobuf, whatever it is in. Raises `DecodeError` for what cannot be read."""
    return (
        request if request.media == "protobuf" else OutgoingRequest("protobuf", json_to_protobuf(signal, request.body))
    )


def split_in_half(signal: Signal, request: OutgoingRequest) -> tuple[OutgoingRequest, OutgoingRequest] | None:
    """A request as two, each with about half of the items; `None` where there is nothing to divide.

    It is cut between resources, else between scopes, else between items, and what stands above the cut is in both.
    """
    try:
        first = _REQUEST_TYPES[signal].FromString(to_protobuf(signal, request).body)
    except (ProtobufError, DecodeError):
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
    """A part of an OTLP/JSON document as plain proto3 JSON. Attribute keys are values there, and never renamed."""
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
        return value if value is None else False  # which no reader takes for bytes: the item is left out


def _drop_invalid_items(document: Any, signal: Signal) -> None:
    for scope, field in _scopes_with_items(document, signal):
        scope[field] = [item for item in scope[field] if _is_valid_item(item, field, signal)]


def _scopes_with_items(document: Any, signal: Signal) -> Iterator[tuple[dict[str, Any], str]]:
    """Each object with a list of items in it, and the name of that list."""
    resources, scopes, items = (_camel_case(level) for level in _NESTING_FIELDS[signal])
    for resource in _child_objects(document, resources):
        for scope in _child_objects(resource, scopes):
            if isinstance(scope.get(items), list):
                yield scope, items


def _child_objects(parent: Any, field: str) -> list[dict[str, Any]]:
    given = parent.get(field) if isinstance(parent, dict) else None
    return [item for item in given if isinstance(item, dict)] if isinstance(given, list) else []


def _is_valid_item(item: Any, field: str, signal: Signal) -> bool:
    resources, scopes, _ = (_camel_case(level) for level in _NESTING_FIELDS[signal])
    alone = {resources: [{scopes: [{field: [item]}]}]}
    try:
        _serialize(alone, signal)
    except ParseError:
        return False
    return True


def _camel_case(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(map(str.capitalize, rest))


INITIAL_BACKOFF_SECONDS = 1.0
MAX_BACKOFF_SECONDS = 60.0
MISCONFIGURED_BACKOFF_SECONDS = 15.0
"""The first pause where a setting is wrong: trying again helps only once somebody has seen to it."""


def backoff_seconds(failures: int, *, initial: float, random_fraction: Callable[[], float]) -> float:
    """Seconds to wait after so many failures in a row: exponential, with full jitter.

    Anything between none and twice as much as the time before, up to `MAX_SECONDS`, so that those who failed together
    do not come back together ("Exponential Backoff And Jitter", AWS Architecture Blog, 2015).
    """
    return min(MAX_BACKOFF_SECONDS, initial * 2.0 ** min(failures - 1, 16)) * random_fraction()


class Backoff:
    """When a back end that fails is tried again: at first with a single request, and freely once it takes one.

    What fails of the same round, since several requests are under way at once, counts as one failure.
    """

    def __init__(self, random_fraction: Callable[[], float] = random.random) -> None:
        self._random_fraction = random_fraction
        self.failures = 0
        """How many rounds failed in a row."""
        self.round = 0
        """Which round a request that is started now belongs to."""
        self.retry_at = 0.0
        """Nothing is started before."""

    @property
    def is_failing(self) -> bool:
        """Whether the latest that is known of the back end is that it took nothing."""
        return self.failures > 0

    def record_failure(
        self, started_in_round: int, now: float, *, retry_after_seconds: float | None, is_misconfigured: bool
    ) -> None:
        """A request that was started in that round failed; `wait` seconds at least were asked for."""
        rest = retry_after_seconds or 0.0
        if started_in_round == self.round:
            self.round += 1
            self.failures += 1
            initial = MISCONFIGURED_BACKOFF_SECONDS if is_misconfigured else INITIAL_BACKOFF_SECONDS
            rest = max(rest, backoff_seconds(self.failures, initial=initial, random_fraction=self._random_fraction))
        self.retry_at = max(self.retry_at, now + rest)

    def record_success(self) -> None:
        """The back end took something, or said for good that it will not."""
        if self.failures:
            self.failures = 0
            self.round += 1  # what is still under way and fails is of an earlier one


MAX_ENTRIES_AHEAD = 1_000
"""How many entries behind the first unsettled one are sent at most: after a `kill -9` these are sent again."""
MAX_QUEUE_BYTES = 16 * 2**20
"""No more entries are read while so much is held."""
POISON_STRIKES = 10
POISON_ACCEPTED_REQUESTS = 500
"""A request that failed `STRIKES` times while the back end took so many others is itself at fault, and is given up."""


@dataclass(slots=True, eq=False)
class PendingEntry:
    """One entry that is not settled."""

    key: int
    position: int
    """How many were read before it."""
    size: int
    requests: deque[OutgoingRequest]
    """What of it is still to be sent: the whole, or pieces of it."""
    accepted_before: int
    """How many requests the back end had taken when it was read."""
    accepted_at_attempt: int
    attempts: int = 0
    strikes: int = 0
    """How often it failed again although others were taken meanwhile."""
    retry_at: float = 0.0
    is_in_flight: bool = False
    backoff_round: int = 0
    """Of the pace, when it was sent last."""

    def record_failure(
        self, now: float, accepted: int, *, is_throttled: bool, random_fraction: Callable[[], float]
    ) -> None:
        """Take note that it was not taken this time. Where others were, it waits longer each time than they do."""
        self.attempts += 1
        if accepted > self.accepted_at_attempt and self.attempts > 1 and not is_throttled:
            self.strikes += 1
            self.retry_at = now + backoff_seconds(
                self.strikes, initial=INITIAL_BACKOFF_SECONDS, random_fraction=random_fraction
            )
        self.accepted_at_attempt = accepted

    def is_poison(self, accepted: int) -> bool:
        """Whether so many others were taken that the fault must be its own."""
        return self.strikes >= POISON_STRIKES and accepted - self.accepted_before >= POISON_ACCEPTED_REQUESTS

    def replace_first_request(self, requests: Iterable[OutgoingRequest]) -> None:
        """Have other parts sent instead of the first."""
        self.requests.popleft()
        self.requests.extendleft(reversed([*requests]))


class SendingQueue:
    """What was read and is not settled, in the order of the journal. It is bounded. For one thread at a time."""

    def __init__(self) -> None:
        self._entries: dict[int, PendingEntry] = {}
        self._read_count = 0
        self.queued_bytes = 0
        """Bytes of entries."""

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def first_key(self) -> int | None:
        """The first entry that is not settled; `None`: all are."""
        return next(iter(self._entries), None)

    def add(self, entry: JournalEntry, accepted: int) -> None:
        """Take an entry in, when the back end had taken so many requests."""
        part = OutgoingRequest(entry.media, entry.body)
        self._entries[entry.key] = PendingEntry(
            entry.key, self._read_count, len(entry.body), deque([part]), accepted, accepted
        )
        self._read_count += 1
        self.queued_bytes += len(entry.body)

    def next_due(self, now: float) -> PendingEntry | None:
        """Of what may be sent now, the first that was tried least."""
        waiting = [each for each in self._idle_entries() if each.retry_at <= now]
        return min(waiting, key=lambda each: each.attempts, default=None)

    def next_due_time(self) -> float | None:
        """From when on something may be sent; `None`: nothing waits."""
        return min((each.retry_at for each in self._idle_entries()), default=None)

    def has_capacity(self) -> bool:
        """Whether further entries are to be read: all that are here were tried, and there is room."""
        if self.queued_bytes >= MAX_QUEUE_BYTES:
            return False
        first = next(iter(self._entries.values()), None)
        # One more with each attempt: only if others are taken is it known that the first one itself is at fault.
        if first is not None and self._read_count - first.position >= MAX_ENTRIES_AHEAD + first.attempts:
            return False
        return all(each.attempts or each.is_in_flight for each in self._entries.values())

    def complete_request(self, pending: PendingEntry) -> None:
        """Take note that the first part of an entry is settled, and with the last one all of it."""
        pending.requests.popleft()
        pending.attempts = pending.strikes = 0
        if not pending.requests:
            del self._entries[pending.key]
            self.queued_bytes -= pending.size

    def _idle_entries(self) -> list[PendingEntry]:
        return [each for each in self._entries.values() if not each.is_in_flight]
