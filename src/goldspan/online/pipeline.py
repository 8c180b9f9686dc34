"""Evaluates complete runs and submits the evaluations to every sink, for `Scorer` and for the gateway."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from goldspan._guard import suppress_errors
from goldspan.conventions.classification import golden_id_attributes as attributes_from
from goldspan.errors import ConfigurationError, GoldspanError
from goldspan.extraction import component_name, extract, extract_units
from goldspan.extraction.capture_diagnostics import invisible_call_hints
from goldspan.goldens import Goldens
from goldspan.model import Evaluation, Run, RunUnit, SpanRecord, TelemetryRecord, UnknownPolicy
from goldspan.online.assembled_spans import AssembledSpans, CompletedSpans, RevisedSpans, RunKey, RunRevisions
from goldspan.online.session_requests import SessionRequests
from goldspan.scoring import evaluate
from goldspan.scoring.metrics import MetricLike
from goldspan.scoring.metrics.registry import metrics_of_golden
from goldspan.scoring.scores import OUT_OF_TIME
from goldspan.sinks import Redact, Sink, adopt, apply_redaction

if TYPE_CHECKING:
    from goldspan.goldens.golden_files.hot_reload import ReloadingGoldens
    from goldspan.judge.judge import Judge
    from goldspan.online.judge_revisions import JudgeRevisions
    from goldspan.online.sampling import Sampling

_log = logging.getLogger("goldspan")

_SAMPLING = suppress_errors("decide whether a run is judged")
_JUDGING = suppress_errors("submit a run to the judge")
_SCORING = suppress_errors("score a run")


class Pipeline:
    """Evaluates runs against goldens and submits the evaluations. Thread-safe.

    Args:
        goldens: The goldens; `ReloadingGoldens` are refreshed before each run.
        sinks: The sinks that receive evaluations.
        metrics: The metrics to compute, instead of those that the goldens list.
        thresholds: The minimum value for each metric, instead of the thresholds of the goldens.
        unknown: The policy for statements that cannot be evaluated, instead of that of the goldens.
        golden_id_attributes: Names of the span attributes that hold a golden's id.
        units: The units to score.
        redact: A function that returns the evaluation that may leave the process, or `None` to drop it.
        sampling: Selects the runs that are scored.
        budget: Seconds for the metrics of one run. Metrics that would start later are not evaluated.
        judge: Judges submitted evaluations on a separate thread; its verdict is the next revision.
        on_verdict: Receives the verdicts instead of the sinks.

    Raises:
        ConfigurationError: If a metric or a threshold, also one of a golden, does not exist.
    """

    def __init__(
        self,
        goldens: Goldens | ReloadingGoldens | None = None,
        *,
        sinks: Iterable[Sink] = (),
        metrics: Iterable[MetricLike] | None = None,
        thresholds: Mapping[str, float] | None = None,
        unknown: UnknownPolicy | None = None,
        golden_id_attributes: Sequence[str] | None = None,
        units: Sequence[RunUnit] = ("request", "component"),
        redact: Redact | None = None,
        sampling: Sampling | None = None,
        budget: float | None = None,
        judge: Judge | None = None,
        on_verdict: Callable[[Evaluation], object] | None = None,
    ) -> None:
        self.sinks = tuple(sinks)
        self._guarded_sinks = tuple(
            (sink, getattr(sink, "submit_many", None), suppress_errors(f"submit to {type(sink).__name__}"))
            for sink in self.sinks
        )
        self._metrics = None if metrics is None else tuple(metrics)
        self._thresholds = None if thresholds is None else dict(thresholds)
        self._unknown = unknown
        self._golden_id_attributes = attributes_from(golden_id_attributes)
        self._units = frozenset(units)
        self._redact = redact
        self._sampling = sampling
        self._budget = budget
        self._judge_revisions = (
            None if judge is None else _build_judge_revisions(judge, on_verdict or self.submit_verdict)
        )
        self._rejected_reloads = 0
        self.reset()
        self.sampled_out = 0
        """Runs that the sampling excluded."""
        self.over_budget = 0
        """Evaluations without some metrics because the budget was spent."""
        self.invisible = 0
        """Runs for which it is unknown whether they called tools."""
        self._warned_conventions: set[tuple[str, ...]] = set()
        self.reload_failures = 0
        """Changed golden files that could not be read, or that name unknown metrics."""
        self.goldens = Goldens()
        """The goldens that runs are currently evaluated against."""
        self._evaluate(Run(run_id="trial"))  # raises now for a wrong metric, not during a request
        extract((), golden_id_attributes=self._golden_id_attributes)  # loads the conventions of packages now
        self._reloading = None if goldens is None or isinstance(goldens, Goldens) else goldens
        self._last_offered = (
            goldens if isinstance(goldens, Goldens) else self._reloading.current if self._reloading else Goldens()
        )
        self._use_goldens(self._last_offered)

    def reset(self) -> None:
        """Resets the state in a forked child: the sessions are the parent's, and its threads may hold the locks."""
        self._reload_lock = threading.Lock()
        self._sessions = SessionRequests() if "conversation" in self._units else None

    def _use_goldens(self, goldens: Goldens) -> None:
        """Evaluates against these goldens from now on. Raises `ConfigurationError` if one names an unknown metric."""
        for golden in goldens if self._metrics is None else ():
            metrics_of_golden(golden, self._thresholds)
        goldens.prepare()
        self.goldens = goldens
        adopt(self.sinks, goldens)

    def _refresh_goldens(self) -> None:
        """Applies reloaded goldens. Invalid ones leave the previous goldens in effect."""
        if self._reloading is None:
            return
        offered = self._reloading.current
        if offered is not self._last_offered:
            with self._reload_lock:
                self._use_reloaded(offered)
        self.reload_failures = self._reloading.failures + self._rejected_reloads

    def _use_reloaded(self, offered: Goldens) -> None:
        if offered is self._last_offered:
            return  # another thread has applied them
        self._last_offered = offered
        try:
            self._use_goldens(offered)
        except GoldspanError as error:
            self._rejected_reloads += 1
            _log.error("goldspan keeps the previous goldens: %s", error)

    def evaluate_spans(
        self, assembled: AssembledSpans, on_run: Callable[[Run], object] = lambda _: None
    ) -> list[Evaluation]:
        """Extracts and evaluates the runs that are complete or that changed.

        `on_run` receives each of them, including runs that are not scored or whose evaluation is dropped.
        """
        self._refresh_goldens()
        if isinstance(assembled, RevisedSpans):
            units: tuple[RunUnit, ...] = ("request", "component")
            return [evaluation for unit in units for evaluation in self._evaluate_revised(assembled, unit, on_run)]
        if not self._is_unit_needed(assembled.unit):
            return []
        runs = (run for run in self._extract(assembled.spans, assembled.unit) if assembled.contains_run(run))
        return list(self._evaluate_completed(assembled, runs, on_run))

    def extract_runs(self, records: Iterable[TelemetryRecord]) -> list[Run]:
        """Returns the requests and components in a complete set of spans and logs, as far as these units are scored.

        For conversations these are the requests.
        """
        self._refresh_goldens()
        units: tuple[RunUnit, ...] = ("request", "component")
        return extract_units(
            records,
            [unit for unit in units if self._is_unit_needed(unit)],
            golden_id_attributes=self._golden_id_attributes,
            components=self.goldens.components,
        )

    def evaluate_revision(self, run: Run, known: tuple[int, str] | None) -> Evaluation | None:
        """Evaluates a run and submits the evaluation; `None` if the sampling excludes it or the redaction drops it.

        With `known`, the number and digest of the previous revision, it becomes the next revision. An unchanged
        evaluation keeps the previous number and is not submitted again.
        """
        (evaluation,) = self.evaluate_revisions([(run, known)])
        return evaluation

    def evaluate_revisions(self, runs: Iterable[tuple[Run, tuple[int, str] | None]]) -> list[Evaluation | None]:
        """Evaluates runs as `evaluate_revision` does, and submits all evaluations after that.

        An error of one run does not affect the others; its result is `None`.
        """
        results: list[Evaluation | None] = []
        changed: dict[int, Evaluation] = {}
        for run, known in runs:
            evaluation: Evaluation | None = None
            with _SCORING:
                evaluation = self._evaluate_sampled(run, known)
            if evaluation is not None and known is not None and known[1] == evaluation.digest:
                evaluation = evaluation.with_revision(known[0])
            elif evaluation is not None:
                changed[len(results)] = evaluation
            results.append(evaluation)
        for position, delivered in zip(changed, self._deliver([*changed.values()]), strict=True):
            results[position] = delivered
        return results

    def _evaluate_sampled(self, run: Run, known: tuple[int, str] | None) -> Evaluation | None:
        if not self._is_sampled(run, new=known is None):
            return None
        return self._redact_revision(self._evaluate(run), known[0] + 1 if known is not None else 1)

    def evaluate_without_submitting(self, run: Run) -> Evaluation | None:
        """Evaluates a run and submits nothing; `None` if the redaction drops it."""
        self._refresh_goldens()
        return apply_redaction(self._evaluate(run), self._redact)

    def add_to_conversation(self, request: Run) -> Run | None:
        """Returns the conversation that a request continues, with all its requests, if conversations are scored."""
        so_far = self._sessions.add_request(request) if self._sessions and request.unit == "request" else None
        return so_far[0] if so_far is not None else None

    def evaluate_and_submit(self, run: Run, revision: int = 1) -> Evaluation | None:
        """Evaluates a run and submits the evaluation to every sink; `None` if the redaction drops it.

        The failure of one sink does not affect the others.
        """
        return self._submit(self._evaluate(run), revision)

    def is_requested_component(self, span: SpanRecord) -> bool:
        """Returns whether a golden refers to the component that a span represents, though the span is not marked as
        one.
        """
        components = self.goldens.components
        return bool(components) and component_name(span, components) is not None

    def submit_verdict(self, judged: Evaluation) -> None:
        """Submits a revision that only adds the verdict of a judge."""
        self._submit_to_sinks([judged])

    def flush_verdicts(self, timeout_millis: int) -> bool:
        """Waits for pending verdicts; returns `False` on timeout."""
        return self._judge_revisions is None or self._judge_revisions.force_flush(timeout_millis)

    def count_outdated_verdict(self) -> None:
        """Counts a verdict on a run that has changed since."""
        if self._judge_revisions is not None:
            self._judge_revisions.count_outdated()

    def close(self) -> None:
        """Waits for pending verdicts, and stops watching golden files."""
        if self._judge_revisions is not None:
            self._judge_revisions.close()
        if self._reloading is not None:
            self._reloading.close()

    def _extract(self, spans: Iterable[SpanRecord], unit: RunUnit) -> list[Run]:
        return extract(
            spans,
            unit=unit,
            golden_id_attributes=self._golden_id_attributes,
            components=self.goldens.components,
        )

    def _evaluate_completed(
        self, assembled: CompletedSpans, runs: Iterable[Run], on_run: Callable[[Run], object]
    ) -> Iterator[Evaluation]:
        for run in runs:
            on_run(run)
            if assembled.unended:
                run = replace(run, health=replace(run.health, unended=assembled.unended))
            run_key = (run.unit, run.run_id)
            if not assembled.revisions.compare_and_set(run_key, None, (0, None)):
                continue  # another thread has evaluated a later revision
            scored = self._is_sampled(run)
            if scored or (self._sessions and assembled.may_change):
                evaluation = self._evaluate(run)
                if not assembled.revisions.set_first(run_key, evaluation.digest if assembled.may_change else None):
                    continue
                if scored and (submitted := self._submit(evaluation, 1)):
                    yield submitted
            self._continue_session(run)

    def _evaluate_revised(
        self, assembled: RevisedSpans, unit: RunUnit, on_run: Callable[[Run], object]
    ) -> Iterator[Evaluation]:
        """Evaluates the runs that changed, and new ones."""
        if not self._is_unit_needed(unit) or assembled.is_outdated():
            return
        assembled.revisions.latest_sequence = assembled.sequence
        before = {run.run_id: run for run in self._extract(assembled.before, unit)}
        runs = {run.run_id: run for run in self._extract(assembled.after, unit)}
        for run in runs.values():
            run_key = (unit, run.run_id)
            known = assembled.revisions.get(run_key)
            if known is None and run.span_id not in assembled.ended_span_ids:
                continue
            scored = self._is_sampled(run, new=known is None)
            if not (scored or self._sessions):
                continue
            evaluation = self._evaluate(run)
            if assembled.is_outdated():
                return
            revision, changed = self._store_revision(assembled.revisions, run_key, evaluation, before.get(run.run_id))
            if changed:
                on_run(run)
                if scored and (submitted := self._submit(evaluation, revision)):
                    yield submitted
                self._continue_session(run)
        for run_id, run in before.items():
            known = assembled.revisions.get((unit, run_id))
            if run_id not in runs and known is not None and known[1] is None:
                # Without the missing spans, the run is a part of another run. It is a run again if they arrive.
                assembled.revisions.compare_and_set((unit, run_id), known, (known[0], self._digest(run)))

    def _store_revision(
        self, latest: RunRevisions, run_key: RunKey, evaluation: Evaluation, before: Run | None
    ) -> tuple[int, bool]:
        """Stores an evaluation as the latest of its run. Returns its revision number, and whether it changed.

        An unchanged evaluation is stored too: the next comparison may be based on fewer spans.
        """
        while True:
            known, changed = latest.get(run_key), True
            if known is not None:
                previous_digest = self._digest(before) if known[1] is None else known[1]
                changed = previous_digest != evaluation.digest
            revision = (known[0] if known else 0) + changed
            if latest.compare_and_set(run_key, known, (revision, evaluation.digest)):
                return revision, changed

    def _digest(self, run: Run | None) -> str:
        return "" if run is None else self._evaluate(run).digest

    def _continue_session(self, request: Run) -> None:
        """Evaluates the conversation that contains the request."""
        conversation = self._sessions.add_request(request) if self._sessions and request.unit == "request" else None
        if conversation is not None:
            run, revision = conversation
            if self._is_sampled(run, new=revision == 1):
                self.evaluate_and_submit(run, revision)

    def _is_unit_needed(self, unit: RunUnit) -> bool:
        """Returns whether runs of the unit are scored or are part of scored conversations."""
        return unit in self._units or (unit == "request" and self._sessions is not None)

    def _is_sampled(self, run: Run, *, new: bool = True) -> bool:
        """Returns whether a run is scored. A `new` run that is excluded is counted."""
        if run.unit not in self._units:
            return False
        if self._sampling is None or self._sampling.should_sample(run):
            return True
        self.sampled_out += new
        return False

    def _evaluate(self, run: Run) -> Evaluation:
        return evaluate(
            run,
            self.goldens,
            metrics=self._metrics,
            thresholds=self._thresholds,
            budget=self._budget,
            unknown=self._unknown,
        )

    def _submit(self, evaluation: Evaluation, revision: int) -> Evaluation | None:
        """Submits what the redaction leaves of an evaluation."""
        allowed = self._redact_revision(evaluation, revision)
        return None if allowed is None else self._deliver([allowed])[0]

    def _redact_revision(self, evaluation: Evaluation, revision: int) -> Evaluation | None:
        if revision > 1:
            evaluation = replace(evaluation, revision=revision)
        return evaluation if self._redact is None else apply_redaction(evaluation, self._redact)

    def _deliver(self, evaluations: Sequence[Evaluation]) -> list[Evaluation]:
        """Submits evaluations to the sinks and to the judge. Returns them with their final revision numbers."""
        delivered, judged = [], []
        for evaluation in evaluations:
            self._count(evaluation)
            wanted = False
            if self._judge_revisions is not None:
                with _SAMPLING:
                    wanted = self._judge_revisions.should_judge(evaluation)
                evaluation = self._judge_revisions.assign_revision(evaluation, is_judged=wanted)
            delivered.append(evaluation)
            if wanted:
                judged.append(evaluation)
        self._submit_to_sinks(delivered)
        if self._judge_revisions is not None:
            for evaluation in judged:
                with _JUDGING:
                    self._judge_revisions.submit(evaluation)
        return delivered

    def _count(self, evaluation: Evaluation) -> None:
        if self._budget is not None and any(score.reason == OUT_OF_TIME for score in evaluation.scores):
            self.over_budget += 1
        if evaluation.health.calls_invisible and evaluation.revision == 1:
            self.invisible += 1
            self._warn_invisible_calls(evaluation.run)

    def _warn_invisible_calls(self, run: Run) -> None:
        """Logs what to do about tool calls that the telemetry does not show, once per set of conventions."""
        if run.conventions in self._warned_conventions:
            return
        self._warned_conventions.add(run.conventions)
        advice = "; ".join(f"{hint.summary}. {' '.join(hint.advice.split())}" for hint in invisible_call_hints(run))
        conventions = ", ".join(run.conventions) or "no convention"
        _log.warning("goldspan, for runs read by %s (logged once): %s", conventions, advice)

    def _submit_to_sinks(self, evaluations: Sequence[Evaluation]) -> None:
        """Submits evaluations to each sink; several at once to a sink with `submit_many`."""
        for sink, submit_many, guarded in self._guarded_sinks:
            if submit_many is not None and len(evaluations) > 1:
                with guarded:
                    submit_many(evaluations)
                continue
            for evaluation in evaluations:
                with guarded:
                    sink.submit(evaluation)


def _build_judge_revisions(judge: Judge, deliver: Callable[[Evaluation], object]) -> JudgeRevisions:
    from goldspan.online.judge_revisions import (
        JudgeRevisions,  # event loops are slow to load, and most programs ask no model
    )

    return JudgeRevisions(judge, deliver)


def check_units(units: Iterable[str]) -> tuple[RunUnit, ...]:
    """Returns the units. Raises `ConfigurationError` for an unknown unit, and for none."""
    known: tuple[RunUnit, ...] = ("request", "component", "conversation")
    requested = tuple(units)
    if not requested or set(requested) - set(known):
        names = ", ".join(map(repr, requested)) or "none"
        raise ConfigurationError(f"units must be some of {', '.join(known)}, not {names}")
    return tuple(unit for unit in known if unit in requested)
