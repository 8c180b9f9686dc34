"""Reads traces and case files for the commands, with progress on a terminal."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from goldspan._garbage_collection import garbage_collection_paused
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
from goldspan.errors import GoldspanError, TraceFileError
from goldspan.extraction import extract
from goldspan.goldens import Goldens
from goldspan.model import NO_VOCABULARY, ComponentSelector, Run, RunUnit, TelemetryRecord
from goldspan.otlp.trace_files import Loss, OnLoss, read_records, total_bytes

T = TypeVar("T")

_NO_SPANS_HINT = "no span is recognised as one of an agent, a model or a tool; docs/conventions.md lists the known ones"
_NO_RUNS_HINTS: dict[RunUnit, str] = {
    "request": _NO_SPANS_HINT,
    "conversation": _NO_SPANS_HINT,
    "component": "no span is marked or declared as one, and no agent calls another; docs/components.md explains how "
    "to mark one",
}
_EMPTY_HINT = "the file is empty"
_MAX_LOSSES_SHOWN, _MAX_ROW_ERRORS_SHOWN = 5, 20
"""Unreadable places of a file, and invalid rows, that are reported one by one."""


def load_runs_with_progress(
    paths: list[str],
    *,
    unit: RunUnit,
    golden_id_attributes: list[str] | None,
    goldens: Goldens | None = None,
    description: str = "",
) -> Iterator[Run]:
    """Yield the runs in traces, with the components that the goldens declare.

    On a terminal a bar shows the progress of reading and, with a `description`, of the caller's work on the runs.
    Unreadable places are reported at the end. Raises `TraceFileError` where no run is found.
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
    """Yield what `transform` returns for the runs in traces, one item for each run; see `load_runs_with_progress`.

    `is_streamed`: the caller writes each item to standard output at once; see `with_progress_bar`.
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
        items = transform(runs)
        yield from with_progress_bar(items, len(runs), description, is_streamed=is_streamed) if description else items
    finally:
        _print_losses(losses)
    if not runs:
        names = ", ".join("standard input" if path == "-" else Path(path).name or path for path in paths)
        raise TraceFileError(
            f"no {unit} found in {names}: {_EMPTY_HINT if _are_empty(paths) else _NO_RUNS_HINTS[unit]}"
        )


def extract_runs(
    paths: list[str],
    *,
    unit: RunUnit,
    golden_id_attributes: list[str] | None,
    components: Sequence[ComponentSelector],
    on_loss: OnLoss,
) -> list[Run]:
    """Return the runs in traces as `load_runs` does, with a progress bar on a terminal."""
    attributes = golden_id_attributes or None
    # All spans are in memory until their runs are extracted, and the extraction leaves no cycles. Collections would
    # take a quarter of the time of `goldspan score`.
    with garbage_collection_paused():
        return extract(
            _read_with_progress(paths, on_loss),
            unit=unit,
            golden_id_attributes=attributes,
            components=components,
            watch=with_known_total,
        )


def _read_with_progress(paths: list[str], on_loss: OnLoss) -> Iterator[TelemetryRecord]:
    with byte_progress_bar(total_bytes(paths), "reading traces") as read:
        yield from read_records(paths, on_loss=on_loss, on_read=read)


def _are_empty(paths: list[str]) -> bool:
    """Whether all paths are empty files, which an exporter leaves that was never shut down."""
    return all(os.path.isfile(path) and not os.path.getsize(path) for path in paths)


def read_cases(paths: list[str], goldens: Goldens | None) -> tuple[list[Case], list[str]]:
    """Return the cases in case files, and one error message for each invalid row."""
    vocabulary = NO_VOCABULARY if goldens is None else goldens.vocabulary
    cases: list[Case] = []
    errors: list[str] = []
    for path in paths:
        rows = with_status(read_case_rows(path, errors.append), lambda number: f"reading cases: {number} rows")
        for number, (where, row) in enumerate(rows, start=1):
            try:
                cases.append(parse_case(row, number, location=where, vocabulary=vocabulary))
            except GoldspanError as error:
                errors.append(str(error))
    return cases, errors


def print_row_errors(errors: list[str]) -> None:
    """Print the error messages of invalid rows."""
    for message in errors[:_MAX_ROW_ERRORS_SHOWN]:
        print_error(message)
    if len(errors) > _MAX_ROW_ERRORS_SHOWN:
        print_error(f"{len(errors) - _MAX_ROW_ERRORS_SHOWN} more rows are invalid")


def _print_losses(losses: list[Loss]) -> None:
    for loss in losses[:_MAX_LOSSES_SHOWN]:
        print_warning(f"{loss}; everything else was read")
    if len(losses) > _MAX_LOSSES_SHOWN:
        print_warning(f"{len(losses) - _MAX_LOSSES_SHOWN} more places could not be read")
