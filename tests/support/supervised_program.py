"""Supervises workers that only report their start: `gateway/test_supervisor.py` runs it as a program."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import threading
import time
from pathlib import Path

from goldspan.errors import ConfigurationError, GoldspanError
from goldspan.gateway import supervisor
from goldspan.gateway.settings.gateway_settings import GatewaySettings


def main() -> int:
    """Run `supervised_program.py SETTINGS`, with the settings as JSON; print errors as the command line does."""
    supervisor._KILL_MARGIN_SECONDS = 1.0  # a worker that hangs here never ends by itself
    try:
        return supervisor.supervise(GatewaySettings(**json.loads(sys.argv[1])), work)
    except GoldspanError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def work(settings: GatewaySettings, index: int) -> int:
    """Listen until SIGTERM, as a worker does. Files in the data folder request other behaviour."""
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    folder = settings.data
    begun = len(list(folder.glob(f"worker-{index}-*")))
    if (folder / "refuse").exists() and begun >= int((folder / "refuse").read_text()):
        (folder / "refused").touch()
        raise ConfigurationError("there is no metric 'wishes'")
    with socket.socket() as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listening.bind((settings.host, settings.http_port))
        listening.listen()
        said = {"pid": os.getpid(), "port": listening.getsockname()[1], "grpc_port": settings.grpc_port}
        _write(folder / f"worker-{index}-{begun}", json.dumps(said))
        stop.wait()
    while (folder / "hang").exists():
        time.sleep(0.01)
    return 3 if (folder / "fail").exists() else 0


def _write(path: Path, text: str) -> None:
    beside = path.with_name(f"new-{path.name}")
    beside.write_text(text)
    os.replace(beside, path)


if __name__ == "__main__":
    sys.exit(main())
