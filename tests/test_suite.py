"""Tests of the test suite's own configuration: its report of skipped tests, forked children and Ctrl+C."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from support.forked_children import fork, forking
from support.laws import case

TESTS_WITH_NEEDS = """
    import pytest

    @pytest.mark.needs("no-such-browser")
    def test_one(): ...

    @pytest.mark.needs("no-such-browser", "sh")
    def test_two(): ...

    @pytest.mark.needs("sh")
    def test_three(): ...

    def test_four():
        pytest.skip("another reason")
"""


@pytest.fixture
def suite(pytester: pytest.Pytester) -> pytest.Pytester:
    """A small test suite with this suite's conftest.py."""
    pytester.makeconftest(Path(__file__).with_name("conftest.py").read_text())
    pytester.makeini("[pytest]\nmarkers =\n    needs(*programs)")
    pytester.makepyfile(TESTS_WITH_NEEDS)
    return pytester


@pytest.mark.e2e
def test_the_summary_names_the_missing_programs_and_the_other_reasons(suite: pytest.Pytester) -> None:
    result = suite.runpytest_subprocess()
    result.assert_outcomes(passed=1, skipped=3)
    result.stdout.fnmatch_lines(
        [
            "skipped: another reason (1 test)",
            "skipped: no-such-browser is not installed (2 tests)",
        ]
    )
    assert result.ret == 0


@pytest.mark.e2e
def test_nothing_skipped_fails_if_a_test_was_skipped(suite: pytest.Pytester) -> None:
    result = suite.runpytest_subprocess("--nothing-skipped")
    result.assert_outcomes(passed=1, skipped=3)
    result.stdout.fnmatch_lines(["failed: --nothing-skipped allows no skipped test"])
    assert result.ret == 1


@pytest.mark.e2e
def test_nothing_skipped_passes_if_every_test_ran(suite: pytest.Pytester) -> None:
    result = suite.runpytest_subprocess("--nothing-skipped", "-k", "three")
    result.assert_outcomes(passed=1, deselected=3)
    assert result.ret == 0


@pytest.mark.e2e
@pytest.mark.parametrize("processes", [pytest.param([], id="one process"), pytest.param(["-n", "2"], id="two")])
def test_the_rest_is_what_was_skipped_or_is_end_to_end(suite: pytest.Pytester, processes: list[str]) -> None:
    suite.makeini("[pytest]\nmarkers =\n    needs(*programs)\n    e2e")
    suite.makepyfile(test_more="import pytest\n@pytest.mark.e2e\ndef test_five(): ...\ndef test_six(): ...")
    suite.runpytest_subprocess("-m", "not e2e", *processes).assert_outcomes(passed=2, skipped=3)
    for _ in range(2):
        result = suite.runpytest_subprocess("--rest", "-v", *processes)
        result.assert_outcomes(passed=1, skipped=3)
        assert "test_three" not in result.stdout.str()
        assert "test_six" not in result.stdout.str()


@pytest.fixture
def suite_with_slow_tests(pytester: pytest.Pytester) -> pytest.Pytester:
    """A small suite under our conftest, in which some tests are left out."""
    pytester.makeconftest(Path(__file__).with_name("conftest.py").read_text())
    pytester.makeini("[pytest]\nmarkers =\n    e2e\n    stress\naddopts = -m 'not stress and not e2e'")
    pytester.makepyfile("""
        import pytest

        def test_quick(): ...

        @pytest.mark.e2e
        def test_slow(): ...

        @pytest.mark.e2e
        @pytest.mark.parametrize("number", [1, 2])
        def test_slow_too(number): ...

        @pytest.mark.e2e
        @pytest.mark.stress
        def test_endless(): ...
    """)
    return pytester


@pytest.mark.e2e
@pytest.mark.parametrize(
    "processes",
    [pytest.param([], marks=pytest.mark.e2e, id="one process"), pytest.param(["-n", "2"], id="two processes")],
)
def test_what_is_left_for_make_test_all_is_counted_at_the_end(
    suite_with_slow_tests: pytest.Pytester, processes: list[str]
) -> None:
    result = suite_with_slow_tests.runpytest_subprocess(*processes)
    assert result.ret == 0
    result.stdout.fnmatch_lines(["left for make test-all: 3 end-to-end tests"])


@pytest.mark.e2e
def test_where_everything_runs_nothing_is_said_to_be_left(suite_with_slow_tests: pytest.Pytester) -> None:
    result = suite_with_slow_tests.runpytest_subprocess("-m", "not stress")
    result.assert_outcomes(passed=4, deselected=1)
    result.stdout.no_fnmatch_line("left for make test-all*")


@pytest.mark.e2e
@pytest.mark.parametrize(
    ("profile", "number", "of_a_share"),
    [
        pytest.param("default", 20, 8, marks=pytest.mark.e2e),
        ("ci", 100, 40),
        pytest.param("thorough", 5000, 2000, marks=pytest.mark.e2e),
    ],
)
def test_a_profile_says_how_many_examples_a_law_gets(
    pytester: pytest.Pytester, profile: str, number: int, of_a_share: int
) -> None:
    pytester.makeconftest(Path(__file__).with_name("conftest.py").read_text())
    pytester.makepyfile(f"""
        import sys
        sys.path.insert(0, {str(Path(__file__).parent)!r})
        from hypothesis import settings
        from support.laws import examples

        @examples(0.4)
        def law(): ...

        def test_numbers():
            assert settings.default.max_examples == {number}
            assert law._hypothesis_internal_use_settings.max_examples == {of_a_share}
    """)
    assert pytester.runpytest_subprocess("--hypothesis-profile", profile).ret == 0


def test_a_case_that_goes_wrong_is_named() -> None:
    with pytest.raises(AssertionError, match=r"in the case 7, 'x': ZeroDivisionError"), case(7, "x"):
        raise ZeroDivisionError


@forking
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_fork_returns_whether_the_child_succeeded_and_the_child_runs_no_further_test(
    capfd: pytest.CaptureFixture[str],
) -> None:
    parent = os.getpid()
    assert fork(lambda: os.getpid() != parent)()
    assert not fork(lambda: False)()
    assert not fork(lambda: [][0])()
    assert "IndexError" in capfd.readouterr().err
    assert not fork(lambda: os.kill(os.getpid(), signal.SIGALRM))()
    assert os.getpid() == parent


@pytest.mark.e2e
@pytest.mark.needs("sh")
def test_child_processes_receive_ctrl_c_although_the_shell_ignores_it(suite: pytest.Pytester) -> None:
    ask = "import signal, sys; sys.exit(signal.getsignal(signal.SIGINT) is signal.SIG_IGN)"
    suite.makepyfile(f"""
        import subprocess, sys

        def test_a_program():
            subprocess.run([sys.executable, "-c", {ask!r}], check=True)
    """)
    ignoring = ["sh", "-c", 'trap "" INT; exec "$@"', "sh", sys.executable, "-m", "pytest", "-k", "program"]
    assert suite.run(*ignoring).ret == 0
