"""`goldspan export`: the runs of a store as CSV, Parquet or JSON lines."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from goldspan.cli import input_options
from goldspan.cli.console import stderr_console, with_progress_bar
from goldspan.errors import ConfigurationError, StoreError
from goldspan.model import RunUnit
from goldspan.store import RunFilter, open_store
from goldspan.store.store_protocol import ToolRole, Verdict

EXAMPLES = """
Examples:\n
  goldspan export goldspan.db runs.csv\n
  goldspan export goldspan.db failed.parquet --verdict fail --since 7d\n
  goldspan export goldspan.db weak.jsonl --metric tool_recall --below 0.8 --golden refund\n
  goldspan export goldspan.db missing.csv --tool send_email --tool-role missing --force\n
"""


def export(
    store: Annotated[Path, typer.Argument(metavar="STORE", help="The file of the store.", show_default=False)],
    out: Annotated[
        Path,
        typer.Argument(metavar="OUT", help="What to write; it ends in .csv, .parquet or .jsonl.", show_default=False),
    ],
    verdict: Annotated[Verdict | None, typer.Option("--verdict", help="Runs that came out so.")] = None,
    metric: Annotated[str | None, typer.Option("--metric", metavar="NAME", help="Runs with a score of it.")] = None,
    below: Annotated[
        float | None, typer.Option("--below", metavar="X", help="Runs whose score of --metric is less.")
    ] = None,
    golden: input_options.GoldenFilter = None,
    covered: Annotated[
        bool | None, typer.Option("--covered/--uncovered", help="Runs for which there was a golden, or was none.")
    ] = None,
    agent: input_options.AgentFilter = None,
    tool: Annotated[str | None, typer.Option("--tool", metavar="NAME", help="Runs in which that tool ...")] = None,
    tool_role: Annotated[ToolRole, typer.Option("--tool-role", help="... was that.")] = "called",
    service: input_options.ServiceFilter = None,
    environment: input_options.EnvironmentFilter = None,
    unit: Annotated[RunUnit | None, typer.Option("--unit", help="Runs of that kind.")] = None,
    session: Annotated[str | None, typer.Option("--session", metavar="ID", help="Runs of that session.")] = None,
    trace: Annotated[str | None, typer.Option("--trace", metavar="ID", help="Runs with spans in that trace.")] = None,
    text: input_options.TextFilter = None,
    since: input_options.SinceFilter = None,
    until: input_options.UntilFilter = None,
    force: Annotated[bool, typer.Option("--force", help="Replace OUT where it is there already.")] = False,
) -> None:
    """Write the runs of a store, newest first, each with its current evaluation, for other programs to read.

    The options narrow the choice down; without any, all runs are written. Times without a zone are UTC.
    """
    if out.exists() and not force:
        raise StoreError(f"{out}: it is there already; --force replaces it")
    if below is not None and metric is None:
        raise ConfigurationError("--below needs --metric, whose scores it limits")
    wanted = RunFilter(
        verdict=verdict,
        metric=metric,
        below=below,
        golden=golden,
        covered=covered,
        agent=agent,
        tool=tool,
        tool_role=tool_role,
        service=service,
        environment=environment,
        unit=unit,
        session_id=session,
        trace_id=trace,
        text=text,
        since_ns=input_options.parse_time_option(since, "--since"),
        until_ns=input_options.parse_time_option(until, "--until"),
    )
    with open_store(store, read_only=True) as opened:
        total = opened.count(wanted).total
        written = opened.export(
            out, filter=wanted, overwrite=force, observe=lambda runs: with_progress_bar(runs, total, "writing")
        )
    stderr_console().print(f"{written} run{'s' * (written != 1)} written to {out}", markup=False)
