"""Colours and progress bars, which only a terminal receives."""

from __future__ import annotations

import gzip
import json
import os
import re
import signal
import subprocess
import sys
import threading
import warnings
from contextlib import suppress
from pathlib import Path

import pytest

from goldspan.cli import app
from goldspan.errors import GoldspanWarning
from goldspan.store import open_store
from support.evaluation_builders import evaluation
from support.interrupts import unmeasured
from support.product_server import accepted, product_server

TRACES = Path(__file__).parents[2] / "examples" / "traces.jsonl"

pty = pytest.importorskip("pty", reason="Windows has no pseudo-terminals")


def on_a_terminal(*arguments: object, piped: str = "", status: int = 0) -> str:
    """The output on a terminal of 80 columns. `piped` names a stream that is a pipe: `stdin`, `stdout` or `stderr`."""
    ours, theirs = pty.openpty()
    environment = {key: value for key, value in os.environ.items() if key not in ("NO_COLOR", "COLUMNS")}
    streams = dict.fromkeys(("stdin", "stdout", "stderr"), theirs) | ({piped: subprocess.PIPE} if piped else {})
    process = subprocess.Popen(
        [sys.executable, "-m", "goldspan", *map(str, arguments)],
        **streams,
        env=environment | {"TERM": "xterm-256color", "PYTHONUTF8": "1"},
    )
    os.close(theirs)
    piping = threading.Thread(target=process.communicate, args=(TRACES.read_bytes() if piped == "stdin" else None,))
    piping.start()
    shown = b""
    try:
        while piece := os.read(ours, 65536):
            shown += piece
    except OSError:  # Linux raises it when the other side is closed
        pass
    os.close(ours)
    piping.join(60)
    assert process.wait(60) == status
    return shown.decode()


def plain(shown: str) -> str:
    """The text without escape sequences."""
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown)


def traces(path: Path, number: int) -> Path:
    """A file with this number of traces, each of one request."""
    line = TRACES.read_text().splitlines()[0]
    trace_id = line.partition('"traceId": "')[2][:32]
    path.write_text("\n".join(line.replace(trace_id, f"{each:032x}") for each in range(1, number + 1)))
    return path


@pytest.fixture
def many(tmp_path: Path) -> Path:
    return traces(tmp_path / "many.jsonl", 120)


def test_results_have_colours_and_reading_shows_progress() -> None:
    shown = on_a_terminal("score", TRACES, "-g", TRACES.with_name("goldens.yaml"))
    assert "reading traces" in shown
    assert "\x1b[31m✗\x1b[0m" in shown


@pytest.mark.e2e
@pytest.mark.parametrize("command", ["score", "extract", "goldens check"])
def test_each_step_over_traces_has_a_progress_bar(command: str, many: Path) -> None:
    goldens = TRACES.with_name("goldens.yaml")
    arguments = {"score": [many, "-g", goldens], "extract": [many], "goldens check": [goldens, many]}[command]
    shown = plain(on_a_terminal(*command.split(), *arguments, piped="stdout", status=command == "goldens check"))
    size = f"{many.stat().st_size / 1000:.1f}"
    assert re.search(rf"reading traces ━+ {size}/{size} kB 0:00:\d\d ", shown)
    assert "sorting spans" in shown
    assert re.search(r"rebuilding runs ━+ 120/120 0:00:\d\d 0:00:00", shown)
    last = {"score": "evaluating", "goldens check": "comparing"}.get(command)
    assert last is None or re.search(rf"{last} +━+ 120/120 0:00:\d\d 0:00:00", shown)


@pytest.mark.e2e
def test_the_progress_of_a_compressed_file_counts_its_compressed_bytes(many: Path) -> None:
    packed = many.with_suffix(".jsonl.gz")
    packed.write_bytes(gzip.compress(many.read_bytes()))
    shown = plain(on_a_terminal("extract", packed))
    size = f"{packed.stat().st_size / 1000:.1f}"
    assert f" {size}/{size} kB " in shown


@pytest.mark.e2e
def test_the_progress_of_standard_input_counts_the_bytes_read() -> None:
    size = f"{TRACES.stat().st_size / 1000:.1f}"
    assert f" {size}/? kB " in plain(on_a_terminal("extract", "-", piped="stdin"))


@pytest.mark.e2e
def test_evaluating_cases_shows_the_number_of_evaluated_cases(tmp_path: Path) -> None:
    cases = tmp_path / "cases.csv"
    cases.write_text("tools_called,expected_tools\n" + "a,a\n" * 250)
    shown = on_a_terminal("score", "--cases", cases, "--limit", 1)
    assert "reading cases: 200 rows" in shown
    assert re.search(r"evaluating +━+ 250/250", plain(shown))


@pytest.mark.e2e
def test_exporting_shows_the_number_of_written_runs(tmp_path: Path) -> None:
    with open_store(tmp_path / "goldspan.db") as store:
        store.submit_many(evaluation(number) for number in range(150))
    shown = plain(on_a_terminal("export", tmp_path / "goldspan.db", tmp_path / "runs.csv"))
    assert re.search(r"writing ━+ 150/150 0:00:\d\d 0:00:00", shown)
    assert "150 runs written" in shown


@pytest.mark.e2e
def test_exporting_to_a_product_shows_the_number_of_written_runs(tmp_path: Path) -> None:
    with open_store(tmp_path / "goldspan.db") as store:
        store.submit_many(evaluation(number) for number in range(150))
    with product_server(lambda _: accepted()) as server:
        shown = plain(on_a_terminal("export", tmp_path / "goldspan.db", "--to", f"phoenix:{server.url}"))
    assert re.search(r"writing to phoenix ━+ 150/150 0:00:\d\d 0:00:00", shown)
    assert ": 150 written" in shown


@pytest.mark.e2e
def test_streamed_json_lines_on_a_terminal_have_no_progress_bar_among_them(many: Path) -> None:
    shown = on_a_terminal("score", many, "--json")
    lines = plain(shown)
    assert "rebuilding" in lines
    assert "evaluating" not in lines
    documents = [json.loads(line) for line in lines[lines.index("{") :].splitlines()[:120]]
    assert len(documents) == 120
    assert "evaluating" in on_a_terminal("score", many, "--json", piped="stdout")


@pytest.mark.e2e
def test_no_progress_bar_is_shown_when_standard_error_is_not_a_terminal(many: Path) -> None:
    shown = on_a_terminal("score", many, piped="stderr")
    assert "reading" not in shown
    assert "\x1b[?25l" not in shown


@pytest.mark.e2e
@pytest.mark.parametrize("step", ["reading traces", "rebuilding runs", "evaluating"])
def test_sigint_in_any_step_ends_the_command_and_restores_the_cursor(step: str, tmp_path: Path) -> None:
    many = traces(tmp_path / "many.jsonl", 5_000)
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "goldspan", "score", many, "--metric", "tool_recall", "--concurrency", "2"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=theirs,
        env=unmeasured(TERM="xterm-256color"),
    )
    os.close(theirs)
    shown = b""
    with suppress(OSError):
        while piece := os.read(ours, 65536):
            shown += piece
            if step.encode() in shown:
                process.send_signal(signal.SIGINT)
                step = "nothing more"
    os.close(ours)
    assert process.wait(60) == 130
    assert shown.count(b"\x1b[?25h") == shown.count(b"\x1b[?25l") > 0, "the cursor is hidden"
    assert b"Traceback" not in shown


def test_warnings_of_other_libraries_keep_their_usual_format(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def command() -> None:
        warnings.warn("ours", GoldspanWarning, stacklevel=1)
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.warn("theirs", DeprecationWarning, stacklevel=1)
        raise KeyboardInterrupt

    monkeypatch.setattr(app, "app", command)
    assert app.run() == 130
    stderr = capsys.readouterr().err
    assert "warning: ours" in stderr
    assert "DeprecationWarning: theirs" in stderr
