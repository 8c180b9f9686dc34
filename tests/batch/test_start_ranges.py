"""Runs that started in a range of time are the same in every format, for every memory and number of processes."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goldspan.batch.bounded_extraction import extract_bounded, extract_files
from goldspan.batch.task_runner import TaskRunner
from goldspan.extraction import extract
from goldspan.model import Run, RunUnit, SpanRecord, TelemetryRecord
from goldspan.otlp.parquet_files import write_records
from goldspan.otlp.start_range import MARGIN_NS, StartRange
from goldspan.otlp.trace_files import list_files, read_records
from otlp.payloads import line, requests_of
from support.laws import examples
from support.random_traces import HOW, STEP, Asked, Use, asked, tell

# Without ids, each tool in a trace of its own can belong to any earlier request, however long ago.
CONNECTED = [how for how in HOW.values() if not how.lone]
UNITS: tuple[RunUnit, ...] = ("request", "component", "conversation")
HOUR = MARGIN_NS // STEP

requests = st.tuples(asked, st.sampled_from(CONNECTED), st.integers(1, 8), st.booleans())
bounds = st.none() | st.tuples(st.integers(0, 4), st.integers(-1, 40))


def records_of(told: list[Any]) -> list[TelemetryRecord]:
    """The records of requests, each of which starts at an hour; a long one lasts as long as the margin."""
    records = []
    for number, (request, how, hour, is_long) in enumerate(told):
        of_request = tell(request, how, begin=hour * HOUR, label="abcde"[number]).records
        records += stretched(of_request) if is_long else of_request
    return records


def stretched(records: list[TelemetryRecord]) -> list[TelemetryRecord]:
    times_ns = [time_of(record) for record in records]
    times_ns += [record.end_ns for record in records if isinstance(record, SpanRecord) and record.end_ns is not None]
    first_ns = min(times_ns)
    factor = MARGIN_NS // (max(times_ns) - first_ns)
    return [
        replace(record, start_ns=later(record.start_ns), end_ns=later(record.end_ns))
        if isinstance(record, SpanRecord)
        else replace(record, time_ns=later(record.time_ns))
        for later in [lambda time_ns: first_ns + (time_ns - first_ns) * factor]
        for record in records
    ]


def time_of(record: TelemetryRecord) -> int:
    time_ns = record.start_ns if isinstance(record, SpanRecord) else record.time_ns
    assert time_ns is not None
    return time_ns


def started_in(runs: list[Run], since_ns: int | None, until_ns: int | None) -> list[Run]:
    """The definition of the range, beside the one under test."""
    return [
        run
        for run in runs
        if run.start_ns is None
        or ((since_ns is None or since_ns <= run.start_ns) and (until_ns is None or run.start_ns < until_ns))
    ]


def write_formats(records: list[TelemetryRecord], folder: Path) -> Iterator[Path]:
    made = requests_of(records)
    (folder / "traces.jsonl").write_bytes(b"".join(map(line, made)))
    (folder / "traces.pb").write_bytes(b"".join(request.SerializeToString() for request in made[:1]))
    write_records(records, str(folder / "traces.parquet"))
    yield folder / "traces.jsonl"
    if len(made) == 1:  # protobuf merges requests, and those of logs are others
        yield folder / "traces.pb"
    yield folder / "traces.parquet"


def extracted(path: Path, unit: RunUnit, start_range: StartRange, memory: int) -> list[Run]:
    records = read_records([path], start_range=start_range)
    what: dict[str, Any] = {"unit": unit, "golden_id_attributes": None, "components": ()}
    with extract_bounded(
        records, memory=memory, watch=lambda items, total: items, start_range=start_range, **what
    ) as runs:
        return list(runs)


def extracted_in_processes(path: Path, unit: RunUnit, start_range: StartRange, jobs: int) -> list[Run]:
    what: dict[str, Any] = {"unit": unit, "golden_id_attributes": None, "components": (), "memory": 1}
    files = list_files([path], start_range)
    with tempfile.TemporaryDirectory() as folder, TaskRunner(jobs) as runner:
        found = extract_files(
            files, runner, Path(folder), jobs=jobs, on_loss=print, on_read=id, start_range=start_range, **what
        )
        return list(found)


@examples(0.5)
@given(
    st.lists(requests, min_size=1, max_size=5),
    bounds,
    bounds,
    st.sampled_from(UNITS),
    st.sampled_from(["memory", "disk", "tasks"]),
)
def test_they_are_those_of_all_records_that_started_there(
    told: list[Any], since: Any, until: Any, unit: RunUnit, way: str
) -> None:
    # A bound is near the start of a request, or within it.
    since_ns, until_ns = (
        bound and (told[bound[0] % len(told)][2] * HOUR + bound[1]) * STEP for bound in (since, until)
    )
    start_range = StartRange(since_ns, until_ns)
    records = records_of(told)
    expected = started_in(extract(records, unit=unit), since_ns, until_ns)
    with tempfile.TemporaryDirectory() as folder:
        for path in write_formats(records, Path(folder)):
            if way == "tasks":
                found = extracted_in_processes(path, unit, start_range, 1)
            else:
                found = extracted(path, unit, start_range, 1 if way == "disk" else 10**9)
            assert found == expected, path.name


@pytest.mark.e2e
@pytest.mark.parametrize("unit", UNITS)
def test_processes_change_no_run(tmp_path, unit):
    request = Asked("Book a trip.", ((Use("search", 1), Use("expert", 2, Asked("Look.", ((Use("pay", 3),),)))),))
    records = records_of([(request, how, hour, True) for hour, how in enumerate(CONNECTED[:5], 1)])
    start_range = StartRange(2 * HOUR * STEP, 5 * HOUR * STEP)
    runs = extract(records, unit=unit)
    expected = started_in(runs, 2 * HOUR * STEP, 5 * HOUR * STEP)
    assert 0 < len(expected) < len(runs)
    for path in write_formats(records, tmp_path):
        assert extracted_in_processes(path, unit, start_range, 2) == expected
