"""`goldspan serve`: the workers, each in its event loop, until they are told to stop."""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from datetime import timedelta
from pathlib import Path

from opentelemetry.metrics import MeterProvider

from goldspan.errors import ConfigurationError, StoreError
from goldspan.gateway import api_routes as api
from goldspan.gateway.exporting.backend_exporter import BackendExporter
from goldspan.gateway.gateway_counters import GatewayCounters
from goldspan.gateway.internal_telemetry import InternalTelemetry, register_gauges
from goldspan.gateway.journal.journal import Journal
from goldspan.gateway.receivers.authorization import Authorizer
from goldspan.gateway.receivers.grpc import start_grpc_server
from goldspan.gateway.receivers.http import create_application
from goldspan.gateway.receivers.http_server import HttpServer, TlsConfig
from goldspan.gateway.receivers.ingest import Receiver
from goldspan.gateway.scoring.results_queue import ResultEncoder, ResultsQueue
from goldspan.gateway.scoring.scoring_consumer import SCORING_CONSUMERS, ScoringConsumer, VerdictQueue
from goldspan.gateway.scoring.trace_buffer import FlushPolicy, TraceBufferLimits
from goldspan.gateway.settings.gateway_settings import GatewaySettings
from goldspan.gateway.settings.settings_display import startup_lines
from goldspan.gateway.supervisor import supervise
from goldspan.goldens import Goldens
from goldspan.goldens.golden_files.hot_reload import ReloadingGoldens
from goldspan.judge.judge import Judge
from goldspan.model import Evaluation, Run
from goldspan.online.pass_rate_sink import PassRateSink
from goldspan.online.pipeline import Pipeline, check_units
from goldspan.online.sampling import Sampling
from goldspan.sinks import DropCounters, MetricSink, Sink
from goldspan.store import Retention, SqliteStore, open_store
from goldspan.web import http_routes as page
from goldspan.web.pages import Pages


def create_judge(settings: GatewaySettings, meter_provider: MeterProvider) -> Judge | None:
    """The judge that the settings ask for; `None`: they ask for none.

    Raises `ConfigurationError` where its file is of no use.
    """
    told = settings.judge.to_judge_settings(settings.data)
    if told is None:
        return None
    try:
        return told.create_judge(samples=Sampling(told.sample).should_sample, meter_provider=meter_provider)
    except ConfigurationError as error:  # the model can be asked, so it is the file
        raise ConfigurationError(f"{settings.location_of('judge.cache')}: {error}") from None


_log = logging.getLogger("goldspan.gateway")

STORE_FILE = "goldspan.db"
JOURNAL_FOLDER = "journal"
_JOURNAL_WAIT_SECONDS = 120.0
"""Seconds in which the journals of the other workers have to be there."""
_DRAIN_RESERVE = 0.3
"""Of the time for an orderly end, the share that the doors leave for scoring, and scoring for forwarding, at least."""
_GC_THRESHOLD = 10_000
"""So many new objects may come before the collector looks for circles, of which hardly any are made: with Python's own
700, it looks twice while one trace is scored, at what is all still needed."""


class GatewayWorker:
    """A worker of the gateway. Made, it has opened its files; `serve` does the rest.

    Raises `GoldspanError` where settings, goldens or files are of no use.
    """

    def __init__(self, settings: GatewaySettings, index: int = 0) -> None:
        self._settings = settings
        self._index = index
        self._exit_stack = ExitStack()
        self._is_still_scoring = False
        with self._close_on_failure():
            self._open_components()

    def _open_components(self) -> None:
        settings, closing = self._settings, self._exit_stack
        self._authorizer = Authorizer(
            ingest_tokens=settings.ingest_tokens,
            read_tokens=settings.read_tokens,
            allowed_hosts=settings.host_names,
            allowed_origins=settings.allowed_origins,
        )
        self._telemetry = InternalTelemetry(settings, self._index)
        closing.callback(self._telemetry.stop)
        self._counters = GatewayCounters(self._telemetry.meter_provider)
        self._store = _open_evaluation_store(settings)
        closing.callback(self._close_store)
        self._own_journals = self._open_own_journals()
        self._results = ResultEncoder([kind for kind in settings.results if kind != "attributes"])
        self._judge = create_judge(settings, self._telemetry.meter_provider)
        self._judge_verdicts = VerdictQueue()
        closing.callback(self._count_late_verdicts)
        self._pipeline = _create_pipeline(settings, self._telemetry, self._results, self._judge, self._judge_verdicts)
        closing.callback(self._pipeline.close)
        self._scoring = ScoringConsumer(
            self._own_journals | self._open_other_journals(),
            self._pipeline,
            self._store,
            worker=self._index,
            workers=settings.workers,
            flush_policy=FlushPolicy(settings.grace, settings.idle, settings.late, settings.lifetime),
            buffer_limits=TraceBufferLimits(
                settings.limits.max_held_traces, settings.limits.max_held_bytes, settings.limits.max_spans_per_trace
            ),
            max_backlog_bytes=settings.limits.max_backlog_bytes,
            counters=self._counters,
            drop_counters=DropCounters(self._telemetry.meter_provider),
            results_queue=ResultsQueue(self._own_journals[self._index], self._results),
            judge_verdicts=None if self._judge is None else self._judge_verdicts,
        )
        self._backend_exporters = [
            BackendExporter(back_end, journal, self._counters)
            for journal in self._own_journals.values()
            for back_end in settings.back_ends
        ]
        self._receiver = Receiver(
            self._own_journals[self._index],
            settings.limits,
            self._counters,
            partitioned=settings.workers > 1,
            hold_traces=settings.enrich,
        )
        register_gauges(self._telemetry.meter_provider, self._scoring, self._own_journals, self._backend_exporters)

    # --- journals ----------------------------------------------------------------------------------------------------

    def _open_own_journals(self) -> dict[int, Journal]:
        """This worker's journal, and its share of those of workers that there are no more."""
        folder = self._settings.data / JOURNAL_FOLDER
        folder.mkdir(parents=True, exist_ok=True)
        workers = self._settings.workers
        left = [place for place in _journal_numbers(folder) if place >= workers and place % workers == self._index]
        consumers = [*SCORING_CONSUMERS, *[name for end in self._settings.back_ends for name in end.consumers.values()]]
        opened: dict[int, Journal] = {}
        for place in (self._index, *left):
            journal = Journal(_journal_path(folder, place), max_bytes=self._settings.limits.max_journal_bytes)
            self._exit_stack.callback(journal.close)
            journal.register_consumers(consumers, starts_at_end=lambda name: name not in SCORING_CONSUMERS)
            opened[place] = journal
        return opened

    def _open_other_journals(self) -> dict[int, Journal]:
        """The journals that other workers write, of which some entries are for this one."""
        folder = self._settings.data / JOURNAL_FOLDER
        wanted = {*range(self._settings.workers), *_journal_numbers(folder)} - set(self._own_journals)
        opened: dict[int, Journal] = {}
        until = time.monotonic() + _JOURNAL_WAIT_SECONDS
        for place in sorted(wanted):
            opened[place] = self._attach_journal(_journal_path(folder, place), until)
            self._exit_stack.callback(opened[place].close)
        return opened

    def _attach_journal(self, path: Path, deadline: float) -> Journal:
        while True:
            try:
                if path.exists():
                    return Journal(path, max_bytes=self._settings.limits.max_journal_bytes, attach=True)
            except StoreError:
                if time.monotonic() > deadline:
                    raise
            if time.monotonic() > deadline:
                raise StoreError(f"{path}: the worker whose journal this is did not start")
            time.sleep(0.05)

    # --- serving -----------------------------------------------------------------------------------------------------

    async def serve(self, stop: asyncio.Event) -> None:
        """Open the doors, and close them in good order when told to `stop`."""
        settings = self._settings
        tls = TlsConfig(settings.tls_cert, settings.tls_key) if settings.tls_cert and settings.tls_key else None
        shared = settings.workers > 1
        routes = [
            *self._telemetry.routes,
            *api.api_routes(
                self._store, evaluate=self._evaluate_run, drop_pending_trace=self._scoring.drop_trace,
                combination=settings.judge.combination, threshold=settings.judge.threshold,
            ),
            *page.page_routes(self._site(), is_ending=stop.is_set),
        ]  # fmt: skip
        app = create_application(
            self._receiver, self._authorizer, routes=routes, not_ready_reason=self._not_ready_reason
        )
        http = HttpServer(
            app, settings.limits, self._counters, host=settings.host, port=settings.http_port, tls=tls,
            reuse_port=shared,
        )  # fmt: skip
        await http.start()
        rpc, rpc_port = None, None
        try:
            if settings.grpc_port:
                rpc, rpc_port = await start_grpc_server(
                    self._receiver, self._authorizer, settings.limits, host=settings.host, port=settings.grpc_port,
                    tls=tls, reuse_port=shared,
                )  # fmt: skip
        except BaseException:
            await http.stop(0)
            raise
        self._stopping = stop
        self._start_background_work()
        if self._index == 0:
            for line in startup_lines(settings, http.port, rpc_port):
                _log.info("%s", line)
        await stop.wait()
        until = time.monotonic() + settings.drain_seconds
        self._receiver.drain()
        at_the_doors = settings.drain_seconds * (1 - _DRAIN_RESERVE)
        await asyncio.gather(http.stop(at_the_doors), *([rpc.stop(at_the_doors)] if rpc else []))
        self._receiver.close()
        await asyncio.get_running_loop().run_in_executor(None, self._drain, until)

    def _site(self) -> Pages:
        settings = self._settings
        return Pages(
            self._store,
            goldens=lambda: self._pipeline.goldens if settings.goldens else None,
            is_live=True,
            keeps_values="" if settings.keep_arguments else "`goldspan serve --keep-arguments` stores them.",
            can_leave=bool(settings.read_tokens),
        )

    def _start_background_work(self) -> None:
        self._telemetry.start()
        self._scoring.start()
        for forwarder in self._backend_exporters:
            forwarder.start()
        gc.collect()
        gc.freeze()  # what is here stays: looking at it again and again would cost a third of the time of a request
        gc.set_threshold(_GC_THRESHOLD)

    def _drain(self, deadline: float) -> None:
        """Score and forward what can be by then. The rest is in the journal for the next time."""
        left = _remaining_seconds(deadline)
        self._is_still_scoring = not self._scoring.stop(
            left * (1 - _DRAIN_RESERVE) if self._backend_exporters else left
        )
        if self._is_still_scoring:
            _log.warning("what is not scored yet is scored when the gateway starts again")
        if self._backend_exporters:  # at once, so that one that hangs takes no time from another
            with ThreadPoolExecutor(len(self._backend_exporters)) as stopping:
                left = _remaining_seconds(deadline)
                list(stopping.map(lambda forwarder: forwarder.stop(left), self._backend_exporters))
        if self._judge is not None:
            self._judge.drain_timeout = 0.0  # what it says from now on is stored by nobody
        self.close()

    def _count_late_verdicts(self) -> None:
        """Count the verdicts that came when scoring had ended. The judge says nothing more."""
        if self._judge is not None and (late := self._judge_verdicts.discard_all()):
            self._judge.counters.record_dropped(late)

    def _close_store(self) -> None:
        """Close the store, but not under somebody who may wait for another process to let go of it: the end is near."""
        if not self._is_still_scoring:
            self._store.close()

    def close(self) -> None:
        """Close every file that is open still."""
        self._exit_stack.close()

    def _not_ready_reason(self) -> str | None:
        return "shutting down" if self._stopping.is_set() else self._own_journals[self._index].full_reason()

    def _evaluate_run(self, run: Run) -> Evaluation:
        judged = self._pipeline.evaluate_without_submitting(run)
        assert judged is not None  # the gateway has no redaction that would keep it back
        return judged

    @contextmanager
    def _close_on_failure(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self._exit_stack.close()
            raise


def _open_evaluation_store(settings: GatewaySettings) -> SqliteStore:
    age = None if settings.keep_days is None else timedelta(days=settings.keep_days)
    settings.data.mkdir(parents=True, exist_ok=True)
    return open_store(
        settings.data / STORE_FILE,
        retention=Retention(max_age=age, max_bytes=settings.max_store_bytes),
        keep_arguments=settings.keep_arguments,
        timeout=30.0,  # workers share the file, and each writes a lot at once
    )


def _create_pipeline(
    settings: GatewaySettings,
    telemetry: InternalTelemetry,
    results: ResultEncoder,
    judge: Judge | None,
    verdicts: VerdictQueue,
) -> Pipeline:
    goldens: Goldens | ReloadingGoldens = Goldens(near=settings.near, margin=settings.margin)
    if settings.goldens:
        goldens = ReloadingGoldens(settings.goldens, near=settings.near, margin=settings.margin)
    sinks: tuple[Sink, ...] = (MetricSink(telemetry.meter_provider), PassRateSink(telemetry.meter_provider))
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
        on_verdict=verdicts.put,
    )


def _journal_numbers(folder: Path) -> list[int]:
    return sorted(int(path.stem) for path in folder.glob("*.db") if path.stem.isdecimal())


def _journal_path(folder: Path, number: int) -> Path:
    return folder / f"{number}.db"


def _remaining_seconds(deadline: float) -> float:
    return max(0.0, deadline - time.monotonic())


def serve(settings: GatewaySettings) -> int:
    """Run the gateway until SIGTERM or SIGINT; the exit status: 0 where all ended well.

    Raises `GoldspanError` for settings, goldens, files or ports that cannot be used.
    """
    return supervise(settings, run_worker)


def run_worker(settings: GatewaySettings, index: int) -> int:
    """Run one worker in this process."""
    loop = _create_event_loop()
    try:
        loop.run_until_complete(_serve_until_signal(settings, index, loop))
    finally:
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()
    return 0


async def _serve_until_signal(settings: GatewaySettings, index: int, loop: asyncio.AbstractEventLoop) -> None:
    stop = asyncio.Event()  # before anything is opened: whoever is told to stop then is to end as well
    for number in (signal.SIGTERM, signal.SIGINT):
        try:
            loop.add_signal_handler(number, stop.set)
        except NotImplementedError:  # loops of asyncio watch for signals on Unix alone
            signal.signal(number, lambda *_: loop.call_soon_threadsafe(stop.set))
    worker = GatewayWorker(settings, index)
    try:
        await worker.serve(stop)
    finally:
        worker.close()


def _create_event_loop() -> asyncio.AbstractEventLoop:
    with suppress(ImportError):  # where there is none for this system, Python's own does
        import uvloop

        return uvloop.new_event_loop()
    return asyncio.new_event_loop()
