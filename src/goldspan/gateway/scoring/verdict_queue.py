"""Queues the verdicts of a judge until their evaluations are stored."""

from __future__ import annotations

from collections import deque

from goldspan._guard import suppress_errors
from goldspan.errors import StoreError
from goldspan.model import Evaluation
from goldspan.online.pipeline import Pipeline
from goldspan.store import Store


class VerdictQueue:
    """Queues verdicts of the judge from any thread until the scoring thread has stored their evaluations.

    The judge limits its pending requests, which also limits the size of the queue.
    """

    def __init__(self) -> None:
        self._pending: deque[Evaluation] = deque()

    def put(self, evaluation: Evaluation) -> None:
        """Add a verdict, which already has its new revision number."""
        self._pending.append(evaluation)

    def store_all(self, pipeline: Pipeline, store: Store) -> int:
        """Store the queued verdicts and submit the stored ones to the sinks. Returns the number of verdicts.

        Raises `StoreError` if the store cannot be written; the next call continues with the same verdict.
        """
        number = 0
        while self._pending:
            with suppress_errors("store a verdict", except_=StoreError):
                _store_verdict(self._pending[0], pipeline, store)
            self._pending.popleft()
            number += 1
        return number

    def discard_all(self) -> int:
        """Drop the verdicts that arrived too late to be stored. Returns their number."""
        dropped = len(self._pending)
        self._pending.clear()
        return dropped


def _store_verdict(evaluation: Evaluation, pipeline: Pipeline, store: Store) -> None:
    """Store a verdict, unless its run was changed or deleted meanwhile."""
    if store.replace_if_current(evaluation, (evaluation.revision - 1, evaluation.digest)):
        pipeline.submit_verdict(evaluation)
    else:
        pipeline.count_outdated_verdict()
