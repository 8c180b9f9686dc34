"""Requests to a back end over OTLP/gRPC: bytes as they are, on one channel."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from google.protobuf.message import DecodeError as ProtobufError
from google.rpc.error_details_pb2 import RetryInfo  # type: ignore[import-untyped]
from google.rpc.status_pb2 import Status  # type: ignore[import-untyped]

from goldspan._version import __version__
from goldspan.gateway.extra import needed
from goldspan.gateway.forwarding.backends import BackEnd
from goldspan.gateway.forwarding.outcomes import Kind, Outcome, bounded, one_line, taken
from goldspan.gateway.forwarding.parts import Part, in_protobuf
from goldspan.gateway.signals import Signal
from goldspan.otlp.decoding import DecodeError

with needed():
    import grpc  # type: ignore[import-untyped]

_METHODS: dict[Signal, str] = {
    "traces": "/opentelemetry.proto.collector.trace.v1.TraceService/Export",
    "logs": "/opentelemetry.proto.collector.logs.v1.LogsService/Export",
    "metrics": "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export",
}
_RETRYABLE = frozenset({"CANCELLED", "DEADLINE_EXCEEDED", "ABORTED", "OUT_OF_RANGE", "UNAVAILABLE", "DATA_LOSS"})
"""OTLP specification, "OTLP/gRPC Response"; RESOURCE_EXHAUSTED is so only where the answer has a RetryInfo."""
_TOO_LARGE = ("larger than max", "exceeds maximum size", "length too large")
"""What gRPC in C, Go, Java and Rust say of a message over their limit; they have no code for that alone."""
_DETAILS = "grpc-status-details-bin"

_OPTIONS: list[tuple[str, Any]] = [
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

    def __init__(self, backend: BackEnd) -> None:
        self._backend = backend
        self._channel = _channel(backend)
        self._exports = {signal: self._channel.unary_unary(method) for signal, method in _METHODS.items()}
        self._metadata = tuple(backend.headers.items())

    def send(self, signal: Signal, part: Part) -> Outcome:
        """Send one request, and wait for the answer to it."""
        try:
            body = in_protobuf(signal, part).body
        except DecodeError as error:
            return Outcome("refused", "unreadable", one_line(str(error)))
        try:
            answer = self._exports[signal](
                body, timeout=self._backend.timeout_seconds, metadata=self._metadata, wait_for_ready=False
            )
        except grpc.RpcError as error:
            return grpc_outcome(error.code().name, error.details() or "", error.trailing_metadata() or ())
        except ValueError as error:  # what gRPC says of a channel that was closed meanwhile
            return Outcome("failed", "CANCELLED", one_line(str(error)))
        return taken(signal, answer, "protobuf")

    def close(self) -> None:
        """Close the channel; what is under way fails."""
        self._channel.close()


def grpc_outcome(code: str, details: str, trailing: Iterable[tuple[str, str | bytes]]) -> Outcome:
    """What an error means (OTLP specification, "OTLP/gRPC Response" and "OTLP/gRPC Throttling").

    Beyond that, UNAUTHENTICATED and PERMISSION_DENIED are `barred`, UNIMPLEMENTED and NOT_FOUND `absent`: they are
    about the settings, and not about the data.
    """
    wait = _retry_info(trailing)
    return Outcome(_kind(code, details, wait), code, one_line(details), wait)


def _kind(code: str, details: str, wait: float | None) -> Kind:
    if code in ("RESOURCE_EXHAUSTED", "OUT_OF_RANGE") and any(words in details for words in _TOO_LARGE):
        return "too_large"
    if code == "RESOURCE_EXHAUSTED":
        return "refused" if wait is None else "throttled"
    if code in _RETRYABLE:
        return "failed" if wait is None else "throttled"
    if code in ("UNAUTHENTICATED", "PERMISSION_DENIED"):
        return "barred"
    return "absent" if code in ("UNIMPLEMENTED", "NOT_FOUND") else "refused"


def _retry_info(trailing: Iterable[tuple[str, str | bytes]]) -> float | None:
    """For how long the back end wants to be left alone, from the status that it may send along."""
    for key, value in trailing:
        if key != _DETAILS or not isinstance(value, bytes):
            continue
        with suppress(ProtobufError):
            for detail in Status.FromString(value).details:
                info = RetryInfo()
                if detail.Unpack(info):
                    return bounded(info.retry_delay.seconds + info.retry_delay.nanos / 1e9)
    return None


def _channel(backend: BackEnd) -> Any:
    compression = grpc.Compression.Gzip if backend.compression == "gzip" else grpc.Compression.NoCompression
    if backend.insecure:
        return grpc.insecure_channel(backend.endpoint, _OPTIONS, compression)
    certificate = _contents(backend.certificate_file)
    key = _contents(backend.key_file or backend.certificate_file)
    credentials = grpc.ssl_channel_credentials(_contents(backend.ca_file), key, certificate)
    return grpc.secure_channel(backend.endpoint, credentials, _OPTIONS, compression)


def _contents(path: str | None) -> bytes | None:
    if path is None:
        return None
    with open(path, "rb") as file:
        return file.read()
