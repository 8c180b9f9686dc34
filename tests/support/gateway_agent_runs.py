"""Builds the OTLP requests of agent runs whose evaluation is known, for the tests of the gateway."""

from __future__ import annotations

import random
from dataclasses import dataclass

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span

GOLDENS = "goldens: [{id: trip, when: {agent: travel}, tools: [search, book]}]"
"""Each run passes with this golden, if no span is lost."""


@dataclass(frozen=True)
class Request:
    """The spans of one run, in one body or in two; the second one contains the root."""

    run_id: str
    bodies: tuple[bytes, ...]


def request(number: int, draw: random.Random, *, parts: int = 1, filler: int = 100) -> Request:
    """Build a run that calls two tools, in one part or two. Each span has `filler` bytes of another attribute."""
    trace_id, agent_id = draw.randbytes(16), draw.randbytes(8)
    spans = [
        _span(trace_id, draw.randbytes(8), agent_id, "execute_tool", "search", number, filler),
        _span(trace_id, draw.randbytes(8), agent_id, "execute_tool", "book", number, filler),
        _span(trace_id, agent_id, b"", "invoke_agent", "travel", number, filler),
    ]
    divided = [spans] if parts == 1 else [spans[:1], spans[1:]]
    return Request(f"{trace_id.hex()}:{agent_id.hex()}", tuple(_body(part) for part in divided))


def _span(trace_id: bytes, span_id: bytes, parent: bytes, operation: str, name: str, number: int, filler: int) -> Span:
    attributes = {
        "gen_ai.operation.name": operation,
        "gen_ai.agent.name" if operation == "invoke_agent" else "gen_ai.tool.name": name,
        "filler": "x" * filler,
    }
    began = 1_750_000_000_000_000_000 + number * 1_000_000
    return Span(
        trace_id=trace_id,
        span_id=span_id,
        parent_span_id=parent,
        name=f"{operation} {name}",
        start_time_unix_nano=began,
        end_time_unix_nano=began + 1_000,
        attributes=[KeyValue(key=key, value=AnyValue(string_value=value)) for key, value in attributes.items()],
    )


def _body(spans: list[Span]) -> bytes:
    made = ExportTraceServiceRequest()
    made.resource_spans.add().scope_spans.add().spans.extend(spans)
    return made.SerializeToString()
