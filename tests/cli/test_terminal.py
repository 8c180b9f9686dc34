"""What only a terminal sees: colours and signs of progress."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from goldspan.cli import app
from goldspan.errors import GoldspanWarning

TRACES = Path(__file__).parents[2] / "examples" / "traces.jsonl"

pty = pytest.importorskip("pty", reason="Windows has no pseudo-terminals")


def on_a_terminal(*arguments: object) -> str:
    """What a command shows on a terminal of 80 columns."""
    ours, theirs = pty.openpty()
    environment = {key: value for key, value in os.environ.items() if key not in ("NO_COLOR", "COLUMNS")}
    process = subprocess.Popen(
        [sys.executable, "-m", "goldspan", *map(str, arguments)],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=environment | {"TERM": "xterm-256color", "PYTHONUTF8": "1"},
    )
    os.close(theirs)
    shown = b""
    try:
        while piece := os.read(ours, 65536):
            shown += piece
    except OSError:  # Linux says so when the other side has closed
        pass
    os.close(ours)
    assert process.wait(30) == 0
    return shown.decode()


def test_results_have_colours_and_reading_shows_progress() -> None:
    shown = on_a_terminal("score", TRACES, "-g", TRACES.with_name("goldens.yaml"))
    assert "reading traces" in shown
    assert "\x1b[31m✗\x1b[0m" in shown


def test_progress_counts_the_runs(tmp_path: Path) -> None:
    line = TRACES.read_text().splitlines()[0]
    trace_id = line.partition('"traceId": "')[2][:32]
    many = tmp_path / "many.jsonl"
    many.write_text("\n".join(line.replace(trace_id, f"{number:032x}") for number in range(1, 121)))
    assert "reading traces: 100 runs" in on_a_terminal("extract", many, "--json")


def test_judging_cases_shows_how_many_are_done(tmp_path: Path) -> None:
    cases = tmp_path / "cases.csv"
    cases.write_text("tools_called,expected_tools\n" + "a,a\n" * 250)
    shown = on_a_terminal("score", "--cases", cases, "--limit", 1)
    assert "reading cases: 200 rows" in shown
    assert "judging" in shown
    assert "250/250" in shown


def test_warnings_of_other_libraries_look_as_always(
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
    said = capsys.readouterr().err
    assert "warning: ours" in said
    assert "DeprecationWarning: theirs" in said
