"""Decoding with each implementation of protobuf: its extension, and pure Python, which free-threaded Python runs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from google.protobuf.internal import api_implementation

from goldspan.otlp.decode_results import DecodeError
from goldspan.otlp.protobuf_signals import decode_signals
from otlp.payloads import logs_request, request

TESTS = Path(__file__).parents[1]
PROGRAM = (
    "import json; from google.protobuf.internal import api_implementation as used; "
    "from otlp.test_protobuf_errors import outcomes_of_damaged_requests as outcomes; "
    "print(json.dumps([used.Type(), outcomes()]))"
)


def outcomes_of_damaged_requests() -> list[str]:
    """Return what is decoded after each single byte was replaced by one that is never in UTF-8."""
    found = []
    losses: list[str] = []
    for made in (request("search", "book"), logs_request("search")):
        data = made.SerializeToString()
        for at in range(len(data)):
            losses.clear()
            try:
                batch = decode_signals(
                    data[:at] + b"\xff" + data[at + 1 :], lambda *loss: losses.append(": ".join(loss))
                )
            except DecodeError as error:
                found.append(f"{at}: {error}")
            else:
                read = [(record.name, dict(record.attributes), dict(record.resource)) for record in batch.records]
                found.append(f"{at}: {read}, {batch.rejected} rejected: {batch.reason}; {losses}")
    return found


def test_pure_python_protobuf_decodes_the_same_records_of_a_damaged_request() -> None:
    environment = {"PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION": "python", "PYTHONPATH": str(TESTS)}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    used, outcomes = json.loads(done.stdout)
    assert used == "python"
    assert any("rejected: a span is broken, or text in it is not UTF-8" in outcome for outcome in outcomes)
    if api_implementation.Type() != used:
        assert outcomes == outcomes_of_damaged_requests()
