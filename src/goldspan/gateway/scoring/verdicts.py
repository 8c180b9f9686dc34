"""What a judge says of runs, on its way from the judge's thread into the store and from there to the sinks."""

from __future__ import annotations

from collections import deque

from goldspan._guard import guard
from goldspan.errors import StoreError
from goldspan.model import Evaluation
from goldspan.online.pipeline import Pipeline
from goldspan.store import SqliteStore


class Verdicts:
    """Takes verdicts from any thread, and keeps them until the one that scores has written down what they are about.

    There are never many: whoever asks is who takes them, and how many questions are open is bounded by the judge.
    """

    def __init__(self) -> None:
        self._came: deque[Evaluation] = deque()

    def put(self, judged: Evaluation) -> None:
        """Take a verdict, which has the revision that it is to be stored as."""
        self._came.append(judged)

    def keep(self, pipeline: Pipeline, store: SqliteStore) -> int:
        """Store what came, give the sinks what was stored, and answer how many verdicts there were.

        Raises `StoreError` where the store cannot be written; called again, it goes on where it was.
        """
        number = 0
        while self._came:
            with guard("store a verdict", but=StoreError):
                _keep(self._came[0], pipeline, store)
            self._came.popleft()
            number += 1
        return number

    def clear(self) -> int:
        """Throw away what came too late to be stored; how many verdicts."""
        left = len(self._came)
        self._came.clear()
        return left


def _keep(judged: Evaluation, pipeline: Pipeline, store: SqliteStore) -> None:
    """Store a verdict, unless something else became known of its run meanwhile, or somebody had it deleted."""
    if store.supersede(judged, (judged.revision - 1, judged.digest)):
        pipeline.submit_verdict(judged)
    else:
        pipeline.drop_verdict()
