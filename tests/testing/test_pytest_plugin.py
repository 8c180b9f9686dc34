"""The pytest plugin runs a test for each golden and evaluates the tools that the test called."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from goldspan.testing import pytest_cases
from support.pytest_project import FIRST_TEST, run


def collect(project: pytest.Pytester) -> pytest.RunResult:
    """Collect the tests of a project in this process, which takes a tenth of the time."""
    return project.runpytest_inprocess("-p", "no:cacheprovider", "--collect-only", "-q")


# --- one test for each golden -----------------------------------------------------------------------------------------


def test_the_first_test_of_a_user_has_at_most_six_lines() -> None:
    assert len([line for line in FIRST_TEST.splitlines() if line]) <= 6


def test_each_golden_is_a_test_and_a_failure_shows_both_sides(project: pytest.Pytester) -> None:
    project.makepyfile(test_agent=FIRST_TEST)
    result = run(project, "-v", "--junitxml=junit.xml")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(
        [
            "test_agent.py::test_agent[[]book] PASSED*",
            "test_agent.py::test_agent[[]refund] FAILED*",
            "Expected refund was not called.",
            "    expected             called",
            "    refund             ✗ —",
            "golden refund: goldens.yaml:4",
            "*test_agent.py:4",
            "FAILED test_agent.py::test_agent[[]refund] - Expected refund was not called.",
        ]
    )
    assert "Traceback" not in result.stdout.str()
    cases = {case.get("name"): case for case in ElementTree.parse(project.path / "junit.xml").iter("testcase")}
    properties = {each.get("name"): each.get("value") for each in cases["test_agent[refund]"].iter("property")}
    assert properties["goldspan.passed"] == "False"
    assert properties["goldspan.score.tool_recall"] == "0.0"
    failure = cases["test_agent[refund]"].find("failure")
    assert failure is not None
    assert str(failure.get("message")).startswith("Expected refund was not called.")


@pytest.mark.e2e
def test_the_comparison_has_colours_where_the_terminal_has(project: pytest.Pytester) -> None:
    project.makepyfile(test_agent=FIRST_TEST)
    assert "\x1b[31m✗\x1b[0m" in run(project, "--color=yes").stdout.str()
    assert "\x1b" not in run(project, "--color=no").stdout.str()


def test_the_spans_of_a_test_belong_to_it_alone(project: pytest.Pytester) -> None:
    project.makepyfile(
        test_agent="""
        import pytest
        from app import agent, search

        @pytest.fixture(autouse=True)
        def used_before_and_after():
            search("Paris")
            yield
            search("Paris")

        def test_without_goldens():
            agent("Book it")

        @pytest.mark.goldens("goldens.yaml")
        def test_agent(golden_case):
            agent("Book it" if golden_case.golden.id == "book" else "nothing")
            if golden_case.golden.id == "book":
                assert golden_case.tools_used == ("search", "book")
        """
    )
    result = run(project)
    result.assert_outcomes(passed=2, failed=1)


@pytest.mark.e2e
def test_an_agent_that_raises_fails_its_test_with_its_own_traceback(project: pytest.Pytester) -> None:
    (project.path / "goldens.yaml").write_text("goldens: [{id: broken, input: raise, tools: [search]}]")
    project.makepyfile(test_agent=FIRST_TEST)
    result = run(project)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["E*ValueError: no such hotel"])


@pytest.mark.e2e
def test_an_assertion_of_the_test_itself_fails_it_as_usual(project: pytest.Pytester) -> None:
    project.makepyfile(
        test_agent="""
        import pytest
        from app import agent

        @pytest.mark.goldens("goldens.yaml")
        def test_agent(golden_case):
            assert agent(golden_case.input) == "done"
        """
    )
    result = run(project)
    result.assert_outcomes(failed=2)
    result.stdout.fnmatch_lines(["E       AssertionError: assert None == 'done'"])


@pytest.mark.e2e
def test_a_run_that_cannot_be_evaluated_fails(project: pytest.Pytester) -> None:
    (project.path / "goldens.yaml").write_text("goldens: [{id: a, input: Book it, tools: [search, book]}]")
    project.makepyfile(
        app="def agent(question): pass",
        test_agent=FIRST_TEST,
    )
    result = run(project)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["Not evaluated: no tool call was seen, *"])


@pytest.mark.e2e
def test_threads_keep_to_their_test(project: pytest.Pytester) -> None:
    project.makepyfile(
        test_agent="""
        import pytest
        from concurrent.futures import ThreadPoolExecutor
        from app import book, search

        @pytest.mark.goldens("goldens.yaml")
        def test_agent(golden_case):
            with ThreadPoolExecutor() as pool:
                pool.submit(search, "Rome").result()
                pool.submit(book, "Roma Inn").result()
        """
    )
    run(project).assert_outcomes(passed=1, failed=1)


@pytest.mark.e2e
def test_async_tests_of_anyio_are_evaluated(project: pytest.Pytester) -> None:
    project.makepyfile(
        test_agent="""
        import pytest
        from app import async_agent

        @pytest.fixture
        def anyio_backend():
            return "asyncio"

        @pytest.mark.anyio
        @pytest.mark.goldens("goldens.yaml")
        async def test_agent(golden_case):
            await async_agent(golden_case.input)
        """
    )
    result = run(project, options=())
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["Expected refund was not called."])


@pytest.mark.e2e
def test_a_skipped_test_has_no_case(project: pytest.Pytester) -> None:
    project.makepyfile(
        test_agent="""
        import pytest

        @pytest.mark.goldens("goldens.yaml")
        def test_agent(golden_case):
            pytest.skip("no model")
        """
    )
    result = run(project, "--goldspan-report", "out")
    result.assert_outcomes(skipped=2)
    result.stdout.fnmatch_lines(["goldspan: no test has a golden, so no report is written"])


# --- without goldens --------------------------------------------------------------------------------------------------


@pytest.mark.e2e
def test_captured_tools_are_asserted_without_goldens(project: pytest.Pytester) -> None:
    project.makepyfile(
        test_agent="""
        from app import agent
        from goldspan import assert_tools

        def test_passes(tool_capture):
            agent("Book it")
            tool_capture.assert_tools(["book", "search"])

        def test_fails(tool_capture):
            agent("Book it")
            tool_capture.assert_tools(["book", "search"], order="exact")

        def test_lists():
            assert_tools(["book"], ["book", "mail"])
        """
    )
    result = run(project)
    result.assert_outcomes(passed=1, failed=2)
    result.stdout.fnmatch_lines(["*test_agent.py:10", "Expected mail was not called.", "*test_agent.py:13"])


# --- wrong use --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("marker", "parameter", "message"),
    [
        ('"nothing.yaml"', "golden_case", "there is no golden file nothing.yaml."),
        ("", "golden_case", 'takes the names of golden files, such as "goldens.yaml".'),
        ('"goldens.yaml"', "", "needs the fixture: add the parameter `golden_case` to the test."),
        ('"policy.yaml"', "golden_case", "there is no golden to run"),
        ('"no_input.yaml"', "golden_case", "the golden 'silent' has no input to run the agent on"),
        ('"twice.yaml"', "golden_case", "*twice.yaml*same*"),
    ],
)
def test_wrong_use_is_one_sentence_and_ends_the_collection(
    project: pytest.Pytester, marker: str, parameter: str, message: str
) -> None:
    (project.path / "policy.yaml").write_text("goldens: [{id: safe, policy: true, forbid: [rm]}]")
    (project.path / "no_input.yaml").write_text("goldens: [{id: silent, when: {agent: bot}, tools: [a]}]")
    (project.path / "twice.yaml").write_text("goldens: [{id: same, input: a}, {id: same, input: b}]")
    project.makepyfile(
        test_agent=f"import pytest\n\n@pytest.mark.goldens({marker})\ndef test_agent({parameter}): pass\n"
    )
    assert pytest_cases  # loaded before: pytester forgets the modules that a session in this process has loaded
    result = collect(project)
    assert result.ret == pytest.ExitCode.INTERRUPTED
    assert "Traceback" not in result.stdout.str()
    result.stdout.fnmatch_lines([f"*{message}*"])


@pytest.mark.e2e
def test_the_fixture_without_the_marker_says_what_is_missing(project: pytest.Pytester) -> None:
    project.makepyfile(test_agent="def test_agent(golden_case): pass")
    result = run(project)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*golden_case needs goldens: mark the test with @pytest.mark.goldens*"])


# --- cost -------------------------------------------------------------------------------------------------------------


def test_a_session_that_does_not_use_the_plugin_loads_nothing_of_goldspan(tmp_path: Path) -> None:
    (tmp_path / "test_other.py").write_text("def test_other(): pass\n")
    program = (
        "import json, sys, pytest\n"
        "status = pytest.main(['-q', '-p', 'no:cacheprovider', '--rootdir', sys.argv[1], sys.argv[1]])\n"
        "print(json.dumps([int(status), sorted(name for name in sys.modules if name.split('.')[0] in\n"
        "      ('goldspan', 'pytest_goldspan', 'opentelemetry', 'pydantic', 'rich', 'rapidfuzz'))]))\n"
    )
    output = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, check=True, cwd=tmp_path
    ).stdout
    status, modules = json.loads(output.splitlines()[-1])
    assert status == 0
    assert modules == ["pytest_goldspan"]
