"""Measure `goldspan score --engine spark` beside `goldspan score --jobs 2`, and compare the evaluations row by row.

    .recipes/spark/bin/python benchmarks/spark_scale.py                  # payload B: 0.1 million spans
    .recipes/spark/bin/python benchmarks/spark_scale.py --spans 1000000 --keep /large/folder --check

Needs Java and an environment with the extra `spark`, such as that of `make recipes`; without it, the script says so.
Both read the same JSON lines. The time of Spark is that of a warm session: a small input was scored before. Both times
are elapsed time, without writing the evaluations.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import payloads
from scale import measured, spans_in_a_request, told, written

sys.path.remove(str(Path(__file__).parent))  # `profile.py` there would hide the standard module, which PySpark imports

MIN_SPEED = 0.7
"""The least speed of Spark in `local[2]`, relative to `--jobs 2`."""


def main() -> int:
    """Measure, compare, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--spans", type=int, default=100_000)
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--memory", default="2g", help="memory of Spark's driver")
    parser.add_argument("--keep", type=Path, help="write the inputs into this folder, and use those that are there")
    parser.add_argument("--check", action="store_true", help="end with 1 where the budget is missed")
    options = parser.parse_args()
    if importlib.util.find_spec("pyspark") is None:
        print("PySpark is not installed: make recipes, and .recipes/spark/bin/python benchmarks/spark_scale.py")
        return 0

    with tempfile.TemporaryDirectory() as temporary:
        folder = options.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        requests = max(1, options.spans // payloads.SPANS)
        lines, _ = written(folder, requests)
        warm, _ = written(folder, 2)
        spans = round(requests * spans_in_a_request())
        alone = measured(lines, spans, "--jobs", "2").elapsed_us
        spark = session(options.master, options.memory)
        try:
            digest_of_frame(score_file(spark, warm))
            began = time.perf_counter()
            score_file(spark, lines).write.format("noop").mode("overwrite").save()
            with_spark = (time.perf_counter() - began) / spans * 1e6
            found = digest_of_frame(score_file(spark, lines))
        finally:
            spark.stop()
        wanted = digest_of_command(lines)
    print(f"{spans} spans, {os.cpu_count()} cores")
    print(f"  goldspan score --jobs 2   {alone:7.1f} us elapsed a span")
    print(f"  Spark {options.master:20}{with_spark:7.1f} us elapsed a span")
    kept = told(alone / with_spark >= MIN_SPEED, f"{alone / with_spark:.2f} times the speed, at least {MIN_SPEED}")
    kept &= told(found == wanted, f"{wanted.total()} evaluations, all equal")
    return 1 if options.check and not kept else 0


def session(master: str, memory: str) -> Any:
    """Return a session of Spark that runs this Python."""
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master(master).config("spark.driver.memory", memory)
    spark = builder.config("spark.ui.enabled", "false").config("spark.ui.showConsoleProgress", "false").getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    return spark


def score_file(spark: Any, lines: Path) -> Any:
    """Return the evaluations of the runs in a file as a data frame."""
    from goldspan.spark import score

    return score(spark.read.text(str(lines)), None)


def digest_of_frame(evaluations: Any) -> Counter[str]:
    """Return the digests of the evaluations."""
    return digests(row.document for row in evaluations.select("document").toLocalIterator())


def digest_of_command(lines: Path) -> Counter[str]:
    """Return the digests of the evaluations that `goldspan score` prints."""
    command = [sys.executable, "-m", "goldspan", "score", str(lines), "--json", "--jobs", "2"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        return digests(line.rstrip("\n") for line in process.stdout)


def digests(documents: Iterable[str]) -> Counter[str]:
    """Return how often each document is there."""
    return Counter(hashlib.sha256(document.encode()).hexdigest() for document in documents)


if __name__ == "__main__":
    sys.exit(main())
