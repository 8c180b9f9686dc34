"""`goldspan serve` up to the start of the server."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from goldspan.cli.app import run

SECRET = "s3cr3t-of-mine"

CommandOutput = tuple[int, str, str]
Serve = Callable[..., CommandOutput]


@pytest.fixture
def serve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Serve:
    """Run the command in this process in a temporary folder: exit status, output, messages."""
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("GOLDSPAN_")]:
        monkeypatch.delenv(name)

    def command(*arguments: object) -> CommandOutput:
        monkeypatch.setattr(sys, "argv", ["goldspan", "serve", *map(str, arguments)])
        status = run()
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return command


def test_help_names_every_flag_and_shows_examples(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    status, output, _ = serve("--help")
    assert status == 0
    flags = (
        "host http-port grpc-port data goldens forward results enrich workers token-file read-token-file insecure "
        "tls-cert tls-key allowed-host allowed-origin mcp grace idle late keep-arguments keep-days config print-config "
        "json-schema log-format"
    )
    for flag in flags.split():
        assert re.search(rf"--{flag}\b", output), flag
    assert "goldspan serve --host 0.0.0.0 --token-file tokens.txt" in output


def test_every_flag_sets_its_setting(serve: Serve, tmp_path: Path) -> None:
    for name in ("tokens", "read", "cert.pem", "key.pem"):
        (tmp_path / name).write_text("token\n")
        (tmp_path / name).chmod(0o600)
    flags = {
        "--host": "0.0.0.0",
        "--http-port": "1",
        "--grpc-port": "2",
        "--data": "folder",
        "--goldens": "a.yaml",
        "--forward": "http://one:4318",
        "--results": "events,spans",
        "--workers": "2",
        "--token-file": "tokens",
        "--read-token-file": "read",
        "--tls-cert": "cert.pem",
        "--tls-key": "key.pem",
        "--allowed-host": "one.example",
        "--allowed-origin": "https://one.example",
        "--grace": "3",
        "--idle": "4",
        "--late": "5",
        "--keep-days": "6",
        "--log-format": "json",
    }
    switches = ("--enrich", "--insecure", "--keep-arguments", "--mcp")
    more = ("-g", "b.yaml", "--forward", "grpc://two:4317", "--results", "metrics")
    status, output, message = serve(
        *(word for pair in flags.items() for word in pair), *switches, *more, "--print-config"
    )
    assert (status, message) == (0, "")
    for flag in (*flags, *switches):
        assert f"  # flag {flag}\n" in output, flag
    assert "goldens: [a.yaml, b.yaml]  # flag --goldens" in output
    assert "  - http://one:4318\n  - grpc://two:4317\n" in output
    assert "results: [events, metrics, spans, attributes]" in output


def test_a_printed_configuration_can_be_loaded(serve: Serve, tmp_path: Path) -> None:
    (tmp_path / "first.yaml").write_text("grace: 7\nforward: [http://one:4318]\n")
    _, printed, _ = serve("--config", "first.yaml", "--idle", "8", "--print-config")
    (tmp_path / "goldspan.yaml").write_text(printed)
    status, again, _ = serve("--print-config")
    assert status == 0
    assert re.sub(r"  # .*", "", again) == re.sub(r"  # .*", "", printed)
    assert "grace: 7  # file goldspan.yaml" in again


def test_the_schema_is_printed_as_json(serve: Serve) -> None:
    status, output, _ = serve("--json-schema")
    assert status == 0
    schema = json.loads(output)
    assert schema["title"] == "goldspan.yaml"
    assert schema["properties"]["http_port"]["default"] == 4318


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--host", "0.0.0.0"], "error: --host: 0.0.0.0 is reachable from other machines and no tokens are set"),
        (["--workers", "0"], "error: --workers: must be at least 1, not 0"),
        (["--forward", "ftp://x"], "error: --forward[0], 'endpoint': 'ftp://x' is not the URL of a back end"),
        (["--enrich"], "error: --enrich: requires a back end"),
        (["--config", "nowhere.yaml"], "error: nowhere.yaml cannot be read: no such file or directory"),
        (["--http-port", "x"], "Invalid value for '--http-port'"),
        (["--token-file", "tokens"], "error: --token-file: tokens cannot be read: no such file or directory"),
    ],
)
def test_invalid_settings_are_refused_before_any_file_is_created(
    serve: Serve, tmp_path: Path, arguments: list[str], message: str
) -> None:
    status, output, error = serve(*arguments)
    assert (status, output) == (2, "")
    assert message in error
    assert list(tmp_path.iterdir()) == []


def test_an_error_in_the_file_or_the_environment_is_reported_with_its_source(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "goldspan.yaml").write_text("worker: 2\n")
    assert serve() == (2, "", "error: goldspan.yaml: unknown setting 'worker'; did you mean 'workers'?\n")
    (tmp_path / "goldspan.yaml").unlink()
    monkeypatch.setenv("GOLDSPAN_WORKERS", SECRET)
    status, _, message = serve()
    assert status == 2
    assert message.startswith("error: GOLDSPAN_WORKERS: must be an integer")


def test_secrets_in_the_environment_are_not_printed(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOLDSPAN_TOKEN", SECRET)
    status, output, message = serve("--print-config")
    assert status == 0
    assert SECRET not in output + message
    assert "# token is hidden  # environment GOLDSPAN_TOKEN" in output


def test_a_world_readable_token_file_causes_a_warning(serve: Serve, tmp_path: Path) -> None:
    (tmp_path / "tokens").write_text(SECRET)
    (tmp_path / "tokens").chmod(0o644)
    status, _, message = serve("--token-file", "tokens", "--print-config")
    assert status == 0
    assert (
        message == "warning: tokens contains secrets and is readable by every user of this machine: chmod o-r tokens\n"
    )


WITHOUT = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == {package!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Absent())
sys.argv = ["goldspan", "serve", "--print-config"]
from goldspan.cli import main
main()
"""


def test_without_the_extra_the_error_names_the_package_to_install(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT.format(package="pydantic_settings")],
        capture_output=True,
        encoding="utf-8",
        check=False,
        cwd=tmp_path,
    )
    assert done.returncode == 2
    assert done.stderr == "error: goldspan serve needs an optional part of goldspan: pip install 'goldspan[server]'\n"


def test_the_published_schema_equals_the_generated_schema(serve: Serve) -> None:
    """Update the file with `make docs`."""
    published = Path(__file__).parents[2] / "docs" / "goldspan.schema.json"
    assert serve("--json-schema")[1] == published.read_text(encoding="utf-8")
