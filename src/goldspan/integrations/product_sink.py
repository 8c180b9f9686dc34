"""`ProductSink` delivers evaluations to a product from a bounded queue, on a thread of its own."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from opentelemetry.metrics import MeterProvider

from goldspan import _guard, semconv
from goldspan.errors import ConfigurationError
from goldspan.integrations.http_client import ProductClient
from goldspan.integrations.product import Product
from goldspan.integrations.score_delivery import DeliveryResult, ScoreDelivery
from goldspan.integrations.scored_runs import ScoredRun, latest_revisions, scored_run
from goldspan.model import Evaluation
from goldspan.sinks.drop_counters import drop_counter
from goldspan.sinks.fork_safety import renew_after_fork

_log = logging.getLogger("goldspan")

MAX_BATCH_SIZE = 512
"""The maximum number of evaluations that are taken from the queue at once."""
UNKNOWN_TRACE_SECONDS = 600.0
"""How long a run is repeated whose trace the product does not know: exporters send spans later than scores."""
UNKNOWN_TRACE_FLUSH_SECONDS = 5.0
"""How long a flush and a shutdown repeat such a run: the product stores the spans that it received last."""
_FIRST_REPEAT_SECONDS = 2.0
_MAX_REPEAT_SECONDS = 60.0
_FLUSH_REPEAT_SECONDS = 0.25
_MAX_REMEMBERED_RUNS = 10_000
"""The number of runs whose revision is remembered: a judge's thread may submit a revision before an earlier one."""
_MIN_WAIT_SECONDS = 0.01
_SECONDS_BETWEEN_LOGS = 60.0


class ProductSink:
    """Writes evaluations into a product. `submit` only adds to a queue, and never waits for the product.

    Each evaluation is written, replaced by a later revision of its run, or counted in `goldspan.sink.dropped`. While
    the product is down, the evaluations stay in the queue; if it is full, the new evaluation is dropped. A run without
    a trace (a case) is neither written nor counted, because no product can show it. After a fork the queue stays with
    the parent.

    `force_flush` and `shutdown` do not wait for a product that is down.

    Args:
        product: The product.
        max_queue: The maximum number of evaluations that wait.
        meter_provider: The meter provider of the counter. Default: the global one.

    Raises:
        ConfigurationError: If `max_queue` is below 1, or the address or a token of the product is invalid.
        MissingExtraError: If the extra `integrations` is not installed.
    """

    needs_exported_spans = True
    """Whether spans must be exported before this sink is flushed: a product has scores only for spans that it knows."""

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
        self.renew()
        renew_after_fork(self)

    def submit(self, evaluation: Evaluation) -> None:
        """Adds an evaluation to the queue."""
        self.submit_many((evaluation,))

    def submit_many(self, evaluations: Iterable[Evaluation]) -> None:
        """Adds evaluations to the queue."""
        lost = 0
        with self._lock:
            for evaluation in evaluations:
                if self._closes_at is not None or self._held() >= self._max_queue:
                    lost += 1
                else:
                    self._queue.append(evaluation)
            self._count_dropped(lost)  # before the thread, which cannot start while the interpreter ends
            if self._queue:
                self._wake_thread()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Waits until everything is written.

        Returns `False` on timeout, if the product is down, and if it still does not know a trace after
        `UNKNOWN_TRACE_FLUSH_SECONDS`.
        """
        until = time.monotonic() + timeout_millis / 1000
        with self._lock:
            if threading.current_thread() is self._thread:
                return False
            self._repeat_unknown_now()
            while self._held():
                now = time.monotonic()
                wakes_at = min(until, self._unknown_patience_ends())
                if self._is_down(now) or self._paused_until > until or now >= wakes_at:
                    return False
                self._wake_thread()
                self._settled.wait(wakes_at - now)
            return True

    def shutdown(self, timeout_millis: int = 5_000) -> None:
        """Accepts no more, and writes what is queued within the timeout; what is left is dropped and counted.

        What is being sent when the time is up counts as dropped, although the product may still accept it.
        """
        with self._lock:
            self._closes_at = time.monotonic() + timeout_millis / 1000
            if self._is_failing:
                self._paused_until = 0.0  # try once more
            self._repeat_unknown_now()
            self._has_work.notify()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout_millis / 1000)
        with self._lock:
            left = self._held()
            self._queue.clear()
            self._unwritten.clear()
            self._in_flight = 0
            self._is_abandoned = True
        if left:
            _log.warning("%s: %d evaluations could not be written before the end", self.name, left)
        self._count_dropped(left)

    def renew(self) -> None:
        """Resets the state in a forked child: the queue and the connections belong to the parent."""
        self._lock = threading.RLock()
        self._has_work = threading.Condition(self._lock)
        self._settled = threading.Condition(self._lock)
        self._queue: deque[Evaluation] = deque()
        self._unwritten: dict[str, _UnwrittenRun] = {}
        self._sent_revisions: dict[str, int] = {}
        self._in_flight = 0
        self._is_waiting = False
        self._is_abandoned = False
        self._is_flushing_until = 0.0
        self._paused_until = 0.0
        self._is_failing: bool = False
        self._next_log_at = 0.0
        self._thread: threading.Thread | None = None
        self._client = ProductClient(self._product)
        self._delivery = ScoreDelivery(self._product, self._client)

    # --- the caller holds the lock ------------------------------------------------------------------------------------

    def _wake_thread(self) -> None:
        """Starts the thread, or wakes it if it waits for work. During a pause it sleeps on."""
        if self._thread is None or not self._thread.is_alive():
            thread = threading.Thread(target=self._run, name=f"goldspan {self.name}", daemon=True)
            thread.start()
            self._thread = thread
        elif self._is_waiting:
            self._is_waiting = False
            self._has_work.notify()

    def _held(self) -> int:
        """Returns the number of evaluations that are neither written nor dropped."""
        return len(self._queue) + len(self._unwritten) + self._in_flight

    def _is_down(self, now: float) -> bool:
        """Returns whether the last request failed, and not because the product asked for a pause."""
        return self._is_failing and self._paused_until > now

    def _repeat_unknown_now(self) -> None:
        """Lets the runs of unknown traces be repeated at once, and soon again."""
        now = time.monotonic()
        self._is_flushing_until = now + UNKNOWN_TRACE_FLUSH_SECONDS
        for run in self._unwritten.values():
            if run.is_unknown:
                run.due = now
        self._is_waiting = False
        self._has_work.notify()

    def _unknown_patience_ends(self) -> float:
        """Returns when to give up waiting, if only runs of unknown traces are left; otherwise infinity."""
        if self._queue or self._in_flight or not all(run.is_unknown for run in self._unwritten.values()):
            return float("inf")
        return max(run.known_since for run in self._unwritten.values()) + UNKNOWN_TRACE_FLUSH_SECONDS

    # --- on the thread ------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while work := self._next_work():
            try:
                self._deliver(*work)
            except BaseException as error:  # noqa: BLE001 - an error must not end the thread
                _guard.report_error(f"write scores to {self.name}", error)
                self._settle_rest()
        self._client.close()

    def _next_work(self) -> tuple[list[Evaluation], list[_UnwrittenRun]] | None:
        """Waits for runs that are due; returns `None` after shutdown."""
        with self._lock:
            while True:
                now = time.monotonic()
                if self._closes_at is not None and (
                    not self._held()
                    or self._is_down(now)
                    or max(now, self._paused_until) >= self._closes_at
                    or now >= self._unknown_patience_ends()
                ):
                    return None
                due = [run for run in self._unwritten.values() if run.due <= now]
                if self._paused_until <= now and (due or self._queue):
                    break
                self._is_waiting = self._paused_until <= now
                times = (run.due for run in self._unwritten.values())
                wakes_at = self._paused_until if self._paused_until > now else min(times, default=None)
                self._has_work.wait(None if wakes_at is None else max(_MIN_WAIT_SECONDS, wakes_at - now))
                self._is_waiting = False
            due = due[:MAX_BATCH_SIZE]
            for run in due:
                del self._unwritten[run.scored.run_id]
            new = [self._queue.popleft() for _ in range(min(MAX_BATCH_SIZE, len(self._queue)))]
            # An earlier revision must not be written after a later one.
            earlier = (self._unwritten.pop(evaluation.run.run_id, None) for evaluation in new)
            due += [run for run in earlier if run is not None]
            self._in_flight = len(new) + len(due)
            return new, due

    def _deliver(self, evaluations: Sequence[Evaluation], repeated: Sequence[_UnwrittenRun]) -> None:
        runs = [run.scored for run in repeated]
        lost = 0
        for evaluation in evaluations:
            try:
                run = scored_run(evaluation)
            except Exception as error:  # noqa: BLE001 - the others must still be written
                _guard.report_error(f"describe an evaluation for {self.name}", error)
                lost += 1
                continue
            if run is not None:
                runs.append(run)
        latest = self._without_outdated(latest_revisions(runs))
        self._settle(DeliveryResult(), len(evaluations) + len(repeated) - len(latest), {}, lost=lost)
        known_since = {run.scored.run_id: run.known_since for run in repeated}
        for part in self._delivery.deliver_parts(latest):
            if not self._settle(part, part.count, known_since):
                return

    def _without_outdated(self, runs: Iterable[ScoredRun]) -> list[ScoredRun]:
        """Returns the runs of which no later revision was sent."""
        current = []
        for run in runs:
            sent = self._sent_revisions.pop(run.run_id, 0)
            self._sent_revisions[run.run_id] = max(sent, run.revision)
            if sent <= run.revision:
                current.append(run)
        while len(self._sent_revisions) > _MAX_REMEMBERED_RUNS:
            del self._sent_revisions[next(iter(self._sent_revisions))]
        return current

    def _settle(self, part: DeliveryResult, count: int, known_since: dict[str, float], lost: int = 0) -> bool:
        """Accounts for `count` runs in flight; returns `False` after the end of `shutdown`, which counted them."""
        now = time.monotonic()
        lost += len(part.refused)
        unwritten = [
            _UnwrittenRun(run, due=0.0, known_since=known_since.get(run.run_id, now), is_unknown=False)
            for run in part.pending
        ]
        with self._lock:
            if self._is_abandoned:
                return False
            is_flushing = now < self._is_flushing_until or self._closes_at is not None
            for run in part.not_found:
                since = known_since.get(run.run_id, now)
                waited = now - since
                if waited >= UNKNOWN_TRACE_SECONDS:
                    lost += 1
                    self._log_rarely(f"its trace did not arrive: {part.error}")
                    continue
                backoff = min(_MAX_REPEAT_SECONDS, max(_FIRST_REPEAT_SECONDS, waited))
                delay = _FLUSH_REPEAT_SECONDS if is_flushing else backoff
                unwritten.append(_UnwrittenRun(run, due=now + delay, known_since=since, is_unknown=True))
            for text in part.refused:
                self._log_rarely(text)
            self._in_flight -= count
            self._unwritten.update((run.scored.run_id, run) for run in unwritten)
            if part.count:
                self._paused_until = now + part.pause
                self._is_failing = part.failure not in (None, "overloaded")
            self._settled.notify_all()
        self._count_dropped(lost)
        return True

    def _settle_rest(self) -> None:
        """Counts what is in flight as dropped."""
        with self._lock:
            lost, self._in_flight = self._in_flight, 0
            self._settled.notify_all()
        self._count_dropped(lost)

    def _log_rarely(self, text: str) -> None:
        now = time.monotonic()
        if now >= self._next_log_at:
            self._next_log_at = now + _SECONDS_BETWEEN_LOGS
            _log.error("scores of a run were not written to %s: %s", self.name, text)

    def _count_dropped(self, count: int) -> None:
        if count:
            self._dropped.add(count, {semconv.SINK_LABEL: self.name})


@dataclass(slots=True)
class _UnwrittenRun:
    """A run that must be written again."""

    scored: ScoredRun
    due: float
    """The monotonic time from which it is written again."""
    known_since: float
    """The monotonic time of the first attempt."""
    is_unknown: bool
    """Whether the product does not know its trace; otherwise the product failed."""
