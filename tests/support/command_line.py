"""Runs a command of `goldspan` in the process of the test: a fixture for the `conftest.py` of a folder."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from goldspan.cli.app import run


class CommandResult(NamedTuple):
    """The exit status and the output of a command."""

    status: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return [line.rstrip() for line in self.out.splitlines()]

    @property
    def documents(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.out.splitlines()]


Goldspan = Callable[..., CommandResult]
"""Runs a command with these arguments."""


@pytest.fixture
def goldspan(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Goldspan:
    """Run a command in this process."""

    def command(*arguments: object) -> CommandResult:
        monkeypatch.setattr(sys, "argv", ["goldspan", *map(str, arguments)])
        status = run()
        return CommandResult(status, *capsys.readouterr())

    return command
