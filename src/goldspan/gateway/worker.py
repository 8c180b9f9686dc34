"""One worker put together: doors in front of a journal, and behind it scoring, forwarding and the API."""

from __future__ import annotations

import asyncio
import gc
import logging
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from pathlib import Path

from goldspan.errors import StoreError
from goldspan.gateway.api import routing as api
from goldspan.gateway.asking import judge_of
from goldspan.gateway.counting import Counting
from goldspan.gateway.doors.authority import Authority
from goldspan.gateway.doors.connections import HttpDoor, Tls
from goldspan.gateway.doors.http import application
from goldspan.gateway.doors.receiver import Receiver
from goldspan.gateway.doors.rpc import start_rpc
from goldspan.gateway.forwarding.forwarder import Forwarder
from goldspan.gateway.gauges import publish
from goldspan.gateway.journal.writing import Journal
from goldspan.gateway.scoring.consumer import CONSUMERS, Scoring
from goldspan.gateway.scoring.outbox import Outbox
from goldspan.gateway.scoring.results import Results
from goldspan.gateway.scoring.traces import Patience, Room
from goldspan.gateway.scoring.verdicts import Verdicts
from goldspan.gateway.settings.fields import Settings
from goldspan.gateway.settings.notices import start_up_lines
from goldspan.gateway.telemetry import Telemetry
from goldspan.goldens import Goldens
from goldspan.goldens.reloading import ReloadingGoldens
from goldspan.judge.judges import Judge
from goldspan.model import Evaluation, Run
from goldspan.online.figure_sink import FigureSink
from goldspan.online.pipeline import Pipeline, check_units
from goldspan.sinks import Losses, MetricSink, Sink
from goldspan.store import Retention, SqliteStore, open_store
from goldspan.web import routing as page
from goldspan.web.site import Site

_log = logging.getLogger("goldspan.gateway")

STORE = "goldspan.db"
JOURNALS = "journal"
_PATIENCE = 120.0
"""Seconds in which the journals of the other workers have to be there."""
_LAST_PART = 0.3
"""Of the time for an orderly end, the share that the doors leave for scoring, and scoring for forwarding, at least."""
_OBJECTS_BETWEEN_LOOKS = 10_000
"""So many new objects may come before the collector looks for circles, of which hardly any are made: with Python's own
700, it looks twice while one trace is scored, at what is all still needed."""


class Worker:
    """A worker of the gateway. Made, it has opened its files; `serve` does the rest.

    Raises `GoldspanError` where settings, goldens or files are of no use.
    """

    def __init__(self, settings: Settings, index: int = 0) -> None:
        self._settings = settings
        self._index = index
        self._closing = ExitStack()
        self._still_scoring = False
        with self._closing_on_failure():
            self._open()

    def _open(self) -> None:
        settings, closing = self._settings, self._closing
        self._authority = Authority(
            ingest_tokens=settings.ingest_tokens,
            read_tokens=settings.read_tokens,
            allowed_hosts=settings.hosts,
            allowed_origins=settings.allowed_origins,
        )
        self._telemetry = Telemetry(settings, self._index)
        closing.callback(self._telemetry.stop)
        self._counting = Counting(self._telemetry.meter_provider)
        self._store = _store_of(settings)
        closing.callback(self._close_store)
        self._own = self._open_own()
        self._results = Results([kind for kind in settings.results if kind != "attributes"])
        self._judge = judge_of(settings, self._telemetry.meter_provider)
        self._verdicts = Verdicts()
        closing.callback(self._drop_late_verdicts)
        self._pipeline = _pipeline_of(settings, self._telemetry, self._results, self._judge, self._verdicts)
        closing.callback(self._pipeline.close)
        self._scoring = Scoring(
            self._own | self._open_others(),
            self._pipeline,
            self._store,
            worker=self._index,
            workers=settings.workers,
            patience=Patience(settings.grace, settings.idle, settings.late, settings.lifetime),
            room=Room(
                settings.limits.max_held_traces, settings.limits.max_held_bytes, settings.limits.max_spans_per_trace
            ),
            max_backlog_bytes=settings.limits.max_backlog_bytes,
            counting=self._counting,
            losses=Losses(self._telemetry.meter_provider),
            outbox=Outbox(self._own[self._index], self._results),
            verdicts=None if self._judge is None else self._verdicts,
        )
        self._forwarders = [
            Forwarder(back_end, journal, self._counting)
            for journal in self._own.values()
            for back_end in settings.back_ends
        ]
        self._receiver = Receiver(
            self._own[self._index],
            settings.limits,
            self._counting,
            partitioned=settings.workers > 1,
            holds=settings.enrich,
        )
        publish(self._telemetry.meter_provider, self._scoring, self._own, self._forwarders)

    # --- journals ----------------------------------------------------------------------------------------------------

    def _open_own(self) -> dict[int, Journal]:
        """This worker's journal, and its share of those of workers that there are no more."""
        folder = self._settings.data / JOURNALS
        folder.mkdir(parents=True, exist_ok=True)
        workers = self._settings.workers
        left = [place for place in _journals_in(folder) if place >= workers and place % workers == self._index]
        consumers = [*CONSUMERS, *[name for end in self._settings.back_ends for name in end.consumers.values()]]
        opened: dict[int, Journal] = {}
        for place in (self._index, *left):
            journal = Journal(_path_of(folder, place), max_bytes=self._settings.limits.max_journal_bytes)
            self._closing.callback(journal.close)
            journal.consumers(consumers, fresh_at_end=lambda name: name not in CONSUMERS)
            opened[place] = journal
        return opened

    def _open_others(self) -> dict[int, Journal]:
        """The journals that other workers write, of which some entries are for this one."""
        folder = self._settings.data / JOURNALS
        wanted = {*range(self._settings.workers), *_journals_in(folder)} - set(self._own)
        opened: dict[int, Journal] = {}
        until = time.monotonic() + _PATIENCE
        for place in sorted(wanted):
            opened[place] = self._attached(_path_of(folder, place), until)
            self._closing.callback(opened[place].close)
        return opened

    def _attached(self, path: Path, until: float) -> Journal:
        while True:
            try:
                if path.exists():
                    return Journal(path, max_bytes=self._settings.limits.max_journal_bytes, attach=True)
            except StoreError:
                if time.monotonic() > until:
                    raise
            if time.monotonic() > until:
                raise StoreError(f"{path}: the worker whose journal this is did not start")
            time.sleep(0.05)

    # --- serving -----------------------------------------------------------------------------------------------------

    async def serve(self, stop: asyncio.Event) -> None:
        """Open the doors, and close them in good order when told to `stop`."""
        settings = self._settings
        tls = Tls(settings.tls_cert, settings.tls_key) if settings.tls_cert and settings.tls_key else None
        shared = settings.workers > 1
        routes = [
            *self._telemetry.routes,
            *api.routes(
                self._store, rescore=self._rescored, forget=self._scoring.forget,
                combination=settings.judge.combination, threshold=settings.judge.threshold,
            ),
            *page.routes(self._site(), ends=stop.is_set),
        ]  # fmt: skip
        app = application(self._receiver, self._authority, routes=routes, ready=self._why_not_ready)
        http = HttpDoor(
            app, settings.limits, self._counting, host=settings.host, port=settings.http_port, tls=tls,
            reuse_port=shared,
        )  # fmt: skip
        await http.start()
        rpc, rpc_port = None, None
        try:
            if settings.grpc_port:
                rpc, rpc_port = await start_rpc(
                    self._receiver, self._authority, settings.limits, host=settings.host, port=settings.grpc_port,
                    tls=tls, reuse_port=shared,
                )  # fmt: skip
        except BaseException:
            await http.stop(0)
            raise
        self._stopping = stop
        self._begin()
        if self._index == 0:
            for line in start_up_lines(settings, http.port, rpc_port):
                _log.info("%s", line)
        await stop.wait()
        until = time.monotonic() + settings.drain_seconds
        self._receiver.drain()
        at_the_doors = settings.drain_seconds * (1 - _LAST_PART)
        await asyncio.gather(http.stop(at_the_doors), *([rpc.stop(at_the_doors)] if rpc else []))
        self._receiver.close()
        await asyncio.get_running_loop().run_in_executor(None, self._end, until)

    def _site(self) -> Site:
        settings = self._settings
        return Site(
            self._store,
            goldens=lambda: self._pipeline.goldens if settings.goldens else None,
            is_live=True,
            keeps_values="" if settings.keep_arguments else "`goldspan serve --keep-arguments` stores them.",
            can_leave=bool(settings.read_tokens),
        )

    def _begin(self) -> None:
        self._telemetry.start()
        self._scoring.start()
        for forwarder in self._forwarders:
            forwarder.start()
        gc.collect()
        gc.freeze()  # what is here stays: looking at it again and again would cost a third of the time of a request
        gc.set_threshold(_OBJECTS_BETWEEN_LOOKS)

    def _end(self, until: float) -> None:
        """Score and forward what can be by then. The rest is in the journal for the next time."""
        left = _left(until)
        self._still_scoring = not self._scoring.stop(left * (1 - _LAST_PART) if self._forwarders else left)
        if self._still_scoring:
            _log.warning("what is not scored yet is scored when the gateway starts again")
        if self._forwarders:  # at once, so that one that hangs takes no time from another
            with ThreadPoolExecutor(len(self._forwarders)) as stopping:
                left = _left(until)
                list(stopping.map(lambda forwarder: forwarder.stop(left), self._forwarders))
        if self._judge is not None:
            self._judge.drain = 0.0  # what it says from now on is stored by nobody
        self.close()

    def _drop_late_verdicts(self) -> None:
        """Count the verdicts that came when scoring had ended. The judge says nothing more."""
        if self._judge is not None and (late := self._verdicts.clear()):
            self._judge.counting.dropped(late)

    def _close_store(self) -> None:
        """Close the store, but not under somebody who may wait for another process to let go of it: the end is near."""
        if not self._still_scoring:
            self._store.close()

    def close(self) -> None:
        """Close every file that is open still."""
        self._closing.close()

    def _why_not_ready(self) -> str | None:
        return "shutting down" if self._stopping.is_set() else self._own[self._index].why_full()

    def _rescored(self, run: Run) -> Evaluation:
        judged = self._pipeline.judge(run)
        assert judged is not None  # the gateway has no redaction that would keep it back
        return judged

    @contextmanager
    def _closing_on_failure(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self._closing.close()
            raise


def _store_of(settings: Settings) -> SqliteStore:
    age = None if settings.keep_days is None else timedelta(days=settings.keep_days)
    settings.data.mkdir(parents=True, exist_ok=True)
    return open_store(
        settings.data / STORE,
        retention=Retention(max_age=age, max_bytes=settings.max_store_bytes),
        keep_arguments=settings.keep_arguments,
        timeout=30.0,  # workers share the file, and each writes a lot at once
    )


def _pipeline_of(
    settings: Settings, telemetry: Telemetry, results: Results, judge: Judge | None, verdicts: Verdicts
) -> Pipeline:
    goldens: Goldens | ReloadingGoldens = Goldens(near=settings.near, margin=settings.margin)
    if settings.goldens:
        goldens = ReloadingGoldens(settings.goldens, near=settings.near, margin=settings.margin)
    sinks: tuple[Sink, ...] = (MetricSink(telemetry.meter_provider), FigureSink(telemetry.meter_provider))
    return Pipeline(
        goldens,
        sinks=(*sinks, *results.sinks),
        metrics=settings.metrics,
        thresholds=settings.thresholds or None,
        unknown=settings.unknown,
        golden_id_attributes=settings.golden_id_attributes,
        units=check_units(settings.units),
        budget=settings.budget,
        judge=judge,
        verdicts=verdicts.put,
    )


def _journals_in(folder: Path) -> list[int]:
    return sorted(int(path.stem) for path in folder.glob("*.db") if path.stem.isdecimal())


def _path_of(folder: Path, place: int) -> Path:
    return folder / f"{place}.db"


def _left(until: float) -> float:
    return max(0.0, until - time.monotonic())
