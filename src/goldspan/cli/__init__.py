"""The command line `goldspan`: one module for each command, and the modules that they share.

- ``app``: assembles the commands, imports the one that runs, and turns errors into exit statuses.
- ``options``: the options that several commands share, and the store that one of them names.
- ``console``: writes results to standard output, and messages and progress to standard error.
- ``input_reading``: reads traces and case files, with progress on a terminal.
- ``scoring_options``: evaluates runs and cases as the options say, and checks the gates.
- ``evaluation_summary``: counts evaluations, and keeps those that are shown.
- ``batch_options``: the options with which ``score`` reads inputs that are larger than the memory.
- ``batch_scoring``: evaluates in several processes, or into a folder, for ``score``.
- ``spark_scoring``: evaluates with Apache Spark, for ``score``.
- ``output_folder``: the folder of ``score --out``, with its manifest.
- ``judge_options``: the settings of the LLM judge, its stage and its summary.
- ``start_range_options``: the range of time in which the runs started that ``score`` and ``extract`` read.
- ``pull_options``: the options with which ``score`` and ``extract`` read traces out of tools, and how they do it.
- ``backfill_options``: the options with which ``export`` and ``score`` send scores to products, and how they do it.
- ``tables``: prints evaluations and their summary, and formats runs.
- ``agent_results``: selects the goldens of ``run``, and prints the results of an agent.
- ``score``, ``run``, ``check``, ``report``, ``view``, ``extract``, ``convert``, ``export``, ``serve``, ``watch``,
  ``mcp_command``, ``demo``: one command each.
- ``goldens_command``, ``goldens_suggest``, ``goldens_import``, ``goldens_diff``: the commands of ``goldspan goldens``.
- ``live_feed``: prints and selects the evaluations of a running gateway for ``watch``.
- ``api_client``: reads the API of a running gateway for ``watch``.

A command's module imports at its top what its options need, and inside functions what it runs with, so that `--help` is
fast.
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
