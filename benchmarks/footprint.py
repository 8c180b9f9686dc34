"""What goldspan costs before it does anything: time to import and to start, modules loaded, packages installed.

`--check` ends with 1 where a budget is missed.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
from importlib import metadata
from pathlib import Path

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

HELP_BUDGET = 1.6
"""How many times the processor time of typer's own help `goldspan --help` may take."""
SCORE_BUDGET = 4.0
"""How many times that time `goldspan score` may take on the example in the README."""
NOT_FOR_HELP = (
    "pydantic", "google.protobuf", "grpc", "opentelemetry", "starlette", "jinja2", "yaml", "rapidfuzz", "sqlite3",
    "importlib.metadata", "goldspan.extraction", "goldspan.goldens", "goldspan.scoring", "goldspan.store",
    "goldspan.otlp", "goldspan.sinks", "goldspan.web", "goldspan.gateway",
)  # fmt: skip
"""What no command imports to show its help."""
EXAMPLES = Path(__file__).parent.parent / "examples"
TYPER_HELP = """
import sys, typer
app = typer.Typer(add_completion=False, rich_markup_mode="rich")
for name in ("demo", "score", "extract", "export", "serve", "view", "report", "watch"):
    app.command(name, help=f"Help of {name}.")(lambda: None)
sys.argv = ["typer", "--help"]
app()
"""
"""The floor of the times of commands: a program that shows its help, as typer and rich format it, and does no more."""
COMMANDS = {
    "goldspan --help": ("--help",),
    "goldspan score --help": ("score", "--help"),
    "goldspan score, the example": (
        "score", str(EXAMPLES / "traces.jsonl"), "--goldens", str(EXAMPLES / "goldens.yaml"),
    ),
}  # fmt: skip

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
    floor, ratios = command_times(options.rounds)

    print(f"medians of {options.rounds} fresh processes, Python {sys.version.split()[0]}")
    print(f"  {BASE:<40} {base:6.1f} ms")
    for step, milliseconds in added.items():
        print(f"  {step:<40} {milliseconds:+6.1f} ms")
    print(f"  {'processor time of typer showing a help':<40} {floor:6.1f} ms")
    for command, ratio in ratios.items():
        print(f"  {command:<40} {ratio * floor:6.1f} ms, {ratio:.2f} times that")
    helped, scored = ratios["goldspan --help"], ratios["goldspan score, the example"]
    for_help = loaded_by_command("--help")
    results = [
        _judged(f"goldspan --help takes {helped:.2f} times typer's, at most {HELP_BUDGET:g}", helped <= HELP_BUDGET),
        _judged(f"it loads {', '.join(for_help) or 'none'} of {', '.join(NOT_FOR_HELP)}", not for_help),
        _judged(f"goldspan score takes {scored:.2f} times that, at most {SCORE_BUDGET:g}", scored <= SCORE_BUDGET),
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


def command_times(rounds: int) -> tuple[float, dict[str, float]]:
    """The median processor time of `TYPER_HELP` in milliseconds, and the median ratio of each command to it.

    A ratio is that of two processes that run one after the other. The time of the processor does not grow while the
    machine is busy with something else, unlike the time on the clock.
    """
    floors: list[float] = []
    ratios: dict[str, list[float]] = {command: [] for command in COMMANDS}
    for round_number in range(rounds + 1):
        for command, arguments in COMMANDS.items():
            floor = _processor_time("-c", TYPER_HELP)
            taken = _processor_time("-m", "goldspan", *arguments)
            if round_number:  # the first round writes the byte code
                floors.append(floor)
                ratios[command].append(taken / floor)
    return statistics.median(floors), {command: statistics.median(values) for command, values in ratios.items()}


def loaded_by(code: str) -> list[str]:
    """Which of the modules that must wait are loaded once that code has run."""
    loaded = _fresh(f"{code}; import sys; print(*sys.modules)").split()
    return [name for name in NOT_AT_IMPORT if name in loaded]


def loaded_by_command(*arguments: str) -> list[str]:
    """Which of the modules in `NOT_FOR_HELP` a command has loaded when it ends."""
    code = (
        f"import sys, atexit; atexit.register(lambda: print(*sys.modules)); sys.argv[1:] = {arguments!r}; "
        "from goldspan.cli import main; main()"
    )
    loaded = _fresh(code).splitlines()[-1].split()
    return [name for name in NOT_FOR_HELP if name in loaded]


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


def _processor_time(*arguments: str) -> float:
    """Run Python with these arguments: the processor time that the process takes, in milliseconds."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL, env=_environment())
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime) * 1e3


def _fresh(code: str) -> str:
    run = [sys.executable, "-c", code]
    return subprocess.run(run, check=True, stdout=subprocess.PIPE, encoding="utf-8", env=_environment()).stdout


def _environment() -> dict[str, str]:
    # Without byte code files, each process would compile all modules, unlike an installation. Coverage measurement
    # would import further modules.
    ignored = ("PYTHONDONTWRITEBYTECODE", "COVERAGE_PROCESS_START", "COVERAGE_PROCESS_CONFIG")
    return {name: value for name, value in os.environ.items() if name not in ignored}


def _judged(sentence: str, good: bool) -> bool:
    print(f"  {'ok    ' if good else 'MISSED'} {sentence}")
    return good


if __name__ == "__main__":
    sys.exit(main())
