"""What goldspan costs before it does anything: time to import, modules loaded, packages installed.

`--check` ends with 1 where a budget is missed.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
from importlib import metadata

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

IMPORT_BUDGET_MS = 40.0
"""What `import goldspan` may add to importing OpenTelemetry's exporter interface."""
PACKAGES_BUDGET = 38
"""How many packages a core install may have, goldspan among them."""
NOT_AT_IMPORT = (
    "pydantic", "google.protobuf", "grpc", "typer", "rich", "starlette", "fastapi", "uvicorn", "jinja2", "yaml",
    "rapidfuzz",
)  # fmt: skip

BASE = "import opentelemetry.sdk.trace.export"
STEPS = {
    "import goldspan": "import goldspan",
    "... and goldspan.trace": "import goldspan; goldspan.trace",
    "... and goldspan.ScoringProcessor": "import goldspan; goldspan.trace; goldspan.ScoringProcessor",
}
"""What is timed after `BASE`. The first is under the budget; the others tell what first use costs."""


def main() -> int:
    """Measure, print, and compare with the budgets."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="end with 1 where a budget is missed")
    parser.add_argument("--rounds", type=int, default=15, help="fresh processes for each figure")
    options = parser.parse_args()

    base, added = import_times(options.rounds)
    loaded = loaded_by("import goldspan")
    packages = core_packages()
    imported = added["import goldspan"]

    print(f"medians of {options.rounds} fresh processes, Python {sys.version.split()[0]}")
    print(f"  {BASE:<40} {base:6.1f} ms")
    for step, milliseconds in added.items():
        print(f"  {step:<40} {milliseconds:+6.1f} ms")
    results = [
        _judged(f"import goldspan adds {imported:.1f} ms, at most {IMPORT_BUDGET_MS:g}", imported <= IMPORT_BUDGET_MS),
        _judged(f"it loads {', '.join(loaded) or 'none'} of {', '.join(NOT_AT_IMPORT)}", not loaded),
        _judged(
            f"a core install has {len(packages)} packages, at most {PACKAGES_BUDGET}", len(packages) <= PACKAGES_BUDGET
        ),
    ]
    return 1 if options.check and not all(results) else 0


def import_times(rounds: int) -> tuple[float, dict[str, float]]:
    """The median time to import the base, and what each step adds to it, in milliseconds.

    The steps take turns, so that a busy moment of the machine meets all of them alike.
    """
    base: list[float] = []
    added: dict[str, list[float]] = {step: [] for step in STEPS}
    for code in STEPS.values():
        _timed(code)  # writes the byte code, so that no round compiles
    for _ in range(rounds):
        for step, code in STEPS.items():
            before, after = _timed(code)
            base.append(before)
            added[step].append(after)
    return statistics.median(base), {step: statistics.median(times) for step, times in added.items()}


def loaded_by(code: str) -> list[str]:
    """Which of the modules that must wait are loaded once that code has run."""
    loaded = _fresh(f"{code}; import sys; print(*sys.modules)").split()
    return [name for name in NOT_AT_IMPORT if name in loaded]


def core_packages() -> set[str]:
    """The packages that `pip install goldspan` brings, without extras, as they are installed here."""
    found: set[str] = set()
    waiting = [Requirement("goldspan")]
    seen: set[tuple[str, frozenset[str]]] = set()
    while waiting:
        wanted = waiting.pop()
        key = canonicalize_name(wanted.name), frozenset(wanted.extras)
        if key in seen:
            continue
        seen.add(key)
        found.add(key[0])
        for text in metadata.requires(wanted.name) or ():
            requirement = Requirement(text)
            extras = wanted.extras or {""}
            if requirement.marker is None or any(requirement.marker.evaluate({"extra": extra}) for extra in extras):
                waiting.append(requirement)
    return found


def _timed(code: str) -> tuple[float, float]:
    """Run `BASE` and then the code in a fresh process: both times, in milliseconds."""
    printed = _fresh(
        f"import time; a = time.perf_counter(); {BASE}; b = time.perf_counter(); {code}; c = time.perf_counter(); "
        "print((b - a) * 1e3, (c - b) * 1e3)"
    )
    before, after = map(float, printed.split())
    return before, after


def _fresh(code: str) -> str:
    # Where byte code may not be written, each process would compile all of it anew, as no installation does.
    surroundings = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    run = [sys.executable, "-c", code]
    return subprocess.run(run, check=True, stdout=subprocess.PIPE, encoding="utf-8", env=surroundings).stdout


def _judged(sentence: str, good: bool) -> bool:
    print(f"  {'ok    ' if good else 'MISSED'} {sentence}")
    return good


if __name__ == "__main__":
    sys.exit(main())
