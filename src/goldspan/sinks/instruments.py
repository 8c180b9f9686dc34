"""Evaluations as OpenTelemetry metrics, with labels of which there are only so many.

A run is counted once, when it is first scored: later revisions of it are counted by themselves, so that a rate of runs
or a mean of scores means what it says. A number that a model gives later is recorded when it comes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from opentelemetry.context import Context
from opentelemetry.metrics import MeterProvider, get_meter

from goldspan import semconv
from goldspan._version import __version__
from goldspan.extraction.names import fold
from goldspan.goldens import Goldens
from goldspan.model import Evaluation, Row, Score
from goldspan.sinks.correlation import context_of
from goldspan.sinks.events import label_of
from goldspan.sinks.labels import Bounded, tool_names

BOUNDARIES = (0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.99, 1)
"""Buckets for scores from 0 to 1: all wrong and all right have one of their own."""

MOST_ENVIRONMENTS = 10
"""So many environments are told apart by label."""

_OUTCOMES = {None: "not_evaluated", True: "pass", False: "fail"}
_UNMATCHED = "none"

Labels = dict[str, str]


class MetricSink:
    """Records scores and counts tools through a meter provider, the global one by default.

    Tools become labels where the goldens that runs are judged by expect or declare them, or where `vocabulary` names
    them; others count as `other`, and so do environments after the first ten. Exemplars point at the run's span.
    The instrumentation scope has the name `scope`.
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
        self._known = {fold(name): name for name in self._vocabulary}
        self._environment = Bounded(MOST_ENVIRONMENTS)
        self._scores = meter.create_histogram(
            semconv.SCORE_HISTOGRAM,
            unit="1",
            description="Scores of runs, by metric, as they were first scored.",
            explicit_bucket_boundaries_advisory=BOUNDARIES,
        )
        self._evaluations = meter.create_counter(
            semconv.EVALUATIONS_COUNTER,
            unit="{evaluation}",
            description="Runs judged, by what came out when they were first scored.",
        )
        self._revisions = meter.create_counter(
            semconv.REVISIONS_COUNTER,
            unit="{evaluation}",
            description="Runs judged again because spans came late, by what came out then; in no other metric.",
        )
        self._tools = meter.create_counter(
            semconv.TOOLS_COUNTER,
            unit="{call}",
            description="Tools of runs with a golden that were expected, missing, unexpected or forbidden, "
            "and calls of any run that failed, as the runs were first scored.",
        )
        self._health = meter.create_counter(
            semconv.HEALTH_COUNTER,
            unit="{run}",
            description="Runs whose telemetry lacks something or was put together by guess, by what is the matter.",
        )

    def adopt(self, goldens: Goldens) -> None:
        """Let the tools of these goldens be labels from now on, in place of those of earlier ones."""
        self._known = {fold(name): name for name in (*tool_names(goldens), *self._vocabulary)}

    def submit(self, evaluation: Evaluation) -> None:
        """Record every known score, count the run and its tools; of a later revision only that there is one.

        Of a revision that is a model's verdict the number is recorded, and nothing is counted.
        """
        context, common = context_of(evaluation.run), self._common(evaluation)
        if evaluation.changes is not None:
            self._record_scores(evaluation, [each for each in evaluation.scores if each.judgement], common, context)
            return
        outcome = {semconv.LABEL_LABEL: _OUTCOMES[evaluation.passed], semconv.UNIT_LABEL: evaluation.run.unit, **common}
        if evaluation.revision > 1:
            self._revisions.add(1, outcome, context)
            return
        how = evaluation.match.how if evaluation.match else _UNMATCHED
        self._evaluations.add(1, {**outcome, semconv.GOLDEN_MATCH: how}, context)
        for problem in evaluation.health.problems:
            labels = {semconv.PROBLEM_LABEL: problem, semconv.UNIT_LABEL: evaluation.run.unit, **common}
            self._health.add(1, labels, context)
        self._record_scores(evaluation, evaluation.scores, common, context)
        for (tool, verdict), count in self._counts(evaluation.comparison.rows).items():
            self._tools.add(count, {semconv.TOOL_LABEL: tool, semconv.VERDICT_LABEL: verdict, **common}, context)

    def _record_scores(self, evaluation: Evaluation, scores: Iterable[Score], common: Labels, context: Context) -> None:
        for score in scores:
            if score.value is not None:
                labels = {semconv.METRIC_LABEL: score.metric, semconv.UNIT_LABEL: evaluation.run.unit, **common}
                if label := label_of(score):
                    labels[semconv.LABEL_LABEL] = label
                self._scores.record(score.value, labels, context=context)

    def _common(self, evaluation: Evaluation) -> Labels:
        """The labels that everything of one run has."""
        environment = evaluation.run.environment
        return {semconv.ENVIRONMENT: self._environment(environment)} if environment else {}

    def _counts(self, rows: Iterable[Row]) -> dict[tuple[str, str], int]:
        counts: dict[tuple[str, str], int] = {}
        for row in rows:
            named = row.expected or row.called
            tool = self._known.get(fold(named.name), semconv.OTHER) if named is not None else semconv.OTHER
            for verdict in _verdicts(row):
                counts[tool, verdict] = counts.get((tool, verdict), 0) + 1
        return counts


def _verdicts(row: Row) -> Iterator[str]:
    """What a row counts as: an expectation that was missed is both `expected` and `missing`."""
    if row.verdict in ("paired", "missing"):
        yield "expected"
    if row.verdict in ("missing", "unexpected", "forbidden"):
        yield row.verdict
    if row.called is not None and row.called.error is not None:
        yield "failed"
