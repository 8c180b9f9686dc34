"""What happens to a run that is complete: it is judged, and the evaluation goes to every sink."""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from goldspan._guard import suppress_errors
from goldspan.conventions.classification import golden_id_attributes as attributes_from
from goldspan.errors import ConfigurationError, GoldspanError
from goldspan.extraction import component_name, extract, extract_units
from goldspan.extraction.capture_diagnostics import invisible_call_hints
from goldspan.extraction.reconciliation.run_merging import merge_conversations
from goldspan.goldens import Goldens
from goldspan.model import Evaluation, Run, RunUnit, SpanRecord, TelemetryRecord, UnknownPolicy
from goldspan.online.assembled_spans import AssembledSpans, CompletedSpans, RevisedSpans, RunKey, RunRevisions
from goldspan.scoring import evaluate
from goldspan.scoring.evaluator import OUT_OF_TIME
from goldspan.scoring.metrics import MetricLike
from goldspan.scoring.metrics.registry import metrics_of_golden
from goldspan.sinks import Redact, Sink, adopt, apply_redaction

if TYPE_CHECKING:
    from goldspan.goldens.golden_files.hot_reload import ReloadingGoldens
    from goldspan.judge.judge import Judge
    from goldspan.online.judge_revisions import JudgeRevisions
    from goldspan.online.sampling import Sampling

_MAX_REQUESTS = 200
"""Requests of one conversation that are kept: the latest."""

_Session = tuple[str | None, str]


class SessionRequests:
    """The requests of the latest sessions. Any thread may use it."""

    def __init__(self, max_sessions: int = 1_000) -> None:
        self._max_sessions = max_sessions
        self._lock = threading.Lock()
        self._requests: OrderedDict[_Session, OrderedDict[str, Run]] = OrderedDict()
        self._revisions: dict[_Session, int] = {}

    def add_request(self, request: Run) -> tuple[Run, int] | None:
        """The conversation with that request, new or changed, in it, and its revision; `None`: it is of no session."""
        if request.session_id is None:
            return None
        session = (request.service, request.session_id)
        with self._lock:
            requests = self._requests.setdefault(session, OrderedDict())
            self._requests.move_to_end(session)
            requests[request.run_id] = request
            if len(requests) > _MAX_REQUESTS:
                requests.popitem(last=False)
            revision = self._revisions[session] = self._revisions.get(session, 0) + 1
            while len(self._requests) > self._max_sessions:
                gone, _ = self._requests.popitem(last=False)
                del self._revisions[gone]
            so_far = list(requests.values())
        return merge_conversations(so_far)[0], revision


_log = logging.getLogger("goldspan")

_SAMPLING = suppress_errors("say whether the judge is asked about a run")
_JUDGING = suppress_errors("ask the judge")


class Pipeline:
    """Judges runs by some goldens and hands the evaluations on. Any thread may use it.

    `goldens` that are read again when their files change are asked for anew with every run. `budget` is in seconds:
    metrics that would begin after it are not evaluated. A `judge` is asked, on a thread of its own, about what was
    submitted; what it says is submitted as the next revision, or given to `verdicts` in place of the sinks.

    Raises `ConfigurationError` when it is made with a metric or a threshold that does not exist, also one of a golden.
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
        self._guarded_sinks = tuple((sink, suppress_errors(f"submit to {type(sink).__name__}")) for sink in self.sinks)
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
        """Runs that the sampling left unscored."""
        self.over_budget = 0
        """Evaluations that lack metrics for want of time."""
        self.invisible = 0
        """Runs of which nobody knows whether they called tools."""
        self._warned_conventions: set[tuple[str, ...]] = set()
        self.reload_failures = 0
        """Changed golden files that could not be read, or ask for metrics that do not exist."""
        self.goldens = Goldens()
        """What runs are judged by."""
        self._evaluate(Run(run_id="trial"))  # a wrong metric is found now, not in the middle of a request
        extract((), golden_id_attributes=self._golden_id_attributes)  # nor are conventions of packages loaded there
        self._reloading = None if goldens is None or isinstance(goldens, Goldens) else goldens
        self._last_offered = (
            goldens if isinstance(goldens, Goldens) else self._reloading.current if self._reloading else Goldens()
        )
        self._use_goldens(self._last_offered)

    def reset(self) -> None:
        """Begin anew: in a forked child, sessions are the parent's, and so are perhaps the locks."""
        self._reload_lock = threading.Lock()
        self._sessions = SessionRequests() if "conversation" in self._units else None

    def _use_goldens(self, goldens: Goldens) -> None:
        """Judge by these from now on. Raises `ConfigurationError` where one asks for a metric that does not exist."""
        for golden in goldens if self._metrics is None else ():
            metrics_of_golden(golden, self._thresholds)
        goldens.prepare()
        self.goldens = goldens
        adopt(self.sinks, goldens)

    def _refresh_goldens(self) -> None:
        """Take up goldens that were read again. Those that cannot be used leave the earlier ones as they are."""
        if self._reloading is None:
            return
        offered = self._reloading.current
        if offered is not self._last_offered:
            with self._reload_lock:
                self._use_reloaded(offered)
        self.reload_failures = self._reloading.failures + self._rejected_reloads

    def _use_reloaded(self, offered: Goldens) -> None:
        if offered is self._last_offered:
            return  # another thread was here first
        self._last_offered = offered
        try:
            self._use_goldens(offered)
        except GoldspanError as error:
            self._rejected_reloads += 1
            _log.error("goldspan goes on with the goldens that it had: %s", error)

    def evaluate_spans(
        self, assembled: AssembledSpans, on_run: Callable[[Run], object] = lambda _: None
    ) -> list[Evaluation]:
        """Extract and evaluate the runs that came to their end, or that changed.

        `seen` is told of each of them, also of those that are not scored or of which nothing may leave.
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
        """The requests and components in spans and logs of which all are at hand, as far as such are scored.

        Of conversations it is the requests.
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
        """Judge a run and submit the evaluation, unless the sampling or the redaction say otherwise: then it is `None`.

        Where a revision of it is `known`, with its digest, it is the next one. Where nothing has changed since, it has
        the revision that is known, and is not submitted again.
        """
        if not self._is_sampled(run, new=known is None):
            return None
        allowed = self._redact_revision(self._evaluate(run), known[0] + 1 if known is not None else 1)
        if allowed is None:
            return None
        if known is not None and known[1] == allowed.digest:
            return allowed.with_revision(known[0])
        return self._deliver(allowed)

    def evaluate_without_submitting(self, run: Run) -> Evaluation | None:
        """Judge a run and submit nothing; `None`: nothing of it may leave."""
        self._refresh_goldens()
        return apply_redaction(self._evaluate(run), self._redact)

    def add_to_conversation(self, request: Run) -> Run | None:
        """The conversation that a request continues, with all of its requests so far, where such are scored."""
        so_far = self._sessions.add_request(request) if self._sessions and request.unit == "request" else None
        return so_far[0] if so_far is not None else None

    def evaluate_and_submit(self, run: Run, revision: int = 1) -> Evaluation | None:
        """Judge one run and submit the evaluation to every sink; `None`: nothing of it may leave.

        A sink that fails keeps it from no other.
        """
        return self._submit(self._evaluate(run), revision)

    def is_requested_component(self, span: SpanRecord) -> bool:
        """Whether somebody asks for the component that a span stands for, though it is not marked as one."""
        components = self.goldens.components
        return bool(components) and component_name(span, components) is not None

    def submit_verdict(self, judged: Evaluation) -> None:
        """Give the sinks a revision that only adds what a judge says."""
        self._submit_to_sinks(judged)

    def flush_verdicts(self, timeout_millis: int) -> bool:
        """Wait a little for the judge; whether it has answered everything."""
        return self._judge_revisions is None or self._judge_revisions.force_flush(timeout_millis)

    def count_outdated_verdict(self) -> None:
        """Take note of a verdict about a run that has changed meanwhile."""
        if self._judge_revisions is not None:
            self._judge_revisions.count_outdated()

    def close(self) -> None:
        """Wait a little for the judge, and look at the files of the goldens no more."""
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
        self, portion: CompletedSpans, runs: Iterable[Run], seen: Callable[[Run], object]
    ) -> Iterator[Evaluation]:
        for run in runs:
            seen(run)
            if portion.unended:
                run = replace(run, health=replace(run.health, unended=portion.unended))
            place = (run.unit, run.run_id)
            if not portion.revisions.compare_and_set(place, None, (0, None)):
                continue  # another thread has concluded meanwhile what was seen later
            scored = self._is_sampled(run)
            if scored or (self._sessions and portion.may_change):
                judged = self._evaluate(run)
                if not portion.revisions.set_first(place, judged.digest if portion.may_change else None):
                    continue
                if scored and (submitted := self._submit(judged, 1)):
                    yield submitted
            self._continue_session(run)

    def _evaluate_revised(
        self, portion: RevisedSpans, unit: RunUnit, seen: Callable[[Run], object]
    ) -> Iterator[Evaluation]:
        """The runs that are others now than they were before, and those that were not there."""
        if not self._is_unit_needed(unit) or portion.is_outdated():
            return
        portion.revisions.latest_sequence = portion.sequence
        before = {run.run_id: run for run in self._extract(portion.before, unit)}
        runs = {run.run_id: run for run in self._extract(portion.after, unit)}
        for run in runs.values():
            place = (unit, run.run_id)
            known = portion.revisions.get(place)
            if known is None and run.span_id not in portion.ended_span_ids:
                continue
            scored = self._is_sampled(run, new=known is None)
            if not (scored or self._sessions):
                continue
            judged = self._evaluate(run)
            if portion.is_outdated():
                return
            revision, changed = self._store_revision(portion.revisions, place, judged, before.get(run.run_id))
            if changed:
                seen(run)
                if scored and (submitted := self._submit(judged, revision)):
                    yield submitted
                self._continue_session(run)
        for run_id, run in before.items():
            known = portion.revisions.get((unit, run_id))
            if run_id not in runs and known is not None and known[1] is None:
                # What is missing around it makes it part of another one; it may come back.
                portion.revisions.compare_and_set((unit, run_id), known, (known[0], self._digest(run)))

    def _store_revision(
        self, latest: RunRevisions, place: RunKey, judged: Evaluation, before: Run | None
    ) -> tuple[int, bool]:
        """Note an evaluation as the latest of its run: the number of its revision, and whether it says anything new.

        It is noted even where it does not: what it is laid beside the next time may not be all that was seen now.
        """
        while True:
            known, changed = latest.get(place), True
            if known is not None:
                said = self._digest(before) if known[1] is None else known[1]
                changed = said != judged.digest
            revision = (known[0] if known else 0) + changed
            if latest.compare_and_set(place, known, (revision, judged.digest)):
                return revision, changed

    def _digest(self, run: Run | None) -> str:
        return "" if run is None else self._evaluate(run).digest

    def _continue_session(self, request: Run) -> None:
        """Judge the conversation that the request is part of."""
        conversation = self._sessions.add_request(request) if self._sessions and request.unit == "request" else None
        if conversation is not None:
            run, revision = conversation
            if self._is_sampled(run, new=revision == 1):
                self.evaluate_and_submit(run, revision)

    def _is_unit_needed(self, unit: RunUnit) -> bool:
        """Whether such runs must be known: to be scored, or as parts of conversations."""
        return unit in self._units or (unit == "request" and self._sessions is not None)

    def _is_sampled(self, run: Run, *, new: bool = True) -> bool:
        """Whether a run is scored. One that is not is counted when it is `new`."""
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
        """Hand an evaluation to the sinks, as far as it may leave."""
        allowed = self._redact_revision(evaluation, revision)
        return None if allowed is None else self._deliver(allowed)

    def _redact_revision(self, evaluation: Evaluation, revision: int) -> Evaluation | None:
        if revision > 1:
            evaluation = replace(evaluation, revision=revision)
        return apply_redaction(evaluation, self._redact)

    def _deliver(self, evaluation: Evaluation) -> Evaluation:
        if self._budget is not None and any(score.reason == OUT_OF_TIME for score in evaluation.scores):
            self.over_budget += 1
        if evaluation.health.calls_invisible and evaluation.revision == 1:
            self.invisible += 1
            self._warn_invisible_calls(evaluation.run)
        if self._judge_revisions is None:
            self._submit_to_sinks(evaluation)
            return evaluation
        wanted = False
        with _SAMPLING:
            wanted = self._judge_revisions.should_judge(evaluation)
        evaluation = self._judge_revisions.assign_revision(evaluation, is_judged=wanted)
        self._submit_to_sinks(evaluation)
        if wanted:
            with _JUDGING:
                self._judge_revisions.submit(evaluation)
        return evaluation

    def _warn_invisible_calls(self, run: Run) -> None:
        """Say what to do about calls that do not show: once for all runs that were read by the same conventions."""
        if run.conventions in self._warned_conventions:
            return
        self._warned_conventions.add(run.conventions)
        told = "; ".join(f"{hint.summary}. {' '.join(hint.advice.split())}" for hint in invisible_call_hints(run))
        by = ", ".join(run.conventions) or "no convention"
        _log.warning("goldspan, of runs read by %s (logged once): %s", by, told)

    def _submit_to_sinks(self, evaluation: Evaluation) -> None:
        for sink, guarded in self._guarded_sinks:
            with guarded:
                sink.submit(evaluation)


def _build_judge_revisions(judge: Judge, deliver: Callable[[Evaluation], object]) -> JudgeRevisions:
    from goldspan.online.judge_revisions import (
        JudgeRevisions,  # event loops are slow to load, and most programs ask no model
    )

    return JudgeRevisions(judge, deliver)


def check_units(units: Iterable[str]) -> tuple[RunUnit, ...]:
    """The units asked for. Raises `ConfigurationError` for one that does not exist, and for none."""
    known: tuple[RunUnit, ...] = ("request", "component", "conversation")
    asked = tuple(units)
    if not asked or set(asked) - set(known):
        raise ConfigurationError(f"units are some of {', '.join(known)}, not {', '.join(map(repr, asked)) or 'none'}")
    return tuple(unit for unit in known if unit in asked)
