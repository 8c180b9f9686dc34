"""Rows kept on disk in buckets."""

from __future__ import annotations

from decimal import Decimal
from itertools import chain
from pathlib import Path

import pytest

from goldspan.batch.record_rows import memory_size, record_to_row, row_to_record
from goldspan.batch.spill import BUCKETS, SpillWriter, iter_groups, read_bucket
from goldspan.model import LogRecord, SpanEvent, SpanRecord
from goldspan.otlp import read_records

TRACE, SPAN = "0123456789abcdef" * 2, "0123456789abcdef"


def key(number):
    return number.to_bytes(16, "little")


def spill_of(tmp_path, rows, *, name="rows", buffer_bytes=3):
    with SpillWriter(tmp_path / name, buffer_bytes) as writer:
        for row in rows:
            writer.add(row, 1)
        return writer.finish()


def test_all_rows_are_in_one_bucket_each_and_in_their_order(tmp_path):
    rows = [(key(number % 50), number) for number in range(500)]
    spill = spill_of(tmp_path, rows)
    found = [list(chain.from_iterable(read_bucket([spill], bucket))) for bucket in range(BUCKETS)]
    assert sorted(chain.from_iterable(found), key=lambda row: row[1]) == rows
    for bucket in found:
        assert [row[1] for row in bucket] == sorted(row[1] for row in bucket)
    assert sum(map(spill.bucket_bytes, range(BUCKETS))) == (tmp_path / "rows").stat().st_size


@pytest.mark.parametrize("max_bytes", [1, 200, 10**6])
def test_the_rows_of_a_key_are_together_however_small_the_parts_are(tmp_path, max_bytes):
    rows = [(key(number % 90), number) for number in range(900)]
    spills = [spill_of(tmp_path, rows[:400], name="a"), spill_of(tmp_path, rows[400:], name="b")]
    groups = {}
    for bucket in range(BUCKETS):
        for part in iter_groups(spills, bucket, max_bytes=max_bytes, folder=tmp_path):
            assert groups.keys().isdisjoint(part)
            groups |= part
    assert groups == {key(number): [row for row in rows if row[0] == key(number)] for number in range(90)}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]


def test_values_that_marshal_cannot_encode_are_kept_too(tmp_path):
    for number, value in enumerate([Decimal("1.5"), range(3)]):
        spill = spill_of(tmp_path, [(key(1), value)], name=str(number))
        (rows,) = chain.from_iterable(read_bucket([spill], bucket) for bucket in range(BUCKETS))
        assert rows == [(key(1), value)]


@pytest.mark.parametrize(
    "record",
    [
        SpanRecord(TRACE, SPAN, None, "x", {"a": [1, b"\xff", None, {"b": 1.5}]}, 5, 2**64 - 1, "error", "m"),
        SpanRecord(TRACE, SPAN, SPAN, "x", {}, None, None, events=(SpanEvent("e", {"k": "v"}, 7),), kind=3, scope="s"),
        LogRecord("event", {"a": 1}, {"body": [1]}, TRACE, SPAN, 9, "scope", {"service.name": "x"}),
        LogRecord("event", {"session.id": "s"}),
    ],
    ids=str,
)
def test_a_record_becomes_a_row_and_the_same_record_again(record):
    row = record_to_row(record, 7)
    assert (len(row[0]), row[1]) == (16, 7)
    assert row_to_record(row) == record
    assert memory_size(record) > 1000


def test_a_log_record_without_trace_and_session_has_no_row():
    assert record_to_row(LogRecord("event", {}), 0) is None


def test_a_record_that_keeps_its_message_in_protobuf_is_counted_as_larger():
    (path, *_) = sorted((Path(__file__).parents[1] / "fixtures" / "captures").glob("*.pb.gz"))
    for record in read_records([path]):
        plain = row_to_record(record_to_row(record, 0))
        assert plain == record
        assert memory_size(record) > memory_size(plain) + 500
