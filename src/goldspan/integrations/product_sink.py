"""`ProductSink` delivers evaluations to a product from a bounded queue, on a thread of its own."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from opentelemetry.metrics import MeterProvider

from goldspan import _guard, semconv
from goldspan.errors import ConfigurationError
from goldspan.integrations.http_client import ProductClient
from goldspan.integrations.product import Product
from goldspan.integrations.score_delivery import ScoreDelivery
from goldspan.integrations.scored_runs import ScoredRun, latest_revisions, scored_run
from goldspan.model import Evaluation
from goldspan.sinks.drop_counters import drop_counter
from goldspan.sinks.fork_safety import renew_after_fork

_log = logging.getLogger("goldspan")

MAX_BATCH_SIZE = 512
"""The maximum number of evaluations that are taken from the queue at once."""
UNKNOWN_TRACE_SECONDS = 600.0
"""How long a run is repeated whose trace the product does not know: exporters send spans later than scores."""
_FIRST_REPEAT_SECONDS = 2.0
_MAX_REPEAT_SECONDS = 60.0
_CLOSING_REPEAT_SECONDS = 0.5


class ProductSink:
    """Writes evaluations into a product. `submit` only adds to a queue, and never waits for the product.

    While the product is down, the evaluations stay in the queue. If it is full, the new evaluation is dropped. What is
    dropped or refused is counted in `goldspan.sink.dropped`. A revision replaces the scores of the earlier one, in the
    queue and in the product. After a fork the queue stays with the parent.

    Args:
        product: The product.
        max_queue: The maximum number of evaluations that wait.
        meter_provider: The meter provider of the counter. Default: the global one.

    Raises:
        ConfigurationError: If `max_queue` is below 1, or the address of the product is invalid.
        MissingExtraError: If the extra `integrations` is not installed.
    """

    def __init__(
        self, product: Product, *, max_queue: int = 10_000, meter_provider: MeterProvider | None = None
    ) -> None:
        if max_queue < 1:
            raise ConfigurationError(f"max_queue must be at least 1, not {max_queue}")
        self.name = product.name
        """The name of the sink in counters and logs."""
        self._product = product
        self._max_queue = max_queue
        self._dropped = drop_counter(semconv.SINK_DROPPED_COUNTER, meter_provider)
        self._closes_at: float | None = None
        self._in_flight = 0
        self.renew()
        renew_after_fork(self)

    def submit(self, evaluation: Evaluation) -> None:
        """Adds an evaluation to the queue."""
        self.submit_many((evaluation,))

    def submit_many(self, evaluations: Iterable[Evaluation]) -> None:
        """Adds evaluations to the queue."""
        lost = 0
        with self._changed:
            for evaluation in evaluations:
                if self._closes_at is not None or len(self._queue) + len(self._unwritten) >= self._max_queue:
                    lost += 1
                else:
                    self._queue.append(evaluation)
            self._start_thread()
            self._changed.notify_all()
        self._count_dropped(lost)

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Waits until everything is written; returns `False` on timeout. Runs of unknown traces are repeated now."""
        with self._changed:
            self._repeat_unknown()
            self._changed.notify_all()
            return self._changed.wait_for(self._is_idle, timeout_millis / 1000)

    def shutdown(self, timeout_millis: int = 5_000) -> None:
        """Accepts no more, and writes what is queued within the timeout; what is left is dropped and counted."""
        until = time.monotonic() + timeout_millis / 1000
        with self._changed:
            self._closes_at = until
            self._repeat_unknown()
            self._changed.notify_all()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout_millis / 1000)
        with self._changed:
            left = len(self._queue) + len(self._unwritten) + self._in_flight
            self._queue.clear()
            self._unwritten.clear()
            self._in_flight = 0
        self._count_dropped(left)

    def renew(self) -> None:
        """Resets the state in a forked child: the queue and the connections belong to the parent."""
        self._changed = threading.Condition()
        self._queue: deque[Evaluation] = deque()
        self._unwritten: dict[str, _Unwritten] = {}
        self._in_flight = 0
        self._paused_until = 0.0
        self._thread: threading.Thread | None = None
        self._delivery = ScoreDelivery(self._product, ProductClient(self._product))

    def _start_thread(self) -> None:
        """Starts the thread if it does not run. The caller holds the lock."""
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._run, name=f"goldspan {self.name}", daemon=True)
            self._thread.start()

    def _is_idle(self) -> bool:
        return not (self._queue or self._unwritten or self._in_flight)

    def _repeat_unknown(self) -> None:
        """Lets the runs of unknown traces be repeated at once. The caller holds the lock."""
        for unwritten in self._unwritten.values():
            unwritten.due = 0.0

    def _count_dropped(self, count: int) -> None:
        if count:
            self._dropped.add(count, {semconv.SINK_LABEL: self.name})

    # --- on the thread ------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while work := self._next_work():
            try:
                self._deliver(*work)
            except BaseException as error:  # noqa: BLE001 - an error must not end the thread
                _guard.report_error(f"write scores to {self.name}", error)
                self._finish(lost=len(work[0]) + len(work[1]))

    def _next_work(self) -> tuple[list[Evaluation], list[_Unwritten]] | None:
        """Waits for runs that are due; returns `None` after shutdown."""
        with self._changed:
            while True:
                now = time.monotonic()
                closes_at = self._closes_at
                if closes_at is not None and (self._is_idle() or max(now, self._paused_until) >= closes_at):
                    return None
                due = [unwritten for unwritten in self._unwritten.values() if unwritten.due <= now]
                if self._paused_until <= now and (due or self._queue):
                    break
                times = [unwritten.due for unwritten in self._unwritten.values()]
                wakes_at = max(self._paused_until, 0.0 if self._queue else min(times, default=0.0))
                self._changed.wait(max(0.01, wakes_at - now) if self._queue or times else None)
            due = due[:MAX_BATCH_SIZE]
            for unwritten in due:
                del self._unwritten[unwritten.run.run_id]
            new = [self._queue.popleft() for _ in range(min(MAX_BATCH_SIZE, len(self._queue)))]
            # An earlier revision must not be written after a later one.
            earlier = (self._unwritten.pop(evaluation.run.run_id, None) for evaluation in new)
            due += [unwritten for unwritten in earlier if unwritten is not None]
            self._in_flight = len(new) + len(due)
            return new, due

    def _deliver(self, evaluations: list[Evaluation], due: list[_Unwritten]) -> None:
        known = {unwritten.run.run_id: unwritten for unwritten in due}
        runs = [unwritten.run for unwritten in due]
        lost = 0
        for evaluation in evaluations:
            with _guard.suppress_errors(f"describe an evaluation for {self.name}"):
                run = scored_run(evaluation)
                if run is not None:
                    runs.append(run)
                    continue
            lost += 1
        result = self._delivery.deliver(latest_revisions(runs))
        now = time.monotonic()
        unwritten = [_Unwritten(run, due=0.0, known_since=now) for run in result.pending]
        for run in result.not_found:
            before = known.get(run.run_id)
            since = before.known_since if before is not None else now
            if now - since >= UNKNOWN_TRACE_SECONDS:
                lost += 1
                _log_once(f"{self.name} does not know the trace {run.trace_id}")
                continue
            waited = max(_FIRST_REPEAT_SECONDS, now - since)
            delay = _CLOSING_REPEAT_SECONDS if self._closes_at is not None else min(_MAX_REPEAT_SECONDS, waited)
            unwritten.append(_Unwritten(run, due=now + delay, known_since=since))
        for text in result.refused:
            _log_once(text)
        self._finish(unwritten, paused_until=now + result.pause, lost=lost + len(result.refused))

    def _finish(self, unwritten: Iterable[_Unwritten] = (), *, paused_until: float = 0.0, lost: int = 0) -> None:
        with self._changed:
            is_abandoned = not self._in_flight  # `shutdown` has counted these runs already
            self._in_flight = 0
            self._paused_until = paused_until
            if not is_abandoned:
                self._unwritten.update((each.run.run_id, each) for each in unwritten)
            self._changed.notify_all()
        if not is_abandoned:
            self._count_dropped(lost)


@dataclass(slots=True)
class _Unwritten:
    """A run that must be written again."""

    run: ScoredRun
    due: float
    """The monotonic time from which it is written again."""
    known_since: float
    """The monotonic time of the first attempt."""


_logged: set[str] = set()
_MAX_LOGGED = 100


def _log_once(text: str) -> None:
    if text not in _logged and len(_logged) < _MAX_LOGGED:
        _logged.add(text)
        _log.error("a score was not written: %s", text)
