"""`goldspan export`: writes the runs of a store to a file, or their scores into other products."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from goldspan.cli import backfill_options, options
from goldspan.cli.console import stderr_console, with_progress_bar
from goldspan.errors import ConfigurationError, StoreError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from goldspan.integrations.scored_runs import ScoredRun
    from goldspan.store import RunFilter, Store

EXAMPLES = """
Examples:\n
  goldspan export goldspan.db runs.csv\n
  goldspan export goldspan-data failed.parquet --verdict fail --since 7d\n
  goldspan export goldspan.db weak.jsonl --metric tool_recall --below 0.8 --golden refund\n
  goldspan export goldspan.db missing.csv --tool send_email --tool-role missing --force\n
  goldspan export goldspan-data --to phoenix --since 30d\n
  goldspan export postgresql://goldspan@db.example/goldspan failed.parquet --verdict fail\n
  goldspan export goldspan.db --to mlflow:https://mlflow.example --to langfuse --rate 10\n
  goldspan export goldspan.db --to phoenix --verdict fail --dry-run\n
"""


def export(
    store: options.StoreArgument,
    out: Annotated[
        Path | None,
        typer.Argument(metavar="OUT", help="The file to write: .csv, .parquet or .jsonl.", show_default=False),
    ] = None,
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
    to: backfill_options.ToOption = None,
    dry_run: backfill_options.DryRunFlag = False,
    state: backfill_options.StateOption = None,
    rate: backfill_options.RateOption = None,
    give_up_after: backfill_options.GiveUpAfterOption = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the requests of --dry-run as one JSON object per line.")
    ] = False,
) -> None:
    """Export the runs of a store, newest first, to a file, or their scores to products such as Phoenix and MLflow.

    Name either OUT or --to. Each run has its current evaluation. The filters select runs; without them, all runs are
    exported. Times without a zone are UTC.

    A repeated or interrupted command with --to continues: it writes only what is new or changed since.

    Exit status: 0 fine, 1 a product does not have all scores, 2 an option is wrong or the store cannot be read.
    """
    from goldspan.store import RunFilter, open_store

    if (out is None) == (not to):
        raise ConfigurationError("name where to export: either a file OUT, or a product with --to")
    if as_json and not dry_run:
        raise ConfigurationError("--json needs --dry-run: it is the form in which the requests are printed")
    location = options.store_location(store)
    if to and state is None and isinstance(location, str):
        raise ConfigurationError("--to needs --state FILE with a database: the file records what the product has")
    backfill = backfill_options.backfill_from(
        to,
        dry_run=dry_run,
        state=state,
        rate=rate,
        give_up_after=give_up_after,
        default_state=location.with_name(f"{location.name}.delivered") if isinstance(location, Path) else None,
    )
    if out is not None and out.exists() and not force:
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
    with open_store(location, read_only=True) as opened:
        total = opened.count(run_filter).total
        if backfill is not None:
            raise typer.Exit(_send_scores(opened, run_filter, total, backfill, as_json=as_json))
        written = opened.export(
            cast("Path", out),
            filter=run_filter,
            overwrite=force,
            observe=lambda runs: with_progress_bar(runs, total, "writing"),
        )
    stderr_console().print(f"{written} run{'s' * (written != 1)} written to {out}", markup=False)


def _send_scores(
    store: Store,
    run_filter: RunFilter,
    total: int,
    backfill: backfill_options.ScoreBackfill,
    *,
    as_json: bool,
) -> int:
    """Send the scores of the selected runs; return the exit status."""
    from goldspan.integrations.scored_runs import stored_scored_run

    def scored_runs() -> Iterator[ScoredRun | None]:
        return (stored_scored_run(run.current.document) for run in store.iter_runs(run_filter))

    return backfill.send(scored_runs, total, as_json=as_json)
