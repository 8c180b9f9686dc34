"""What a JSON document is, known from its shape, and the records in it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from goldspan.otlp import jaeger, otlp_json, sdk_json
from goldspan.otlp.decoding import Decoded
from goldspan.otlp.records import Batch, joined

_IN_SNAKE_CASE = frozenset({"resource_spans", "resource_logs"})
"""What OTLP/JSON does not know: protobuf messages dumped with the names of their `.proto` file."""
_METRICS = frozenset({"resourceMetrics", "resource_metrics"})
_REQUESTS = _IN_SNAKE_CASE | _METRICS | {"resourceSpans", "resourceLogs"}
_IN_BATCHES = frozenset({"resource", "scopeSpans", "instrumentationLibrarySpans"})


def decode(document: Any) -> Batch | None:
    """The records of a document; `None` where it is something else. Metrics are passed over.

    Raises `DecodeError` for a document that begins like a known one and goes on differently.
    """
    if not isinstance(document, dict):
        return None
    return next((read(document) for fits, read in (*_SHAPES, *_PARTS) if fits(document)), None)


def is_whole(document: Any) -> bool:
    """Whether it is known, and cannot be a part of another document."""
    return isinstance(document, dict) and any(fits(document) for fits, _ in _SHAPES)


def _is_otlp(document: dict[str, Any]) -> bool:
    """`{}` is a request, too: an exporter that had nothing to say."""
    return not document or not _REQUESTS.isdisjoint(document)


def _holds_otlp(wrapper: str, document: dict[str, Any]) -> bool:
    inner = document.get(wrapper)
    return isinstance(inner, dict) and (not _REQUESTS.isdisjoint(inner) or _has_batches(inner))


def _has_batches(document: dict[str, Any]) -> bool:
    batches = document.get("batches")
    return isinstance(batches, list) and all(
        isinstance(batch, dict) and not _IN_BATCHES.isdisjoint(batch) for batch in batches
    )


def _read_otlp(document: dict[str, Any]) -> Batch:
    """Beside its own ids, those of plain proto3 JSON: in a file they can mean nothing else."""
    batches = []
    if "resourceSpans" in document:
        batches.append(_batch(otlp_json.decode_traces(document, id_of=otlp_json.hexadecimal_or_base64_id)))
    if "resourceLogs" in document:
        batches.append(otlp_json.decode_logs(document, id_of=otlp_json.hexadecimal_or_base64_id))
    if ignored := sorted(_IN_SNAKE_CASE.intersection(document)):
        batches.append(Batch([], 0, f"{ignored[0]} is no field of OTLP/JSON, which has lowerCamelCase names"))
    return joined(batches)


def _read_batches(document: dict[str, Any]) -> Batch:
    return _read_otlp({"resourceSpans": document["batches"]})


def _read_inside(wrapper: str, document: dict[str, Any]) -> Batch:
    inner = document[wrapper]
    return _read_batches(inner) if _has_batches(inner) else _read_otlp(inner)


def _read_jaeger(document: dict[str, Any]) -> Batch:
    return _batch(jaeger.decode_traces(document))


def _batch(decoded: Decoded) -> Batch:
    return Batch(decoded.spans, decoded.rejected, decoded.reason)


_Rows = tuple[tuple[Callable[[dict[str, Any]], bool], Callable[[dict[str, Any]], Batch]], ...]
_SHAPES: _Rows = (
    (_is_otlp, _read_otlp),
    (_has_batches, _read_batches),  # Grafana Tempo, API v1 and Grafana's download
    (partial(_holds_otlp, "trace"), partial(_read_inside, "trace")),  # Grafana Tempo, API v2
    (partial(_holds_otlp, "result"), partial(_read_inside, "result")),  # Jaeger, API v3
    (jaeger.is_answer, _read_jaeger),
    (sdk_json.is_record, sdk_json.decode),
)
"""How to know a document, and what reads it. The first row that fits is taken."""
_PARTS: _Rows = ((jaeger.is_trace, _read_jaeger),)
"""The same for documents that may also stand inside another."""
