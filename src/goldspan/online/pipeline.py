"""What happens to a run that is complete: it is judged, and the evaluation goes to every sink."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from goldspan._guard import guard
from goldspan.errors import ConfigurationError, GoldspanError
from goldspan.extraction import component_names, extract, extract_units
from goldspan.extraction.golden_ids import golden_id_attributes as attributes_from
from goldspan.extraction.hints import about_invisible
from goldspan.goldens import Goldens
from goldspan.model import Evaluation, Record, Run, SpanRecord, Unit, Unknown
from goldspan.online.portions import Ended, Known, Place, Portion, Revised
from goldspan.online.sessions import Sessions
from goldspan.scoring import evaluate
from goldspan.scoring.evaluator import OUT_OF_TIME
from goldspan.scoring.metrics import MetricLike
from goldspan.scoring.registry import measured_by
from goldspan.sinks import Redact, Sink, adopt, redacted

if TYPE_CHECKING:
    from goldspan.goldens.reloading import ReloadingGoldens
    from goldspan.judge.judges import Judge
    from goldspan.online.sampling import Sampling
    from goldspan.online.verdicts import Verdicts


_log = logging.getLogger("goldspan")

_SAMPLING = guard("say whether the judge is asked about a run")
_ASKING = guard("ask the judge")


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
        unknown: Unknown | None = None,
        golden_id_attributes: Sequence[str] | None = None,
        units: Sequence[Unit] = ("request", "component"),
        redact: Redact | None = None,
        sampling: Sampling | None = None,
        budget: float | None = None,
        judge: Judge | None = None,
        verdicts: Callable[[Evaluation], object] | None = None,
    ) -> None:
        self.sinks = tuple(sinks)
        self._guarded = tuple((sink, guard(f"submit to {type(sink).__name__}")) for sink in self.sinks)
        self._metrics = None if metrics is None else tuple(metrics)
        self._thresholds = None if thresholds is None else dict(thresholds)
        self._unknown = unknown
        self._golden_id_attributes = attributes_from(golden_id_attributes)
        self._units = frozenset(units)
        self._redact = redact
        self._sampling = sampling
        self._budget = budget
        self._verdicts = None if judge is None else _verdicts_of(judge, verdicts or self.submit_verdict)
        self._unusable = 0
        self.forget()
        self.sampled_out = 0
        """Runs that the sampling left unscored."""
        self.over_budget = 0
        """Evaluations that lack metrics for want of time."""
        self.invisible = 0
        """Runs of which nobody knows whether they called tools."""
        self._told_invisible: set[tuple[str, ...]] = set()
        self.reload_failures = 0
        """Changed golden files that could not be read, or ask for metrics that do not exist."""
        self.goldens = Goldens()
        """What runs are judged by."""
        self._judge(Run(run_id="trial"))  # a wrong metric is found now, not in the middle of a request
        extract((), golden_id_attributes=self._golden_id_attributes)  # nor are conventions of packages loaded there
        self._source = None if goldens is None or isinstance(goldens, Goldens) else goldens
        self._offered = goldens if isinstance(goldens, Goldens) else self._source.current if self._source else Goldens()
        self._adopt(self._offered)

    def forget(self) -> None:
        """Begin anew: in a forked child, sessions are the parent's, and so are perhaps the locks."""
        self._adopting = threading.Lock()
        self._sessions = Sessions() if "conversation" in self._units else None

    def _adopt(self, goldens: Goldens) -> None:
        """Judge by these from now on. Raises `ConfigurationError` where one asks for a metric that does not exist."""
        for golden in goldens if self._metrics is None else ():
            measured_by(golden, self._thresholds)
        goldens.prepare()
        self.goldens = goldens
        adopt(self.sinks, goldens)

    def _keep_up(self) -> None:
        """Take up goldens that were read again. Those that cannot be used leave the earlier ones as they are."""
        if self._source is None:
            return
        offered = self._source.current
        if offered is not self._offered:
            with self._adopting:
                self._take_up(offered)
        self.reload_failures = self._source.failures + self._unusable

    def _take_up(self, offered: Goldens) -> None:
        if offered is self._offered:
            return  # another thread was here first
        self._offered = offered
        try:
            self._adopt(offered)
        except GoldspanError as error:
            self._unusable += 1
            _log.error("goldspan goes on with the goldens that it had: %s", error)

    def conclude(self, portion: Portion, seen: Callable[[Run], object] = lambda _: None) -> list[Evaluation]:
        """Extract and evaluate the runs that came to their end, or that changed.

        `seen` is told of each of them, also of those that are not scored or of which nothing may leave.
        """
        self._keep_up()
        if isinstance(portion, Revised):
            units: tuple[Unit, ...] = ("request", "component")
            return [evaluation for unit in units for evaluation in self._revise(portion, unit, seen)]
        if not self._asked_for(portion.unit):
            return []
        runs = (run for run in self._extract(portion.spans, portion.unit) if portion.holds(run))
        return list(self._evaluated(portion, runs, seen))

    def runs_in(self, records: Iterable[Record]) -> list[Run]:
        """The requests and components in spans and logs of which all are at hand, as far as such are scored.

        Of conversations it is the requests.
        """
        self._keep_up()
        units: tuple[Unit, ...] = ("request", "component")
        return extract_units(
            records,
            [unit for unit in units if self._asked_for(unit)],
            golden_id_attributes=self._golden_id_attributes,
            components=self.goldens.components,
        )

    def revise(self, run: Run, known: tuple[int, str] | None) -> Evaluation | None:
        """Judge a run and submit the evaluation, unless the sampling or the redaction say otherwise: then it is `None`.

        Where a revision of it is `known`, with its digest, it is the next one. Where nothing has changed since, it has
        the revision that is known, and is not submitted again.
        """
        if not self._keeps(run, new=known is None):
            return None
        allowed = self._allowed(self._judge(run), known[0] + 1 if known is not None else 1)
        if allowed is None:
            return None
        if known is not None and known[1] == allowed.digest:
            return allowed.revised(known[0])
        return self._hand_out(allowed)

    def judge(self, run: Run) -> Evaluation | None:
        """Judge a run and submit nothing; `None`: nothing of it may leave."""
        self._keep_up()
        return redacted(self._judge(run), self._redact)

    def conversation_of(self, request: Run) -> Run | None:
        """The conversation that a request continues, with all of its requests so far, where such are scored."""
        so_far = self._sessions.add(request) if self._sessions and request.unit == "request" else None
        return so_far[0] if so_far is not None else None

    def evaluate(self, run: Run, revision: int = 1) -> Evaluation | None:
        """Judge one run and submit the evaluation to every sink; `None`: nothing of it may leave.

        A sink that fails keeps it from no other.
        """
        return self._submit(self._judge(run), revision)

    def watches(self, span: SpanRecord) -> bool:
        """Whether somebody asks for the component that a span stands for, though it is not marked as one."""
        components = self.goldens.components
        return bool(components) and component_names(span, components) is not None

    def submit_verdict(self, judged: Evaluation) -> None:
        """Give the sinks a revision that only adds what a judge says."""
        self._give(judged)

    def flush_verdicts(self, timeout_millis: int) -> bool:
        """Wait a little for the judge; whether it has answered everything."""
        return self._verdicts is None or self._verdicts.force_flush(timeout_millis)

    def drop_verdict(self) -> None:
        """Take note of a verdict about a run that has changed meanwhile."""
        if self._verdicts is not None:
            self._verdicts.outdated()

    def close(self) -> None:
        """Wait a little for the judge, and look at the files of the goldens no more."""
        if self._verdicts is not None:
            self._verdicts.close()
        if self._source is not None:
            self._source.close()

    def _extract(self, spans: Iterable[SpanRecord], unit: Unit) -> list[Run]:
        return extract(
            spans,
            unit=unit,
            golden_id_attributes=self._golden_id_attributes,
            components=self.goldens.components,
        )

    def _evaluated(self, portion: Ended, runs: Iterable[Run], seen: Callable[[Run], object]) -> Iterator[Evaluation]:
        for run in runs:
            seen(run)
            if portion.unended:
                run = replace(run, health=replace(run.health, unended=portion.unended))
            place = (run.unit, run.run_id)
            if not portion.known.note(place, None, (0, None)):
                continue  # another thread has concluded meanwhile what was seen later
            scored = self._keeps(run)
            if scored or (self._sessions and portion.grows):
                judged = self._judge(run)
                if not portion.known.note_first(place, judged.digest if portion.grows else None):
                    continue
                if scored and (submitted := self._submit(judged, 1)):
                    yield submitted
            self._continue_session(run)

    def _revise(self, portion: Revised, unit: Unit, seen: Callable[[Run], object]) -> Iterator[Evaluation]:
        """The runs that are others now than they were before, and those that were not there."""
        if not self._asked_for(unit) or portion.is_outdated():
            return
        portion.known.latest = portion.number
        before = {run.run_id: run for run in self._extract(portion.before, unit)}
        runs = {run.run_id: run for run in self._extract(portion.after, unit)}
        for run in runs.values():
            place = (unit, run.run_id)
            known = portion.known.get(place)
            if known is None and run.span_id not in portion.there:
                continue
            scored = self._keeps(run, new=known is None)
            if not (scored or self._sessions):
                continue
            judged = self._judge(run)
            if portion.is_outdated():
                return
            revision, changed = self._noted(portion.known, place, judged, before.get(run.run_id))
            if changed:
                seen(run)
                if scored and (submitted := self._submit(judged, revision)):
                    yield submitted
                self._continue_session(run)
        for run_id, run in before.items():
            known = portion.known.get((unit, run_id))
            if run_id not in runs and known is not None and known[1] is None:
                # What is missing around it makes it part of another one; it may come back.
                portion.known.note((unit, run_id), known, (known[0], self._digest(run)))

    def _noted(self, latest: Known, place: Place, judged: Evaluation, before: Run | None) -> tuple[int, bool]:
        """Note an evaluation as the latest of its run: the number of its revision, and whether it says anything new.

        It is noted even where it does not: what it is laid beside the next time may not be all that was seen now.
        """
        while True:
            known, changed = latest.get(place), True
            if known is not None:
                said = self._digest(before) if known[1] is None else known[1]
                changed = said != judged.digest
            revision = (known[0] if known else 0) + changed
            if latest.note(place, known, (revision, judged.digest)):
                return revision, changed

    def _digest(self, run: Run | None) -> str:
        return "" if run is None else self._judge(run).digest

    def _continue_session(self, request: Run) -> None:
        """Judge the conversation that the request is part of."""
        conversation = self._sessions.add(request) if self._sessions and request.unit == "request" else None
        if conversation is not None:
            run, revision = conversation
            if self._keeps(run, new=revision == 1):
                self.evaluate(run, revision)

    def _asked_for(self, unit: Unit) -> bool:
        """Whether such runs must be known: to be scored, or as parts of conversations."""
        return unit in self._units or (unit == "request" and self._sessions is not None)

    def _keeps(self, run: Run, *, new: bool = True) -> bool:
        """Whether a run is scored. One that is not is counted when it is `new`."""
        if run.unit not in self._units:
            return False
        if self._sampling is None or self._sampling.keeps(run):
            return True
        self.sampled_out += new
        return False

    def _judge(self, run: Run) -> Evaluation:
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
        allowed = self._allowed(evaluation, revision)
        return None if allowed is None else self._hand_out(allowed)

    def _allowed(self, evaluation: Evaluation, revision: int) -> Evaluation | None:
        if revision > 1:
            evaluation = replace(evaluation, revision=revision)
        return redacted(evaluation, self._redact)

    def _hand_out(self, evaluation: Evaluation) -> Evaluation:
        if self._budget is not None and any(score.reason == OUT_OF_TIME for score in evaluation.scores):
            self.over_budget += 1
        if evaluation.health.calls_invisible and evaluation.revision == 1:
            self.invisible += 1
            self._tell_invisible(evaluation.run)
        if self._verdicts is None:
            self._give(evaluation)
            return evaluation
        wanted = False
        with _SAMPLING:
            wanted = self._verdicts.wants(evaluation)
        evaluation = self._verdicts.numbered(evaluation, wanted=wanted)
        self._give(evaluation)
        if wanted:
            with _ASKING:
                self._verdicts.ask(evaluation)
        return evaluation

    def _tell_invisible(self, run: Run) -> None:
        """Say what to do about calls that do not show: once for all runs that were read by the same conventions."""
        if run.conventions in self._told_invisible:
            return
        self._told_invisible.add(run.conventions)
        told = "; ".join(f"{hint.found}. {' '.join(hint.advice.split())}" for hint in about_invisible(run))
        by = ", ".join(run.conventions) or "no convention"
        _log.warning("goldspan, of runs read by %s (logged once): %s", by, told)

    def _give(self, evaluation: Evaluation) -> None:
        for sink, guarded in self._guarded:
            with guarded:
                sink.submit(evaluation)


def _verdicts_of(judge: Judge, deliver: Callable[[Evaluation], object]) -> Verdicts:
    from goldspan.online.verdicts import Verdicts  # event loops are slow to load, and most programs ask no model

    return Verdicts(judge, deliver)


def check_units(units: Iterable[str]) -> tuple[Unit, ...]:
    """The units asked for. Raises `ConfigurationError` for one that does not exist, and for none."""
    known: tuple[Unit, ...] = ("request", "component", "conversation")
    asked = tuple(units)
    if not asked or set(asked) - set(known):
        raise ConfigurationError(f"units are some of {', '.join(known)}, not {', '.join(map(repr, asked)) or 'none'}")
    return tuple(unit for unit in known if unit in asked)
