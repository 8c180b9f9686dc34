"""Results written into the spans of runs, where traces are held until they are whole (`--enrich`)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span, TracesData

from goldspan.model import Evaluation
from goldspan.sinks.attributes import result_attributes


def enriched(request: bytes, evaluations: Iterable[Evaluation], *, without: Collection[str] = ()) -> bytes:
    """An OTLP trace request in protobuf, with the results of runs on their spans; nothing else in it changes.

    What is written is listed in `goldspan.sinks.attributes`. A span that has such an attribute already, from a
    goldspan in its own process, gets the new value. Where a span is a request and a component at once, it has the
    results of the request. It is `without` spans of these ids; no bytes where none is left.
    """
    results = _results_of(evaluations)
    left_out = {bytes.fromhex(span_id) for span_id in without}
    if not results and not left_out:
        return request
    traces = TracesData.FromString(request)
    spans_left = 0
    for resource_spans in traces.resource_spans:
        for scope_spans in resource_spans.scope_spans:
            for at in reversed(range(len(scope_spans.spans))):
                span = scope_spans.spans[at]
                if span.span_id in left_out:
                    del scope_spans.spans[at]
                    continue
                spans_left += 1
                if (attributes := results.get((span.trace_id, span.span_id))) is not None:
                    _write(span, attributes)
    return traces.SerializeToString() if spans_left else b""


def _results_of(evaluations: Iterable[Evaluation]) -> dict[tuple[bytes, bytes], Mapping[str, Any]]:
    """What is written on which spans, by the ids of their trace and of themselves."""
    results: dict[tuple[bytes, bytes], Mapping[str, Any]] = {}
    for evaluation in evaluations:
        run = evaluation.run
        if run.span_id is None or run.unit == "conversation":
            continue
        place = (bytes.fromhex(run.run_id.partition(":")[0]), bytes.fromhex(run.span_id))
        if run.unit == "request" or place not in results:
            results[place] = result_attributes(evaluation)
    return results


def _write(span: Span, attributes: Mapping[str, Any]) -> None:
    kept = [pair for pair in span.attributes if pair.key not in attributes]
    del span.attributes[:]
    span.attributes.extend(kept)
    span.attributes.extend(KeyValue(key=key, value=_value(value)) for key, value in attributes.items())


def _value(value: Any) -> AnyValue:
    if isinstance(value, bool):
        return AnyValue(bool_value=value)
    if isinstance(value, str):
        return AnyValue(string_value=value.encode("utf-8", "replace").decode())  # half a surrogate pair is none
    if isinstance(value, int):
        return AnyValue(int_value=value)
    if isinstance(value, float):
        return AnyValue(double_value=value)
    written = AnyValue()
    written.array_value.values.extend(map(_value, value))
    return written
