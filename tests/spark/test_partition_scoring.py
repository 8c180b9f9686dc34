"""Tests of what the executors do, without Spark: batches of rows are read, packed, sorted by key and scored."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import goldspan
from goldspan.errors import ConfigurationError, TraceFileError
from goldspan.goldens import Goldens, load_goldens
from goldspan.model import LogRecord, SpanEvent, SpanRecord, TelemetryRecord
from goldspan.otlp import load_runs, read_records, span_rows
from goldspan.otlp.parquet_files import arrow_schema
from goldspan.sinks.serialization import evaluation_document, to_json
from goldspan.spark.frame_scoring import run_evaluator
from goldspan.spark.partition_scoring import PartitionScorer, RunEvaluator
from goldspan.spark.record_packing import pack_records, unpack_records
from goldspan.spark.telemetry_frames import OnError, TelemetryReader

FIXTURES = Path(__file__).parents[1] / "fixtures"
CAPTURES = sorted((FIXTURES / "captures").glob("*.pb.gz"))
RECORDED = sorted((FIXTURES / "recorded").rglob("*.gz"))
GOLDENS = "goldens: [{id: hotel, when: {input: {contains: hotel}}, tools: [search_hotels, book_hotel]}]"
OTLP = {"otlp": "value"}
ALL_COLUMNS = {name: name for name in span_rows.COLUMNS}


@pytest.fixture
def goldens(tmp_path: Path) -> Goldens:
    (tmp_path / "goldens.yaml").write_text(GOLDENS)
    return load_goldens(tmp_path / "goldens.yaml")


def requests() -> list[bytes]:
    return [gzip.decompress(path.read_bytes()) for path in CAPTURES]


def documents_of_files(goldens: Goldens, paths: Sequence[Path] = CAPTURES) -> set[str]:
    runs = load_runs(*paths, components=goldens.components)
    return {to_json(evaluation_document(goldspan.evaluate(run, goldens))) for run in runs}


def batches_of(values: Iterable[Any], rows: int = 3) -> Iterator[pa.RecordBatch]:
    table = pa.table({"value": list(values)})
    return iter(table.to_batches(max_chunksize=rows))


def evaluator_of(goldens: Goldens | None) -> RunEvaluator:
    return run_evaluator(goldens, "request", None, None, False, None)


def scored(
    packed: Iterable[pa.RecordBatch], goldens: Goldens | None, max_records: int = 10_000
) -> list[dict[str, Any]]:
    """Return the rows of the evaluations, after a sort by key as in Spark, and in batches of another size."""
    table = pa.Table.from_batches(packed).rename_columns(["stitch_key", "session_id", "start_ns", "packed"])
    partition = table.sort_by([("stitch_key", "ascending"), ("start_ns", "ascending")])
    scorer = PartitionScorer(evaluator_of(goldens), max_records)
    return [row for batch in scorer(partition.to_batches(max_chunksize=2)) for row in batch.to_pylist()]


def reader(columns: dict[str, str] = OTLP, on_error: OnError = "raise") -> TelemetryReader:
    return TelemetryReader(columns, columns is OTLP, on_error)


@pytest.mark.parametrize("path", [*CAPTURES, *RECORDED], ids=lambda path: path.name)
def test_unpacked_records_equal_the_packed_ones(path: Path) -> None:
    records = [each for each in read_records([path]) if each.trace_id is not None]
    assert unpack_records(pack_records(records)) == records


def test_rare_fields_are_packed_too() -> None:
    resource = {"service.name": "shop"}
    records: list[TelemetryRecord] = [
        SpanRecord("a" * 32, "b" * 16, None, "chat", {"n": [1, 2.5, {"k": b"\xff"}]}, None, 2**63, "error", "no",
                   (SpanEvent("exception", {"t": None}, None), SpanEvent("e", {})), 3, "scope", resource, 4),
        LogRecord("event", {"session.id": "s", "a": True}, {"b": [None]}, None, None, None, "scope", resource),
    ]  # fmt: skip
    nowhere = LogRecord("event", {"a": True})
    assert unpack_records(pack_records([*records, nowhere])) == records


def test_requests_in_any_order_and_repeated_give_the_evaluations_of_the_files(goldens: Goldens) -> None:
    values = [*requests(), *requests()[:2]]
    random.Random(4).shuffle(values)
    rows = scored(reader()(batches_of(values)), goldens)
    assert {row["document"] for row in rows} == documents_of_files(goldens)
    assert len(rows) == len(documents_of_files(goldens))


def test_rows_of_a_table_give_the_evaluations_of_the_files(goldens: Goldens) -> None:
    table_rows = [span_rows.record_to_row(record) for record in read_records(CAPTURES)]
    random.Random(5).shuffle(table_rows)
    table = pa.Table.from_pylist(table_rows, schema=arrow_schema())
    rows = scored(reader(ALL_COLUMNS)(table.to_batches(max_chunksize=7)), goldens)
    assert {row["document"] for row in rows} == documents_of_files(goldens)


def test_a_row_has_the_columns_of_an_export(goldens: Goldens) -> None:
    rows = scored(reader()(batches_of(requests())), goldens)
    row = next(row for row in rows if row["golden_id"] == "hotel")
    document = json.loads(row["document"])
    assert row["run_id"] == document["run_id"]
    assert row["passed"] is document["passed"]
    assert (row["tools_used"], row["revision"]) == (document["tools_used"], 1)
    assert dict(row["scores"]) == {score["metric"]: score["value"] for score in document["scores"]}


def test_requests_are_json_text_or_bytes_or_empty(goldens: Goldens) -> None:
    span = {"traceId": "a" * 32, "spanId": "b" * 16, "name": "execute_tool f", "startTimeUnixNano": "5",
            "attributes": [{"key": "gen_ai.operation.name", "value": {"stringValue": "execute_tool"}}]}  # fmt: skip
    text = json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]})
    for values in ([text], [text.encode()], [text.encode(), None, b""]):
        (row,) = scored(reader()(batches_of(values)), goldens)
        assert row["trace_ids"] == ["a" * 32]
        assert (row["passed"], row["golden_id"]) == (None, None)


def test_a_trace_beyond_the_limit_has_no_verdict_and_says_so(goldens: Goldens) -> None:
    rows = scored(reader()(batches_of(requests())), goldens, max_records=4)
    cut = [row for row in rows if "more than 4 spans" in row["reason"]]
    assert cut
    assert all(row["passed"] is None for row in cut)
    whole = scored(reader()(batches_of(requests())), goldens)
    assert len(whole) > len({row["run_id"] for row in whole} - {row["run_id"] for row in cut})


def test_logs_outside_a_trace_belong_to_their_session() -> None:
    log = LogRecord(
        "claude_code.tool_result", {"session.id": "s1", "tool_name": "Bash", "success": "true"}, time_ns=7, scope="x"
    )
    (batch,) = TelemetryReader(ALL_COLUMNS, False, "raise")(
        pa.Table.from_pylist([span_rows.record_to_row(log)], schema=arrow_schema()).to_batches()
    )
    (row,) = batch.to_pylist()
    assert (row["trace_key"], row["session_id"], row["start_ns"]) == ("session/s1", "s1", 7)


@pytest.mark.parametrize(
    "value", [b"\x08nothing", b"{", b'{"a": 1}', b'{"resourceSpans": [{"scopeSpans": [{"spans": [{}]}]}]}']
)
def test_a_row_that_cannot_be_read_raises_or_is_skipped(
    value: bytes, goldens: Goldens, caplog: pytest.LogCaptureFixture
) -> None:
    values = [value, requests()[0]]
    with pytest.raises(TraceFileError, match=r"a row of the data frame cannot be read: .*on_error='skip'"):
        list(reader()(batches_of(values)))
    rows = scored(reader(on_error="skip")(batches_of(values)), goldens)
    assert {row["document"] for row in rows} == documents_of_files(goldens, CAPTURES[:1])
    assert "was not read" in caplog.text


def test_an_empty_partition_has_no_evaluations(goldens: Goldens) -> None:
    assert list(PartitionScorer(evaluator_of(goldens), 10)([])) == []


def test_options_are_checked(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="unknown unit 'span'"):
        run_evaluator(None, "span", None, None, False, None)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="tool_recal"):
        run_evaluator(None, "request", ["tool_recal"], None, False, None)
    (tmp_path / "goldens.yaml").write_text(GOLDENS)
    evaluator = run_evaluator(tmp_path / "goldens.yaml", "request", None, None, False, None)
    assert any(evaluator.evaluate_run(run).match for run in load_runs(*CAPTURES))
