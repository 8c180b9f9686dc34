"""Divides the input into parts, and reads the records of a part into a spill."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from goldspan._garbage_collection import garbage_collection_paused
from goldspan.batch.record_rows import memory_size, record_to_row
from goldspan.batch.spill import Spill, SpillWriter
from goldspan.errors import TraceFileError
from goldspan.otlp.trace_files import (
    FilePart,
    Loss,
    OnLoss,
    no_traces_in_folder,
    no_traces_loss,
    part_bytes,
    read_part,
    split_file,
)

_MIN_PART_BYTES = 16 * 1024 * 1024
_PARTS_PER_PROCESS = 8
_POSITION_BITS = 40
"""Records have positions: the number of their part, then their number in it."""
_LINE = re.compile(r"line (\d+)")


class ReadTask(NamedTuple):
    """Files to read into one spill."""

    number: int
    files: tuple[FilePart, ...]
    folder: str
    buffer_bytes: int


@dataclass(frozen=True, slots=True)
class ReadPart:
    """The records of one task, and what could not be read."""

    spill: Spill
    records: int
    losses: list[tuple[FilePart, Loss]]
    lines: list[tuple[FilePart, int]]
    """The number of lines of each part of a file."""
    errors: dict[str, str] = field(default_factory=dict)
    """The files in folders that are no trace files, with the error of each."""


def divided_files(files: Sequence[FilePart], processes: int) -> list[tuple[FilePart, ...]]:
    """Returns the files in groups, one for each task. Small files are read together, and large ones in parts."""
    size = _MIN_PART_BYTES
    if all(file.can_be_opened_again for file in files):
        size = max(size, sum(map(part_bytes, files)) // (processes * _PARTS_PER_PROCESS))
        files = [part for file in files for part in split_file(file, size)]
    groups: list[list[FilePart]] = []
    remaining = 0
    for part in files:
        needed = part_bytes(part) if part.can_be_opened_again else size
        if not groups or needed > remaining:
            groups.append([])
            remaining = size
        groups[-1].append(part)
        remaining -= needed
    return list(map(tuple, groups))


def read_tasks(files: Sequence[FilePart], jobs: int, folder: Path, buffer_bytes: int) -> list[tuple[str, ReadTask]]:
    """Returns the named tasks that read the files."""
    return [
        (f"read-{number:05}", ReadTask(number, group, str(folder), buffer_bytes))
        for number, group in enumerate(divided_files(files, jobs))
    ]


def read_into_spill(task: ReadTask, on_read: Callable[[int], object] | None = None) -> ReadPart:
    """Reads the records of some files into a spill."""
    position = first = task.number << _POSITION_BITS
    losses: list[tuple[FilePart, Loss]] = []
    lines: list[tuple[FilePart, int]] = []
    errors: dict[str, str] = {}
    path = os.path.join(task.folder, f"records-{task.number:05}")
    # Records have no cycles, and leave with the next piece that is written.
    with garbage_collection_paused(), SpillWriter(path, task.buffer_bytes) as writer:
        for part in task.files:
            try:
                for record in read_part(part, _Reporter(part, losses), on_read):
                    row = record_to_row(record, position)
                    position += 1
                    if row is not None:
                        writer.add(row, memory_size(record))
            except TraceFileError as error:
                if part.folder is None:
                    raise
                errors[part.path] = str(error)
                losses.append((part, no_traces_loss(part.path)))
            if not part.is_whole:
                lines.append((part, _count_lines(part)))
        return ReadPart(writer.finish(), position - first, losses, lines, errors)


@dataclass(frozen=True, slots=True)
class _Reporter:
    """Adds losses to a list, each with its part."""

    part: FilePart
    losses: list[tuple[FilePart, Loss]]

    def __call__(self, loss: Loss) -> None:
        self.losses.append((self.part, loss))


def _count_lines(part: FilePart) -> int:
    """Counts the lines of a part of a file, which the losses in later parts are numbered after."""
    lines, remaining = 0, part_bytes(part)
    with open(part.path, "rb") as file:
        file.seek(part.start)
        while remaining > 0 and (piece := file.read(min(1 << 20, remaining))):
            lines += piece.count(b"\n")
            remaining -= len(piece)
    return lines


def report_losses(parts: Iterable[ReadPart], files: Iterable[FilePart], on_loss: OnLoss) -> None:
    """Reports the losses of all parts in the order of the files, with the numbers of lines in the whole file.

    Raises `TraceFileError` for a folder in which no file is a trace file.
    """
    lines_before: Counter[str] = Counter()
    failed: dict[str, str] = {}
    for read in parts:
        starts = {}
        for part, lines in read.lines:
            starts[part] = lines_before[part.path]
            lines_before[part.path] += lines
        for part, loss in read.losses:
            on_loss(_moved(loss, starts.get(part, 0)))
        failed |= read.errors
    require_traces_in_folders(files, failed)


def require_traces_in_folders(files: Iterable[FilePart], errors: Mapping[str, str]) -> None:
    """Raises `TraceFileError` for a folder in which every file has an error."""
    folders: dict[str, list[str]] = {}
    for file in files:
        if file.folder is not None:
            folders.setdefault(file.folder, []).append(file.path)
    for folder, paths in folders.items():
        if errors.keys() >= set(paths):
            raise no_traces_in_folder(folder, errors[paths[0]])


def _moved(loss: Loss, lines: int) -> Loss:
    found = _LINE.fullmatch(loss.where) if lines else None
    return loss if found is None else replace(loss, where=f"line {int(found[1]) + lines}")
