"""Runs a command of `goldspan` in the process of the test."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple


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
