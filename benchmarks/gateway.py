"""Measures the CPU time per span of `goldspan serve` over HTTP, compared with parsing and with a collector.

    python benchmarks/gateway.py [--peers FOLDER] [--rounds N] [--spans N] [--sustained SECONDS]
                                [--payload A] [--check]

*parse* is protobuf's `ExportTraceServiceRequest.FromString`, in this process. *goldspan* journals and scores the
requests and has no back end. *rotel* is a collector written in Rust, which discards the requests (its `blackhole`
exporter). It is installed from PyPI into FOLDER on first use. Eight clients post concurrently, each over one
connection, and all traces are new. The CPU time is that of all processes of the server, from before the first post
until all spans are scored, the journals are maintained and the server is idle. The measurements are interleaved in
rounds, and the medians are printed. The payloads are those of `payloads.py`, posted unchanged (512 spans) and cut into
requests of 16 spans. `--check` exits with 1 if a budget is exceeded.

Needs Linux, and the extra `server`.
"""

from __future__ import annotations

import argparse
import itertools
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import payloads
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from peers import Peer
from peers.environments import Unavailable, environment
from servers import CONNECTIONS, NotServing, Server, free_port, post, running

from goldspan.extraction import extract
from goldspan.otlp.otlp_protobuf import decode_traces
from goldspan.store import RunFilter, open_store

ROTEL = Peer("rotel", "rotel==0.0.1a15", ())
BUDGETS: dict[str, dict[str, float]] = {"A": {"rotel": 1.5, "parse": 38.0}, "B": {"parse": 110.0}}
"""Maximum CPU time per span as a multiple of theirs, by payload, in posts of 512 spans."""
GOLDENS = """\
goldens:
  - id: concierge
    when: {agent: concierge}
    tools: [search_hotels, compare_prices, check_dates, book_hotel]
  - id: everybody else
    policy: true
    max_calls: 20
"""
SMALL = 16
"""Number of spans in a post of an application that exports every few seconds."""


@dataclass(frozen=True)
class Load:
    """Posts of one kind. Different repeats of the templates contain different traces."""

    payload: str
    spans_a_post: int
    templates: Sequence[bytes]

    @property
    def spans(self) -> int:
        """Number of spans in all templates."""
        return sum(len(decode_traces(template).spans) for template in self.templates)

    @property
    def runs(self) -> int:
        """Number of runs in all templates, however they are cut."""
        return len(extract([span for template in self.templates for span in decode_traces(template).spans]))

    def posts(self, times: int, numbers: Iterator[int]) -> list[bytes]:
        """Return all templates, repeated `times` times, each time with another number."""
        return [
            payloads.another(template, number)
            for number in itertools.islice(numbers, times)
            for template in self.templates
        ]


def main() -> int:
    """Measure, print, and compare with the budgets. Returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", type=Path, metavar="FOLDER", help="install rotel here and measure it too")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--spans", type=int, default=20_480, help="spans posted to each server in each round")
    parser.add_argument("--sustained", type=float, default=10, metavar="SECONDS", help="load on one core; 0: none")
    parser.add_argument("--payload", choices=("A", "B"), help="measure only this payload")
    parser.add_argument("--check", action="store_true", help="exit with 1 if a budget is exceeded")
    options = parser.parse_args()
    if sys.platform != "linux":
        print("the CPU time of other processes can be read on Linux only")
        return 1 if options.check else 0

    print(f"medians of {options.rounds} interleaved rounds, {CONNECTIONS} connections, Python {sys.version.split()[0]}")
    results = []
    try:
        for load in _loads():
            if options.payload in (None, load.payload):
                results += _shown(load, options)
        if options.sustained:
            _show_sustained(options.sustained)
    except NotServing as why:
        print(f"MISSED {why}")
        results.append(False)
    return 1 if options.check and not all(results) else 0


# --- CPU time ---------------------------------------------------------------------------------------------------------


def measure(load: Load, servers: Sequence[Server], rounds: int, times: int, numbers: Iterator[int]) -> dict[str, float]:
    """Return the microseconds per span of parsing and of each server: medians over interleaved rounds.

    Each round posts the load `times` times. A first round warms up and is not counted.
    """
    spans = times * load.spans
    measured: dict[str, list[float]] = {"parse": [], **{server.name: [] for server in servers}}
    for number in range(rounds + 1):
        posts = load.posts(times, numbers)
        seconds = {"parse": _parsing(posts), **{server.name: _serving(server, posts) for server in servers}}
        for name, values in measured.items():
            if number:
                values.append(seconds[name] / spans * 1e6)
    return {name: statistics.median(values) for name, values in measured.items()}


def _parsing(posts: Sequence[bytes]) -> float:
    """Return the seconds of the second of two passes: the first one pays for freeing memory of earlier work."""
    for _ in range(2):
        began = time.process_time()
        for body in posts:
            ExportTraceServiceRequest.FromString(body)
    return time.process_time() - began


def _serving(server: Server, posts: Sequence[bytes]) -> float:
    before = server.cpu_seconds()
    post(server.port, posts)
    return server.wait_until_done()[1] - before


def _loads() -> Iterator[Load]:
    a, b = payloads.payload_a(), payloads.payload_b()
    yield Load("A", payloads.SPANS, [a])
    yield Load("A", SMALL, payloads.cut(a, SMALL))
    yield Load("B", payloads.SPANS, b)
    yield Load("B", SMALL, [piece for request in b for piece in payloads.cut(request, SMALL)])


def _shown(load: Load, options: argparse.Namespace) -> list[bool]:
    """Print the figures of one kind of posts. Returns whether each is within its budget, if it has one."""
    size = sum(map(len, load.templates)) / load.spans
    print(f"payload {load.payload} in posts of {load.spans_a_post} spans, {size:.0f} bytes a span", flush=True)
    times = max(1, round(options.spans / load.spans))
    numbers = itertools.count(1)
    with goldspan(load, numbers) as ours, ExitStack() as stack:
        servers = [ours]
        if options.peers:
            try:
                servers.append(stack.enter_context(rotel(options.peers)))
            except Unavailable as why:
                print(f"  {ROTEL.requirement} {why}")
        figures = measure(load, servers, options.rounds, times, numbers)
    return list(_compared(load, figures))


def _compared(load: Load, figures: dict[str, float]) -> Iterator[bool]:
    ours = figures["goldspan"]
    for name, microseconds in sorted(figures.items(), key=lambda item: item[1]):
        ratio = "" if name == "goldspan" else f"   goldspan takes {ours / microseconds:5.2f} times that"
        print(f"  {name:10} {microseconds:6.2f} us a span{ratio}")
    if load.spans_a_post != payloads.SPANS:
        return
    for name, budget in BUDGETS[load.payload].items():
        if name in figures:
            is_good = (ratio := ours / figures[name]) <= budget
            message = f"goldspan takes {ratio:.2f} times what {name} takes, at most {budget:g}"
            print(f"  {'ok    ' if is_good else 'MISSED'} {message}", flush=True)
            yield is_good


# --- sustained rate ---------------------------------------------------------------------------------------------------


def _show_sustained(seconds: float) -> None:
    """Print the spans per second that one worker on one core scores, and two workers on two cores."""
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        print("one core: none is left for the clients, so the sustained rate is not measured")
        return
    others = set(cores[2:]) or set(cores[1:])
    print(f"sustained rate until all spans are scored, clients on {len(others)} of {len(cores)} cores")
    for load in _loads():
        for workers, title in ((1, "1 worker on 1 core"), (2, "2 workers on 2 cores")):
            rate = sustained(load, seconds, cores=set(cores[:workers]), workers=workers, clients=others)
            posts = rate / load.spans_a_post
            print(
                f"  payload {load.payload}, posts of {load.spans_a_post:3} spans, {title:20}"
                f"   {posts:7.0f} posts a second, {rate:8.0f} spans",
                flush=True,
            )


def sustained(load: Load, seconds: float, *, cores: set[int], workers: int, clients: set[int]) -> float:
    """Return the spans per second, from the first post until all are scored, with about `seconds` of posting."""
    numbers = itertools.count(1)
    everywhere = os.sched_getaffinity(0)
    with goldspan(load, numbers, cores=cores, workers=workers) as server:
        os.sched_setaffinity(0, clients)
        try:
            trial = _rate(server, load, load.posts(_TRIAL, numbers), _TRIAL)
            times = max(_TRIAL, round(trial * seconds / load.spans))
            return _rate(server, load, load.posts(times, numbers), times)
        finally:
            os.sched_setaffinity(0, everywhere)


def _rate(server: Server, load: Load, posts: Sequence[bytes], times: int) -> float:
    began = time.perf_counter()
    post(server.port, posts)
    return times * load.spans / (server.wait_until_done()[0] - began)


_TRIAL = 16
"""Number of repeats in the trial that determines the number of posts."""


# --- the servers ------------------------------------------------------------------------------------------------------


@contextmanager
def goldspan(
    load: Load, numbers: Iterator[int], *, cores: set[int] | None = None, workers: int = 1
) -> Iterator[Server]:
    """Run a gateway with an empty journal and store.

    At the end, the next of the `numbers` tells how often the load was posted. Raises `NotServing` if the gateway has
    not scored every run of it.
    """
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        folder, port = Path(name), free_port()
        (folder / "goldens.yaml").write_text(GOLDENS, encoding="utf-8")
        command = [
            *(sys.executable, "-m", "goldspan", "serve", "--http-port", str(port), "--grpc-port", "0"),
            *("--data", folder / "data", "--goldens", folder / "goldens.yaml", "--workers", str(workers)),
            *("--grace", "0.2", "--idle", "1"),
        ]
        with running("goldspan", command, port, log=folder / "log", cores=cores) as server:
            yield server
            _check(folder / "data" / "goldspan.db", load.runs * (next(numbers) - 1))


def _check(path: Path, runs: int) -> None:
    """Raise `NotServing` if the store does not contain evaluations of this number of runs."""
    with open_store(path, read_only=True) as store:
        counts = store.count(RunFilter(unit="request"))
    scored = counts.passed + counts.failed + counts.not_evaluated
    if scored != runs:
        raise NotServing(f"goldspan scored {scored} of {runs} runs")


@contextmanager
def rotel(folder: Path) -> Iterator[Server]:
    """Run rotel, which discards the requests. Raises `Unavailable`."""
    python = environment(ROTEL, folder.resolve())
    program = next(python.parent.parent.glob("lib/*/site-packages/rotel/rotel-agent"))
    with tempfile.TemporaryDirectory() as name:
        port = free_port()
        command = [
            *(program, "start", "--exporter", "blackhole"),
            *("--otlp-http-endpoint", f"127.0.0.1:{port}", "--otlp-grpc-endpoint", f"127.0.0.1:{free_port()}"),
        ]
        with running("rotel", command, port, log=Path(name) / "log") as server:
            yield server


if __name__ == "__main__":
    sys.exit(main())
