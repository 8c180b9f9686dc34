"""`goldspan export`: writes the runs of a store to a CSV, Parquet or JSON lines file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from goldspan.cli import options
from goldspan.cli.console import stderr_console, with_progress_bar
from goldspan.errors import ConfigurationError, StoreError

EXAMPLES = """
Examples:\n
  goldspan export goldspan.db runs.csv\n
  goldspan export goldspan-data failed.parquet --verdict fail --since 7d\n
  goldspan export goldspan.db weak.jsonl --metric tool_recall --below 0.8 --golden refund\n
  goldspan export goldspan.db missing.csv --tool send_email --tool-role missing --force\n
"""


def export(
    store: options.StoreArgument,
    out: Annotated[
        Path,
        typer.Argument(metavar="OUT", help="The file to write: .csv, .parquet or .jsonl.", show_default=False),
    ],
    verdict: options.VerdictFilter = None,
    metric: options.MetricFilter = None,
    below: options.BelowFilter = None,
    golden: options.GoldenFilter = None,
    covered: Annotated[
        bool | None, typer.Option("--covered/--uncovered", help="Runs with a golden, or runs without one.")
    ] = None,
    agent: options.AgentFilter = None,
    tool: options.ToolFilter = None,
    tool_role: options.ToolRoleFilter = "called",
    service: options.ServiceFilter = None,
    environment: options.EnvironmentFilter = None,
    unit: options.UnitFilter = None,
    session: Annotated[str | None, typer.Option("--session", metavar="ID", help="Runs of this session.")] = None,
    trace: Annotated[str | None, typer.Option("--trace", metavar="ID", help="Runs with spans in this trace.")] = None,
    text: options.TextFilter = None,
    since: options.SinceFilter = None,
    until: options.UntilFilter = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite OUT if it exists.")] = False,
) -> None:
    """Export the runs of a store to a file, newest first, each with its current evaluation.

    The options select runs; without options, all runs are exported. Times without a zone are UTC.
    """
    from goldspan.store import RunFilter, open_store

    if out.exists() and not force:
        raise StoreError(f"{out}: the file exists; --force overwrites it")
    if below is not None and metric is None:
        raise ConfigurationError("--below needs --metric: it compares the scores of that metric")
    run_filter = RunFilter(
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
        since_ns=options.parse_time_option(since, "--since"),
        until_ns=options.parse_time_option(until, "--until"),
    )
    with open_store(options.store_file(store), read_only=True) as opened:
        total = opened.count(run_filter).total
        written = opened.export(
            out, filter=run_filter, overwrite=force, observe=lambda runs: with_progress_bar(runs, total, "writing")
        )
    stderr_console().print(f"{written} run{'s' * (written != 1)} written to {out}", markup=False)
