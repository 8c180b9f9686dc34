"""Reads traces and case files for the commands, with progress on a terminal."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

from goldspan._garbage_collection import garbage_collection_paused
from goldspan.batch.bounded_extraction import (
    DEFAULT_MEMORY,
    FOLDER_PREFIX,
    RunCollection,
    extract_bounded,
    extract_files,
)
from goldspan.batch.partitioned_extraction import PartitionedRuns
from goldspan.batch.task_runner import TaskRunner
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
from goldspan.otlp.start_range import ALL_STARTS, StartRange
from goldspan.otlp.trace_files import Loss, OnLoss, list_files, read_records, total_bytes

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
    memory: int = DEFAULT_MEMORY,
    start_range: StartRange = ALL_STARTS,
) -> Iterator[Run]:
    """Yield the runs in traces that started in a range of time, with the components that the goldens declare.

    On a terminal a bar shows the progress of reading and, with a `description`, of the caller's work on the runs.
    Unreadable places are reported at the end. Raises `TraceFileError` where no run is found. Traces that take more than
    `memory` bytes are divided on disk.
    """
    return transform_runs(
        paths,
        iter,
        unit=unit,
        golden_id_attributes=golden_id_attributes,
        goldens=goldens,
        description=description,
        memory=memory,
        start_range=start_range,
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
    memory: int = DEFAULT_MEMORY,
    jobs: int = 1,
    start_range: StartRange = ALL_STARTS,
) -> Iterator[T]:
    """Yield what `transform` returns for the runs in traces, one item for each run; see `load_runs_with_progress`.

    `is_streamed`: the caller writes each item to standard output at once; see `with_progress_bar`.
    """
    losses: list[Loss] = []
    try:
        with _extracted_runs(
            paths,
            unit=unit,
            golden_id_attributes=golden_id_attributes or None,
            components=() if goldens is None else goldens.components,
            memory=memory,
            jobs=jobs,
            on_loss=losses.append,
            start_range=start_range,
        ) as runs:
            number = len(runs)
            items = transform(runs)
            yield from with_progress_bar(items, number, description, is_streamed=is_streamed) if description else items
    finally:
        print_losses(losses)
    if not number:
        raise no_runs_error(paths, unit, start_range)


@contextmanager
def _extracted_runs(
    paths: list[str],
    *,
    unit: RunUnit,
    golden_id_attributes: Sequence[str] | None,
    components: Sequence[ComponentSelector],
    memory: int,
    jobs: int,
    on_loss: OnLoss,
    start_range: StartRange,
) -> Generator[RunCollection, None, None]:
    what: dict[str, Any] = {
        "unit": unit,
        "golden_id_attributes": golden_id_attributes,
        "components": components,
        "memory": memory,
        "start_range": start_range,
    }
    if jobs == 1 and not _is_larger_than(paths, memory):
        records = read_with_progress(paths, on_loss, start_range)
        with extract_bounded(records, watch=with_known_total, **what) as runs:
            yield runs
        return
    with TemporaryDirectory(prefix=FOLDER_PREFIX) as folder, TaskRunner(jobs) as runner:
        yield extract_files_with_progress(paths, runner, Path(folder), jobs=jobs, on_loss=on_loss, **what)


def _is_larger_than(paths: list[str], memory: int) -> bool:
    """Whether the files are known to be larger than the budget: to fill it before writing to disk would be in vain."""
    size = total_bytes(paths)
    return size is not None and size > memory


def extract_files_with_progress(
    paths: list[str], runner: TaskRunner, folder: Path, *, start_range: StartRange, **options: Any
) -> PartitionedRuns:
    """Return the runs in traces as `extract_files` does, with a progress bar of bytes on a terminal."""
    with byte_progress_bar(total_bytes(paths), "reading traces") as read:
        files = list_files(paths, start_range)
        return extract_files(files, runner, folder, on_read=read, start_range=start_range, **options)


def no_runs_error(paths: list[str], unit: RunUnit, start_range: StartRange) -> TraceFileError:
    """Return the error for traces without a run that started in a range of time."""
    names = ", ".join("standard input" if path == "-" else Path(path).name or path for path in paths)
    if start_range.is_bounded:
        return TraceFileError(f"no {unit} found in {names} that started in the range of --since and --until")
    return TraceFileError(f"no {unit} found in {names}: {_EMPTY_HINT if _are_empty(paths) else _NO_RUNS_HINTS[unit]}")


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
            read_with_progress(paths, on_loss),
            unit=unit,
            golden_id_attributes=attributes,
            components=components,
            watch=with_known_total,
        )


def read_with_progress(
    paths: list[str], on_loss: OnLoss, start_range: StartRange = ALL_STARTS
) -> Iterator[TelemetryRecord]:
    """Yield the records of traces, with a progress bar on a terminal."""
    with byte_progress_bar(total_bytes(paths), "reading traces") as read:
        yield from read_records(paths, on_loss=on_loss, on_read=read, start_range=start_range)


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


def print_losses(losses: list[Loss]) -> None:
    """Print a warning for each place that could not be read."""
    for loss in losses[:_MAX_LOSSES_SHOWN]:
        print_warning(f"{loss}; everything else was read")
    if len(losses) > _MAX_LOSSES_SHOWN:
        print_warning(f"{len(losses) - _MAX_LOSSES_SHOWN} more places could not be read")
