"""Records of a range of time: the same in every format, and of Parquet files only the row groups that are needed."""

from __future__ import annotations

import io
import random
from dataclasses import replace
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from goldspan.errors import TraceFileError
from goldspan.model import LogRecord, SpanRecord
from goldspan.online.limits import Limits
from goldspan.otlp import read_records
from goldspan.otlp.parquet_files import decode_file, write_records
from goldspan.otlp.start_range import ALL_STARTS, MARGIN_NS, StartRange
from otlp.payloads import line, requests_of

HOUR = 3600 * 10**9
BEGIN = 1_767_225_600 * 10**9  # 2026-01-01


def span(number: int, start_ns: int | None) -> SpanRecord:
    return SpanRecord("a" * 32, f"{number + 1:016x}", None, f"span {number}", {}, start_ns, start_ns)


def log(number: int, time_ns: int | None) -> LogRecord:
    return LogRecord(f"log {number}", {}, "text", "a" * 32, f"{number + 1:016x}", time_ns)


def hourly(hours: int) -> list[SpanRecord]:
    return [span(hour, BEGIN + hour * HOUR) for hour in range(hours)]


def hours(first: int | None, last: int | None) -> StartRange:
    return StartRange(*(None if hour is None else BEGIN + hour * HOUR for hour in (first, last)))


def names(records: Any) -> list[str]:
    return [record.name for record in records]


def test_the_margin_is_how_long_live_scoring_keeps_the_spans_of_a_run():
    assert Limits().lifetime * 10**9 == MARGIN_NS


@pytest.mark.parametrize("form", ["jsonl", "pb", "parquet"])
def test_records_within_an_hour_of_the_range_are_read_and_those_without_a_time(tmp_path, form):
    inside = [span(0, BEGIN - HOUR), span(1, BEGIN), span(2, BEGIN + 2 * HOUR - 1), span(3, None)]
    logs = [log(4, BEGIN - HOUR), log(5, None)]
    outside = [span(6, BEGIN - HOUR - 1), span(7, BEGIN + 2 * HOUR), span(8, BEGIN - 100 * HOUR)]
    records = [*inside, *outside, *([] if form == "pb" else [*logs, log(9, BEGIN + 2 * HOUR)])]
    path = tmp_path / f"traces.{form}"
    if form == "parquet":
        write_records(records, str(path))
    else:
        made = requests_of(records)
        path.write_bytes(b"".join(map(line, made)) if form == "jsonl" else made[0].SerializeToString())
    kept = list(read_records([path], start_range=StartRange(BEGIN, BEGIN + HOUR)))
    assert names(kept) == names([*inside, *([] if form == "pb" else logs)])
    assert names(read_records([path], start_range=ALL_STARTS)) == names(records)


def large(hours: int) -> list[SpanRecord]:
    """Spans whose messages make the data of a row group larger than the metadata of all."""
    texts = random.Random(1)
    return [replace(each, attributes={"text": texts.randbytes(10_000).hex()}) for each in hourly(hours)]


class CountedFile(io.BytesIO):
    """A file that counts the bytes that are read."""

    read_bytes = 0

    def read(self, size: int | None = -1) -> bytes:
        data = super().read(size)
        self.read_bytes += len(data)
        return data


def in_row_groups(records: list[Any], rows: int) -> bytes:
    """A Parquet file of the records with so many rows in each row group."""
    written, grouped = io.BytesIO(), io.BytesIO()
    write_records(records, written)
    pq.write_table(pq.read_table(io.BytesIO(written.getvalue())), grouped, row_group_size=rows)
    return grouped.getvalue()


class TestRowGroups:
    def test_outside_the_range_are_not_read(self):
        content = in_row_groups(large(200), 2)
        read_bytes: list[int] = []
        for start_range, expected in (ALL_STARTS, range(200)), (hours(100, 104), range(100, 104)):
            file, shares = CountedFile(content), []
            records = [each for some in decode_file(file, print, shares.append, start_range) for each in some]
            assert names(records) == [f"span {hour}" for hour in expected]
            assert sum(shares) == pytest.approx(1)
            read_bytes.append(file.read_bytes)
        assert read_bytes[1] < read_bytes[0] / 10

    def test_outside_the_range_may_be_damaged(self, tmp_path):
        path = tmp_path / "spans.parquet"
        content = bytearray(in_row_groups(hourly(100), 10))
        first, last = (pq.ParquetFile(io.BytesIO(content)).metadata.row_group(at).column(0) for at in (0, 9))
        for column in (first, last):
            start = column.dictionary_page_offset or column.data_page_offset
            content[start : start + 8] = b"\xff" * 8
        path.write_bytes(content)
        assert names(read_records([path], start_range=hours(31, 49))) == [f"span {hour}" for hour in range(30, 50)]
        with pytest.raises(TraceFileError, match="the Parquet data is damaged"):
            list(read_records([path]))

    def test_of_a_url_are_skipped_too(self, monkeypatch):
        files = fsspec.filesystem("memory")
        content = in_row_groups(large(200), 2)
        files.pipe("/ranges/spans.parquet", content)
        opened: list[CountedFile] = []
        monkeypatch.setattr(type(files), "open", lambda *_: opened.append(CountedFile(content)) or opened[-1])
        found = read_records(["memory://ranges/spans.parquet"], start_range=hours(100, 104))
        assert names(found) == [f"span {hour}" for hour in range(99, 105)]
        assert 0 < sum(file.read_bytes for file in opened) < len(content) / 5
        files.rm("/ranges", recursive=True)

    def test_without_statistics_are_read_and_give_the_same_records(self, tmp_path):
        path = tmp_path / "spans.parquet"
        table = pq.read_table(io.BytesIO(in_row_groups(hourly(50), 10)))
        pq.write_table(table, path, row_group_size=10, write_statistics=False)
        assert names(read_records([path], start_range=hours(20, 22))) == [f"span {hour}" for hour in (19, 20, 21, 22)]

    def test_of_which_none_is_needed_are_no_error(self, tmp_path):
        path = tmp_path / "spans.parquet"
        path.write_bytes(in_row_groups(hourly(50), 10))
        losses: list[Any] = []
        assert list(read_records([path], start_range=hours(500, 600), on_loss=losses.append)) == []
        assert losses == []


def test_rows_are_numbered_as_in_the_whole_file(tmp_path):
    path = tmp_path / "spans.parquet"
    table = pq.read_table(io.BytesIO(in_row_groups(hourly(300), 7)))
    ids = table["SpanId"].to_pylist()
    ids[210] = ids[250] = "no"
    pq.write_table(table.set_column(2, "SpanId", pa.array(ids)), path, row_group_size=7)
    losses: list[Any] = []
    found = names(read_records([path], start_range=hours(205, 220), on_loss=losses.append))
    assert found == [f"span {hour}" for hour in range(204, 221) if hour != 210]
    assert [loss.where for loss in losses] == ["row 211"]


def test_a_file_with_only_invalid_rows_in_the_range_is_still_a_trace_file(tmp_path):
    path = tmp_path / "spans.parquet"
    table = pq.read_table(io.BytesIO(in_row_groups(hourly(100), 10)))
    ids = ["no" if row in (50, 51) else span_id for row, span_id in enumerate(table["SpanId"].to_pylist())]
    pq.write_table(table.set_column(2, "SpanId", pa.array(ids)), path, row_group_size=2)
    losses: list[Any] = []
    start_range = StartRange(BEGIN + 51 * HOUR, BEGIN + 51 * HOUR - HOUR + 1)
    assert list(read_records([path], start_range=start_range, on_loss=losses.append)) == []
    assert [loss.where for loss in losses] == ["row 51", "row 52"]


SECONDS = [BEGIN // 10**9 + 600 * minute for minute in range(100)]
TIMES = {
    "seconds": pa.array(SECONDS, pa.timestamp("s")),
    "milliseconds in a zone": pa.array(SECONDS).cast(pa.timestamp("s")).cast(pa.timestamp("ms", "Europe/Berlin")),
    "microseconds": pa.array(SECONDS).cast(pa.timestamp("s")).cast(pa.timestamp("us")),
    "nanoseconds in UTC": pa.array(SECONDS).cast(pa.timestamp("s")).cast(pa.timestamp("ns", "UTC")),
    "integers": pa.array([second * 10**9 for second in SECONDS]),
    "unsigned integers": pa.array([second * 10**9 for second in SECONDS], pa.uint64()),
    "numbers": pa.array([second * 1e9 for second in SECONDS]),
    "decimals": pa.array([second * 10**9 for second in SECONDS]).cast(pa.decimal128(20, 0)),
    "text": pa.array([str(second * 10**9) for second in SECONDS]),
    "a dictionary": pa.array(SECONDS, pa.timestamp("s")).dictionary_encode(),
}


@pytest.mark.parametrize("times", TIMES.values(), ids=TIMES)
@pytest.mark.parametrize("name", ["Timestamp", "start_time_unix_nano"])
def test_every_type_of_time_is_compared(tmp_path, times, name):
    path = tmp_path / "spans.parquet"
    ids = [f"{number + 1:016x}" for number in range(100)]
    table = pa.table({"TraceId": ["a" * 32] * 100, "SpanId": ids, "SpanName": ids, name: times})
    pq.write_table(table, path, row_group_size=5)
    everything = list(read_records([path]))
    assert [record.start_ns for record in everything] == [second * 10**9 for second in SECONDS]
    for start_range in (hours(5, 6), hours(None, 3), hours(14, None), StartRange(10**30), StartRange(None, -(10**30))):
        kept = list(read_records([path], start_range=start_range))
        assert kept == start_range.with_margin().select_records(everything)
        assert (kept == []) == (start_range.since_ns == 10**30 or start_range.until_ns == -(10**30))


def test_a_time_beyond_the_range_of_a_column_is_compared(tmp_path):
    """It is only among the typed values; the column of the time has none."""
    path = tmp_path / "spans.parquet"
    write_records([*hourly(3), span(9, 2**63 + 5)], str(path))
    assert names(read_records([path], start_range=hours(None, 1))) == ["span 0", "span 1"]
    assert names(read_records([path], start_range=StartRange(2**63))) == ["span 9"]


def test_a_table_without_a_column_of_times_is_read_completely(tmp_path):
    path = tmp_path / "spans.parquet"
    pq.write_table(pa.table({"TraceId": ["a" * 32], "SpanId": ["b" * 16], "SpanName": ["x"]}), path)
    assert names(read_records([path], start_range=hours(0, 1))) == ["x"]


def test_standard_input_may_be_parquet(monkeypatch):
    content = in_row_groups(hourly(20), 5)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(content))))
    assert names(read_records(["-"], start_range=hours(5, 6))) == ["span 4", "span 5", "span 6"]
