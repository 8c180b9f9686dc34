"""What the commands read: traces and cases, and the options that say which and how."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from goldspan.cases.files import read_rows
from goldspan.cases.judging import Case, case_of
from goldspan.cli.console import bytes_read, counted, fail, warn, watched, watched_through
from goldspan.errors import GoldspanError, TraceFileError
from goldspan.extraction import extract
from goldspan.goldens import Goldens
from goldspan.model import NO_VOCABULARY, ComponentSpans, Record, Run, Unit
from goldspan.otlp.files import Loss, OnLoss, read_records, total_bytes

T = TypeVar("T")

_PATHS = typer.Argument(
    metavar="PATHS",
    help="Files or folders with traces, and with the logs beside them; - is standard input. OTLP as protobuf, JSON "
    "or JSON lines, what the Collector's file exporter writes in any of its formats, and the JSON of Grafana Tempo "
    "and Jaeger; plain, gzip or zstd. What a file is shows in its contents.",
    show_default=False,
)
Paths = Annotated[list[str], _PATHS]
PathsIfAny = Annotated[list[str] | None, _PATHS]
UnitOption = Annotated[
    Unit,
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
_NO_WORK = "no span in it is known to be of an agent, a model or a tool; docs/conventions.md says which are"
_WHY_NONE: dict[Unit, str] = {
    "request": _NO_WORK,
    "conversation": _NO_WORK,
    "component": "no span in it is marked or declared as one, and no agent works inside another; docs/components.md "
    "says how",
}
_EMPTY = "nothing was written there"
_TOLD, _WRONG = 5, 20
"""So many places of a file, and wrong rows, are told one by one."""


def runs_in(
    paths: list[str],
    *,
    unit: Unit,
    golden_id_attributes: list[str] | None,
    goldens: Goldens | None = None,
    doing: str = "",
) -> Iterator[Run]:
    """The runs in some traces, with the components that the goldens declare.

    On a terminal one sees how far reading is, and how far the caller is with what it is `doing` with the runs, if
    anything. What could not be read is told at the end; no run at all is an error.
    """
    attributes = golden_id_attributes
    return made_of_runs(paths, iter, unit=unit, golden_id_attributes=attributes, goldens=goldens, doing=doing)


def made_of_runs(
    paths: list[str],
    make: Callable[[Iterable[Run]], Iterable[T]],
    *,
    unit: Unit,
    golden_id_attributes: list[str] | None,
    goldens: Goldens | None = None,
    doing: str = "",
    streamed: bool = False,
) -> Iterator[T]:
    """What is made of the runs in some traces, one thing of each; else as `runs_in`.

    On a terminal one sees how many of these things there are; `streamed` is said of that in `counted`.
    """
    losses: list[Loss] = []
    try:
        runs = rebuilt(
            paths,
            unit=unit,
            golden_id_attributes=golden_id_attributes,
            components=() if goldens is None else goldens.components,
            on_loss=losses.append,
        )
        made = make(runs)
        yield from counted(made, len(runs), doing, streamed=streamed) if doing else made
    finally:
        _tell(losses)
    if not runs:
        named = ", ".join("standard input" if path == "-" else Path(path).name or path for path in paths)
        raise TraceFileError(f"no {unit} found in {named}: {_EMPTY if _are_empty(paths) else _WHY_NONE[unit]}")


def rebuilt(
    paths: list[str],
    *,
    unit: Unit,
    golden_id_attributes: list[str] | None,
    components: Sequence[ComponentSpans],
    on_loss: OnLoss,
) -> list[Run]:
    """The runs in some traces, as `load_runs` has them; on a terminal one sees how far it is."""
    attributes = golden_id_attributes or None
    records = _records(paths, on_loss)
    return extract(records, unit=unit, golden_id_attributes=attributes, components=components, watch=watched_through)


def _records(paths: list[str], on_loss: OnLoss) -> Iterator[Record]:
    with bytes_read(total_bytes(paths), "reading traces") as read:
        yield from read_records(paths, on_loss=on_loss, on_read=read)


def _are_empty(paths: list[str]) -> bool:
    """Whether all of them are files with nothing in them, as an exporter leaves them that was never shut down."""
    return all(os.path.isfile(path) and not os.path.getsize(path) for path in paths)


def cases_in(paths: list[str], goldens: Goldens | None) -> tuple[list[Case], list[str]]:
    """The cases in some files, and what is wrong with the rows that are none, a sentence each."""
    vocabulary = NO_VOCABULARY if goldens is None else goldens.vocabulary
    cases: list[Case] = []
    wrong: list[str] = []
    for path in paths:
        rows = watched(read_rows(path, wrong.append), lambda number: f"reading cases: {number} rows")
        for number, (where, row) in enumerate(rows, start=1):
            try:
                cases.append(case_of(row, number, where=where, vocabulary=vocabulary))
            except GoldspanError as error:
                wrong.append(str(error))
    return cases, wrong


def tell_wrong(rows: list[str]) -> None:
    """Say what is wrong with some rows."""
    for sentence in rows[:_WRONG]:
        fail(sentence)
    if len(rows) > _WRONG:
        fail(f"{len(rows) - _WRONG} more rows are wrong")


def _tell(losses: list[Loss]) -> None:
    for loss in losses[:_TOLD]:
        warn(f"{loss}; everything else was read")
    if len(losses) > _TOLD:
        warn(f"{len(losses) - _TOLD} more places could not be read")
