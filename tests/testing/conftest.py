"""The fixture `goldspan` runs a command in the process of the test."""

from support.command_line import goldspan

__all__ = ["goldspan"]
