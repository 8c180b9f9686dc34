"""The study of which scores tell runs that reached their goal from those that did not.

The runs are seven of the airline runs of gpt-4o that tau-bench publishes (MIT), with every name and id made up anew.
"""

from __future__ import annotations

import gzip
import shutil
import subprocess
import sys
from pathlib import Path

import effects
import pytest

RUNS = Path(__file__).parent / "fixtures" / "tau"
SCRIPT = Path(__file__).parent.parent / "benchmarks" / "effects.py"


def study(*arguments: str | Path) -> str:
    done = subprocess.run([sys.executable, SCRIPT, *arguments], capture_output=True, text=True, check=True)
    return done.stdout


def rows(told: str) -> dict[str, list[str]]:
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in told.splitlines() if "|" in line]
    return {name: values for name, *values in cells}


def test_each_score_is_given_for_every_attempt_and_for_those_that_count() -> None:
    every, effective = study(RUNS).strip().split("\n\nattempts: ")
    assert every.startswith("attempts: all, 7 runs, 3 of them reached their goal\n")
    assert effective.startswith("effective, 7 runs, 3 of them reached their goal\n")
    found = rows(every)
    assert found["`tool_recall`"] == ["0.4583", "6", "1.000", "2 of 2", "0 of 4"]
    assert found["`effect_correctness`"][1:] == ["7", "0.875", "3 of 3", "1 of 4"]
    # A booking that failed and was made good is a call too much only where every attempt counts.
    assert found["`tool_precision`"][0] == "0.5000"
    assert rows(effective)["`tool_precision`"][0] == "0.5200"


def test_gzipped_files_are_read_as_well(tmp_path: Path) -> None:
    shutil.copytree(RUNS, tmp_path, dirs_exist_ok=True)
    packed = tmp_path / "truth.jsonl"
    (tmp_path / "truth.jsonl.gz").write_bytes(gzip.compress(packed.read_bytes()))
    packed.unlink()
    assert study(tmp_path) == study(RUNS)


def test_without_runs_it_says_what_it_needs() -> None:
    assert study() == "skipped: it needs a folder of runs whose outcome is known; --help says which\n"


@pytest.mark.parametrize(
    ("reached", "missed", "area"),
    [
        pytest.param([1, 1], [0, 0.5], 1, id="apart"),
        pytest.param([0.5], [0.5, 0.5], 0.5, id="all alike"),
        pytest.param([0], [1], 0, id="the wrong way round"),
        pytest.param([1, 0.5], [0.5, 0], 0.875, id="one tie"),
    ],
)
def test_auc_is_the_chance_of_telling_two_runs_apart(reached: list[float], missed: list[float], area: float) -> None:
    assert effects.auc(reached, missed) == area
