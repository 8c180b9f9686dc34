"""With `--goldspan-report`, the pytest plugin writes the case of each golden, and a report."""

from __future__ import annotations

import pytest

from goldspan import read_results
from support.pytest_project import FIRST_TEST, GOLDENS, run


@pytest.mark.parametrize("processes", [0, pytest.param(2, marks=pytest.mark.e2e)])
def test_the_report_holds_the_cases_of_all_processes(project: pytest.Pytester, processes: int) -> None:
    project.makepyfile(test_agent=FIRST_TEST, test_again=FIRST_TEST)
    result = run(project, "-n", str(processes), "--goldspan-report", "out")
    result.assert_outcomes(passed=2, failed=2)
    results = read_results(project.path / "out" / "results.jsonl")
    assert {case.key: case.outcome for case in results.cases} == {
        ("book", 1): "passed",
        ("book", 2): "passed",
        ("refund", 1): "failed",
        ("refund", 2): "failed",
    }
    assert results.header.goldens == ("goldens.yaml",)
    assert results.header.trials == 2
    (book, *_) = (case for case in results.cases if case.golden_id == "book")
    assert book.tags == ("fast",)
    assert book.source is not None
    assert (book.source.file, book.source.line) == ("goldens.yaml", 3)
    assert "Roma" not in (project.path / "out" / "results.jsonl").read_text()
    html = (project.path / "out" / "report.html").read_text()
    assert "Expected refund was not called." in html
    assert "Casa Roma" not in html


@pytest.mark.e2e
def test_the_report_keeps_arguments_on_request(project: pytest.Pytester) -> None:
    project.makepyfile(test_agent=FIRST_TEST)
    run(project, "--goldspan-report", "out", "--goldspan-keep-arguments")
    assert "Casa Roma" in (project.path / "out" / "results.jsonl").read_text()
    assert read_results(project.path / "out" / "results.jsonl").header.keeps_arguments


@pytest.mark.e2e
def test_a_crash_is_an_error_in_the_report(project: pytest.Pytester) -> None:
    (project.path / "goldens.yaml").write_text("goldens: [{id: broken, input: raise, tools: [search]}]")
    project.makepyfile(test_agent=FIRST_TEST)
    run(project, "--goldspan-report", "out")
    (case,) = read_results(project.path / "out" / "results.jsonl").cases
    assert case.outcome == "error"
    assert case.reason == "ValueError: no such hotel"


@pytest.mark.e2e
def test_a_report_that_cannot_be_written_is_said(project: pytest.Pytester) -> None:
    project.makepyfile(test_agent=FIRST_TEST)
    (project.path / "taken").write_text("a file")
    result = run(project, "--goldspan-report", "taken")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: --goldspan-report: *taken*"])


def read_cases(project: pytest.Pytester) -> dict[str, tuple[str, str, int]]:
    """Return the outcome, the reason and the attempts of each golden of the report."""
    results = read_results(project.path / "out" / "results.jsonl")
    return {case.golden_id: (case.outcome, case.reason, case.attempts) for case in results.cases}


@pytest.mark.e2e
def test_a_process_that_dies_loses_no_finished_case_and_shows_the_one_that_killed_it(project: pytest.Pytester) -> None:
    (project.path / "goldens.yaml").write_text(GOLDENS + "  - {id: fatal, input: exit, tools: [search]}\n")
    (project.path / "out").mkdir()
    project.makepyfile(
        test_agent="""
        import os, pytest
        from app import agent

        @pytest.mark.goldens("goldens.yaml")
        def test_agent(golden_case):
            agent(golden_case.input)
            if golden_case.input == "exit":
                os._exit(3)
        """
    )
    assert run(project, "--goldspan-report", "out").ret == 3
    stopped = "TestNotEnded: its process, or the session, stopped before the test ended"
    assert read_cases(project) == {
        "book": ("passed", "All 2 expected tools were called, in order.", 1),
        "refund": ("failed", "Expected refund was not called.", 1),
        "fatal": ("error", stopped, 1),
    }
    assert read_results(project.path / "out" / "results.jsonl").header.goldens == ("goldens.yaml",)


@pytest.mark.e2e
def test_a_worker_that_dies_leaves_an_error_and_the_others_continue(project: pytest.Pytester) -> None:
    (project.path / "goldens.yaml").write_text("goldens: [{id: fatal, input: exit, tools: [search]}]")
    (project.path / "others.yaml").write_text(GOLDENS)
    project.makepyfile(
        test_agent="""
        import os, pytest
        from app import agent

        @pytest.mark.goldens("goldens.yaml", "others.yaml")
        def test_agent(golden_case):
            if golden_case.input == "exit":
                os._exit(3)
            agent(golden_case.input)

        def test_without_golden():
            os._exit(3)
        """
    )
    result = run(project, "-n", "2", "--goldspan-report", "out")
    result.assert_outcomes(passed=1, failed=3)
    result.stdout.fnmatch_lines(
        ["goldspan: test_agent.py::test_without_golden ended its process, so the results lack *"]
    )
    outcomes = {golden: outcome for golden, (outcome, *_) in read_cases(project).items()}
    assert outcomes == {"book": "passed", "refund": "failed", "fatal": "error"}
    assert (project.path / "out" / "report.html").exists()


@pytest.mark.e2e
def test_a_fixture_that_fails_is_the_error_of_its_case(project: pytest.Pytester) -> None:
    project.makepyfile(
        test_agent="""
        import pytest
        from app import agent

        @pytest.fixture
        def database():
            raise OSError("no database")

        @pytest.mark.goldens("goldens.yaml")
        def test_agent(database, golden_case):
            agent(golden_case.input)
        """
    )
    result = run(project, "--goldspan-report", "out")
    result.assert_outcomes(errors=2)
    assert set(read_cases(project).values()) == {("error", "OSError: no database", 1)}


@pytest.mark.e2e
def test_a_skipped_trial_leaves_no_gap_in_the_numbers(project: pytest.Pytester) -> None:
    project.makepyfile(
        test_agent="""
        import pytest
        from app import agent

        @pytest.mark.goldens("goldens.yaml")
        def test_skipped(golden_case):
            pytest.skip("no model")

        @pytest.mark.goldens("goldens.yaml")
        def test_agent(golden_case):
            agent(golden_case.input)

        @pytest.mark.xfail
        @pytest.mark.goldens("goldens.yaml")
        def test_expected_to_fail(golden_case):
            raise ValueError
        """
    )
    run(project, "--goldspan-report", "out").assert_outcomes(passed=1, failed=1, skipped=2, xfailed=2)
    results = read_results(project.path / "out" / "results.jsonl")
    assert [case.key for case in results.cases] == [("book", 1), ("refund", 1)]
    assert results.header.trials == 1


@pytest.mark.e2e
def test_a_test_that_fails_although_its_golden_is_met_is_an_error(project: pytest.Pytester) -> None:
    project.makepyfile(
        test_agent="""
        import pytest
        from app import agent

        @pytest.mark.goldens("goldens.yaml")
        def test_agent(golden_case):
            agent(golden_case.input)
            golden_case.assert_tools(["search"], forbid=["book"])
        """
    )
    run(project, "--goldspan-report", "out").assert_outcomes(failed=2)
    assert read_cases(project)["book"][0] == "error"
    assert read_cases(project)["refund"][0] == "failed"


@pytest.mark.e2e
def test_the_results_of_an_earlier_session_are_renamed(project: pytest.Pytester) -> None:
    project.makepyfile(test_agent=FIRST_TEST, test_again=FIRST_TEST)
    run(project, "test_agent.py", "--goldspan-report", "out")
    run(project, "--goldspan-report", "out")
    assert sorted(path.name for path in (project.path / "out").iterdir()) == [
        "report.html",
        "results.jsonl",
        "results.jsonl.1",
    ]
    assert len(read_results(project.path / "out" / "results.jsonl").cases) == 4
    assert len(read_results(project.path / "out" / "results.jsonl.1").cases) == 2


@pytest.mark.e2e
def test_a_results_file_that_cannot_be_written_fails_no_test(project: pytest.Pytester) -> None:
    project.makepyfile(test_agent=FIRST_TEST)
    (project.path / "out").mkdir()
    (project.path / "out" / "results.jsonl").write_text("something else")
    result = run(project, "--goldspan-report", "out")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["goldspan: the report cannot be written: *is not a results file*"])
    assert (project.path / "out" / "results.jsonl").read_text() == "something else"
