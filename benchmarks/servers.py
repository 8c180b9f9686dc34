"""Runs OTLP/HTTP servers in separate processes, posts to them and measures their CPU time, on Linux."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import subprocess
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

CONNECTIONS = 8
"""Number of concurrent clients. Each posts its requests one after the other over one connection."""
TIMEOUT_SECONDS = 300.0
_POLL_SECONDS = 0.1
_IDLE_SECONDS = 2.0
"""Time for which a server must be idle: longer than goldspan waits for further spans before it scores a run."""
_IDLE_SHARE = 0.03
"""Maximum share of a CPU that an idle server uses."""


class NotServing(Exception):  # noqa: N818 - reported to the user
    """A server does not start, does not accept a request, or does not become idle."""


@dataclass(frozen=True, slots=True)
class Server:
    """A running server."""

    name: str
    port: int
    process: int

    def cpu_seconds(self) -> float:
        """Return the user and system CPU time of the process and its descendants since their start."""
        return sum(time.clock_gettime(_clock_of(process)) for process in _process_tree(self.process))

    def wait_until_done(self) -> tuple[float, float]:
        """Wait until the server is idle.

        Returns the start of the idle time, by `time.perf_counter`, and the CPU time used until then. Raises
        `NotServing` after a timeout.
        """
        until = time.perf_counter() + TIMEOUT_SECONDS
        seen: deque[tuple[float, float]] = deque()
        while True:
            now, used = time.perf_counter(), self.cpu_seconds()
            seen.append((now, used))
            if now - seen[0][0] >= _IDLE_SECONDS:
                if used - seen[0][1] <= _IDLE_SHARE * _IDLE_SECONDS:
                    return seen[0]
                seen.popleft()
            if now > until:
                raise NotServing(f"{self.name} does not become idle")
            time.sleep(_POLL_SECONDS)


@contextmanager
def running(
    name: str,
    command: Sequence[str | Path],
    port: int,
    *,
    log: Path,
    cores: set[int] | None = None,
) -> Iterator[Server]:
    """Run a server on these cores until the end of the block. Raises `NotServing` if it does not respond."""
    own_cores = os.sched_getaffinity(0)
    with log.open("wb") as file:
        os.sched_setaffinity(0, cores or own_cores)  # the new process inherits it
        try:
            process = subprocess.Popen(command, stdout=file, stderr=file, start_new_session=True)
        finally:
            os.sched_setaffinity(0, own_cores)
    try:
        _wait_for_response(name, process, port, log)
        yield Server(name, port, process.pid)
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def free_port() -> int:
    """Return a free port on loopback, below the range that the system assigns to clients."""
    while True:
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", random.randrange(20_000, 32_000)))
            return int(probe.getsockname()[1])


def post(port: int, bodies: Sequence[bytes], connections: int = CONNECTIONS) -> int:
    """Post all bodies to `/v1/traces`, with retries. Returns the number of retries. Raises `NotServing`."""
    pending = iter(bodies)
    lock = threading.Lock()
    retries: list[int] = []
    failed: list[str] = []

    def next_body() -> bytes | None:
        with lock:
            return next(pending, None)

    def client() -> None:
        try:
            with socket.create_connection(("127.0.0.1", port), TIMEOUT_SECONDS) as connection:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                while not failed and (body := next_body()) is not None:
                    retries.append(_post_one(connection, body))
        except (OSError, NotServing) as error:
            failed.append(str(error) or type(error).__name__)

    threads = [threading.Thread(target=client) for _ in range(connections)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise NotServing(f"the server does not accept a request: {failed[0]}")
    return sum(retries)


def _post_one(connection: socket.socket, body: bytes) -> int:
    head = (
        b"POST /v1/traces HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/x-protobuf\r\n"
        b"Content-Length: %d\r\n\r\n" % len(body)
    )
    retries = 0
    while True:
        connection.sendall(head)
        connection.sendall(body)
        status = _read_status(connection)
        if status == 200:
            return retries
        if status not in (429, 503):
            raise NotServing(f"it responds with {status}")
        retries += 1
        time.sleep(0.05)


def _read_status(connection: socket.socket) -> int:
    """Read a response to its end and return its status."""
    received = b""
    while b"\r\n\r\n" not in received:
        received += _receive(connection)
    head, _, rest = received.partition(b"\r\n\r\n")
    lines = head.lower().split(b"\r\n")
    length = next((int(line[15:]) for line in lines if line.startswith(b"content-length:")), 0)
    while len(rest) < length:
        rest += _receive(connection)
    return int(lines[0].split()[1])


def _receive(connection: socket.socket) -> bytes:
    chunk = connection.recv(65_536)
    if not chunk:
        raise NotServing("it closed the connection")
    return chunk


def _wait_for_response(name: str, process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    until = time.monotonic() + 60
    while True:
        try:
            post(port, [b""], connections=1)
        except NotServing:
            if process.poll() is None and time.monotonic() < until:
                time.sleep(0.1)
                continue
            logged = log.read_text(encoding="utf-8", errors="replace").strip()
            raise NotServing(
                f"{name} does not start: {logged.splitlines()[-1] if logged else 'its log is empty'}"
            ) from None
        return


def _process_tree(process: int) -> Iterator[int]:
    """Yield the ids of a process and of its running descendants."""
    yield process
    for task in Path(f"/proc/{process}/task").iterdir():
        for child in (task / "children").read_text().split():
            yield from _process_tree(int(child))


def _clock_of(process: int) -> int:
    """Return the id of the CPU-time clock of another process. It has a resolution of nanoseconds, not hundredths.

    Computed as in `clock_getcpuclockid(3)` on Linux. It includes all threads, also those that ended.
    """
    return (~process << 3) | 2
