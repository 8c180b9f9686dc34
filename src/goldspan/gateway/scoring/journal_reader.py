"""Journal entries opened: whose spans are in them, and the records to be scored."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from goldspan.extraction import log_target
from goldspan.gateway.decoding.json_validation import exclusive_parsing
from goldspan.gateway.exporting.outgoing_requests import json_to_protobuf
from goldspan.gateway.journal.journal import Journal
from goldspan.gateway.journal.journal_entries import JournalEntry
from goldspan.gateway.resource_limits import partition_of
from goldspan.gateway.scoring.trace_buffer import StitchKey, TraceChunk, TraceGroup
from goldspan.gateway.scoring.trace_splitting import split_traces
from goldspan.model import LogRecord, SpanRecord, TelemetryRecord
from goldspan.otlp import otlp_json, otlp_protobuf
from goldspan.otlp.decode_results import DecodeError

_MAX_CACHED_ENTRIES = 8
DecodedT = TypeVar("DecodedT")

OwnsPartition = Callable[[int], bool]
"""Whether a partition is scored here."""


@dataclass(frozen=True, slots=True)
class EntryShare:
    """What an entry holds of one trace or session."""

    key: StitchKey
    chunk: TraceChunk
    size: int
    """Bytes, about."""
    span_count: int
    has_root: bool
    session: StitchKey | None = None
    """By what else it may be known."""


def split_entry(entry: JournalEntry, owns_partition: OwnsPartition) -> list[EntryShare]:
    """What an entry holds for this worker, by trace. Raises `DecodeError` where it cannot be read.

    Spans in protobuf are not decoded for it. Spans that are held are protobuf if that is possible.
    """
    if entry.signal == "metrics":
        return []
    if entry.signal == "logs":
        return list(_split_logs(entry, owns_partition))
    body = entry_as_protobuf(entry)
    if body is None:
        return list(_split_json_spans(entry, owns_partition))
    return [
        EntryShare(trace_id, piece.body, len(piece.body), piece.span_count, piece.has_root)
        for trace_id, piece in split_traces(body).items()
        if owns_partition(partition_of(trace_id))
    ]


def entry_as_protobuf(entry: JournalEntry) -> bytes | None:
    """The spans of an entry as they are divided by trace, and leave if they are held; `None`: as JSON.

    JSON that is held is turned into protobuf, unless that, which is stricter in places, would lose some of it.
    """
    if entry.media == "protobuf":
        return entry.body
    if entry.origin != "held":
        return None
    try:
        body = json_to_protobuf("traces", entry.body)
        whole = len(otlp_protobuf.decode_traces(body).spans) == len(
            _decode_json(entry.body, otlp_json.decode_traces).spans
        )
    except DecodeError:
        return None
    return body if whole else None


class JournalReader:
    """Entries opened once more, for bundles whose spans are not in memory. The latest few stay open.

    Late spans of many traces come in few entries, and so did the rest of those traces.
    """

    def __init__(self) -> None:
        self._cache: OrderedDict[tuple[int, int], dict[StitchKey, list[TraceChunk]]] = OrderedDict()

    def read_chunks(self, journal: Journal, journal_number: int, entry_key: int, group: TraceGroup) -> list[TraceChunk]:
        """What an entry holds of one bundle."""
        shares = self._cache.get((journal_number, entry_key))
        if shares is None:
            shares = self._cache[journal_number, entry_key] = self._chunks_by_key(journal, entry_key)
            while len(self._cache) > _MAX_CACHED_ENTRIES:
                self._cache.popitem(last=False)
        else:
            self._cache.move_to_end((journal_number, entry_key))
        parts = [part for stitch in group.keys for part in shares.get(stitch, ())]
        return list({id(part): part for part in parts}.values())  # a log is found by its trace and by its session

    def clear_cache(self) -> None:
        """Keep none open."""
        self._cache.clear()

    def _chunks_by_key(self, journal: Journal, key: int) -> dict[StitchKey, list[TraceChunk]]:
        shares: dict[StitchKey, list[TraceChunk]] = {}
        for entry in journal.read(key - 1, max_entries=1):
            for share in split_entry(entry, lambda _: True) if entry.key == key else ():
                for stitch in {share.key, share.session} - {None}:
                    shares.setdefault(stitch, []).append(share.chunk)
        return shares


def decode_chunks(chunks: Iterable[TraceChunk]) -> list[TelemetryRecord]:
    """The spans and logs of a bundle, in the order in which they came."""
    records: list[TelemetryRecord] = []
    written: list[bytes] = []
    for part in chunks:
        if isinstance(part, bytes):
            written.append(part)
            continue
        records += _decode_protobuf(written)
        written.clear()
        records += part
    return records + _decode_protobuf(written)


def _decode_protobuf(written: list[bytes]) -> list[SpanRecord]:
    """Protobuf requests back to back are one request."""
    return otlp_protobuf.decode_traces(b"".join(written)).spans if written else []


def _split_json_spans(entry: JournalEntry, owns: OwnsPartition) -> Iterator[EntryShare]:
    traces: dict[str, list[TelemetryRecord]] = {}
    for span in _decode_json(entry.body, otlp_json.decode_traces).spans:
        traces.setdefault(span.trace_id, []).append(span)
    total = sum(map(len, traces.values()))
    for trace_id, spans in traces.items():
        key = bytes.fromhex(trace_id)
        if owns(partition_of(key)):
            rooted = any(span.parent_id is None for span in spans if isinstance(span, SpanRecord))
            yield EntryShare(key, spans, len(entry.body) * len(spans) // total, len(spans), rooted)


def _split_logs(entry: JournalEntry, owns: OwnsPartition) -> Iterator[EntryShare]:
    """Logs one by one. Most are of no agent's work, and nothing is kept of them."""
    if entry.media == "json":
        logs = _decode_json(entry.body, otlp_json.decode_logs).records
    else:
        logs = otlp_protobuf.decode_logs(entry.body).records
    size = len(entry.body) // max(1, len(logs))
    for log in logs:
        told = log_target(log) if isinstance(log, LogRecord) else None
        if told is None:
            continue
        trace_id, session = told
        service = log.resource.get("service.name")
        named: StitchKey | None = None
        if session is not None:
            named = ("session", None if service is None else str(service), session)
        key: StitchKey | None = bytes.fromhex(trace_id) if trace_id is not None else named
        # The logs of a session may name a trace each, and belong together all the same.
        owner = partition_of(str(named).encode() if named is not None else bytes.fromhex(trace_id or ""))
        if key is not None and owns(owner):
            yield EntryShare(key, [log], size, 1, has_root=False, session=named)


def _decode_json(body: bytes, decode: Callable[..., DecodedT]) -> DecodedT:
    """What `decode` makes of a document, which is gone afterwards."""
    with exclusive_parsing(body):
        try:
            document = json.loads(body)
        except (ValueError, RecursionError) as error:
            raise DecodeError("not JSON") from error
        return decode(document, old_names=False)
