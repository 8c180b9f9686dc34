"""Verdicts of a judge as revisions: what is asked about while the application runs, and which number an answer gets."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable

from goldspan.judge.background_judge import BackgroundJudge
from goldspan.judge.judge import Judge
from goldspan.judge.tool_selection import TOOL_SELECTION
from goldspan.judge.usage import OVER_BUDGET_ERROR
from goldspan.model import Evaluation
from goldspan.online.assembled_spans import RunKey
from goldspan.sinks.fork_safety import renew_after_fork
from goldspan.sinks.otel_sinks import error_type

MAX_TRACKED_RUNS = 20_000
"""Runs of which it is remembered which revision was given out last, among them all that wait for a verdict."""


class JudgeRevisions:
    """Has a judge asked about evaluations, and gives what it says to `deliver` as the next revision.

    Spans that come late make revisions too, and know nothing of verdicts. So whoever gives out a revision has it
    numbered here, and no number is given twice. A verdict about a revision that is not the latest any more is thrown
    away, and counted: it is about another content.
    """

    def __init__(self, judge: Judge, deliver: Callable[[Evaluation], object]) -> None:
        self._judge = judge
        self._deliver = deliver
        self._background = BackgroundJudge(judge, self._on_judged)
        self.renew()
        renew_after_fork(self)

    def renew(self) -> None:
        """Begin anew, in a forked child."""
        self._lock = threading.Lock()
        self._latest: OrderedDict[RunKey, int] = OrderedDict()

    def should_judge(self, evaluation: Evaluation) -> bool:
        """Whether the judge is to be asked about an evaluation. To be asked once: it may be left to chance."""
        return self._judge.should_judge(evaluation.run)

    def assign_revision(self, evaluation: Evaluation, *, is_judged: bool) -> Evaluation:
        """An evaluation that is about to be given out, with a revision above every earlier one of its run."""
        place = _run_key(evaluation)
        with self._lock:
            latest = self._latest.get(place, 0)
            if latest or is_judged:
                revision = self._latest[place] = max(evaluation.revision, latest + 1)
                if len(self._latest) > max(MAX_TRACKED_RUNS, 2 * self._judge.max_queue):
                    self._latest.popitem(last=False)
                return evaluation if revision == evaluation.revision else evaluation.with_revision(revision)
        return evaluation

    def submit(self, evaluation: Evaluation) -> None:
        """Have an evaluation judged that was given out."""
        self._background.submit(evaluation)

    def force_flush(self, timeout_millis: int) -> bool:
        """Wait until what is asked was answered; whether all of it was. Never longer than the judge's `drain`."""
        return self._background.force_flush(min(timeout_millis, int(self._judge.drain_timeout * 1000)))

    def close(self) -> None:
        """Ask nothing more, and wait a little for what is asked."""
        self._background.shutdown(self._judge.drain_timeout)

    def count_outdated(self) -> None:
        """Take note of a verdict that nobody got."""
        self._judge.counters.record_outdated()

    def _on_judged(self, judged: Evaluation) -> None:
        """On the judge's thread: give out what there is to say."""
        score = judged.score(TOOL_SELECTION)
        if score is None or (score.value is None and score.error is None):
            return  # nobody was asked, which changes nothing
        if score.error is not None and error_type(score.error) == OVER_BUDGET_ERROR:
            return
        place = _run_key(judged)
        with self._lock:
            is_latest = self._latest.get(place) == judged.revision
            if is_latest:
                self._latest[place] = judged.revision + 1
        if is_latest:
            self._deliver(judged.with_revision(judged.revision + 1))
        else:
            self.count_outdated()


def _run_key(evaluation: Evaluation) -> RunKey:
    return evaluation.run.unit, evaluation.run.run_id
