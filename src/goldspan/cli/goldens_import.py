"""`goldspan goldens import`: converts datasets of other evaluation tools to goldens."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from goldspan.cli.console import print_warning, stderr_console, stdout_console
from goldspan.errors import ConfigurationError
from goldspan.terminal.escapes import escape_control_characters

EXAMPLES = """
Examples:\n
  goldspan goldens import dataset.json --out goldens.yaml\n
  goldspan goldens import basic.evalset.json --from adk --out goldens.yaml\n
  goldspan goldens import promptfooconfig.yaml > goldens.yaml\n
"""
NOTHING_IMPORTED = 1

Source = Literal["auto", "deepeval", "adk", "promptfoo", "langsmith", "phoenix", "pydantic-evals"]
"""It repeats the type in `goldspan.curation`, which is slow to import."""


def import_dataset(
    file: Annotated[
        Path,
        typer.Argument(metavar="FILE", help="A dataset in JSON, JSON lines, CSV or YAML.", show_default=False),
    ],
    source: Annotated[
        Source,
        typer.Option("--from", metavar="TOOL", help="The tool that defines the format. auto detects it."),
    ] = "auto",
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="FILE", help="The golden file to write. Default: standard output."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the golden file if it exists.")] = False,
) -> None:
    """Import a dataset of another evaluation tool as goldens, and print what could not be carried over.

    Tools: deepeval, adk, promptfoo, langsmith, phoenix, pydantic-evals.

    Exit status: 0 goldens were written, 1 there are none, 2 the file cannot be read.
    """
    from goldspan.curation.importing.golden_import import import_goldens
    from goldspan.goldens.golden_files.golden_writer import goldens_to_yaml

    if out is not None and out.exists() and not force:
        raise ConfigurationError(f"{out}: the file exists; --force overwrites it")
    result = import_goldens(file, source)
    for loss in result.losses:
        print_warning(f"not carried over: {loss.kind}: {loss.count}, first in {loss.first}")
    if not result.goldens:
        print_warning(f"{file}: no golden in this file of {result.source}")
        raise typer.Exit(NOTHING_IMPORTED)
    text = "version: 1\ngoldens:\n" + goldens_to_yaml(*result.goldens)
    if out is None:
        stdout_console().write_line(text.rstrip("\n"))
    else:
        out.write_text(text, encoding="utf-8")
    number = len(result.goldens)
    written = f" written to {escape_control_characters(str(out))}" if out is not None else ""
    stderr_console().print(f"{number} golden{'s' * (number != 1)} of {result.source}{written}", markup=False)
