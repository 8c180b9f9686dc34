"""Starts, watches, restarts and stops the worker processes of one gateway.

With one worker, the gateway runs in this process. With several, this process handles no requests: it reserves the
ports, locks the data folder and supervises the workers.
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
"""Runs the worker with this index until SIGTERM or SIGINT. Returns the exit status."""

LOCK_FILE = "lock"
EXIT_USAGE = 2
_KILL_MARGIN_SECONDS = 5.0
"""Seconds after `drain_seconds` until a stopping worker is killed."""
_INITIAL_RESTART_SECONDS, _MAX_RESTART_SECONDS = 0.5, 30.0
"""Seconds before a failed worker is restarted, doubled after each failure."""
_STABLE_AFTER_SECONDS = 60.0
"""Seconds of running after which the failures of a worker are counted from 1 again."""

_log = logging.getLogger("goldspan.gateway")


def supervise(settings: GatewaySettings, run_worker: RunWorker) -> int:
    """Run the workers until a signal stops the gateway. Returns 0 after an orderly shutdown, otherwise 1.

    Call it in the main thread. `run_worker` must be a module-level function, because worker processes import it. A port
    of 0 is replaced by a free port before several workers start.

    Raises `ConfigurationError` if another gateway uses the data folder, if a port is in use, if the system does not
    support several workers, or if a worker cannot start with these settings; then no worker is restarted.
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
        with _reserve_ports(settings) as resolved:
            return _Supervisor(resolved, run_worker).supervise()


@contextmanager
def lock_data_folder(data: Path) -> Iterator[None]:
    """Lock the data folder for this process; create it, readable only by its owner, if it does not exist.

    The lock is an exclusive transaction on an SQLite file: it works on every file system that supports the journal, and
    the system releases it when the process ends. Raises `ConfigurationError` if another gateway holds the lock, or if
    the folder cannot be created.
    """
    try:
        data.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigurationError(f"{data} cannot be created: {(error.strerror or str(error)).lower()}") from None
    path = data / LOCK_FILE
    try:
        lock = sqlite3.connect(path, timeout=0, isolation_level=None)
    except sqlite3.Error as error:
        raise ConfigurationError(f"{path} cannot be used: {error}") from None
    with closing(lock):
        try:
            lock.execute("BEGIN EXCLUSIVE")
        except sqlite3.Error as error:
            if "locked" in str(error):
                raise ConfigurationError(
                    f"another gateway uses {data}: stop it, or choose another folder with --data"
                ) from None
            raise ConfigurationError(f"{path} cannot be used: {error}") from None
        yield


# --- ports ------------------------------------------------------------------------------------------------------------


@contextmanager
def _reserve_ports(settings: GatewaySettings) -> Iterator[GatewaySettings]:
    """Yield settings with the ports that the workers share, and reserve the ports even while a worker restarts.

    A bound socket that does not listen receives no connections, and prevents other programs from binding the port.
    """
    with ExitStack() as reservations:
        ports: dict[str, int] = {}
        for name in ("http_port", "grpc_port"):
            port: int = getattr(settings, name)
            if port or name == "http_port":
                with _name_setting_on_error(settings, name, port):
                    ports[name] = _reserve_port(settings.host, port, reservations)
        yield settings.model_copy(update=ports)


@contextmanager
def _name_setting_on_error(settings: GatewaySettings, name: str, port: int) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        address = f"{settings.host} port {port}"
        raise ConfigurationError(f"{settings.location_of(name)}: cannot listen on {address}: {reason}") from None


def _reserve_port(host: str, port: int, exit_stack: ExitStack) -> int:
    """Bind the port until `exit_stack` closes. Returns the port number."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, kind, protocol, _, address = found[0]
    with socket.socket(family, kind, protocol) as alone:
        # Without SO_REUSEPORT first: otherwise the port of another gateway of the same user would be shared silently.
        alone.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        alone.bind(address)
        address = alone.getsockname()
    reserved = exit_stack.enter_context(socket.socket(family, kind, protocol))
    reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # despite connections in TIME_WAIT
    reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    reserved.bind(address)
    return int(address[1])


# --- the supervisor process --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _WorkerProcess:
    """The process of a worker."""

    process: BaseProcess
    pipe: Connection
    """Our end of the pipe: the worker reports startup errors on it, and exits when it closes."""
    started_at: float

    def exit_result(self) -> tuple[int, str | None]:
        """Returns the exit status of an ended process, and its startup error if it reported one."""
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
    """When to start the worker, while it is not running."""
    failures: int = 0


class _Supervisor:
    def __init__(self, settings: GatewaySettings, run: RunWorker) -> None:
        self._settings = settings
        self._run_worker = run
        self._context = multiprocessing.get_context("spawn")
        self._workers = [_WorkerSlot(index) for index in range(settings.workers)]
        self._is_stopping = False
        self._startup_error: str | None = None
        """Why a worker could not start with these settings."""

    def supervise(self) -> int:
        resource_tracker.ensure_running()  # starts a process, which must not inherit the ignored SIGINT
        with _wake_on_signals(self._request_stop) as wake:
            try:
                while not self._is_stopping:
                    self._start_due_workers()
                    self._wait_for_event(wake)
                    self._handle_exited_workers()
            finally:
                ended_orderly = self._stop_workers()
        if self._startup_error is not None:
            raise ConfigurationError(self._startup_error)
        return 0 if ended_orderly else 1

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
        # A terminal sends Ctrl-C to all processes, but the supervisor stops the workers.
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            process.start()
        finally:
            signal.signal(signal.SIGINT, before)
            its.close()
        return _WorkerProcess(process, ours, time.monotonic())

    def _wait_for_event(self, wake: socket.socket) -> None:
        """Wait until a worker ends, a restart is due, or a signal arrives."""
        ends = [worker.process.process.sentinel for worker in self._workers if worker.process]
        due = [worker.restart_at for worker in self._workers if not worker.process]
        connection.wait([wake, *ends], max(0.0, min(due) - time.monotonic()) if due else None)

    def _handle_exited_workers(self) -> None:
        """Schedule the restart of workers that ended, or stop all if a worker could not start at all."""
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
                "worker %d ended (%s); restarting it in %g s", worker.index, reason or _describe_exit(status), wait
            )

    def _stop_workers(self) -> bool:
        """Terminate all workers, and kill those that do not end in time. Returns whether all ended in order."""
        running_workers = [(worker.index, worker.process) for worker in self._workers if worker.process]
        for _, running in running_workers:
            running.process.terminate()
        deadline = time.monotonic() + self._settings.drain_seconds + _KILL_MARGIN_SECONDS
        ended_orderly = True
        for index, running in running_workers:
            running.process.join(max(0.0, deadline - time.monotonic()))
            if running.process.is_alive():
                running.process.kill()
            status, reason = running.exit_result()
            if status not in (0, -signal.SIGTERM) and (reason is None or reason != self._startup_error):
                ended_orderly = False  # -SIGTERM is fine: the signal may arrive before the worker handles it
                _log.error("worker %d did not shut down in order (%s)", index, reason or _describe_exit(status))
        return ended_orderly


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
    """Yield a socket that becomes readable when a signal arrives. The signal handler calls `stop` first."""
    ours, its = socket.socketpair()

    def handle(number: int, frame: FrameType | None) -> None:
        stop()
        with suppress(OSError):
            its.send(b"!")

    before = {number: signal.signal(number, handle) for number in signals}
    try:
        with ours, its:
            its.setblocking(False)
            yield ours
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


# --- inside a worker --------------------------------------------------------------------------------------------------


def _worker_main(settings: GatewaySettings, index: int, run_worker: RunWorker, pipe: Connection) -> None:
    """Run one worker process. It exits at once if the supervisor ends, because a new one may start."""
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
