"""Runs the scoring of a gateway with a real journal, a real store and a manual clock; and builds OTLP from spans."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans

from goldspan.gateway.gateway_counters import GatewayCounters
from goldspan.gateway.journal.journal import Journal, JournalEntry
from goldspan.gateway.resource_limits import EntryOrigin, Media, Signal
from goldspan.gateway.scoring.drop_publisher import DropPublisher
from goldspan.gateway.scoring.results_queue import ResultEncoder, ResultsQueue
from goldspan.gateway.scoring.scoring_consumer import ScoringConsumer, ScoringStop
from goldspan.gateway.scoring.scoring_thread import ScoringThread
from goldspan.gateway.scoring.telemetry_log import SCORING_CONSUMERS, journal_logs
from goldspan.gateway.scoring.trace_buffer import FlushPolicy, TraceBufferLimits
from goldspan.gateway.scoring.verdict_queue import VerdictQueue
from goldspan.judge import Judge
from goldspan.model import SpanRecord
from goldspan.online.pipeline import Pipeline
from goldspan.sinks import DropCounters
from goldspan.store import StoredRun, open_store
from support.metric_readers import Meter
from support.span_builders import agent, tool, trace_id

PATIENCE = FlushPolicy(grace=1.0, idle=10.0, late=60.0)


_STATUS = {"unset": 0, "ok": 1, "error": 2}


def request(*spans: SpanRecord, service: str | None = None) -> bytes:
    """Build an OTLP request in protobuf with these spans."""
    resource_spans = ResourceSpans()
    if service is not None:
        resource_spans.resource.attributes.append(pair("service.name", service))
    scope_spans = resource_spans.scope_spans.add()
    for span in spans:
        made = scope_spans.spans.add(
            trace_id=bytes.fromhex(span.trace_id),
            span_id=bytes.fromhex(span.span_id),
            parent_span_id=bytes.fromhex(span.parent_id or ""),
            name=span.name,
            start_time_unix_nano=span.start_ns or 0,
            end_time_unix_nano=span.end_ns or 0,
        )
        made.attributes.extend(pair(key, value) for key, value in span.attributes.items())
        made.status.code = _STATUS[span.status]
    return ExportTraceServiceRequest(resource_spans=[resource_spans]).SerializeToString()


def json_request(*spans: SpanRecord) -> bytes:
    """Build the same request in JSON."""
    written = [
        {
            "traceId": span.trace_id,
            "spanId": span.span_id,
            "parentSpanId": span.parent_id,
            "name": span.name,
            "startTimeUnixNano": str(span.start_ns),
            "endTimeUnixNano": str(span.end_ns),
            "attributes": [{"key": key, "value": {"stringValue": value}} for key, value in span.attributes.items()],
            "status": {"code": _STATUS[span.status]},
        }
        for span in spans
    ]
    return json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": written}]}]}).encode()


def pair(key: str, value: Any) -> KeyValue:
    kind = {bool: "bool_value", int: "int_value", float: "double_value"}.get(type(value), "string_value")
    return KeyValue(key=key, value=AnyValue(**{kind: value}))


def asking(number: int = 0, *tools: str, **more: Any) -> list[SpanRecord]:
    """Build the spans of a request: its agent, and a call of each tool."""
    root = agent("helper", trace_id=trace_id(number), **more)
    return [root, *(tool(name, parent_id=root.span_id, trace_id=root.trace_id) for name in tools)]


class ScoringHarness:
    """The scoring of one or several workers with their journals, all in this process."""

    def __init__(self, folder: Path, *, pipeline: Pipeline | None = None, workers: int = 1, **options: Any) -> None:
        self.now: float = options.pop("now", 0.0)
        self.meter = Meter()
        self.store = open_store(folder / "goldspan.db", clock=self.wall, timeout=options.pop("timeout", 5.0))
        self.results = ResultEncoder(options.pop("results", ()))
        self.judge: Judge | None = options.pop("judge", None)
        self.verdicts = VerdictQueue()
        self.pipeline = pipeline or Pipeline(
            options.pop("goldens", None), sinks=self.results.sinks, judge=self.judge, on_verdict=self.verdicts.put
        )
        self.spans: EntryOrigin = "held" if options.pop("enrich", False) else "received"
        room = {
            name: options.pop(name) for name in ("max_groups", "max_bytes", "max_spans_per_group") if name in options
        }
        patience = options.pop("patience", PATIENCE)
        back_ends = options.pop("consumers", ())
        backlog = options.pop("max_backlog_bytes", 2**40)
        most = options.pop("max_journal_bytes", 2**30)
        self.journals = {
            place: Journal(folder / f"{place}.db", max_bytes=most, clock=self.wall) for place in range(workers)
        }
        for journal in self.journals.values():
            journal.register_consumers(
                [*SCORING_CONSUMERS, *back_ends], starts_at_end=lambda name: name not in SCORING_CONSUMERS
            )
        self.stop = ScoringStop()
        self.scoring = [
            ScoringConsumer(
                journal_logs(self.journals, worker, workers),
                self.pipeline,
                self.store,
                flush_policy=patience,
                buffer_limits=TraceBufferLimits(**room),
                max_backlog_bytes=backlog,
                counters=GatewayCounters(self.meter.provider),
                drops=DropPublisher(self.pipeline, DropCounters(self.meter.provider)),
                results_queue=ResultsQueue(self.journals[worker], self.results),
                judge_verdicts=None if self.judge is None else self.verdicts,
                stop=self.stop,
                clock=lambda: self.now,
                wall_clock=self.wall,
            )
            for worker in range(workers)
        ]

    def thread(self) -> ScoringThread:
        """Return the thread that runs the first scoring; it is not started."""
        return ScoringThread(self.scoring[0], self.stop)

    def wall(self) -> int:
        """Return the time in nanoseconds since the Unix epoch."""
        return 10**18 + round(self.now * 10**9)

    def post(self, body: bytes, *, media: Media = "protobuf", signal: Signal = "traces", journal: int = 0) -> int:
        """Append a request to the journal, and return the key of its entry."""
        origin = self.spans if signal == "traces" else "received"
        return self.journals[journal].append(signal, media, body, origin=origin).result(30)

    def wait(self, seconds: float = 0.0) -> None:
        """Score everything in the journals, advance the clock, and do what is then due."""
        for passing in (0.0, seconds):
            self.now += passing
            for scoring in self.scoring:
                while scoring.poll():
                    pass

    def answered(self) -> None:
        """Wait until the judge has answered, and process the verdicts."""
        assert self.pipeline.flush_verdicts(60_000)
        self.wait()

    def runs(self) -> dict[str, StoredRun]:
        """Return the stored runs by their id."""
        return {run.run_id: run for run in self.store.iter_runs()}

    def tools(self) -> dict[str, list[str]]:
        """Return the tools of each stored run."""
        return {run_id: run.current.document["tools_used"] for run_id, run in self.runs().items()}

    def evaluations(self) -> int:
        """Return the number of all stored evaluations."""
        return sum(run.evaluation_count for run in self.store.iter_runs())

    def entries(self, origin: str) -> list[JournalEntry]:
        """Return the entries of that origin in the first journal."""
        return [entry for entry in self.journals[0].read(0, max_entries=10_000) if entry.origin == origin]

    def cursor(self, journal: int = 0) -> int:
        """Return the key of the last entry of a journal that scoring has finished."""
        return min(self.journals[journal].cursor(name) or 0 for name in SCORING_CONSUMERS)

    def close(self) -> None:
        """End as after a `kill -9`: finish nothing, except that the journals write what they hold."""
        if self.judge is not None:
            self.judge.drain_timeout = 0.0
            self.pipeline.close()
        for journal in self.journals.values():
            journal.close()
        self.store.close()
        self.meter.provider.shutdown()


def shuffled_posts(spans: Iterable[SpanRecord], chance: Any) -> list[bytes]:
    """Return the spans in random order, in requests of random size."""
    left = list(spans)
    chance.shuffle(left)
    posts = []
    while left:
        size = chance.randint(1, 5)
        posts.append(request(*left[:size]))
        left = left[size:]
    return posts
