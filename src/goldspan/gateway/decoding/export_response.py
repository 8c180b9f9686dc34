"""What reading a request comes to."""

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
    413: 8,  # RESOURCE_EXHAUSTED; without a RetryInfo, for the same request will never fit
    415: 12,  # UNIMPLEMENTED, as gRPC says for a compression that a server does not know
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
"""The field of a partial success that counts what was left out, in protobuf and in JSON."""


@dataclass(frozen=True, slots=True)
class ExportResponse:
    """What is answered to one request, whichever way it came."""

    http_status: int
    """The HTTP status."""
    message: str = ""
    """For people. Holds nothing of the request but what `quoted` made of it."""
    rejected: int = 0
    """Items of an accepted request that were left out."""
    retry_after: float | None = None
    """Seconds after which the same request may come again; `None` where it should not, or nobody can say when."""
    limit: str | None = None
    """The limit that was met, by its name in `LIMITS`."""

    @property
    def grpc_code(self) -> int:
        """The same as `status` among the codes of gRPC (`google.rpc.Code`)."""
        return _GRPC_CODES.get(self.http_status, _INVALID_ARGUMENT if self.http_status < 500 else _UNKNOWN)


class RequestRefused(Exception):  # noqa: N818 - it is an outcome, and no error of ours
    """A request is not accepted. Holds what to answer."""

    def __init__(self, response: ExportResponse) -> None:
        super().__init__(response.message)
        self.response = response


def too_large(limit: str, message: str) -> RequestRefused:
    """The refusal of what goes beyond a limit, and always will."""
    return RequestRefused(ExportResponse(413, message, limit=limit))


def quote_input(text: str) -> str:
    """A piece of a request as it may stand in a message: short, printable, in quotes."""
    return ascii(text if len(text) <= _MAX_QUOTE_CHARACTERS else text[: _MAX_QUOTE_CHARACTERS - 3] + "...")[
        : _MAX_QUOTE_CHARACTERS + 2
    ]


def http_response(response: ExportResponse, signal: Signal, media: Media) -> tuple[int, dict[str, str], bytes]:
    """Status, headers and body of the HTTP response."""
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
    """Code, details, response and trailing metadata of the gRPC call.

    Clients try again after RESOURCE_EXHAUSTED only where the metadata hold a `RetryInfo`.
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


def _protobuf_message(answer: ExportResponse, signal: Signal) -> Any:
    response = _RESPONSE_TYPES[signal]()
    if answer.rejected or answer.message:
        setattr(response.partial_success, _REJECTED_FIELDS[signal][0], answer.rejected)
        response.partial_success.error_message = answer.message
    return response


def _json_document(answer: ExportResponse, signal: Signal) -> dict[str, Any]:
    """The same in proto3 JSON: what is zero or empty is not written, and an int64 is text."""
    partial: dict[str, Any] = {_REJECTED_FIELDS[signal][1]: str(answer.rejected)} if answer.rejected else {}
    if answer.message:
        partial["errorMessage"] = answer.message
    return {"partialSuccess": partial} if partial else {}


def _rpc_status(answer: ExportResponse) -> Status:
    status = Status(code=answer.grpc_code, message=answer.message)
    if answer.retry_after is not None:
        delay = Duration()
        delay.FromNanoseconds(math.ceil(answer.retry_after * 1e9))
        status.details.add().Pack(RetryInfo(retry_delay=delay))
    return status


@dataclass(frozen=True, slots=True)
class ValidatedRequest:
    """A request that can be relied on: whoever reads `body` later can read all of it."""

    body: bytes
    """As it came, but without what was rejected and what the gateway made itself. Empty if nothing is left."""
    item_count: int
    """Spans, log records or metrics in it."""
    rejected_count: int = 0
    """Those that were left out because they cannot be read."""
    rejection_reason: str = ""
    """Why the first of them was."""
    partitions: int = ALL_PARTITIONS
    """A bit for each partition that a trace in it is of."""


class ItemCounter:
    """Counts the items of one request as they are kept or left out.

    Raises `Refused` as soon as there are more than are allowed.
    """

    def __init__(self, limits: ResourceLimits) -> None:
        self._limits = limits
        self.accepted = 0
        self.rejected = 0
        self.rejection_reason = ""
        self.is_modified = False
        """Whether the body is no longer as it came."""

    def accept(self, number: int = 1) -> None:
        """So many items are good."""
        self.accepted += number
        check_item_count(self.accepted + self.rejected, self._limits)

    def reject(self, reason: str, number: int = 1) -> None:
        """So many items cannot be read."""
        self.rejected += number
        self.rejection_reason = self.rejection_reason or reason
        self.is_modified = True
        check_item_count(self.accepted + self.rejected, self._limits)

    def result(self, body: bytes, partitions: int = ALL_PARTITIONS) -> ValidatedRequest:
        """The outcome. Raises `Refused` for a request in which nothing can be read: that is no partial success."""
        if self.rejected and not self.accepted:
            raise malformed_request(self.rejection_reason)
        return ValidatedRequest(
            body if self.accepted else b"", self.accepted, self.rejected, self.rejection_reason, partitions
        )


def check_item_count(number: int, limits: ResourceLimits) -> None:
    """Raises `Refused` for more spans, log records or metrics than a request may have."""
    if number > limits.max_spans:
        raise too_large("max_spans", f"the request has more than {limits.max_spans:,} spans, log records or metrics")


def check_attribute_count(number: int, limits: ResourceLimits) -> None:
    """Raises `Refused` for more attributes than a span may have."""
    most = limits.max_attributes
    if number > most:
        raise too_large("max_attributes", f"a span or log record has more than {most:,} attributes")


def malformed_request(reason: str, limit: str | None = None) -> RequestRefused:
    """The refusal of a request that nobody can read."""
    return RequestRefused(ExportResponse(400, reason, limit=limit))
