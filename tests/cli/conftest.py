"""The command line, run in the process of the test."""

from __future__ import annotations

import sys

import pytest

from goldspan.cli.app import run
from support.command_line import CommandResult, Goldspan


@pytest.fixture
def goldspan(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Goldspan:
    """Run a command in this process."""

    def command(*arguments: object) -> CommandResult:
        monkeypatch.setattr(sys, "argv", ["goldspan", *map(str, arguments)])
        status = run()
        return CommandResult(status, *capsys.readouterr())

    return command
