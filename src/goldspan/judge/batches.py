"""Many evaluations judged one after the other, for whoever has time to wait: files, tests, the command line."""

from __future__ import annotations

from collections.abc import Generator, Iterable

from goldspan.cases.workers import in_order
from goldspan.judge.judges import Judge
from goldspan.judge.threads import JudgeThread
from goldspan.model import Evaluation

_ENOUGH_S = 5.0


def judged(evaluations: Iterable[Evaluation], judge: Judge) -> Generator[Evaluation, None, None]:
    """Each evaluation with the score `tool_selection`, in their order, as soon as it is there.

    So many are asked about at once as the judge's `concurrency` says, and a few more are taken from `evaluations` ahead
    of that. Closed, or interrupted, it cancels what is under way.
    """
    thread = JudgeThread(judge)
    try:
        # One more than can be asked at once: while an answer is handed on, the next question is under way.
        yield from in_order(lambda each: thread.evaluate(each).result(), evaluations, concurrency=judge.concurrency + 1)
    finally:
        thread.stop(_ENOUGH_S)
