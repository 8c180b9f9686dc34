"""`goldspan extract`: the tool calls of every run in some traces, without judging them."""

from __future__ import annotations

from typing import Annotated

import typer

from goldspan.cli.console import output
from goldspan.cli.reading import GoldenIdAttribute, JsonFlag, Paths, UnitOption, runs_in
from goldspan.cli.tables import capture_block, notes_legend, runs_table
from goldspan.goldens import load_goldens
from goldspan.sinks.documents import run_document, to_json

EXAMPLES = """
Examples:\n
  goldspan extract traces.jsonl\n
  goldspan extract traces/ more.pb.gz --json | jq .tools_used\n
  goldspan extract traces.jsonl --unit component -g goldens.yaml\n
  cat traces.jsonl | goldspan extract -\n
"""


def extract(
    paths: Paths,
    unit: UnitOption = "request",
    golden_id_attribute: GoldenIdAttribute = None,
    goldens: Annotated[
        list[str] | None,
        typer.Option(
            "--goldens", "-g", metavar="FILE", help="Golden file that declares components; may be given again."
        ),
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Show which tools each run used, in order, as rebuilt from its spans."""
    known = load_goldens(*goldens) if goldens else None
    runs = runs_in(paths, unit=unit, golden_id_attributes=golden_id_attribute, goldens=known)
    console = output()
    if as_json:
        for run in runs:
            console.put(to_json(run_document(run)))
            if console.quiet:
                break
    else:
        found = list(runs)
        console.print(runs_table(found))
        console.print(notes_legend(found))
        console.print(capture_block(found))
