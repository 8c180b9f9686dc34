"""Evaluations as spans of their own, for back ends that take nothing else."""

from __future__ import annotations

from opentelemetry.trace import TracerProvider, get_tracer
from opentelemetry.util.types import AttributeValue

from goldspan import semconv
from goldspan._version import __version__
from goldspan.model import Evaluation
from goldspan.sinks.attributes import result_attributes
from goldspan.sinks.correlation import context_of
from goldspan.sinks.events import changed_scores, score_attributes


class SpanSink:
    """Makes one span `evaluate request` of every evaluation, through a tracer provider, the global one by default.

    It is a child of the run's span and takes no time: it stands where the run ended. It carries what a run's span would
    carry and, as one event a score, what an `EventSink` would emit. The evaluation of a run that has no span is the
    root of a trace of its own.

    These spans are marked from their start (`goldspan.evaluation`), and neither live nor in files part of any run.
    Their instrumentation scope has the name `scope`.
    """

    def __init__(self, tracer_provider: TracerProvider | None = None, *, scope: str = "goldspan") -> None:
        self._tracer = get_tracer(scope, __version__, tracer_provider)

    def submit(self, evaluation: Evaluation) -> None:
        """Start and end the span, with everything in it."""
        run = evaluation.run
        at = run.end_ns if run.end_ns is not None else run.start_ns
        # The mark stands last: an SDK that allows only so many attributes throws away those before it.
        attributes: dict[str, AttributeValue] = {
            semconv.RUN_ID: run.run_id,
            semconv.UNIT_LABEL: run.unit,
            **result_attributes(evaluation),
            semconv.EVALUATION_MARK: True,
        }
        span = self._tracer.start_span(f"evaluate {run.unit}", context_of(run), attributes=attributes, start_time=at)
        for score in changed_scores(evaluation):
            span.add_event(semconv.EVALUATION_EVENT, score_attributes(evaluation, score), timestamp=at)
        span.end(at)
