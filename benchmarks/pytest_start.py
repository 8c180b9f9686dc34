"""Measure what the pytest plugin costs a project that has goldspan installed and does not use it.

    python benchmarks/pytest_start.py              # the figures
    python benchmarks/pytest_start.py --rounds 61  # more rounds

Two environments have pytest and the same packages; one of them has goldspan too. The processor time of `pytest
--collect-only` is measured in turns. A further line gives the time in which pytest reads the list of files of the
distribution, which it does for every distribution that has a plugin.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).parent.parent
BUDGET_MS = 3.0
"""What the plugin may add to `pytest --collect-only`."""
READ_FILES = """
import statistics, time
from importlib.metadata import distribution
times = []
for _ in range(21):
    started = time.process_time()
    [str(file) for file in distribution("goldspan").files]
    times.append(time.process_time() - started)
print(statistics.median(times) * 1e3)
"""
"""What pytest does in `Config._mark_plugins_for_rewrite`."""


def main() -> int:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=41)
    parser.add_argument("--check", action="store_true", help="end with 1 where the budget is missed")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="goldspan-") as name:
        folder = Path(name)
        (folder / "test_one.py").write_text("def test_one(): pass\n")
        without, with_plugin = (_environment(folder / each) for each in ("without", "with"))
        _run(without, "-m", "pip", "uninstall", "--quiet", "--yes", "goldspan")
        times: dict[Path, list[float]] = {without: [], with_plugin: []}
        for number in range(options.rounds + 1):
            for python in (without, with_plugin) if number % 2 else (with_plugin, without):
                times[python].append(_collect(python, folder))
        pairs = list(zip(times[without], times[with_plugin], strict=True))[1:]  # the first round compiles
        added = statistics.median(after - before for before, after in pairs)
        read = float(_run(with_plugin, "-c", READ_FILES))
    print(f"medians of {options.rounds} interleaved rounds, Python {sys.version.split()[0]}")
    print(f"  pytest --collect-only takes {statistics.median(before for before, _ in pairs):.0f} ms")
    is_met = added <= BUDGET_MS
    print(f"  {'ok    ' if is_met else 'MISSED'} the unused plugin adds {added:.1f} ms, at most {BUDGET_MS:g}")
    print(f"         of which reading the list of files {read:.1f} ms")
    return 1 if options.check and not is_met else 0


def _environment(folder: Path) -> Path:
    venv.create(folder, with_pip=True)
    python = folder / ("Scripts" if os.name == "nt" else "bin") / "python"
    _run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "pytest", str(ROOT))
    return python


def _collect(python: Path, folder: Path) -> float:
    """Collect the test: the processor time of the process, in milliseconds."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    _run(
        python,
        "-m",
        "pytest",
        "--collect-only",
        "-q",
        "-p",
        "no:cacheprovider",
        "--rootdir",
        str(folder),
        str(folder / "test_one.py"),
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime) * 1e3


def _run(python: Path, *arguments: str) -> str:
    # Without byte code files, each process would compile all modules.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    run = [str(python), *arguments]
    return subprocess.run(run, check=True, stdout=subprocess.PIPE, encoding="utf-8", env=environment).stdout


if __name__ == "__main__":
    sys.exit(main())
