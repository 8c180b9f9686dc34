"""What it costs to turn an OTLP request into runs, as a ratio to parsing its bytes.

    python benchmarks/extraction.py [--rounds N] [--check]

*Parse*: protobuf's own `ExportTraceServiceRequest.FromString`, which reads the bytes into messages and no further.
*Read*: parsing, and the obvious way to take from those messages what no extractor can do without: the ids of each
span, the values of spans that have to do with agents, and their JSON. No request is cut, no call is joined, no run is
made. *Decode*: the same bytes to span records. *Extract*: decoding, and rebuilding the runs with their tool calls. They
run in turn, round after round; medians are shown. The payloads are those of `payloads.py`. `--check` ends with 1 where
a budget is missed.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import payloads
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import KeyValue

from goldspan.extraction import extract
from goldspan.otlp.otlp_protobuf import decode_traces

BUDGETS = {"A": 11.0, "B": 45.0}
"""What decoding and extraction together may cost, as a multiple of parsing."""


def read_values(data: bytes) -> list[dict[str, object]]:
    """Ids of all spans, values of those with an attribute of some convention; histories are passed over."""
    found: list[dict[str, object]] = []
    for resource_spans in ExportTraceServiceRequest.FromString(data).resource_spans:
        for scope_spans in resource_spans.scope_spans:
            for span in scope_spans.spans:
                values: dict[str, object] = {
                    "trace": span.trace_id,
                    "span": span.span_id,
                    "parent": span.parent_span_id,
                }
                pairs = {pair.key: pair for pair in span.attributes}
                if any(key.startswith(_OF_AGENTS) for key in pairs):
                    values |= {key: _value(pair) for key, pair in pairs.items() if not key.endswith(_HISTORY)}
                found.append(values)
    return found


_OF_AGENTS = ("gen_ai.", "llm.", "openinference.", "traceloop.", "ai.", "langfuse.", "langsmith.", "mlflow.", "mcp.")
_HISTORY = ("input.messages", "all_messages", "input.value", "entity.input")


def _value(pair: KeyValue) -> object:
    text = pair.value.string_value
    if text[:1] not in ("{", "["):
        return text
    try:
        return json.loads(text)
    except ValueError:
        return text


STEPS: dict[str, Callable[[bytes], object]] = {
    "parse": ExportTraceServiceRequest.FromString,
    "read": read_values,
    "decode": decode_traces,
    "decode and extract": lambda data: extract(decode_traces(data).spans),
}


@dataclass(frozen=True)
class Payload:
    """Requests that are sent one after the other."""

    name: str
    about: str
    requests: Sequence[bytes]

    @property
    def spans(self) -> int:
        """How many spans there are in all requests."""
        return sum(len(decode_traces(request).spans) for request in self.requests)


def main() -> int:
    """Measure, print, and compare with the budgets."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="end with 1 where a budget is missed")
    parser.add_argument("--rounds", type=int, default=30)
    options = parser.parse_args()

    print(f"medians of {options.rounds} interleaved rounds, Python {sys.version.split()[0]}")
    results = [_shown(payload, options.rounds) for payload in _payloads()]
    return 1 if options.check and not all(results) else 0


def measure(payload: Payload, rounds: int) -> dict[str, float]:
    """Microseconds a span of each step: medians over interleaved rounds.

    In each round a step runs twice and the second time counts. Then no step pays for the memory and the caches that
    the one before it left behind, which alone could make parsing take three times as long.
    """
    taken: dict[str, list[float]] = {step: [] for step in STEPS}
    spans = payload.spans
    for _ in range(rounds):
        for step, run in STEPS.items():
            _timed(run, payload.requests)
            taken[step].append(_timed(run, payload.requests) / spans * 1e6)
    return {step: statistics.median(times) for step, times in taken.items()}


def _timed(run: Callable[[bytes], object], requests: Sequence[bytes]) -> float:
    began = time.perf_counter()
    for request in requests:
        run(request)
    return time.perf_counter() - began


def _payloads() -> list[Payload]:
    return [
        Payload("A", "agents inside an application", [payloads.payload_a()]),
        Payload("B", "agents of every family, with messages and history", payloads.payload_b()),
    ]


def _shown(payload: Payload, rounds: int) -> bool:
    """Print the figures of one payload. Whether it is within its budget."""
    size = sum(map(len, payload.requests)) / payload.spans
    print(f"payload {payload.name}, {payload.about}: {payload.spans} spans of {size:.0f} bytes")
    figures = measure(payload, rounds)
    ratio = 0.0
    for step, microseconds in figures.items():
        ratio = microseconds / figures["parse"]
        print(f"  {step:20} {microseconds:6.2f} us a span   {ratio:5.2f}")
    good = ratio <= BUDGETS[payload.name]
    print(f"  {'ok    ' if good else 'MISSED'} decode and extract is {ratio:.1f}, at most {BUDGETS[payload.name]:g}")
    return good


if __name__ == "__main__":
    sys.exit(main())
