"""Runs the OpenTelemetry Collector of `make recipes` with a file of deploy/, as a process that a test can kill."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from recipes.environments import collector_program
from support.docs_examples import ROOT
from support.gateway_process import PATIENCE_S, eventually, free_port


@dataclass
class Collector:
    """A Collector that keeps its ports and its folder when it is killed and started again."""

    name: str
    """The file in deploy/, which is used as it is."""
    folder: Path
    settings: Mapping[str, Any]
    """What differs on this machine: addresses of others, and paths. It is merged into the file."""
    environment: Mapping[str, str] = field(default_factory=dict)
    http_port: int = field(default_factory=free_port)
    grpc_port: int = field(default_factory=free_port)

    @property
    def log(self) -> str:
        """Its output since the first start."""
        return (self.folder / "collector.log").read_text(encoding="utf-8", errors="replace")

    def start(self) -> None:
        """Start it, and wait until it accepts connections."""
        protocols = {"grpc": {"endpoint": self._at(self.grpc_port)}, "http": {"endpoint": self._at(self.http_port)}}
        here = {
            "receivers": {"otlp": {"protocols": protocols}},
            "extensions": {"file_storage/queue": {"directory": str(self.folder / "queue")}},
            # Two Collectors on one machine cannot both have the default port of the metrics.
            "service": {"telemetry": {"metrics": {"level": "none"}}},
        }
        configs = [
            f"file:{ROOT / 'deploy' / self.name}",
            f"yaml:{json.dumps(here)}",
            f"yaml:{json.dumps(self.settings)}",
        ]
        with (self.folder / "collector.log").open("ab") as log:
            self._process = subprocess.Popen(
                [str(collector_program()), *(f"--config={config}" for config in configs)],
                stdout=log,
                stderr=log,
                cwd=self.folder,
                env={**os.environ, "NO_PROXY": "*", **self.environment},
                start_new_session=True,
            )
        eventually(self._accepts, lambda: f"the Collector is not ready\n{self.log}")

    def kill(self) -> None:
        """Kill it, as the kernel does if memory runs out."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(PATIENCE_S)

    def stop(self) -> int:
        """Terminate it, wait until it has ended, and return its exit status."""
        self._process.terminate()
        return self._process.wait(PATIENCE_S)

    def _accepts(self) -> bool:
        assert self._process.poll() is None, f"the Collector has ended with {self._process.returncode}\n{self.log}"
        with suppress(OSError), socket.create_connection(("127.0.0.1", self.http_port), timeout=1):
            return True
        return False

    @staticmethod
    def _at(port: int) -> str:
        return f"127.0.0.1:{port}"


@contextmanager
def collecting(
    name: str, folder: Path, settings: Mapping[str, Any], environment: Mapping[str, str] | None = None
) -> Iterator[Collector]:
    """Yield a Collector that is ready. At the end of the block it is terminated, and must end without an error."""
    folder.mkdir()
    collector = Collector(name, folder, settings, environment or {})
    collector.start()
    try:
        yield collector
        assert collector.stop() == 0, collector.log
    finally:
        collector.kill()
