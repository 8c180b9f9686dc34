"""The command line `goldspan`: one module for each command, and the modules that they share.

- ``app``: assembles the commands, and turns errors into exit statuses.
- ``command_help``: shows flags as flags in the help of every command.
- ``console``: writes results to standard output, and messages and progress to standard error.
- ``input_options``: reads traces and case files; the options that select runs.
- ``scoring_options``: the options that configure the evaluation, and the gates.
- ``judge_options``: the options of the LLM judge, and its summary.
- ``store_path``: finds the store that a command names.
- ``tables``: formats runs and evaluations for a terminal.
- ``score``, ``report``, ``view``, ``extract``, ``export``, ``serve``, ``watch``, ``goldens_command``, ``demo``: one
  command each.
- ``api_client``: reads the API of a running gateway for ``watch``.
"""

from __future__ import annotations

import os
import sys
import threading
from contextlib import suppress

__all__ = ["main"]


def main() -> None:
    """Run the command line and exit: 0 fine, 1 a gate failed, 2 an option is wrong or the input cannot be read."""
    from goldspan.cli.app import INTERRUPTED, run  # deferred: typer and rich are slow to import

    status = run()
    if status == INTERRUPTED and any(thread.daemon for thread in threading.enumerate()):
        # Metrics may still run on daemon threads, and Python aborts if one writes while the interpreter shuts down.
        with suppress(OSError):
            sys.stdout.flush()
        os._exit(status)
    sys.exit(status)
