"""A decorated agent application that writes its scores into a product, and prints samples of its sink.

    python outage_application.py URL REQUESTS_PER_SECOND MAX_QUEUE SPEED

Each line of its output is a sample, as JSON. The standard input has one command per line: `serve` and `rest` start and
stop the requests, and `end` ends the program. `SPEED` divides the pauses and time limits of the delivery, so that a
test need not take minutes.
"""

from __future__ import annotations

import json
import statistics
import sys
import threading
import time
from collections.abc import Iterable, Sequence
from typing import Any

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import set_span_in_context

import goldspan
from goldspan import Evaluation, Limits, ScoringProcessor, semconv
from goldspan.integrations import http_client, product_sink, score_delivery
from goldspan.integrations.phoenix import Phoenix
from goldspan.integrations.product_sink import ProductSink
from goldspan.model import ExpectedTool
from support.metric_readers import Meter

GOLDEN = goldspan.Golden("trip", "Paris, please.", (ExpectedTool("search"), ExpectedTool("book")))
REQUESTS_PER_LATE_CALL = 10
"""One request in so many has a tool call that ends after it, which revises its scores."""


@goldspan.trace
def search(city: str) -> list[str]:
    return [f"{city} Inn"]


@goldspan.trace
def book(hotel: str) -> str:
    return f"booked {hotel}"


@goldspan.trace(kind="agent", name="travel")
def serve(question: str) -> Any:
    """Answer a request, and return its span."""
    book(search("Paris")[0])
    return trace.get_current_span()


class AccountedSink(ProductSink):
    """A product sink that also counts what it accepts. Its lock makes a sample consistent."""

    def __init__(self, *args: Any, **options: Any) -> None:
        self.submitted = self.written = self.refused = self.replaced = self.most_held = 0
        super().__init__(*args, **options)

    def submit_many(self, evaluations: Iterable[Evaluation]) -> None:
        given = list(evaluations)
        with self._lock:
            self.submitted += len(given)
            super().submit_many(given)
            self.most_held = max(self.most_held, self._held())

    def _settle(self, part: Any, count: int, known_since: Any, lost: int = 0) -> bool:
        with self._lock:
            # The sink settles the runs of replaced revisions first, as a result without parts.
            self.replaced += count - part.count - lost
            self.written += part.written_count
            self.refused += len(part.refusals)
            is_open = super()._settle(part, count, known_since, lost)
            self.most_held = max(self.most_held, self._held())
            return is_open


class Application:
    """Serves requests at a steady rate on a thread, like a server."""

    def __init__(self, url: str, rate: float, max_queue: int) -> None:
        self.meter = Meter()
        self.sink = AccountedSink(Phoenix(url), max_queue=max_queue, meter_provider=self.meter.provider)
        self.processor = ScoringProcessor(
            [GOLDEN],
            sinks=[self.sink],
            limits=Limits(settle=0.01),
            meter_provider=self.meter.provider,
            background=True,
        )
        provider = TracerProvider()
        provider.add_span_processor(self.processor)
        trace.set_tracer_provider(provider)
        self.requests = self.late_calls = 0
        self._rate = rate
        self._cpu: list[float] = []
        self._wall: list[float] = []
        self._serves = threading.Event()
        self._spans: list[Any] = []
        threading.Thread(target=self._serve_requests, daemon=True).start()

    def command(self, name: str) -> None:
        (self._serves.set if name == "serve" else self._serves.clear)()

    def sample(self) -> dict[str, Any]:
        """Return the counts of the sink at one moment, and what a request took since the last sample."""
        sink = self.sink
        with sink._lock:
            dropped = self.meter.counts(semconv.SINK_DROPPED_COUNTER, semconv.SINK_LABEL)
            counts = {
                "submitted": sink.submitted,
                "written": sink.written,
                "refused": sink.refused,
                "replaced": sink.replaced,
                "dropped": dropped.get((sink.name,), 0),
                "held": sink._held(),
                "most_held": sink.most_held,
            }
        cpu, self._cpu = self._cpu, []
        wall, self._wall = self._wall, []
        lost = {name: sum(found.values()) for name in _LOSSES if (found := self.meter.counts(name))}
        return counts | {
            "requests": self.requests,
            "late_calls": self.late_calls,
            "lost_before": sum(lost.values()),
            "cpu": _median_us(cpu),
            "wall": _median_us(wall),
            "slowest": max(wall, default=0.0),
        }

    def _serve_requests(self) -> None:
        due = time.monotonic()
        while True:
            self._serves.wait()
            due = max(due + 1 / self._rate, time.monotonic() - 1)
            time.sleep(max(0.0, due - time.monotonic()))
            wall, cpu = time.perf_counter(), time.thread_time()
            span = serve("Paris, please.")
            self._cpu.append(time.thread_time() - cpu)
            self._wall.append(time.perf_counter() - wall)
            self.requests += 1
            if self.requests % REQUESTS_PER_LATE_CALL == 0:
                self._spans.append(span)
                if len(self._spans) > 3:  # the request was scored meanwhile
                    self._end_late_call(self._spans.pop(0))

    def _end_late_call(self, agent: Any) -> None:
        attributes = {semconv.OPERATION: semconv.EXECUTE_TOOL, semconv.TOOL_NAME: "notify"}
        tracer = trace.get_tracer("application")
        tracer.start_span("execute_tool notify", set_span_in_context(agent), attributes=attributes).end()
        self.late_calls += 1


_LOSSES = (
    semconv.UNSCORED_SPANS_COUNTER,
    semconv.TOO_LATE_SPANS_COUNTER,
    semconv.EVICTED_COUNTER,
    semconv.UNENDED_RUNS_COUNTER,
)
"""What may be lost before a run is submitted to the sink."""


def _median_us(seconds: Sequence[float]) -> float | None:
    return statistics.median(seconds) * 1e6 if seconds else None


def _accelerate(speed: float) -> None:
    for module, names in (
        (http_client, ["MAX_REPLY_SECONDS"]),
        (score_delivery, ["_FIRST_PAUSE_SECONDS", "_MAX_PAUSE_SECONDS", "_MISCONFIGURED_PAUSE_SECONDS"]),
        (product_sink, ["_MIN_WAIT_SECONDS"]),
    ):
        for name in names:
            setattr(module, name, getattr(module, name) / speed)


def main() -> None:
    url, rate, max_queue, speed = sys.argv[1:]
    _accelerate(float(speed))
    application = Application(url, float(rate), int(max_queue))
    commands: list[str] = []
    threading.Thread(target=_read, args=(commands,), daemon=True).start()
    pause = 1.0 / float(speed)
    while "end" not in commands:
        while commands:
            application.command(commands.pop(0))
        print(json.dumps(application.sample()), flush=True)
        time.sleep(max(0.05, pause))


def _read(commands: list[str]) -> None:
    while line := sys.stdin.readline():
        commands.append(line.strip())
    commands.append("end")


if __name__ == "__main__":
    main()
