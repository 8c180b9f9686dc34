"""Tests of exported files: every value can be read back, and no cell is a formula."""

from __future__ import annotations

import csv
import io
import json
import re
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from goldspan import ConfigurationError, ExpectedTool, Golden, MissingExtraError, Run, ToolCall, evaluate
from goldspan.errors import StoreError
from goldspan.model import Evaluation
from goldspan.store import RunFilter, Store, StoredRun
from support.random_evaluations import HOSTILE, evaluations, utf8
from support.store_contents import NewStore

GOLDEN = Golden("refund", tools=(ExpectedTool("find_order"), ExpectedTool("refund")), forbid=("drop_*",))
RUN = Run(
    "t:s",
    trace_ids=("t", "u"),
    input="=HYPERLINK(\"http://x\")",
    agent="support",
    tool_calls=(ToolCall("find_order"), ToolCall("search"), ToolCall("drop_table")),
    start_ns=1_700_000_000_123_456_789,
)  # fmt: skip
CONTROLS = "".join(map(chr, range(32)))


def rows_of(content: bytes) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(content.decode("utf-8"), newline="")))


def test_a_csv_row_contains_the_run_its_verdict_its_tools_and_its_scores(store: Store) -> None:
    store.submit(evaluate(RUN, GOLDEN, metrics=["tool_recall", "tool_precision", "result_correctness"]))
    file = io.BytesIO()
    assert store.export(file, format="csv") == 1
    assert rows_of(file.getvalue()) == [
        {
            "run_id": "t:s", "time": "2023-11-14T22:13:20.123456+00:00", "unit": "request", "trace_ids": "t, u",
            "service": "", "environment": "", "agent": "support", "component": "", "session_id": "",
            "input": "'=HYPERLINK(\"http://x\")", "golden_id": "refund", "golden_match": "given", "similarity": "1.0",
            "passed": "false", "reason": evaluate(RUN, GOLDEN, metrics=["tool_recall"]).reason,
            "tools_used": "find_order, search, drop_table", "expected_tools": "find_order, refund",
            "missing": "refund", "unexpected": "search", "forbidden": "drop_table", "revision": "1",
            "evaluations": "1", "score.result_correctness": "", "score.tool_precision": "0.3333333333333333",
            "score.tool_recall": "0.5",
        }
    ]  # fmt: skip


@given(st.lists(evaluations(), max_size=6), st.lists(st.sampled_from(HOSTILE) | st.text(max_size=5), max_size=6))
def test_hostile_texts_can_be_read_back_from_every_format_and_are_never_formulas(
    new_store: NewStore, stored: list[Evaluation], texts: list[str]
) -> None:
    hostile = [
        replace(each, run=replace(each.run, run_id=f"{number}{text}", agent=text, input=text))
        for number, (each, text) in enumerate(zip(stored, texts, strict=False))
    ]
    with tempfile.TemporaryDirectory() as name, new_store() as store:
        store.submit_many(hostile)
        for form in ("csv", "parquet", "jsonl"):
            assert store.export(Path(name) / f"out.{form}") == len(hostile)
        rows = rows_of((Path(name) / "out.csv").read_bytes())
        table = parquet.read_table(Path(name) / "out.parquet").to_pylist()
        lines = [json.loads(line) for line in (Path(name) / "out.jsonl").read_bytes().splitlines()]
        runs = list(store.iter_runs())
    for run, row, values, document in zip(runs, rows, table, lines, strict=True):
        assert document == run.current.document
        assert values["input"] == utf8(document["input"])
        assert _unmarked(row["input"]) == _unmarked(_readable(document["input"]))
        assert not any(cell.lstrip(" ")[:1] in set("=+-@\t\r\n＝＋－＠") - {""} for cell in _texts(row))
        assert not any(part.lstrip(" ")[:1] in set("=+-@＝＋－＠") for part in _parts(row) if part.strip(" "))
        for metric in ("tool_recall", "tool_correctness"):
            score = next(score["value"] for score in document["scores"] if score["metric"] == metric)
            assert values[f"score.{metric}"] == score
            assert row[f"score.{metric}"] == ("" if score is None else str(float(score)))


def _texts(row: dict[str, str]) -> list[str]:
    return [cell for name, cell in row.items() if not name.startswith("score.")]


def _parts(row: dict[str, str]) -> list[str]:
    """Returns the cells for a spreadsheet that separates by semicolons or tabs and ignores quotes."""
    return [part for cell in _texts(row) for part in re.split(r"[;\t\r\n]", cell)]


def _unmarked(text: str) -> str:
    """Returns a text without the apostrophes where a cell may start."""
    return re.sub(r"(^|(?<=[;\t\r\n]))'", "", text)


def _readable(text: str) -> str:
    return "".join(
        "\ufffd" if (each in CONTROLS and each not in "\t\r\n") or each == "\x7f" else each for each in utf8(text)
    )


def test_a_negative_score_is_a_number_and_a_text_that_looks_like_one_is_a_text(store: Store) -> None:
    evaluation = evaluate(replace(RUN, input="-1"), GOLDEN, metrics=["tool_recall"])
    below = replace(evaluation, scores=(replace(evaluation.scores[0], value=-0.5),))
    store.submit(below)
    file = io.BytesIO()
    store.export(file, format="csv")
    (row,) = rows_of(file.getvalue())
    assert (row["score.tool_recall"], row["input"]) == ("-0.5", "'-1")


@pytest.mark.parametrize(
    ("text", "cell"),
    [
        ("Refund;=cmd|' /C calc'!A0;", "Refund;'=cmd|' /C calc'!A0;"),
        ("a; +1\t@x\r\n- b\n  =2", "a;' +1\t'@x\r\n'- b\n'  =2"),
        ("\t=1", "'\t'=1"),
        ("a - b, =c: x@y.z; it's 1+1", "a - b, =c: x@y.z; it's 1+1"),
    ],
)
def test_no_formula_starts_after_a_semicolon_tab_or_line_break(store: Store, text: str, cell: str) -> None:
    store.submit(evaluate(replace(RUN, input=text), GOLDEN))
    file = io.BytesIO()
    store.export(file, format="csv")
    (row,) = rows_of(file.getvalue())
    assert row["input"] == cell


def test_parquet_columns_have_types(store: Store, tmp_path: Path) -> None:
    store.submit(evaluate(RUN, GOLDEN))
    store.export(tmp_path / "runs.parquet")
    table = parquet.read_table(tmp_path / "runs.parquet")
    (row,) = table.to_pylist()
    assert row["time"] == datetime(2023, 11, 14, 22, 13, 20, 123456, timezone.utc)
    assert (row["missing"], row["passed"], row["score.tool_recall"], row["revision"]) == (["refund"], False, 0.5, 1)
    assert {str(table.schema.field(name).type) for name in ("tools_used", "score.call_budget")} == {
        "list<element: string>", "double"
    }  # fmt: skip


def test_only_the_selected_runs_are_exported_newest_first(store: Store, tmp_path: Path) -> None:
    evaluation = evaluate(RUN, GOLDEN)
    for number in range(4):
        run = replace(RUN, run_id=str(number), agent="even" if number % 2 == 0 else "odd", start_ns=number + 1)
        store.submit(replace(evaluation, run=run))
    assert store.export(tmp_path / "even.csv", filter=RunFilter(agent="even")) == 2
    assert [row["run_id"] for row in rows_of((tmp_path / "even.csv").read_bytes())] == ["2", "0"]


@pytest.mark.parametrize("form", ["csv", "parquet", "jsonl"])
def test_an_empty_store_yields_a_file_without_rows(store: Store, tmp_path: Path, form: str) -> None:
    assert store.export(tmp_path / f"none.{form}") == 0
    if form == "parquet":
        assert parquet.read_table(tmp_path / "none.parquet").num_rows == 0
    else:
        assert len((tmp_path / f"none.{form}").read_text().splitlines()) == (form == "csv")


@pytest.mark.e2e
def test_runs_beyond_one_parquet_row_group_are_all_exported(store: Store, tmp_path: Path) -> None:
    evaluation = evaluate(RUN, GOLDEN, metrics=["tool_recall"])
    store.submit_many(replace(evaluation, run=replace(RUN, run_id=str(number))) for number in range(5100))
    assert store.export(tmp_path / "runs.parquet") == 5100
    assert len(set(parquet.read_table(tmp_path / "runs.parquet").column("run_id").to_pylist())) == 5100


def test_an_existing_file_is_replaced_only_with_overwrite(store: Store, tmp_path: Path) -> None:
    target = tmp_path / "runs.csv"
    target.write_text("mine")
    with pytest.raises(StoreError, match="the file exists"):
        store.export(target)
    assert target.read_text() == "mine"
    store.export(target, overwrite=True)
    assert target.read_text().startswith("run_id,")


def test_an_interrupted_export_keeps_the_existing_file_and_leaves_no_partial_file(store: Store, tmp_path: Path) -> None:
    store.submit(evaluate(RUN, GOLDEN))
    target = tmp_path / "runs.csv"
    target.write_text("mine")

    def broken(runs: object) -> Iterator[StoredRun]:
        yield from runs  # type: ignore[misc, attr-defined]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        store.export(target, overwrite=True, observe=broken)
    assert target.read_text() == "mine"
    assert {file.name for file in tmp_path.iterdir()} & {".runs.csv.part"} == set()
    assert [file.name for file in tmp_path.iterdir() if file.name.endswith(".part")] == []


def test_a_target_without_a_known_extension_is_refused(store: Store, tmp_path: Path) -> None:
    for target in (tmp_path / "runs.xlsx", tmp_path / "runs", io.BytesIO()):
        with pytest.raises(ConfigurationError, match=r"must end in \.csv, \.parquet or \.jsonl"):
            store.export(target)
    with (tmp_path / "runs.jsonl").open("wb") as file:
        assert store.export(file) == 0


def test_an_unknown_format_is_refused(store: Store, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="the format of an export is csv, parquet, jsonl, not 'xlsx'"):
        store.export(tmp_path / "runs.csv", format="xlsx")  # type: ignore[arg-type]
    assert list(tmp_path.glob("runs*")) == []


def test_an_unwritable_target_is_a_store_error(store: Store, tmp_path: Path) -> None:
    (tmp_path / "folder.csv").mkdir()
    (tmp_path / "file").touch()
    for target in (tmp_path / "no" / "runs.csv", tmp_path / "file" / "runs.csv", tmp_path / "folder.csv"):
        with pytest.raises(StoreError, match=f"^{target}: it cannot be written: "):
            store.export(target, overwrite=True)
    assert [file.name for file in tmp_path.iterdir() if file.name.endswith(".part")] == []


def test_without_pyarrow_the_error_names_the_extra_and_no_file_is_created(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pyarrow.parquet", None)
    with pytest.raises(MissingExtraError, match=r"writing Parquet needs .* pip install 'goldspan\[parquet\]'"):
        store.export(tmp_path / "runs.parquet")
    assert not (tmp_path / "runs.parquet").exists()
