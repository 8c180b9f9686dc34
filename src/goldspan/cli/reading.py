"""What `score` and `extract` have in common: options and the reading of traces."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from goldspan.cli.console import warn, watched
from goldspan.errors import TraceFileError
from goldspan.model import Run, Unit
from goldspan.otlp import Loss, load_runs

Paths = Annotated[
    list[str],
    typer.Argument(
        metavar="PATHS",
        help="Trace files or folders: OTLP protobuf or JSON, Collector JSON lines, packed or not; - is standard input.",
        show_default=False,
    ),
]
UnitOption = Annotated[Unit, typer.Option("--unit", help="What is scored: whole requests, or marked components.")]
GoldenIdAttribute = Annotated[
    list[str] | None,
    typer.Option(
        "--golden-id-attribute",
        metavar="KEY",
        help="Span attribute that names a run's golden; may be given again. Default: goldspan.golden.id, then "
        "test.case.name, or GOLDSPAN_GOLDEN_ID_ATTRIBUTE.",
        show_default=False,
    ),
]
JsonFlag = Annotated[bool, typer.Option("--json", help="One JSON object a line instead of a table.")]
_TOLD = 5
"""So many places of a file are told one by one."""


def runs_in(paths: list[str], *, unit: Unit, golden_id_attributes: list[str] | None) -> Iterator[Run]:
    """The runs in some traces. What could not be read is told at the end; no run at all is an error."""
    losses: list[Loss] = []
    found = load_runs(*paths, unit=unit, golden_id_attributes=golden_id_attributes or None, on_loss=losses.append)
    none = True
    try:
        for run in watched(found, lambda number: f"reading traces: {number} runs"):
            none = False
            yield run
    finally:
        _tell(losses)
    if none:
        named = ", ".join(Path(path).name or path for path in paths)
        raise TraceFileError(f"no {unit} found in {named}: there is no span of an agent, a model or a tool in it")


def _tell(losses: list[Loss]) -> None:
    for loss in losses[:_TOLD]:
        warn(f"{loss}; everything else was read")
    if len(losses) > _TOLD:
        warn(f"{len(losses) - _TOLD} more places could not be read")
