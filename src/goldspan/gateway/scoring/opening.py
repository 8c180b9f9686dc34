"""Journal entries opened: whose spans are in them, and the records to be scored."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from goldspan.extraction import told_of
from goldspan.gateway.forwarding.parts import as_protobuf
from goldspan.gateway.intake.parsing import turn
from goldspan.gateway.journal.writing import Entry, Journal
from goldspan.gateway.scoring.splitting import split
from goldspan.gateway.scoring.traces import Bundle, Part, StitchKey
from goldspan.gateway.signals import partition_of
from goldspan.model import LogRecord, Record, SpanRecord
from goldspan.otlp import otlp_json, protobuf, protobuf_logs
from goldspan.otlp.decoding import DecodeError

_OPEN = 8
Decoded = TypeVar("Decoded")

Owns = Callable[[int], bool]
"""Whether a partition is scored here."""


@dataclass(frozen=True, slots=True)
class Share:
    """What an entry holds of one trace or session."""

    key: StitchKey
    part: Part
    size: int
    """Bytes, about."""
    spans: int
    rooted: bool
    session: StitchKey | None = None
    """By what else it may be known."""


def opened(entry: Entry, owns: Owns) -> list[Share]:
    """What an entry holds for this worker, by trace. Raises `DecodeError` where it cannot be read.

    Spans in protobuf are not decoded for it. Spans that are held are protobuf if that is possible.
    """
    if entry.signal == "metrics":
        return []
    if entry.signal == "logs":
        return list(_logs(entry, owns))
    body = spans_in_protobuf(entry)
    if body is None:
        return list(_json_spans(entry, owns))
    return [
        Share(trace_id, piece.body, len(piece.body), piece.spans, piece.rooted)
        for trace_id, piece in split(body).items()
        if owns(partition_of(trace_id))
    ]


def spans_in_protobuf(entry: Entry) -> bytes | None:
    """The spans of an entry as they are divided by trace, and leave if they are held; `None`: as JSON.

    JSON that is held is turned into protobuf, unless that, which is stricter in places, would lose some of it.
    """
    if entry.media == "protobuf":
        return entry.body
    if entry.origin != "held":
        return None
    try:
        body = as_protobuf("traces", entry.body)
        whole = len(protobuf.decode_traces(body).spans) == len(_parsed(entry.body, otlp_json.decode_traces).spans)
    except DecodeError:
        return None
    return body if whole else None


class Reopening:
    """Entries opened once more, for bundles whose spans are not in memory. The latest few stay open.

    Late spans of many traces come in few entries, and so did the rest of those traces.
    """

    def __init__(self) -> None:
        self._open: OrderedDict[tuple[int, int], dict[StitchKey, list[Part]]] = OrderedDict()

    def parts_of(self, journal: Journal, place: int, key: int, bundle: Bundle) -> list[Part]:
        """What an entry holds of one bundle."""
        shares = self._open.get((place, key))
        if shares is None:
            shares = self._open[place, key] = self._shares(journal, key)
            while len(self._open) > _OPEN:
                self._open.popitem(last=False)
        else:
            self._open.move_to_end((place, key))
        parts = [part for stitch in bundle.keys for part in shares.get(stitch, ())]
        return list({id(part): part for part in parts}.values())  # a log is found by its trace and by its session

    def close(self) -> None:
        """Keep none open."""
        self._open.clear()

    def _shares(self, journal: Journal, key: int) -> dict[StitchKey, list[Part]]:
        shares: dict[StitchKey, list[Part]] = {}
        for entry in journal.read(key - 1, max_entries=1):
            for share in opened(entry, lambda _: True) if entry.key == key else ():
                for stitch in {share.key, share.session} - {None}:
                    shares.setdefault(stitch, []).append(share.part)
        return shares


def records_of(parts: Iterable[Part]) -> list[Record]:
    """The spans and logs of a bundle, in the order in which they came."""
    records: list[Record] = []
    written: list[bytes] = []
    for part in parts:
        if isinstance(part, bytes):
            written.append(part)
            continue
        records += _decoded(written)
        written.clear()
        records += part
    return records + _decoded(written)


def _decoded(written: list[bytes]) -> list[SpanRecord]:
    """Protobuf requests back to back are one request."""
    return protobuf.decode_traces(b"".join(written)).spans if written else []


def _json_spans(entry: Entry, owns: Owns) -> Iterator[Share]:
    traces: dict[str, list[Record]] = {}
    for span in _parsed(entry.body, otlp_json.decode_traces).spans:
        traces.setdefault(span.trace_id, []).append(span)
    total = sum(map(len, traces.values()))
    for trace_id, spans in traces.items():
        key = bytes.fromhex(trace_id)
        if owns(partition_of(key)):
            rooted = any(span.parent_id is None for span in spans if isinstance(span, SpanRecord))
            yield Share(key, spans, len(entry.body) * len(spans) // total, len(spans), rooted)


def _logs(entry: Entry, owns: Owns) -> Iterator[Share]:
    """Logs one by one. Most are of no agent's work, and nothing is kept of them."""
    if entry.media == "json":
        logs = _parsed(entry.body, otlp_json.decode_logs).records
    else:
        logs = protobuf_logs.decode_logs(entry.body).records
    size = len(entry.body) // max(1, len(logs))
    for log in logs:
        told = told_of(log) if isinstance(log, LogRecord) else None
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
            yield Share(key, [log], size, 1, rooted=False, session=named)


def _parsed(body: bytes, decode: Callable[..., Decoded]) -> Decoded:
    """What `decode` makes of a document, which is gone afterwards."""
    with turn(body):
        try:
            document = json.loads(body)
        except (ValueError, RecursionError) as error:
            raise DecodeError("not JSON") from error
        return decode(document, old_names=False)
