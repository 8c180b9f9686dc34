"""Measures how many small changes of the code (mutants) the tests notice, for those who maintain the tests.

A mutant is noticed (killed) when a test fails or hangs. Each mutant gets the tests that run its line, fastest first, up
to the first failure. A mutant that survives the tests of `make test` gets those that only `make test-all` runs. The
working tree is not changed: everything happens in copies of the project.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import venv
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path
from queue import Queue

sys.path.insert(0, str(Path(__file__).parent.parent))

from mutation.line_map import FOLDER, LineMap, MeasuredTest
from mutation.mutations import Mutation, find_mutations

ROOT = Path(__file__).parent.parent.parent
MODULES = (
    "goldspan/extraction/segmentation/boundaries.py",
    "goldspan/extraction/reconciliation/call_registry.py",
    "goldspan/goldens/lookup/golden_lookup.py",
    "goldspan/scoring/run_comparison.py",
    "goldspan/scoring/verdict.py",
    "goldspan/scoring/matching/best_match.py",
    "goldspan/online/assembly.py",
    "goldspan/gateway/journal/journal.py",
    "goldspan/store/sqlite.py",
    "goldspan/sinks/redaction.py",
    "goldspan/capture/processor.py",
    "goldspan/judge/judge_session.py",
)
_WITHOUT_PLUGIN = ["-p", "no:goldspan"]
"""pytest would load the plugin of the installed goldspan, which the examined project need not contain."""
IGNORED = (
    ".git",
    ".venv",
    ".recipes",
    ".hypothesis",
    "__pycache__",
    ".mypy_cache",
    ".ruff_cache",
    ".coverage*",
    ".demo",
)
EXAMPLES = """examples:
  mutants.py                              300 mutants of twelve central modules; go on where an earlier run ended
  mutants.py -n 24 --fresh                two mutants of each module, forgetting earlier results
  mutants.py --module goldspan/scoring/verdict.py -n 50
  mutants.py --report                     show the results so far
  nice -n 19 mutants.py --jobs 2          leave the machine to others

exit status: 0 when all mutants were tried, 2 when the tests fail without any mutant
"""


@dataclass(frozen=True)
class Mutant:
    """A mutation of a module, which is named by its path below `src`."""

    file: str
    mutation: Mutation

    @property
    def key(self) -> str:
        """What names this mutant in the results; another once the text around it has changed."""
        return f"{self.file}:{self.mutation.line}:{self.mutation.start}: {self.mutation}"


@dataclass(frozen=True)
class Outcome:
    """What became of a mutant, as it is kept in the results."""

    key: str
    killed_by: str | None
    """`make test`, `make test-all`, or None for one that survived."""
    how: str
    """The first test that failed, `time limit`, or the number of tests that ran without noticing."""
    seconds: float


class TestsFailError(Exception):
    """The tests fail without any mutant, so that nothing can be measured."""


class Workspace:
    """A copy of the project with a Python environment in which goldspan is imported from this copy."""

    def __init__(self, folder: Path, project: Path) -> None:
        self.folder = folder / "project"
        shutil.copytree(project, self.folder, ignore=shutil.ignore_patterns(*IGNORED), symlinks=True)
        self.python = folder / "environment" / "bin" / "python"
        venv.create(folder / "environment", with_pip=False)
        (site,) = (folder / "environment").glob("lib/python*/site-packages")
        paths = [path for path in sys.path if path.endswith(("site-packages", "dist-packages"))]
        measure = "import os; 'COVERAGE_PROCESS_CONFIG' in os.environ and __import__('coverage').process_startup()"
        site.joinpath("mutants.pth").write_text("\n".join([str(self.folder / "src"), *paths, measure]) + "\n")
        for script in Path(sys.executable).parent.iterdir():
            if script.is_file() and not script.name.startswith(("python", "activate")):
                self._copy_script(script)
        self.environment = {
            **{name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"},
            "PYTHONPATH": str(self.folder / "tests"),
            "PATH": f"{self.python.parent}:{os.environ['PATH']}",
            "CI": "true",  # examples of laws are not drawn by chance, so that a result can be had again
        }

    def _copy_script(self, script: Path) -> None:
        """Copy a program such as `goldspan`, to be run by the Python of this environment."""
        first, _, rest = script.read_bytes().partition(b"\n")
        if first.startswith(b"#!") and b"python" in first:
            copied = self.python.with_name(script.name)
            copied.write_bytes(b"#!" + str(self.python).encode() + b"\n" + rest)
            copied.chmod(0o755)

    @contextlib.contextmanager
    def changed(self, mutant: Mutant) -> Iterator[None]:
        """Hold the mutant in the copy. Its own time of change keeps Python from using what it compiled before."""
        path = self.folder / "src" / mutant.file
        source, stat = path.read_text(encoding="utf-8"), path.stat()
        path.write_text(mutant.mutation.apply(source), encoding="utf-8")
        os.utime(path, (time.time(), stat.st_mtime + 10))
        try:
            yield
        finally:
            path.write_text(source, encoding="utf-8")
            os.utime(path, (stat.st_atime, stat.st_mtime))

    def pytest(self, arguments: Sequence[str], seconds: float | None = None, **variables: str) -> tuple[int, str]:
        """Run pytest; the status is -1 when it did not end in time. All programs that it started are ended with it."""
        command = [str(self.python), *arguments]
        with tempfile.TemporaryFile() as output:
            process = subprocess.Popen(
                command,
                cwd=self.folder,
                env={**self.environment, **variables},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                status = process.wait(seconds)
            except subprocess.TimeoutExpired:
                status = -1
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            output.seek(0)
            return status, output.read().decode(errors="replace")

    def try_tests(self, tests: Sequence[MeasuredTest], profile: str) -> str | None:
        """Run tests until one fails; how the first one failed, or None when all passed."""
        if not tests:
            return None
        chosen = self.folder / "chosen-tests.txt"
        chosen.write_text("\n".join(test.name for test in tests), encoding="utf-8")
        options = ["-x", "-q", "--tb=no", "-p", "no:cacheprovider", "-p", "no:xdist", *_WITHOUT_PLUGIN]
        options += ["--hypothesis-profile", profile]
        limit = 60 + 5 * sum(test.seconds for test in tests) * (10 if profile == "ci" else 1)
        status, output = self.pytest(["-m", "pytest", *options, f"@{chosen}"], limit, PYTHONDONTWRITEBYTECODE="1")
        if status == 0:
            return None
        if status == -1:
            return "time limit"
        if status == 5:
            raise TestsFailError(f"none of these tests was found: {output}")
        failed = [line for line in output.splitlines() if line.startswith(("FAILED", "ERROR", "E  "))]
        return failed[0] if failed else f"pytest ended with {status}"


def make_map(workspace: Workspace, files: Iterable[str], jobs: int, suite: Sequence[str]) -> LineMap:
    """Run the whole suite once, and see which test runs which line of these files."""
    times = workspace.folder / "times"
    times.mkdir()
    src = workspace.folder / "src"
    options = ["branch = false", "parallel = true", "concurrency = thread", "patch = subprocess, _exit"]
    include = ",".join(str(src / file) for file in files)
    settings = workspace.folder / "mutants.coveragerc"
    settings.write_text("\n".join(["[run]", *options, f"data_file = {times / 'lines'}", f"include = {include}"]))
    coverage = ["-m", "coverage", "run", f"--rcfile={settings}"]
    tests = ["-m", "pytest", "-q", "--tb=short", "-n", str(jobs), "--dist", "loadfile", "-p", "mutation.line_map"]
    tests += _WITHOUT_PLUGIN
    status, output = workspace.pytest(
        [*coverage, *tests, "--hypothesis-profile", "default", *suite], **{FOLDER: str(times)}
    )
    if status != 0:
        raise TestsFailError(output[-4000:])
    combine = [str(workspace.python), "-m", "coverage", "combine", "-q", f"--rcfile={settings}"]
    subprocess.run(combine, cwd=workspace.folder, check=True)
    return LineMap.read(times, times / "lines", src)


def sample(source: Path, files: Sequence[str], number: int, seed: int) -> list[Mutant]:
    """Draw about as many mutants from each file; the same ones for the same code and seed."""
    chance = random.Random(seed)
    drawn: list[Mutant] = []
    for place, file in enumerate(files):
        found = find_mutations((source / file).read_text(encoding="utf-8"))
        wanted = number // len(files) + (place < number % len(files))
        drawn += [Mutant(file, each) for each in chance.sample(found, min(wanted, len(found)))]
    chance.shuffle(drawn)  # whatever was tried when a run is interrupted is a sample of all files
    return drawn


def try_mutant(workspace: Workspace, mutant: Mutant, line_map: LineMap, most_seconds: float) -> Outcome:
    """Run the tests of `make test` that can notice a mutant, and for a survivor those of `make test-all`."""
    began = time.monotonic()
    tests = line_map.tests_of(mutant.file, mutant.mutation.line)
    at_desk = _within([test for test in tests if not test.is_e2e], most_seconds)
    all_others = _within([test for test in tests if test.is_e2e or test.is_law], most_seconds)
    with workspace.changed(mutant):
        for suite, profile, chosen in (("make test", "default", at_desk), ("make test-all", "ci", all_others)):
            if how := workspace.try_tests(chosen, profile):
                return Outcome(mutant.key, suite, how, time.monotonic() - began)
    ran = f"{len(at_desk) + len(all_others)} of {len(tests)} tests"
    return Outcome(mutant.key, None, ran, time.monotonic() - began)


def _within(tests: Iterable[MeasuredTest], seconds: float) -> list[MeasuredTest]:
    """The first tests that together take so long."""
    chosen: list[MeasuredTest] = []
    for test in tests:
        seconds -= test.seconds
        if seconds < 0 and chosen:
            break
        chosen.append(test)
    return chosen


class Results:
    """A file with one outcome in each line, which a later run goes on with."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        self.outcomes = {each.key: each for each in (Outcome(**json.loads(line)) for line in lines)}

    def add(self, outcome: Outcome) -> None:
        """Keep an outcome at once: the run may be interrupted."""
        with self._lock, self._path.open("a", encoding="utf-8") as out:
            self.outcomes[outcome.key] = outcome
            out.write(json.dumps(asdict(outcome), ensure_ascii=False) + "\n")


def report(outcomes: Sequence[Outcome]) -> str:
    """The killed shares of both suites, by file, and the survivors."""
    if not outcomes:
        return "no mutant was tried yet"
    killed: Counter[tuple[str, str | None]] = Counter((each.key.split(":")[0], each.killed_by) for each in outcomes)
    lines = [f"{'mutants':>8}{'make test':>11}{'test-all':>10}"]
    for file in [*sorted({file for file, _ in killed}), ""]:
        counts = Counter({by: n for (name, by), n in killed.items() if name == file}) if file else None
        if counts is None:
            counts = Counter(each.killed_by for each in outcomes)
        fast, both, total = counts["make test"], counts.total() - counts[None], counts.total()
        lines.append(f"{total:8}{fast / total:11.1%}{both / total:10.1%}  {file or 'all'}")
    survivors = sorted(each.key for each in outcomes if each.killed_by is None)
    only_all = sorted(each.key for each in outcomes if each.killed_by == "make test-all")
    for title, keys in (("survivors", survivors), ("killed by make test-all only", only_all)):
        lines += ["", f"{title}: {len(keys)}", *(f"  {key}" for key in keys)]
    return "\n".join(lines)


def run(options: argparse.Namespace, results: Results) -> None:
    """Try the mutants that were not tried yet, several at once."""
    mutants = sample(options.project / "src", options.module, options.number, options.seed)
    left = [mutant for mutant in mutants if mutant.key not in results.outcomes]
    print(f"{len(mutants)} mutants, {len(mutants) - len(left)} of them tried before", flush=True)
    if left:
        with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
            _try_all(Path(folder), left, options, results)
    print(report([results.outcomes[mutant.key] for mutant in mutants]))


def _try_all(folder: Path, mutants: Sequence[Mutant], options: argparse.Namespace, results: Results) -> None:
    first = Workspace(folder / "0", options.project)
    print("running all tests once, to see which line each of them runs", flush=True)
    line_map = make_map(first, options.module, options.jobs, options.tests)
    print(
        f"{len(line_map.tests)} test functions take {sum(t.seconds for t in line_map.tests.values()):.0f} s", flush=True
    )
    free: Queue[Workspace] = Queue()
    for number in range(options.jobs):
        free.put(first if number == 0 else Workspace(folder / str(number), options.project))

    def try_one(mutant: Mutant) -> Outcome:
        workspace = free.get()
        try:
            return try_mutant(workspace, mutant, line_map, options.most_seconds)
        finally:
            free.put(workspace)

    with ThreadPoolExecutor(options.jobs) as pool:
        tries = {pool.submit(try_one, mutant): mutant for mutant in mutants}
        try:
            for number, done in enumerate(as_completed(tries), 1):
                outcome = done.result()
                results.add(outcome)
                what = f"killed by {outcome.killed_by}" if outcome.killed_by else "SURVIVED"
                print(f"{number}/{len(mutants)} {what} in {outcome.seconds:.0f} s  {outcome.key}", flush=True)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        prog="mutants.py", description=__doc__, epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("-n", "--number", type=int, default=300, help="how many mutants (300)")
    parser.add_argument("--seed", type=int, default=1, help="draws other mutants (1)")
    parser.add_argument("--module", action="append", help="a module below src, repeatable (twelve central ones)")
    parser.add_argument("--jobs", type=int, default=2, help="mutants that are tried at once (2)")
    parser.add_argument("--most-seconds", type=float, default=60, help="of tests for a mutant and a suite (60)")
    parser.add_argument("--results", type=Path, default=ROOT / ".mutants.jsonl", help="where outcomes are kept")
    parser.add_argument("--fresh", action="store_true", help="forget the outcomes of earlier runs")
    parser.add_argument("--report", action="store_true", help="show the outcomes so far and try nothing")
    parser.add_argument("--project", type=Path, default=ROOT, help="the project, with src and tests (this one)")
    parser.add_argument("tests", nargs="*", help="files of tests (all)")
    options = parser.parse_args(arguments)
    options.module = options.module or MODULES
    if missing := [file for file in options.module if not (options.project / "src" / file).is_file()]:
        parser.error(f"there is no {missing[0]} in {options.project / 'src'}")
    if options.fresh:
        options.results.unlink(missing_ok=True)
    results = Results(options.results)
    try:
        if options.report:
            print(report(list(results.outcomes.values())))
        else:
            run(options, results)
    except TestsFailError as error:
        print(f"The tests fail without any mutant:\n{error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("Interrupted; the next run goes on from here.", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
