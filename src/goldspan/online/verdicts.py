"""Verdicts of a judge as revisions: what is asked about while the application runs, and which number an answer gets."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable

from goldspan.judge.background import BackgroundJudge
from goldspan.judge.counting import OVER_BUDGET
from goldspan.judge.judges import Judge
from goldspan.judge.selection import TOOL_SELECTION
from goldspan.model import Evaluation
from goldspan.online.portions import Place
from goldspan.sinks.events import error_type
from goldspan.sinks.forking import renew_in_forked_children

MOST_PLACES = 20_000
"""Runs of which it is remembered which revision was given out last, among them all that wait for a verdict."""


class Verdicts:
    """Has a judge asked about evaluations, and gives what it says to `deliver` as the next revision.

    Spans that come late make revisions too, and know nothing of verdicts. So whoever gives out a revision has it
    numbered here, and no number is given twice. A verdict about a revision that is not the latest any more is thrown
    away, and counted: it is about another content.
    """

    def __init__(self, judge: Judge, deliver: Callable[[Evaluation], object]) -> None:
        self._judge = judge
        self._deliver = deliver
        self._asking = BackgroundJudge(judge, self._answered)
        self.renew()
        renew_in_forked_children(self)

    def renew(self) -> None:
        """Begin anew, in a forked child."""
        self._lock = threading.Lock()
        self._latest: OrderedDict[Place, int] = OrderedDict()

    def wants(self, evaluation: Evaluation) -> bool:
        """Whether the judge is to be asked about an evaluation. To be asked once: it may be left to chance."""
        return self._judge.wants(evaluation.run)

    def numbered(self, evaluation: Evaluation, *, wanted: bool) -> Evaluation:
        """An evaluation that is about to be given out, with a revision above every earlier one of its run."""
        place = _place_of(evaluation)
        with self._lock:
            latest = self._latest.get(place, 0)
            if latest or wanted:
                revision = self._latest[place] = max(evaluation.revision, latest + 1)
                if len(self._latest) > max(MOST_PLACES, 2 * self._judge.max_queue):
                    self._latest.popitem(last=False)
                return evaluation if revision == evaluation.revision else evaluation.revised(revision)
        return evaluation

    def ask(self, evaluation: Evaluation) -> None:
        """Have an evaluation judged that was given out."""
        self._asking.submit(evaluation)

    def force_flush(self, timeout_millis: int) -> bool:
        """Wait until what is asked was answered; whether all of it was. Never longer than the judge's `drain`."""
        return self._asking.force_flush(min(timeout_millis, int(self._judge.drain * 1000)))

    def close(self) -> None:
        """Ask nothing more, and wait a little for what is asked."""
        self._asking.shutdown(self._judge.drain)

    def outdated(self) -> None:
        """Take note of a verdict that nobody got."""
        self._judge.counting.outdated()

    def _answered(self, judged: Evaluation) -> None:
        """On the judge's thread: give out what there is to say."""
        score = judged.score(TOOL_SELECTION)
        if score is None or (score.value is None and score.error is None):
            return  # nobody was asked, which changes nothing
        if score.error is not None and error_type(score.error) == OVER_BUDGET:
            return
        place = _place_of(judged)
        with self._lock:
            is_latest = self._latest.get(place) == judged.revision
            if is_latest:
                self._latest[place] = judged.revision + 1
        if is_latest:
            self._deliver(judged.revised(judged.revision + 1))
        else:
            self.outdated()


def _place_of(evaluation: Evaluation) -> Place:
    return evaluation.run.unit, evaluation.run.run_id
