"""The script that measures how many mutants the tests notice, tried on a small package."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from mutation.line_map import LineMap, MeasuredTest
from mutation.mutants import MODULES, Outcome, report, sample
from mutation.mutations import find_mutations

ROOT = Path(__file__).parent.parent.parent
SCRIPT = Path(__file__).with_name("mutants.py")

PRICES = '''"""Prices."""

FREE_FROM = 100


def shipping(total: int, express: bool = False) -> int:
    if total >= FREE_FROM and not express:
        return 0
    return 5 + 1


def never_tested(total: int) -> bool:
    return total > 3
'''
TESTS = """
import pytest
from shop.prices import never_tested, shipping

def test_shipping():
    assert [shipping(99), shipping(100), shipping(100, True)] == [6, 0, 6]
    assert never_tested(1) in (True, False)

@pytest.mark.e2e
def test_a_little_more():
    assert never_tested(4)
"""


def changes(source: str) -> set[str]:
    return {str(each) for each in find_mutations(source)}


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("x = a < b", {"a < b  →  a <= b"}),
        ("x = a is None", {"a is None  →  a is not None"}),
        ("x = a + 1", {"a + 1  →  (a - 1)", "1  →  2"}),
        ("x = a and b", {"a and b  →  (a or b)"}),
        ("x = not a", {"not a  →  bool(a)"}),
        ("def f(a=None, b=True): pass", {"None  →  0", "True  →  False"}),
        ("def f():\n    return a", {"return a  →  return None"}),
        ("def f():\n    return False", {"False  →  True"}),
        ("stop()", {"stop()  →  pass"}),
        ("if a: b = c", {"a  →  not (a)"}),
        ("self.a = b", {"self.a = b  →  pass"}),
        ("raise a", {"raise a  →  pass"}),
    ],
)
def test_each_kind_of_code_is_changed_in_its_way(source: str, expected: set[str]) -> None:
    assert changes(source) == expected


@pytest.mark.parametrize(
    "source",
    [
        '"""Documentation."""',
        "a: int | None",
        "def f(a: 'list[int]') -> 'int | None': ...",
        "x = 'a' + b",
        "x = f'{a + 1}'",
        "@dataclass(slots=True)\nclass A: ...",
        "x = lru_cache(maxsize=10)(f)",
    ],
)
def test_what_no_test_can_notice_is_not_changed(source: str) -> None:
    assert changes(source) == set()


def test_a_change_is_made_in_its_place_whatever_characters_stand_before() -> None:
    source = "x = 'é→'; y = a < b  # ö\n"
    (mutation,) = find_mutations(source)
    assert mutation.apply(source) == "x = 'é→'; y = a <= b  # ö\n"


def test_the_same_seed_draws_the_same_mutants_and_as_many_of_each_module() -> None:
    assert all((ROOT / "src" / module).is_file() for module in MODULES)
    two = sorted(MODULES, key=lambda module: (ROOT / "src" / module).stat().st_size)[:2]  # finding them takes long
    drawn = sample(ROOT / "src", two, 24, seed=5)
    assert drawn == sample(ROOT / "src", two, 24, seed=5) != sample(ROOT / "src", two, 24, seed=6)
    assert sorted(each.file for each in drawn) == sorted(two * 12)


def test_a_line_that_runs_at_import_is_for_the_tests_of_its_file_and_the_fastest_come_first() -> None:
    tests = {name: MeasuredTest(name, seconds) for name, seconds in (("slow", 3.0), ("fast", 1.0), ("other", 2.0))}
    found = LineMap(tests, {"a.py": {2: {"slow", "fast"}, 3: {"slow"}}, "b.py": {1: {"other"}}})
    assert [test.name for test in found.tests_of("a.py", 3)] == ["slow"]
    assert [test.name for test in found.tests_of("a.py", 1)] == ["fast", "slow"]


def test_the_report_gives_shares_and_survivors() -> None:
    outcomes = [
        Outcome("a.py:1:0: x", "make test", "FAILED", 1.0),
        Outcome("a.py:2:0: y", "make test-all", "FAILED", 1.0),
        Outcome("b.py:3:0: z", None, "3 of 3 tests", 1.0),
        Outcome("b.py:4:0: z", "make test", "time limit", 1.0),
    ]
    assert report(outcomes).splitlines() == [
        " mutants  make test  test-all",
        "       2      50.0%    100.0%  a.py",
        "       2      50.0%     50.0%  b.py",
        "       4      50.0%     75.0%  all",
        "",
        "survivors: 1",
        "  b.py:3:0: z",
        "",
        "killed by make test-all only: 1",
        "  a.py:2:0: y",
    ]


@pytest.mark.e2e
def test_a_small_package_is_measured_and_a_second_run_goes_on_where_the_first_ended(tmp_path: Path) -> None:
    package, tests = tmp_path / "shop" / "src" / "shop", tmp_path / "shop" / "tests"
    (tests / "mutation").mkdir(parents=True)
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "prices.py").write_text(PRICES)
    (tests / "test_prices.py").write_text(TESTS)
    (tests / "mutation" / "line_map.py").write_text(SCRIPT.with_name("line_map.py").read_text())
    (tests.parent / "pytest.ini").write_text("[pytest]\nmarkers =\n    e2e\n")
    results = tmp_path / "results.jsonl"
    command = [sys.executable, str(SCRIPT), "--project", str(tests.parent), "--module", "shop/prices.py"]
    command += ["--results", str(results), "-n", "100", "--jobs", "2"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=200)
    assert done.returncode == 0, done.stderr
    outcomes = {key.split(": ", 1)[1]: by for key, by in _outcomes(results).items()}
    assert outcomes["total >= FREE_FROM  →  total > FREE_FROM"] == "make test"
    assert outcomes["return total > 3  →  return None"] == "make test"
    assert outcomes["3  →  4"] == "make test-all"
    assert outcomes["total > 3  →  total >= 3"] is None
    assert (package / "prices.py").read_text() == PRICES

    lines = results.read_text().splitlines()
    results.write_text("\n".join(lines[:-1]) + "\n")
    again = subprocess.run(command, capture_output=True, text=True, check=True, timeout=200)
    assert f"{len(lines)} mutants, {len(lines) - 1} of them tried before" in again.stdout
    assert _outcomes(results).keys() == {json.loads(line)["key"] for line in lines}


def _outcomes(results: Path) -> dict[str, str | None]:
    read = [json.loads(line) for line in results.read_text().splitlines()]
    return {each["key"]: each["killed_by"] for each in read}


def test_a_module_that_is_not_there_is_named(tmp_path: Path) -> None:
    command = [sys.executable, str(SCRIPT), "--module", "goldspan/nothing.py"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "there is no goldspan/nothing.py in" in done.stderr
