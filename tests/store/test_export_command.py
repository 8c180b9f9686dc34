"""Tests of `goldspan export`."""

from __future__ import annotations

import csv
import json
import time
from dataclasses import replace
from pathlib import Path

import pytest

from goldspan import ExpectedTool, Golden, Run, ToolCall, evaluate
from goldspan.store import open_store
from support.command_line import Goldspan
from support.command_line import goldspan as goldspan  # a fixture

GOLDEN = Golden("refund", threshold=1, tools=(ExpectedTool("find_order"), ExpectedTool("refund")))
HOUR = 3600 * 10**9


@pytest.fixture
def filled(path: Path) -> Path:
    """Creates a store with four runs, an hour apart, the last of them now."""
    now_ns = time.time_ns()
    calls = (ToolCall("find_order"), ToolCall("refund"))
    with open_store(path) as store:
        for number in range(4):
            run = Run(
                f"run-{number}",
                trace_ids=(f"trace-{number}",),
                input=f"Question {number}?",
                agent="support" if number % 2 == 0 else "travel",
                environment="test" if number == 3 else "production",
                tool_calls=calls[: 1 + number % 2],
                start_ns=now_ns - (3 - number) * HOUR,
            )
            store.submit(evaluate(run, GOLDEN))
        store.submit(replace(evaluate(replace(run, session_id="s1"), GOLDEN), revision=2))
    return path


def ids(path: Path) -> list[str]:
    with path.open(newline="", encoding="utf-8") as file:
        return [row["run_id"] for row in csv.DictReader(file)]


def test_export_writes_all_runs_and_prints_their_number(goldspan: Goldspan, filled: Path, tmp_path: Path) -> None:
    said = goldspan("export", filled, tmp_path / "runs.csv")
    assert (said.status, said.out) == (0, "")
    assert said.err == f"4 runs written to {tmp_path / 'runs.csv'}\n"
    assert ids(tmp_path / "runs.csv") == ["run-3", "run-2", "run-1", "run-0"]


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        (["--verdict", "fail"], ["run-2", "run-0"]),
        (["--metric", "tool_recall", "--below", "0.8"], ["run-2", "run-0"]),
        (["--agent", "travel"], ["run-3", "run-1"]),
        (["--golden", "no-such"], []),
        (["--covered", "--agent", "travel"], ["run-3", "run-1"]),
        (["--uncovered"], []),
        (["--tool", "Refund"], ["run-3", "run-1"]),
        (["--tool", "refund", "--tool-role", "missing"], ["run-2", "run-0"]),
        (["--environment", "test"], ["run-3"]),
        (["--session", "s1"], ["run-3"]),
        (["--unit", "component"], []),
        (["--service", "web"], []),
        (["--trace", "trace-1"], ["run-1"]),
        (["--text", "question 0"], ["run-0"]),
        (["--since", "90m"], ["run-3", "run-2"]),
        (["--since", "7d", "--until", "90m"], ["run-1", "run-0"]),
        (["--until", "2026-01-31"], []),
        (["--since", "2026-01-31T08:00:00Z", "--verdict", "pass"], ["run-3", "run-1"]),
        (["--since", "2026-01-31T08:00:00+02:00", "--agent", "travel"], ["run-3", "run-1"]),
    ],
)
def test_options_select_the_exported_runs(
    goldspan: Goldspan, filled: Path, tmp_path: Path, options: list[str], wanted: list[str]
) -> None:
    said = goldspan("export", filled, tmp_path / "runs.csv", *options)
    assert (said.status, ids(tmp_path / "runs.csv")) == (0, wanted)


def test_json_lines_contain_the_current_evaluation(goldspan: Goldspan, filled: Path, tmp_path: Path) -> None:
    goldspan("export", filled, tmp_path / "runs.jsonl", "--trace", "trace-3")
    (line,) = (tmp_path / "runs.jsonl").read_text().splitlines()
    assert (json.loads(line)["run_id"], json.loads(line)["revision"]) == ("run-3", 2)


def test_an_existing_file_is_overwritten_only_with_force(goldspan: Goldspan, filled: Path, tmp_path: Path) -> None:
    target = tmp_path / "runs.csv"
    target.write_text("mine")
    said = goldspan("export", filled, target)
    assert (said.status, target.read_text()) == (2, "mine")
    assert "the file exists; --force overwrites it" in said.err
    assert goldspan("export", filled, target, "--force").status == 0
    assert len(ids(target)) == 4


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--since", "yesterday"], "--since: 'yesterday' is not a time; write it as 2026-01-31"),
        (["--below", "0.5"], "--below needs --metric"),
        (["--tool-role", "missing"], "`tool_role` 'missing' needs a `tool`"),
        (["--verdict", "bad"], "'bad' is not one of 'pass', 'fail'"),
    ],
)
def test_invalid_options_exit_with_status_2(
    goldspan: Goldspan, filled: Path, tmp_path: Path, options: list[str], sentence: str
) -> None:
    said = goldspan("export", filled, tmp_path / "runs.csv", *options)
    assert said.status == 2
    assert sentence in " ".join(said.err.replace("│", " ").split())
    assert not (tmp_path / "runs.csv").exists()


def test_a_missing_store_and_an_unknown_format_exit_with_status_2(
    goldspan: Goldspan, filled: Path, tmp_path: Path
) -> None:
    said = goldspan("export", tmp_path / "no.db", tmp_path / "runs.csv")
    assert (said.status, "no such store" in said.err) == (2, True)
    said = goldspan("export", filled, tmp_path / "runs.xls")
    assert (said.status, "the name must end in .csv" in said.err) == (2, True)
    assert not (tmp_path / "no.db").exists()


def test_an_error_for_an_unwritable_target_names_the_given_path(
    goldspan: Goldspan, filled: Path, tmp_path: Path
) -> None:
    for target in (tmp_path / "no" / "runs.csv", filled / "runs.csv"):
        said = goldspan("export", filled, target)
        assert (said.status, said.out) == (2, "")
        assert f"{target}: it cannot be written: " in said.err
        assert ".part" not in said.err


def test_the_help_text_has_examples(goldspan: Goldspan) -> None:
    said = goldspan("export", "--help")
    assert said.status == 0
    assert "goldspan export goldspan-data failed.parquet --verdict fail --since 7d" in " ".join(said.out.split())
