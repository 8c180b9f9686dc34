"""Measure `goldspan score` on large inputs: its cost, its memory, how both grow, and what a second process saves.

    python benchmarks/scale.py                        # payload B: 0.1 million spans
    python benchmarks/scale.py --spans 100000 1000000
    python benchmarks/scale.py --spans 100000 10000000 --keep /large/folder
    python benchmarks/scale.py --check                # ends with 1 where a budget is missed

The input holds requests of payload B: as JSON lines, one request in each, and as length-delimited protobuf. The command
runs in a process of its own, as a user starts it. Times are processor time of it and its children; for processes beside
each other, elapsed time. The floor is to parse the same bytes: `json.loads` of each line, and `ParseFromString` of each
request. It is measured before and after each command.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import payloads
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from batch import as_otlp_json

MAX_JSON_RATIO, MAX_PROTOBUF_US, MIN_SPEEDUP, MAX_PEAK_MB, MAX_GROWTH = 5.0, 45.0, 1.8, 400, 1.15
_MIN_TIMED_S = 0.2
_PROGRAM = (
    "import resource, sys; from goldspan.cli.app import run; sys.argv[0] = 'goldspan'; status = run();"
    "own, children = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN));"
    "print(own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime,"
    " max(own.ru_maxrss, children.ru_maxrss), file=sys.stderr); sys.exit(status)"
)


@dataclass(frozen=True)
class Cost:
    """What a command took."""

    cpu_us: float
    """Processor time a span."""
    elapsed_us: float
    """Elapsed time a span."""
    peak_mb: int
    """The largest resident memory of one of its processes."""


def main() -> int:
    """Measure, print, and compare with the budgets."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--spans", type=int, nargs="+", default=[100_000])
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--memory", default="256MB")
    parser.add_argument("--keep", type=Path, help="write the inputs into this folder, and use those that are there")
    parser.add_argument("--check", action="store_true", help="end with 1 where a budget is missed")
    options = parser.parse_args()

    verdicts: list[bool] = []
    costs: list[float] = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        for spans in sorted(options.spans):
            requests = max(1, spans // payloads.SPANS)
            lines, messages = written(folder, requests)
            spans = requests * spans_in_a_request()
            print(f"{spans} spans, {lines.stat().st_size / spans:.0f} bytes each as JSON, {os.cpu_count()} cores")
            floor = timed_floor(lines, is_json=True) / spans
            cost = measured(lines, spans, "--memory", options.memory)
            floor = min(floor, timed_floor(lines, is_json=True) / spans)
            costs.append(cost.cpu_us / floor)
            verdicts.append(shown("JSON lines", cost, floor, ratio=MAX_JSON_RATIO))
            parsed = timed_floor(messages, is_json=False) / spans
            protobuf = measured(messages, spans, "--memory", options.memory)
            verdicts.append(shown("protobuf", protobuf, parsed, cpu_us=MAX_PROTOBUF_US))
            together = measured(lines, spans, "--memory", options.memory, "--jobs", str(options.jobs))
            shown(f"JSON lines, --jobs {options.jobs}", together, floor)
            gain = cost.elapsed_us / together.elapsed_us
            verdicts.append(told(gain >= MIN_SPEEDUP, f"{gain:.2f} times faster, at least {MIN_SPEEDUP}"))
            if options.keep is None:
                lines.unlink()
                messages.unlink()
    if len(costs) > 1:
        growth = max(costs) / min(costs)
        verdicts.append(told(growth <= MAX_GROWTH, f"cost grows by {growth:.2f}, at most {MAX_GROWTH}"))
    return 1 if options.check and not all(verdicts) else 0


def shown(name: str, cost: Cost, floor: float, *, ratio: float | None = None, cpu_us: float | None = None) -> bool:
    """Print the cost, and return whether it keeps its budgets."""
    print(
        f"  {name:20} {cost.cpu_us:7.1f} us a span, {cost.cpu_us / floor:5.2f} times parsing ({floor:.1f} us), "
        f"{cost.elapsed_us:7.1f} us elapsed, peak {cost.peak_mb} MB"
    )
    kept = told(cost.peak_mb <= MAX_PEAK_MB, f"memory, at most {MAX_PEAK_MB} MB")
    if ratio is not None:
        kept &= told(cost.cpu_us <= ratio * floor, f"cost, at most {ratio:g} times parsing")
    if cpu_us is not None:
        kept &= told(cost.cpu_us <= cpu_us, f"cost, at most {cpu_us:g} us a span")
    return kept


def told(is_kept: bool, budget: str) -> bool:
    """Print whether a budget is kept."""
    print(f"    {'ok    ' if is_kept else 'MISSED'} {budget}")
    return is_kept


def written(folder: Path, requests: int) -> tuple[Path, Path]:
    """Write requests of payload B as JSON lines and as length-delimited protobuf; files that exist are kept."""
    lines, messages = folder / f"requests-{requests}.jsonl", folder / f"requests-{requests}.pb"
    if lines.exists() and messages.exists():
        return lines, messages
    recorded = payloads.payload_b()
    with lines.open("w", encoding="utf-8") as json_file, messages.open("wb") as protobuf_file:
        for number in range(requests):
            request = payloads.another(recorded[number % len(recorded)], number // len(recorded))
            json_file.write(json.dumps(as_otlp_json(request)) + "\n")
            protobuf_file.write(len(request).to_bytes(4, "big") + request)
    return lines, messages


def spans_in_a_request() -> float:
    """Return the mean number of spans in a request of payload B, of which not all are full."""
    recorded = [ExportTraceServiceRequest.FromString(request) for request in payloads.payload_b()]
    counts = [
        len(scope.spans)
        for each in recorded
        for resource_spans in each.resource_spans
        for scope in resource_spans.scope_spans
    ]
    return sum(counts) / len(recorded)


def measured(file: Path, spans: float, *arguments: str) -> Cost:
    """Run the command, and return what it took."""
    command = [sys.executable, "-c", _PROGRAM, "score", str(file), "--json", *arguments]
    began = time.perf_counter()
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=True)
    elapsed = time.perf_counter() - began
    cpu, peak = done.stderr.split()[-2:]
    return Cost(float(cpu) / spans * 1e6, elapsed / spans * 1e6, int(peak) // 1024)


def timed_floor(file: Path, *, is_json: bool) -> float:
    """Return the processor time of parsing the file once, in microseconds; nothing is kept.

    A small file is parsed repeatedly, because some systems count processor time in steps of 10 ms.
    """
    began, times, spent = time.process_time(), 0, 0.0
    while spent < _MIN_TIMED_S:
        if is_json:
            with file.open("rb") as lines:
                for line in lines:
                    json.loads(line)
        else:
            for message in messages_of(file):
                ExportTraceServiceRequest().ParseFromString(message)
        times += 1
        spent = time.process_time() - began
    return spent / times * 1e6


def messages_of(file: Path) -> Iterator[bytes]:
    """Yield the messages of a length-delimited file."""
    with file.open("rb") as opened:
        while size := opened.read(4):
            yield opened.read(int.from_bytes(size, "big"))


if __name__ == "__main__":
    sys.exit(main())
