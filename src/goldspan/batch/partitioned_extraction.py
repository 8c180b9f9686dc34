"""Extracts the runs of any number of records with little memory, in one process or several.

1. The records are read into a spill, divided by trace.
2. The runs of each trace are extracted alone, and its links with others are listed.
3. The links of all traces show which of them are connected.
4. Connected traces are extracted again, together.
5. The runs are sorted by their start.

The result is that of `goldspan.extraction.extract` of all records. The memory depends on the budget and, with some 30
bytes, on the number of traces and runs. Only the largest group of connected traces must fit into memory.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

from goldspan._garbage_collection import garbage_collection_paused
from goldspan.batch.link_groups import LinkFile, LinkWriter, TraceGroups
from goldspan.batch.record_rows import row_to_record
from goldspan.batch.run_spool import RunPlace, RunReader, RunSpool, RunSpoolWriter, read_runs
from goldspan.batch.spill import BUCKETS, Spill, SpillWriter, iter_groups
from goldspan.batch.task_runner import TaskRunner
from goldspan.content.messages import cache_histories
from goldspan.extraction.run_extraction import TraceExtractor, extract, first_places
from goldspan.extraction.trace_links import call_id_key
from goldspan.model import ComponentSelector, Run, RunUnit
from goldspan.otlp.start_range import ALL_STARTS, StartRange

_TRACE_ID_BYTES = 16
_NO_PIECES: array[int] = array("Q")


class ExtractionOptions(NamedTuple):
    """What a run is, which runs are kept, and how much memory extraction may use."""

    unit: RunUnit
    golden_id_attributes: tuple[str, ...] | None
    components: tuple[ComponentSelector, ...]
    bucket_bytes: int
    """The bytes of a bucket on disk up to which all of it is loaded into memory; there it takes a multiple."""
    start_range: StartRange = ALL_STARTS
    """When the runs that are kept started."""


def divided_memory(memory: int, processes: int = 1) -> tuple[int, int]:
    """Returns the bytes of the buffer of a spill and of a bucket on disk for a budget that processes share."""
    # Objects in memory take about four times their size on disk, and others are alive besides.
    return max(memory // processes // 4, 1), max(memory // processes // 16, 1)


class PartitionedRuns:
    """Extracted runs on disk, in the order of `extract`: by start time, then by their first spans, then by id."""

    def __init__(self, spools: Sequence[tuple[RunSpool, frozenset[int]]]) -> None:
        """Sort the runs of some spools, each of which is given with the traces whose runs do not count."""
        self._paths = [spool.path for spool, _ in spools]
        self._files, self._offsets, starts, places = array("I"), array("Q"), array("Q"), array("Q")
        for number, (spool, excluded) in enumerate(spools):
            for offset, start, place, trace in zip(
                spool.offsets, spool.starts, spool.places, spool.traces, strict=True
            ):
                if trace not in excluded:
                    self._files.append(number)
                    self._offsets.append(offset)
                    starts.append(start)
                    places.append(place)
        self._order = array("I", sorted(range(len(starts)), key=lambda number: (starts[number], places[number])))
        self._sort_equal_places(starts, places)

    def __len__(self) -> int:
        return len(self._order)

    def __iter__(self) -> Iterator[Run]:
        return read_runs(map(self._place, self._order))

    def chunks(self, size: int) -> Iterator[list[RunPlace]]:
        """Yield the places of the runs, in order, in lists of `size`."""
        for first in range(0, len(self._order), size):
            yield list(map(self._place, self._order[first : first + size]))

    def _place(self, number: int) -> RunPlace:
        return RunPlace(self._paths[self._files[number]], self._offsets[number])

    def _sort_equal_places(self, starts: array[int], places: array[int]) -> None:
        """Sorts runs of a trace that start at the same time by their ids, which only their files hold."""
        order = self._order
        first = 0
        with RunReader() as reader:
            for last in range(1, len(order) + 1):
                one, other = order[first], order[min(last, len(order) - 1)]
                if last == len(order) or (starts[one], places[one]) != (starts[other], places[other]):
                    if last - first > 1:
                        ids = {number: reader.read(*self._place(number)).run_id for number in order[first:last]}
                        order[first:last] = array("I", sorted(ids, key=ids.__getitem__))
                    first = last


class _BucketTask(NamedTuple):
    bucket: int
    spills: tuple[Spill, ...]
    options: ExtractionOptions
    folder: str


class _BucketRuns(NamedTuple):
    """The runs of the traces in a bucket, each extracted alone."""

    spool: RunSpool
    links: LinkFile
    trace_ids: bytes
    """The ids of the traces, in the order of their numbers."""
    asked: list[tuple[int, frozenset[str]]]
    """The traces with runs that repeat ids of calls that may have been made in other traces."""
    own_call_ids: array[int]
    """The keys of the ids of calls that the runs made."""

    @property
    def traces(self) -> int:
        return len(self.trace_ids) // _TRACE_ID_BYTES


class _SelectTask(NamedTuple):
    bucket: int
    spills: tuple[Spill, ...]
    groups: Mapping[bytes, bytes]
    """The group of each trace that is extracted again."""
    options: ExtractionOptions
    folder: str


class _GroupTask(NamedTuple):
    bucket: int
    spills: tuple[Spill, ...]
    answered: frozenset[str]
    options: ExtractionOptions
    folder: str


def extract_spills(
    spills: Sequence[Spill], options: ExtractionOptions, runner: TaskRunner, folder: Path
) -> PartitionedRuns:
    """Extracts the runs of the records in spills; `folder` receives further files, which the runs are read from."""
    tasks = [
        (f"extract-{bucket:02}", _BucketTask(bucket, _only(spills, bucket), options, str(folder)))
        for bucket in range(BUCKETS)
        if any(spill.pieces[bucket] for spill in spills)
    ]
    buckets = list(runner.map(extract_bucket, tasks))
    firsts = list(accumulate((bucket.traces for bucket in buckets), initial=0))
    groups = TraceGroups(firsts[-1])
    groups.join([(bucket.links, first) for bucket, first in zip(buckets, firsts, strict=False)])
    repeated = groups.members()
    answered = _answered_call_ids(buckets)
    for bucket, first in zip(buckets, firsts, strict=False):
        for trace, asked in bucket.asked:
            if not answered.isdisjoint(asked):
                repeated.setdefault(first + trace, first + trace)
    spools = []
    selections = []
    for (_, task), bucket, first in zip(tasks, buckets, firsts, strict=False):
        again = {trace: repeated[first + trace] for trace in range(bucket.traces) if first + trace in repeated}
        spools.append((bucket.spool, frozenset(again)))
        if again:
            ids = bucket.trace_ids
            group_of = {
                ids[trace * _TRACE_ID_BYTES : (trace + 1) * _TRACE_ID_BYTES]: root.to_bytes(8, "little")
                for trace, root in again.items()
            }
            selections.append(
                (f"select-{task.bucket:02}", _SelectTask(task.bucket, task.spills, group_of, options, str(folder)))
            )
    selected = list(runner.map(select_rows, selections))
    group_tasks = [
        (f"group-{bucket:02}", _GroupTask(bucket, _only(selected, bucket), answered, options, str(folder)))
        for bucket in range(BUCKETS)
        if any(spill.pieces[bucket] for spill in selected)
    ]
    spools += [(spool, frozenset()) for spool in runner.map(extract_groups, group_tasks)]
    return PartitionedRuns(spools)


def extract_bucket(task: _BucketTask) -> _BucketRuns:
    """Extracts the traces of a bucket, each alone."""
    options = task.options
    extractor = TraceExtractor(options.unit, options.golden_id_attributes, options.components)
    folder = Path(task.folder)
    trace_ids = bytearray()
    asked: list[tuple[int, frozenset[str]]] = []
    own_call_ids = array("Q")
    number = 0
    with (
        RunSpoolWriter(folder / f"runs-{task.bucket:02}") as spool,
        LinkWriter(folder / f"links-{task.bucket:02}") as links,
    ):
        for traces in iter_groups(task.spills, task.bucket, max_bytes=options.bucket_bytes, folder=folder):
            with garbage_collection_paused(), cache_histories():
                for trace_id in list(traces):
                    rows = traces.pop(trace_id)
                    records = list(map(row_to_record, rows))
                    found = extractor.extract_trace(records)
                    if found.runs or found.links:
                        places = first_places(zip(records, map(_position, rows), strict=True))
                        spool.add(options.start_range.select_runs(found.runs), number, places)
                        links.add(found.links, number)
                        if found.asked_call_ids:
                            asked.append((number, found.asked_call_ids))
                        own_call_ids.extend(map(call_id_key, found.own_call_ids))
                        trace_ids += trace_id
                        number += 1
        return _BucketRuns(spool.finish(), links.finish(), bytes(trace_ids), asked, own_call_ids)


def select_rows(task: _SelectTask) -> Spill:
    """Writes the rows of the traces that are extracted again into a spill that is divided by their groups."""
    options = task.options
    with SpillWriter(Path(task.folder) / f"selected-{task.bucket:02}", options.bucket_bytes) as writer:
        for traces in iter_groups(task.spills, task.bucket, max_bytes=options.bucket_bytes, folder=task.folder):
            for trace_id, rows in traces.items():
                group = task.groups.get(trace_id)
                if group is not None:
                    for row in rows:
                        writer.add((group, row), options.bucket_bytes // _SELECTED_ROWS)
        return writer.finish()


_SELECTED_ROWS = 4096
"""Rows that are buffered before they are written."""


def extract_groups(task: _GroupTask) -> RunSpool:
    """Extracts groups of connected traces, the traces of each group together."""
    options = task.options
    with RunSpoolWriter(Path(task.folder) / f"group-runs-{task.bucket:02}") as spool:
        for groups in iter_groups(task.spills, task.bucket, max_bytes=options.bucket_bytes, folder=task.folder):
            with garbage_collection_paused(), cache_histories():
                for group in list(groups):
                    rows: list[Any] = [row for _, row in groups.pop(group)]
                    rows.sort(key=_position)
                    records = list(map(row_to_record, rows))
                    runs = extract(
                        records,
                        unit=options.unit,
                        golden_id_attributes=options.golden_id_attributes,
                        components=options.components,
                        other_call_ids=task.answered,
                    )
                    places = first_places(zip(records, map(_position, rows), strict=True))
                    spool.add(options.start_range.select_runs(runs), 0, places)
        return spool.finish()


def _position(row: Sequence[Any]) -> int:
    position: int = row[1]
    return position


def _answered_call_ids(buckets: Iterable[_BucketRuns]) -> frozenset[str]:
    """The ids that runs repeat, and that a run of another trace made."""
    buckets = list(buckets)
    asked = {call_id_key(call_id): call_id for bucket in buckets for _, ids in bucket.asked for call_id in ids}
    if not asked:
        return frozenset()
    return frozenset(asked[key] for bucket in buckets for key in bucket.own_call_ids if key in asked)


def _only(spills: Iterable[Spill], bucket: int) -> tuple[Spill, ...]:
    """The spills with the pieces of one bucket, which is all that a task needs."""
    return tuple(
        spill._replace(pieces=tuple(p if number == bucket else _NO_PIECES for number, p in enumerate(spill.pieces)))
        for spill in spills
        if spill.pieces[bucket]
    )
