"""The `--help` of every command: a flag is shown as a flag."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest
import typer

from goldspan.cli.app import app, run


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
