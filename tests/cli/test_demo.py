"""`goldspan demo --out` keeps its results and prints commands that can be pasted."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from goldspan.cli import console
from goldspan.store import open_store
from goldspan.store.store_protocol import VerdictCounts
from support.evaluation_builders import evaluation

SCRIPTS = Path(sys.executable).parent


def demo(folder: Path, *arguments: object, program: tuple[str, ...] = ("goldspan",), path: str = "") -> list[str]:
    """The output lines of a demo that runs in this folder with this PATH."""
    done = subprocess.run(
        [*program, "demo", *map(str, arguments)],
        cwd=folder,
        env={**os.environ, "PATH": path or f"{SCRIPTS}{os.pathsep}{os.environ['PATH']}", "PYTHONUTF8": "1"},
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


class Kept(NamedTuple):
    """A demo that keeps its results."""

    lines: list[str]
    folder: Path


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Kept:
    """A demo that keeps its results in a folder, whose name a shell would split."""
    folder = tmp_path_factory.mktemp("demo") / "kept here"
    return Kept(demo(folder.parent, "--out", folder), folder)


def test_out_keeps_the_results_with_their_values_in_a_store(kept: Kept) -> None:
    with open_store(kept.folder / "goldspan.db", read_only=True) as store:
        assert store.count() == VerdictCounts(passed=3, failed=8, not_evaluated=2)
        (weather,) = [run for run in store.iter_runs() if run.current.document["golden_id"] == "convert"]
    (row,) = weather.current.document["rows"]
    assert [each["path"] for each in row["differences"]] == ["source", "target"]
    assert weather.current.document["tool_calls"][0]["arguments"] == {"amount": 100, "source": "USD", "target": "EUR"}


@pytest.mark.e2e
def test_a_second_demo_in_the_same_folder_replaces_the_runs(tmp_path: Path) -> None:
    demo(tmp_path, "--out", "kept")
    with open_store(tmp_path / "kept" / "goldspan.db", read_only=True) as store:
        before, place = {run.run_id for run in store.iter_runs()}, store.last_sequence_number()
        demo(tmp_path, "--out", "kept")
        after = {run.run_id for run in store.iter_runs()}
        assert (len(after), after & before) == (13, set())
        assert store.last_sequence_number() > place  # an open page requests the evaluations after its last number


@pytest.mark.e2e
def test_a_store_with_runs_of_another_service_is_not_modified(tmp_path: Path) -> None:
    with open_store(tmp_path / "goldspan.db") as store:
        store.submit(evaluation())
        done = subprocess.run(
            [sys.executable, "-m", "goldspan", "demo", "--out", tmp_path], capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stdout) == (2, "")
        assert "holds runs of another service; choose another folder" in done.stderr
        assert store.count().total == 1
    assert [each.name for each in tmp_path.iterdir()] == ["goldspan.db"]


@pytest.mark.e2e
def test_the_printed_commands_can_be_pasted_into_a_shell(kept: Kept) -> None:
    assert kept.lines[-2:] == [
        "See them in the browser:",
        f"  goldspan view '{kept.folder}' -g '{kept.folder}/goldens.yaml'",
    ]
    score = kept.lines[kept.lines.index("The traces are kept. Score them again:") + 1]
    again = subprocess.run(
        score.strip(), shell=True, cwd=kept.folder.parent, capture_output=True, encoding="utf-8", check=False,
        env={**os.environ, "PATH": f"{SCRIPTS}{os.pathsep}{os.environ['PATH']}", "PYTHONUTF8": "1"},
    )  # fmt: skip
    assert "runs: 12, of which 3 passed, 7 failed, 2 not evaluated" in again.stdout


@pytest.mark.e2e
def test_without_out_the_demo_prints_the_command_that_keeps_the_results(tmp_path: Path) -> None:
    assert demo(tmp_path)[-2:] == ["See them in the browser, and keep them:", "  goldspan demo --out demo"]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.e2e
def test_a_program_that_is_not_on_the_path_is_printed_as_it_was_invoked(tmp_path: Path) -> None:
    elsewhere = str(tmp_path / "no programs")
    script = str(SCRIPTS / "goldspan")
    assert demo(tmp_path, program=(script,), path=elsewhere)[-1] == f"  {script} demo --out demo"
    module = (sys.executable, "-m", "goldspan")
    assert demo(tmp_path, program=module, path=elsewhere)[-1] == f"  {shlex.join(module)} demo --out demo"
    assert demo(tmp_path, program=module)[-1] == "  goldspan demo --out demo"


@pytest.mark.e2e
def test_another_program_named_goldspan_on_the_path_is_not_mistaken_for_this_one(tmp_path: Path) -> None:
    other = tmp_path / "goldspan"
    other.write_text("#!/bin/sh\n")
    other.chmod(0o755)
    assert demo(tmp_path, program=(str(SCRIPTS / "goldspan"),), path=str(tmp_path))[-1].startswith(f"  {SCRIPTS}")


def test_on_windows_command_lines_are_quoted_for_its_shell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console, "os", _Windows)
    monkeypatch.setattr(sys, "argv", [str(SCRIPTS / "goldspan")])
    monkeypatch.setattr("shutil.which", lambda name: str(SCRIPTS / "goldspan.EXE"))
    assert console.command_line("view", r"C:\my runs") == r'goldspan view "C:\my runs"'


class _Windows:
    """The part of `os` that the console uses, with the values of Windows."""

    name = "nt"

    class path:  # noqa: N801 - the name of the module
        normcase = staticmethod(str.lower)
        realpath = staticmethod(os.path.realpath)
