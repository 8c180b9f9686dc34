"""Extracts runs in memory as long as the records fit into a budget, and from disk otherwise."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Protocol

from goldspan._garbage_collection import garbage_collection_paused
from goldspan.batch.input_parts import ReadPart, ReadTask, read_into_spill, read_tasks, report_losses
from goldspan.batch.partitioned_extraction import (
    ExtractionOptions,
    PartitionedRuns,
    divided_memory,
    extract_spills,
)
from goldspan.batch.record_rows import memory_size, record_to_row
from goldspan.batch.spill import SpillWriter
from goldspan.batch.task_runner import TaskRunner
from goldspan.extraction import ProgressReporter, extract
from goldspan.model import ComponentSelector, Run, RunUnit, TelemetryRecord
from goldspan.otlp.start_range import ALL_STARTS, StartRange
from goldspan.otlp.trace_files import FilePart, OnLoss, part_bytes

DEFAULT_MEMORY = 256 * 1024 * 1024
"""The budget in bytes."""
FOLDER_PREFIX = "goldspan-spill-"


class RunCollection(Protocol):
    """Runs that can be read again and again, in order of their start."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Run]: ...


@contextmanager
def extract_bounded(
    records: Iterable[TelemetryRecord],
    *,
    unit: RunUnit,
    golden_id_attributes: Sequence[str] | None,
    components: Sequence[ComponentSelector],
    memory: int,
    watch: ProgressReporter,
    start_range: StartRange = ALL_STARTS,
) -> Generator[RunCollection, None, None]:
    """Yields the runs of the records by start time, which can be read as long as the context is active.

    Records that take more than `memory` bytes are written to a temporary folder. The result is the same. Runs that
    started outside `start_range` are left out.
    """
    remaining = iter(records)
    held: list[TelemetryRecord] = []
    size = 0
    # The extraction leaves no cycles. Collections would take a quarter of the time of `goldspan score`.
    with garbage_collection_paused():
        for record in remaining:
            held.append(record)
            size += memory_size(record)
            if size > memory:
                break
        else:
            runs = extract(
                held, unit=unit, golden_id_attributes=golden_id_attributes, components=components, watch=watch
            )
            runs = start_range.select_runs(runs)
            held.clear()
    if size <= memory:
        yield runs
        return
    with TemporaryDirectory(prefix=FOLDER_PREFIX) as folder:
        buffer_bytes, bucket_bytes = divided_memory(memory)
        with garbage_collection_paused(), SpillWriter(Path(folder) / "records", buffer_bytes) as writer:
            position = 0
            for source in (held, remaining):
                for record in source:
                    row = record_to_row(record, position)
                    position += 1
                    if row is not None:
                        writer.add(row, memory_size(record))
                held.clear()
            spill = writer.finish()
        options = extraction_options(unit, golden_id_attributes, components, bucket_bytes, start_range)
        with TaskRunner() as runner:
            yield extract_spills([spill], options, runner, Path(folder))


def extraction_options(
    unit: RunUnit,
    golden_id_attributes: Sequence[str] | None,
    components: Sequence[ComponentSelector],
    bucket_bytes: int,
    start_range: StartRange,
) -> ExtractionOptions:
    """Returns options that can be sent to other processes."""
    attributes = tuple(golden_id_attributes) if golden_id_attributes else None
    return ExtractionOptions(unit, attributes, tuple(components), bucket_bytes, start_range)


def extract_files(
    files: Sequence[FilePart],
    runner: TaskRunner,
    folder: Path,
    *,
    unit: RunUnit,
    golden_id_attributes: Sequence[str] | None,
    components: Sequence[ComponentSelector],
    memory: int,
    jobs: int,
    on_loss: OnLoss,
    on_read: Callable[[int], object],
    start_range: StartRange = ALL_STARTS,
) -> PartitionedRuns:
    """Returns the runs in trace files, which the processes of a runner extract; they are in files in a folder.

    `memory` is the budget of all processes together. `on_loss` and `on_read` are those of `read_records`. Runs that
    started outside `start_range` are left out.
    """
    buffer_bytes, bucket_bytes = divided_memory(memory, jobs)

    def plan(jobs: int) -> list[tuple[str, ReadTask]]:
        return read_tasks(files, jobs, folder, buffer_bytes)

    tasks = runner.run(plan, "plan", jobs)
    parts: list[ReadPart] = []
    if all(file.can_be_opened_again for file in files):
        for (_, task), part in zip(tasks, runner.map(read_into_spill, tasks), strict=True):
            parts.append(part)
            on_read(sum(map(part_bytes, task.files)))
    else:  # another process has another standard input
        parts = [runner.run(partial(read_into_spill, on_read=on_read), name, task) for name, task in tasks]
    report_losses(parts, files, on_loss)
    options = extraction_options(unit, golden_id_attributes, components, bucket_bytes, start_range)
    return extract_spills([part.spill for part in parts], options, runner, folder)
