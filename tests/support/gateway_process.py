"""`goldspan serve` as a process of its own, on ports and in a folder of its own."""

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
"""For what must happen sooner or later, also on a machine that has much else to do."""


@dataclass
class Gateway:
    """A gateway that can be killed, and started again on the same ports and the same folder."""

    folder: Path
    options: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    http_port: int = field(default_factory=lambda: free_port())
    grpc_port: int = 0
    """0: it does not speak gRPC."""

    @property
    def data(self) -> Path:
        return self.folder / "data"

    @property
    def process(self) -> int:
        """The id of its first process, and of the group of all of them."""
        return self._process.pid

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.http_port}"

    @property
    def log(self) -> str:
        """What it said, since it was started for the first time."""
        return (self.folder / "log").read_text(encoding="utf-8", errors="replace")

    def start(self, answers: str = "/readyz") -> None:
        """Start it, and wait until it answers there that all is well."""
        command = [
            *(sys.executable, "-m", "goldspan", "serve", "--data", str(self.data)),
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
        """End all its processes at once, as a machine does that runs out of memory."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(PATIENCE_S)

    def stop(self) -> int:
        """Ask it to end, and wait until it has; its exit status."""
        self._process.terminate()
        return self._process.wait(PATIENCE_S)

    def post(self, body: bytes, path: str = "/v1/traces", **headers: str) -> tuple[int, bytes]:
        """Post OTLP, as protobuf where nothing else is said; the status, and the body of the answer."""
        headers = {"Content-Type": "application/x-protobuf"} | {
            name.replace("_", "-"): value for name, value in headers.items()
        }
        return self._ask(urllib.request.Request(self.address + path, body, headers))

    def get(self, path: str) -> Any:
        """What the API answers, read from its JSON."""
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
    folder: Path, *options: str, grpc: bool = False, environment: Mapping[str, str] | None = None
) -> Iterator[Gateway]:
    """A gateway that is ready; at the end of the block it is asked to end, and must do so without an error."""
    gateway = Gateway(folder, options, environment or {}, grpc_port=free_port() if grpc else 0)
    try:
        gateway.start()
        yield gateway
        assert gateway.stop() == 0, gateway.log
        assert "Traceback" not in gateway.log, gateway.log
    finally:
        gateway.kill()


def eventually(holds: Callable[[], bool], complaint: Callable[[], str] | str, patience: float = PATIENCE_S) -> None:
    """Wait until something holds that must hold sooner or later."""
    until = time.monotonic() + patience
    while not holds():
        assert time.monotonic() < until, complaint if isinstance(complaint, str) else complaint()
        time.sleep(0.02)


def free_port() -> int:
    """A port on loopback that nobody listens on, below those that the system gives to clients; no port twice."""
    while True:
        port = random.randrange(20_000, 32_000)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            if port not in _given:
                _given.add(port)
                return port


_given: set[int] = set()
