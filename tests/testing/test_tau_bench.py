"""The published runs of gpt-4o on tau-bench airline give the published statistics, also through `goldspan run`.

tests/fixtures/tau/trials.jsonl has, for each of the 50 tasks, the expected calls that change data and those of four
trials (sierra-research/tau-bench, MIT), with a hash in place of the arguments. A call that ends in `true` failed.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from goldspan.testing.results_file import read_results
from goldspan.testing.statistics import (
    TrialCount,
    bootstrap_interval,
    estimates,
    pass_at_k,
    pass_hat_k,
    task_pass_hat_k,
)

TRIALS = Path(__file__).parents[1] / "fixtures" / "tau" / "trials.jsonl"
TASKS: list[dict[str, Any]] = [json.loads(line) for line in TRIALS.read_text(encoding="utf-8").splitlines()]
REWARDS = [TrialCount(sum(trial["reward"] for trial in task["trials"]), len(task["trials"])) for task in TASKS]
PASS_HAT_K_BY_REWARD = [0.420, 0.273, 0.220, 0.200]
PASS_HAT_K_BY_WRITES = [0.435, 0.300, 0.245, 0.220]


def test_pass_hat_k_by_reward_is_the_published_one() -> None:
    assert [round(pass_hat_k(REWARDS, k) or 0, 3) for k in (1, 2, 3, 4)] == PASS_HAT_K_BY_REWARD


def test_pass_at_k_rises_from_the_pass_rate_to_the_share_of_tasks_that_passed_once() -> None:
    found = [pass_at_k(REWARDS, k) or 0 for k in (1, 2, 3, 4)]
    assert found[0] == pytest.approx(0.42)
    assert found == sorted(found)
    assert found[3] == sum(count.passed > 0 for count in REWARDS) / len(REWARDS)


def test_the_intervals_over_tasks_are_wider_than_those_over_trials() -> None:
    """The four trials of a task are alike: 200 independent trials would have an interval of 0.137."""
    interval = bootstrap_interval(estimates(REWARDS, 1, task_pass_hat_k))
    assert interval is not None
    assert interval.low < 0.42 < interval.high
    assert 0.17 < interval.high - interval.low < 0.25


REPLAYING_AGENT = f"""
import json
from pathlib import Path
import goldspan

TRIALS = {{task["id"]: iter(task["trials"]) for task in map(json.loads, Path({str(TRIALS)!r}).open(encoding="utf-8"))}}

def call(name, arguments, failed):
    @goldspan.trace(name=name)
    def tool(arguments):
        if failed:
            raise RuntimeError
    try:
        tool(arguments)
    except RuntimeError:
        pass

async def agent(text, golden):
    for name, arguments, *failed in next(TRIALS[golden.id])["writes"]:
        call(name, arguments, bool(failed))
"""


@pytest.mark.e2e
def test_replayed_runs_give_the_published_statistics_of_writes_through_the_command(tmp_path: Path) -> None:
    (tmp_path / "replay.py").write_text(REPLAYING_AGENT, encoding="utf-8")
    goldens = [
        {
            "id": task["id"],
            "input": task["id"],
            "attempts": "succeeded",
            "extra": "penalize",
            "tools": [{"name": name, "arguments": {"arguments": token}} for name, token in task["expected"]],
        }
        for task in TASKS
    ]
    (tmp_path / "goldens.json").write_text(json.dumps(goldens), encoding="utf-8")
    command = ["run", "replay:agent", "-g", "goldens.json", "--trials", "4", "--limit", "1"]
    gates = ["--fail-under", "pass^1=0.435", "--fail-under", "pass^4=0.22"]
    done = subprocess.run(
        [sys.executable, "-m", "goldspan", *command, *gates],
        capture_output=True,
        encoding="utf-8",
        cwd=tmp_path,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    results = read_results(tmp_path / "goldspan-results.jsonl")
    assert results.counts == {"passed": 87, "failed": 113, "not_evaluated": 0, "error": 0, "timeout": 0}
    assert [round(results.pass_hat_k(k) or 0, 3) for k in (1, 2, 3, 4)] == PASS_HAT_K_BY_WRITES
    printed = {line.split()[0]: line.split()[1] for line in done.stdout.splitlines() if line[:1] in "1234" and line}
    assert {k: printed[k] for k in "1234"} == dict(zip("1234", ("0.4350", "0.3000", "0.2450", "0.2200"), strict=True))
