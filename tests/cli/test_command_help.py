"""The `--help` of every command shows flags without a value and imports few modules."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from inspect import getdoc
from itertools import pairwise
from typing import get_args

import footprint
import pytest
import typer

from goldspan.cli import options
from goldspan.cli.app import COMMANDS, GOLDENS_COMMANDS, app, run
from goldspan.profiles import NAMES as PEERS
from goldspan.scoring import DEFAULT_METRICS
from goldspan.store import store_protocol


def _commands() -> Iterator[tuple[str, ...]]:
    group = typer.main.get_command(app)
    yield ()
    for name, command in group.commands.items():  # type: ignore[attr-defined]
        yield (name,)
        yield from ((name, below) for below in getattr(command, "commands", ()))


@pytest.mark.parametrize("command", list(_commands()), ids=lambda command: " ".join(command) or "goldspan")
def test_a_flag_is_shown_without_a_value(
    command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["goldspan", *command, "--help"])
    assert run() == 0
    shown = capsys.readouterr().out
    assert "--help" in shown
    assert "bool" not in shown.lower()


SHOW_EACH_HELP = """
import contextlib, io, sys
from goldspan.cli import main
for arguments in {commands!r}:
    sys.argv[1:] = arguments
    with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()) as shown:
        main()
    assert shown.getvalue().strip(), arguments
    print(arguments, [name for name in {modules!r} if name in sys.modules])
"""
"""Programs take long to start, so one program shows every help; its first line with a module names the command."""


def test_help_imports_only_what_the_options_need() -> None:
    commands = [("--version",), *((*command, "--help") for command in _commands())]
    program = SHOW_EACH_HELP.format(commands=commands, modules=footprint.NOT_FOR_HELP)
    # coverage, which measures the programs that a test starts, imports sqlite3
    environment = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE_PROCESS")}
    printed = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True, env=environment
    ).stdout
    assert printed.splitlines() == [f"{arguments} []" for arguments in commands]


def test_the_import_check_detects_the_imports_of_a_command(tmp_path) -> None:
    assert "goldspan.goldens" in footprint.loaded_by_command("goldens", "schema")


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_the_program_repeats_the_first_paragraph_of_each_command(name: str) -> None:
    command = typer.main.get_command(app).commands[name].callback()  # type: ignore[attr-defined]
    assert COMMANDS[name].summary == (getdoc(command.callback) or "").split("\n\n")[0].replace("\n", " ")


@pytest.mark.parametrize("name", GOLDENS_COMMANDS)
def test_each_command_of_goldens_has_a_summary_and_examples(name: str) -> None:
    command = typer.main.get_command(app).commands["goldens"].commands[name].callback()  # type: ignore[attr-defined]
    assert command.name == name
    assert f"goldspan goldens {name}" in command.epilog
    assert GOLDENS_COMMANDS[name].summary.endswith(".")


def test_the_help_names_every_metric_and_every_profile(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "1000")
    monkeypatch.setattr(sys, "argv", ["goldspan", "score", "--help"])
    assert run() == 0
    shown = capsys.readouterr().out
    assert f"Repeatable. {', '.join(DEFAULT_METRICS)}, or an installed one." in shown
    assert f"as another tool does: {', '.join(PEERS)}." in shown


def test_paragraphs_fill_the_width_of_the_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(sys, "argv", ["goldspan", "goldens", "suggest", "--help"])
    assert run() == 0
    paragraph = capsys.readouterr().out.partition(" Requests that ask")[2].partition(" pass it.")[0]
    lines = [line.strip() for line in paragraph.splitlines()]
    assert len(lines) == 3
    for line, below in pairwise(lines[1:]):
        assert len(line) + len(below.split()[0]) >= 75


def test_the_options_have_the_same_choices_as_the_store() -> None:
    assert get_args(options.Verdict) == get_args(store_protocol.Verdict)
    assert get_args(options.ToolRole) == get_args(store_protocol.ToolRole)


def test_an_unknown_command_is_refused_with_the_nearest_name() -> None:
    command = [sys.executable, "-m", "goldspan", "socre"]
    ended = subprocess.run(command, capture_output=True, encoding="utf-8", check=False)
    assert ended.returncode == 2
    assert "score" in ended.stderr


def test_shell_completion_completes_command_names_and_options() -> None:
    group = typer.main.get_command(app)
    context = group.make_context("goldspan", [], resilient_parsing=True)
    assert [item.value for item in group.shell_complete(context, "ex")] == ["extract", "export"]
    name, command, remaining = group.resolve_command(context, ["extract", "-"])  # type: ignore[attr-defined]
    assert (name, remaining) == ("extract", ["-"])
    assert "--goldens" in [item.value for item in command.shell_complete(command.make_context(name, ["-"]), "--go")]
    assert group.resolve_command(context, ["no such command"])[1] is None  # type: ignore[attr-defined]
