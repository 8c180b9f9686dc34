"""What a product that fails costs the application that writes scores into it, as ratios to no such sink.

    python benchmarks/product_outage.py [--rounds N] [--check]

One request is a decorated agent with ten tool calls, whose run is scored. *No sink*: the scores go nowhere. *Healthy*:
a `ProductSink` writes them into a product that accepts them. Each other row is a product that fails in one way over
real sockets; its sink's queue is full before the measurement. The products run in a process of their own. All rows take
turns, a few requests each; medians of the ratios of turns are shown.

*CPU* is what the application's own thread spends in a request, *wall* how long the request takes, and *all* the CPU
time of the whole process, with scoring and the sink's thread. `--check` exits with 1 if a request takes more CPU time
with a failing product than the budget allows.
"""

from __future__ import annotations

import argparse
import gc
import logging
import multiprocessing
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from peers.capture_worker import NAMES, QUESTION, REQUESTS, TOOLS, Kept, Prepared, decorated_requests, ratio

import goldspan
from goldspan.integrations.phoenix import Phoenix
from goldspan.integrations.product_sink import ProductSink
from goldspan.model import ExpectedTool, Golden

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))  # the failing product is the one of the tests

from support.failing_product import FAILURES, FailingProduct

BUDGET = 1.1
"""How many times the CPU time without a sink a request may take the application, whatever the product does."""
MAX_QUEUE = 1_000
_GOLDEN = Golden("g", QUESTION, tuple(ExpectedTool(name) for name in NAMES))
_NO_SINK = "no sink"
_SECONDS_BETWEEN_TURNS = 0.02
"""A pause in which the background works, as between the requests of a server."""


@dataclass
class Row:
    """An application with one product."""

    provider: TracerProvider
    run: Callable[[int], None]
    cpu: list[float] = field(default_factory=list)
    """Microseconds of the application's thread for each request, turn by turn."""
    wall: list[float] = field(default_factory=list)
    all_threads: list[float] = field(default_factory=list)


def main() -> int:
    """Measure, print, and compare with the budget."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--max-queue", type=int, default=MAX_QUEUE, help="results that wait for a product")
    parser.add_argument("--check", action="store_true", help="exit with 1 if the budget is exceeded")
    options = parser.parse_args()
    logging.getLogger("goldspan").setLevel(logging.CRITICAL)  # the products fail on purpose
    print(f"{TOOLS} tool calls a request, medians of {options.rounds} interleaved turns of {REQUESTS} requests")
    with _products() as urls:
        rows = _measure(urls, options.rounds, options.max_queue)
    base = rows[_NO_SINK]
    print(f"  {'':14}          CPU               wall               all")
    for name, row in rows.items():
        columns = [
            f"{statistics.median(own):7.0f} us {ratio(own, other):6.2f}"
            for own, other in ((row.cpu, base.cpu), (row.wall, base.wall), (row.all_threads, base.all_threads))
        ]
        print(f"  {name:14}  {'   '.join(columns)}")
    worst, cost = max(((name, ratio(row.cpu, base.cpu)) for name, row in rows.items()), key=lambda found: found[1])
    is_met = cost <= BUDGET
    print(
        f"  {'ok    ' if is_met else 'MISSED'} a request takes the application at most {cost:.2f} times the CPU time"
        f" ({worst}), at most {BUDGET:g}"
    )
    return 1 if options.check and not is_met else 0


def _measure(urls: dict[str, str], rounds: int, max_queue: int) -> dict[str, Row]:
    peer = Prepared(goldspan.trace(kind="agent"), goldspan.trace, Kept(), lambda: None)
    run = decorated_requests(peer)["sync"]
    rows = {_NO_SINK: Row(_provider(None, max_queue), run)}
    rows |= {name: Row(_provider(url, max_queue), run) for name, url in urls.items()}
    for row in rows.values():
        trace._TRACER_PROVIDER = row.provider
        for _ in range(max_queue // 100 + 5):
            row.run(100)
            row.provider.force_flush(1)
    gc.collect()
    gc.freeze()
    order = list(rows.values())
    for number in range(rounds + 1):
        for row in order:
            _take_turn(row, counts=number > 0)
        order.reverse()  # so that nobody always follows the same one
    for row in rows.values():
        row.provider.shutdown()
    return rows


def _provider(url: str | None, max_queue: int) -> TracerProvider:
    sinks = [] if url is None else [ProductSink(Phoenix(url), max_queue=max_queue)]
    provider = TracerProvider()
    provider.add_span_processor(goldspan.ScoringProcessor([_GOLDEN], sinks=sinks, background=True))
    return provider


def _take_turn(row: Row, *, counts: bool) -> None:
    trace._TRACER_PROVIDER = row.provider  # the decorator takes the global provider
    process = time.process_time()
    row.run(1)  # the thread waited for another one, and its caches are cold
    wall, cpu = time.perf_counter(), time.thread_time()
    row.run(REQUESTS)
    cpu, wall = time.thread_time() - cpu, time.perf_counter() - wall
    time.sleep(_SECONDS_BETWEEN_TURNS)
    process = time.process_time() - process
    if counts:  # the first turn is to warm up
        row.cpu.append(cpu / REQUESTS * 1e6)
        row.wall.append(wall / REQUESTS * 1e6)
        row.all_threads.append(process / (REQUESTS + 1) * 1e6)


@contextmanager
def _products() -> Iterator[dict[str, str]]:
    """Start one product for each behaviour in another process, and return their addresses."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=_serve, args=(there,), daemon=True)
    process.start()
    try:
        yield here.recv()
    finally:
        here.send("end")
        process.join(10)


def _serve(connection: Connection) -> None:
    products = {}
    for behaviour in ("healthy", *FAILURES):
        products[behaviour] = FailingProduct()
        products[behaviour].play(behaviour)
    connection.send({behaviour: product.url for behaviour, product in products.items()})
    connection.recv()


if __name__ == "__main__":
    sys.exit(main())
