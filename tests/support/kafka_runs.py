"""Generates runs of agents as Kafka messages (divided, repeated, in disorder), and scores them with the command."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span

GOLDENS = """
goldens:
- {id: trip, when: {agent: travel}, tools: [search, book]}
- {id: weather, when: {agent: weather}, tools: [forecast], order: in_order}
"""
_TOOLS = {"travel": ("search", "book", "pay"), "weather": ("forecast", "locate")}


@dataclass(frozen=True)
class TraceMessages:
    """The spans of one trace, in the messages that the Collector would write."""

    key: str
    """The trace id."""
    messages: tuple[bytes, ...]
    """In order of production; a message can occur twice."""
    whole: bytes
    """All spans once, in one request."""
    span_count: int


def trace_messages(number: int, draw: random.Random, *, json_share: float = 0.0) -> TraceMessages:
    """Build a run that passes, fails, or has an error; a part of the traces as `otlp_json`."""
    trace_id = draw.randbytes(16)
    agent = draw.choice(("travel", "weather"))
    root_id = draw.randbytes(8)
    began = 1_750_000_000_000_000_000 + number * 1_000_000_000
    spans = [_span(trace_id, root_id, b"", "invoke_agent", agent, began, 1_000_000)]
    for place in range(draw.randint(1, 4)):
        name = draw.choice(_TOOLS[agent])
        span = _span(trace_id, draw.randbytes(8), root_id, "execute_tool", name, began + place * 1_000, 500)
        if draw.random() < 0.1:
            span.status.code = 2
        spans.append(span)
    draw.shuffle(spans)
    cut = draw.randint(1, len(spans))
    parts = [part for part in (spans[:cut], spans[cut:]) if part]
    write = _as_json if draw.random() < json_share else _as_protobuf
    messages = [write(part) for part in parts]
    if draw.random() < 0.2:
        messages.append(draw.choice(messages))
    return TraceMessages(trace_id.hex(), tuple(messages), _as_protobuf(spans), len(spans))


def interleaved(traces: Sequence[TraceMessages], draw: random.Random, spread: int = 50) -> list[tuple[str, bytes]]:
    """Return the messages of all traces in an order in which those of some traces overlap."""
    placed = [
        (number + draw.uniform(0, spread) * place, trace.key, message)
        for number, trace in enumerate(traces)
        for place, message in enumerate(trace.messages)
    ]
    return [(key, message) for _, key, message in sorted(placed, key=lambda each: each[0])]


def scored_by_command(traces: Iterable[TraceMessages], folder: Path) -> dict[str, dict[str, Any]]:
    """Return the documents that `goldspan score` prints, by run."""
    (folder / "goldens-of-command.yaml").write_text(GOLDENS, encoding="utf-8")
    path = folder / "traces.pb"
    path.write_bytes(b"".join(trace.whole for trace in traces))  # protobuf merges messages that are joined
    command = [sys.executable, "-m", "goldspan", "score", str(path)]
    options = ["--goldens", str(folder / "goldens-of-command.yaml"), "--json"]
    done = subprocess.run([*command, *options], capture_output=True, encoding="utf-8", check=True)
    return {document["run_id"]: document for document in map(json.loads, done.stdout.splitlines())}


def comparable(document: dict[str, Any]) -> dict[str, Any]:
    """Return a document without its revision: late spans make more revisions."""
    return {key: value for key, value in document.items() if key != "revision"}


def _span(trace_id: bytes, span_id: bytes, parent: bytes, operation: str, name: str, began: int, lasts: int) -> Span:
    key = "gen_ai.agent.name" if operation == "invoke_agent" else "gen_ai.tool.name"
    attributes = {"gen_ai.operation.name": operation, key: name}
    return Span(
        trace_id=trace_id,
        span_id=span_id,
        parent_span_id=parent,
        name=f"{operation} {name}",
        start_time_unix_nano=began,
        end_time_unix_nano=began + lasts,
        attributes=[KeyValue(key=each, value=AnyValue(string_value=value)) for each, value in attributes.items()],
    )


def _as_protobuf(spans: Sequence[Span]) -> bytes:
    made = ExportTraceServiceRequest()
    made.resource_spans.add().scope_spans.add().spans.extend(spans)
    return made.SerializeToString()


def _as_json(spans: Sequence[Span]) -> bytes:
    written = [
        {
            "traceId": span.trace_id.hex(),
            "spanId": span.span_id.hex(),
            **({"parentSpanId": span.parent_span_id.hex()} if span.parent_span_id else {}),
            "name": span.name,
            "startTimeUnixNano": str(span.start_time_unix_nano),
            "endTimeUnixNano": str(span.end_time_unix_nano),
            "attributes": [
                {"key": pair.key, "value": {"stringValue": pair.value.string_value}} for pair in span.attributes
            ],
            "status": {"code": span.status.code} if span.status.code else {},
        }
        for span in spans
    ]
    return json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": written}]}]}).encode()
