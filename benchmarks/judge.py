"""Measures the cost of a judge for the scoring thread: the time per evaluation with and without a judge.

    python benchmarks/judge.py [--rounds N]

One run of ten calls is evaluated repeatedly, without a sink. The judge runs on its own thread and asks over HTTP. Its
model answers at once, so the judge's thread has the highest possible load: a real model is slower and uses less CPU
time. *Not sampled*: a judge exists, and this run is not sampled. The variants are interleaved, and medians are printed.
The last lines show the length of a prompt and the time to build it.
"""

from __future__ import annotations

import argparse
import json
import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from goldspan import ExpectedTool, Golden, Goldens, Run, ToolCall, ToolDefinition
from goldspan.judge import Judge, ModelEndpoint
from goldspan.judge.prompts import build_evidence
from goldspan.online.pipeline import Pipeline

CALLS = 10
RUNS = 200
"""Runs a turn."""
TOOLS = tuple(
    ToolDefinition(f"tool_{number}", f"Does the thing of number {number}.", {"type": "object", "properties": {}})
    for number in range(20)
)
RUN = Run(
    "r",
    input="Please find the ten things that I asked for, and put them in order.",
    output="Here they are.",
    golden_id="g",
    tool_calls=tuple(ToolCall(f"tool_{number}", arguments={"number": number}) for number in range(CALLS)),
    available_tools=TOOLS,
)
GOLDENS = Goldens([Golden("g", tools=tuple(ExpectedTool(f"tool_{number}") for number in range(CALLS)))])


class _Model(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = 65_536  # head and body are sent together, without Nagle's delay
    answer = json.dumps(
        {
            "choices": [{"message": {"content": '{"score": 1, "reason": "fine", "better_tool": null}'}}],
            "usage": {"prompt_tokens": 900, "completion_tokens": 30},
        }
    ).encode()

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.send_header("content-length", str(len(self.answer)))
        self.end_headers()
        self.wfile.write(self.answer)

    def log_message(self, *_: object) -> None:
        """Suppress the log."""


@contextmanager
def model() -> Iterator[str]:
    """The URL of a model that answers at once."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Model)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1"
    finally:
        server.shutdown()
        server.server_close()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=30)
    rounds = parser.parse_args().rounds
    with model() as url:
        judge = Judge(ModelEndpoint("tiny", base_url=url), max_queue=100_000, drain_timeout=60.0)
        idle = Judge(ModelEndpoint("tiny", base_url=url), sampler=lambda _: False)
        pipelines = {
            "no judge": Pipeline(GOLDENS),
            "not sampled": Pipeline(GOLDENS, judge=idle),
            "every run judged": Pipeline(GOLDENS, judge=judge),
        }
        times_by_name: dict[str, list[float]] = {name: [] for name in pipelines}
        flush_times: list[float] = []
        for turn in range(rounds):
            for name, pipeline in pipelines.items():
                times_by_name[name].append(_turn(pipeline, turn))
                before = time.perf_counter()
                if not pipeline.flush_verdicts(60_000):
                    raise SystemExit("the judge did not answer in time")
                flush_times += [time.perf_counter() - before] if name.startswith("every") else []
        base = statistics.median(times_by_name["no judge"])
        for name, times in times_by_name.items():
            median = statistics.median(times)
            print(f"{name:24} {median:7.1f} us per run   {median / base:5.2f}   {median - base:+6.1f} us")
        print(f"verdicts                 {RUNS / statistics.median(flush_times):7.0f} per second")
        assert judge.usage.judged == rounds * RUNS, judge.usage
        for pipeline in pipelines.values():
            pipeline.close()
    _measure_prompt()


def _turn(pipeline: Pipeline, turn: int) -> float:
    """Returns the microseconds per run on the submitting thread."""
    runs = [replace(RUN, run_id=f"{turn}:{number}", input=f"{RUN.input} {turn}:{number}") for number in range(RUNS)]
    start = time.perf_counter()
    for run in runs:
        pipeline.evaluate_and_submit(run)
    return (time.perf_counter() - start) / RUNS * 1e6


def _measure_prompt() -> None:
    times = []
    for _ in range(200):
        start = time.perf_counter()
        evidence = build_evidence(RUN, TOOLS)
        times.append((time.perf_counter() - start) * 1e6)
    print(f"a prompt with {CALLS} calls and {len(TOOLS)} tools: {len(evidence)} characters of evidence, "
          f"built in {statistics.median(times):.0f} us")  # fmt: skip


if __name__ == "__main__":
    main()
