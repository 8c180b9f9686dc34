"""Measures the time of a store for filtered pages, late pages, single runs, counts, and writes.

    python benchmarks/store.py [--runs N] [--rounds N] [--input CHARACTERS]

The store contains N runs of 40 goldens, 20 agents and 30 tools, with thirteen scores each. Each filter returns the
newest 50 matching runs; a filter with few or no matches reads all runs. Counts are measured for all runs and for the
runs that a filter selects. The queries are interleaved in rounds, and the medians are printed.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

from goldspan import Evaluation, ExpectedTool, Golden, Run, ToolCall, evaluate
from goldspan.store import RunFilter, SqliteStore, open_store

RUNS = 100_000
BUDGET_MS = 200.0
"""Maximum time of a query with `RUNS` runs."""
WORDS = "book find cancel hotel flight order refund train policy ticket price status city night change send".split()  # noqa: SIM905 - easier to read as a text
TOOLS = [f"{verb}_{noun}" for verb in ("find", "book", "cancel") for noun in WORDS[3:13]]
GOLDENS = [
    Golden(f"golden-{number}", tools=tuple(ExpectedTool(TOOLS[(number + each) % 30]) for each in range(3)))
    for number in range(40)
]
_SHAPES = 400
_BATCH = 250


def evaluations(number: int, length: int) -> Iterator[Evaluation]:
    """Yield evaluations of `number` runs, a second apart, with inputs of about `length` characters."""
    chance = random.Random(7)
    shapes = [_shape(chance, each) for each in range(_SHAPES)]
    for at in range(number):
        evaluation = chance.choice(shapes)
        said = " ".join(chance.choices(WORDS, k=1 + length // 6))
        run = _told(evaluation.run, at, said if at else f"needle {said}")
        yield _with(evaluation, run)


def questions(store: SqliteStore, number: int) -> dict[str, Callable[[], object]]:
    """Return the queries by name."""
    behind = store.runs(limit=1000)
    for _ in range(max(0, min(number // 1000 // 2, 50) - 1)):
        behind = store.runs(limit=1000, cursor=behind.next_cursor)
    seconds = 10**9
    filters = {
        "newest": RunFilter(),
        "failed": RunFilter(verdict="fail"),
        "not evaluated (none)": RunFilter(verdict="not_evaluated"),
        "one golden of 40": RunFilter(golden="golden-7"),
        "a golden that is not there": RunFilter(golden="no-such-golden"),
        "one agent of 20, failed": RunFilter(agent="agent-3", verdict="fail"),
        "one service and environment": RunFilter(service="service-1", environment="test"),
        "metric below 0.5": RunFilter(metric="tool_recall", below=0.5),
        "metric below 0 (none)": RunFilter(metric="tool_recall", below=0.0),
        "metric below 0.5, golden not there": RunFilter(metric="tool_recall", below=0.5, golden="no-such-golden"),
        "tool called": RunFilter(tool="book_hotel"),
        "tool missing, metric below 0 (none)": RunFilter(
            tool="book_hotel", tool_role="missing", metric="tool_recall", below=0.0
        ),
        "a trace": RunFilter(trace_id=f"{number // 2:032x}"),
        "text in the oldest input": RunFilter(text="NEEDLE"),
        "text in no input, failed": RunFilter(text="no such text", verdict="fail"),
        "a time range in the middle": RunFilter(
            since_ns=_STARTED + number // 2 * seconds, until_ns=_STARTED + (number // 2 + 60) * seconds
        ),
    }
    asked: dict[str, Callable[[], object]] = {name: _asking(store, wanted) for name, wanted in filters.items()}
    asked["page half-way down"] = lambda: store.runs(cursor=behind.next_cursor)
    asked["one run"] = lambda: store.run(f"{number // 2:032x}:s")
    return asked | _counted(store, number)


def _counted(store: SqliteStore, number: int) -> dict[str, Callable[[], object]]:
    """Return the counts by name, each with the usual filters."""
    half = _STARTED + number // 2 * 10**9
    filters = {
        "all": RunFilter(),
        "one golden": RunFilter(golden="golden-7"),
        "passed": RunFilter(verdict="pass"),
        "since half-way": RunFilter(since_ns=half),
        "a metric below 0.9": RunFilter(metric="tool_recall", below=0.9),
        "a text": RunFilter(text="hotel"),
    }
    questions: dict[str, Callable[[RunFilter], object]] = {
        "counts": store.count,
        "goldens": lambda wanted: store.count_by("golden", wanted),
        "agents": lambda wanted: store.count_by("agent", wanted),
        "trend": store.trend,
        "tools": store.tool_counts,
        "substitutions": store.substitutions,
    }
    asked: dict[str, Callable[[], object]] = {
        f"{question}: {name}": partial(ask, wanted)
        for question, ask in questions.items()
        for name, wanted in filters.items()
    }
    for name, text in (("a frequent text", "hotel"), ("a text in the oldest input", "needle")):
        asked[f"page and counts: {name}"] = partial(store.page_with_counts, RunFilter(text=text))
    asked["newest arrival"] = store.last_sequence_number
    return asked


def measure(asked: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Return the milliseconds of each query: medians over interleaved rounds, after a warm-up round."""
    taken: dict[str, list[float]] = {name: [] for name in asked}
    for round_number in range(rounds + 1):
        for name, ask in asked.items():
            began = time.perf_counter()
            ask()
            if round_number:
                taken[name].append((time.perf_counter() - began) * 1e3)
    return {name: statistics.median(times) for name, times in taken.items()}


def filled(store: SqliteStore, number: int, length: int) -> tuple[float, float]:
    """Fill the store, alternately in batches and one by one. Returns the microseconds per evaluation of both."""
    batched: list[float] = []
    single: list[float] = []
    waiting: list[Evaluation] = []
    for evaluation in evaluations(number, length):
        waiting.append(evaluation)
        if len(waiting) == _BATCH:
            way = single if len(single) < len(batched) else batched
            began = time.perf_counter()
            if way is batched:
                store.submit_many(waiting)
            else:
                for each in waiting:
                    store.submit(each)
            way.append((time.perf_counter() - began) / _BATCH * 1e6)
            waiting.clear()
    store.submit_many(waiting)
    return statistics.median(batched or [0]), statistics.median(single or [0])


_STARTED = 1_700_000_000 * 10**9


def _shape(chance: random.Random, number: int) -> Evaluation:
    golden = GOLDENS[number % len(GOLDENS)]
    expected = [tool.name for tool in golden.expected_calls]
    called = [name for name in expected if chance.random() < 0.8]
    called += chance.choices(TOOLS, k=chance.choice((0, 0, 1)))
    run = Run("", tool_calls=tuple(ToolCall(name, arguments={"city": "Paris"}) for name in called))
    return evaluate(run, golden)


def _told(run: Run, at: int, said: str) -> Run:
    return Run(
        f"{at:032x}:s",
        trace_ids=(f"{at:032x}",),
        tool_calls=run.tool_calls,
        input=said,
        agent=f"agent-{at % 20}",
        service=f"service-{at % 5}",
        environment="test" if at % 9 == 0 else "production",
        start_ns=_STARTED + at * 10**9,
    )


def _with(evaluation: Evaluation, run: Run) -> Evaluation:
    """Return the same evaluation of another run."""
    return Evaluation(
        run,
        evaluation.golden,
        evaluation.match,
        evaluation.comparison,
        evaluation.scores,
        evaluation.passed,
        evaluation.reason,
        evaluation.scoring_version,
    )


def _asking(store: SqliteStore, wanted: RunFilter) -> Callable[[], object]:
    return lambda: store.runs(wanted)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--input", type=int, default=100, help="characters of an input")
    parser.add_argument("--check", action="store_true", help="exit with 1 if the budget is exceeded")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, open_store(Path(folder) / "store.db") as store:
        batched, single = filled(store, options.runs, options.input)
        size = store.path.stat().st_size / options.runs / 1024
        print(f"{options.runs} runs, inputs of {options.input} characters, {size:.1f} KiB per run")
        print(f"  {'stored, 250 at once':40} {batched:8.0f} us per evaluation")
        print(f"  {'stored, one by one':40} {single:8.0f} us per evaluation")
        figures = measure(questions(store, options.runs), options.rounds)
    print(f"medians of {options.rounds} interleaved rounds")
    for name, milliseconds in figures.items():
        print(f"  {'ok    ' if milliseconds <= BUDGET_MS else 'MISSED'} {name:40} {milliseconds:8.2f} ms")
    missed = [name for name, milliseconds in figures.items() if milliseconds > BUDGET_MS]
    return 1 if options.check and missed else 0


if __name__ == "__main__":
    sys.exit(main())
