"""Count the modules that one decorated request runs through until its span carries a result.

    python benchmarks/walk.py           # the figures
    python benchmarks/walk.py --list    # and the modules, in the order of their first call

The walk starts with the call of the decorated agent and ends when the processor passes on the request's span with the
result in its attributes. The processor has no sinks: metrics, events and pass rates are exported from the result, and
are not part of it.

A *change* of module is a call from a function of one module of goldspan to a function of another. The request is
measured after a first one, so that imports and caches that are filled once do not count.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
from pathlib import Path
from types import FrameType
from typing import Any

from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider

import goldspan
from goldspan import semconv

MOST_MODULES = 50
"""What `--check` accepts."""
GOLDENS = """
version: 1
goldens:
  - id: book
    input: Book the Roma Inn.
    order: in_order
    tools: [search_hotels, {name: book_hotel, arguments: {hotel: Roma Inn}}]
"""


@goldspan.trace
def search_hotels(city: str) -> list[str]:
    """Return the hotels of a city."""
    return ["Roma Inn"]


@goldspan.trace
def book_hotel(hotel: str) -> str:
    """Book a hotel."""
    return f"booked {hotel}"


@goldspan.trace(kind="agent")
def agent(question: str) -> str:
    """Answer with two tool calls."""
    return book_hotel(search_hotels("Rome")[0])


class ModuleTracer:
    """Record which modules of goldspan call each other, on all threads."""

    def __init__(self) -> None:
        self.modules: dict[str, int] = {}
        self.changes = 0
        self.is_recording = False

    def __call__(self, frame: FrameType, event: str, arg: Any) -> None:
        """Be what `sys.setprofile` calls."""
        if event != "call" or not self.is_recording:
            return
        module = frame.f_globals.get("__name__", "")
        if not module.startswith("goldspan"):
            return
        self.modules[module] = self.modules.get(module, 0) + 1
        caller = frame.f_back
        while caller is not None and not caller.f_globals.get("__name__", "").startswith("goldspan"):
            caller = caller.f_back
        if caller is not None and caller.f_globals["__name__"] != module:
            self.changes += 1


class ResultReceiver(SpanProcessor):
    """Be where the processor passes spans on, and stop the recording when one has the result of its run."""

    def __init__(self, tracer: ModuleTracer) -> None:
        self._tracer = tracer
        self.has_result = threading.Event()
        self.passed: list[object] = []

    def on_end(self, span: ReadableSpan) -> None:
        """Receive one span."""
        attributes = span.attributes or {}
        if semconv.PASSED in attributes:
            self._tracer.is_recording = False
            self.passed.append(attributes[semconv.PASSED])
            self.has_result.set()


def measure() -> ModuleTracer:
    """Serve two requests and trace the second one, from the call of the agent to its span with the result."""
    tracer = ModuleTracer()
    receiver = ResultReceiver(tracer)
    threading.setprofile(tracer)  # before the processor starts its thread, which would not be traced otherwise
    sys.setprofile(tracer)
    with tempfile.TemporaryDirectory() as folder:
        goldens = Path(folder, "goldens.yaml")
        goldens.write_text(GOLDENS, encoding="utf-8")
        processor = goldspan.ScoringProcessor(str(goldens), then=receiver, sinks=[], background=True)
        provider = TracerProvider()
        provider.add_span_processor(processor)
        trace.set_tracer_provider(provider)
        for is_recorded in (False, True):
            receiver.has_result.clear()
            tracer.is_recording = is_recorded
            agent("Book the Roma Inn.")
            receiver.has_result.wait(10)
            tracer.is_recording = False
            provider.force_flush()
        provider.shutdown()
    sys.setprofile(None)
    threading.setprofile(None)  # type: ignore[arg-type]
    if receiver.passed != [True, True]:
        raise SystemExit(f"both requests should have passed, and their results are {receiver.passed}")
    return tracer


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--list", action="store_true", help="print the modules, in the order of their first call")
    parser.add_argument("--check", action="store_true", help=f"fail above {MOST_MODULES} modules")
    options = parser.parse_args()
    tracer = measure()
    print(f"modules: {len(tracer.modules)}, changes of module: {tracer.changes}")
    if options.list:
        for module, calls in tracer.modules.items():
            print(f"  {calls:4}  {module}")
    if options.check and len(tracer.modules) > MOST_MODULES:
        raise SystemExit(f"at most {MOST_MODULES} modules are allowed")


if __name__ == "__main__":
    main()
