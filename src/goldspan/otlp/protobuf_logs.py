"""Log records from the bytes of an OTLP `ExportLogsServiceRequest`, the same on the wire as `LogsData`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from google.protobuf.message import DecodeError as ProtobufError
from opentelemetry.proto.logs.v1 import logs_pb2

from goldspan.model import LogRecord
from goldspan.otlp.attributes import Attributes, plain_pairs, plain_value
from goldspan.otlp.decoding import DecodeError
from goldspan.otlp.records import Batch, event_name, log_ids
from goldspan.otlp.schema import trace_message

_Envelopes = trace_message("TracesData", unread=["spans"])
"""A request whose items are bytes, so that each can be parsed by itself. The outline of logs is that of traces."""


def decode_logs(data: bytes) -> Batch:
    """All log records of one request. Raises `DecodeError` for bytes that are something else; no bytes are none.

    A record that is broken, or has text in it that is not UTF-8, is rejected alone.
    """
    try:
        request = _Envelopes.FromString(data)
    except ProtobufError as error:
        raise DecodeError("neither JSON nor an OTLP logs request in protobuf") from error
    if data and not request.resource_spans:
        raise DecodeError("a protobuf message, but no OTLP logs request")
    logs: list[LogRecord] = []
    rejected, reason = 0, ""
    for resource_logs in request.resource_spans:
        resource = Attributes(resource_logs.resource.attributes)
        for scope_logs in resource_logs.scope_spans:
            scope = scope_logs.scope.name
            for log in scope_logs.spans:
                try:
                    logs.append(_log(log, scope, resource))
                except DecodeError as error:
                    rejected, reason = rejected + 1, reason or str(error)
    return Batch(logs, rejected, reason)


def _log(data: bytes, scope: str, resource: Mapping[str, Any]) -> LogRecord:
    try:
        log = logs_pb2.LogRecord.FromString(data)
    except ProtobufError as error:
        raise DecodeError("a log record is broken, or text in it is not UTF-8") from error
    trace_id, span_id = log_ids(log.trace_id, log.span_id)
    attributes = plain_pairs(log.attributes)
    return LogRecord(
        event_name(log.event_name, attributes),
        attributes,
        plain_value(log.body),
        trace_id,
        span_id,
        log.time_unix_nano or log.observed_time_unix_nano or None,
        scope,
        resource,
    )
