"""Fixtures of the gateway tests: the receivers of a worker, and a certificate."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from goldspan.gateway.receivers.http_server import TlsConfig
from support.gateway_receivers import OpenDoors, RunningReceivers


@pytest.fixture
def open_doors(tmp_path: Path) -> Iterator[OpenDoors]:
    """Opens receivers with these settings; closes all of them after the test."""
    opened: list[RunningReceivers] = []

    def open_(**settings: Any) -> RunningReceivers:
        receivers = RunningReceivers(tmp_path / f"journal-{len(opened)}.db", **settings)
        receivers.start()
        opened.append(receivers)
        return receivers

    yield open_
    for receivers in opened:
        for wire in receivers.wires:
            wire.close()  # does not wait for incomplete requests
        receivers.stop()


@pytest.fixture
def receivers(open_doors: OpenDoors) -> RunningReceivers:
    """The receivers of a worker with default limits."""
    return open_doors()


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> TlsConfig:
    """A self-signed certificate for localhost; for tests that need openssl."""
    folder = tmp_path_factory.mktemp("tls")
    tls = TlsConfig(folder / "cert.pem", folder / "key.pem")
    subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    files = ["-keyout", str(tls.key_file), "-out", str(tls.cert_file)]
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *subject, *files]
    subprocess.run(command, check=True, capture_output=True)
    return tls
