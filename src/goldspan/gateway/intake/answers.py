"""What a client is told: an answer once, written as OTLP/HTTP and as OTLP/gRPC want it.

After the OTLP specification, sections "OTLP/gRPC Response" and "OTLP/HTTP Response": an accepted request is answered
with the response message of its signal, which says what of it was left out; a refused one with a `google.rpc.Status`,
in the media type of the request. Whether to come again, and when, is in `Retry-After`, or in a `RetryInfo`.
"""

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

from goldspan.gateway.signals import Media, Signal

MEDIA_TYPES: dict[Media, str] = {"protobuf": "application/x-protobuf", "json": "application/json"}

_INVALID_ARGUMENT, _UNKNOWN = 3, 2
_CODES = {
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
_LONGEST_QUOTE = 200
_STATUS_DETAILS = "grpc-status-details-bin"

_RESPONSES: dict[Signal, type[Any]] = {
    "traces": ExportTraceServiceResponse,
    "logs": ExportLogsServiceResponse,
    "metrics": ExportMetricsServiceResponse,
}
_REJECTED: dict[Signal, tuple[str, str]] = {
    "traces": ("rejected_spans", "rejectedSpans"),
    "logs": ("rejected_log_records", "rejectedLogRecords"),
    "metrics": ("rejected_data_points", "rejectedDataPoints"),
}
"""The field of a partial success that counts what was left out, in protobuf and in JSON."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What is answered to one request, whichever way it came."""

    status: int
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
    def code(self) -> int:
        """The same as `status` among the codes of gRPC (`google.rpc.Code`)."""
        return _CODES.get(self.status, _INVALID_ARGUMENT if self.status < 500 else _UNKNOWN)


class Refused(Exception):  # noqa: N818 - it is an outcome, and no error of ours
    """A request is not accepted. Holds what to answer."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(answer.message)
        self.answer = answer


def too_large(limit: str, message: str) -> Refused:
    """The refusal of what goes beyond a limit, and always will."""
    return Refused(Answer(413, message, limit=limit))


def quoted(text: str) -> str:
    """A piece of a request as it may stand in a message: short, printable, in quotes."""
    return ascii(text if len(text) <= _LONGEST_QUOTE else text[: _LONGEST_QUOTE - 3] + "...")[: _LONGEST_QUOTE + 2]


def http_answer(answer: Answer, signal: Signal, media: Media) -> tuple[int, dict[str, str], bytes]:
    """Status, headers and body of the HTTP response."""
    headers = {"Content-Type": MEDIA_TYPES[media]}
    if answer.retry_after is not None:
        headers["Retry-After"] = str(max(1, math.ceil(answer.retry_after)))  # whole seconds: RFC 9110, section 10.2.3
    if media == "protobuf":
        message = _status(answer) if answer.code else _response(answer, signal)
        return answer.status, headers, message.SerializeToString()
    document = {"code": answer.code, "message": answer.message} if answer.code else _document(answer, signal)
    return answer.status, headers, json.dumps(document, separators=(",", ":")).encode()


def grpc_answer(answer: Answer, signal: Signal) -> tuple[int, str, bytes, tuple[tuple[str, bytes], ...]]:
    """Code, details, response and trailing metadata of the gRPC call.

    Clients try again after RESOURCE_EXHAUSTED only where the metadata hold a `RetryInfo`.
    """
    if not answer.code:
        return 0, "", _response(answer, signal).SerializeToString(), ()
    if answer.retry_after is None:
        return answer.code, answer.message, b"", ()
    return answer.code, answer.message, b"", ((_STATUS_DETAILS, _status(answer).SerializeToString()),)


def _response(answer: Answer, signal: Signal) -> Any:
    response = _RESPONSES[signal]()
    if answer.rejected or answer.message:
        setattr(response.partial_success, _REJECTED[signal][0], answer.rejected)
        response.partial_success.error_message = answer.message
    return response


def _document(answer: Answer, signal: Signal) -> dict[str, Any]:
    """The same in proto3 JSON: what is zero or empty is not written, and an int64 is text."""
    partial: dict[str, Any] = {_REJECTED[signal][1]: str(answer.rejected)} if answer.rejected else {}
    if answer.message:
        partial["errorMessage"] = answer.message
    return {"partialSuccess": partial} if partial else {}


def _status(answer: Answer) -> Status:
    status = Status(code=answer.code, message=answer.message)
    if answer.retry_after is not None:
        delay = Duration()
        delay.FromNanoseconds(math.ceil(answer.retry_after * 1e9))
        status.details.add().Pack(RetryInfo(retry_delay=delay))
    return status
