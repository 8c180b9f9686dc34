"""What became of one request to a back end, and what OTLP says is to be done about it."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any, Literal, Protocol

from google.protobuf.message import DecodeError
from google.rpc.status_pb2 import Status  # type: ignore[import-untyped]
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from goldspan.gateway.forwarding.parts import Part
from goldspan.gateway.signals import Media, Signal

MAX_WAIT_SECONDS = 600.0
"""A back end that wants to be left alone for longer than this is asked again after it."""
MAX_MESSAGE = 200
"""So many characters of an answer are logged."""

Kind = Literal["taken", "throttled", "failed", "barred", "absent", "other_media", "too_large", "refused"]
"""What is to be done.

`taken`: nothing more. `throttled` and `failed`: try again; the first says that the request itself is right. `barred`: a
setting is wrong (a token, a name, a proxy), which says nothing about the data: try again, but seldom. `absent`: the
same, or the back end has no such signal. `other_media`: send it as protobuf. `too_large`: send it in halves.
`refused`: never try it again.
"""

_RESPONSES: Mapping[Signal, Any] = {
    "traces": ExportTraceServiceResponse,
    "logs": ExportLogsServiceResponse,
    "metrics": ExportMetricsServiceResponse,
}
_REJECTED_FIELDS = ("rejectedSpans", "rejectedLogRecords", "rejectedDataPoints")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one request."""

    kind: Kind
    status: str = ""
    """What happened, in few words that are the same each time: `HTTP 503`, `UNAVAILABLE`, `timed out`."""
    message: str = ""
    """What the back end says about it, in one line."""
    wait: float | None = None
    """For how many seconds it wants to be left alone, where it says so."""
    rejected: int = 0
    """How many items of a request that was taken were left out: partial success."""


class Sender(Protocol):
    """Sends requests to one back end, on several threads at once. Never raises for what a back end does."""

    def send(self, signal: Signal, part: Part) -> Outcome:
        """Send one request, and wait for the answer as long as the back end may take."""
        ...

    def close(self) -> None:
        """Close the connections; what is under way may fail."""
        ...


def http_outcome(status: int, signal: Signal, headers: Mapping[str, str], body: bytes) -> Outcome:
    """What an answer over HTTP means (OTLP specification, "OTLP/HTTP Response" and "Retryable Response Codes").

    Beyond that, what is wrong with the settings is told from what is wrong with the data: 401, 403, 405, 407 and
    redirections, which are not followed, since they may lead anywhere, are `barred`, and 404 is `absent`.
    """
    media = headers.get("content-type", "").partition(";")[0].strip().lower()
    if 200 <= status < 300:
        return taken(signal, body, "json" if media == "application/json" else "protobuf")
    return Outcome(
        _http_kind(status),
        f"HTTP {status}",
        _http_message(media, body),
        seconds_of(headers.get("retry-after")) if status in (429, 503) else None,
    )


def _http_kind(status: int) -> Kind:
    if status in (502, 503, 504):
        return "failed"
    if status in (401, 403, 405, 407) or 300 <= status < 400:
        return "barred"
    named: Mapping[int, Kind] = {404: "absent", 413: "too_large", 415: "other_media", 429: "throttled"}
    return named.get(status, "refused")


def taken(signal: Signal, body: bytes, media: Media) -> Outcome:
    """A request that was taken; how many of its items were not, and why, stands in the answer."""
    with suppress(DecodeError, ValueError, AttributeError, TypeError):  # whatever else it is, it was taken
        rejected, message = _partial_success(signal, body, media)
        return Outcome("taken", message=one_line(message), rejected=max(0, rejected))
    return Outcome("taken")


def _partial_success(signal: Signal, body: bytes, media: Media) -> tuple[int, str]:
    if not body:
        return 0, ""
    if media == "json":
        told = json.loads(body).get("partialSuccess") or {}
        return sum(int(told.get(name) or 0) for name in _REJECTED_FIELDS), str(told.get("errorMessage") or "")
    told = _RESPONSES[signal].FromString(body).partial_success
    numbers = (value for field, value in told.ListFields() if field.name.startswith("rejected_"))
    return sum(numbers), told.error_message


def _http_message(media: str, body: bytes) -> str:
    """The message of a `google.rpc.Status`, or else whatever text the answer is."""
    with suppress(DecodeError, ValueError, AttributeError):
        if media == "application/x-protobuf":
            return one_line(Status.FromString(body).message)
        if media == "application/json":
            return one_line(str(json.loads(body)["message"]))
    with suppress(UnicodeDecodeError, KeyError):
        return one_line(body.decode())
    return ""


def seconds_of(retry_after: str | None) -> float | None:
    """How long `Retry-After` asks for (RFC 9110, section 10.2.3: seconds or a date), but never a very long time."""
    if retry_after is None:
        return None
    with suppress(ValueError, TypeError):
        if retry_after.strip().isdecimal():
            return bounded(float(retry_after))
        return bounded(parsedate_to_datetime(retry_after).timestamp() - time.time())
    return None


def bounded(seconds: float) -> float:
    """A time that somebody else asks for, between none and `MAX_WAIT_SECONDS`."""
    return min(max(0.0, seconds), MAX_WAIT_SECONDS)


def one_line(text: str) -> str:
    """What the log shows of an answer."""
    printable = "".join(letter if letter.isprintable() else " " for letter in text[: 4 * MAX_MESSAGE])
    line = " ".join(printable.split())
    return line if len(line) <= MAX_MESSAGE else f"{line[:MAX_MESSAGE]}…"
