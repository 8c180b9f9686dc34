"""Tests of what the executors do for `goldspan score --engine spark`, without Spark."""

from __future__ import annotations

import gzip
import pickle
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from goldspan.batch.input_parts import divided_files, require_traces_in_folders
from goldspan.cli.spark_scoring import SummarizingScorer
from goldspan.errors import TraceFileError
from goldspan.otlp import load_runs
from goldspan.otlp.start_range import StartRange
from goldspan.otlp.trace_files import FilePart, Loss, list_files
from goldspan.spark.file_reading import FileReader
from goldspan.spark.frame_scoring import run_evaluator
from goldspan.spark.partition_scoring import PartitionScorer
from goldspan.spark.telemetry_frames import packed_batch

CAPTURES = Path(__file__).parents[1] / "fixtures" / "captures"


class LossList:
    """Collects losses as an accumulator of Spark does."""

    def __init__(self) -> None:
        self.value: frozenset[Loss] = frozenset()

    def add(self, term: frozenset[Loss]) -> None:
        self.value |= term


def read(files: list[FilePart]) -> tuple[pa.Table, LossList, LossList]:
    """The packed traces of some files, the losses, and the files in folders that are no trace files."""
    losses, errors = LossList(), LossList()
    groups = pa.table({"files": [pickle.dumps(group) for group in divided_files(files, 2)]})
    packed = pa.Table.from_batches(FileReader(losses, errors)(groups.to_batches()), packed_batch([]).schema)
    return packed, losses, errors


def test_traces_of_all_files_are_packed_and_summarized() -> None:
    packed, losses, errors = read(list_files([CAPTURES]))
    assert (losses.value, errors.value) == (frozenset(), frozenset())
    partition = packed.rename_columns(["stitch_key", "session_id", "start_ns", "packed"]).sort_by("stitch_key")
    evaluator = run_evaluator(None, "request", None, None, False, None)
    scorer = SummarizingScorer(PartitionScorer(evaluator, 100_000), 3)
    *rows, last = pa.Table.from_batches(scorer(partition.to_batches())).to_pylist()
    summary = pickle.loads(last["summary"])
    assert len(rows) == len(summary) >= len({trace for run in load_runs(CAPTURES) for trace in run.trace_ids}) / 2
    assert (last["run_id"], len(summary.shown)) == (None, 3)
    assert {row["summary"] for row in rows} == {None}


def test_a_range_of_time_is_that_of_the_starts_of_runs() -> None:
    starts = sorted(run.start_ns or 0 for run in load_runs(CAPTURES))
    start_range = StartRange(starts[len(starts) // 3], starts[len(starts) // 2])
    packed, _, _ = read(list_files([CAPTURES], start_range))
    partition = packed.rename_columns(["stitch_key", "session_id", "start_ns", "packed"]).sort_by("stitch_key")
    evaluator = replace(run_evaluator(None, "request", None, None, False, None), start_range=start_range)
    found = [each for some in PartitionScorer(evaluator, 100_000).evaluations(partition.to_batches()) for each in some]
    assert packed.num_rows < read(list_files([CAPTURES]))[0].num_rows
    assert {each.run.start_ns for each in found} == set(starts[len(starts) // 3 : len(starts) // 2])


def test_an_empty_partition_has_no_summary() -> None:
    evaluator = run_evaluator(None, "request", None, None, False, None)
    assert list(SummarizingScorer(PartitionScorer(evaluator, 10), None)([])) == []


def test_what_cannot_be_read_is_named_with_its_place(tmp_path: Path) -> None:
    line = gzip.decompress(next(iter(CAPTURES.glob("*.jsonl.gz"))).read_bytes()).splitlines(keepends=True)[0]
    (tmp_path / "broken.jsonl").write_bytes(line + b"no json\n" + line)
    (tmp_path / "notes.json").write_text("[1]")
    packed, losses, errors = read(list_files([tmp_path]))
    assert packed.num_rows > 0
    assert [(Path(loss.path).name, loss.where) for loss in sorted(losses.value, key=str)] == [
        ("broken.jsonl", "line 2"),
        ("notes.json", "whole file"),
    ]
    assert [Path(loss.path).name for loss in errors.value] == ["notes.json"]
    require_traces_in_folders(list_files([tmp_path]), {loss.path: loss.what for loss in errors.value})


def test_the_lines_of_a_part_are_counted_from_its_start(tmp_path: Path) -> None:
    line = gzip.decompress(next(iter(CAPTURES.glob("*.jsonl.gz"))).read_bytes()).splitlines(keepends=True)[0]
    path = tmp_path / "traces.jsonl"
    path.write_bytes(line + line + b"no json\n")
    _, losses, _ = read([FilePart(str(path), None, len(line), path.stat().st_size)])
    assert [loss.where for loss in losses.value] == [f"line 2 after byte {len(line)}"]


def test_a_file_that_was_named_and_has_no_traces_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("no traces")
    with pytest.raises(TraceFileError, match="holds no traces that can be read"):
        read([FilePart(str(tmp_path / "notes.txt"))])


def test_a_folder_without_any_trace_file_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "notes.json").write_text("[1]")
    files = list_files([tmp_path])
    _, _, errors = read(files)
    with pytest.raises(TraceFileError, match="no file in this folder holds traces"):
        require_traces_in_folders(files, {loss.path: loss.what for loss in errors.value})
