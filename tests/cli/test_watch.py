"""`goldspan watch` with a running gateway, and with servers that are not one."""

from __future__ import annotations

import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from functools import partial
from http.server import BaseHTTPRequestHandler, HTTPServer
from io import StringIO
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

from goldspan import semconv
from goldspan.cli import api_client, live_feed
from goldspan.cli.api_client import GatewayUnavailableError
from goldspan.cli.app import run
from goldspan.cli.console import ResultsConsole
from goldspan.store import RunFilter
from support.gateway_process import Gateway, eventually, free_port, serving
from support.interrupts import unmeasured

NOT_HERE = "Windows has no pseudo-terminals, and no Ctrl-C for one process"
fcntl, pty, termios = (pytest.importorskip(name, reason=NOT_HERE) for name in ("fcntl", "pty", "termios"))

GOLDENS = """
goldens:
  - {id: trip, input: Book a trip, tools: [search, book], threshold: 1}
"""
QUICK = ("--goldens", "goldens.yaml", "--grace", "0.1", "--idle", "1")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "goldens.yaml").write_text(GOLDENS)
    return tmp_path


def send(gateway: Gateway, *tools: str, asked: str = "Book a trip", agent: str = "helper", token: str = "") -> None:
    """Export the spans of one agent request over OTLP."""
    headers = {"authorization": f"Bearer {token}"} if token else {}
    provider = TracerProvider(resource=Resource({"service.name": "shop"}), shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter(gateway.address + "/v1/traces", headers=headers)))
    tracer = provider.get_tracer("agents")
    messages = json.dumps([{"role": "user", "content": asked}])
    of_agent = {semconv.OPERATION: semconv.INVOKE_AGENT, semconv.AGENT_NAME: agent, semconv.INPUT_MESSAGES: messages}
    with tracer.start_as_current_span(f"invoke_agent {agent}", attributes=of_agent):
        for name in tools:
            of_tool = {semconv.OPERATION: semconv.EXECUTE_TOOL, semconv.TOOL_NAME: name}
            tracer.start_span(f"execute_tool {name}", attributes=of_tool).end()
    provider.shutdown()


def scored(gateway: Gateway, number: int) -> list[dict[str, Any]]:
    """The runs of a gateway, once it has this number of them."""
    eventually(lambda: len(gateway.get("/api/v1/runs")["runs"]) == number, lambda: gateway.log)
    runs: list[dict[str, Any]] = gateway.get("/api/v1/runs")["runs"]
    return runs


class WatchProcess:
    """The command in a subprocess, with its output so far."""

    def __init__(self, folder: Path, *arguments: str, **environment: str) -> None:
        self._out, self._err = folder / "out", folder / "err"
        clean = {name: value for name, value in unmeasured().items() if not name.startswith("GOLDSPAN_")}
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "goldspan", "watch", *arguments],
                stdout=out,
                stderr=err,
                env={**clean, "PYTHONUTF8": "1", **environment},
            )

    @property
    def out(self) -> str:
        return self._out.read_text(encoding="utf-8")

    @property
    def err(self) -> str:
        return self._err.read_text(encoding="utf-8")

    def wait_for_output(self, *texts: str) -> None:
        """Wait until the output contains all these texts."""
        eventually(lambda: self._has_ended() or all(text in self.out + self.err for text in texts), self._all_output)
        assert not self._has_ended(), self._all_output()

    def interrupt(self) -> int:
        """Send SIGINT; return the exit status."""
        self._process.send_signal(signal.SIGINT)
        return self._process.wait(60)

    def wait(self) -> int:
        return self._process.wait(60)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def _has_ended(self) -> bool:
        return self._process.poll() is not None

    def _all_output(self) -> str:
        return f"{self.out}\n---\n{self.err}"


@contextmanager
def watch_process(folder: Path, *arguments: str, **environment: str) -> Iterator[WatchProcess]:
    """Run the command during the block, and end it afterwards."""
    process = WatchProcess(folder, *arguments, **environment)
    try:
        yield process
    finally:
        process.kill()


CommandOutput = tuple[int, str, str]


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., CommandOutput]:
    """Run the command in this process: exit status, output, messages."""
    for name in ("GOLDSPAN_READ_TOKEN", "GOLDSPAN_READ_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)

    def command(*arguments: str) -> CommandOutput:
        monkeypatch.setattr(sys, "argv", ["goldspan", "watch", *arguments])
        status = run()
        return status, *capsys.readouterr()

    return command


# --- output -----------------------------------------------------------------------------------------------------------


@pytest.mark.e2e
def test_stored_and_new_evaluations_are_printed_one_per_line(folder: Path) -> None:
    with serving(folder, *QUICK) as gateway:
        send(gateway, "search", "book")
        send(gateway, "search", "mail")
        scored(gateway, 2)
        with watch_process(folder, gateway.address, TZ="Asia/Kolkata") as watched:
            watched.wait_for_output(
                "✓ trip (agent helper)  Book a trip\n", "✗ book  + mail  Book a trip  Expected book was not"
            )
            send(gateway, asked="Sing")
            watched.wait_for_output("○ helper  Sing  ")
            assert watched.interrupt() == 130
        assert watched.err == ""
        runs = {run["verdict"]: run for run in scored(gateway, 3)}
    assert len(watched.out.splitlines()) == 3
    stored = datetime.fromisoformat(runs["fail"]["stored"][:19] + "+00:00").astimezone(ZoneInfo("Asia/Kolkata"))
    (failed,) = [line for line in watched.out.splitlines() if "✗ trip" in line]
    assert failed.split(" ✗")[0].endswith(f"{stored:%H:%M:%S}")


@pytest.mark.e2e
def test_filters_select_the_evaluations_that_are_shown(folder: Path, watch: Callable[..., CommandOutput]) -> None:
    with serving(folder, *QUICK) as gateway:
        send(gateway, "search", "book")
        send(gateway, "search", "mail", agent="other")
        send(gateway, "hum", asked="Sing")
        scored(gateway, 3)
        for arguments, lines in {
            ("--verdict", "fail"): 1,
            ("--golden", "trip"): 2,
            ("--agent", "other"): 1,
            ("--service", "shop"): 3,
            ("--unit", "component"): 0,
            ("--tool", "Search"): 2,
            ("--tool", "book", "--tool-role", "missing"): 1,
            ("--metric", "tool_correctness", "--below", "1"): 1,
            ("--limit", "1"): 1,
            ("--since", "1h"): 3,
            ("--since", "1h", "--limit", "2"): 2,
            ("--limit", "0"): 0,
        }.items():
            status, out, err = watch(gateway.address, "--once", *arguments)
            assert (status, len(out.splitlines()), err) == (0, lines, ""), arguments
        with watch_process(folder, gateway.address.partition("//")[2], "--verdict", "fail") as watched:
            watched.wait_for_output("(agent other)")
            send(gateway, "search", "book")
            send(gateway, "search", agent="last")
            watched.wait_for_output("(agent last)")
            assert [line.split("(agent ")[1][:5] for line in watched.out.splitlines()] == ["other", "last)"]
            assert watched.interrupt() == 130


@pytest.mark.e2e
def test_json_prints_the_evaluations_as_the_api_returns_them(folder: Path, watch: Callable[..., CommandOutput]) -> None:
    with serving(folder, *QUICK) as gateway:
        send(gateway, "search", "book")
        scored(gateway, 1)
        status, out, err = watch(gateway.address, "--once", "--json")
        assert (status, err) == (0, "")
        stored = gateway.get("/api/v1/evaluations")["evaluations"]
        assert [json.loads(line) for line in out.splitlines()] == stored
        with watch_process(folder, gateway.address, "--json") as watched:
            send(gateway, "search")
            watched.wait_for_output('"golden_id": "trip"', '"passed": false')
            assert watched.interrupt() == 130
    assert [json.loads(line)["passed"] for line in watched.out.splitlines()] == [True, False]


@pytest.mark.e2e
def test_control_characters_from_traces_are_escaped(folder: Path, watch: Callable[..., CommandOutput]) -> None:
    with serving(folder, *QUICK) as gateway:
        send(gateway, "wi\x1b[2Jpe\nnext", asked="\u202eevil\x07[bold]\n✓ all passed", agent="a\rb[/]")
        scored(gateway, 1)
        _, out, _ = watch(gateway.address, "--once")
    assert len(out.splitlines()) == 1
    assert r"\x202eevil\x07[bold] ✓ all passed" in out
    assert "a b[/]" in out
    assert not {"\x1b", "\x07", "\u202e", "\r"} & set(out)


@pytest.mark.e2e
def test_a_closed_output_pipe_ends_the_command_with_status_0(folder: Path) -> None:
    with serving(folder, *QUICK) as gateway:
        send(gateway, "search", "book")
        scored(gateway, 1)
        process = subprocess.Popen(
            [sys.executable, "-m", "goldspan", "watch", gateway.address],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert process.stdout is not None
        assert process.stderr is not None
        assert b"trip" in process.stdout.readline()
        process.stdout.close()
        for _ in range(3):
            send(gateway, "search")
        assert process.wait(60) == 0
        assert process.stderr.read() == b""
        process.stderr.close()


# --- restarts of the gateway ------------------------------------------------------------------------------------------


@pytest.mark.e2e
def test_watch_reconnects_to_a_restarted_gateway(folder: Path) -> None:
    gateway = Gateway(folder, QUICK)
    try:
        gateway.start()
        send(gateway, "search", "book", agent="before")
        scored(gateway, 1)
        with watch_process(folder, gateway.address) as watched:
            watched.wait_for_output("(agent before)")
            gateway.stop()
            watched.wait_for_output(f"warning: {gateway.address} does not answer: ", "; retrying")
            assert "https://" not in watched.err
            gateway.start()
            send(gateway, "search", agent="after")
            watched.wait_for_output("(agent after)", f"{gateway.address} answers again")
            assert watched.interrupt() == 130
        assert watched.out.count("agent before") == watched.out.count("agent after") == 1
        assert watched.err.count("warning") == 1
        gateway.stop()
    finally:
        gateway.kill()


@pytest.mark.e2e
def test_watch_continues_with_a_restarted_gateway_that_has_a_new_store(folder: Path) -> None:
    gateway = Gateway(folder, QUICK)
    try:
        gateway.start()
        for _ in range(5):
            send(gateway, "search", "book")
        scored(gateway, 5)
        with watch_process(folder, gateway.address) as watched:
            eventually(lambda: watched.out.count("✓ trip") == 5, "it shows what is there")
            gateway.stop()
            watched.wait_for_output("does not answer")
            gateway.data.rename(folder / "old")
            gateway.start()
            watched.wait_for_output("answers again")
            send(gateway, "search", agent="after")
            watched.wait_for_output("(agent after)")
        gateway.stop()
    finally:
        gateway.kill()


# --- tokens and other servers -----------------------------------------------------------------------------------------


@pytest.mark.e2e
def test_watch_requires_a_valid_read_token(
    folder: Path, watch: Callable[..., CommandOutput], monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = {"GOLDSPAN_TOKEN": "send", "GOLDSPAN_READ_TOKEN": "read"}
    for name in ("send", "read"):
        (folder / name).write_text(f"# tokens\n{name}\n")
    with serving(folder, *QUICK, environment=environment) as gateway:
        send(gateway, "search", "book", token="send")
        status, out, err = watch(gateway.address, "--once")
        assert (status, out) == (2, "")
        assert "requires a read token: set --token-file, or the variable GOLDSPAN_READ_TOKEN" in err
        status, _, err = watch(gateway.address, "--token-file", str(folder / "send"))
        assert status == 2
        assert "says: this token permits sending telemetry only" in err
        monkeypatch.setenv("GOLDSPAN_READ_TOKEN", "wrong")
        assert "the gateway does not know this bearer token" in watch(gateway.address)[2]

        def found() -> bool:
            return "trip" in watch(gateway.address, "--once")[1]

        monkeypatch.setenv("GOLDSPAN_READ_TOKEN", "read")
        eventually(found, lambda: gateway.log)
        monkeypatch.delenv("GOLDSPAN_READ_TOKEN")
        monkeypatch.setenv("GOLDSPAN_READ_TOKEN_FILE", str(folder / "read"))
        assert found()
        monkeypatch.delenv("GOLDSPAN_READ_TOKEN_FILE")
        assert watch(gateway.address, "--once", "--token-file", str(folder / "read"))[0] == 0


class _OtherHandler(BaseHTTPRequestHandler):
    """An HTTP server that is not a gateway."""

    def do_GET(self) -> None:
        self.server.asked.append(dict(self.headers))  # type: ignore[attr-defined]
        status, headers, body = self.server.answer  # type: ignore[attr-defined]
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None: ...


class _Server(HTTPServer):
    def handle_error(self, *_: object) -> None:
        """Ignore clients that reject the certificate."""


@contextmanager
def other(
    status: int = 200, body: bytes = b"", context: ssl.SSLContext | None = None, **headers: str
) -> Iterator[tuple[str, list[dict[str, str]]]]:
    """A server that is not a gateway: its address, and the headers of its requests."""
    with _Server(("127.0.0.1", 0), _OtherHandler) as server:
        server.answer, server.asked = (status, headers, body), []  # type: ignore[attr-defined]
        if context is not None:
            server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"127.0.0.1:{server.server_port}", server.asked  # type: ignore[attr-defined]
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("status", "body", "message"),
    [
        (200, b"<html>", "answers, but is not a goldspan gateway"),
        (200, b"[1]", "answers, but is not a goldspan gateway"),
        (200, b'{"info": {"title": "petstore"}}', "answers, but is not a goldspan gateway"),
        (404, b"<html>", "answers, but is not a goldspan gateway"),
        (403, b'{"error": {"message": "not \x1b you."}}', "answers, but is not a goldspan gateway"),
        (403, b'{"error": {"message": "not you."}}', "says: not you\n"),
        (502, b"<html>", "cannot answer now (502)"),
        (503, b'{"error": {"message": "busy"}}', "cannot answer now: busy"),
    ],
)
def test_an_http_server_that_is_not_a_gateway_is_reported(
    status: int, body: bytes, message: str, watch: Callable[..., CommandOutput]
) -> None:
    with other(status, body) as (address, _):
        ended, out, err = watch(address)
    assert (ended, out) == (2, "")
    assert f"error: http://{address} {message}" in err


@pytest.mark.parametrize("answer", [b'{"runs": 1}', b'{"runs": [1]}', b'{"evaluations": [], "next_after": "x"}'])
def test_responses_of_an_unexpected_shape_are_not_accepted_as_from_a_gateway(
    answer: bytes, watch: Callable[..., CommandOutput]
) -> None:
    body = answer[:-1] + b', "info": {"title": "goldspan"}}'
    with other(200, body) as (address, _):
        assert "is not a goldspan gateway" in watch(address, "--once")[2] + watch(address)[2]


def test_the_token_is_not_sent_to_a_redirect_target(
    watch: Callable[..., CommandOutput], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GOLDSPAN_READ_TOKEN", "secret")
    with other() as (elsewhere, theirs), other(302, Location=f"http://{elsewhere}/") as (address, ours):
        status, _, err = watch(address)
    assert status == 2
    assert f"redirects to another address; use that address: http://{elsewhere}/" in " ".join(err.split())
    assert ours[0]["Authorization"] == "Bearer secret"
    assert theirs == []


def test_a_proxy_in_the_environment_is_not_used_for_the_local_machine(
    watch: Callable[..., CommandOutput], monkeypatch: pytest.MonkeyPatch
) -> None:
    with other() as (address, _), other() as (proxy, asked):
        monkeypatch.setenv("http_proxy", f"http://{proxy}")
        assert "is not a goldspan gateway" in watch(address)[2]
    assert asked == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["ftp://x"], "error: 'ftp://x' is not the address of a gateway; expected the form http://127.0.0.1:4318\n"),
        (["http://x:y"], "is not the address of a gateway"),
        (["http://me:secret@x"], "is not the address of a gateway"),
        (["http://a b"], "is not the address of a gateway"),
        (["--below", "1"], "error: --below needs --metric"),
        (["--tool-role", "missing"], "error: --tool-role needs --tool"),
        (["--token-file", "nowhere"], "error: --token-file: nowhere cannot be read: no such file or directory\n"),
        (["--ca-file", "nowhere"], "error: --ca-file: nowhere cannot be read: no such file or directory\n"),
    ],
)
def test_invalid_arguments_are_refused_with_a_message(
    arguments: list[str], message: str, watch: Callable[..., CommandOutput]
) -> None:
    status, out, err = watch(*arguments)
    assert (status, out) == (2, "")
    assert message in err


def test_a_refused_connection_is_reported(watch: Callable[..., CommandOutput]) -> None:
    port = free_port()
    message = f"error: http://127.0.0.1:{port} does not answer: connection refused\n"
    assert watch(f"127.0.0.1:{port}") == (2, "", message)


def test_a_gateway_that_does_not_answer_in_time_is_reported(
    watch: Callable[..., CommandOutput], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api_client, "_TIMEOUT_S", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        status, _, err = watch(f"127.0.0.1:{silent.getsockname()[1]}")
    assert status == 2
    assert "does not answer within 0.1 seconds" in err


WITHOUT_EXTRAS = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("starlette", "uvicorn", "grpc", "urllib3", "pydantic_settings", "jinja2"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())
sys.argv = ["goldspan", "watch", *sys.argv[1:]]
from goldspan.cli import main
main()
"""


@pytest.mark.e2e
def test_watch_works_without_optional_dependencies(folder: Path) -> None:
    with serving(folder, *QUICK) as gateway:
        send(gateway, "search", "book")
        scored(gateway, 1)
        command = [sys.executable, "-c", WITHOUT_EXTRAS, gateway.address, "--once"]
        done = subprocess.run(command, capture_output=True, encoding="utf-8", check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "✓ trip" in done.stdout


@pytest.mark.e2e
def test_an_invalid_time_is_reported_with_the_message_of_the_gateway(
    folder: Path, watch: Callable[..., CommandOutput]
) -> None:
    with serving(folder, *QUICK) as gateway:
        status, _, err = watch(gateway.address, "--since", "tomorrow")
    assert status == 2
    assert "says: since must be a time such as" in err


def test_a_server_that_closes_connections_is_said_to_use_tls_only_if_it_never_answered() -> None:
    document = json.dumps({"info": {"title": "goldspan"}}).encode()
    reply = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s" % (len(document), document)

    def serve(listener: socket.socket, replies: list[bytes]) -> None:
        for each in replies:
            connection, _ = listener.accept()
            with connection:
                connection.recv(65_536)
                connection.sendall(each)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, args=(listener, [b"", reply, b""]))
        thread.start()
        client = api_client.ApiClient(f"127.0.0.1:{listener.getsockname()[1]}")
        with pytest.raises(GatewayUnavailableError, match="try https://"):
            client.require_goldspan()
        client.require_goldspan()
        with pytest.raises(GatewayUnavailableError) as raised:
            client.require_goldspan()
        thread.join()
    assert "https://" not in str(raised.value)


@pytest.mark.needs("openssl")
def test_a_certificate_is_trusted_only_with_its_authority_in_ca_file(
    folder: Path, watch: Callable[..., CommandOutput]
) -> None:
    certificate, key = folder / "cert.pem", folder / "key.pem"
    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *names]
    subprocess.run([*made, "-keyout", str(key), "-out", str(certificate)], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with other(context=context) as (address, _):
        assert "is not trusted" in watch(f"https://{address}")[2]
        assert "--ca-file names the authority" in " ".join(watch(f"https://{address}")[2].split())
        assert "is not a goldspan gateway" in watch(f"https://{address}", "--ca-file", str(certificate))[2]
        assert "try https://" in watch(address)[2]
    with other() as (address, _):
        assert "does not use TLS; try http://" in watch(f"https://{address}")[2]
    (folder / "empty.pem").write_text("")
    assert "it holds no certificate" in watch("--ca-file", str(folder / "empty.pem"))[2]


# --- on a terminal ----------------------------------------------------------------------------------------------------


@pytest.mark.e2e
def test_on_a_terminal_the_last_line_shows_the_totals_until_ctrl_c(folder: Path) -> None:
    with serving(folder, *QUICK) as gateway:
        send(gateway, "search", "book")
        scored(gateway, 1)
        ours, theirs = pty.openpty()
        environment = {key: value for key, value in os.environ.items() if key not in ("NO_COLOR", "COLUMNS")}
        process = subprocess.Popen(
            [sys.executable, "-m", "goldspan", "watch", gateway.address],
            stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
            preexec_fn=partial(fcntl.ioctl, theirs, termios.TIOCSCTTY, 0),
            env=environment | {"TERM": "xterm-256color", "PYTHONUTF8": "1"},
        )  # fmt: skip
        os.close(theirs)
        shown = bytearray()
        reading = threading.Thread(target=_read_all, args=(ours, shown))
        reading.start()
        output = shown.decode  # the output so far
        try:
            eventually(lambda: "1 run: " in output() and "; pass rate 100.0%" in output(), output)
            send(gateway, "mail")
            eventually(lambda: "; pass rate 50.0%" in output() and f"● {gateway.address}" in output(), output)
            os.write(ours, b"\x03")
            assert process.wait(60) == 130
        finally:
            process.kill()
            process.wait()
            reading.join()
            os.close(ours)
    assert "\x1b[31m✗\x1b[0m\x1b[1m trip\x1b[0m" in output()
    assert "\x1b[2;3mExpected search and book were not called" in output()
    assert "Traceback" not in output()


def _read_all(descriptor: int, into: bytearray) -> None:
    with suppress(OSError):  # Linux raises it when the other side is closed
        while piece := os.read(descriptor, 65536):
            into += piece


@pytest.mark.e2e
def test_on_a_terminal_the_live_status_shows_the_totals_and_the_retry(folder: Path) -> None:
    with serving(folder, *QUICK) as gateway:
        send(gateway, "search", "book")
        scored(gateway, 1)
        shown = StringIO()
        view = live_feed.FeedView(
            gateway.address, ResultsConsole(file=shown, force_terminal=True, width=100), RunFilter(), as_json=False
        )
        with view.live_status(status=False):
            view.show(gateway.get("/api/v1/evaluations")["evaluations"][0])
        with view.live_status(status=True):
            view.show_unavailable(GatewayUnavailableError("it does not answer"), 4)
    assert "1 passed" in shown.getvalue().splitlines()[-3]
    assert "○ it does not answer; retrying in 4 s" in shown.getvalue()
