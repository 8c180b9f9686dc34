"""Tests of the supervisor with real processes: start, kill, restart and shutdown."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from goldspan.errors import ConfigurationError
from goldspan.gateway import supervisor
from goldspan.gateway.settings.gateway_settings import GatewaySettings
from goldspan.gateway.supervisor import lock_data_folder

pytestmark = pytest.mark.skipif(
    not hasattr(socket, "SO_REUSEPORT"), reason="where only one process can listen on a port"
)

PROGRAM = Path(__file__).parents[1] / "support" / "supervised_program.py"

T = TypeVar("T")


class Gateway:
    """Runs the program with its own data folder."""

    def __init__(self, data: Path, **settings: object) -> None:
        self.data = data
        self._settings = {"data": str(data), "http_port": 0, "grpc_port": 0, "workers": 2, **settings}
        self.process: subprocess.Popen[str]

    def start(self) -> Gateway:
        self.process = subprocess.Popen(
            [sys.executable, str(PROGRAM), json.dumps(self._settings)], stderr=subprocess.PIPE, text=True
        )
        return self

    def worker_info(self, index: int, begun: int = 0) -> dict[str, Any]:
        """Returns what a worker wrote at this start: its process id and ports."""
        path = self.data / f"worker-{index}-{begun}"
        until(path.exists)
        return dict(json.loads(path.read_text()))

    def stop_with(self, number: int = signal.SIGTERM) -> tuple[int, str]:
        """Sends a signal and returns the exit status and the log."""
        self.process.send_signal(number)
        return self.wait_for_end()

    def wait_for_end(self) -> tuple[int, str]:
        _, logged = self.process.communicate(timeout=120)
        return self.process.returncode, logged


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Callable[..., Gateway]]:
    made: list[Gateway] = []

    def make(**settings: object) -> Gateway:
        data = tmp_path / "data"
        data.mkdir(exist_ok=True)
        made.append(Gateway(data, **settings))
        return made[-1].start()

    yield make
    for each in made:
        each.process.kill()
        each.process.communicate()


StartGateway = Callable[..., Gateway]


def until(true: Callable[[], object]) -> None:
    deadline = time.monotonic() + 120
    while not true():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


def is_gone(pid: int) -> bool:
    """Whether a process has ended, even if nobody waited for it."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return False  # it has just ended, or the system has no /proc


# --- several ----------------------------------------------------------------------------------------------------------


@pytest.mark.e2e
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_workers_share_one_free_port_and_exit_cleanly_on_a_signal(gateway: StartGateway, number: int) -> None:
    program = gateway(workers=3)
    infos = [program.worker_info(index) for index in range(3)]
    assert len({each["port"] for each in infos}) == 1
    assert len({each["pid"] for each in infos}) == 3
    assert {each["grpc_port"] for each in infos} == {0}
    socket.create_connection(("127.0.0.1", infos[0]["port"])).close()
    status, logged = program.stop_with(number)
    assert (status, logged) == (0, "")
    assert all(is_gone(each["pid"]) for each in infos)


@pytest.mark.e2e
def test_a_killed_worker_is_restarted_on_the_same_port(gateway: StartGateway) -> None:
    program = gateway()
    first, other = program.worker_info(0), program.worker_info(1)
    os.kill(first["pid"], signal.SIGKILL)
    again = program.worker_info(0, 1)
    assert again["port"] == first["port"]
    assert not is_gone(other["pid"])
    os.kill(again["pid"], signal.SIGKILL)
    program.worker_info(0, 2)
    status, logged = program.stop_with()
    assert status == 0
    assert "worker 0 ended (SIGKILL); restarting it in 0.5 s" in logged
    assert "worker 0 ended (SIGKILL); restarting it in 1 s" in logged


@pytest.mark.e2e
def test_the_workers_end_when_the_supervisor_is_killed(gateway: StartGateway) -> None:
    program = gateway()
    pids = [program.worker_info(index)["pid"] for index in range(2)]
    status, _ = program.stop_with(signal.SIGKILL)
    assert status == -signal.SIGKILL
    until(lambda: all(map(is_gone, pids)))
    with lock_data_folder(program.data):
        pass  # another gateway may start


@pytest.mark.e2e
def test_a_worker_that_exceeds_drain_seconds_is_killed(gateway: StartGateway) -> None:
    program = gateway(drain_seconds=0)
    pids = [program.worker_info(index)["pid"] for index in range(2)]
    (program.data / "hang").touch()
    status, logged = program.stop_with()
    assert status == 1
    assert "worker 1 did not shut down in order (SIGKILL)" in logged
    assert all(map(is_gone, pids))


@pytest.mark.e2e
def test_the_exit_status_is_1_if_a_worker_fails_during_shutdown(gateway: StartGateway) -> None:
    program = gateway()
    program.worker_info(0)
    program.worker_info(1)
    (program.data / "fail").touch()
    status, logged = program.stop_with()
    assert status == 1
    assert "worker 0 did not shut down in order (exit status 3)" in logged


@pytest.mark.e2e
def test_a_settings_error_of_a_worker_is_printed_once_and_ends_the_gateway(
    gateway: StartGateway, tmp_path: Path
) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "refuse").write_text("0")
    status, logged = gateway().wait_for_end()
    assert status == 2
    assert logged == "error: there is no metric 'wishes'\n"


@pytest.mark.e2e
def test_a_settings_error_of_a_restarted_worker_causes_another_restart(gateway: StartGateway) -> None:
    program = gateway()
    first = program.worker_info(0)
    program.worker_info(1)
    (program.data / "refuse").write_text("1")
    os.kill(first["pid"], signal.SIGKILL)
    until((program.data / "refused").exists)
    (program.data / "refuse").unlink()
    program.worker_info(0, 1)
    status, logged = program.stop_with()
    assert status == 0
    assert "worker 0 ended (there is no metric 'wishes'); restarting it in 1 s" in logged


@pytest.mark.e2e
def test_an_occupied_port_is_refused_before_workers_start(gateway: StartGateway) -> None:
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)  # without which the ports would be shared silently
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        status, logged = gateway(http_port=0, grpc_port=port).wait_for_end()
    assert status == 2
    assert logged == f"error: grpc_port: cannot listen on 127.0.0.1 port {port}: address already in use\n"


def test_several_workers_are_refused_without_so_reuseport(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(socket, "SO_REUSEPORT")
    with pytest.raises(ConfigurationError, match="workers: this system lets only one process listen on a port"):
        supervisor.supervise(GatewaySettings(data=tmp_path / "data", workers=2), _unused)


def _unused(settings: GatewaySettings, index: int) -> int:
    raise AssertionError


# --- one --------------------------------------------------------------------------------------------------------------


@pytest.mark.e2e
def test_a_single_worker_runs_in_the_main_process(gateway: StartGateway) -> None:
    program = gateway(workers=1)
    assert program.worker_info(0)["pid"] == program.process.pid
    assert program.stop_with() == (0, "")


@pytest.mark.e2e
def test_a_second_gateway_on_the_same_folder_is_refused(gateway: StartGateway) -> None:
    first = gateway(workers=1)
    first.worker_info(0)
    status, logged = gateway(workers=1).wait_for_end()
    assert status == 2
    message = f"another gateway uses {first.data}: stop it, or choose another folder with --data"
    assert logged == f"error: {message}\n"
    assert first.stop_with()[0] == 0
    with lock_data_folder(first.data):
        pass


def test_the_data_folder_is_created_private_and_locked(tmp_path: Path) -> None:
    data = tmp_path / "deep" / "data"
    with lock_data_folder(data):
        assert data.stat().st_mode & 0o077 == 0
        with pytest.raises(ConfigurationError, match="another gateway uses"), lock_data_folder(data):
            pass


def test_an_unusable_data_folder_is_named_in_the_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with (
        pytest.raises(ConfigurationError, match=r"file cannot be created: file exists"),
        lock_data_folder(tmp_path / "file"),
    ):
        pass
    (tmp_path / "data" / "lock").mkdir(parents=True)
    with pytest.raises(ConfigurationError, match=r"lock cannot be used: "), lock_data_folder(tmp_path / "data"):
        pass
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "lock").write_bytes(b"no database at all" * 100)
    with pytest.raises(ConfigurationError, match=r"lock cannot be used: "), lock_data_folder(tmp_path / "other"):
        pass


def test_the_exit_of_a_process_is_described_by_signal_name_or_status() -> None:
    assert supervisor._describe_exit(-signal.SIGSEGV) == "SIGSEGV"
    assert supervisor._describe_exit(-500) == "signal 500"
    assert supervisor._describe_exit(0) == "exit status 0"
