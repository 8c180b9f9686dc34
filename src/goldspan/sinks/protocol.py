"""What a place for evaluations must be able to do."""

from __future__ import annotations

from typing import Protocol

from goldspan.model import Evaluation


class Sink(Protocol):
    """Receives every evaluation, in no promised order.

    Called on the thread that ended the run's span, possibly on several threads at once, while the application waits:
    be quick or queue. If it raises, the error is counted and logged, and the other sinks still receive the evaluation.
    """

    def submit(self, evaluation: Evaluation) -> None:
        """Take one evaluation."""
        ...
