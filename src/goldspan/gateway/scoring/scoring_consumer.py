"""Scores the entries of logs and stores each evaluation exactly once.

The consumer groups spans by trace and scores a trace when no more spans are expected. It commits in this order: results
for back ends to the journal, evaluations to the store, then the position in the log. After a `kill -9` some work is
repeated, the store recognises the evaluations it has, and nothing is lost.

Verdicts of a judge arrive later, from the judge's thread. The consumer stores a verdict after its evaluation, and
exports it to back ends only if the evaluation is still current.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress

from goldspan import semconv
from goldspan._guard import suppress_errors
from goldspan.content.messages import cache_histories
from goldspan.errors import StoreError
from goldspan.gateway.gateway_counters import GatewayCounters
from goldspan.gateway.journal.journal import JournalFull
from goldspan.gateway.journal.journal_file import JournalEntry
from goldspan.gateway.scoring.drop_publisher import DropPublisher
from goldspan.gateway.scoring.finished_traces import FinishedTraces
from goldspan.gateway.scoring.journal_reader import EntryShare, entry_as_protobuf, split_entry
from goldspan.gateway.scoring.results_queue import ResultsQueue
from goldspan.gateway.scoring.telemetry_log import TelemetryLog
from goldspan.gateway.scoring.trace_buffer import FlushPolicy, StitchKey, TraceBuffer, TraceBufferLimits, TraceGroup
from goldspan.gateway.scoring.trace_evaluation import TraceEvaluator
from goldspan.gateway.scoring.verdict_queue import VerdictQueue
from goldspan.model import Evaluation
from goldspan.online.pipeline import Pipeline
from goldspan.online.worker import AwakeClock
from goldspan.otlp.decode_results import DecodeError
from goldspan.store import Store

_log = logging.getLogger("goldspan")

_MAX_WRITE_BATCH = 200
"""Maximum number of evaluations in one commit."""
_MAX_WAIT_SECONDS = 0.25
"""Maximum seconds between two polls: the journals of other workers do not wake this one."""
_REPLAY_HOLD_SECONDS = 2.0
"""Seconds for which scored traces from before the start of the process are held."""
RETRY_SECONDS = 1.0
"""Seconds before a failed read or write is retried."""
_LOG_INTERVAL_SECONDS = 60.0
"""Minimum seconds between two log messages about failures."""
_MAX_QUEUED_BYTES = 8 * 1024 * 1024
"""Maximum bytes of queued results before a commit."""
_VERDICT_DRAIN_SHARE = 0.5
"""Share of the remaining shutdown time in which the consumer waits for the judge after scoring."""


class ScoringStop:
    """The end of the scoring thread, which a shutdown requests."""

    def __init__(self) -> None:
        self.requested = threading.Event()
        self.drain_deadline = 0.0
        """The monotonic time until which pending traces are scored."""
        self.is_abandoned = False
        """Whether the thread did not end by the deadline. The process is about to exit."""


class ScoringConsumer:
    """Scores the entries of some logs. One thread calls `poll`, and `drain` at the end.

    `logs` are the logs by number; `wait_for_entries` waits for the first one. `clock` returns monotonic seconds,
    `wall_clock` nanoseconds since the Unix epoch, which entries use for their time of arrival. `judge_verdicts` is the
    queue of the pipeline's judge. `are_results_delivered` tells whether the sinks have delivered all evaluations that
    were submitted; before that, no entry is acknowledged. `on_superseded` receives the ids of runs that were deleted,
    because they are parts of other runs.
    """

    def __init__(
        self,
        logs: Mapping[int, TelemetryLog],
        pipeline: Pipeline,
        store: Store,
        *,
        flush_policy: FlushPolicy,
        buffer_limits: TraceBufferLimits,
        max_backlog_bytes: int,
        counters: GatewayCounters,
        drops: DropPublisher,
        results_queue: ResultsQueue,
        judge_verdicts: VerdictQueue | None = None,
        are_results_delivered: Callable[[], bool] | None = None,
        on_superseded: Callable[[Sequence[str]], object] | None = None,
        stop: ScoringStop | None = None,
        clock: Callable[[], float] | None = None,
        wall_clock: Callable[[], int] = time.time_ns,
    ) -> None:
        self._logs = logs
        self._pipeline = pipeline
        self._store = store
        self._max_backlog = max_backlog_bytes
        self._counters = counters
        self._drops = drops
        self._results_queue = results_queue
        self._judge_verdicts = judge_verdicts
        self._are_results_delivered = are_results_delivered
        self._on_superseded = on_superseded
        self._stop = stop or ScoringStop()
        self._now = clock or AwakeClock().now
        self._finished = FinishedTraces(logs)
        self._buffer = TraceBuffer(
            flush_policy,
            buffer_limits,
            held_until=self._now() + min(flush_policy.late, _REPLAY_HOLD_SECONDS),
            on_release=self._finished.add if self._finished.is_needed else None,
        )
        self._wall_clock = wall_clock
        self._evaluator = TraceEvaluator(logs, self._buffer, pipeline, store, results_queue, drops.counters)
        self._dropped_trace_ids: list[str] = []
        self._read_positions = {number: log.context_start for number, log in logs.items()}
        self._last_arrivals = dict.fromkeys(logs, self._now())
        self._watermarks = dict.fromkeys(logs, 0.0)
        """By log, the time up to which all arrived entries were read."""
        self.is_store_failing = False
        """Whether the last attempt to write results failed. They wait, and the attempt is repeated."""
        self._last_logged_at = -_LOG_INTERVAL_SECONDS
        self.has_more_due = False
        """Whether the latest poll ended before everything that is due was scored."""

    # --- called by other threads -------------------------------------------------------------------------------------

    def drop_trace(self, trace_id: str) -> None:
        """Do not score the spans that are held of a trace."""
        self._dropped_trace_ids.append(trace_id)

    def backlog_bytes(self) -> int:
        """Returns the bytes of entries that were not read yet."""
        return sum(log.size_after(self._read_positions[number]) for number, log in self._logs.items())

    def is_replaying(self) -> bool:
        """Whether entries from before the start are still being read."""
        return any(self._read_positions[number] < log.replay_end for number, log in self._logs.items())

    def oldest_open_seconds(self) -> float:
        """Returns the seconds since the arrival of the oldest span that is not scored; 0 if there is none."""
        oldest = self._buffer.oldest_unscored()
        return 0.0 if oldest is None else max(0.0, self._now() - oldest)

    def __len__(self) -> int:
        """Returns the number of groups held."""
        return len(self._buffer)

    # --- called by the scoring thread --------------------------------------------------------------------------------

    def limit_memory(self, shares: int) -> None:
        """Use one of several equal shares of the limits of the trace buffer from now on."""
        self._buffer.limit_memory(shares)

    def context_start(self, number: int, position: int) -> int:
        """Returns the position of a log after which another worker must read if `position` is acknowledged."""
        return self._finished.context_start(number, position, self._buffer)

    def drain(self) -> None:
        """Score the complete groups. Traces without a root span stay in the journal."""
        while self._read_entries():
            pass
        self._evaluate_due(self._now())
        self._evaluate_groups(self._buffer.complete_groups())
        if self._judge_verdicts is not None and self._commit():
            left = max(0.0, self._stop.drain_deadline - time.monotonic())
            self._pipeline.flush_verdicts(int(left * _VERDICT_DRAIN_SHARE * 1000))
        self._commit(is_final=True)
        self._drops.publish(self._buffer)

    def poll(self, max_seconds: float | None = None) -> bool:
        """Read new entries and score what is due, for about `max_seconds`. Returns whether there is more to do."""
        deadline = None if max_seconds is None else time.monotonic() + max_seconds
        self.has_more_due = False
        read_count = self._read_entries()
        if not self.is_replaying():  # otherwise a part of a scored trace would be scored as the complete trace
            self._evaluate_due(min(self._watermarks.values()), deadline)  # unread entries do not count as inactivity
            self._commit()
        self._drops.publish(self._buffer)
        return read_count > 0 or self.has_more_due

    def wait_for_entries(self) -> None:
        """Wait until an entry arrives or a group is due."""
        next_time = self._buffer.next_due_time()
        nap = _MAX_WAIT_SECONDS if next_time is None else min(_MAX_WAIT_SECONDS, max(0.0, next_time - self._now()))
        number, log = next(iter(self._logs.items()))
        log.wait(self._read_positions[number], nap)

    def _read_entries(self) -> int:
        """Read the next entries of every log. Returns their number."""
        count = 0
        for number, log in self._logs.items():
            after = self._read_positions[number]
            sheds = log.must_shed(after, self._max_backlog)
            read_at = self._now()
            batch = log.read(after)
            for entry in batch.entries:
                self._read_positions[number] = entry.key
                self._buffer_entry(number, log, entry, should_shed=sheds)
            complete_until = self._last_arrivals[number] if batch.is_behind else read_at
            self._watermarks[number] = max(self._watermarks[number], complete_until)
            self._read_positions[number] = batch.position
            count += len(batch.entries)
            if self._results_queue.queued_bytes >= _MAX_QUEUED_BYTES:
                self._results_queue.flush()
        return count

    def _buffer_entry(self, number: int, log: TelemetryLog, entry: JournalEntry, *, should_shed: bool) -> None:
        held = entry.origin == "held"
        shares: Sequence[EntryShare] | None = None
        with suppress_errors("read an acknowledged request"), suppress(DecodeError):
            shares = split_entry(entry, log.owns)
        if held and log.exports_held_entries and (shares is None or entry_as_protobuf(entry) is None):
            self._results_queue.add_unchanged(entry)
        if shares is None:
            self._counters.add(semconv.GATEWAY_UNREADABLE)
            return
        # The wall clock may have been changed meanwhile, so the time is clamped.
        arrived = self._now() - max(0.0, (self._wall_clock() - entry.arrived_ns) / 1e9)
        now = self._last_arrivals[number] = max(arrived, self._last_arrivals[number])
        if entry.key > log.replay_end:
            arrived = now
        if should_shed:
            self._counters.add(semconv.GATEWAY_SHED)
            for share in shares:
                self._buffer.shed(number, entry.key, share.key, now, span_count=share.span_count, is_held=held)
                if share.session is not None and share.session != share.key:
                    self._buffer.shed(number, entry.key, share.session, now, span_count=0)
            return
        for share in shares:
            self._buffer.add(
                number, entry.key, share.key, share.chunk, now,
                size=share.size, span_count=share.span_count, has_root=share.has_root, arrived=arrived, is_held=held,
            )  # fmt: skip
            if share.session is not None and share.session != share.key:
                self._join_session(share.key, share.session)
            if entry.key <= log.start and (group := self._buffer.find(share.key)) is not None:
                self._buffer.mark_scored(group)  # by the worker that read this log before
                self._finished.add_context(share.key)

    def _join_session(self, key: StitchKey, session: StitchKey) -> None:
        found = [group for group in map(self._buffer.find, (key, session)) if group is not None]
        self._buffer.join_groups(found, session)

    def _evaluate_due(self, now: float, deadline: float | None = None) -> None:
        """Score the groups that are due, until `deadline`."""
        while self._dropped_trace_ids:
            trace_id = self._dropped_trace_ids.pop()
            if (group := self._buffer.find(bytes.fromhex(trace_id))) is not None:
                group.dropped_trace_ids.add(trace_id)
        if self._evaluate_groups(self._buffer.pop_due(now), deadline):
            for number in self._logs:
                self._evict_oldest(number)
        self._evaluator.release_cache()

    def _evict_oldest(self, number: int) -> None:
        """Score the oldest groups early if they keep too much of a log: an endless trace would fill a journal."""
        log = self._logs[number]
        while (oldest := self._buffer.oldest_entry(number)) is not None:
            if log.size_after(oldest - 1) - log.size_after(self._read_positions[number]) <= self._max_backlog:
                break
            if not self._evaluate_groups(self._buffer.evict_oldest(number)):
                break

    # --- evaluation ---------------------------------------------------------------------------------------------------

    def _evaluate_groups(self, groups: Iterable[TraceGroup], deadline: float | None = None) -> bool:
        """Extract due groups, and evaluate them in batches; `_commit` evaluates the last batch.

        Returns whether all succeeded; after a failure the others wait.
        """
        with cache_histories():
            return self._evaluate_each(groups, deadline)

    def _evaluate_each(self, groups: Iterable[TraceGroup], deadline: float | None) -> bool:
        for group in groups:
            done = True
            try:
                with suppress_errors("score a trace group", except_=StoreError):
                    done = self._evaluator.extract_group(group)
            except StoreError as error:  # the disk failed or the store is locked; not caused by the group
                self._count_store_failure(error)
                self.log_throttled(f"cannot read the stored runs of a trace and retries: {error}")
                self._buffer.reschedule(group, self._now())
                self._stop.requested.wait(RETRY_SECONDS)
                return False
            if done:
                self._buffer.mark_scored(group)
            if self._evaluator.is_full:
                self._evaluator.evaluate_extracted()
            is_batch_full = (
                self._evaluator.run_count >= _MAX_WRITE_BATCH or self._results_queue.queued_bytes >= _MAX_QUEUED_BYTES
            )
            if is_batch_full and not self._commit():
                return False
            if deadline is not None and time.monotonic() >= deadline:
                self.has_more_due = True
                return True
        return True

    # --- commit ------------------------------------------------------------------------------------------------------

    def _commit(self, *, is_final: bool = False) -> bool:
        """Write results to the journal, evaluations and verdicts to the store, then advance the cursors.

        Returns whether that succeeded before the shutdown.
        """
        self._evaluator.evaluate_extracted()
        while True:
            try:
                self._evaluator.evaluate_conversations()
                self._results_queue.flush(is_final=is_final)
                self._store_evaluations(self._evaluator.pending.evaluations)
                if self._evaluator.superseded_run_ids:
                    self._store.delete_runs(self._evaluator.superseded_run_ids)
                    if self._on_superseded is not None:
                        self._on_superseded(self._evaluator.superseded_run_ids)
                self._evaluator.clear_committed()
                if self._judge_verdicts is not None and self._judge_verdicts.store_all(self._pipeline, self._store):
                    self._results_queue.flush(is_final=is_final)
                self.is_store_failing = False
                break
            except (StoreError, JournalFull) as error:
                self._count_store_failure(error)
                self.log_throttled(f"cannot write results and retries: {error}")
                if self._stop.requested.wait(RETRY_SECONDS):
                    return False
        if self._are_results_delivered is None or self._are_results_delivered():
            for number, log in self._logs.items():
                oldest = self._buffer.oldest_entry(number)
                log.acknowledge(self._read_positions[number] if oldest is None else oldest - 1)
        return True

    def _store_evaluations(self, evaluations: Sequence[Evaluation]) -> None:
        """Store evaluations. One that cannot be written does not prevent the others."""
        if not evaluations:
            return
        stored = False
        with suppress_errors("store evaluations", except_=StoreError):
            self._store.submit_many(evaluations)
            stored = True
        for evaluation in () if stored else evaluations:
            with suppress_errors("store an evaluation", except_=StoreError):
                self._store.submit(evaluation)

    def _count_store_failure(self, error: Exception) -> None:
        if isinstance(error, StoreError):
            self.is_store_failing = True
            self._counters.add(semconv.GATEWAY_STORE_RETRIES)

    def log_throttled(self, problem: str) -> None:
        """Log a failure at most once per interval, and not after the consumer was abandoned."""
        now = time.monotonic()
        if now >= self._last_logged_at + _LOG_INTERVAL_SECONDS and not self._stop.is_abandoned:
            self._last_logged_at = now
            _log.error("goldspan %s", problem)
