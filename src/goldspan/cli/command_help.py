"""Command classes whose `--help` shows a flag without a value, for every command of the program."""

from __future__ import annotations

from typing import Any

from typer.core import TyperCommand, TyperGroup


def _hide_flag_values(parameters: list[Any]) -> list[Any]:
    """Give each flag an empty metavar: by default typer shows a flag as an option that takes a `<bool>`."""
    for parameter in parameters:
        if getattr(parameter, "is_flag", False):
            parameter.metavar = ""
    return parameters


class Command(TyperCommand):
    """One command."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters, with flags that show no value."""
        return _hide_flag_values(super().get_params(ctx))


class CommandGroup(TyperGroup):
    """A command that has commands below it."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters, with flags that show no value."""
        return _hide_flag_values(super().get_params(ctx))
