"""The input divided into parts that are read independently."""

from __future__ import annotations

from itertools import chain

import pytest

from goldspan.batch import input_parts
from goldspan.batch.input_parts import read_into_spill, read_tasks, report_losses
from goldspan.batch.record_rows import row_to_record
from goldspan.batch.spill import BUCKETS, read_bucket
from goldspan.errors import TraceFileError
from goldspan.otlp import read_records
from goldspan.otlp.trace_files import list_files, part_bytes, split_file
from otlp.payloads import line, request

MANY = [request(f"span-{number}", trace=number + 1) for number in range(40)]


@pytest.fixture
def read(tmp_path, monkeypatch):
    """The names of the records in the parts of the input in their order, and the losses."""

    def read(*paths, part_bytes=1):
        monkeypatch.setattr(input_parts, "_MIN_PART_BYTES", part_bytes)
        monkeypatch.setattr(input_parts, "_PARTS_PER_PROCESS", 10)
        work = tmp_path / "work"
        work.mkdir()
        files = list_files(paths)
        parts = [read_into_spill(task) for _, task in read_tasks(files, 1, work, 1000)]
        rows = chain.from_iterable(
            chain.from_iterable(read_bucket([part.spill for part in parts], bucket)) for bucket in range(BUCKETS)
        )
        losses = []
        names = [row_to_record(row).name for row in sorted(rows, key=lambda row: row[1])]
        report_losses(parts, files, losses.append)
        return names, losses, len(parts)

    return read


def expected(*paths):
    losses = []
    return [record.name for record in read_records(paths, on_loss=losses.append)], losses


def test_a_large_file_of_lines_is_read_in_parts(tmp_path, read):
    path = tmp_path / "traces.jsonl"
    path.write_bytes(b"".join(map(line, MANY)))
    names, losses, parts = read(path)
    assert (names, losses) == expected(path)
    assert parts > 5


def test_losses_name_the_lines_of_the_whole_file(tmp_path, read):
    path = tmp_path / "traces.jsonl"
    lines = list(map(line, MANY))
    for number in (5, 20, 39):
        lines[number] = b'{"resourceSpans": oops}\n'
    path.write_bytes(b"".join(lines))
    names, losses, _ = read(path)
    assert (names, losses) == expected(path)
    assert [loss.where for loss in losses] == ["line 6", "line 21", "line 40"]


def test_small_files_are_read_together(tmp_path, read):
    for number, each in enumerate(MANY):
        (tmp_path / f"{number:02}.jsonl").write_bytes(line(each))
    names, _, parts = read(tmp_path, part_bytes=10**6)
    assert (names, parts) == (expected(tmp_path)[0], 1)


def test_a_file_of_another_form_is_not_divided(tmp_path):
    path = tmp_path / "traces.json"
    path.write_bytes(b"[" + b",\n".join(line(each).strip() for each in MANY) + b"]")
    (file,) = list_files([path])
    assert split_file(file, 10) == [file]


def test_the_parts_of_a_file_are_all_of_it(tmp_path):
    path = tmp_path / "traces.jsonl"
    path.write_bytes(b"".join(map(line, MANY)))
    (file,) = list_files([path])
    parts = split_file(file, 1000)
    assert sum(map(part_bytes, parts)) == path.stat().st_size
    assert [part.end for part in parts[:-1]] == [part.start for part in parts[1:]]


def test_another_file_in_a_folder_is_a_loss_and_alone_an_error(tmp_path, read):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.jsonl").write_bytes(line(MANY[0]))
    (tmp_path / "in" / "b.json").write_text("nothing")
    assert read(tmp_path / "in")[:2] == expected(tmp_path / "in")
    with pytest.raises(TraceFileError, match=r"b\.json: holds no traces"):
        read_into_spill(read_tasks(list_files([tmp_path / "in" / "b.json"]), 1, tmp_path, 1000)[0][1])


def test_a_folder_without_any_trace_file_is_an_error(tmp_path, read):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "b.json").write_text("nothing")
    with pytest.raises(TraceFileError, match="no file in this folder holds traces"):
        read(tmp_path / "in")
