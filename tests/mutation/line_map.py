"""A pytest plugin and its reader: which tests run which lines, and how long each test takes.

The plugin names the running test as coverage's context, in this process and in the programs that the test starts.
"""

from __future__ import annotations

import base64
import json
import os
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

FOLDER = "MUTATION_TIMES"
"""The environment variable that names the folder for the times that the plugin measures."""


@dataclass
class MeasuredTest:
    """A test function with all of its parameters."""

    name: str
    seconds: float = 0.0
    is_e2e: bool = False
    is_law: bool = False


@dataclass
class LineMap:
    """The tests by the lines that they run."""

    tests: dict[str, MeasuredTest] = field(default_factory=dict)
    by_line: dict[str, dict[int, set[str]]] = field(default_factory=dict)

    def tests_of(self, file: str, line: int) -> list[MeasuredTest]:
        """The tests that run a line, fastest first; of a line that runs at import, those that run any of the file."""
        lines = self.by_line.get(file, {})
        names: Iterable[str] = lines.get(line) or {name for each in lines.values() for name in each}
        return sorted((self.tests[name] for name in names if name in self.tests), key=lambda test: test.seconds)

    @classmethod
    def read(cls, times: Path, data_file: Path, src: Path) -> LineMap:
        """Read what the plugin and coverage wrote."""
        from coverage import CoverageData

        result = cls()
        for path in times.glob("*.jsonl"):
            for line in path.read_text(encoding="utf-8").splitlines():
                name, seconds, is_e2e, is_law = json.loads(line)
                test = result.tests.setdefault(name, MeasuredTest(name, 0.0, is_e2e, is_law))
                test.seconds += seconds
        data = CoverageData(str(data_file))
        data.read()
        for measured in data.measured_files():
            if not Path(measured).is_relative_to(src):
                continue
            lines: dict[int, set[str]] = defaultdict(set)
            for number, contexts in data.contexts_by_lineno(measured).items():
                lines[number] |= {context for context in contexts if context}
            result.by_line[Path(measured).relative_to(src).as_posix()] = lines
        return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[Any]:
    """Name the test for coverage before it runs, and keep its time."""
    from coverage import Coverage

    name = item.nodeid.split("[")[0]
    if (coverage := Coverage.current()) is not None:
        coverage.switch_context(name)
    with pytest.MonkeyPatch.context() as patch:
        if config := os.environ.get("COVERAGE_PROCESS_CONFIG"):
            patch.setenv("COVERAGE_PROCESS_CONFIG", _with_context(config, name))
        began = time.perf_counter()
        try:
            return (yield)
        finally:
            marks = (item.get_closest_marker(name) is not None for name in ("e2e", "hypothesis"))
            with (Path(os.environ[FOLDER]) / f"{os.getpid()}.jsonl").open("a", encoding="utf-8") as out:
                out.write(json.dumps([name, time.perf_counter() - began, *marks]) + "\n")


def _with_context(config: str, context: str) -> str:
    """The configuration that coverage hands to programs, with the name of the test for what they run."""
    settings = json.loads(base64.b64decode(config))
    return base64.b64encode(json.dumps({**settings, "context": context, "dynamic_context": None}).encode()).decode()
