"""One gateway as one process or several: started, watched, started again, told to stop.

With one worker everything happens in this process. With several, this process answers nothing itself: it keeps the
ports and the data folder for its workers and looks after them.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import socket
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import connection, resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import FrameType
from typing import TypeAlias

from goldspan.errors import ConfigurationError, GoldspanError
from goldspan.gateway import internal_telemetry
from goldspan.gateway.internal_telemetry import configure_logging
from goldspan.gateway.settings.gateway_settings import GatewaySettings

RunWorker: TypeAlias = Callable[[GatewaySettings, int], int]
"""Does the work of one worker, by its index, until it gets SIGTERM or SIGINT; returns the exit status."""

LOCK_FILE = "lock"
EXIT_USAGE = 2
_KILL_MARGIN_SECONDS = 5.0
"""Seconds beyond `drain_seconds` after which a worker that was told to stop is killed."""
_INITIAL_RESTART_SECONDS, _MAX_RESTART_SECONDS = 0.5, 30.0
"""Seconds before a worker that died is started again: twice as many each time."""
_STABLE_AFTER_SECONDS = 60.0
"""Seconds after which the death of a worker counts as its first."""

_log = logging.getLogger("goldspan.gateway")


def supervise(settings: GatewaySettings, run_worker: RunWorker) -> int:
    """Have the work done until the gateway is told to stop; the exit status: 0 where all ended well, else 1.

    Call it in the main thread. `run` is a function of a module, since other processes import it. Ports given as 0 are
    settled before several workers start.

    Raises `ConfigurationError` where another gateway is at work in the data folder, where a port is taken, or where
    there cannot be several workers; and what a worker raises on account of its settings, which starts none again.
    """
    configure_logging(settings.log_format, settings.log_level)
    with lock_data_folder(settings.data):
        internal_telemetry.remove_worker_metrics(settings.data)
        if settings.workers == 1:
            return run_worker(settings, 0)
        if not hasattr(socket, "SO_REUSEPORT"):
            raise ConfigurationError(
                f"{settings.location_of('workers')}: this system lets only one process listen on a port; use 1 worker"
            )
        with _reserve_ports(settings) as settled:
            return _Supervisor(settled, run_worker).supervise()


@contextmanager
def lock_data_folder(data: Path) -> Iterator[None]:
    """Have the data folder for oneself; it is made where there is none, for nobody else to read.

    The lock is that of an SQLite file in an exclusive transaction: it works wherever the journal does, and is gone with
    the process that holds it. Raises `ConfigurationError` where another gateway has it, or there can be no such folder.
    """
    try:
        data.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigurationError(f"{data} cannot be made: {(error.strerror or str(error)).lower()}") from None
    path = data / LOCK_FILE
    try:
        held = sqlite3.connect(path, timeout=0, isolation_level=None)
    except sqlite3.Error as error:
        raise ConfigurationError(f"{path} cannot be used: {error}") from None
    with closing(held):
        try:
            held.execute("BEGIN EXCLUSIVE")
        except sqlite3.Error as error:
            if "locked" in str(error):
                raise ConfigurationError(
                    f"another gateway is at work in {data}: stop that one, or name another folder with --data"
                ) from None
            raise ConfigurationError(f"{path} cannot be used: {error}") from None
        yield


# --- ports ------------------------------------------------------------------------------------------------------------


@contextmanager
def _reserve_ports(settings: GatewaySettings) -> Iterator[GatewaySettings]:
    """Settings with the ports that workers share, which are kept for them while one of them is started again.

    A socket that is bound and does not listen gets no connections, and keeps out whoever does not share the port.
    """
    with ExitStack() as kept:
        ports: dict[str, int] = {}
        for name in ("http_port", "grpc_port"):
            port: int = getattr(settings, name)
            if port or name == "http_port":
                with _name_setting_on_error(settings, name, port):
                    ports[name] = _reserve_port(settings.host, port, kept)
        yield settings.model_copy(update=ports)


@contextmanager
def _name_setting_on_error(settings: GatewaySettings, name: str, port: int) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        place = f"{settings.host} port {port}"
        raise ConfigurationError(f"{settings.location_of(name)}: cannot listen on {place}: {why}") from None


def _reserve_port(host: str, port: int, exit_stack: ExitStack) -> int:
    """Bind the port for as long as `kept` is open; which it is."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, kind, protocol, _, address = found[0]
    with socket.socket(family, kind, protocol) as alone:
        # Another gateway's port would be shared with it in silence, where both are the same user's.
        alone.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        alone.bind(address)
        address = alone.getsockname()
    reserved = exit_stack.enter_context(socket.socket(family, kind, protocol))
    reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # beside connections that are just over
    reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    reserved.bind(address)
    return int(address[1])


# --- the process that looks after the others --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _WorkerProcess:
    """The process of a worker."""

    process: BaseProcess
    pipe: Connection
    """The worker has its other end: on it, it hears of our end, and says why it cannot begin."""
    started_at: float

    def exit_result(self) -> tuple[int, str | None]:
        """The exit status of a process that is over, and why it could not begin if it said so."""
        self.process.join()
        status = self.process.exitcode or 0
        reason: str | None = None
        with suppress(EOFError, OSError):
            reason = self.pipe.recv() if self.pipe.poll() else None
        self.pipe.close()
        self.process.close()
        return status, reason


@dataclass(slots=True)
class _WorkerSlot:
    index: int
    process: _WorkerProcess | None = None
    restart_at: float = 0.0
    """When to start it, while it does not run."""
    failures: int = 0


class _Supervisor:
    def __init__(self, settings: GatewaySettings, run: RunWorker) -> None:
        self._settings = settings
        self._run_worker = run
        self._context = multiprocessing.get_context("spawn")
        self._workers = [_WorkerSlot(index) for index in range(settings.workers)]
        self._is_stopping = False
        self._startup_error: str | None = None
        """Why a worker could not begin with these settings."""

    def supervise(self) -> int:
        resource_tracker.ensure_running()  # a process of its own, which is not to ignore what workers ignore
        with _wake_on_signals(self._request_stop) as wake:
            try:
                while not self._is_stopping:
                    self._start_due_workers()
                    self._wait_for_event(wake)
                    self._handle_exited_workers()
            finally:
                well = self._stop_workers()
        if self._startup_error is not None:
            raise ConfigurationError(self._startup_error)
        return 0 if well else 1

    def _request_stop(self) -> None:
        self._is_stopping = True

    def _start_due_workers(self) -> None:
        for worker in self._workers:
            if worker.process is None and time.monotonic() >= worker.restart_at:
                worker.process = self._start_worker(worker.index)

    def _start_worker(self, index: int) -> _WorkerProcess:
        ours, its = self._context.Pipe()
        process = self._context.Process(
            target=_worker_main, args=(self._settings, index, self._run_worker, its), name=f"goldspan-worker-{index}"
        )
        # A terminal sends Ctrl-C to all processes, and each worker is told to stop by us.
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            process.start()
        finally:
            signal.signal(signal.SIGINT, before)
            its.close()
        return _WorkerProcess(process, ours, time.monotonic())

    def _wait_for_event(self, wake: socket.socket) -> None:
        """Until a worker ended, one is due, or a signal came."""
        ends = [worker.process.process.sentinel for worker in self._workers if worker.process]
        due = [worker.restart_at for worker in self._workers if not worker.process]
        connection.wait([wake, *ends], max(0.0, min(due) - time.monotonic()) if due else None)

    def _handle_exited_workers(self) -> None:
        """Have workers that ended of themselves started again, unless they could not begin in the first place."""
        for worker in self._workers:
            running = worker.process
            if running is None or running.process.is_alive() or self._is_stopping:
                continue
            worker.process = None
            status, reason = running.exit_result()
            if reason is not None and worker.failures == 0:
                self._startup_error = reason
                self._request_stop()
                return
            lived = time.monotonic() - running.started_at
            worker.failures = 1 if lived >= _STABLE_AFTER_SECONDS else worker.failures + 1
            wait = min(_MAX_RESTART_SECONDS, _INITIAL_RESTART_SECONDS * 2 ** (worker.failures - 1))
            worker.restart_at = time.monotonic() + wait
            _log.error(
                "worker %d ended (%s); it starts again in %g s", worker.index, reason or _describe_exit(status), wait
            )

    def _stop_workers(self) -> bool:
        """Tell all to stop, wait for as long as they may take, and kill those still there; whether all ended well."""
        there = [(worker.index, worker.process) for worker in self._workers if worker.process]
        for _, running in there:
            running.process.terminate()
        deadline = time.monotonic() + self._settings.drain_seconds + _KILL_MARGIN_SECONDS
        well = True
        for index, running in there:
            running.process.join(max(0.0, deadline - time.monotonic()))
            if running.process.is_alive():
                running.process.kill()
            status, reason = running.exit_result()
            if status not in (0, -signal.SIGTERM) and (reason is None or reason != self._startup_error):
                well = False  # the signal: it may have been told before it began
                _log.error("worker %d did not end well (%s)", index, reason or _describe_exit(status))
        return well


def _describe_exit(status: int) -> str:
    if status >= 0:
        return f"exit status {status}"
    try:
        return signal.Signals(-status).name
    except ValueError:
        return f"signal {-status}"


@contextmanager
def _wake_on_signals(
    stop: Callable[[], None], signals: Sequence[int] = (signal.SIGTERM, signal.SIGINT)
) -> Iterator[socket.socket]:
    """A socket that becomes readable when one of these signals came, after `stop` was called."""
    ours, its = socket.socketpair()

    def note(number: int, frame: FrameType | None) -> None:
        stop()
        with suppress(OSError):
            its.send(b"!")

    before = {number: signal.signal(number, note) for number in signals}
    try:
        with ours, its:
            its.setblocking(False)
            yield ours
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


# --- inside a worker --------------------------------------------------------------------------------------------------


def _worker_main(settings: GatewaySettings, index: int, run_worker: RunWorker, pipe: Connection) -> None:
    """What the process of a worker does. It leaves at once where the supervisor is gone: another may be there soon."""
    threading.Thread(target=_exit_with_supervisor, args=(pipe,), name="goldspan-line", daemon=True).start()
    configure_logging(settings.log_format, settings.log_level, worker=index)
    try:
        status = run_worker(settings, index)
    except GoldspanError as error:
        pipe.send(str(error))
        status = EXIT_USAGE
    raise SystemExit(status)


def _exit_with_supervisor(pipe: Connection) -> None:
    with suppress(EOFError, OSError):
        pipe.recv()
    os._exit(1)
