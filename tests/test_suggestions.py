"""Tests of benchmarks/suggestions.py, which measures how well suggested goldens find runs that missed their goal."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import suggestions

from goldspan import ExpectedTool, Golden, Goldens, Run, ToolCall

RUNS = Path(__file__).parent / "fixtures" / "tau"


def run(task: str, trial: int, calls: str) -> Run:
    made = tuple(ToolCall(name, arguments={}) for name in calls.split())
    return Run(f"{task}/{trial}", golden_id=task, tool_calls=made)


def test_goldens_from_one_half_judge_the_other_half() -> None:
    runs = [run("refund", trial, calls) for trial, calls in enumerate(("find refund", "refund", "find refund", "find"))]
    runs += [run("ask", trial, calls) for trial, calls in enumerate(("find", "find", "find", "find refund"))]
    reached = {each.run_id: not each.run_id.endswith("3") for each in runs}
    goldens = Goldens(
        [
            Golden("refund", tools=(ExpectedTool("find"), ExpectedTool("refund")), write_tools=("refund",)),
            Golden("ask", write_tools=("refund",)),
        ]
    )
    rows = {
        name: cells
        for name, *cells in (line.strip("| ").split(" | ") for line in suggestions.table(runs, reached, goldens))
    }
    assert rows["suggested, `--write-tool`"][1:] == ["4.0 of 4", "0.25", "1.00 (6 of 6)", "1.00 (6 of 6)"]
    assert rows["hand-written, the writes alone, the same tasks"][1:] == rows["suggested, `--write-tool`"][1:]
    # Goldens that expect every call also fail good runs: three that refund without looking, nine that only look.
    assert rows["hand-written, every call, the same tasks"][3:] == ["0.33 (6 of 18)", "1.00 (6 of 6)"]


def test_a_folder_is_read_and_without_one_nothing_is_measured(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["suggestions.py", str(RUNS)])
    assert suggestions.main() == 0
    assert capsys.readouterr().out.splitlines()[0] == "7 runs, 3 of them reached their goal"
    monkeypatch.setattr(sys, "argv", ["suggestions.py"])
    assert suggestions.main() == 0
    assert capsys.readouterr().out.startswith("skipped: it needs a folder")
