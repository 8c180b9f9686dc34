"""`MetricSink`: evaluations as OpenTelemetry metrics with bounded label sets.

A run counts once, when it is first scored. Later revisions have a separate counter, so that rates of runs and means of
scores keep their meaning. A judge's score is recorded when it arrives.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator

from opentelemetry.context import Context
from opentelemetry.metrics import Counter, MeterProvider, get_meter

from goldspan import semconv
from goldspan._guard import suppress_errors
from goldspan._version import __version__
from goldspan.goldens import Goldens
from goldspan.model import ComparisonRow, Evaluation, Score, content_digest
from goldspan.model.name_folding import fold_name
from goldspan.sinks.fork_safety import renew_after_fork
from goldspan.sinks.otel_sinks import run_context, score_label

_MAX_LABEL_LENGTH = 200
"""Characters. Names come from clients without a limit, and each line of a scrape repeats them."""


def short_label(value: str) -> str:
    """Returns the value, or for a long one its beginning and a hash of all of it."""
    if len(value) <= _MAX_LABEL_LENGTH:
        return value
    digest = content_digest(value)
    return f"{value[: _MAX_LABEL_LENGTH - len(digest) - 1]}~{digest}"


class CardinalityLimit:
    """Keeps the first `max_values` distinct values; later ones become `other`."""

    def __init__(self, max_values: int) -> None:
        self._max_values = max_values
        self._known: set[str] = set()
        self.renew()
        renew_after_fork(self)

    def renew(self) -> None:
        """Replaces the lock in a forked child: a thread of the parent may hold it."""
        self._lock = threading.Lock()

    def __call__(self, value: str) -> str:
        """Returns the value, shortened if necessary, or `other`."""
        value = short_label(value)
        if value in self._known:
            return value
        with self._lock:
            if len(self._known) < self._max_values:
                self._known.add(value)
            return value if value in self._known else semconv.OTHER_LABEL_VALUE


def golden_tool_names(goldens: Goldens) -> Iterator[str]:
    """Yields the tool names that goldens expect, then those they declare: the later spelling of a name becomes the
    label.
    """
    yield from (tool.name for golden in goldens for tool in golden.expected_calls)
    yield from (tool.name for tool in goldens.vocabulary.tools)


SCORE_BUCKETS = (0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.99, 1)
"""Buckets for scores from 0 to 1, with a separate bucket for 0 and for 1."""

MAX_ENVIRONMENTS = 10
"""The number of environments with a label of their own."""

_OUTCOMES = {None: "not_evaluated", True: "pass", False: "fail"}
_NO_GOLDEN = "none"

MetricLabels = dict[str, str]


_RECORDING = suppress_errors("record the metrics of an evaluation")


class _CountsByLabels:
    """Sums what is added to counters, because each addition takes the SDK several microseconds."""

    def __init__(self) -> None:
        self._sums: dict[tuple[Counter, tuple[tuple[str, str], ...]], int] = {}
        self._contexts: dict[tuple[Counter, tuple[tuple[str, str], ...]], Context] = {}

    def add(self, counter: Counter, labels: MetricLabels, context: Context, count: int = 1) -> None:
        """Add to the sum of a counter and its labels; the first context is kept."""
        key = (counter, tuple(labels.items()))
        self._sums[key] = self._sums.get(key, 0) + count
        self._contexts.setdefault(key, context)

    def add_to_counters(self) -> None:
        """Add the sums to the counters."""
        for key, total in self._sums.items():
            counter, labels = key
            counter.add(total, dict(labels), self._contexts[key])


class MetricSink:
    """Records scores and counts tools.

    A tool becomes a label if the current goldens expect or declare it, or if `vocabulary` names it; others count as
    `other`, and so do environments after the first ten. Exemplars refer to the run's span.

    Args:
        meter_provider: The meter provider. Default: the global one.
        vocabulary: Further tool names that become labels.
        scope: The name of the instrumentation scope.
    """

    def __init__(
        self,
        meter_provider: MeterProvider | None = None,
        *,
        vocabulary: Iterable[str] = (),
        scope: str = "goldspan",
    ) -> None:
        meter = get_meter(scope, __version__, meter_provider=meter_provider)
        self._vocabulary = tuple(vocabulary)
        self._known = {fold_name(name): name for name in self._vocabulary}
        self._environment = CardinalityLimit(MAX_ENVIRONMENTS)
        self._scores = meter.create_histogram(
            semconv.SCORE_HISTOGRAM,
            unit="1",
            description="Scores of runs by metric, from the first evaluation of each run.",
            explicit_bucket_boundaries_advisory=SCORE_BUCKETS,
        )
        self._evaluations = meter.create_counter(
            semconv.EVALUATIONS_COUNTER,
            unit="{evaluation}",
            description="Evaluated runs by verdict, from the first evaluation of each run.",
        )
        self._revisions = meter.create_counter(
            semconv.REVISIONS_COUNTER,
            unit="{evaluation}",
            description="Runs evaluated again because of late spans, by the new verdict. No other metric counts them.",
        )
        self._tools = meter.create_counter(
            semconv.TOOLS_COUNTER,
            unit="{call}",
            description="Expected, missing, unexpected and forbidden tools of runs with a golden, "
            "and failed calls of all runs, from the first evaluation of each run.",
        )
        self._health = meter.create_counter(
            semconv.HEALTH_COUNTER,
            unit="{run}",
            description="Runs with incomplete or inferred telemetry, by problem.",
        )

    def adopt(self, goldens: Goldens) -> None:
        """Uses the tools of these goldens as labels, instead of those of previous goldens."""
        self._known = {fold_name(name): name for name in (*golden_tool_names(goldens), *self._vocabulary)}

    def submit(self, evaluation: Evaluation) -> None:
        """Records each score, and counts the run and its tools; a later revision only counts as a revision.

        For a judge's verdict only the score is recorded.
        """
        counts = _CountsByLabels()
        self._record(evaluation, counts)
        counts.add_to_counters()

    def submit_many(self, evaluations: Iterable[Evaluation]) -> None:
        """Records evaluations as `submit` does, but adds to a counter only once for each set of labels.

        An error in one evaluation does not affect the others. An exemplar of a sum refers to the first of its runs.
        """
        counts = _CountsByLabels()
        for evaluation in evaluations:
            with _RECORDING:
                self._record(evaluation, counts)
        counts.add_to_counters()

    def _record(self, evaluation: Evaluation, counts: _CountsByLabels) -> None:
        context, common = run_context(evaluation.run), self._common_labels(evaluation)
        if evaluation.changes is not None:
            self._record_scores(evaluation, [each for each in evaluation.scores if each.judgement], common, context)
            return
        outcome = {
            semconv.SCORE_LABEL_LABEL: _OUTCOMES[evaluation.passed],
            semconv.UNIT_LABEL: evaluation.run.unit,
            **common,
        }
        if evaluation.revision > 1:
            counts.add(self._revisions, outcome, context)
            return
        how = evaluation.match.how if evaluation.match else _NO_GOLDEN
        counts.add(self._evaluations, {**outcome, semconv.GOLDEN_MATCH: how}, context)
        for problem in evaluation.health.problems:
            labels = {semconv.PROBLEM_LABEL: problem, semconv.UNIT_LABEL: evaluation.run.unit, **common}
            counts.add(self._health, labels, context)
        self._record_scores(evaluation, evaluation.scores, common, context)
        for (tool, verdict), count in self._tool_verdict_counts(evaluation.comparison.rows).items():
            labels = {semconv.TOOL_LABEL: tool, semconv.VERDICT_LABEL: verdict, **common}
            counts.add(self._tools, labels, context, count)

    def _record_scores(
        self, evaluation: Evaluation, scores: Iterable[Score], common: MetricLabels, context: Context
    ) -> None:
        for score in scores:
            if score.value is not None:
                labels = {semconv.METRIC_LABEL: score.metric, semconv.UNIT_LABEL: evaluation.run.unit, **common}
                if label := score_label(score):
                    labels[semconv.SCORE_LABEL_LABEL] = label
                self._scores.record(score.value, labels, context=context)

    def _common_labels(self, evaluation: Evaluation) -> MetricLabels:
        """Returns the labels common to all metrics of a run."""
        environment = evaluation.run.environment
        return {semconv.ENVIRONMENT: self._environment(environment)} if environment else {}

    def _tool_verdict_counts(self, rows: Iterable[ComparisonRow]) -> dict[tuple[str, str], int]:
        counts: dict[tuple[str, str], int] = {}
        for row in rows:
            named = row.expected or row.called
            tool = (
                self._known.get(fold_name(named.name), semconv.OTHER_LABEL_VALUE)
                if named is not None
                else semconv.OTHER_LABEL_VALUE
            )
            for verdict in _row_verdicts(row):
                counts[tool, verdict] = counts.get((tool, verdict), 0) + 1
        return counts


def _row_verdicts(row: ComparisonRow) -> Iterator[str]:
    """Yields the verdicts of a row: a missed expectation counts as both `expected` and `missing`."""
    if row.verdict in ("paired", "missing"):
        yield "expected"
    if row.verdict in ("missing", "unexpected", "forbidden"):
        yield row.verdict
    if row.called is not None and row.called.error is not None:
        yield "failed"
