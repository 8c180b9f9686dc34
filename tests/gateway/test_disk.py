"""A disk without room: clients are told to come again, and nothing that was acknowledged is lost."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import pytest

from gateway_back_ends import back_end
from gateway_runs import GOLDENS, request
from gateway_serving import Gateway, eventually, serving

MOST = 400
"""Requests of about 100 kB after which a disk without room must have been noticed."""


@pytest.mark.skipif(sys.platform != "linux", reason="for want of Linux, where files of another process can be bounded")
def test_a_disk_without_room_is_told_to_clients_and_when_there_is_room_again_all_goes_on(tmp_path: Path) -> None:
    (tmp_path / "goldens.yaml").write_text(GOLDENS)
    draw = random.Random(1)
    runs = []
    bodies = []
    with (
        back_end() as behind,
        serving(tmp_path, "--goldens", "goldens.yaml", "--grace", "0.2", "--forward", behind.address) as gateway,
    ):

        def post() -> int:
            made = request(len(runs), draw, filler=30_000)
            status, _ = gateway.post(made.bodies[0])
            if status == 200:
                runs.append(made.run_id)
                bodies.append(made.bodies[0])
            return status

        assert post() == 200
        _bound_files(gateway, 4096)
        assert next(status for _ in range(MOST) if (status := post()) != 200) == 503
        assert gateway.post(request(0, draw).bodies[0])[0] == 503
        _bound_files(gateway, None)
        eventually(lambda: post() == 200, lambda: gateway.log)
        eventually(lambda: {*bodies} <= {*behind.bodies["/v1/traces"]}, lambda: gateway.log)
        eventually(lambda: {*runs} <= _passed(gateway), lambda: gateway.log)


def _bound_files(gateway: Gateway, size: int | None) -> None:
    """Let no file of the gateway grow beyond so many bytes: what it writes there fails, as on a full disk."""
    import resource  # there is none on Windows

    bound = resource.RLIM_INFINITY if size is None else size
    resource.prlimit(gateway.process, resource.RLIMIT_FSIZE, (bound, resource.RLIM_INFINITY))


def _passed(gateway: Gateway) -> set[str]:
    return {run["run_id"] for run in gateway.get("/api/v1/runs?verdict=pass&limit=1000")["runs"]}
