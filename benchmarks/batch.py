"""Measure `goldspan score` on a file of OTLP/JSON lines, as a ratio to `json.loads` of the lines.

    python benchmarks/batch.py                 # the figures
    python benchmarks/batch.py --requests 50   # a longer file
    python benchmarks/batch.py --check         # ends with 1 where the budget is missed

The file holds requests of payload B, one in each line. The command runs in this process. The stages are the same work,
one after the other, measured in the same rounds.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import gc
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest import mock

import payloads
from google.protobuf.json_format import MessageToDict
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from goldspan._garbage_collection import garbage_collection_paused
from goldspan.cases.case_evaluation import Case
from goldspan.cli.app import run
from goldspan.cli.scoring_options import ScoringOptions
from goldspan.extraction import extract
from goldspan.otlp.trace_files import read_records
from goldspan.sinks.serialization import evaluation_document, to_json

BUDGET = 3.0
"""How many times `json.loads` of a span's line the command may take."""
FLOOR, COMMAND = "json.loads", "goldspan score --json"
STAGES = ("read", "extract", "evaluate", "write")


class Batch:
    """One file, and what is done with it."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self._lines = file.read_text(encoding="utf-8").splitlines()
        self.spans = sum(1 for _ in read_records([file]))

    def parse(self) -> None:
        """The floor: parse each line, and keep nothing."""
        for line in self._lines:
            json.loads(line)

    def stages(self) -> dict[str, float]:
        """Do what the command does, one stage after the other: the processor time of each, in seconds."""
        times = [time.process_time()]
        with garbage_collection_paused():
            records = list(read_records([self.file]))
            times.append(time.process_time())
            runs = extract(records)
            times.append(time.process_time())
        evaluate = ScoringOptions(None, {}, False, {}).evaluator(None)
        evaluations = [evaluate(Case(run)) for run in runs]
        times.append(time.process_time())
        with open(os.devnull, "w", encoding="utf-8") as nothing:
            nothing.writelines(to_json(evaluation_document(evaluation)) for evaluation in evaluations)
        times.append(time.process_time())
        return dict(zip(STAGES, (after - before for before, after in pairwise(times)), strict=True))

    def command(self) -> None:
        """Run the command, and discard what it writes."""
        arguments = ["goldspan", "score", str(self.file), "--json"]
        with (
            open(os.devnull, "w", encoding="utf-8") as nothing,
            contextlib.redirect_stdout(nothing),
            contextlib.redirect_stderr(nothing),
            mock.patch.object(sys, "argv", arguments),
        ):
            if status := run():
                raise SystemExit(f"{' '.join(arguments)} ended with {status}")


def main() -> int:
    """Measure, print, and compare with the budget."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="end with 1 where the budget is missed")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--requests", type=int, default=10, help="lines of the file, each with about 512 spans")
    options = parser.parse_args()

    with tempfile.TemporaryDirectory() as folder:
        batch = Batch(written(Path(folder), options.requests))
        print(f"medians of {options.rounds} interleaved rounds, Python {sys.version.split()[0]}")
        size = batch.file.stat().st_size / batch.spans
        print(f"{options.requests} lines, {batch.spans} spans of {size:.0f} bytes")
        taken = measure(batch, options.rounds)
    for step, seconds in taken.items():
        print(f"  {step:24} {seconds * 1e6:7.1f} us a span   {seconds / taken[FLOOR]:5.2f}")
    total = taken[COMMAND] / taken[FLOOR]
    good = total <= BUDGET
    print(f"  {'ok    ' if good else 'MISSED'} {COMMAND} takes {total:.1f} times that, at most {BUDGET:g}")
    return 1 if options.check and not good else 0


def written(folder: Path, requests: int) -> Path:
    """Write a file with so many requests of payload B, one in each line."""
    file = folder / "traces.jsonl"
    recorded = payloads.payload_b()
    with file.open("w", encoding="utf-8") as lines:
        for number in range(requests):
            request = payloads.another(recorded[number % len(recorded)], number // len(recorded))
            lines.write(json.dumps(as_otlp_json(request)) + "\n")
    return file


def as_otlp_json(request: bytes) -> dict[str, Any]:
    """The same request in JSON: as proto3 JSON, with ids in hexadecimal."""
    document: dict[str, Any] = MessageToDict(ExportTraceServiceRequest.FromString(request), use_integers_for_enums=True)
    for resource_spans in document["resourceSpans"]:
        for scope_spans in resource_spans["scopeSpans"]:
            for span in scope_spans["spans"]:
                for key in ("traceId", "spanId", "parentSpanId"):
                    if key in span:
                        span[key] = base64.b64decode(span[key]).hex()
    return document


def measure(batch: Batch, rounds: int) -> dict[str, float]:
    """Seconds of processor time a span, of the floor, each stage and the command: medians over interleaved rounds."""
    taken: dict[str, list[float]] = {name: [] for name in (FLOOR, *STAGES, COMMAND)}
    for round_number in range(rounds + 1):
        measured = {FLOOR: timed(batch.parse), **batch.stages(), COMMAND: timed(batch.command)}
        for name, seconds in measured.items() if round_number else ():  # the first round fills the caches
            taken[name].append(seconds / batch.spans)
        gc.collect()
    return {name: statistics.median(times) for name, times in taken.items()}


def timed(work: Callable[[], object]) -> float:
    """The processor time of the work, in seconds."""
    began = time.process_time()
    work()
    return time.process_time() - began


if __name__ == "__main__":
    sys.exit(main())
