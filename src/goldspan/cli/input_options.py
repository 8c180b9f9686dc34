"""What the commands read: traces and cases, and the options that say which and how."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from goldspan.cases.case_evaluation import Case, parse_case
from goldspan.cases.case_files import read_case_rows
from goldspan.cli.console import (
    byte_progress_bar,
    print_error,
    print_warning,
    with_known_total,
    with_progress_bar,
    with_status,
)
from goldspan.errors import ConfigurationError, GoldspanError, TraceFileError
from goldspan.extraction import extract
from goldspan.goldens import Goldens
from goldspan.model import NO_VOCABULARY, ComponentSelector, Run, RunUnit, TelemetryRecord
from goldspan.otlp.trace_files import Loss, OnLoss, read_records, total_bytes
from goldspan.store.query_parameters import parse_time

GoldenFilter = Annotated[str | None, typer.Option("--golden", metavar="ID", help="Runs judged by that golden.")]
AgentFilter = Annotated[str | None, typer.Option("--agent", metavar="NAME", help="Runs of that agent.")]
ServiceFilter = Annotated[str | None, typer.Option("--service", metavar="NAME", help="Runs of that service.")]
EnvironmentFilter = Annotated[
    str | None, typer.Option("--environment", metavar="NAME", help="Runs of that deployment environment.")
]
TextFilter = Annotated[str | None, typer.Option("--text", metavar="TEXT", help="Runs whose input has it.")]
SinceFilter = Annotated[
    str | None,
    typer.Option("--since", metavar="TIME", help="Runs from then on: 2026-01-31, 2026-01-31T08:00, or 24h, 7d."),
]
UntilFilter = Annotated[str | None, typer.Option("--until", metavar="TIME", help="Runs before then.")]


def parse_time_option(text: str | None, option: str) -> int | None:
    """A time as it is written, in nanoseconds since the Unix epoch. Raises `ConfigurationError` for what is none."""
    if text is None:
        return None
    try:
        return parse_time(text, time.time_ns())
    except ConfigurationError as error:
        raise ConfigurationError(f"{option}: {error}") from None


T = TypeVar("T")

_PATHS_ARGUMENT = typer.Argument(
    metavar="PATHS",
    help="Files or folders with traces, and with the logs beside them; - is standard input. OTLP as protobuf, JSON "
    "or JSON lines, what the Collector's file exporter writes in any of its formats, and the JSON of Grafana Tempo "
    "and Jaeger; plain, gzip or zstd. What a file is shows in its contents.",
    show_default=False,
)
Paths = Annotated[list[str], _PATHS_ARGUMENT]
OptionalPaths = Annotated[list[str] | None, _PATHS_ARGUMENT]
UnitOption = Annotated[
    RunUnit,
    typer.Option(
        "--unit",
        metavar="UNIT",
        help="What a run is: a request, a component (a part of one that is marked, that a golden file declares, or "
        "that another agent does), or a conversation (all requests of a session).",
    ),
]
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
_NO_SPANS_HINT = "no span in it is known to be of an agent, a model or a tool; docs/conventions.md says which are"
_NO_RUNS_HINTS: dict[RunUnit, str] = {
    "request": _NO_SPANS_HINT,
    "conversation": _NO_SPANS_HINT,
    "component": "no span in it is marked or declared as one, and no agent works inside another; docs/components.md "
    "says how",
}
_EMPTY_HINT = "nothing was written there"
_MAX_LOSSES_SHOWN, _MAX_ROW_ERRORS_SHOWN = 5, 20
"""So many places of a file, and wrong rows, are told one by one."""


def load_runs_with_progress(
    paths: list[str],
    *,
    unit: RunUnit,
    golden_id_attributes: list[str] | None,
    goldens: Goldens | None = None,
    description: str = "",
) -> Iterator[Run]:
    """The runs in some traces, with the components that the goldens declare.

    On a terminal one sees how far reading is, and how far the caller is with what it is `doing` with the runs, if
    anything. What could not be read is told at the end; no run at all is an error.
    """
    attributes = golden_id_attributes
    return transform_runs(
        paths, iter, unit=unit, golden_id_attributes=attributes, goldens=goldens, description=description
    )


def transform_runs(
    paths: list[str],
    transform: Callable[[Iterable[Run]], Iterable[T]],
    *,
    unit: RunUnit,
    golden_id_attributes: list[str] | None,
    goldens: Goldens | None = None,
    description: str = "",
    is_streamed: bool = False,
) -> Iterator[T]:
    """What is made of the runs in some traces, one thing of each; else as `runs_in`.

    On a terminal one sees how many of these things there are; `streamed` is said of that in `counted`.
    """
    losses: list[Loss] = []
    try:
        runs = extract_runs(
            paths,
            unit=unit,
            golden_id_attributes=golden_id_attributes,
            components=() if goldens is None else goldens.components,
            on_loss=losses.append,
        )
        made = transform(runs)
        yield from with_progress_bar(made, len(runs), description, is_streamed=is_streamed) if description else made
    finally:
        _print_losses(losses)
    if not runs:
        named = ", ".join("standard input" if path == "-" else Path(path).name or path for path in paths)
        raise TraceFileError(
            f"no {unit} found in {named}: {_EMPTY_HINT if _are_empty(paths) else _NO_RUNS_HINTS[unit]}"
        )


def extract_runs(
    paths: list[str],
    *,
    unit: RunUnit,
    golden_id_attributes: list[str] | None,
    components: Sequence[ComponentSelector],
    on_loss: OnLoss,
) -> list[Run]:
    """The runs in some traces, as `load_runs` has them; on a terminal one sees how far it is."""
    attributes = golden_id_attributes or None
    records = _read_with_progress(paths, on_loss)
    return extract(records, unit=unit, golden_id_attributes=attributes, components=components, watch=with_known_total)


def _read_with_progress(paths: list[str], on_loss: OnLoss) -> Iterator[TelemetryRecord]:
    with byte_progress_bar(total_bytes(paths), "reading traces") as read:
        yield from read_records(paths, on_loss=on_loss, on_read=read)


def _are_empty(paths: list[str]) -> bool:
    """Whether all of them are files with nothing in them, as an exporter leaves them that was never shut down."""
    return all(os.path.isfile(path) and not os.path.getsize(path) for path in paths)


def read_cases(paths: list[str], goldens: Goldens | None) -> tuple[list[Case], list[str]]:
    """The cases in some files, and what is wrong with the rows that are none, a sentence each."""
    vocabulary = NO_VOCABULARY if goldens is None else goldens.vocabulary
    cases: list[Case] = []
    wrong: list[str] = []
    for path in paths:
        rows = with_status(read_case_rows(path, wrong.append), lambda number: f"reading cases: {number} rows")
        for number, (where, row) in enumerate(rows, start=1):
            try:
                cases.append(parse_case(row, number, location=where, vocabulary=vocabulary))
            except GoldspanError as error:
                wrong.append(str(error))
    return cases, wrong


def print_row_errors(rows: list[str]) -> None:
    """Say what is wrong with some rows."""
    for sentence in rows[:_MAX_ROW_ERRORS_SHOWN]:
        print_error(sentence)
    if len(rows) > _MAX_ROW_ERRORS_SHOWN:
        print_error(f"{len(rows) - _MAX_ROW_ERRORS_SHOWN} more rows are wrong")


def _print_losses(losses: list[Loss]) -> None:
    for loss in losses[:_MAX_LOSSES_SHOWN]:
        print_warning(f"{loss}; everything else was read")
    if len(losses) > _MAX_LOSSES_SHOWN:
        print_warning(f"{len(losses) - _MAX_LOSSES_SHOWN} more places could not be read")
