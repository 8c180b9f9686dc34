"""Tests of benchmarks/effects.py, which measures how well scores separate runs that reached their goal from others.

The runs are seven of the airline runs of gpt-4o that tau-bench publishes (MIT), with invented names and ids.
"""

from __future__ import annotations

import gzip
import shutil
import sys
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import effects
import pytest

from goldspan import ExpectedTool, Golden, Goldens, evaluate

RUNS = Path(__file__).parent / "fixtures" / "tau"


def study(*arguments: str | Path) -> str:
    """Run the script in this process, and return what it prints."""
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(StringIO()) as printed:
        patch.setattr(sys, "argv", ["effects.py", *map(str, arguments)])
        assert effects.main() == 0
    return printed.getvalue()


def parts(printed: str) -> list[str]:
    """Split the printed study: for all and for effective attempts, a head, a table of scores and one of verdicts."""
    return printed.strip().split("\n\n")


def rows(printed: str) -> dict[str, list[str]]:
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in printed.splitlines() if "|" in line]
    return {name: values for name, *values in cells}


def test_each_score_is_printed_for_all_attempts_and_for_effective_attempts() -> None:
    head, every, _, effective_head, effective, _ = parts(study(RUNS))
    assert head == "attempts: all, 7 runs, 3 of them reached their goal"
    assert effective_head == "attempts: effective, 7 runs, 3 of them reached their goal"
    found = rows(every)
    assert found["`tool_recall`"] == ["0.4583", "6", "1.000", "2 of 2", "0 of 4"]
    assert found["`effect_correctness`"][1:] == ["7", "0.875", "3 of 3", "1 of 4"]
    # A failed booking that a later one replaced is an extra call only if all attempts count.
    assert found["`tool_precision`"][0] == "0.5000"
    assert rows(effective)["`tool_precision`"][0] == "0.5200"


def test_the_verdicts_of_gates_and_goldens_are_compared_for_all_calls_and_for_the_writes_alone() -> None:
    *_, verdicts = parts(study(RUNS))
    head, _, *lines = verdicts.splitlines()
    assert head.startswith("| goldens require | verdict | passed |")
    assert lines == [
        "| every call | gates, before | 2 | 2 | 5 | 4 | 85.7% |",
        "| every call | the golden, now | 2 | 2 | 5 | 4 | 85.7% |",
        "| the writes alone | gates, before | 3 | 2 | 4 | 3 | 71.4% |",
        "| the writes alone | the golden, now | 3 | 2 | 4 | 3 | 71.4% |",
    ]


def test_a_run_with_half_of_the_expected_calls_passes_the_gates_and_fails_the_golden() -> None:
    half = evaluate(["search"], ["search", "book"])
    found = list(effects.verdicts({"every call": [half, half]}, [True, False]))[2:]
    assert found == [
        "| every call | gates, before | 2 | 1 | 0 | 0 | 50.0% |",
        "| every call | the golden, now | 0 | 0 | 2 | 1 | 50.0% |",
    ]
    assert effects.gates_passed(evaluate([], ["search"])) is False
    assert effects.gates_passed(evaluate(["search"], Goldens())) is None


def test_a_golden_that_states_its_writes_alone_leaves_reads_open_and_forbids_other_changes() -> None:
    look, book = ExpectedTool("look"), ExpectedTool("book")
    both = effects.writes_alone(Golden("both", tools=(look, book), write_tools=("book",)))
    assert both.tools == (book,)
    assert [evaluate(calls, both).passed for calls in (["find", "book"], ["look"], ["book", "book"])] == [
        True,
        False,
        False,
    ]
    none = effects.writes_alone(Golden("none", tools=(look,), write_tools=("book",)))
    assert [evaluate(calls, none).passed for calls in (["find"], [], ["look", "book"])] == [True, True, False]


@pytest.mark.e2e
def test_gzipped_files_are_read_too(tmp_path: Path) -> None:
    shutil.copytree(RUNS, tmp_path, dirs_exist_ok=True)
    packed = tmp_path / "truth.jsonl"
    (tmp_path / "truth.jsonl.gz").write_bytes(gzip.compress(packed.read_bytes()))
    packed.unlink()
    assert study(tmp_path) == study(RUNS)


def test_without_runs_the_study_prints_what_it_needs() -> None:
    assert study() == "skipped: it needs a folder of runs with known outcomes; --help describes the files\n"


@pytest.mark.parametrize(
    ("reached", "missed", "area"),
    [
        pytest.param([1, 1], [0, 0.5], 1, id="separated"),
        pytest.param([0.5], [0.5, 0.5], 0.5, id="equal scores"),
        pytest.param([0], [1], 0, id="reversed"),
        pytest.param([1, 0.5], [0.5, 0], 0.875, id="one tie"),
    ],
)
def test_auc_is_the_probability_that_a_score_orders_two_runs_correctly(
    reached: list[float], missed: list[float], area: float
) -> None:
    assert effects.auc(reached, missed) == area
