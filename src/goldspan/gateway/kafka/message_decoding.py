"""Decodes the messages of the Collector's Kafka exporter into log entries, and splits them by trace."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from opentelemetry.proto.logs.v1.logs_pb2 import LogsData, ResourceLogs, ScopeLogs

from goldspan.extraction import log_target
from goldspan.gateway.decoding.export_response import RequestRefused, ValidatedRequest
from goldspan.gateway.decoding.json_validation import exclusive_parsing
from goldspan.gateway.decoding.request_validation import validate_request
from goldspan.gateway.journal.journal_file import JournalEntry
from goldspan.gateway.resource_limits import ALL_PARTITIONS, Media, ResourceLimits, Signal
from goldspan.gateway.scoring.trace_splitting import split_traces
from goldspan.model import LogRecord
from goldspan.otlp import otlp_json, otlp_protobuf

SIGNAL_HEADER = "goldspan.signal"
"""The header of copied messages that contain logs."""


class UndecodableMessageError(Exception):
    """A message is not what the Collector writes. The text gives the reason."""


class KeyedMessage(NamedTuple):
    """The part of a message that belongs to one trace or session."""

    key: bytes
    value: bytes
    signal: Signal


def media_of(value: bytes) -> Media:
    """Returns the encoding of a message: `otlp_json` begins with a brace, which no OTLP message in protobuf does."""
    return "json" if value[:1] == b"{" else "protobuf"


def signal_of(headers: Any) -> Signal:
    """Returns the signal of a message in a topic that is scored."""
    return "logs" if headers and (SIGNAL_HEADER, b"logs") in headers else "traces"


def decode_message(
    value: bytes | None, signal: Signal, limits: ResourceLimits, *, key: int, arrived_ns: int
) -> tuple[JournalEntry | None, ValidatedRequest]:
    """Returns the log entry of a message, `None` if nothing of it is scored, and what was rejected.

    Raises `UndecodableMessageError` for a message that is not OTLP, or that exceeds a limit of requests.
    """
    validated = _validate(value, signal, limits)
    if not validated.item_count or value is None:
        return None, validated
    entry = JournalEntry(key, signal, media_of(value), "received", ALL_PARTITIONS, arrived_ns, validated.body)
    return entry, validated


def _validate(value: bytes | None, signal: Signal, limits: ResourceLimits) -> ValidatedRequest:
    if value is None:
        raise UndecodableMessageError("the message has no value")
    try:
        return validate_request(signal, media_of(value), value, limits, partitioned=False)
    except RequestRefused as refusal:
        raise UndecodableMessageError(refusal.response.message) from None


def split_message(value: bytes | None, signal: Signal, limits: ResourceLimits) -> list[KeyedMessage]:
    """Returns one message per trace. Logs that do not concern an agent are omitted.

    The logs of a session have the session as their key, because they belong together. Raises `UndecodableMessageError`.
    """
    validated = _validate(value, signal, limits)
    if not validated.item_count or value is None:
        return []
    body = validated.body
    if media_of(value) == "json":
        with exclusive_parsing(body):
            return list(_split_json(json.loads(body), signal))
    if signal == "logs":
        return list(_split_protobuf_logs(body))
    return [KeyedMessage(trace_id.hex().encode(), part.body, signal) for trace_id, part in split_traces(body).items()]


def _split_protobuf_logs(body: bytes) -> Iterator[KeyedMessage]:
    parts: dict[bytes, LogsData] = {}
    for resource_logs in LogsData.FromString(body).resource_logs:
        for scope_logs in resource_logs.scope_logs:
            for record in scope_logs.log_records:
                scope = ScopeLogs(scope=scope_logs.scope, schema_url=scope_logs.schema_url, log_records=[record])
                resource = ResourceLogs(
                    resource=resource_logs.resource, schema_url=resource_logs.schema_url, scope_logs=[scope]
                )
                data = LogsData(resource_logs=[resource])
                key = _log_key(otlp_protobuf.decode_logs(data.SerializeToString()).records)
                if key is not None:
                    parts.setdefault(key, LogsData()).resource_logs.append(resource)
    for key, part in parts.items():
        yield KeyedMessage(key, part.SerializeToString(), "logs")


class _JsonNames(NamedTuple):
    resources: str
    scopes: str
    items: str


_JSON_NAMES = {
    "traces": _JsonNames("resourceSpans", "scopeSpans", "spans"),
    "logs": _JsonNames("resourceLogs", "scopeLogs", "logRecords"),
}


def _split_json(document: dict[str, Any], signal: Signal) -> Iterator[KeyedMessage]:
    names = _JSON_NAMES[signal]
    key_of: Callable[[dict[str, Any], dict[str, Any]], bytes | None] = (
        _json_log_key if signal == "logs" else lambda _, span: str(span["traceId"]).lower().encode()
    )
    parts: dict[bytes, list[dict[str, Any]]] = {}
    for resource in document.get(names.resources) or ():
        for scope in resource.get(names.scopes) or ():
            items: dict[bytes, list[Any]] = {}
            for item in scope.get(names.items) or ():
                single = {**resource, names.scopes: [{**scope, names.items: [item]}]}
                key = key_of({names.resources: [single]}, item)
                if key is not None:
                    items.setdefault(key, []).append(item)
            for key, own in items.items():
                parts.setdefault(key, []).append({**resource, names.scopes: [{**scope, names.items: own}]})
    for key, resources in parts.items():
        yield KeyedMessage(key, json.dumps({names.resources: resources}).encode(), signal)


def _json_log_key(single: dict[str, Any], record: dict[str, Any]) -> bytes | None:
    return _log_key(otlp_json.decode_logs(single, old_names=False).records)


def _log_key(records: Any) -> bytes | None:
    """Returns the key of a log record: its session, else its trace; `None` if it does not concern an agent."""
    record = records[0] if records else None
    if not isinstance(record, LogRecord) or (target := log_target(record)) is None:
        return None
    trace_id, session = target
    if session is not None:
        return f"{record.resource.get('service.name')}:{session}".encode()
    return trace_id.encode() if trace_id is not None else None
