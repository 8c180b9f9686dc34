"""The consumer that scores: from journal entries to evaluations in the store, each exactly once.

Spans are gathered by trace, and scored when no more of them are expected. What is done is written down in this order:
results for back ends into the journal, evaluations into the store, and only then how far the journal was read. So after
a `kill -9` some of it is done once more, the store recognises what it has, and nothing is missing.

What a judge says comes later, from its own thread. It is stored after what it is about, and only then told to back
ends, since it may be about what is no longer so.
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
from goldspan.gateway.journal.journal_entries import JournalEntry
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
    """Takes verdicts from any thread, and keeps them until the one that scores has written down what they are about.

    There are never many: whoever asks is who takes them, and how many questions are open is bounded by the judge.
    """

    def __init__(self) -> None:
        self._pending: deque[Evaluation] = deque()

    def put(self, evaluation: Evaluation) -> None:
        """Take a verdict, which has the revision that it is to be stored as."""
        self._pending.append(evaluation)

    def store_all(self, pipeline: Pipeline, store: SqliteStore) -> int:
        """Store what came, give the sinks what was stored, and answer how many verdicts there were.

        Raises `StoreError` where the store cannot be written; called again, it goes on where it was.
        """
        number = 0
        while self._pending:
            with suppress_errors("store a verdict", except_=StoreError):
                _store_verdict(self._pending[0], pipeline, store)
            self._pending.popleft()
            number += 1
        return number

    def discard_all(self) -> int:
        """Throw away what came too late to be stored; how many verdicts."""
        left = len(self._pending)
        self._pending.clear()
        return left


def _store_verdict(evaluation: Evaluation, pipeline: Pipeline, store: SqliteStore) -> None:
    """Store a verdict, unless something else became known of its run meanwhile, or somebody had it deleted."""
    if store.replace_if_current(evaluation, (evaluation.revision - 1, evaluation.digest)):
        pipeline.submit_verdict(evaluation)
    else:
        pipeline.count_outdated_verdict()


_log = logging.getLogger("goldspan")

SCORING_CONSUMERS = tuple(f"score/{partition:02d}" for partition in range(PARTITION_COUNT))
"""What the consumers are called that score a partition each."""

_MAX_WRITE_BATCH = 200
"""Evaluations that are written down together, at most."""
_MAX_WAIT_SECONDS = 0.25
"""Seconds for which nothing is looked at, at most: journals of other workers do not wake this one."""
_REPLAY_HOLD_SECONDS = 2.0
"""Seconds for which what came before the process began is held, however long ago that was."""
_RETRY_SECONDS = 1.0
"""Seconds."""
_LOG_INTERVAL_SECONDS = 60.0
"""How often trouble is logged."""
_MAX_READ_BYTES = 8 * 1024 * 1024
"""Bytes of entries."""
_VERDICT_DRAIN_SHARE = 0.5
"""Of the time that is left when all is scored, the share in which a judge may still answer."""


class ScoringConsumer:
    """Scores the partitions of one worker, in a thread of its own.

    `journals` are those of all workers, by their numbers. `clock` tells seconds that never go back, `wall`
    nanoseconds since the Unix epoch, by which entries say when they came. `verdicts` are those of the pipeline's judge.
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

    # --- from other threads ------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin where the last one stopped."""
        self._thread.start()

    def stop(self, timeout: float) -> bool:
        """Score what is there, as far as the time in seconds allows; whether that was all. The rest is not lost."""
        self._drain_deadline = time.monotonic() + timeout
        self._stopping.set()
        self._thread.join(timeout)
        self._is_abandoned = self._thread.is_alive()
        return not self._is_abandoned

    def drop_trace(self, trace_id: str) -> None:
        """Score nothing more of what is held of a trace now."""
        self._dropped_trace_ids.append(trace_id)

    def backlog_bytes(self) -> int:
        """Bytes of entries that were not looked at yet."""
        return sum(journal.size_after(self._read_positions[place]) for place, journal in self._journals.items())

    def is_replaying(self) -> bool:
        """Whether it is still busy with what had been acknowledged before it started."""
        return any(self._read_positions[journal] < last for journal, last in self._replay_ends.items())

    def __len__(self) -> int:
        """The number of bundles held."""
        return len(self._buffer)

    # --- the thread --------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._stopping.is_set():
            busy: bool | None = None
            with suppress_errors("score what came in"):
                try:
                    busy = self.poll()
                except (StoreError, JournalFull) as error:
                    self._log_throttled(f"cannot read what came in, and tries again: {error}")
            if busy is None:
                self._stopping.wait(_RETRY_SECONDS)
            elif not busy:
                self._wait_for_entries()
        try:
            self.drain()
        except (StoreError, JournalFull) as error:
            self._log_throttled(f"cannot score what was left, and does it at the next start: {error}")
        except Exception as error:  # noqa: BLE001 - what is open may have been closed meanwhile
            if not self._is_abandoned:
                report_error("score what was left", error)

    def drain(self) -> None:
        """Score what waits for nothing that is known to be missing. What has no root yet stays in the journal."""
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
        """What the thread does all the time: look at what came in, and score what is due. Whether anything came."""
        taken = self._read_entries()
        if not self.is_replaying():  # of a trace that was scored before, a part would be taken for the whole
            self._evaluate_due(min(self._watermarks.values()))  # what is only not read yet is not taken for rest
            self._commit()
        self._publish_counts()
        return taken > 0

    def _wait_for_entries(self) -> None:
        """Wait for an entry, as long as nothing is due."""
        next_time = self._buffer.next_due_time()
        nap = _MAX_WAIT_SECONDS if next_time is None else min(_MAX_WAIT_SECONDS, max(0.0, next_time - self._now()))
        self._journals[self._worker].wait(self._read_positions[self._worker], nap)

    def _read_entries(self) -> int:
        """Look at the next entries of every journal; how many there were."""
        number = 0
        for place, journal in self._journals.items():
            after = self._read_positions[place]
            sheds = journal.size_after(after) > self._max_backlog
            asked, last = self._now(), journal.last_key
            entries = journal.read(
                after, max_bytes=_MAX_READ_BYTES, origins=SCORED_ORIGINS, partitions=self._partition_mask
            )
            for entry in entries:
                self._read_positions[place] = entry.key
                self._buffer_entry(place, entry, should_shed=sheds)
            behind = bool(entries) and entries[-1].key < last
            self._watermarks[place] = self._last_arrivals[place] if behind else asked
            self._read_positions[place] = entries[-1].key if entries else max(after, last)
            number += len(entries)
            if self._results_queue.queued_bytes >= _MAX_READ_BYTES:
                self._results_queue.flush()
        return number

    def _buffer_entry(self, journal_number: int, entry: JournalEntry, *, should_shed: bool) -> None:
        held = entry.origin == "held"
        shares: Sequence[EntryShare] | None = None
        with suppress_errors("read what was acknowledged"), suppress(DecodeError):
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
        # By the clock of the machine it may have come at any time, if somebody set that meanwhile.
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
        found = [bundle for bundle in map(self._buffer.find, (key, session)) if bundle is not None]
        self._buffer.join_groups(found, session)

    def _evaluate_due(self, now: float) -> None:
        """Score what is due."""
        while self._dropped_trace_ids:
            trace_id = self._dropped_trace_ids.pop()
            if (bundle := self._buffer.find(bytes.fromhex(trace_id))) is not None:
                bundle.dropped_trace_ids.add(trace_id)
        if self._evaluate_groups(self._buffer.pop_due(now)):
            for place in self._journals:
                self._evict_oldest(place)
        self._evaluator.release_cache()

    def _evict_oldest(self, journal_number: int) -> None:
        """Score as it is what keeps too much of a journal from being let go: a trace that never rests would fill it."""
        journal = self._journals[journal_number]
        while (oldest := self._buffer.oldest_entry(journal_number)) is not None:
            if (
                journal.size_after(oldest - 1) - journal.size_after(self._read_positions[journal_number])
                <= self._max_backlog
            ):
                break
            if not self._evaluate_groups(self._buffer.evict_oldest(journal_number)):
                break

    # --- one bundle --------------------------------------------------------------------------------------------------

    def _evaluate_groups(self, bundles: Iterable[TraceGroup]) -> bool:
        """Judge bundles that are due; whether that went well. Where it does not, the others wait for the next time."""
        for bundle in bundles:
            done = True
            try:
                with suppress_errors("score what was held", except_=StoreError):
                    done = self._evaluator.evaluate_group(bundle)
            except StoreError as error:  # the disk, or whoever else is at the store: nothing that it is to blame for
                self._log_throttled(f"cannot read what is known of a trace, and tries again: {error}")
                self._buffer.reschedule(bundle, self._now())
                self._stopping.wait(_RETRY_SECONDS)
                return False
            if done:
                self._buffer.mark_scored(bundle)
            is_much = (
                len(self._evaluator.evaluations) >= _MAX_WRITE_BATCH
                or self._results_queue.queued_bytes >= _MAX_READ_BYTES
            )
            if is_much and not self._commit():
                return False
        return True

    # --- what is done ------------------------------------------------------------------------------------------------

    def _commit(self, *, is_final: bool = False) -> bool:
        """Results into the journal, evaluations into the store, then how far the journals are done with.

        In between come the verdicts about evaluations that are stored. Whether all that was possible before the end.
        """
        while True:
            try:
                self._evaluator.evaluate_conversations()
                self._results_queue.flush(is_final=is_final)
                self._store_evaluations(self._evaluator.evaluations)
                if self._evaluator.superseded_run_ids:
                    self._store.delete_runs(self._evaluator.superseded_run_ids)
                self._evaluator.clear_committed()
                if self._judge_verdicts is not None and self._judge_verdicts.store_all(self._pipeline, self._store):
                    self._results_queue.flush(is_final=is_final)
                break
            except (StoreError, JournalFull) as error:
                self._log_throttled(f"cannot write down what it scored, and tries again: {error}")
                if self._stopping.wait(_RETRY_SECONDS):
                    return False
        for place, journal in self._journals.items():
            oldest = self._buffer.oldest_entry(place)
            done = self._read_positions[place] if oldest is None else oldest - 1
            journal.advance(dict.fromkeys(self._consumers, done))
        return True

    def _store_evaluations(self, evaluations: Sequence[Evaluation]) -> None:
        """Store evaluations. One that cannot be written keeps no other back."""
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
        """Log what keeps it from going on: now and then, as long as it is so, and not when it was given up."""
        now = time.monotonic()
        if now >= self._last_logged_at + _LOG_INTERVAL_SECONDS and not self._is_abandoned:
            self._last_logged_at = now
            _log.error("goldspan %s", problem)

    def _publish_counts(self) -> None:
        """Count what was lost since the last time."""
        bundles, pipeline = self._buffer, self._pipeline
        counts = {
            semconv.EVICTED_COUNTER: bundles.evicted,
            semconv.UNSCORED_SPANS_COUNTER: bundles.unscored_spans,
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
