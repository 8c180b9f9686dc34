"""Evaluations as OpenTelemetry metrics, with labels of which there are only so many."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from opentelemetry.metrics import MeterProvider, get_meter

from goldspan import semconv
from goldspan._version import __version__
from goldspan.extraction.names import fold
from goldspan.model import Evaluation, Row
from goldspan.sinks.correlation import context_of
from goldspan.sinks.events import label_of

BOUNDARIES = (0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.99, 1)
"""Buckets for scores from 0 to 1: all wrong and all right have one of their own."""

_OUTCOMES = {None: "not_evaluated", True: "pass", False: "fail"}


class MetricSink:
    """Records scores and counts tools through a meter provider, the global one by default.

    `vocabulary` holds the tool names that may become labels, normally those of the goldens; others count as `other`.
    """

    def __init__(self, meter_provider: MeterProvider | None = None, *, vocabulary: Iterable[str] = ()) -> None:
        meter = get_meter("goldspan", __version__, meter_provider=meter_provider)
        self._known = {fold(name): name for name in vocabulary}
        self._scores = meter.create_histogram(
            semconv.SCORE_HISTOGRAM,
            unit="1",
            description="Scores of runs, by metric.",
            explicit_bucket_boundaries_advisory=BOUNDARIES,
        )
        self._evaluations = meter.create_counter(
            semconv.EVALUATIONS_COUNTER, unit="{evaluation}", description="Runs judged, by what came out."
        )
        self._tools = meter.create_counter(
            semconv.TOOLS_COUNTER,
            unit="{call}",
            description="Tools of runs with a golden that were expected, missing, unexpected or forbidden, "
            "and calls of any run that failed.",
        )

    def submit(self, evaluation: Evaluation) -> None:
        """Record every known score, count the run and its tools."""
        context = context_of(evaluation.run)
        unit = evaluation.run.unit
        for score in evaluation.scores:
            if score.value is not None:
                labels = {semconv.METRIC_LABEL: score.metric, semconv.UNIT_LABEL: unit}
                if label := label_of(score):
                    labels[semconv.LABEL_LABEL] = label
                self._scores.record(score.value, labels, context=context)
        outcome = _OUTCOMES[evaluation.passed]
        self._evaluations.add(1, {semconv.LABEL_LABEL: outcome, semconv.UNIT_LABEL: unit}, context=context)
        for (tool, verdict), count in self._counts(evaluation.comparison.rows).items():
            self._tools.add(count, {semconv.TOOL_LABEL: tool, semconv.VERDICT_LABEL: verdict}, context)

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
