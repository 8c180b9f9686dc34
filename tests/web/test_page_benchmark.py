"""The benchmark of the page runs; only a quiet machine gives meaningful figures."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARK = Path(__file__).parent.parent.parent / "benchmarks" / "page.py"


@pytest.mark.e2e
def test_the_benchmark_compares_time_and_size_of_every_view_with_its_budget() -> None:
    done = subprocess.run(
        [sys.executable, BENCHMARK, "--runs", "300", "--rounds", "1"], capture_output=True, text=True, check=True
    )
    lines = done.stdout.splitlines()
    assert lines[0] == "300 runs; medians of 1 interleaved rounds"
    assert len(lines) == 21
    assert all(line.startswith(("  ok    ", "  MISSED")) and line.endswith(" KiB") for line in lines[1:])
