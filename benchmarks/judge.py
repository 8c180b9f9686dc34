"""What a judge costs whoever has runs scored: the time until an evaluation is handed out, with and without one.

    python benchmarks/judge.py [--rounds N]

A run of ten calls is judged by its golden and submitted to no sink, again and again. The judge is asked on its own
thread, over HTTP, and its model answers at once, so that its thread is as busy as it can be: a real model is slower and
takes less of the processor. *Left alone*: a judge is there, and this run is not sampled. All take turns; medians are
shown. Below, how long a question is, and what it takes to write it down.
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
    wbufsize = 65_536  # head and body leave together, and wait for no acknowledgement
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
        """Nothing is said."""


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
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=30)
    rounds = parser.parse_args().rounds
    with model() as url:
        judge = Judge(ModelEndpoint("tiny", base_url=url), max_queue=100_000, drain_timeout=60.0)
        idle = Judge(ModelEndpoint("tiny", base_url=url), sampler=lambda _: False)
        pipelines = {
            "no judge": Pipeline(GOLDENS),
            "left alone": Pipeline(GOLDENS, judge=idle),
            "every run asked about": Pipeline(GOLDENS, judge=judge),
        }
        taken: dict[str, list[float]] = {name: [] for name in pipelines}
        answered: list[float] = []
        for turn in range(rounds):
            for name, pipeline in pipelines.items():
                taken[name].append(_turn(pipeline, turn))
                before = time.perf_counter()
                if not pipeline.flush_verdicts(60_000):
                    raise SystemExit("the judge did not answer in time")
                answered += [time.perf_counter() - before] if name.startswith("every") else []
        base = statistics.median(taken["no judge"])
        for name, times in taken.items():
            middle = statistics.median(times)
            print(f"{name:24} {middle:7.1f} us a run   {middle / base:5.2f}   {middle - base:+6.1f} us")
        print(f"answers                  {RUNS / statistics.median(answered):7.0f} a second")
        assert judge.usage.judged == rounds * RUNS, judge.usage
        for pipeline in pipelines.values():
            pipeline.close()
    _questions()


def _turn(pipeline: Pipeline, turn: int) -> float:
    """Microseconds a run on the thread that submits."""
    runs = [replace(RUN, run_id=f"{turn}:{number}", input=f"{RUN.input} {turn}:{number}") for number in range(RUNS)]
    began = time.perf_counter()
    for run in runs:
        pipeline.evaluate_and_submit(run)
    return (time.perf_counter() - began) / RUNS * 1e6


def _questions() -> None:
    times = []
    for _ in range(200):
        began = time.perf_counter()
        evidence = build_evidence(RUN, TOOLS)
        times.append((time.perf_counter() - began) * 1e6)
    print(f"a question of {CALLS} calls and {len(TOOLS)} tools: {len(evidence)} characters of data, "
          f"written in {statistics.median(times):.0f} us")  # fmt: skip


if __name__ == "__main__":
    main()
