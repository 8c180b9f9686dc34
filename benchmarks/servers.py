"""Servers that take OTLP over HTTP, each in processes of its own, and what they use of the processor. For Linux."""

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
"""Clients that post at the same time, each over one connection that stays open and one request after the other."""
PATIENCE_S = 300.0
_GLANCE_S = 0.1
_REST_S = 2.0
"""For so long it must have been at rest: longer than goldspan waits for further spans before it scores a run."""
_AT_REST = 0.03
"""A server that used no more than this share of a processor in that time had nothing to do but to look at the clock."""


class NotServing(Exception):  # noqa: N818 - told to the person, not a fault of the program
    """A server that does not come up, does not take what is posted, or does not get done with it."""


@dataclass(frozen=True, slots=True)
class Server:
    """A server that runs, and has answered."""

    name: str
    port: int
    process: int

    def cpu_seconds(self) -> float:
        """Processor time of the process and its children since they were started, in the kernel and outside of it."""
        return sum(time.clock_gettime(_clock_of(process)) for process in _family(self.process))

    def wait_until_done(self) -> tuple[float, float]:
        """Wait until there is nothing left to do.

        Since when that is so, by `time.perf_counter`, and the processor time that was used until then. Raises
        `NotServing`.
        """
        until = time.perf_counter() + PATIENCE_S
        seen: deque[tuple[float, float]] = deque()
        while True:
            now, used = time.perf_counter(), self.cpu_seconds()
            seen.append((now, used))
            if now - seen[0][0] >= _REST_S:
                if used - seen[0][1] <= _AT_REST * _REST_S:
                    return seen[0]
                seen.popleft()
            if now > until:
                raise NotServing(f"{self.name} does not come to rest")
            time.sleep(_GLANCE_S)


@contextmanager
def running(
    name: str,
    command: Sequence[str | Path],
    port: int,
    *,
    log: Path,
    cores: set[int] | None = None,
) -> Iterator[Server]:
    """A server from when it answers to the end of the block, on these cores only. Raises `NotServing`."""
    mine = os.sched_getaffinity(0)
    with log.open("wb") as file:
        os.sched_setaffinity(0, cores or mine)  # what is started now inherits it
        try:
            process = subprocess.Popen(command, stdout=file, stderr=file, start_new_session=True)
        finally:
            os.sched_setaffinity(0, mine)
    try:
        _wait_for_answer(name, process, port, log)
        yield Server(name, port, process.pid)
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def free_port() -> int:
    """A port on loopback that nobody listens on, below those that the system gives to clients."""
    while True:
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", random.randrange(20_000, 32_000)))
            return int(probe.getsockname()[1])


def post(port: int, bodies: Sequence[bytes], connections: int = CONNECTIONS) -> int:
    """Post all of them to `/v1/traces`, again where the server asks for that; how often it did. Raises `NotServing`."""
    waiting = iter(bodies)
    lock = threading.Lock()
    again: list[int] = []
    failed: list[str] = []

    def take() -> bytes | None:
        with lock:
            return next(waiting, None)

    def client() -> None:
        try:
            with socket.create_connection(("127.0.0.1", port), PATIENCE_S) as connection:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                while not failed and (body := take()) is not None:
                    again.append(_post_one(connection, body))
        except (OSError, NotServing) as error:
            failed.append(str(error) or type(error).__name__)

    threads = [threading.Thread(target=client) for _ in range(connections)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise NotServing(f"the server does not take what is posted: {failed[0]}")
    return sum(again)


def _post_one(connection: socket.socket, body: bytes) -> int:
    head = (
        b"POST /v1/traces HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/x-protobuf\r\n"
        b"Content-Length: %d\r\n\r\n" % len(body)
    )
    again = 0
    while True:
        connection.sendall(head)
        connection.sendall(body)
        status = _answered(connection)
        if status == 200:
            return again
        if status not in (429, 503):
            raise NotServing(f"it answers {status}")
        again += 1
        time.sleep(0.05)


def _answered(connection: socket.socket) -> int:
    """The status of the answer, which is read to its end."""
    came = b""
    while b"\r\n\r\n" not in came:
        came += _received(connection)
    head, _, rest = came.partition(b"\r\n\r\n")
    lines = head.lower().split(b"\r\n")
    length = next((int(line[15:]) for line in lines if line.startswith(b"content-length:")), 0)
    while len(rest) < length:
        rest += _received(connection)
    return int(lines[0].split()[1])


def _received(connection: socket.socket) -> bytes:
    piece = connection.recv(65_536)
    if not piece:
        raise NotServing("it hangs up")
    return piece


def _wait_for_answer(name: str, process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    until = time.monotonic() + 60
    while True:
        try:
            post(port, [b""], connections=1)
        except NotServing:
            if process.poll() is None and time.monotonic() < until:
                time.sleep(0.1)
                continue
            said = log.read_text(encoding="utf-8", errors="replace").strip()
            raise NotServing(
                f"{name} does not come up: {said.splitlines()[-1] if said else 'it says nothing'}"
            ) from None
        return


def _family(process: int) -> Iterator[int]:
    """A process and all that it started, and they, as long as they run."""
    yield process
    for task in Path(f"/proc/{process}/task").iterdir():
        for child in (task / "children").read_text().split():
            yield from _family(int(child))


def _clock_of(process: int) -> int:
    """The clock of the processor time of another process, in nanoseconds where /proc/PID/stat counts hundredths.

    The number is what `clock_getcpuclockid(3)` makes of a process id on Linux, with all its threads, ended ones too.
    """
    return (~process << 3) | 2
