"""Counts evaluations one by one, and keeps only the few that are shown."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from goldspan.extraction.capture_diagnostics import Hint, capture_hints, merge_hint_counts
from goldspan.model import Evaluation, NotEvaluatedRun

PASS_RATE = "passed"
"""The name that a gate uses for the pass rate."""
_MAX_RUNS_SHOWN = 5
"""Runs that are named one by one."""
_FRACTION_BITS = 80
"""Scores are added as integers: a sum of floats would depend on the order, and so on the number of processes."""
_BY_URGENCY = (False, None, True)


@dataclass(slots=True)
class NotEvaluatedRuns:
    """Runs that have a golden and could not be evaluated: their number, and the first of them."""

    count: int = 0
    first: list[NotEvaluatedRun] = field(default_factory=list)
    missing: Counter[str] = field(default_factory=Counter)
    """For each metric, on how many of the runs it has no value."""

    @classmethod
    def of(cls, runs: Iterable[NotEvaluatedRun]) -> NotEvaluatedRuns:
        """Return the number of some runs, and the first of them."""
        found = cls()
        for run in runs:
            found.add(run)
        return found

    def add(self, run: NotEvaluatedRun) -> None:
        """Count a run."""
        self.count += 1
        self.missing.update(run.missing_metrics)
        if len(self.first) < _MAX_RUNS_SHOWN:
            self.first.append(run)

    def merge(self, later: NotEvaluatedRuns) -> None:
        """Add the counts of later runs."""
        self.count += later.count
        self.missing.update(later.missing)
        self.first = (self.first + later.first)[:_MAX_RUNS_SHOWN]


@dataclass(slots=True)
class ScoreTotal:
    """The sum of the scores of a metric, and how many there are."""

    total: int = 0
    not_finite: float = 0.0
    """The sum of the values of custom metrics that are infinite or not a number."""
    values: int = 0
    verdicts: int = 0
    passed: int = 0

    @property
    def mean(self) -> float | None:
        """The mean; `None` without values."""
        if not self.values:
            return None
        return self.total / self.values / (1 << _FRACTION_BITS) + self.not_finite / self.values

    def add(self, value: float | None, passed: bool | None) -> None:
        """Count a score."""
        if value is not None:
            self.values += 1
            if math.isfinite(value):
                numerator, denominator = float(value).as_integer_ratio()
                self.total += (numerator << _FRACTION_BITS) // denominator
            else:
                self.not_finite += value
        if passed is not None:
            self.verdicts += 1
            self.passed += passed

    def merge(self, other: ScoreTotal) -> None:
        """Add the counts of other scores."""
        self.total += other.total
        self.not_finite += other.not_finite
        self.values += other.values
        self.verdicts += other.verdicts
        self.passed += other.passed


class EvaluationSummary:
    """What is printed about evaluations besides their JSON."""

    def __init__(self, limit: int | None = None) -> None:
        """Keep the `limit` most urgent evaluations, all for 0 and none for `None`."""
        self._limit = limit
        self._kept: dict[bool | None, list[Evaluation]] = {verdict: [] for verdict in _BY_URGENCY}
        self.verdicts: Counter[bool | None] = Counter()
        """How many runs passed, failed and were not evaluated."""
        self.scores: dict[str, ScoreTotal] = {}
        """The scores by metric, in the order in which metrics were first seen."""
        self.not_evaluated = NotEvaluatedRuns()
        self.has_match = False
        """Whether a golden matched a run."""
        self._hints: dict[tuple[str, str], tuple[Hint, int]] = {}

    def __len__(self) -> int:
        return self.verdicts.total()

    @property
    def evaluated(self) -> int:
        """How many runs passed or failed."""
        return self.verdicts[True] + self.verdicts[False]

    @property
    def shown(self) -> list[Evaluation]:
        """The evaluations that are shown: failed ones first, in their order."""
        kept = [evaluation for verdict in _BY_URGENCY for evaluation in self._kept[verdict]]
        return kept[: self._limit] if self._limit else kept

    def add(self, evaluation: Evaluation) -> None:
        """Count an evaluation."""
        self.verdicts[evaluation.passed] += 1
        kept = self._kept[evaluation.passed]
        if self._limit is not None and (self._limit == 0 or len(kept) < self._limit):
            kept.append(evaluation)
        for score in evaluation.scores:
            self.scores.setdefault(score.metric, ScoreTotal()).add(score.value, score.passed)
        if evaluation.match:
            self.has_match = True
        if evaluation.golden is not None and evaluation.passed is None:
            missing = frozenset(score.metric for score in evaluation.scores if score.label == "not_evaluated")
            self.not_evaluated.add(NotEvaluatedRun(evaluation.run.run_id, evaluation.name, evaluation.reason, missing))
        merge_hint_counts(self._hints, ((hint, 1) for hint in capture_hints(evaluation.run)))

    def observe(self, evaluations: Iterable[Evaluation]) -> Iterator[Evaluation]:
        """Yield the evaluations, and count each."""
        for evaluation in evaluations:
            self.add(evaluation)
            yield evaluation

    def merge(self, later: EvaluationSummary) -> None:
        """Add the counts of later evaluations."""
        self.verdicts.update(later.verdicts)
        for verdict, evaluations in later._kept.items():
            kept = self._kept[verdict] + evaluations
            self._kept[verdict] = kept[: self._limit] if self._limit else kept
        for metric, total in later.scores.items():
            self.scores.setdefault(metric, ScoreTotal()).merge(total)
        self.not_evaluated.merge(later.not_evaluated)
        self.has_match = self.has_match or later.has_match
        merge_hint_counts(self._hints, later._hints.values())

    def mean_score(self, name: str) -> float | None:
        """Return the mean of a metric, or the pass rate; `None` where no run has a value."""
        if name == PASS_RATE:
            return self.verdicts[True] / self.evaluated if self.evaluated else None
        return self.scores[name].mean if name in self.scores else None

    def hints(self) -> list[tuple[Hint, int]]:
        """Return the problems in the capture of the runs, each with the number of runs, the most frequent first."""
        return sorted(self._hints.values(), key=lambda entry: entry[1], reverse=True)
