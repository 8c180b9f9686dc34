"""`goldspan view` as a process, on a real socket."""

from __future__ import annotations

import http.client
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from goldspan import Goldens, Run, evaluate
from goldspan.store import open_store
from support.command_line import Goldspan
from support.gateway_process import PATIENCE_S, eventually
from support.page_server import View, store_in, viewing


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a store and a golden file in it."""
    folder = tmp_path_factory.mktemp("data")
    store_in(folder)
    return folder


@pytest.fixture(scope="module")
def view(folder: Path) -> Iterator[View]:
    with viewing(folder, folder / "goldspan.db", "--goldens", folder / "goldens.yaml") as view:
        yield view


_WITHOUT = """
import sys

class Missing:
    def find_spec(self, name, *more):
        if name == {package!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Missing())
sys.argv = ["goldspan", "view", {folder!r}, "--no-open"]
from goldspan.cli.app import run
sys.exit(run())
"""
"""The command on a machine where a package is not installed."""


def ask(view: View, path: str = "/", host: str | None = None, method: str = "GET") -> tuple[int, str]:
    connection = http.client.HTTPConnection(urlsplit(view.address).netloc, timeout=PATIENCE_S)
    try:
        connection.request(method, path, headers={} if host is None else {"Host": host})
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def run_failing_view(folder: Path, *arguments: object) -> tuple[int, str]:
    """The exit status and output of a command that cannot start to serve."""
    command = [sys.executable, "-m", "goldspan", "view", *map(str, arguments), "--no-open"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    return done.returncode, done.stderr


def test_view_prints_the_address_of_the_page_and_serves_it(view: View) -> None:
    assert view.address in view.said
    assert re.search(r"goldspan\.db is shown at http://127\.0\.0\.1:\d+/ +\(Ctrl-C ends it\)", view.said)
    status, body = ask(view)
    assert (status, "<h1>Runs</h1>" in body) == (200, True)
    assert ask(view, "/goldens/nobody-asks")[0] == 200
    assert ask(view, "/api/v1/runs")[0] == ask(view, "/metrics")[0] == ask(view, "/v1/traces")[0] == 404
    assert "Log out" not in body


@pytest.mark.e2e
def test_view_accepts_the_folder_that_contains_the_store(folder: Path) -> None:
    with viewing(folder, folder) as other:
        assert ask(other, "/goldens/refund")[0] == 200
        assert ask(other, "/goldens/nobody-asks")[0] == 404  # the page does not know the goldens in use


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "localhost:4319", "[::1]:4319"])
def test_requests_with_a_loopback_host_are_accepted(view: View, host: str) -> None:
    assert ask(view, host=host)[0] == 200


@pytest.mark.parametrize("host", ["evil.example", "localhost.evil.example", "127.0.0.1.nip.io:4319", "10.0.0.1", ""])
def test_requests_with_any_other_host_are_refused(view: View, host: str) -> None:
    for path in ("/", "/news", "/assets/page.css", "/nowhere"):
        status, body = ask(view, path, host)
        assert status == 400
        assert "refund" not in body


def test_an_unknown_path_returns_an_error_page(view: View) -> None:
    status, body = ask(view, "/nowhere")
    assert (status, "This page does not exist." in body) == (404, True)


def test_view_listens_only_on_the_loopback_address(view: View) -> None:
    port = int(urlsplit(view.address).port or 0)
    with socket.socket() as other:
        other.settimeout(PATIENCE_S)
        with pytest.raises(OSError, match="refused"):
            other.connect(("127.0.0.2", port))


@pytest.mark.e2e
def test_a_port_that_is_in_use_is_reported(folder: Path, view: View) -> None:
    port = urlsplit(view.address).port
    status, said = run_failing_view(folder, folder, "--port", port)
    assert status == 2
    assert re.search(rf"port {port} cannot be used \(.*in use.*\); select another one", " ".join(said.split()))
    assert "Traceback" not in said


@pytest.mark.e2e
@pytest.mark.parametrize("name", ["nothing.db", "empty-folder"])
def test_a_missing_store_is_reported_and_not_created(tmp_path: Path, name: str) -> None:
    (tmp_path / "empty-folder").mkdir()
    status, said = run_failing_view(tmp_path, tmp_path / name)
    assert (status, "no such store" in " ".join(said.split())) == (2, True)
    assert not (tmp_path / "nothing.db").exists()


def test_a_file_that_is_not_a_store_is_reported(tmp_path: Path, goldspan: Goldspan) -> None:
    (tmp_path / "notes.db").write_text("not a store, but long enough to be read as one\n" * 200)
    shown = goldspan("view", tmp_path / "notes.db", "--no-open")
    assert shown.status == 2
    assert "notes.db" in shown.err
    assert "Traceback" not in shown.err


@pytest.mark.e2e
def test_an_invalid_golden_file_is_reported(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "goldens.yaml").write_text("goldens: 7")
    status, said = run_failing_view(tmp_path, folder, "--goldens", tmp_path / "goldens.yaml")
    assert (status, "goldens.yaml" in said, "Traceback" in said) == (2, True, False)


@pytest.mark.e2e
def test_view_shows_runs_that_another_process_stores(tmp_path: Path) -> None:
    store_in(tmp_path)
    with viewing(tmp_path, tmp_path) as other, open_store(tmp_path / "goldspan.db") as store:
        assert "told meanwhile" not in ask(other)[1]
        store.submit(evaluate(Run("new", input="told meanwhile"), Goldens([])))
        assert "told meanwhile" in ask(other)[1]


@pytest.mark.e2e
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_view_ends_on_a_signal_while_a_stream_is_open(folder: Path, number: int) -> None:
    with viewing(folder, folder) as other:
        port = int(urlsplit(other.address).port or 0)
        with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as listener:
            listener.sendall(b"GET /news HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert listener.recv(12) == b"HTTP/1.1 200"
            status = other.interrupt(number)
        assert status == (130 if number == signal.SIGINT else -signal.SIGTERM)
        assert "Traceback" not in other.said


@pytest.mark.e2e
def test_view_opens_the_browser_with_the_open_option(folder: Path, tmp_path: Path) -> None:
    opened = tmp_path / "opened"
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" > {opened}\n')
    browser.chmod(0o755)
    command = [sys.executable, "-m", "goldspan", "view", str(folder), "--port", "0", "--open"]
    environment = {**os.environ, "BROWSER": f"{browser} %s"}
    process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE)
    try:
        eventually(lambda: opened.exists() and opened.read_text() != "", "no browser was opened")
        assert opened.read_text().startswith("http://127.0.0.1:")
    finally:
        process.terminate()
        said = process.communicate(timeout=PATIENCE_S)[1]
    assert opened.read_text().strip().encode() in said


@pytest.mark.e2e
@pytest.mark.parametrize("package", ["jinja2", "starlette", "uvicorn"])
def test_view_without_its_extra_names_the_extra_to_install(folder: Path, package: str) -> None:
    code = _WITHOUT.format(package=package, folder=str(folder))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert (done.returncode, "pip install 'goldspan[web]'" in " ".join(done.stderr.split())) == (2, True)
