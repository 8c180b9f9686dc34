"""Runs `goldspan serve` as a process with its own ports and folder."""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PATIENCE_S = 120.0
"""The longest wait for what must happen, also on a busy machine."""


@dataclass
class Gateway:
    """A gateway that a test can kill and restart on the same ports and with the same folder."""

    folder: Path
    options: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    http_port: int = field(default_factory=lambda: free_port())
    grpc_port: int = 0
    """0 disables gRPC."""
    python: str = sys.executable
    """The interpreter that runs it."""

    @property
    def data(self) -> Path:
        return self.folder / "data"

    @property
    def process(self) -> int:
        """The id of its first process, which is the id of the process group."""
        return self._process.pid

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.http_port}"

    @property
    def log(self) -> str:
        """Its output since the first start."""
        return (self.folder / "log").read_text(encoding="utf-8", errors="replace")

    def start(self, answers: str = "/readyz") -> None:
        """Start it, and wait until the path `answers` returns status 200."""
        command = [
            *(self.python, "-m", "goldspan", "serve", "--data", str(self.data)),
            *("--http-port", str(self.http_port), "--grpc-port", str(self.grpc_port), *self.options),
        ]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                command,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                env={**os.environ, "GOLDSPAN_STRICT": "0", **self.environment},
                start_new_session=True,
            )
        eventually(lambda: self._is_well(answers), lambda: f"the gateway is not ready\n{self.log}")

    def kill(self) -> None:
        """Kill all its processes at once, as the kernel does if memory runs out."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(PATIENCE_S)

    def stop(self) -> int:
        """Terminate it, wait until it has ended, and return its exit status."""
        self._process.terminate()
        return self._process.wait(PATIENCE_S)

    def post(self, body: bytes, path: str = "/v1/traces", **headers: str) -> tuple[int, bytes]:
        """Post OTLP, by default as protobuf, and return the status and the body of the answer."""
        headers = {"Content-Type": "application/x-protobuf"} | {
            name.replace("_", "-"): value for name, value in headers.items()
        }
        return self._ask(urllib.request.Request(self.address + path, body, headers))

    def get(self, path: str) -> Any:
        """Return the parsed JSON of the API's answer."""
        status, body = self._ask(urllib.request.Request(self.address + path))
        assert status == 200, body
        return json.loads(body)

    def _ask(self, request: urllib.request.Request) -> tuple[int, bytes]:
        try:
            with _directly.open(request, timeout=PATIENCE_S) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            return error.code, error.read()

    def _is_well(self, path: str) -> bool:
        assert self._process.poll() is None, f"the gateway has ended with {self._process.returncode}\n{self.log}"
        try:
            return self._ask(urllib.request.Request(self.address + path))[0] == 200
        except OSError:
            return False


_directly = urllib.request.build_opener(urllib.request.ProxyHandler({}))


@contextmanager
def serving(
    folder: Path,
    *options: str,
    grpc: bool = False,
    environment: Mapping[str, str] | None = None,
    python: str = sys.executable,
) -> Iterator[Gateway]:
    """Yield a gateway that is ready. At the end of the block it is terminated, and must end without an error."""
    gateway = Gateway(folder, options, environment or {}, grpc_port=free_port() if grpc else 0, python=python)
    try:
        gateway.start()
        yield gateway
        assert gateway.stop() == 0, gateway.log
        assert "Traceback" not in gateway.log, gateway.log
    finally:
        gateway.kill()


def eventually(holds: Callable[[], bool], complaint: Callable[[], str] | str, patience: float = PATIENCE_S) -> None:
    """Wait until a condition holds; fail with `complaint` after `patience` seconds."""
    until = time.monotonic() + patience
    while not holds():
        assert time.monotonic() < until, complaint if isinstance(complaint, str) else complaint()
        time.sleep(0.02)


def free_port() -> int:
    """Return a free port on loopback, below the system's ephemeral ports; no port twice."""
    while True:
        port = random.randrange(20_000, 32_000)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            if port not in _allocated:
                _allocated.add(port)
                return port


_allocated: set[int] = set()
