"""The benchmarks run; their figures are for `make bench` on a quiet machine."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"


def test_overhead_is_given_for_every_variant_as_a_ratio_to_bare_spans() -> None:
    done = subprocess.run(
        [sys.executable, BENCHMARKS / "overhead.py", "--rounds", "1"], capture_output=True, text=True, check=True
    )
    lines = [line.split(" us a span ") for line in done.stdout.splitlines()[1:]]
    ratios = {name.rsplit(maxsplit=1)[0].strip(): float(ratio) for name, ratio in lines}
    assert list(ratios) == ["bare spans", "@goldspan.trace", "bare spans, scored", "@goldspan.trace, scored"]
    assert ratios["bare spans"] == 1
