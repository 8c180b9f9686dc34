"""`goldspan convert`: writes the spans and logs in trace files as rows of a Parquet file."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from goldspan.cli import options
from goldspan.errors import ConfigurationError

EXAMPLES = """
Examples:\n
  goldspan convert traces/ --out spans.parquet\n
  goldspan convert traces.jsonl more.pb.gz --out spans.parquet --force\n
"""


def convert(
    paths: options.Paths,
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="The file to write; its name ends in .parquet.")],
    force: Annotated[bool, typer.Option("--force", help="Overwrite the file if it exists.")] = False,
) -> None:
    """Write the spans and logs in trace files to one Parquet file, one row for each.

    The columns are those of the tables otel_traces and otel_logs of OpenTelemetry's ClickHouse exporter. The column
    TypedValues keeps the numbers, lists and mappings that are text in those tables, so that goldspan reads the same
    spans from the file.
    """
    from goldspan.cli.console import stderr_console
    from goldspan.cli.input_reading import print_losses, read_with_progress
    from goldspan.otlp.parquet_files import write_records
    from goldspan.otlp.trace_files import Loss

    if out.suffix.lower() != ".parquet":
        raise ConfigurationError(f"--out {out}: the name must end in .parquet")
    if out.exists() and not force:
        raise ConfigurationError(f"{out}: the file exists; --force overwrites it")
    losses: list[Loss] = []
    temporary = out.with_name(f".{out.name}.{os.getpid()}.part")
    try:
        written = write_records(read_with_progress(paths, losses.append), str(temporary))
        temporary.replace(out)
    except OSError as error:
        raise ConfigurationError(f"{out}: it cannot be written: {error.strerror or error}") from error
    finally:
        with suppress(OSError):  # it was renamed, or never created
            temporary.unlink()
        print_losses(losses)
    stderr_console().print(f"{written} row{'s' * (written != 1)} written to {out}", markup=False)
