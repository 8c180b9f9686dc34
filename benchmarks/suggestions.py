"""Measures how well goldens that are suggested from one half of the good runs judge the other half of all runs.

    python benchmarks/suggestions.py FOLDER

FOLDER holds the files that `benchmarks/effects.py` describes. The table in `docs/goldens-from-runs.md` comes from the
200 airline runs of gpt-4o that tau-bench publishes: 50 tasks, each run four times.

The runs of each task are split in halves in all ways. Goldens are suggested from the runs of one half that reached
their goal, and judge all runs of the other half. *Precision* is the share of failed runs that missed their goal,
*recall* the share of runs that missed their goal and failed; both count runs with a golden only. The hand-written
goldens of the folder judge the same runs.
"""

from __future__ import annotations

import argparse
import gzip
import json
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

from effects import writes_alone

from goldspan import Goldens, GoldspanWarning, Run, evaluate, load_goldens, load_runs
from goldspan.curation.golden_suggestion import SuggestionOptions, suggest_goldens


def main() -> int:
    """Read the runs and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?", help="runs with goldens and rewards")
    folder = parser.parse_args().folder
    if folder is None:
        print("skipped: it needs a folder of runs with known outcomes; benchmarks/effects.py describes the files")
        return 0
    rewards = {row["trace_id"]: row["reward"] == 1 for row in map(json.loads, _lines(folder, "truth.jsonl"))}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GoldspanWarning)
        goldens = load_goldens(_file(folder, "goldens.jsonl"))
    runs = list(load_runs(str(_file(folder, "traces.jsonl"))))
    reached = {run.run_id: rewards[run.trace_ids[0]] for run in runs}
    print(f"{len(runs)} runs, {sum(reached.values())} of them reached their goal\n")
    print("\n".join(table(runs, reached, goldens)))
    return 0


@dataclass(slots=True)
class Judged:
    """Runs that goldens judged, by verdict and outcome."""

    goldens: int = 0
    halves: int = 0
    true_failures: int = 0
    false_failures: int = 0
    missed_failures: int = 0
    true_passes: int = 0
    without_verdict: int = 0

    def add(self, goldens: Goldens, runs: Iterable[Run], reached: Mapping[str, bool]) -> None:
        """Evaluate the runs of one half."""
        self.goldens += len(goldens)
        self.halves += 1
        for run in runs:
            passed = evaluate(run, goldens, reasons=False).passed
            self.without_verdict += passed is None
            self.true_failures += passed is False and not reached[run.run_id]
            self.false_failures += passed is False and reached[run.run_id]
            self.missed_failures += passed is True and not reached[run.run_id]
            self.true_passes += passed is True and reached[run.run_id]

    def cells(self) -> Iterator[str]:
        """Yield goldens and judged runs of one half on average, the share of bad runs, precision and recall."""
        failed, bad = self.true_failures + self.false_failures, self.true_failures + self.missed_failures
        judged = failed + self.missed_failures + self.true_passes
        yield f"{self.goldens / self.halves:.1f}"
        yield f"{judged / self.halves:.1f} of {(judged + self.without_verdict) / self.halves:.0f}"
        yield _share(bad, judged)
        yield f"{_share(self.true_failures, failed)} ({self.true_failures} of {failed})"
        yield f"{_share(self.true_failures, bad)} ({self.true_failures} of {bad})"


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.2f}" if whole else "-"


def table(runs: Sequence[Run], reached: Mapping[str, bool], goldens: Goldens) -> Iterator[str]:
    """Yield the table in Markdown."""
    writes = tuple(sorted({name for golden in goldens for name in golden.write_tools or ()}))
    variants: Mapping[str, dict[str, Any]] = {
        "suggested, every common call": {"min_runs": 1},
        "suggested, names only": {"min_runs": 1, "arguments": False},
        "suggested, `--write-tool`": {"min_runs": 1, "write_tools": writes},
        "suggested, `--write-tool`, two good runs or more": {"min_runs": 2, "write_tools": writes},
    }
    hand_written = {
        "hand-written, every call, the same tasks": goldens,
        "hand-written, the writes alone, the same tasks": Goldens(map(writes_alone, goldens)),
    }
    judged = {name: Judged() for name in (*variants, *hand_written)}
    for known, others in _halves(runs):
        good = [run for run in known if reached[run.run_id]]
        for name, options in variants.items():
            suggestions = suggest_goldens(good, SuggestionOptions(**options))
            judged[name].add(Goldens([each.golden for each in suggestions.items]), others, reached)
        tasks = {run.golden_id for run in good}
        same_tasks = [run for run in others if run.golden_id in tasks]
        for name, written in hand_written.items():
            judged[name].add(Goldens([golden for golden in written if golden.id in tasks]), same_tasks, reached)
    yield "| goldens | number | runs with a verdict | bad runs | precision | recall |"
    yield "|---|--:|--:|--:|--:|--:|"
    for name, result in judged.items():
        yield f"| {name} | {' | '.join(result.cells())} |"


def _halves(runs: Sequence[Run]) -> Iterator[tuple[list[Run], list[Run]]]:
    """Yield every way to split the runs of each task in halves by their number, both halves as the first one."""
    by_task: dict[str | None, list[Run]] = {}
    for run in sorted(runs, key=lambda run: run.run_id):
        by_task.setdefault(run.golden_id, []).append(run)
    trials = max(map(len, by_task.values()))
    for chosen in combinations(range(trials), trials // 2):
        known = [run for task in by_task.values() for number, run in enumerate(task) if number in chosen]
        others = [run for task in by_task.values() for number, run in enumerate(task) if number not in chosen]
        yield known, others


def _file(folder: Path, name: str) -> Path:
    return next(path for path in (folder / name, folder / f"{name}.gz") if path.exists())


def _lines(folder: Path, name: str) -> Iterator[str]:
    path = _file(folder, name)
    with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8") as lines:
        yield from lines


if __name__ == "__main__":
    raise SystemExit(main())
