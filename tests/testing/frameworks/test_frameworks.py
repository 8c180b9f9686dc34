"""The pytest plugin tests agents of real frameworks, together with the plugins for asyncio, timeouts and processes."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from xml.etree import ElementTree

import pytest

from goldspan import read_results
from goldspan.testing.results import AgentResults, CaseResult
from recipes.environments import is_built, python_of

AGENTS = Path(__file__).with_name("agents")
FRAMEWORKS = ["pydantic_ai", "openai_agents", "langgraph"]
PROJECT = {
    "pytest.ini": """
[pytest]
asyncio_default_fixture_loop_scope = function
timeout_func_only = true
""",
    "goldens.yaml": """
goldens:
  - id: book
    input: Find a hotel in Paris and book it.
    tools: [search_hotels, {name: book_hotel, arguments: {hotel: Paris Inn}}]
  - {id: cancel, input: Cancel my booking., tools: [search_hotels, cancel_booking]}
  - {id: unsteady, input: Book the second time., tools: [search_hotels, book_hotel]}
  - {id: broken, input: Raise an error., tools: [search_hotels]}
""",
    "slow.yaml": "goldens: [{id: slow, input: Hang., tools: [search_hotels]}]",
    "test_agent.py": """
import pytest
from app import answer, answer_async


@pytest.mark.goldens("goldens.yaml")
def test_agent(golden_case):
    answer(golden_case.input)


@pytest.mark.asyncio
@pytest.mark.goldens("goldens.yaml")
async def test_agent_async(golden_case):
    await answer_async(golden_case.input)


@pytest.mark.timeout(1)
@pytest.mark.goldens("slow.yaml")
def test_slow(golden_case):
    answer(golden_case.input)


@pytest.mark.timeout(1)
@pytest.mark.asyncio
@pytest.mark.goldens("slow.yaml")
async def test_slow_async(golden_case):
    await answer_async(golden_case.input)
""",
}
"""A project as a user writes it, with the agent of a framework in app.py."""

DYING_TEST = """
import os
import goldspan
import pytest


@goldspan.trace
def search_hotels(): pass


@goldspan.trace
def book_hotel(hotel): pass


@pytest.mark.goldens("goldens.yaml")
def test_dying(golden_case):
    if golden_case.golden.id == "cancel":
        os._exit(1)
    search_hotels()
    book_hotel("Paris Inn")
"""

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="pytest-timeout needs SIGALRM to continue after a test hangs"),
]


@dataclass(frozen=True)
class Session:
    """A session of pytest in the environment of a framework."""

    folder: Path
    status: int
    output: str

    @cached_property
    def results(self) -> AgentResults:
        return read_results(self.folder / "report" / "results.jsonl")

    def cases_of(self, golden: str) -> list[CaseResult]:
        return [case for case in self.results.cases if case.golden_id == golden]


def run_pytest(framework: str, folder: Path, *options: str) -> Session:
    """Test the agent of a framework as a user does."""
    if not is_built(framework):
        pytest.skip(f"{framework} needs its environment: make recipes")
    folder.mkdir(exist_ok=True)
    shutil.copy(AGENTS / "script.py", folder)
    shutil.copy(AGENTS / f"{framework}_agent.py", folder / "app.py")
    for name, text in PROJECT.items():
        (folder / name).write_text(text.lstrip())
    environment = {name: value for name, value in os.environ.items() if name != "GOLDSPAN_STRICT"}
    command = [python_of(framework), "-m", "pytest", "-p", "no:cacheprovider", "--goldspan-report=report", *options]
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, encoding="utf-8", check=False, timeout=200
    )
    return Session(folder, done.returncode, done.stdout + done.stderr)


@pytest.fixture(scope="module", params=FRAMEWORKS)
def session(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Session:
    """Two processes run a test and an async test of each golden, and repeat each failure once."""
    folder = tmp_path_factory.mktemp(request.param)
    return run_pytest(request.param, folder, "-n2", "--reruns=1", "--junitxml=junit.xml")


def test_two_processes_run_tests_and_async_tests_and_lose_no_case(session: Session) -> None:
    assert session.status == pytest.ExitCode.TESTS_FAILED, session.output
    assert re.search(r"^=+ 6 failed, 4 passed, .*8 rerun in", session.output, re.MULTILINE), session.output
    assert sorted((case.golden_id, case.trial, case.outcome, case.attempts) for case in session.results.cases) == [
        ("book", 1, "passed", 1),
        ("book", 2, "passed", 1),
        ("broken", 1, "error", 2),
        ("broken", 2, "error", 2),
        ("cancel", 1, "failed", 2),
        ("cancel", 2, "failed", 2),
        ("slow", 1, "timeout", 2),
        ("slow", 2, "timeout", 2),
        ("unsteady", 1, "passed", 2),
        ("unsteady", 2, "passed", 2),
    ]
    assert session.results.header.trials == 2


def test_a_failure_shows_what_was_expected_beside_what_was_called(session: Session) -> None:
    lines = session.output.splitlines()
    for test in ("test_agent", "test_agent_async"):
        start = next(number for number, line in enumerate(lines) if re.fullmatch(rf"_+ {test}\[cancel\] _+", line))
        shown = "\n".join(lines[start + 1 : start + 12])
        assert "Expected cancel_booking was not called." in shown
        assert "    search_hotels      = search_hotels" in shown
        assert "    cancel_booking     ✗ —" in shown
        assert "golden cancel: goldens.yaml:5" in shown


def test_the_calls_and_arguments_of_each_test_are_those_of_its_agent(session: Session) -> None:
    for case in session.cases_of("book"):
        assert case.score("argument_correctness") == 1
        assert _tools_of(case) == ["search_hotels", "book_hotel"]
    assert [_tools_of(case) for case in session.cases_of("cancel")] == [["search_hotels"]] * 2
    assert "Paris Inn" not in (session.folder / "report" / "results.jsonl").read_text()


def _tools_of(case: CaseResult) -> list[str]:
    run = case.to_run()
    assert run is not None
    return list(run.tools_used)


def test_an_agent_that_raises_and_one_that_hangs_say_so(session: Session) -> None:
    assert {case.reason for case in session.cases_of("broken")} == {"ConnectionError: the model is overloaded"}
    assert {case.reason for case in session.cases_of("slow")} == {"Failed: Timeout (>1.0s) from pytest-timeout."}


def test_junit_xml_and_the_report_hold_the_verdicts(session: Session) -> None:
    properties = _junit_properties(session.folder / "junit.xml")
    for test in ("test_agent", "test_agent_async"):
        assert properties[f"{test}[book]"]["goldspan.passed"] == "True"
        assert properties[f"{test}[unsteady]"]["goldspan.passed"] == "True"
        assert properties[f"{test}[cancel]"]["goldspan.passed"] == "False"
        assert properties[f"{test}[cancel]"]["goldspan.score.tool_recall"] == "0.5"
        assert not properties[f"{test}[broken]"]
    assert "Expected cancel_booking was not called." in (session.folder / "report" / "report.html").read_text()


def _junit_properties(file: Path) -> Mapping[str, Mapping[str, str]]:
    return {
        str(case.get("name")): {str(each.get("name")): str(each.get("value")) for each in case.iter("property")}
        for case in ElementTree.parse(file).iter("testcase")
    }


def test_goldspan_check_reads_the_results(session: Session) -> None:
    command = [sys.executable, "-m", "goldspan", "check", "report/results.jsonl", "--json"]
    done = subprocess.run(command, cwd=session.folder, capture_output=True, encoding="utf-8", check=False, timeout=60)
    assert done.returncode == 1, done.stderr
    assert json.loads(done.stdout)["passed"] is False


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_timeout_that_ends_the_process_keeps_the_finished_cases(framework: str, tmp_path: Path) -> None:
    options = ("-p", "no:xdist", "-p", "no:rerunfailures", "--timeout-method=thread")
    ended = run_pytest(framework, tmp_path, *options, "-k", "async")
    assert ended.status == 1, ended.output
    assert {case.golden_id: case.outcome for case in ended.results.cases} == {
        "book": "passed",
        "cancel": "failed",
        "unsteady": "failed",
        "broken": "error",
        "slow": "error",
    }
    (slow,) = ended.cases_of("slow")
    assert slow.reason == "TestNotEnded: its process, or the session, stopped before the test ended"


def test_a_golden_whose_process_dies_at_each_attempt_is_an_error(tmp_path: Path) -> None:
    """pytest-rerunfailures holds the reports of an attempt back until it has ended."""
    (tmp_path / "test_dying.py").write_text(DYING_TEST)
    ended = run_pytest("pydantic_ai", tmp_path, "-n2", "--reruns=1", "test_dying.py", "-k", "book or cancel")
    assert "worker 'gw" in ended.output
    assert {case.golden_id: (case.outcome, case.attempts) for case in ended.results.cases} == {
        "book": ("passed", 1),
        "cancel": ("error", 2),
    }
