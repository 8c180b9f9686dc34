"""`goldspan convert`: trace files written as one Parquet file."""

from __future__ import annotations

from pathlib import Path

import pytest

from goldspan.otlp import read_records

CAPTURES = Path(__file__).parents[1] / "fixtures" / "captures"


def test_the_file_has_every_record(goldspan, tmp_path):
    out = tmp_path / "spans.parquet"
    done = goldspan("convert", CAPTURES, "--out", out)
    records = list(read_records([CAPTURES]))
    assert (done.status, done.out) == (0, "")
    assert f"{len(records)} rows written to" in done.err
    assert list(read_records([out])) == records
    assert list(tmp_path.iterdir()) == [out]


def test_a_file_is_overwritten_only_with_force(goldspan, tmp_path):
    out = tmp_path / "spans.parquet"
    out.write_text("mine")
    done = goldspan("convert", CAPTURES, "--out", out)
    assert done.status == 2
    assert "--force overwrites it" in done.err
    assert out.read_text() == "mine"
    assert goldspan("convert", CAPTURES, "--out", out, "--force").status == 0


@pytest.mark.parametrize(
    ("out", "message"), [("spans.csv", "must end in .parquet"), ("missing/spans.parquet", "cannot be written")]
)
def test_a_file_that_cannot_be_written_is_an_error(goldspan, tmp_path, out, message):
    done = goldspan("convert", CAPTURES, "--out", tmp_path / out)
    assert done.status == 2
    assert message in " ".join(done.err.split())


def test_what_cannot_be_read_is_reported(goldspan, tmp_path):
    lines = next(iter(CAPTURES.glob("*.pb.gz"))).read_bytes()
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.pb.gz").write_bytes(lines)
    (tmp_path / "in" / "2.jsonl").write_text("nothing")
    done = goldspan("convert", tmp_path / "in", "--out", tmp_path / "spans.parquet")
    assert done.status == 0
    assert "2.jsonl, whole file: holds no traces" in " ".join(done.err.split())
