"""The command line: `goldspan score`, `report`, `view`, `extract`, `export`, `serve`, `watch`, `goldens`, `demo`."""

from __future__ import annotations

import os
import sys
import threading
from contextlib import suppress

__all__ = ["main"]


def main() -> None:
    """Run the command line and leave with its exit status: 0 fine, 1 a gate failed, 2 wrong use or unreadable input."""
    from goldspan.cli.app import INTERRUPTED, run  # typer and rich load only where they are used

    status = run()
    if status == INTERRUPTED and any(thread.daemon for thread in threading.enumerate()):
        # What slow metrics have begun runs on, and Python aborts if one of them is writing while it shuts down.
        with suppress(OSError):
            sys.stdout.flush()
        os._exit(status)
    sys.exit(status)
