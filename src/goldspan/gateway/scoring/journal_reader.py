"""Reads the shares of traces and sessions from journal entries, and decodes their records for scoring."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from goldspan.extraction import log_target
from goldspan.gateway.decoding.json_validation import exclusive_parsing
from goldspan.gateway.exporting.outgoing_requests import json_to_protobuf
from goldspan.gateway.journal.journal_file import JournalEntry
from goldspan.gateway.resource_limits import partition_of
from goldspan.gateway.scoring.telemetry_log import TelemetryLog
from goldspan.gateway.scoring.trace_buffer import StitchKey, TraceChunk, TraceGroup
from goldspan.gateway.scoring.trace_splitting import split_traces
from goldspan.model import LogRecord, SpanRecord, TelemetryRecord
from goldspan.otlp import otlp_json, otlp_protobuf
from goldspan.otlp.decode_results import DecodeError

_MAX_CACHED_ENTRIES = 8
DecodedT = TypeVar("DecodedT")

OwnsPartition = Callable[[int], bool]
"""Whether this worker scores a partition."""


@dataclass(frozen=True, slots=True)
class EntryShare:
    """The spans or log records of one trace or session in an entry."""

    key: StitchKey
    chunk: TraceChunk
    size: int
    """Approximate bytes."""
    span_count: int
    has_root: bool
    session: StitchKey | None = None
    """The key of its session, if it also belongs to one."""


def split_entry(entry: JournalEntry, owns_partition: OwnsPartition) -> list[EntryShare]:
    """Returns the shares of an entry that this worker scores. Raises `DecodeError` for an invalid entry.

    Protobuf spans are split without decoding. Held spans are returned as protobuf if possible.
    """
    if entry.signal == "metrics":
        return []
    if entry.signal == "logs":
        return list(_split_logs(entry, owns_partition))
    body = entry_as_protobuf(entry)
    if body is None:
        return list(_split_json_spans(entry, owns_partition))
    return [
        EntryShare(trace_id, part.body, len(part.body), part.span_count, part.has_root)
        for trace_id, part in split_traces(body).items()
        if owns_partition(partition_of(trace_id))
    ]


def entry_as_protobuf(entry: JournalEntry) -> bytes | None:
    """Returns the spans of an entry as a protobuf request; `None` if they must stay JSON.

    Held JSON is converted to protobuf, unless protobuf, which is stricter in places, would lose spans.
    """
    if entry.media == "protobuf":
        return entry.body
    if entry.origin != "held":
        return None
    try:
        body = json_to_protobuf("traces", entry.body)
        is_lossless = len(otlp_protobuf.decode_traces(body).spans) == len(
            _decode_json(entry.body, otlp_json.decode_traces).spans
        )
    except DecodeError:
        return None
    return body if is_lossless else None


class JournalReader:
    """Reads entries again for groups whose spans are not in memory, and caches the latest few.

    The cache is effective because few entries contain the spans of many traces.
    """

    def __init__(self) -> None:
        self._cache: OrderedDict[tuple[int, int], dict[StitchKey, list[TraceChunk]]] = OrderedDict()

    def read_chunks(
        self, log: TelemetryLog, log_number: int, entry_key: int, group: TraceGroup
    ) -> list[TraceChunk] | None:
        """Returns the chunks of an entry that belong to one group; `None` if the log no longer has the entry."""
        shares = self._cache.get((log_number, entry_key))
        if shares is None:
            entry = log.read_entry(entry_key)
            if entry is None:
                return None
            shares = self._cache[log_number, entry_key] = _chunks_by_key(entry)
            while len(self._cache) > _MAX_CACHED_ENTRIES:
                self._cache.popitem(last=False)
        else:
            self._cache.move_to_end((log_number, entry_key))
        chunks = [chunk for key in group.keys for chunk in shares.get(key, ())]
        return list({id(chunk): chunk for chunk in chunks}.values())  # a log is listed by trace and by session

    def clear_cache(self) -> None:
        """Remove all entries from the cache."""
        self._cache.clear()


def _chunks_by_key(entry: JournalEntry) -> dict[StitchKey, list[TraceChunk]]:
    shares: dict[StitchKey, list[TraceChunk]] = {}
    for share in split_entry(entry, lambda _: True):
        for stitch_key in {share.key, share.session} - {None}:
            shares.setdefault(stitch_key, []).append(share.chunk)
    return shares


def decode_chunks(chunks: Iterable[TraceChunk]) -> list[TelemetryRecord]:
    """Returns the spans and logs of a group in order of arrival."""
    records: list[TelemetryRecord] = []
    requests: list[bytes] = []
    for chunk in chunks:
        if isinstance(chunk, bytes):
            requests.append(chunk)
            continue
        records += _decode_protobuf(requests)
        requests.clear()
        records += chunk
    return records + _decode_protobuf(requests)


def _decode_protobuf(requests: list[bytes]) -> list[SpanRecord]:
    """Decode protobuf requests at once: concatenated, they are one request."""
    return otlp_protobuf.decode_traces(b"".join(requests)).spans if requests else []


def _split_json_spans(entry: JournalEntry, owns: OwnsPartition) -> Iterator[EntryShare]:
    traces: dict[str, list[TelemetryRecord]] = {}
    for span in _decode_json(entry.body, otlp_json.decode_traces).spans:
        traces.setdefault(span.trace_id, []).append(span)
    total = sum(map(len, traces.values()))
    for trace_id, spans in traces.items():
        key = bytes.fromhex(trace_id)
        if owns(partition_of(key)):
            has_root = any(span.parent_id is None for span in spans if isinstance(span, SpanRecord))
            yield EntryShare(key, spans, len(entry.body) * len(spans) // total, len(spans), has_root)


def _split_logs(entry: JournalEntry, owns: OwnsPartition) -> Iterator[EntryShare]:
    """Yields a share per log record. Most records do not concern an agent and are skipped."""
    if entry.media == "json":
        logs = _decode_json(entry.body, otlp_json.decode_logs).records
    else:
        logs = otlp_protobuf.decode_logs(entry.body).records
    size = len(entry.body) // max(1, len(logs))
    for log in logs:
        target = log_target(log) if isinstance(log, LogRecord) else None
        if target is None:
            continue
        trace_id, session = target
        service = log.resource.get("service.name")
        session_key: StitchKey | None = None
        if session is not None:
            session_key = ("session", None if service is None else str(service), session)
        key: StitchKey | None = bytes.fromhex(trace_id) if trace_id is not None else session_key
        # The logs of a session belong together, even if each names a different trace.
        owner = partition_of(str(session_key).encode() if session_key is not None else bytes.fromhex(trace_id or ""))
        if key is not None and owns(owner):
            yield EntryShare(key, [log], size, 1, has_root=False, session=session_key)


def _decode_json(body: bytes, decode: Callable[..., DecodedT]) -> DecodedT:
    """Parse and decode a JSON document, which is freed afterwards."""
    with exclusive_parsing(body):
        try:
            document = json.loads(body)
        except (ValueError, RecursionError) as error:
            raise DecodeError("not JSON") from error
        return decode(document, old_names=False)
