"""The command line: `goldspan score`, `goldspan extract`, `goldspan demo`."""

from __future__ import annotations

import sys

__all__ = ["main"]


def main() -> None:
    """Run the command line and leave with its exit status: 0 fine, 1 a gate failed, 2 wrong use or unreadable input."""
    from goldspan.cli.app import run  # typer and rich load only where they are used

    sys.exit(run())
