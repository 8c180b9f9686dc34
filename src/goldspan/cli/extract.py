"""`goldspan extract`: prints the tool calls of every run in traces, without evaluating them."""

from __future__ import annotations

from typing import Annotated

import typer

from goldspan.cli import options, pull_options, start_range_options

EXAMPLES = """
Examples:\n
  goldspan extract traces.jsonl\n
  goldspan extract traces/ more.pb.gz --json | jq .tools_used\n
  goldspan extract traces.jsonl --unit component -g goldens.yaml\n
  goldspan extract lake/ --since 2026-01-31T08:00 --until 2026-01-31T09:00\n
  goldspan extract jaeger://localhost:16686 --since 1h\n
  cat traces.jsonl | goldspan extract -\n
"""


def extract(
    context: typer.Context,
    paths: options.Paths,
    unit: options.UnitOption = "request",
    golden_id_attribute: options.GoldenIdAttribute = None,
    goldens: Annotated[
        list[str] | None,
        typer.Option("--goldens", "-g", metavar="FILE", help="Golden file that declares components. May be repeated."),
    ] = None,
    since: start_range_options.SinceRangeOption = None,
    until: start_range_options.UntilRangeOption = None,
    max_traces: pull_options.MaxTracesOption = None,
    save_traces: pull_options.SaveTracesOption = None,
    as_json: options.JsonFlag = False,
) -> None:
    """Print the tools that each run called, in order, and what is missing in the capture of its spans."""
    from goldspan.cli.console import stdout_console
    from goldspan.cli.input_reading import load_runs_with_progress
    from goldspan.cli.tables import capture_block, notes_legend, runs_table
    from goldspan.goldens import load_goldens
    from goldspan.sinks.serialization import run_document, to_json

    start_range = start_range_options.parse_start_range(since, until)
    loaded_goldens = load_goldens(*goldens) if goldens else None
    kept_range = start_range_options.range_of_files(start_range, paths or ())
    paths = pull_options.pulled_traces(
        context, paths, start_range=start_range, max_traces=max_traces, save_traces=save_traces
    )
    runs = load_runs_with_progress(
        paths,
        unit=unit,
        golden_id_attributes=golden_id_attribute,
        goldens=loaded_goldens,
        start_range=kept_range,
    )
    console = stdout_console()
    if as_json:
        for run in runs:
            console.write_line(to_json(run_document(run)))
            if console.quiet:
                break
    else:
        all_runs = list(runs)
        console.print(runs_table(all_runs))
        console.print(notes_legend(all_runs))
        console.print(capture_block(all_runs))
