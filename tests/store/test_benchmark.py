"""Tests that the benchmark of the store runs; it does not check the figures."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARK = Path(__file__).parent.parent.parent / "benchmarks" / "store.py"


@pytest.mark.e2e
def test_the_benchmark_compares_the_time_of_every_query_with_its_budget() -> None:
    done = subprocess.run(
        [sys.executable, BENCHMARK, "--runs", "600", "--rounds", "1"], capture_output=True, text=True, check=True
    )
    lines = done.stdout.splitlines()
    assert lines[0].startswith("600 runs, inputs of 100 characters, ")
    asked = [line for line in lines if line.startswith(("  ok    ", "  MISSED"))]
    assert len(asked) == 57
    for question in ("text in the oldest input", "trend: since half-way", "tools: one golden", "newest arrival"):
        assert any(question in line for line in asked)
