"""Scores journal entries in a thread and stores each evaluation exactly once.

The consumer groups spans by trace and scores a trace when no more spans are expected. It commits in this order: results
for back ends to the journal, evaluations to the store, then the cursor of the journal. After a `kill -9` some work is
repeated, the store recognises the evaluations it has, and nothing is lost.

Verdicts of a judge arrive later, from the judge's thread. The consumer stores a verdict after its evaluation, and
exports it to back ends only if the evaluation is still current.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress

from goldspan import semconv
from goldspan._guard import report_error, suppress_errors
from goldspan.errors import StoreError
from goldspan.gateway.gateway_counters import GatewayCounters
from goldspan.gateway.journal.journal import Journal, JournalFull
from goldspan.gateway.journal.journal_file import JournalEntry
from goldspan.gateway.resource_limits import PARTITION_COUNT, SCORED_ORIGINS
from goldspan.gateway.scoring.journal_reader import EntryShare, entry_as_protobuf, split_entry
from goldspan.gateway.scoring.results_queue import ResultsQueue
from goldspan.gateway.scoring.trace_buffer import FlushPolicy, StitchKey, TraceBuffer, TraceBufferLimits, TraceGroup
from goldspan.gateway.scoring.trace_evaluation import TraceEvaluator
from goldspan.model import Evaluation
from goldspan.online.pipeline import Pipeline
from goldspan.online.worker import AwakeClock
from goldspan.otlp.decode_results import DecodeError
from goldspan.sinks import DropCounters
from goldspan.store import SqliteStore


class VerdictQueue:
    """Queues verdicts of the judge from any thread until the scoring thread has stored their evaluations.

    The judge limits its pending requests, which also limits the size of the queue.
    """

    def __init__(self) -> None:
        self._pending: deque[Evaluation] = deque()

    def put(self, evaluation: Evaluation) -> None:
        """Add a verdict, which already has its new revision number."""
        self._pending.append(evaluation)

    def store_all(self, pipeline: Pipeline, store: SqliteStore) -> int:
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


def _store_verdict(evaluation: Evaluation, pipeline: Pipeline, store: SqliteStore) -> None:
    """Store a verdict, unless its run was changed or deleted meanwhile."""
    if store.replace_if_current(evaluation, (evaluation.revision - 1, evaluation.digest)):
        pipeline.submit_verdict(evaluation)
    else:
        pipeline.count_outdated_verdict()


_log = logging.getLogger("goldspan")

SCORING_CONSUMERS = tuple(f"score/{partition:02d}" for partition in range(PARTITION_COUNT))
"""Names of the journal consumers, one per partition."""

_MAX_WRITE_BATCH = 200
"""Maximum number of evaluations in one commit."""
_MAX_WAIT_SECONDS = 0.25
"""Maximum seconds between two polls: the journals of other workers do not wake this one."""
_REPLAY_HOLD_SECONDS = 2.0
"""Seconds for which scored traces from before the start of the process are held."""
_RETRY_SECONDS = 1.0
"""Seconds before a failed read or write is retried."""
_LOG_INTERVAL_SECONDS = 60.0
"""Minimum seconds between two log messages about failures."""
_MAX_READ_BYTES = 8 * 1024 * 1024
"""Maximum bytes of entries per read, and of queued results before a commit."""
_VERDICT_DRAIN_SHARE = 0.5
"""Share of the remaining shutdown time in which the consumer waits for the judge after scoring."""


class ScoringConsumer:
    """Scores the partitions of one worker in its own thread.

    `journals` are the journals of all workers, by number. `clock` returns monotonic seconds, `wall_clock` nanoseconds
    since the Unix epoch, which entries use for their time of arrival. `judge_verdicts` is the queue of the pipeline's
    judge.
    """

    def __init__(
        self,
        journals: Mapping[int, Journal],
        pipeline: Pipeline,
        store: SqliteStore,
        *,
        worker: int = 0,
        workers: int = 1,
        flush_policy: FlushPolicy,
        buffer_limits: TraceBufferLimits,
        max_backlog_bytes: int,
        counters: GatewayCounters,
        drop_counters: DropCounters,
        results_queue: ResultsQueue,
        judge_verdicts: VerdictQueue | None = None,
        clock: Callable[[], float] | None = None,
        wall_clock: Callable[[], int] = time.time_ns,
    ) -> None:
        self._journals = journals
        self._worker, self._workers = worker, workers
        self._pipeline = pipeline
        self._store = store
        self._partitions = frozenset(range(worker, PARTITION_COUNT, workers))
        self._partition_mask = sum(1 << partition for partition in self._partitions)
        self._consumers = [SCORING_CONSUMERS[partition] for partition in sorted(self._partitions)]
        self._max_backlog = max_backlog_bytes
        self._counters = counters
        self._drop_counters = drop_counters
        self._results_queue = results_queue
        self._judge_verdicts = judge_verdicts
        self._now = clock or AwakeClock().now
        self._buffer = TraceBuffer(
            flush_policy, buffer_limits, held_until=self._now() + min(flush_policy.late, _REPLAY_HOLD_SECONDS)
        )
        self._wall_clock = wall_clock
        self._evaluator = TraceEvaluator(journals, self._buffer, pipeline, store, results_queue, drop_counters)
        self._dropped_trace_ids: list[str] = []
        self._read_positions = {journal: self._start_position(journals[journal]) for journal in journals}
        self._replay_ends = {journal: journals[journal].last_key for journal in journals}
        self._last_arrivals = dict.fromkeys(journals, self._now())
        self._watermarks = dict.fromkeys(journals, 0.0)
        self._published_counts: dict[str, int] = {}
        self._stopping = threading.Event()
        self._drain_deadline = 0.0
        self._is_abandoned = False
        self._last_logged_at = -_LOG_INTERVAL_SECONDS
        self._thread = threading.Thread(target=self._run, name="goldspan-scoring", daemon=True)

    # --- called by other threads -------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the thread at the stored cursor."""
        self._thread.start()

    def stop(self, timeout: float) -> bool:
        """Score pending traces for `timeout` seconds. Returns whether all were scored; the rest is not lost."""
        self._drain_deadline = time.monotonic() + timeout
        self._stopping.set()
        self._thread.join(timeout)
        self._is_abandoned = self._thread.is_alive()
        return not self._is_abandoned

    def drop_trace(self, trace_id: str) -> None:
        """Do not score the spans that are held of a trace."""
        self._dropped_trace_ids.append(trace_id)

    def backlog_bytes(self) -> int:
        """Returns the bytes of entries that were not read yet."""
        return sum(
            journal.size_after(self._read_positions[journal_index]) for journal_index, journal in self._journals.items()
        )

    def is_replaying(self) -> bool:
        """Whether entries from before the start are still being read."""
        return any(self._read_positions[journal] < last for journal, last in self._replay_ends.items())

    def __len__(self) -> int:
        """Returns the number of groups held."""
        return len(self._buffer)

    # --- the thread --------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._stopping.is_set():
            busy: bool | None = None
            with suppress_errors("score new entries"):
                try:
                    busy = self.poll()
                except (StoreError, JournalFull) as error:
                    self._log_throttled(f"cannot read new journal entries and retries: {error}")
            if busy is None:
                self._stopping.wait(_RETRY_SECONDS)
            elif not busy:
                self._wait_for_entries()
        try:
            self.drain()
        except (StoreError, JournalFull) as error:
            self._log_throttled(f"cannot score the remaining traces and does so at the next start: {error}")
        except Exception as error:  # noqa: BLE001 - the store or a journal may be closed meanwhile
            if not self._is_abandoned:
                report_error("score the remaining traces", error)

    def drain(self) -> None:
        """Score the complete groups. Traces without a root span stay in the journal."""
        while self._read_entries():
            pass
        self._evaluate_due(self._now())
        self._evaluate_groups(self._buffer.complete_groups())
        if self._judge_verdicts is not None and self._commit():
            left = max(0.0, self._drain_deadline - time.monotonic())
            self._pipeline.flush_verdicts(int(left * _VERDICT_DRAIN_SHARE * 1000))
        self._commit(is_final=True)
        self._publish_counts()

    def poll(self) -> bool:
        """Read new entries and score what is due. Returns whether there were new entries."""
        read_count = self._read_entries()
        if not self.is_replaying():  # otherwise a part of a scored trace would be scored as the complete trace
            self._evaluate_due(min(self._watermarks.values()))  # unread entries do not count as inactivity
            self._commit()
        self._publish_counts()
        return read_count > 0

    def _wait_for_entries(self) -> None:
        """Wait until an entry arrives or a group is due."""
        next_time = self._buffer.next_due_time()
        nap = _MAX_WAIT_SECONDS if next_time is None else min(_MAX_WAIT_SECONDS, max(0.0, next_time - self._now()))
        self._journals[self._worker].wait(self._read_positions[self._worker], nap)

    def _read_entries(self) -> int:
        """Read the next entries of every journal. Returns their number."""
        number = 0
        for journal_index, journal in self._journals.items():
            after = self._read_positions[journal_index]
            sheds = journal.size_after(after) > self._max_backlog
            read_at, last = self._now(), journal.last_key
            entries = journal.read(
                after, max_bytes=_MAX_READ_BYTES, origins=SCORED_ORIGINS, partitions=self._partition_mask
            )
            for entry in entries:
                self._read_positions[journal_index] = entry.key
                self._buffer_entry(journal_index, entry, should_shed=sheds)
            behind = bool(entries) and entries[-1].key < last
            self._watermarks[journal_index] = self._last_arrivals[journal_index] if behind else read_at
            self._read_positions[journal_index] = entries[-1].key if entries else max(after, last)
            number += len(entries)
            if self._results_queue.queued_bytes >= _MAX_READ_BYTES:
                self._results_queue.flush()
        return number

    def _buffer_entry(self, journal_number: int, entry: JournalEntry, *, should_shed: bool) -> None:
        held = entry.origin == "held"
        shares: Sequence[EntryShare] | None = None
        with suppress_errors("read an acknowledged request"), suppress(DecodeError):
            shares = split_entry(entry, self._partitions.__contains__)
        if (
            held
            and journal_number % self._workers == self._worker
            and (shares is None or entry_as_protobuf(entry) is None)
        ):
            self._results_queue.add_unchanged(entry)
        if shares is None:
            self._counters.add(semconv.GATEWAY_UNREADABLE)
            return
        # The wall clock may have been changed meanwhile, so the time is clamped.
        arrived = self._now() - max(0.0, (self._wall_clock() - entry.arrived_ns) / 1e9)
        now = self._last_arrivals[journal_number] = max(arrived, self._last_arrivals[journal_number])
        if entry.key > self._replay_ends[journal_number]:
            arrived = now
        if should_shed:
            self._counters.add(semconv.GATEWAY_SHED)
            for share in shares:
                self._buffer.shed(journal_number, entry.key, share.key, now, span_count=share.span_count, is_held=held)
                if share.session is not None and share.session != share.key:
                    self._buffer.shed(journal_number, entry.key, share.session, now, span_count=0)
            return
        for share in shares:
            self._buffer.add(
                journal_number, entry.key, share.key, share.chunk, now,
                size=share.size, span_count=share.span_count, has_root=share.has_root, arrived=arrived, is_held=held,
            )  # fmt: skip
            if share.session is not None and share.session != share.key:
                self._join_session(share.key, share.session)

    def _join_session(self, key: StitchKey, session: StitchKey) -> None:
        found = [group for group in map(self._buffer.find, (key, session)) if group is not None]
        self._buffer.join_groups(found, session)

    def _evaluate_due(self, now: float) -> None:
        """Score the groups that are due."""
        while self._dropped_trace_ids:
            trace_id = self._dropped_trace_ids.pop()
            if (group := self._buffer.find(bytes.fromhex(trace_id))) is not None:
                group.dropped_trace_ids.add(trace_id)
        if self._evaluate_groups(self._buffer.pop_due(now)):
            for journal_index in self._journals:
                self._evict_oldest(journal_index)
        self._evaluator.release_cache()

    def _evict_oldest(self, journal_number: int) -> None:
        """Score the oldest groups early if they keep too much of a journal: an endless trace would fill it."""
        journal = self._journals[journal_number]
        while (oldest := self._buffer.oldest_entry(journal_number)) is not None:
            if (
                journal.size_after(oldest - 1) - journal.size_after(self._read_positions[journal_number])
                <= self._max_backlog
            ):
                break
            if not self._evaluate_groups(self._buffer.evict_oldest(journal_number)):
                break

    # --- evaluation ---------------------------------------------------------------------------------------------------

    def _evaluate_groups(self, groups: Iterable[TraceGroup]) -> bool:
        """Extract due groups, and evaluate them in batches; `_commit` evaluates the last batch.

        Returns whether all succeeded; after a failure the others wait.
        """
        for group in groups:
            done = True
            try:
                with suppress_errors("score a trace group", except_=StoreError):
                    done = self._evaluator.extract_group(group)
            except StoreError as error:  # the disk failed or the store is locked; not caused by the group
                self._log_throttled(f"cannot read the stored runs of a trace and retries: {error}")
                self._buffer.reschedule(group, self._now())
                self._stopping.wait(_RETRY_SECONDS)
                return False
            if done:
                self._buffer.mark_scored(group)
            if self._evaluator.is_full:
                self._evaluator.evaluate_extracted()
            is_batch_full = (
                self._evaluator.run_count >= _MAX_WRITE_BATCH or self._results_queue.queued_bytes >= _MAX_READ_BYTES
            )
            if is_batch_full and not self._commit():
                return False
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
                self._evaluator.clear_committed()
                if self._judge_verdicts is not None and self._judge_verdicts.store_all(self._pipeline, self._store):
                    self._results_queue.flush(is_final=is_final)
                break
            except (StoreError, JournalFull) as error:
                self._log_throttled(f"cannot write results and retries: {error}")
                if self._stopping.wait(_RETRY_SECONDS):
                    return False
        for journal_index, journal in self._journals.items():
            oldest = self._buffer.oldest_entry(journal_index)
            done = self._read_positions[journal_index] if oldest is None else oldest - 1
            journal.advance(dict.fromkeys(self._consumers, done))
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

    def _log_throttled(self, problem: str) -> None:
        """Log a failure at most once per interval, and not after the consumer was abandoned."""
        now = time.monotonic()
        if now >= self._last_logged_at + _LOG_INTERVAL_SECONDS and not self._is_abandoned:
            self._last_logged_at = now
            _log.error("goldspan %s", problem)

    def _publish_counts(self) -> None:
        """Add the drops since the last call to the drop counters."""
        groups, pipeline = self._buffer, self._pipeline
        counts = {
            semconv.EVICTED_COUNTER: groups.evicted,
            semconv.UNSCORED_SPANS_COUNTER: groups.unscored_spans,
            semconv.SAMPLED_OUT_COUNTER: pipeline.sampled_out,
            semconv.OVER_BUDGET_COUNTER: pipeline.over_budget,
            semconv.INVISIBLE_RUNS_COUNTER: pipeline.invisible,
            semconv.RELOAD_FAILURES_COUNTER: pipeline.reload_failures,
        }
        for name, count in counts.items():
            self._drop_counters.add(name, count - self._published_counts.get(name, 0))
        self._published_counts = counts

    # --- journals ----------------------------------------------------------------------------------------------------

    def _start_position(self, journal: Journal) -> int:
        return min((journal.cursor(name) or 0 for name in self._consumers), default=0)
