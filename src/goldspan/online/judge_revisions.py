"""Submits the verdicts of a judge as revisions while the application runs, for `Pipeline`."""

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
"""The number of runs whose latest revision is stored, including all runs that wait for a verdict."""


class JudgeRevisions:
    """Queues evaluations for a judge, and passes its verdicts to `deliver` as the next revision.

    Late spans create revisions too, independently of verdicts. Therefore every revision is numbered here, so that no
    number is used twice. A verdict on a revision that is no longer the latest is discarded and counted, since it refers
    to other content.
    """

    def __init__(self, judge: Judge, deliver: Callable[[Evaluation], object]) -> None:
        self._judge = judge
        self._deliver = deliver
        self._background = BackgroundJudge(judge, self._on_judged)
        self.renew()
        renew_after_fork(self)

    def renew(self) -> None:
        """Resets the state in a forked child."""
        self._lock = threading.Lock()
        self._latest: OrderedDict[RunKey, int] = OrderedDict()

    def should_judge(self, evaluation: Evaluation) -> bool:
        """Returns whether the judge receives the evaluation. Call it once: the decision may be random."""
        return self._judge.should_judge(evaluation.run)

    def assign_revision(self, evaluation: Evaluation, *, is_judged: bool) -> Evaluation:
        """Returns the evaluation with a revision number above all earlier ones of its run."""
        key = _run_key(evaluation)
        with self._lock:
            latest = self._latest.get(key, 0)
            if latest or is_judged:
                revision = self._latest[key] = max(evaluation.revision, latest + 1)
                if len(self._latest) > max(MAX_TRACKED_RUNS, 2 * self._judge.max_queue):
                    self._latest.popitem(last=False)
                return evaluation if revision == evaluation.revision else evaluation.with_revision(revision)
        return evaluation

    def submit(self, evaluation: Evaluation) -> None:
        """Queues a submitted evaluation for the judge."""
        self._background.submit(evaluation)

    def force_flush(self, timeout_millis: int) -> bool:
        """Waits until the judge has answered; returns `False` on timeout. Waits at most the judge's `drain_timeout`."""
        return self._background.force_flush(min(timeout_millis, int(self._judge.drain_timeout * 1000)))

    def close(self) -> None:
        """Accepts no more evaluations, and waits for pending answers up to the judge's `drain_timeout`."""
        self._background.shutdown(self._judge.drain_timeout)

    def count_outdated(self) -> None:
        """Counts a verdict that was discarded."""
        self._judge.counters.record_outdated()

    def _on_judged(self, judged: Evaluation) -> None:
        """Delivers a verdict, on the judge's thread."""
        score = judged.score(TOOL_SELECTION)
        if score is None or (score.value is None and score.error is None):
            return  # the model was not called
        if score.error is not None and error_type(score.error) == OVER_BUDGET_ERROR:
            return
        key = _run_key(judged)
        with self._lock:
            is_latest = self._latest.get(key) == judged.revision
            if is_latest:
                self._latest[key] = judged.revision + 1
        if is_latest:
            self._deliver(judged.with_revision(judged.revision + 1))
        else:
            self.count_outdated()


def _run_key(evaluation: Evaluation) -> RunKey:
    return evaluation.run.unit, evaluation.run.run_id
