"""Measures the response time and size of each view: run lists, a run, goldens, requests without a golden.

    python benchmarks/page.py [--runs N] [--rounds N]

The store is that of `benchmarks/store.py`; one request in ten has no golden. The page is requested over HTTP, and the
shortest response of the same server is the floor. The views are interleaved in rounds, and medians are printed. The
size of a view is everything that a browser loads for it: the page, its styles and its scripts.
"""

from __future__ import annotations

import argparse
import itertools
import re
import statistics
import sys
import tempfile
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import store as stored
from goldspan import Evaluation, Goldens, evaluate
from goldspan.store import open_store
from goldspan.web.http_routes import LocalServer
from goldspan.web.pages import Pages

BUDGET_MS = 200.0
BUDGET_KIB = 300.0
"""What a view may take at 100,000 runs, and weigh."""
FLOOR = "floor: a small file"
_BATCH = 500
_ASSET = re.compile(r'(?:src|href)="(/assets/[^"]+)"')
_directly = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def views(number: int) -> dict[str, str]:
    """The address of each measured view, by name."""
    run = urllib.parse.quote(f"{number // 2:032x}:s", safe=":")
    return {
        FLOOR: "/assets/icon.svg",
        "newest": "/",
        "failed": "/?verdict=fail",
        "one golden of 40": "/?golden=golden-7",
        "one agent of 20, failed": "/?agent=agent-3&verdict=fail",
        "a tool missing": "/?tool=book_hotel&tool_role=missing",
        "metric below 0.5": "/?metric=tool_recall&below=0.5",
        "metric below 0 (none)": "/?metric=tool_recall&below=0",
        "text in many inputs": "/?text=hotel",
        "text in the oldest input": "/?text=needle",
        "text in no input": "/?text=no+such+text",
        "one service and environment": "/?service=service-1&environment=test",
        "without a golden": "/?covered=false",
        "chart of all": "/trend",
        "suggestions of tools": "/suggestions/tool",
        "suggestions of goldens": "/suggestions/golden",
        "one run": f"/runs/{run}",
        "goldens": "/goldens",
        "one golden": "/goldens/golden-7",
        "uncovered": "/uncovered",
    }


def evaluations(number: int) -> Iterator[Evaluation]:
    """Those of the store's benchmark, of which every tenth is judged by nothing."""
    nothing = Goldens()
    for at, evaluation in enumerate(stored.evaluations(number, 100)):
        yield evaluate(evaluation.run, nothing) if at % 10 == 0 else evaluation


@contextmanager
def served(path: Path) -> Iterator[str]:
    """Serves the page of a store; yields its address."""
    with open_store(path, read_only=True) as store:
        viewer = LocalServer(Pages(store, goldens=lambda: None, is_live=False), 0)
        thread = threading.Thread(target=viewer.serve, daemon=True)
        thread.start()
        yield viewer.address.rstrip("/")
        viewer.stop()
        thread.join()


def measure(address: str, asked: dict[str, str], rounds: int) -> dict[str, float]:
    """Returns the milliseconds of each view: medians over interleaved rounds; the first round warms up."""
    taken: dict[str, list[float]] = {name: [] for name in asked}
    for round_number in range(rounds + 1):
        for name, path in asked.items():
            began = time.perf_counter()
            _got(address + path)
            if round_number:
                taken[name].append((time.perf_counter() - began) * 1e3)
    return {name: statistics.median(times) for name, times in taken.items()}


def weight(address: str, path: str) -> float:
    """KiB that a browser loads for a view, nothing of it packed."""
    page = _got(address + path)
    assets = sorted(set(_ASSET.findall(page.decode())))
    return sum(len(body) for body in (page, *(_got(address + asset) for asset in assets))) / 1024


def _got(url: str) -> bytes:
    with _directly.open(url, timeout=120) as answer:
        return bytes(answer.read())


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=stored.RUNS)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--check", action="store_true", help="end with 1 where a budget is missed")
    options = parser.parse_args(arguments)
    asked = views(options.runs)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "store.db"
        with open_store(path) as store:
            waiting = evaluations(options.runs)
            while batch := list(itertools.islice(waiting, _BATCH)):
                store.submit_many(batch)
        with served(path) as address:
            figures = measure(address, asked, options.rounds)
            weights = {name: weight(address, place) for name, place in asked.items()}
    print(f"{options.runs} runs; medians of {options.rounds} interleaved rounds")
    for name, milliseconds in figures.items():
        well = milliseconds <= BUDGET_MS and weights[name] <= BUDGET_KIB
        print(f"  {'ok    ' if well else 'MISSED'} {name:32} {milliseconds:8.1f} ms {weights[name]:8.0f} KiB")
    missed = [name for name in asked if figures[name] > BUDGET_MS or weights[name] > BUDGET_KIB]
    return 1 if options.check and missed else 0


if __name__ == "__main__":
    sys.exit(main())
