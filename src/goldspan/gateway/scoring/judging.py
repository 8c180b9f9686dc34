"""What becomes of a bundle that is due: its runs are found and judged, and its spans may leave."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from goldspan import semconv
from goldspan._guard import guard
from goldspan.errors import StoreError
from goldspan.gateway.journal.writing import Journal
from goldspan.gateway.scoring.history import History, Sight, sight_of
from goldspan.gateway.scoring.opening import Reopening, records_of
from goldspan.gateway.scoring.outbox import Outbox
from goldspan.gateway.scoring.sessions import Sessions
from goldspan.gateway.scoring.traces import Bundle, Bundles, Part
from goldspan.model import Evaluation, Run
from goldspan.online.pipeline import Pipeline
from goldspan.sinks import Losses
from goldspan.store import SqliteStore


@dataclass(slots=True)
class _Verdicts:
    """What was said of the runs of a bundle."""

    all: list[Evaluation] = field(default_factory=list)
    """As they stand now, without conversations."""
    new: list[Evaluation] = field(default_factory=list)
    """Those that are to be stored."""
    sent: set[str] = field(default_factory=set)
    """Spans that are not to leave again."""


class Judging:
    """Judges bundles one by one, and keeps what came of it until it is written down.

    `journals` are those in which the spans of bundles are.
    """

    def __init__(
        self,
        journals: Mapping[int, Journal],
        bundles: Bundles,
        pipeline: Pipeline,
        store: SqliteStore,
        outbox: Outbox,
        losses: Losses,
    ) -> None:
        self._journals = journals
        self._pipeline = pipeline
        self._outbox = outbox
        self._losses = losses
        self._sessions = Sessions(bundles)
        self._reopening = Reopening()
        self.evaluations: list[Evaluation] = []
        """What is to be stored."""
        self.gone: list[str] = []
        """The ids of runs that are to be taken back: they turned out to be parts of others."""
        self._continued: list[Run] = []
        self._history = History(store, self.evaluations)

    def judge(self, bundle: Bundle) -> bool:
        """Judge what is held of a bundle; whether that is done, and not put off.

        Raises `StoreError` where a journal or the store cannot be read; nothing was judged then.
        """
        parts, held = self._parts(bundle)
        verdicts = _Verdicts()
        done = True
        with guard("score a trace", but=StoreError):
            done = bundle.lost or self._score(bundle, parts, verdicts)
        if done:
            self._outbox.put(held, verdicts.all, without=verdicts.sent)
            self.evaluations += verdicts.new
        return done

    def _score(self, bundle: Bundle, parts: Iterable[Part], verdicts: _Verdicts) -> bool:
        """Judge the runs of a bundle; whether it was not put off."""
        records = [record for record in records_of(parts) if record.trace_id not in bundle.forgotten]
        runs = self._pipeline.runs_in(records)
        if not bundle.leaving and self._sessions.waits(bundle, records, runs):
            return False
        self._history.recall(bundle)
        sight = sight_of(records, runs)
        outlived = list(self._history.outlived(bundle, sight))
        for run in runs:
            with guard("score a run"):
                self._judge_run(bundle, run, sight, verdicts)
        for place in outlived:
            del bundle.known[place]
            self.gone.append(place[1])
        verdicts.sent = _sent_before(bundle, verdicts.all)
        return True

    def conclude(self) -> None:
        """Judge the conversations that were continued. Raises `StoreError`; then it may be called again."""
        while self._continued:
            conversation = self._continued[0]
            known = self._history.latest(conversation.run_id)
            with guard("score a conversation"):
                evaluation = self._pipeline.revise(conversation, known)
                if evaluation is not None and (known is None or evaluation.revision != known[0]):
                    self.evaluations.append(evaluation)
            del self._continued[0]

    def written_down(self) -> None:
        """Take note that what there was is stored."""
        self.evaluations.clear()
        self.gone.clear()

    def close(self) -> None:
        """Keep no entries open for the next bundles."""
        self._reopening.close()
        self._sessions.forget_old()

    # --- spans -------------------------------------------------------------------------------------------------------

    def _parts(self, bundle: Bundle) -> tuple[list[Part], list[Part]]:
        """The spans of a bundle, out of the journals where they are not in memory; and those that are held still."""
        if bundle.whole:
            return bundle.parts, bundle.parts if bundle.held else []
        parts: list[Part] = []
        held: list[Part] = []
        for journal, entries in bundle.places.items():
            for entry in entries:
                is_held = (journal, entry) in bundle.held
                if is_held or not bundle.lost:
                    found = self._reopening.parts_of(self._journals[journal], journal, entry, bundle)
                    parts += found
                    held += found if is_held else ()
        return parts, held

    # --- runs --------------------------------------------------------------------------------------------------------

    def _judge_run(self, bundle: Bundle, run: Run, sight: Sight, verdicts: _Verdicts) -> None:
        """Judge a run, unless there is too little of it."""
        place = (run.unit, run.run_id)
        if self._history.is_remnant(bundle, run, sight):
            self._losses.add(semconv.TOO_LATE_SPANS_COUNTER)
            return
        known = bundle.known.get(place)
        evaluation = self._pipeline.revise(run, known)
        if evaluation is None:
            return
        verdicts.all.append(evaluation)
        if known is None or evaluation.revision != known[0]:
            bundle.known[place] = (evaluation.revision, evaluation.digest)
            bundle.needed.pop(place, None)
            verdicts.new.append(evaluation)
            if (conversation := self._pipeline.conversation_of(run)) is not None:
                self._continued.append(conversation)


def _sent_before(bundle: Bundle, verdicts: Iterable[Evaluation]) -> set[str]:
    """The spans of runs that were stored before the bundle was held, of which there is too little to judge them again.

    They have left with their results, which back ends that replace spans would lose if they left again without.
    """
    judged = {(evaluation.run.unit, evaluation.run.span_id) for evaluation in verdicts}
    sent: set[str] = set()
    for (unit, run_id), spans in bundle.needed.items():
        own = run_id.partition(":")[2].partition(":")[0]
        if own in spans and judged.isdisjoint({(unit, own), ("request", own)}):
            sent.add(own)
    return sent
