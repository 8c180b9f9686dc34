"""The outcome of decoding an export request, and its encoding as an HTTP or gRPC response."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any

from google.protobuf.duration_pb2 import Duration
from google.rpc.error_details_pb2 import RetryInfo  # type: ignore[import-untyped]
from google.rpc.status_pb2 import Status  # type: ignore[import-untyped]
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from goldspan.gateway.resource_limits import ALL_PARTITIONS, Media, ResourceLimits, Signal

MEDIA_TYPES: dict[Media, str] = {"protobuf": "application/x-protobuf", "json": "application/json"}

_INVALID_ARGUMENT, _UNKNOWN = 3, 2
_GRPC_CODES = {
    200: 0,  # OK
    401: 16,  # UNAUTHENTICATED
    403: 7,  # PERMISSION_DENIED
    404: 5,  # NOT_FOUND
    405: 12,  # UNIMPLEMENTED
    408: 4,  # DEADLINE_EXCEEDED
    413: 8,  # RESOURCE_EXHAUSTED, without a RetryInfo: a retry of the same request cannot succeed
    415: 12,  # UNIMPLEMENTED, which gRPC specifies for an unsupported compression
    429: 8,  # RESOURCE_EXHAUSTED
    431: 8,  # RESOURCE_EXHAUSTED
    500: 13,  # INTERNAL
    503: 14,  # UNAVAILABLE
}
_MAX_QUOTE_CHARACTERS = 200
_STATUS_DETAILS_KEY = "grpc-status-details-bin"

_RESPONSE_TYPES: dict[Signal, type[Any]] = {
    "traces": ExportTraceServiceResponse,
    "logs": ExportLogsServiceResponse,
    "metrics": ExportMetricsServiceResponse,
}
_REJECTED_FIELDS: dict[Signal, tuple[str, str]] = {
    "traces": ("rejected_spans", "rejectedSpans"),
    "logs": ("rejected_log_records", "rejectedLogRecords"),
    "metrics": ("rejected_data_points", "rejectedDataPoints"),
}
"""The partial success field with the number of rejected items, in protobuf and in JSON."""


@dataclass(frozen=True, slots=True)
class ExportResponse:
    """The response to one request, independent of the protocol."""

    http_status: int
    message: str = ""
    """A message for people. It contains parts of the request only after `quote_input`."""
    rejected: int = 0
    """Number of rejected items in an accepted request."""
    retry_after: float | None = None
    """Seconds after which the client may retry; `None` if it should not retry or the delay is unknown."""
    limit: str | None = None
    """Name of the limit that the request exceeds: a field of `ResourceLimits`."""

    @property
    def grpc_code(self) -> int:
        """The gRPC status code (`google.rpc.Code`) for `http_status`."""
        return _GRPC_CODES.get(self.http_status, _INVALID_ARGUMENT if self.http_status < 500 else _UNKNOWN)


class RequestRefused(Exception):  # noqa: N818 - an outcome, not an error of the gateway
    """The request is not accepted. `response` is the response to send."""

    def __init__(self, response: ExportResponse) -> None:
        super().__init__(response.message)
        self.response = response


def too_large(limit: str, message: str) -> RequestRefused:
    """Return the permanent refusal (413) of a request that exceeds a limit."""
    return RequestRefused(ExportResponse(413, message, limit=limit))


def malformed_request(reason: str, limit: str | None = None) -> RequestRefused:
    """Return the refusal (400) of a request that cannot be decoded."""
    return RequestRefused(ExportResponse(400, reason, limit=limit))


def quote_input(text: str) -> str:
    """Return a part of a request as it can appear in a message: shortened, printable and quoted."""
    return ascii(text if len(text) <= _MAX_QUOTE_CHARACTERS else text[: _MAX_QUOTE_CHARACTERS - 3] + "...")[
        : _MAX_QUOTE_CHARACTERS + 2
    ]


def http_response(response: ExportResponse, signal: Signal, media: Media) -> tuple[int, dict[str, str], bytes]:
    """Return the status, headers and body of the HTTP response."""
    headers = {"Content-Type": MEDIA_TYPES[media]}
    if response.retry_after is not None:
        headers["Retry-After"] = str(max(1, math.ceil(response.retry_after)))  # whole seconds: RFC 9110, section 10.2.3
    if media == "protobuf":
        message = _rpc_status(response) if response.grpc_code else _protobuf_message(response, signal)
        return response.http_status, headers, message.SerializeToString()
    document = (
        {"code": response.grpc_code, "message": response.message}
        if response.grpc_code
        else _json_document(response, signal)
    )
    return response.http_status, headers, json.dumps(document, separators=(",", ":")).encode()


def grpc_response(response: ExportResponse, signal: Signal) -> tuple[int, str, bytes, tuple[tuple[str, bytes], ...]]:
    """Return the code, details, response message and trailing metadata of the gRPC call.

    Clients retry after RESOURCE_EXHAUSTED only if the metadata contains a `RetryInfo`.
    """
    if not response.grpc_code:
        return 0, "", _protobuf_message(response, signal).SerializeToString(), ()
    if response.retry_after is None:
        return response.grpc_code, response.message, b"", ()
    return (
        response.grpc_code,
        response.message,
        b"",
        ((_STATUS_DETAILS_KEY, _rpc_status(response).SerializeToString()),),
    )


@dataclass(frozen=True, slots=True)
class ValidatedRequest:
    """A validated request: every item in `body` can be decoded."""

    body: bytes
    """The received body without rejected items and without the gateway's own telemetry. Empty if nothing is left."""
    item_count: int
    """Number of spans, log records or metrics in `body`."""
    rejected_count: int = 0
    """Number of items dropped because they cannot be decoded."""
    rejection_reason: str = ""
    """Why the first of them was rejected."""
    partitions: int = ALL_PARTITIONS
    """Bit mask of the partitions that the traces in `body` belong to."""


class ItemCounter:
    """Counts the accepted and rejected items of one request.

    Raises `RequestRefused` as soon as their number exceeds the limit.
    """

    def __init__(self, limits: ResourceLimits) -> None:
        self._limits = limits
        self.accepted = 0
        self.rejected = 0
        self.rejection_reason = ""
        self.is_modified = False
        """Whether the body differs from the received body."""

    def accept(self, number: int = 1) -> None:
        """Count valid items."""
        self.accepted += number
        check_item_count(self.accepted + self.rejected, self._limits)

    def reject(self, reason: str, number: int = 1) -> None:
        """Count items that cannot be decoded."""
        self.rejected += number
        self.rejection_reason = self.rejection_reason or reason
        self.is_modified = True
        check_item_count(self.accepted + self.rejected, self._limits)

    def result(self, body: bytes, partitions: int = ALL_PARTITIONS) -> ValidatedRequest:
        """Return the validated request. Raises `RequestRefused` if every item was rejected: not a partial success."""
        if self.rejected and not self.accepted:
            raise malformed_request(self.rejection_reason)
        return ValidatedRequest(
            body if self.accepted else b"", self.accepted, self.rejected, self.rejection_reason, partitions
        )


def check_item_count(number: int, limits: ResourceLimits) -> None:
    """Raise `RequestRefused` if a request has too many spans, log records or metrics."""
    if number > limits.max_spans:
        raise too_large("max_spans", f"the request has more than {limits.max_spans:,} spans, log records or metrics")


def check_attribute_count(number: int, limits: ResourceLimits) -> None:
    """Raise `RequestRefused` if a span or log record has too many attributes."""
    if number > limits.max_attributes:
        raise too_large("max_attributes", f"a span or log record has more than {limits.max_attributes:,} attributes")


def _protobuf_message(response: ExportResponse, signal: Signal) -> Any:
    message = _RESPONSE_TYPES[signal]()
    if response.rejected or response.message:
        setattr(message.partial_success, _REJECTED_FIELDS[signal][0], response.rejected)
        message.partial_success.error_message = response.message
    return message


def _json_document(response: ExportResponse, signal: Signal) -> dict[str, Any]:
    """Return the response message in proto3 JSON: zero and empty fields are omitted, and an int64 is a string."""
    partial: dict[str, Any] = {_REJECTED_FIELDS[signal][1]: str(response.rejected)} if response.rejected else {}
    if response.message:
        partial["errorMessage"] = response.message
    return {"partialSuccess": partial} if partial else {}


def _rpc_status(response: ExportResponse) -> Status:
    status = Status(code=response.grpc_code, message=response.message)
    if response.retry_after is not None:
        delay = Duration()
        delay.FromNanoseconds(math.ceil(response.retry_after * 1e9))
        status.details.add().Pack(RetryInfo(retry_delay=delay))
    return status
