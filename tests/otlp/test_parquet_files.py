"""Spans as rows of Parquet files, local and by URL."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from goldspan.errors import MissingExtraError, TraceFileError
from goldspan.otlp import load_runs, read_records
from goldspan.otlp.parquet_files import decode_file, write_records
from goldspan.otlp.trace_files import total_bytes
from otlp.payloads import line, request, tool_request

CAPTURES = Path(__file__).parents[1] / "fixtures" / "captures"
TRACE, SPAN = "0123456789abcdef" * 2, "0123456789abcdef"


@pytest.fixture
def captured():
    return list(read_records([CAPTURES]))


def test_all_captures_are_written_to_one_file_and_read_again(tmp_path, captured):
    path = tmp_path / "spans.parquet"
    read = []
    assert write_records(captured, str(path)) == len(captured)
    assert list(read_records([path], on_read=read.append)) == captured
    assert abs(sum(read) - path.stat().st_size) <= len(read)


def test_a_folder_may_mix_parquet_with_other_formats(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(line(tool_request("search")))
    (tmp_path / "b.jsonl").write_bytes(line(tool_request("buy", trace=2)))
    write_records(read_records([tmp_path / "b.jsonl"]), str(tmp_path / "b.parquet"))
    (tmp_path / "b.jsonl").unlink()
    assert [run.tools_used for run in load_runs(tmp_path)] == [("search",), ("buy",)]


def test_standard_input_may_be_parquet(monkeypatch, captured):
    written = io.BytesIO()
    write_records(captured, written)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(written.getvalue()))))
    assert list(read_records(["-"])) == captured


def table(**columns):
    return pa.table({"TraceId": [TRACE], "SpanId": [SPAN], "SpanName": ["x"], **columns})


def records_of(written, tmp_path):
    path = tmp_path / "table.parquet"
    pq.write_table(written, path)
    losses = []
    return list(read_records([path], on_loss=losses.append)), losses


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_times_of_every_unit_are_read(tmp_path, unit):
    second = pa.array([1_700_000_000], pa.int64()).cast(pa.timestamp("s")).cast(pa.timestamp(unit, tz="UTC"))
    events = pa.ListArray.from_arrays(pa.array([0, 1]), second)
    names = pa.array([["e"]])
    ((span,), _) = records_of(table(Timestamp=second, **{"Events.Timestamp": events, "Events.Name": names}), tmp_path)
    assert span.start_ns == span.events[0].time_ns == 1_700_000_000 * 10**9


def test_dictionaries_durations_and_nested_events_are_read(tmp_path):
    kind = pa.array(["Server"]).dictionary_encode()
    time = pa.array([7], pa.timestamp("ns"))
    events = pa.array([[{"Name": "e", "Timestamp": 5, "Attributes": None}]])
    duration = pa.array([2], pa.duration("ms"))
    columns = {"SpanKind": kind, "Timestamp": time, "Duration": duration, "Events": events}
    ((span,), _) = records_of(table(**columns), tmp_path)
    assert (span.kind, span.start_ns, span.end_ns, span.events[0].name) == (2, 7, 2_000_007, "e")


def test_only_the_columns_of_records_are_read(tmp_path):
    ((span,), losses) = records_of(table(Price=[5]), tmp_path)
    assert (span.name, losses) == ("x", [])


def test_an_invalid_row_is_reported_and_the_others_are_read(tmp_path):
    rows = pa.table({"TraceId": [TRACE, "no"], "SpanId": [SPAN, SPAN], "SpanName": ["x", "y"]})
    (read, losses) = records_of(rows, tmp_path)
    assert [span.name for span in read] == ["x"]
    assert [loss.where for loss in losses] == ["row 2"]


def test_a_table_of_something_else_is_no_trace_file(tmp_path):
    with pytest.raises(TraceFileError, match="no table of spans or logs"):
        records_of(pa.table({"price": [5]}), tmp_path)
    with pytest.raises(TraceFileError, match="row 1: the trace id"):
        records_of(pa.table({"TraceId": ["00"], "SpanId": [SPAN], "SpanName": ["x"]}), tmp_path)


def test_a_file_that_is_cut_off_is_an_error(tmp_path, captured):
    path = tmp_path / "spans.parquet"
    write_records(captured, str(path))
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(TraceFileError, match="the Parquet data is damaged"):
        list(read_records([path]))


def test_text_that_is_not_utf_8_ends_the_file(tmp_path):
    names = pa.array([b"a\xff"]).view(pa.string())
    with pytest.raises(TraceFileError, match=r"the Parquet data is damaged .*utf-8"):
        records_of(pa.table({"TraceId": [TRACE], "SpanId": [SPAN], "SpanName": names}), tmp_path)


def test_an_empty_table_is_valid(tmp_path):
    path = tmp_path / "spans.parquet"
    assert write_records([], str(path)) == 0
    assert list(read_records([path])) == []


def test_text_that_is_not_unicode_is_replaced(tmp_path, captured):
    captured[0].attributes["x"] = "a\ud800b"
    path = tmp_path / "spans.parquet"
    write_records(captured[:1], str(path))
    assert next(iter(read_records([path]))).attributes["x"] == "a?b"


def test_without_pyarrow_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingExtraError, match=r"goldspan\[parquet\]"):
        list(decode_file(io.BytesIO(), print))


class TestUrls:
    @pytest.fixture
    def bucket(self, captured):
        files = fsspec.filesystem("memory")
        for name, content in {
            "bucket/day/1.jsonl": line(request("a")),
            "bucket/day/2.jsonl": line(request("b", trace=2)),
            "bucket/day/notes.txt": b"no traces",
            "bucket/empty/notes.txt": b"no traces",
        }.items():
            files.pipe(f"/{name}", content)
        written = io.BytesIO()
        write_records(captured, written)
        files.pipe("/bucket/spans.parquet", written.getvalue())
        yield
        files.rm("/bucket", recursive=True)

    @pytest.mark.usefixtures("bucket")
    def test_of_a_folder_names_its_trace_files(self):
        read = []
        found = read_records(["memory://bucket/day"], on_read=read.append)
        assert [record.name for record in found] == ["a", "b"]
        assert sum(read) == total_bytes(["memory://bucket/day"])

    @pytest.mark.usefixtures("bucket")
    def test_of_a_file_is_read(self, captured):
        assert [record.name for record in read_records(["memory://bucket/day/2.jsonl"])] == ["b"]
        assert list(read_records(["memory://bucket/spans.parquet"])) == captured

    @pytest.mark.usefixtures("bucket")
    def test_without_trace_files_is_an_error(self):
        with pytest.raises(TraceFileError, match="no trace file in this folder"):
            read_records(["memory://bucket/empty"])
        with pytest.raises(TraceFileError, match="no such file or folder"):
            read_records(["memory://bucket/nothing"])

    def test_of_an_unknown_kind_is_an_error(self):
        with pytest.raises(TraceFileError, match="nosuch://x: cannot be read"):
            read_records(["nosuch://x"])

    def test_needs_fsspec(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "fsspec", None)
        monkeypatch.delitem(sys.modules, "fsspec.core", raising=False)
        with pytest.raises(MissingExtraError, match=r"goldspan\[fsspec\]"):
            read_records(["memory://bucket"])
