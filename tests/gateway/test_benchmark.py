"""Tests that the benchmark of the gateway runs; it does not check the figures."""

from __future__ import annotations

import subprocess
import sys

import pytest

from support.docs_examples import ROOT

BENCHMARK = ROOT / "benchmarks" / "gateway.py"


@pytest.mark.e2e
@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux")
def test_the_benchmark_prints_the_cost_of_a_span_beside_parsing_and_the_budget() -> None:
    done = subprocess.run(
        [sys.executable, BENCHMARK, "--rounds", "1", "--spans", "512", "--sustained", "0", "--payload", "A"],
        capture_output=True,
        text=True,
        check=True,
    )
    lines = done.stdout.splitlines()
    assert [line for line in lines if "MISSED goldspan scored" in line] == []
    measured = [line.split()[0] for line in lines if " us a span" in line]
    assert measured == ["parse", "goldspan"] * 2, done.stdout
    assert len([line for line in lines if line.startswith(("  ok    ", "  MISSED"))]) == 1
