"""Sends requests to a back end over HTTP or gRPC, and classifies responses for the exporter."""

from __future__ import annotations

import gzip
import json
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any, Literal, Protocol
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import urllib3
from google.rpc.error_details_pb2 import RetryInfo  # type: ignore[import-untyped]
from google.rpc.status_pb2 import Status  # type: ignore[import-untyped]
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from urllib3.exceptions import ConnectTimeoutError, HTTPError, LocationParseError, ReadTimeoutError

from goldspan._extras import require_extra
from goldspan._http import to_one_line
from goldspan._version import __version__
from goldspan.errors import ConfigurationError
from goldspan.gateway.exporting.backends import Backend, create_tls_context
from goldspan.gateway.exporting.outgoing_requests import OutgoingRequest, to_protobuf
from goldspan.gateway.resource_limits import Media, Signal
from goldspan.otlp.decode_results import DecodeError
from goldspan.otlp.protobuf_errors import PROTOBUF_ERRORS

with require_extra("server"):
    import grpc  # type: ignore[import-untyped]

MAX_WAIT_SECONDS = 600.0
"""Maximum delay that a back end can request before a retry."""
MAX_MESSAGE_CHARACTERS = 200
"""Maximum number of characters of a response in the log."""

ResultKind = Literal[
    "accepted", "throttled", "failed", "misconfigured", "not_found", "unsupported_media", "too_large", "rejected"
]
"""What the exporter does next.

* `accepted`: remove the request.
* `throttled`, `failed`: retry. With `throttled` the request itself is valid.
* `misconfigured`: a setting is wrong (a token, a name, a proxy), not the data. Retry with longer pauses.
* `not_found`: as `misconfigured`, or the back end does not support the signal.
* `unsupported_media`: send the request in protobuf.
* `too_large`: split the request in half.
* `rejected`: the back end never accepts this request. Do not retry.
"""

_RESPONSE_TYPES: Mapping[Signal, Any] = {
    "traces": ExportTraceServiceResponse,
    "logs": ExportLogsServiceResponse,
    "metrics": ExportMetricsServiceResponse,
}
_REJECTED_FIELDS = ("rejectedSpans", "rejectedLogRecords", "rejectedDataPoints")
_MAX_RESPONSE_BYTES = 2**16
"""OTLP responses are shorter than this. The rest of a longer response is not read."""
_CONTENT_TYPES = {"protobuf": "application/x-protobuf", "json": "application/json"}
_GZIP_LEVEL = 1  # spans shrink to 38 % of their size (36 % with level 6) for half of the CPU time

_EXPORT_METHODS: dict[Signal, str] = {
    "traces": "/opentelemetry.proto.collector.trace.v1.TraceService/Export",
    "logs": "/opentelemetry.proto.collector.logs.v1.LogsService/Export",
    "metrics": "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export",
}
_RETRYABLE_CODES = frozenset({"CANCELLED", "DEADLINE_EXCEEDED", "ABORTED", "OUT_OF_RANGE", "UNAVAILABLE", "DATA_LOSS"})
"""OTLP specification, "OTLP/gRPC Response". RESOURCE_EXHAUSTED is retryable only with a RetryInfo."""
_TOO_LARGE_PHRASES = ("larger than max", "exceeds maximum size", "length too large")
"""Phrases in the errors of gRPC for C, Go, Java and Rust for a message above their limit. It has no own status code."""
_STATUS_DETAILS_KEY = "grpc-status-details-bin"

_CHANNEL_OPTIONS: list[tuple[str, Any]] = [
    ("grpc.max_send_message_length", -1),
    ("grpc.enable_retries", 0),  # the exporter decides about retries
    ("grpc.initial_reconnect_backoff_ms", 500),
    ("grpc.max_reconnect_backoff_ms", 5_000),  # the default of 2 minutes would add to the exporter's backoff
    # Detects a peer that disappears without closing: the kernel alone would retransmit for about 15 minutes.
    ("grpc.keepalive_time_ms", 60_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.primary_user_agent", f"goldspan/{__version__}"),
]


@dataclass(frozen=True, slots=True)
class ExportResult:
    """The result of one request."""

    kind: ResultKind
    status: str = ""
    """A short, constant description: `HTTP 503`, `UNAVAILABLE`, `timed out`."""
    message: str = ""
    """The message of the back end, in one line."""
    retry_after_seconds: float | None = None
    """The delay before a retry that the back end requests, or `None`."""
    rejected_count: int = 0
    """Number of rejected items in an accepted request (partial success)."""


class Sender(Protocol):
    """Sends requests to one back end from several threads. Failures of the back end are results, not exceptions."""

    def send(self, signal: Signal, request: OutgoingRequest) -> ExportResult:
        """Send one request and wait for the response, up to the timeout of the back end."""
        ...

    def close(self) -> None:
        """Close the connections. Requests in flight may fail."""
        ...


class HttpSender:
    """Posts to `<endpoint>/v1/<signal>` on at most `connections` connections.

    Redirects are not followed: they would send the headers to another server. The sender uses the proxies of the
    environment (`HTTPS_PROXY`, `NO_PROXY` and so on).

    Raises `ConfigurationError` for an invalid proxy.
    """

    def __init__(self, backend: Backend, connections: int) -> None:
        self._backend = backend
        self._pool = _connection_pool(backend, connections)
        self._headers = {"user-agent": f"goldspan/{__version__}", **backend.headers}
        if backend.compression == "gzip":
            self._headers["content-encoding"] = "gzip"
        seconds = backend.timeout_seconds
        self._timeout = urllib3.Timeout(connect=seconds, read=seconds)

    def send(self, signal: Signal, request: OutgoingRequest) -> ExportResult:
        """Post one request and read the response."""
        compressed = self._backend.compression == "gzip"
        try:
            return self._post(
                signal, request, gzip.compress(request.body, _GZIP_LEVEL, mtime=0) if compressed else request.body
            )
        except (ConnectTimeoutError, ReadTimeoutError):
            return ExportResult("failed", "timed out", f"no response within {self._backend.timeout_seconds:g} s")
        except (HTTPError, OSError) as error:
            return ExportResult("failed", type(error).__name__, to_log_line(str(error)))

    def close(self) -> None:
        """Close idle connections. The others are closed when their requests end."""
        self._pool.clear()

    def _post(self, signal: Signal, request: OutgoingRequest, body: bytes) -> ExportResult:
        response = self._pool.request(
            "POST",
            f"{self._backend.endpoint}/v1/{signal}",
            body=body,
            headers={**self._headers, "content-type": _CONTENT_TYPES[request.media]},
            preload_content=False,
            redirect=False,
            retries=False,
            timeout=self._timeout,
        )
        try:
            body_start = response.read(_MAX_RESPONSE_BYTES, decode_content=True)
            is_complete = not response.read(1, decode_content=True)
        except BaseException:
            response.close()
            raise
        if is_complete:
            response.release_conn()
        else:
            response.close()
        return http_result(response.status, signal, {k.lower(): v for k, v in response.headers.items()}, body_start)


class GrpcSender:
    """Calls the `Export` method of each signal's service. JSON requests are converted to protobuf."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._channel = _create_channel(backend)
        self._exports = {signal: self._channel.unary_unary(method) for signal, method in _EXPORT_METHODS.items()}
        self._metadata = tuple(backend.headers.items())

    def send(self, signal: Signal, request: OutgoingRequest) -> ExportResult:
        """Send one request and wait for the response."""
        try:
            body = to_protobuf(signal, request).body
        except DecodeError as error:
            return ExportResult("rejected", "unreadable", to_log_line(str(error)))
        try:
            response_body = self._exports[signal](
                body, timeout=self._backend.timeout_seconds, metadata=self._metadata, wait_for_ready=False
            )
        except grpc.RpcError as error:
            return grpc_result(error.code().name, error.details() or "", error.trailing_metadata() or ())
        except ValueError as error:  # gRPC raises it for a channel that was closed meanwhile
            return ExportResult("failed", "CANCELLED", to_log_line(str(error)))
        return accepted_result(signal, response_body, "protobuf")

    def close(self) -> None:
        """Close the channel. Requests in flight fail."""
        self._channel.close()


def http_result(status: int, signal: Signal, headers: Mapping[str, str], body: bytes) -> ExportResult:
    """Classify an HTTP response (OTLP specification, "OTLP/HTTP Response" and "Retryable Response Codes").

    In addition, wrong settings are distinguished from invalid data: 401, 403, 405, 407 and redirects are
    `misconfigured`, and 404 is `not_found`. Redirects are not followed, since they may lead anywhere.
    """
    media = headers.get("content-type", "").partition(";")[0].strip().lower()
    if 200 <= status < 300:
        return accepted_result(signal, body, "json" if media == "application/json" else "protobuf")
    return ExportResult(
        _http_result_kind(status),
        f"HTTP {status}",
        _http_message(media, body),
        parse_retry_after(headers.get("retry-after")) if status in (429, 503) else None,
    )


def _http_result_kind(status: int) -> ResultKind:
    if status in (502, 503, 504):
        return "failed"
    if status in (401, 403, 405, 407) or 300 <= status < 400:
        return "misconfigured"
    kinds: Mapping[int, ResultKind] = {404: "not_found", 413: "too_large", 415: "unsupported_media", 429: "throttled"}
    return kinds.get(status, "rejected")


def grpc_result(code: str, details: str, trailing: Iterable[tuple[str, str | bytes]]) -> ExportResult:
    """Classify a gRPC error (OTLP specification, "OTLP/gRPC Response" and "OTLP/gRPC Throttling").

    In addition, errors that concern the settings and not the data are distinguished: UNAUTHENTICATED and
    PERMISSION_DENIED are `misconfigured`, UNIMPLEMENTED and NOT_FOUND are `not_found`.
    """
    retry_delay = _retry_delay(trailing)
    return ExportResult(_grpc_result_kind(code, details, retry_delay), code, to_log_line(details), retry_delay)


def _grpc_result_kind(code: str, details: str, retry_delay: float | None) -> ResultKind:
    if code in ("RESOURCE_EXHAUSTED", "OUT_OF_RANGE") and any(phrase in details for phrase in _TOO_LARGE_PHRASES):
        return "too_large"
    if code == "RESOURCE_EXHAUSTED":
        return "rejected" if retry_delay is None else "throttled"
    if code in _RETRYABLE_CODES:
        return "failed" if retry_delay is None else "throttled"
    if code in ("UNAUTHENTICATED", "PERMISSION_DENIED"):
        return "misconfigured"
    return "not_found" if code in ("UNIMPLEMENTED", "NOT_FOUND") else "rejected"


def _retry_delay(trailing: Iterable[tuple[str, str | bytes]]) -> float | None:
    """Return the retry delay in the status details that a back end may send, or `None`."""
    for key, value in trailing:
        if key != _STATUS_DETAILS_KEY or not isinstance(value, bytes):
            continue
        with suppress(*PROTOBUF_ERRORS):
            for detail in Status.FromString(value).details:
                info = RetryInfo()
                if detail.Unpack(info):
                    return clamp_wait_seconds(info.retry_delay.seconds + info.retry_delay.nanos / 1e9)
    return None


def accepted_result(signal: Signal, body: bytes, media: Media) -> ExportResult:
    """Return the result for an accepted request, with the partial success that its response reports."""
    with suppress(
        *PROTOBUF_ERRORS, ValueError, AttributeError, TypeError
    ):  # an unreadable response is still an acceptance
        rejected, message = _partial_success(signal, body, media)
        return ExportResult("accepted", message=to_log_line(message), rejected_count=max(0, rejected))
    return ExportResult("accepted")


def parse_retry_after(retry_after: str | None) -> float | None:
    """Return the seconds in `Retry-After` (RFC 9110, section 10.2.3: seconds or a date), clamped."""
    if retry_after is None:
        return None
    with suppress(ValueError, TypeError):
        if retry_after.strip().isdecimal():
            return clamp_wait_seconds(float(retry_after))
        return clamp_wait_seconds(parsedate_to_datetime(retry_after).timestamp() - time.time())
    return None


def clamp_wait_seconds(seconds: float) -> float:
    """Limit a requested delay to the range from 0 to `MAX_WAIT_SECONDS`."""
    return min(max(0.0, seconds), MAX_WAIT_SECONDS)


def to_log_line(text: str) -> str:
    """Return text from a response as one printable line, shortened for the log."""
    return to_one_line(text, MAX_MESSAGE_CHARACTERS + len("…"))


def _partial_success(signal: Signal, body: bytes, media: Media) -> tuple[int, str]:
    if not body:
        return 0, ""
    if media == "json":
        document = json.loads(body).get("partialSuccess") or {}
        return sum(int(document.get(name) or 0) for name in _REJECTED_FIELDS), str(document.get("errorMessage") or "")
    partial_success = _RESPONSE_TYPES[signal].FromString(body).partial_success
    counts = (value for field, value in partial_success.ListFields() if field.name.startswith("rejected_"))
    return sum(counts), partial_success.error_message


def _http_message(media: str, body: bytes) -> str:
    """Return the message of a `google.rpc.Status`, or else the body if it is text."""
    with suppress(*PROTOBUF_ERRORS, ValueError, AttributeError):
        if media == "application/x-protobuf":
            return to_log_line(Status.FromString(body).message)
        if media == "application/json":
            return to_log_line(str(json.loads(body)["message"]))
    with suppress(UnicodeDecodeError, KeyError):
        return to_log_line(body.decode())
    return ""


def _connection_pool(backend: Backend, connections: int) -> urllib3.PoolManager:
    options: dict[str, Any] = {"num_pools": 1, "maxsize": connections}
    if not backend.insecure:
        options["ssl_context"] = create_tls_context(backend)
    url = urlsplit(backend.endpoint)
    proxy = getproxies().get(url.scheme)
    if not proxy or proxy_bypass(url.netloc):
        return urllib3.PoolManager(**options)
    try:
        address = urllib3.util.parse_url(proxy if "://" in proxy else f"http://{proxy}")
        proxy_headers = urllib3.make_headers(proxy_basic_auth=address.auth) if address.auth else None
        return urllib3.ProxyManager(address.url, proxy_headers=proxy_headers, **options)
    except (LocationParseError, HTTPError):
        raise ConfigurationError(
            f"back end {backend.name!r}: the environment's proxy for {url.scheme}:// is not a usable URL"
        ) from None


def _create_channel(backend: Backend) -> Any:
    compression = grpc.Compression.Gzip if backend.compression == "gzip" else grpc.Compression.NoCompression
    if backend.insecure:
        return grpc.insecure_channel(backend.endpoint, _CHANNEL_OPTIONS, compression)
    certificate = _read_file(backend.certificate_file)
    key = _read_file(backend.key_file or backend.certificate_file)
    credentials = grpc.ssl_channel_credentials(_read_file(backend.ca_file), key, certificate)
    return grpc.secure_channel(backend.endpoint, credentials, _CHANNEL_OPTIONS, compression)


def _read_file(path: str | None) -> bytes | None:
    if path is None:
        return None
    with open(path, "rb") as file:
        return file.read()
