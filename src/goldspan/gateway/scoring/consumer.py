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
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress

from goldspan import semconv
from goldspan._guard import guard, report
from goldspan.errors import StoreError
from goldspan.gateway.counting import Counting
from goldspan.gateway.journal.writing import Entry, Journal, JournalFull
from goldspan.gateway.scoring.judging import Judging
from goldspan.gateway.scoring.opening import Share, opened, spans_in_protobuf
from goldspan.gateway.scoring.outbox import Outbox
from goldspan.gateway.scoring.traces import Bundle, Bundles, Patience, Room, StitchKey
from goldspan.gateway.scoring.verdicts import Verdicts
from goldspan.gateway.signals import FROM_CLIENTS, PARTITIONS
from goldspan.model import Evaluation
from goldspan.online.clock import AwakeClock
from goldspan.online.pipeline import Pipeline
from goldspan.otlp.decoding import DecodeError
from goldspan.sinks import Losses
from goldspan.store import SqliteStore

_log = logging.getLogger("goldspan")

CONSUMERS = tuple(f"score/{partition:02d}" for partition in range(PARTITIONS))
"""What the consumers are called that score a partition each."""

_AT_ONCE = 200
"""Evaluations that are written down together, at most."""
_LONGEST_NAP = 0.25
"""Seconds for which nothing is looked at, at most: journals of other workers do not wake this one."""
_HELD_AT_LEAST = 2.0
"""Seconds for which what came before the process began is held, however long ago that was."""
_AFTER_FAILURE = 1.0
"""Seconds."""
_TELLING_SECONDS = 60.0
"""How often trouble is logged."""
_READ_AT_ONCE = 8 * 1024 * 1024
"""Bytes of entries."""
_FOR_VERDICTS = 0.5
"""Of the time that is left when all is scored, the share in which a judge may still answer."""


class Scoring:
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
        patience: Patience,
        room: Room,
        max_backlog_bytes: int,
        counting: Counting,
        losses: Losses,
        outbox: Outbox,
        verdicts: Verdicts | None = None,
        clock: Callable[[], float] | None = None,
        wall: Callable[[], int] = time.time_ns,
    ) -> None:
        self._journals = journals
        self._worker, self._workers = worker, workers
        self._pipeline = pipeline
        self._store = store
        self._partitions = frozenset(range(worker, PARTITIONS, workers))
        self._mask = sum(1 << partition for partition in self._partitions)
        self._consumers = [CONSUMERS[partition] for partition in sorted(self._partitions)]
        self._max_backlog = max_backlog_bytes
        self._counting = counting
        self._losses = losses
        self._outbox = outbox
        self._verdicts = verdicts
        self._now = clock or AwakeClock().now
        self._bundles = Bundles(patience, room, held_until=self._now() + min(patience.late, _HELD_AT_LEAST))
        self._wall = wall
        self._judging = Judging(journals, self._bundles, pipeline, store, outbox, losses)
        self._forgotten: list[str] = []
        self._read_up_to = {journal: self._start_of(journals[journal]) for journal in journals}
        self._replayed_up_to = {journal: journals[journal].last_key for journal in journals}
        self._came = dict.fromkeys(journals, self._now())
        self._seen_up_to = dict.fromkeys(journals, 0.0)
        self._told: dict[str, int] = {}
        self._stopping = threading.Event()
        self._until = 0.0
        self._abandoned = False
        self._said = -_TELLING_SECONDS
        self._thread = threading.Thread(target=self._run, name="goldspan-scoring", daemon=True)

    # --- from other threads ------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin where the last one stopped."""
        self._thread.start()

    def stop(self, timeout: float) -> bool:
        """Score what is there, as far as the time in seconds allows; whether that was all. The rest is not lost."""
        self._until = time.monotonic() + timeout
        self._stopping.set()
        self._thread.join(timeout)
        self._abandoned = self._thread.is_alive()
        return not self._abandoned

    def forget(self, trace_id: str) -> None:
        """Score nothing more of what is held of a trace now."""
        self._forgotten.append(trace_id)

    def behind(self) -> int:
        """Bytes of entries that were not looked at yet."""
        return sum(journal.size_after(self._read_up_to[place]) for place, journal in self._journals.items())

    def replaying(self) -> bool:
        """Whether it is still busy with what had been acknowledged before it started."""
        return any(self._read_up_to[journal] < last for journal, last in self._replayed_up_to.items())

    def __len__(self) -> int:
        """The number of bundles held."""
        return len(self._bundles)

    # --- the thread --------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._stopping.is_set():
            busy: bool | None = None
            with guard("score what came in"):
                try:
                    busy = self.step()
                except (StoreError, JournalFull) as error:
                    self._say(f"cannot read what came in, and tries again: {error}")
            if busy is None:
                self._stopping.wait(_AFTER_FAILURE)
            elif not busy:
                self._rest()
        try:
            self.finish()
        except (StoreError, JournalFull) as error:
            self._say(f"cannot score what was left, and does it at the next start: {error}")
        except Exception as error:  # noqa: BLE001 - what is open may have been closed meanwhile
            if not self._abandoned:
                report("score what was left", error)

    def finish(self) -> None:
        """Score what waits for nothing that is known to be missing. What has no root yet stays in the journal."""
        while self._take_in():
            pass
        self._look(self._now())
        self._attend(self._bundles.complete())
        if self._verdicts is not None and self._write_down():
            left = max(0.0, self._until - time.monotonic())
            self._pipeline.flush_verdicts(int(left * _FOR_VERDICTS * 1000))
        self._write_down(final=True)
        self._publish()

    def step(self) -> bool:
        """What the thread does all the time: look at what came in, and score what is due. Whether anything came."""
        taken = self._take_in()
        if not self.replaying():  # of a trace that was scored before, a part would be taken for the whole
            self._look(min(self._seen_up_to.values()))  # what is only not read yet is not taken for rest
            self._write_down()
        self._publish()
        return taken > 0

    def _rest(self) -> None:
        """Wait for an entry, as long as nothing is due."""
        next_time = self._bundles.next_time()
        nap = _LONGEST_NAP if next_time is None else min(_LONGEST_NAP, max(0.0, next_time - self._now()))
        self._journals[self._worker].wait(self._read_up_to[self._worker], nap)

    def _take_in(self) -> int:
        """Look at the next entries of every journal; how many there were."""
        number = 0
        for place, journal in self._journals.items():
            after = self._read_up_to[place]
            sheds = journal.size_after(after) > self._max_backlog
            asked, last = self._now(), journal.last_key
            entries = journal.read(after, max_bytes=_READ_AT_ONCE, origins=FROM_CLIENTS, partitions=self._mask)
            for entry in entries:
                self._read_up_to[place] = entry.key
                self._take(place, entry, sheds=sheds)
            behind = bool(entries) and entries[-1].key < last
            self._seen_up_to[place] = self._came[place] if behind else asked
            self._read_up_to[place] = entries[-1].key if entries else max(after, last)
            number += len(entries)
            if self._outbox.size >= _READ_AT_ONCE:
                self._outbox.flush()
        return number

    def _take(self, place: int, entry: Entry, *, sheds: bool) -> None:
        held = entry.origin == "held"
        shares: Sequence[Share] | None = None
        with guard("read what was acknowledged"), suppress(DecodeError):
            shares = opened(entry, self._partitions.__contains__)
        if held and place % self._workers == self._worker and (shares is None or spans_in_protobuf(entry) is None):
            self._outbox.put_as_it_is(entry)
        if shares is None:
            self._counting.add(semconv.GATEWAY_UNREADABLE)
            return
        # By the clock of the machine it may have come at any time, if somebody set that meanwhile.
        arrived = self._now() - max(0.0, (self._wall() - entry.arrived_ns) / 1e9)
        now = self._came[place] = max(arrived, self._came[place])
        if entry.key > self._replayed_up_to[place]:
            arrived = now
        if sheds:
            self._counting.add(semconv.GATEWAY_SHED)
            for share in shares:
                self._bundles.shed(place, entry.key, share.key, now, spans=share.spans, held=held)
                if share.session is not None and share.session != share.key:
                    self._bundles.shed(place, entry.key, share.session, now, spans=0)
            return
        for share in shares:
            self._bundles.add(
                place, entry.key, share.key, share.part, now,
                size=share.size, spans=share.spans, rooted=share.rooted, arrived=arrived, held=held,
            )  # fmt: skip
            if share.session is not None and share.session != share.key:
                self._join(share.key, share.session)

    def _join(self, key: StitchKey, session: StitchKey) -> None:
        found = [bundle for bundle in map(self._bundles.find, (key, session)) if bundle is not None]
        self._bundles.join(found, session)

    def _look(self, now: float) -> None:
        """Score what is due."""
        while self._forgotten:
            trace_id = self._forgotten.pop()
            if (bundle := self._bundles.find(bytes.fromhex(trace_id))) is not None:
                bundle.forgotten.add(trace_id)
        if self._attend(self._bundles.due(now)):
            for place in self._journals:
                self._make_way(place)
        self._judging.close()

    def _make_way(self, place: int) -> None:
        """Score as it is what keeps too much of a journal from being let go: a trace that never rests would fill it."""
        journal = self._journals[place]
        while (oldest := self._bundles.oldest(place)) is not None:
            if journal.size_after(oldest - 1) - journal.size_after(self._read_up_to[place]) <= self._max_backlog:
                break
            if not self._attend(self._bundles.make_way(place)):
                break

    # --- one bundle --------------------------------------------------------------------------------------------------

    def _attend(self, bundles: Iterable[Bundle]) -> bool:
        """Judge bundles that are due; whether that went well. Where it does not, the others wait for the next time."""
        for bundle in bundles:
            done = True
            try:
                with guard("score what was held", but=StoreError):
                    done = self._judging.judge(bundle)
            except StoreError as error:  # the disk, or whoever else is at the store: nothing that it is to blame for
                self._say(f"cannot read what is known of a trace, and tries again: {error}")
                self._bundles.try_again(bundle, self._now())
                self._stopping.wait(_AFTER_FAILURE)
                return False
            if done:
                self._bundles.scored(bundle)
            is_much = len(self._judging.evaluations) >= _AT_ONCE or self._outbox.size >= _READ_AT_ONCE
            if is_much and not self._write_down():
                return False
        return True

    # --- what is done ------------------------------------------------------------------------------------------------

    def _write_down(self, *, final: bool = False) -> bool:
        """Results into the journal, evaluations into the store, then how far the journals are done with.

        In between come the verdicts about evaluations that are stored. Whether all that was possible before the end.
        """
        while True:
            try:
                self._judging.conclude()
                self._outbox.flush(final=final)
                self._keep(self._judging.evaluations)
                if self._judging.gone:
                    self._store.delete_runs(self._judging.gone)
                self._judging.written_down()
                if self._verdicts is not None and self._verdicts.keep(self._pipeline, self._store):
                    self._outbox.flush(final=final)
                break
            except (StoreError, JournalFull) as error:
                self._say(f"cannot write down what it scored, and tries again: {error}")
                if self._stopping.wait(_AFTER_FAILURE):
                    return False
        for place, journal in self._journals.items():
            oldest = self._bundles.oldest(place)
            done = self._read_up_to[place] if oldest is None else oldest - 1
            journal.advance(dict.fromkeys(self._consumers, done))
        return True

    def _keep(self, evaluations: Sequence[Evaluation]) -> None:
        """Store evaluations. One that cannot be written keeps no other back."""
        if not evaluations:
            return
        stored = False
        with guard("store evaluations", but=StoreError):
            self._store.submit_many(evaluations)
            stored = True
        for evaluation in () if stored else evaluations:
            with guard("store an evaluation", but=StoreError):
                self._store.submit(evaluation)

    def _say(self, trouble: str) -> None:
        """Log what keeps it from going on: now and then, as long as it is so, and not when it was given up."""
        now = time.monotonic()
        if now >= self._said + _TELLING_SECONDS and not self._abandoned:
            self._said = now
            _log.error("goldspan %s", trouble)

    def _publish(self) -> None:
        """Count what was lost since the last time."""
        bundles, pipeline = self._bundles, self._pipeline
        counts = {
            semconv.EVICTED_COUNTER: bundles.evicted,
            semconv.UNSCORED_SPANS_COUNTER: bundles.unscored,
            semconv.SAMPLED_OUT_COUNTER: pipeline.sampled_out,
            semconv.OVER_BUDGET_COUNTER: pipeline.over_budget,
            semconv.INVISIBLE_RUNS_COUNTER: pipeline.invisible,
            semconv.RELOAD_FAILURES_COUNTER: pipeline.reload_failures,
        }
        for name, count in counts.items():
            self._losses.add(name, count - self._told.get(name, 0))
        self._told = counts

    # --- journals ----------------------------------------------------------------------------------------------------

    def _start_of(self, journal: Journal) -> int:
        return min((journal.cursor(name) or 0 for name in self._consumers), default=0)
