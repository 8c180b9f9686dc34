"""Measures the time of each view of the page on a store in PostgreSQL with many runs.

    python benchmarks/postgres_store.py [URL] [--runs N] [--rounds N] [--check]

The database should be empty; a filled one is measured as it is. The runs are 30 days old at most. They belong to 40
goldens of 20 agents in two environments, with ten outcomes for each golden. A sample of them is stored one after the
other; the server multiplies it.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial

import psycopg

from goldspan import Evaluation, ExpectedTool, Golden, Goldens, Run, ToolCall, evaluate
from goldspan.store import Store, open_store
from goldspan.store.postgres.postgres_tables import WEEK_NS
from goldspan.web.pages import Pages
from goldspan.web.run_list import QueryPairs
from store import measure

RUNS = 10_000_000
BUDGET_MS = 200.0
"""Maximum time of a view."""
NOW = 1_800_000_000 * 10**9
DAYS = 30
SAMPLE = 4000
WORDS = "book find cancel hotel flight order refund train policy ticket price status city night change send".split()  # noqa: SIM905 - easier to read as a text
TOOLS = [f"{verb}_{noun}" for verb in ("find", "book", "cancel") for noun in WORDS[3:13]]
GOLDENS = [
    Golden(f"golden-{number}", tools=tuple(ExpectedTool(TOOLS[(number + each) % 30]) for each in range(3)))
    for number in range(40)
]
_SECOND = 10**9
_DAY = 86400 * _SECOND


def sample() -> Iterator[Evaluation]:
    """Yield evaluations that differ in everything that runs differ in."""
    chance = random.Random(7)
    for at in range(SAMPLE):
        golden = GOLDENS[at % 40]
        outcome = random.Random(f"{golden.id} {at // 40 % 10}")
        called = [tool.name for tool in golden.expected_calls if outcome.random() < 0.8]
        called += outcome.choices(TOOLS, k=outcome.choice((0, 0, 1)))
        run = Run(
            f"sample-{at}",
            trace_ids=(f"sample-{at}",),
            tool_calls=tuple(ToolCall(name, arguments={"city": "Paris"}) for name in called),
            input=" ".join(chance.choices(WORDS, k=16)) + (" needle" if at == 0 else ""),
            agent=f"agent-{at % 40 // 2}",
            service=f"service-{at % 5}",
            environment="test" if chance.random() < 0.1 else "production",
            start_ns=NOW - DAYS * _DAY + at * (DAYS * _DAY // SAMPLE),
        )
        yield evaluate(run, None if chance.random() < 0.02 else golden)


def fill(url: str, number: int) -> None:
    """Store the sample, and let the server multiply it to `number` runs."""
    with open_store(url, clock=lambda: NOW, timeout=60) as store:
        evaluations = list(sample())
        for begin in range(0, SAMPLE, 250):
            store.submit_many(evaluations[begin : begin + 250])
        for week in range(NOW // WEEK_NS - 5, NOW // WEEK_NS + 1):  # the weeks of all copies
            store.submit(replace(evaluations[0], run=replace(evaluations[0].run, start_ns=week * WEEK_NS)))
    copies = max(0, number // SAMPLE - 1)
    with psycopg.connect(url, autocommit=True, options="-csearch_path=goldspan -cmaintenance_work_mem=512MB") as server:
        for begin in range(0, copies, 100):
            for statement in _MULTIPLY:
                server.execute(statement, {"first": begin + 1, "last": min(begin + 100, copies)})
        server.execute(
            f"UPDATE store SET last_run = {(copies + 2) * SAMPLE}, last_evaluation = {(copies + 2) * SAMPLE}"
        )
        server.execute("TRUNCATE run_counts")
        for grain, width in ((1, _DAY // 24), (2, _DAY)):
            server.execute(
                f"INSERT INTO run_counts SELECT {grain}, time_ns / {width} * {width}, run_group, count(*), min(key),"
                " min(time_ns), max(time_ns) FROM runs GROUP BY 2, 3"
            )
        server.execute("VACUUM ANALYZE")


_COPY = f"""
    FROM generate_series(%(first)s::bigint, %(last)s::bigint) AS copy
    CROSS JOIN LATERAL (SELECT * FROM {{table}} WHERE {{key}} <= {SAMPLE}) AS old
"""
_MOVED = f"old.time_ns + (copy * 7919 + old.{{key}} * 104729) %% {DAYS * _DAY // SAMPLE // 1000} * 1000"
"""The time of a copy: a different one in the same part of the 30 days."""
_MULTIPLY = (
    f"""INSERT INTO runs SELECT old.key + copy * {SAMPLE}, {_MOVED.format(key="key")}, old.run_group,
        old.current + copy * {SAMPLE}, 1, 1, old.run_id || '-' || copy, NULL, replace(old.text, 'needle', 'train'),
        ARRAY[old.run_id || '-' || copy] {_COPY.format(table="runs", key="key")}""",
    f"""INSERT INTO evaluations SELECT old.key + copy * {SAMPLE}, {_MOVED.format(key="key")},
        old.run_id || '-' || copy, 1, old.digest, old.stored_ns, old.document
        {_COPY.format(table="evaluations", key="key")}""",
    f"""INSERT INTO traces SELECT old.trace_id || '-' || copy, {_MOVED.format(key="run")}, old.run + copy * {SAMPLE}
        {_COPY.format(table="traces", key="run")}""",
)


def views(store: Store) -> Mapping[str, Callable[[], object]]:
    """Return the requests of the page by name. Each renders what a browser gets."""
    pages = Pages(store, goldens=lambda: Goldens(GOLDENS), is_live=True)
    queries: dict[str, QueryPairs] = {
        "all": [],
        "failed": [("verdict", "fail")],
        "one golden": [("golden", "golden-7")],
        "a golden that is not there": [("golden", "no-such-golden")],
        "one agent, failed": [("agent", "agent-3"), ("verdict", "fail")],
        "service and environment": [("service", "service-1"), ("environment", "test")],
        "metric below 0.5": [("metric", "tool_recall"), ("below", "0.5")],
        "tool missing": [("tool", "book_hotel"), ("tool_role", "missing")],
        "a day in the middle": [("since", "2026-12-30T08:30:00Z"), ("until", "2026-12-31T09:45:00Z")],
        "the last week": [("since", "2027-01-08T07:10:00Z")],
    }
    older = store.runs(limit=1000)
    for _ in range(10):
        older = store.runs(limit=1000, cursor=older.next_cursor)
    asked: dict[str, Callable[[], object]] = {}
    for name, query in queries.items():
        asked[f"runs: {name}"] = partial(pages.live, query)
        asked[f"trend: {name}"] = partial(pages.trend, query)
        asked[f"goldens: {name}"] = partial(pages.goldens, query)
    run_id = older.items[0].run_id
    asked |= {
        "runs: page 11,000 runs down": partial(pages.live, [("cursor", older.next_cursor or "")]),
        "runs: the rare text": partial(pages.live, [("text", "needle")]),
        "one run": partial(pages.run, run_id, []),
        "one golden": partial(pages.golden, "golden-7", []),
        "requests without a golden": partial(pages.uncovered, []),
        "position of the live list": store.last_sequence_number,
        "next evaluations": partial(store.evaluations_after, store.last_sequence_number() - 100),
    }
    asked |= {
        f"suggestions: {field}": partial(pages.suggestions, field) for field in ("metric", "tool", "golden", "agent")
    }
    asked["runs: a frequent text (counts all texts)"] = partial(pages.live, [("text", "hotel")])
    return asked


NOT_IN_BUDGET = frozenset({"runs: a frequent text (counts all texts)"})
"""It counts the runs whose text contains a word, which no index can."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url", nargs="?", help="without it, nothing is measured")
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--check", action="store_true", help="exit with 1 if the budget is exceeded")
    options = parser.parse_args()
    if options.url is None:  # `make bench` runs every script without arguments
        print("no database is named: python benchmarks/postgres_store.py postgresql://...")
        return 0
    with open_store(options.url, clock=lambda: NOW) as store:
        is_filled = store.count().total > 0
    if not is_filled:
        began = time.perf_counter()
        fill(options.url, options.runs)
        print(f"filled in {time.perf_counter() - began:.0f} s")
    with open_store(options.url, read_only=True, timeout=60) as store:
        print(f"{store.count().total} runs; medians of {options.rounds} interleaved rounds")
        figures = measure(views(store), options.rounds)
    missed = [name for name, milliseconds in figures.items() if milliseconds > BUDGET_MS and name not in NOT_IN_BUDGET]
    for name, milliseconds in figures.items():
        mark = "MISSED" if name in missed else "-     " if name in NOT_IN_BUDGET else "ok    "
        print(f"  {mark} {name:44} {milliseconds:8.1f} ms")
    return 1 if options.check and missed else 0


if __name__ == "__main__":
    sys.exit(main())
