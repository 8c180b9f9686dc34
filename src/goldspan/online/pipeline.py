"""What happens to a run that is complete: it is judged, and the evaluation goes to every sink."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from goldspan._guard import guard
from goldspan.extraction import extract
from goldspan.extraction.golden_ids import golden_id_attributes as attributes_from
from goldspan.goldens import Goldens
from goldspan.model import Evaluation, Run
from goldspan.online.assembly import Ended
from goldspan.scoring import evaluate
from goldspan.scoring.metrics import MetricLike
from goldspan.scoring.registry import measured_by
from goldspan.sinks.protocol import Sink


class Pipeline:
    """Judges runs by some goldens and hands the evaluations on. Holds nothing that changes: any thread may use it.

    Raises `ConfigurationError` when it is made with a metric or a threshold that does not exist, also one of a golden.
    """

    def __init__(
        self,
        goldens: Goldens | None = None,
        *,
        sinks: Iterable[Sink] = (),
        metrics: Iterable[MetricLike] | None = None,
        thresholds: Mapping[str, float] | None = None,
        golden_id_attributes: Sequence[str] | None = None,
    ) -> None:
        self.goldens = Goldens() if goldens is None else goldens
        self._sinks = tuple((sink, guard(f"submit to {type(sink).__name__}")) for sink in sinks)
        self._metrics = None if metrics is None else tuple(metrics)
        self._thresholds = None if thresholds is None else dict(thresholds)
        self._golden_id_attributes = attributes_from(golden_id_attributes)
        self._judge(Run(run_id="trial"))  # a wrong metric is found now, not in the middle of a request
        for golden in self.goldens if metrics is None else ():
            measured_by(golden, self._thresholds)
        extract((), golden_id_attributes=self._golden_id_attributes)  # nor are conventions of packages loaded there

    def conclude(self, ended: Ended) -> list[Evaluation]:
        """Extract and evaluate the runs that came to their end."""
        runs = extract(ended.spans, unit=ended.unit, golden_id_attributes=self._golden_id_attributes)
        return [self.evaluate(run) for run in runs if ended.holds(run)]

    def evaluate(self, run: Run) -> Evaluation:
        """Judge one run and submit the evaluation to every sink. A sink that fails keeps it from no other."""
        evaluation = self._judge(run)
        for sink, guarded in self._sinks:
            with guarded:
                sink.submit(evaluation)
        return evaluation

    def _judge(self, run: Run) -> Evaluation:
        return evaluate(run, self.goldens, metrics=self._metrics, thresholds=self._thresholds)
