"""Runs the workers of `goldspan serve`, each in its own event loop, until a signal stops them."""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from goldspan.errors import StoreError
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
from goldspan.gateway.scoring.drop_publisher import DropPublisher
from goldspan.gateway.scoring.results_queue import ResultEncoder, ResultsQueue
from goldspan.gateway.scoring.scoring_consumer import ScoringConsumer, ScoringStop
from goldspan.gateway.scoring.scoring_thread import ScoringThread
from goldspan.gateway.scoring.telemetry_log import SCORING_CONSUMERS, TelemetryLog, journal_logs
from goldspan.gateway.scoring.trace_buffer import FlushPolicy, TraceBufferLimits
from goldspan.gateway.scoring.verdict_queue import VerdictQueue
from goldspan.gateway.settings.gateway_settings import GatewaySettings
from goldspan.gateway.settings.settings_display import startup_lines
from goldspan.gateway.supervisor import supervise
from goldspan.gateway.worker_components import create_judge, create_pipeline, open_kafka
from goldspan.goldens import Goldens
from goldspan.integrations.catalog import create_product_sink
from goldspan.model import Evaluation, Run
from goldspan.sinks import DropCounters, shutdown_all
from goldspan.store import Retention, Store, open_store
from goldspan.store.store_location import is_store_url
from goldspan.web import http_routes as page
from goldspan.web.assistant_tools import AssistantTools
from goldspan.web.pages import Pages

if TYPE_CHECKING:
    pass


_log = logging.getLogger("goldspan.gateway")

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
        self._kafka = open_kafka(settings, self._index, self._counters)
        own_sinks = [*self._results.sinks, *self._product_sinks]
        if self._kafka is not None:
            closing.callback(self._kafka.close)
            own_sinks += [self._kafka.results] if self._kafka.results is not None else []
        self._pipeline = create_pipeline(settings, self._telemetry, own_sinks, self._judge, self._judge_verdicts)
        closing.callback(self._pipeline.close)
        self._scoring_stop = ScoringStop()
        self._drops = DropPublisher(self._pipeline, DropCounters(self._telemetry.meter_provider))
        self._scoring = self._create_scoring(
            journal_logs(self._own_journals | self._open_other_journals(), self._index, settings.workers),
            judge_verdicts=None if self._judge is None else self._judge_verdicts,
            are_results_delivered=None if self._kafka is None else self._kafka.are_results_delivered,
        )
        receiver = (
            None
            if self._kafka is None
            else self._kafka.open_receiver(lambda log: self._create_scoring({log.partition: log}), self._scoring_stop)
        )
        self._scoring_thread = ScoringThread(self._scoring, self._scoring_stop, receiver)
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
        register_gauges(
            self._telemetry.meter_provider,
            self._scoring,
            self._own_journals,
            self._backend_exporters,
            lambda: len(self._scoring) + (0 if receiver is None else receiver.held_trace_count()),
        )
        if self._kafka is not None:
            self._kafka.register_gauges(self._telemetry.meter_provider)

    def _create_scoring(
        self,
        logs: Mapping[int, TelemetryLog],
        *,
        judge_verdicts: VerdictQueue | None = None,
        are_results_delivered: Callable[[], bool] | None = None,
    ) -> ScoringConsumer:
        """Returns the scoring of the journals, or of a partition of a Kafka topic."""
        settings, kafka = self._settings, self._kafka
        return ScoringConsumer(
            logs,
            self._pipeline,
            self._store,
            flush_policy=FlushPolicy(settings.grace, settings.idle, settings.late, settings.lifetime),
            buffer_limits=TraceBufferLimits(
                settings.limits.max_held_traces, settings.limits.max_held_bytes, settings.limits.max_spans_per_trace
            ),
            max_backlog_bytes=settings.limits.max_backlog_bytes,
            counters=self._counters,
            drops=self._drops,
            results_queue=ResultsQueue(self._own_journals[self._index], self._results),
            judge_verdicts=judge_verdicts,
            are_results_delivered=are_results_delivered,
            on_superseded=None if kafka is None or kafka.results is None else kafka.results.delete_runs,
            stop=self._scoring_stop,
        )

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
                self._store, evaluate=self._evaluate_run, drop_pending_trace=self._drop_pending_trace,
                combination=settings.judge.combination, threshold=settings.judge.threshold,
            ),
            *page.page_routes(self._site(), is_ending=stop.is_set),
            *mcp_routes,
        ]  # fmt: skip
        app = create_application(
            self._receiver,
            self._authorizer,
            routes=routes,
            not_ready_reason=self._not_ready_reason,
            degraded_reason=self._degraded_reason,
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
        if self._kafka is not None:
            self._kafka.start()
        self._scoring_thread.start()
        for exporter in self._backend_exporters:
            exporter.start()
        gc.collect()
        gc.freeze()  # these objects stay; traversing them again and again costs a third of the time of a request
        gc.set_threshold(_GC_THRESHOLD)

    def _drain(self, deadline: float) -> None:
        """Score and forward as much as possible by the deadline. The rest stays in the journal for the next start."""
        if self._kafka is not None:
            self._kafka.begin_stop(_remaining_seconds(deadline) * _DRAIN_RESERVE)
        left = _remaining_seconds(deadline)
        self._is_still_scoring = not self._scoring_thread.stop(
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
        if self._stopping.is_set():
            return "shutting down"
        reason = self._own_journals[self._index].full_reason()
        return reason or (None if self._kafka is None else self._kafka.not_ready_reason())

    def _drop_pending_trace(self, trace_id: str) -> None:
        self._scoring.drop_trace(trace_id)
        if self._kafka is not None:
            self._kafka.drop_trace(trace_id)

    def _degraded_reason(self) -> str | None:
        """Why results wait although telemetry is accepted. It does not name the server: anyone may read it."""
        is_failing = self._scoring.is_store_failing or (self._kafka is not None and self._kafka.is_store_failing)
        return "the store is unavailable, and results wait" if is_failing else None

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


def _open_evaluation_store(settings: GatewaySettings) -> Store:
    age = None if settings.keep_days is None else timedelta(days=settings.keep_days)
    settings.data.mkdir(parents=True, exist_ok=True)
    location = settings.store_location
    return open_store(
        location,
        retention=Retention(max_age=age, max_bytes=settings.max_store_bytes),
        keep_arguments=settings.keep_arguments,
        # Workers share a file, and each writes large batches. The scoring thread itself waits for a server.
        timeout=5.0 if is_store_url(location) else 30.0,
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
    if is_store_url(settings.store_location):
        import_module("goldspan.store.postgres")  # as above
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
