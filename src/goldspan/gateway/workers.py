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
from goldspan.gateway import telemetry
from goldspan.gateway.log_lines import write_logs
from goldspan.gateway.settings.fields import Settings

Run: TypeAlias = Callable[[Settings, int], int]
"""Does the work of one worker, by its index, until it gets SIGTERM or SIGINT; returns the exit status."""

LOCK = "lock"
WRONG_USE = 2
_MARGIN = 5.0
"""Seconds beyond `drain_seconds` after which a worker that was told to stop is killed."""
_FIRST_WAIT, _LONGEST_WAIT = 0.5, 30.0
"""Seconds before a worker that died is started again: twice as many each time."""
_LONG_LIFE = 60.0
"""Seconds after which the death of a worker counts as its first."""

_log = logging.getLogger("goldspan.gateway")


def supervise(settings: Settings, run: Run) -> int:
    """Have the work done until the gateway is told to stop; the exit status: 0 where all ended well, else 1.

    Call it in the main thread. `run` is a function of a module, since other processes import it. Ports given as 0 are
    settled before several workers start.

    Raises `ConfigurationError` where another gateway is at work in the data folder, where a port is taken, or where
    there cannot be several workers; and what a worker raises on account of its settings, which starts none again.
    """
    write_logs(settings.log_format, settings.log_level)
    with holding(settings.data):
        telemetry.clear(settings.data)
        if settings.workers == 1:
            return run(settings, 0)
        if not hasattr(socket, "SO_REUSEPORT"):
            raise ConfigurationError(
                f"{settings.place('workers')}: this system lets only one process listen on a port; use 1 worker"
            )
        with _ports_kept(settings) as settled:
            return _Supervisor(settled, run).supervise()


@contextmanager
def holding(data: Path) -> Iterator[None]:
    """Have the data folder for oneself; it is made where there is none, for nobody else to read.

    The lock is that of an SQLite file in an exclusive transaction: it works wherever the journal does, and is gone with
    the process that holds it. Raises `ConfigurationError` where another gateway has it, or there can be no such folder.
    """
    try:
        data.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigurationError(f"{data} cannot be made: {(error.strerror or str(error)).lower()}") from None
    path = data / LOCK
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
def _ports_kept(settings: Settings) -> Iterator[Settings]:
    """Settings with the ports that workers share, which are kept for them while one of them is started again.

    A socket that is bound and does not listen gets no connections, and keeps out whoever does not share the port.
    """
    with ExitStack() as kept:
        ports: dict[str, int] = {}
        for name in ("http_port", "grpc_port"):
            port: int = getattr(settings, name)
            if port or name == "http_port":
                with _naming(settings, name, port):
                    ports[name] = _reserve(settings.host, port, kept)
        yield settings.model_copy(update=ports)


@contextmanager
def _naming(settings: Settings, name: str, port: int) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        place = f"{settings.host} port {port}"
        raise ConfigurationError(f"{settings.place(name)}: cannot listen on {place}: {why}") from None


def _reserve(host: str, port: int, kept: ExitStack) -> int:
    """Bind the port for as long as `kept` is open; which it is."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, kind, protocol, _, address = found[0]
    with socket.socket(family, kind, protocol) as alone:
        # Another gateway's port would be shared with it in silence, where both are the same user's.
        alone.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        alone.bind(address)
        address = alone.getsockname()
    reserved = kept.enter_context(socket.socket(family, kind, protocol))
    reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # beside connections that are just over
    reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    reserved.bind(address)
    return int(address[1])


# --- the process that looks after the others --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Running:
    """The process of a worker."""

    process: BaseProcess
    line: Connection
    """The worker has its other end: on it, it hears of our end, and says why it cannot begin."""
    since: float

    def ended(self) -> tuple[int, str | None]:
        """The exit status of a process that is over, and why it could not begin if it said so."""
        self.process.join()
        status = self.process.exitcode or 0
        reason: str | None = None
        with suppress(EOFError, OSError):
            reason = self.line.recv() if self.line.poll() else None
        self.line.close()
        self.process.close()
        return status, reason


@dataclass(slots=True)
class _Worker:
    index: int
    running: _Running | None = None
    due: float = 0.0
    """When to start it, while it does not run."""
    deaths: int = 0


class _Supervisor:
    def __init__(self, settings: Settings, run: Run) -> None:
        self._settings = settings
        self._run = run
        self._context = multiprocessing.get_context("spawn")
        self._workers = [_Worker(index) for index in range(settings.workers)]
        self._told_to_stop = False
        self._refusal: str | None = None
        """Why a worker could not begin with these settings."""

    def supervise(self) -> int:
        resource_tracker.ensure_running()  # a process of its own, which is not to ignore what workers ignore
        with _signals_waking(self._stop) as wake:
            try:
                while not self._told_to_stop:
                    self._start_those_due()
                    self._wait(wake)
                    self._take_note_of_the_dead()
            finally:
                well = self._end()
        if self._refusal is not None:
            raise ConfigurationError(self._refusal)
        return 0 if well else 1

    def _stop(self) -> None:
        self._told_to_stop = True

    def _start_those_due(self) -> None:
        for worker in self._workers:
            if worker.running is None and time.monotonic() >= worker.due:
                worker.running = self._started(worker.index)

    def _started(self, index: int) -> _Running:
        ours, its = self._context.Pipe()
        process = self._context.Process(
            target=_work, args=(self._settings, index, self._run, its), name=f"goldspan-worker-{index}"
        )
        # A terminal sends Ctrl-C to all processes, and each worker is told to stop by us.
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            process.start()
        finally:
            signal.signal(signal.SIGINT, before)
            its.close()
        return _Running(process, ours, time.monotonic())

    def _wait(self, wake: socket.socket) -> None:
        """Until a worker ended, one is due, or a signal came."""
        ends = [worker.running.process.sentinel for worker in self._workers if worker.running]
        due = [worker.due for worker in self._workers if not worker.running]
        connection.wait([wake, *ends], max(0.0, min(due) - time.monotonic()) if due else None)

    def _take_note_of_the_dead(self) -> None:
        """Have workers that ended of themselves started again, unless they could not begin in the first place."""
        for worker in self._workers:
            running = worker.running
            if running is None or running.process.is_alive() or self._told_to_stop:
                continue
            worker.running = None
            status, reason = running.ended()
            if reason is not None and worker.deaths == 0:
                self._refusal = reason
                self._stop()
                return
            lived = time.monotonic() - running.since
            worker.deaths = 1 if lived >= _LONG_LIFE else worker.deaths + 1
            wait = min(_LONGEST_WAIT, _FIRST_WAIT * 2 ** (worker.deaths - 1))
            worker.due = time.monotonic() + wait
            _log.error("worker %d ended (%s); it starts again in %g s", worker.index, reason or _how(status), wait)

    def _end(self) -> bool:
        """Tell all to stop, wait for as long as they may take, and kill those still there; whether all ended well."""
        there = [(worker.index, worker.running) for worker in self._workers if worker.running]
        for _, running in there:
            running.process.terminate()
        deadline = time.monotonic() + self._settings.drain_seconds + _MARGIN
        well = True
        for index, running in there:
            running.process.join(max(0.0, deadline - time.monotonic()))
            if running.process.is_alive():
                running.process.kill()
            status, reason = running.ended()
            if status not in (0, -signal.SIGTERM) and (reason is None or reason != self._refusal):
                well = False  # the signal: it may have been told before it began
                _log.error("worker %d did not end well (%s)", index, reason or _how(status))
        return well


def _how(status: int) -> str:
    if status >= 0:
        return f"exit status {status}"
    try:
        return signal.Signals(-status).name
    except ValueError:
        return f"signal {-status}"


@contextmanager
def _signals_waking(
    stop: Callable[[], None], wanted: Sequence[int] = (signal.SIGTERM, signal.SIGINT)
) -> Iterator[socket.socket]:
    """A socket that becomes readable when one of these signals came, after `stop` was called."""
    ours, its = socket.socketpair()

    def note(number: int, frame: FrameType | None) -> None:
        stop()
        with suppress(OSError):
            its.send(b"!")

    before = {number: signal.signal(number, note) for number in wanted}
    try:
        with ours, its:
            its.setblocking(False)
            yield ours
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


# --- inside a worker --------------------------------------------------------------------------------------------------


def _work(settings: Settings, index: int, run: Run, line: Connection) -> None:
    """What the process of a worker does. It leaves at once where the supervisor is gone: another may be there soon."""
    threading.Thread(target=_leave_with, args=(line,), name="goldspan-line", daemon=True).start()
    write_logs(settings.log_format, settings.log_level, worker=index)
    try:
        status = run(settings, index)
    except GoldspanError as error:
        line.send(str(error))
        status = WRONG_USE
    raise SystemExit(status)


def _leave_with(line: Connection) -> None:
    with suppress(EOFError, OSError):
        line.recv()
    os._exit(1)
