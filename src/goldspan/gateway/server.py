"""Runs the workers of `goldspan serve`, each in its own event loop, until a signal stops them."""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from typing import Any

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
from goldspan.integrations.catalog import create_product_sink
from goldspan.judge.judge import Judge
from goldspan.model import Evaluation, Run
from goldspan.online.pass_rate_sink import PassRateSink
from goldspan.online.pipeline import Pipeline, check_units
from goldspan.online.sampling import Sampling
from goldspan.sinks import DropCounters, MetricSink, Sink, shutdown_all
from goldspan.store import Retention, SqliteStore, open_store
from goldspan.web import http_routes as page
from goldspan.web.assistant_tools import AssistantTools
from goldspan.web.pages import Pages


def create_judge(settings: GatewaySettings, meter_provider: MeterProvider) -> Judge | None:
    """Returns the judge, or `None` if the settings name no model.

    Raises `ConfigurationError` if the cache file of the judge cannot be used.
    """
    judge_settings = settings.judge.to_judge_settings(settings.data)
    if judge_settings is None:
        return None
    try:
        samples = Sampling(judge_settings.sample).should_sample
        return judge_settings.create_judge(samples=samples, meter_provider=meter_provider)
    except ConfigurationError as error:  # loading the settings validated the rest, so the file is wrong
        raise ConfigurationError(f"{settings.location_of('judge.cache')}: {error}") from None


_log = logging.getLogger("goldspan.gateway")

STORE_FILE = "goldspan.db"
JOURNAL_FOLDER = "journal"
_JOURNAL_WAIT_SECONDS = 120.0
"""Seconds within which the journals of the other workers must exist."""
_DRAIN_RESERVE = 0.3
"""Minimum share of the shutdown time that the receivers leave for scoring, and scoring leaves for forwarding."""
_GC_THRESHOLD = 10_000
"""New objects before a run of the garbage collector. The gateway creates hardly any reference cycles: with Python's
default of 700, the collector runs twice while one trace is scored and frees nothing."""


class GatewayWorker:
    """One worker of the gateway. The constructor opens the files; `serve` runs the worker.

    Raises `GoldspanError` if settings, goldens or files cannot be used.
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
        self._product_sinks = [
            create_product_sink(name, meter_provider=self._telemetry.meter_provider) for name in settings.products
        ]
        closing.callback(shutdown_all, self._product_sinks)
        self._pipeline = _create_pipeline(
            settings, self._telemetry, (*self._results.sinks, *self._product_sinks), self._judge, self._judge_verdicts
        )
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
        """Open this worker's journal and its share of the journals of workers that no longer exist."""
        folder = self._settings.data / JOURNAL_FOLDER
        folder.mkdir(parents=True, exist_ok=True)
        workers = self._settings.workers
        numbers = _journal_numbers(folder)
        orphaned = [number for number in numbers if number >= workers and number % workers == self._index]
        consumers = [*SCORING_CONSUMERS, *[name for end in self._settings.back_ends for name in end.consumers.values()]]
        opened: dict[int, Journal] = {}
        for number in (self._index, *orphaned):
            journal = Journal(_journal_path(folder, number), max_bytes=self._settings.limits.max_journal_bytes)
            self._exit_stack.callback(journal.close)
            journal.register_consumers(consumers, starts_at_end=lambda name: name not in SCORING_CONSUMERS)
            opened[number] = journal
        return opened

    def _open_other_journals(self) -> dict[int, Journal]:
        """Open the journals that other workers write, which contain entries for this worker's partitions."""
        folder = self._settings.data / JOURNAL_FOLDER
        numbers = {*range(self._settings.workers), *_journal_numbers(folder)} - set(self._own_journals)
        opened: dict[int, Journal] = {}
        deadline = time.monotonic() + _JOURNAL_WAIT_SECONDS
        for number in sorted(numbers):
            opened[number] = self._attach_journal(_journal_path(folder, number), deadline)
            self._exit_stack.callback(opened[number].close)
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
                raise StoreError(f"{path}: the worker that writes this journal did not start")
            time.sleep(0.05)

    # --- serving -----------------------------------------------------------------------------------------------------

    async def serve(self, stop: asyncio.Event) -> None:
        """Serve until `stop` is set, then close the receivers and drain."""
        async with self._mcp_routes() as mcp_routes:
            await self._serve(stop, mcp_routes)

    async def _serve(self, stop: asyncio.Event, mcp_routes: Sequence[Any]) -> None:
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
            *mcp_routes,
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
        deadline = time.monotonic() + settings.drain_seconds
        self._receiver.drain()
        receiver_timeout = settings.drain_seconds * (1 - _DRAIN_RESERVE)
        await asyncio.gather(http.stop(receiver_timeout), *([rpc.stop(receiver_timeout)] if rpc else []))
        self._receiver.close()
        await asyncio.get_running_loop().run_in_executor(None, self._drain, deadline)

    @asynccontextmanager
    async def _mcp_routes(self) -> AsyncIterator[Sequence[Any]]:
        """The routes of coding assistants, if the settings enable them."""
        if not self._settings.mcp:
            yield ()
            return
        from goldspan.web import mcp_server  # deferred: the extra `mcp` is optional

        async with mcp_server.mcp_routes(AssistantTools(self._store, goldens=self._goldens_in_use)) as routes:
            yield routes

    def _goldens_in_use(self) -> Goldens | None:
        return self._pipeline.goldens if self._settings.goldens else None

    def _site(self) -> Pages:
        settings = self._settings
        return Pages(
            self._store,
            goldens=self._goldens_in_use,
            is_live=True,
            keeps_values="" if settings.keep_arguments else "`goldspan serve --keep-arguments` stores them.",
            can_leave=bool(settings.read_tokens),
        )

    def _start_background_work(self) -> None:
        self._telemetry.start()
        self._scoring.start()
        for exporter in self._backend_exporters:
            exporter.start()
        gc.collect()
        gc.freeze()  # these objects stay; traversing them again and again costs a third of the time of a request
        gc.set_threshold(_GC_THRESHOLD)

    def _drain(self, deadline: float) -> None:
        """Score and forward as much as possible by the deadline. The rest stays in the journal for the next start."""
        left = _remaining_seconds(deadline)
        self._is_still_scoring = not self._scoring.stop(
            left * (1 - _DRAIN_RESERVE) if self._backend_exporters or self._product_sinks else left
        )
        if self._is_still_scoring:
            _log.warning("the traces that are not scored yet are scored at the next start")
        if self._backend_exporters:  # in parallel, so that a slow back end takes no time from the others
            with ThreadPoolExecutor(len(self._backend_exporters)) as stopping:
                left = _remaining_seconds(deadline) * (1 - _DRAIN_RESERVE if self._product_sinks else 1)
                list(stopping.map(lambda exporter: exporter.stop(left), self._backend_exporters))
        if self._product_sinks:  # after the exporters: a product has scores only for spans that it knows
            with ThreadPoolExecutor(len(self._product_sinks)) as stopping:
                left_millis = int(_remaining_seconds(deadline) * 1000)
                list(stopping.map(lambda sink: sink.shutdown(left_millis), self._product_sinks))
        if self._judge is not None:
            self._judge.drain_timeout = 0.0  # later verdicts could not be stored
        self.close()

    def _count_late_verdicts(self) -> None:
        """Count the verdicts that arrived after scoring ended as dropped. The judge is closed by now."""
        if self._judge is not None and (late := self._judge_verdicts.discard_all()):
            self._judge.counters.record_dropped(late)

    def _close_store(self) -> None:
        """Close the store, unless the scoring thread still uses it: the process is about to exit."""
        if not self._is_still_scoring:
            self._store.close()

    def close(self) -> None:
        """Close every open file."""
        self._exit_stack.close()

    def _not_ready_reason(self) -> str | None:
        return "shutting down" if self._stopping.is_set() else self._own_journals[self._index].full_reason()

    def _evaluate_run(self, run: Run) -> Evaluation:
        evaluation = self._pipeline.evaluate_without_submitting(run)
        assert evaluation is not None  # only a redaction can return None, and the gateway has none
        return evaluation

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
        timeout=30.0,  # workers share the file, and each writes large batches
    )


def _create_pipeline(
    settings: GatewaySettings,
    telemetry: InternalTelemetry,
    sinks: Iterable[Sink],
    judge: Judge | None,
    verdicts: VerdictQueue,
) -> Pipeline:
    goldens: Goldens | ReloadingGoldens = Goldens(near=settings.near, margin=settings.margin)
    if settings.goldens:
        goldens = ReloadingGoldens(settings.goldens, near=settings.near, margin=settings.margin)
    own_metrics = (MetricSink(telemetry.meter_provider), PassRateSink(telemetry.meter_provider))
    return Pipeline(
        goldens,
        sinks=(*own_metrics, *sinks),
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
    """Run the gateway until SIGTERM or SIGINT. Returns the exit status, 0 after an orderly shutdown.

    Raises `GoldspanError` for settings, goldens, files or ports that cannot be used, and for an extra that is missing.
    """
    if settings.mcp:
        import_module("goldspan.web.mcp_server")  # raises before any file is created if the extra is missing
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
    stop = asyncio.Event()  # before any file is opened, so that an early signal also stops the worker
    for number in (signal.SIGTERM, signal.SIGINT):
        try:
            loop.add_signal_handler(number, stop.set)
        except NotImplementedError:  # asyncio supports signal handlers only on Unix
            signal.signal(number, lambda *_: loop.call_soon_threadsafe(stop.set))
    worker = GatewayWorker(settings, index)
    try:
        await worker.serve(stop)
    finally:
        worker.close()


def _create_event_loop() -> asyncio.AbstractEventLoop:
    with suppress(ImportError):  # not available on this system
        import uvloop

        return uvloop.new_event_loop()
    return asyncio.new_event_loop()
