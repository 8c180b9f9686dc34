"""Measures how well each score, and the verdict, separate runs that reached their goal from runs that did not.

    python benchmarks/effects.py FOLDER

FOLDER holds runs with known outcomes, and is not part of goldspan: `traces.jsonl` (OTLP), `goldens.jsonl`, and
`truth.jsonl` with one line for each run, which has its `trace_id` and its `reward`, 1 or 0. Each file may be gzipped.
The table in `docs/metrics.md` comes from the 200 airline runs of gpt-4o that tau-bench publishes
(sierra-research/tau-bench, `historical_trajectories/gpt-4o-airline.json`), converted to OpenTelemetry traces.

The script compares the verdict with the one before scoring version 5, which consisted of gates on metrics. It computes
both with the goldens, which require every call of the reference solution, and with goldens that state the writes alone.

*AUC* is the probability that of two runs, one of each outcome, the one that reached its goal scores higher; a tie
counts as half. 0.5 is random, 1 is perfect.
"""

from __future__ import annotations

import argparse
import gzip
import json
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from goldspan import Evaluation, Golden, Goldens, GoldspanWarning, evaluate, load_goldens, load_runs


def main() -> int:
    """Read the runs, score them, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?", help="runs with goldens and rewards")
    folder = parser.parse_args().folder
    if folder is None:
        print("skipped: it needs a folder of runs with known outcomes; --help describes the files")
        return 0
    rewards = _rewards(folder)
    goldens = _goldens(folder)
    for attempts in ("all", "effective"):
        evaluations = list(_evaluations(folder, goldens, attempts))
        outcomes = [rewards[evaluation.run.trace_ids[0]] for evaluation in evaluations]
        print(f"attempts: {attempts}, {len(evaluations)} runs, {sum(outcomes)} of them reached their goal\n")
        print("\n".join(table(evaluations, outcomes)), end="\n\n")
        writes = list(_evaluations(folder, Goldens(map(writes_alone, goldens)), attempts))
        evaluated = {"every call": evaluations, "the writes alone": writes}
        print("\n".join(verdicts(evaluated, outcomes)), end="\n\n")
    return 0


def table(evaluations: Sequence[Evaluation], outcomes: Sequence[bool]) -> Iterator[str]:
    """Yield the table of scores in Markdown: mean, runs with a value, AUC, and runs with the value 1."""
    yield "| score | mean | runs | AUC | at 1, goal reached | at 1, goal missed |"
    yield "|---|---|---|---|---|---|"
    for name, score in SCORES.items():
        known = [
            (value, outcome)
            for evaluation, outcome in zip(evaluations, outcomes, strict=True)
            if (value := score(evaluation)) is not None
        ]
        mean = sum(value for value, _ in known) / len(known)
        reached = [value for value, outcome in known if outcome]
        missed = [value for value, outcome in known if not outcome]
        right = " | ".join(f"{sum(value == 1 for value in side)} of {len(side)}" for side in (reached, missed))
        yield f"| {name} | {mean:.4f} | {len(known)} | {auc(reached, missed):.3f} | {right} |"


def verdicts(evaluated: Mapping[str, Sequence[Evaluation]], outcomes: Sequence[bool]) -> Iterator[str]:
    """Yield the agreement of verdicts and outcomes in Markdown, by what the goldens require."""
    yield "| goldens require | verdict | passed | of these, goal reached | failed | of these, goal missed | agreement |"
    yield "|---|---|---|---|---|---|---|"
    for required, evaluations in evaluated.items():
        for name, verdict in {"gates, before": gates_passed, "the golden, now": lambda each: each.passed}.items():
            found = Counter(zip(map(verdict, evaluations), outcomes, strict=True))
            passed = found[True, True] + found[True, False]
            failed = found[False, True] + found[False, False]
            agreement = (found[True, True] + found[False, False]) / len(outcomes)
            cells = [required, name, passed, found[True, True], failed, found[False, False], f"{agreement:.1%}"]
            yield f"| {' | '.join(map(str, cells))} |"


def gates_passed(evaluation: Evaluation) -> bool | None:
    """Return the verdict before scoring version 5: every gate with a value passed."""
    known = [
        score.value >= GATES[score.metric]
        for score in evaluation.scores
        if score.metric in GATES and score.value is not None
    ]
    return all(known) if known else None


GATES: Mapping[str, float] = {
    "tool_correctness": 0.5,
    "argument_correctness": 0.5,
    "result_correctness": 0.5,
    "effect_correctness": 1,
    "forbidden_tools": 1,
    "call_budget": 1,
}


def writes_alone(golden: Golden) -> Golden:
    """Return the golden without its reads; without a required write, a policy that forbids all writes."""
    writes = golden.write_tools or ()
    required = tuple([call for call in golden.expected_calls if call.name in writes])
    return replace(golden, tools=required) if required else replace(golden, tools=(), forbid=writes, policy=True)


def auc(reached: Iterable[float], missed: Sequence[float]) -> float:
    """Return the area under the ROC curve, computed from its definition."""
    wins = [(one > other) + (one == other) / 2 for one in reached for other in missed]
    return sum(wins) / len(wins)


def _of(metric: str) -> Callable[[Evaluation], float | None]:
    def value(evaluation: Evaluation) -> float | None:
        score = evaluation.score(metric)
        return score.value if score else None

    return value


def _in_order(evaluation: Evaluation) -> float:
    """Whether all expected tools were called in the order of the golden, with or without others in between."""
    seen = evaluation.comparison
    return float(not seen.missing and all(pair.in_order for pair in seen.pairs))


def _call_recall(evaluation: Evaluation) -> float | None:
    """Return the share of the expected calls that were made with exactly the expected arguments."""
    seen = evaluation.comparison
    expected = len(seen.pairs) + len(seen.missing)
    same = [pair for pair in seen.pairs if pair.agreement is None or pair.agreement.share == 1]
    return len(same) / expected if expected else None


SCORES: Mapping[str, Callable[[Evaluation], float | None]] = {
    "`tool_recall`": _of("tool_recall"),
    "`tool_precision`": _of("tool_precision"),
    "`tool_f1`": _of("tool_f1"),
    "all expected tools in order": _in_order,
    "recall of calls, arguments included": _call_recall,
    "`argument_correctness`": _of("argument_correctness"),
    "`tool_success`": _of("tool_success"),
    "`effect_correctness`": _of("effect_correctness"),
}


def _goldens(folder: Path) -> Goldens:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GoldspanWarning)  # the benchmark's goldens have additional keys
        return load_goldens(folder / "goldens.jsonl")


def _evaluations(folder: Path, goldens: Goldens, attempts: Any) -> Iterator[Evaluation]:
    for run in load_runs(_file(folder, "traces.jsonl")):
        yield evaluate(run, goldens, attempts=attempts, reasons=False)


def _rewards(folder: Path) -> dict[str, bool]:
    path = _file(folder, "truth.jsonl")
    read = gzip.open if path.suffix == ".gz" else open
    with read(path, "rt", encoding="utf-8") as lines:
        return {truth["trace_id"]: truth["reward"] == 1 for truth in map(json.loads, lines)}


def _file(folder: Path, name: str) -> Path:
    gzipped = folder / f"{name}.gz"
    return gzipped if gzipped.exists() else folder / name


if __name__ == "__main__":
    sys.exit(main())
