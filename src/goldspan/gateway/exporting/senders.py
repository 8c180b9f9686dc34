"""Requests to a back end over OTLP/gRPC: bytes as they are, on one channel."""

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
from google.protobuf.message import DecodeError as ProtobufError
from google.rpc.error_details_pb2 import RetryInfo  # type: ignore[import-untyped]
from google.rpc.status_pb2 import Status  # type: ignore[import-untyped]
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from urllib3.exceptions import ConnectTimeoutError, HTTPError, LocationParseError, ReadTimeoutError

from goldspan._extras import require_server_extra
from goldspan._version import __version__
from goldspan.errors import ConfigurationError
from goldspan.gateway.exporting.backends import Backend, create_tls_context
from goldspan.gateway.exporting.outgoing_requests import OutgoingRequest, to_protobuf
from goldspan.gateway.resource_limits import Media, Signal
from goldspan.otlp.decode_results import DecodeError

MAX_WAIT_SECONDS = 600.0
"""A back end that wants to be left alone for longer than this is asked again after it."""
MAX_MESSAGE_CHARACTERS = 200
"""So many characters of an answer are logged."""

ResultKind = Literal["taken", "throttled", "failed", "barred", "absent", "other_media", "too_large", "refused"]
"""What is to be done.

`taken`: nothing more. `throttled` and `failed`: try again; the first says that the request itself is right. `barred`: a
setting is wrong (a token, a name, a proxy), which says nothing about the data: try again, but seldom. `absent`: the
same, or the back end has no such signal. `other_media`: send it as protobuf. `too_large`: send it in halves.
`refused`: never try it again.
"""

_RESPONSE_TYPES: Mapping[Signal, Any] = {
    "traces": ExportTraceServiceResponse,
    "logs": ExportLogsServiceResponse,
    "metrics": ExportMetricsServiceResponse,
}
_REJECTED_FIELDS = ("rejectedSpans", "rejectedLogRecords", "rejectedDataPoints")


@dataclass(frozen=True, slots=True)
class ExportResult:
    """What became of one request."""

    kind: ResultKind
    status: str = ""
    """What happened, in few words that are the same each time: `HTTP 503`, `UNAVAILABLE`, `timed out`."""
    message: str = ""
    """What the back end says about it, in one line."""
    retry_after_seconds: float | None = None
    """For how many seconds it wants to be left alone, where it says so."""
    rejected_count: int = 0
    """How many items of a request that was taken were left out: partial success."""


class Sender(Protocol):
    """Sends requests to one back end, on several threads at once. Never raises for what a back end does."""

    def send(self, signal: Signal, request: OutgoingRequest) -> ExportResult:
        """Send one request, and wait for the answer as long as the back end may take."""
        ...

    def close(self) -> None:
        """Close the connections; what is under way may fail."""
        ...


def http_result(status: int, signal: Signal, headers: Mapping[str, str], body: bytes) -> ExportResult:
    """What an answer over HTTP means (OTLP specification, "OTLP/HTTP Response" and "Retryable Response Codes").

    Beyond that, what is wrong with the settings is told from what is wrong with the data: 401, 403, 405, 407 and
    redirections, which are not followed, since they may lead anywhere, are `barred`, and 404 is `absent`.
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
        return "barred"
    named: Mapping[int, ResultKind] = {404: "absent", 413: "too_large", 415: "other_media", 429: "throttled"}
    return named.get(status, "refused")


def accepted_result(signal: Signal, body: bytes, media: Media) -> ExportResult:
    """A request that was taken; how many of its items were not, and why, stands in the answer."""
    with suppress(ProtobufError, ValueError, AttributeError, TypeError):  # whatever else it is, it was taken
        rejected, message = _partial_success(signal, body, media)
        return ExportResult("taken", message=to_log_line(message), rejected_count=max(0, rejected))
    return ExportResult("taken")


def _partial_success(signal: Signal, body: bytes, media: Media) -> tuple[int, str]:
    if not body:
        return 0, ""
    if media == "json":
        told = json.loads(body).get("partialSuccess") or {}
        return sum(int(told.get(name) or 0) for name in _REJECTED_FIELDS), str(told.get("errorMessage") or "")
    told = _RESPONSE_TYPES[signal].FromString(body).partial_success
    numbers = (value for field, value in told.ListFields() if field.name.startswith("rejected_"))
    return sum(numbers), told.error_message


def _http_message(media: str, body: bytes) -> str:
    """The message of a `google.rpc.Status`, or else whatever text the answer is."""
    with suppress(ProtobufError, ValueError, AttributeError):
        if media == "application/x-protobuf":
            return to_log_line(Status.FromString(body).message)
        if media == "application/json":
            return to_log_line(str(json.loads(body)["message"]))
    with suppress(UnicodeDecodeError, KeyError):
        return to_log_line(body.decode())
    return ""


def parse_retry_after(retry_after: str | None) -> float | None:
    """How long `Retry-After` asks for (RFC 9110, section 10.2.3: seconds or a date), but never a very long time."""
    if retry_after is None:
        return None
    with suppress(ValueError, TypeError):
        if retry_after.strip().isdecimal():
            return clamp_wait_seconds(float(retry_after))
        return clamp_wait_seconds(parsedate_to_datetime(retry_after).timestamp() - time.time())
    return None


def clamp_wait_seconds(seconds: float) -> float:
    """A time that somebody else asks for, between none and `MAX_WAIT_SECONDS`."""
    return min(max(0.0, seconds), MAX_WAIT_SECONDS)


def to_log_line(text: str) -> str:
    """What the log shows of an answer."""
    printable = "".join(letter if letter.isprintable() else " " for letter in text[: 4 * MAX_MESSAGE_CHARACTERS])
    line = " ".join(printable.split())
    return line if len(line) <= MAX_MESSAGE_CHARACTERS else f"{line[:MAX_MESSAGE_CHARACTERS]}…"


_MAX_RESPONSE_BYTES = 2**16
"""No answer of OTLP is longer, and of what is, the rest stays unread."""
_CONTENT_TYPES = {"protobuf": "application/x-protobuf", "json": "application/json"}
_GZIP_LEVEL = 1  # of spans hardly larger than with level 6 (38 % and 36 % of what they were), for half of the CPU


class HttpSender:
    """Posts to `<endpoint>/v1/<signal>` on up to so many `connections` at once.

    Redirections are not followed: they would carry the headers somewhere else. The proxies of the environment
    (`HTTPS_PROXY`, `NO_PROXY` and so on) are used.

    Raises `ConfigurationError` for a proxy that cannot be used.
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
        """Post one request, and read the answer to it."""
        compressed = self._backend.compression == "gzip"
        try:
            return self._post(
                signal, request, gzip.compress(request.body, _GZIP_LEVEL, mtime=0) if compressed else request.body
            )
        except (ConnectTimeoutError, ReadTimeoutError):
            return ExportResult("failed", "timed out", f"no answer within {self._backend.timeout_seconds:g} s")
        except (HTTPError, OSError) as error:
            return ExportResult("failed", type(error).__name__, to_log_line(str(error)))

    def close(self) -> None:
        """Close the connections that are idle; the others are closed when they are done."""
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
            answer = response.read(_MAX_RESPONSE_BYTES, decode_content=True)
            whole = not response.read(1, decode_content=True)
        except BaseException:
            response.close()
            raise
        if whole:
            response.release_conn()
        else:
            response.close()
        return http_result(response.status, signal, {k.lower(): v for k, v in response.headers.items()}, answer)


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
        secret = urllib3.make_headers(proxy_basic_auth=address.auth) if address.auth else None
        return urllib3.ProxyManager(address.url, proxy_headers=secret, **options)
    except (LocationParseError, HTTPError):
        raise ConfigurationError(
            f"back end {backend.name!r}: the environment's proxy for {url.scheme}:// is no URL that can be used"
        ) from None


with require_server_extra():
    import grpc  # type: ignore[import-untyped]

_EXPORT_METHODS: dict[Signal, str] = {
    "traces": "/opentelemetry.proto.collector.trace.v1.TraceService/Export",
    "logs": "/opentelemetry.proto.collector.logs.v1.LogsService/Export",
    "metrics": "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export",
}
_RETRYABLE_CODES = frozenset({"CANCELLED", "DEADLINE_EXCEEDED", "ABORTED", "OUT_OF_RANGE", "UNAVAILABLE", "DATA_LOSS"})
"""OTLP specification, "OTLP/gRPC Response"; RESOURCE_EXHAUSTED is so only where the answer has a RetryInfo."""
_TOO_LARGE_PHRASES = ("larger than max", "exceeds maximum size", "length too large")
"""What gRPC in C, Go, Java and Rust say of a message over their limit; they have no code for that alone."""
_STATUS_DETAILS_KEY = "grpc-status-details-bin"

_CHANNEL_OPTIONS: list[tuple[str, Any]] = [
    ("grpc.max_send_message_length", -1),
    ("grpc.enable_retries", 0),  # whether and when to try again is decided here
    ("grpc.initial_reconnect_backoff_ms", 500),
    ("grpc.max_reconnect_backoff_ms", 5_000),  # its own two minutes would come on top of our pauses
    # A peer that is gone without a word is noticed by it: otherwise the kernel would try for a quarter of an hour.
    ("grpc.keepalive_time_ms", 60_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.primary_user_agent", f"goldspan/{__version__}"),
]


class GrpcSender:
    """Calls `Export` of the service of each signal. What came as JSON is sent in protobuf (see `as_protobuf`)."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._channel = _create_channel(backend)
        self._exports = {signal: self._channel.unary_unary(method) for signal, method in _EXPORT_METHODS.items()}
        self._metadata = tuple(backend.headers.items())

    def send(self, signal: Signal, request: OutgoingRequest) -> ExportResult:
        """Send one request, and wait for the answer to it."""
        try:
            body = to_protobuf(signal, request).body
        except DecodeError as error:
            return ExportResult("refused", "unreadable", to_log_line(str(error)))
        try:
            answer = self._exports[signal](
                body, timeout=self._backend.timeout_seconds, metadata=self._metadata, wait_for_ready=False
            )
        except grpc.RpcError as error:
            return grpc_result(error.code().name, error.details() or "", error.trailing_metadata() or ())
        except ValueError as error:  # what gRPC says of a channel that was closed meanwhile
            return ExportResult("failed", "CANCELLED", to_log_line(str(error)))
        return accepted_result(signal, answer, "protobuf")

    def close(self) -> None:
        """Close the channel; what is under way fails."""
        self._channel.close()


def grpc_result(code: str, details: str, trailing: Iterable[tuple[str, str | bytes]]) -> ExportResult:
    """What an error means (OTLP specification, "OTLP/gRPC Response" and "OTLP/gRPC Throttling").

    Beyond that, UNAUTHENTICATED and PERMISSION_DENIED are `barred`, UNIMPLEMENTED and NOT_FOUND `absent`: they are
    about the settings, and not about the data.
    """
    wait = _retry_delay(trailing)
    return ExportResult(_grpc_result_kind(code, details, wait), code, to_log_line(details), wait)


def _grpc_result_kind(code: str, details: str, wait: float | None) -> ResultKind:
    if code in ("RESOURCE_EXHAUSTED", "OUT_OF_RANGE") and any(words in details for words in _TOO_LARGE_PHRASES):
        return "too_large"
    if code == "RESOURCE_EXHAUSTED":
        return "refused" if wait is None else "throttled"
    if code in _RETRYABLE_CODES:
        return "failed" if wait is None else "throttled"
    if code in ("UNAUTHENTICATED", "PERMISSION_DENIED"):
        return "barred"
    return "absent" if code in ("UNIMPLEMENTED", "NOT_FOUND") else "refused"


def _retry_delay(trailing: Iterable[tuple[str, str | bytes]]) -> float | None:
    """For how long the back end wants to be left alone, from the status that it may send along."""
    for key, value in trailing:
        if key != _STATUS_DETAILS_KEY or not isinstance(value, bytes):
            continue
        with suppress(ProtobufError):
            for detail in Status.FromString(value).details:
                info = RetryInfo()
                if detail.Unpack(info):
                    return clamp_wait_seconds(info.retry_delay.seconds + info.retry_delay.nanos / 1e9)
    return None


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
