"""The fixture `goldspan` runs a command in the process of the test; `project` is a project with an agent to test."""

from support.command_line import goldspan
from support.pytest_project import project

__all__ = ["goldspan", "project"]
