"""Tests of the test suite's own configuration: its report of skipped tests, forked children and Ctrl+C."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from support.forked_children import fork, forking

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


def test_nothing_skipped_fails_if_a_test_was_skipped(suite: pytest.Pytester) -> None:
    result = suite.runpytest_subprocess("--nothing-skipped")
    result.assert_outcomes(passed=1, skipped=3)
    result.stdout.fnmatch_lines(["failed: --nothing-skipped allows no skipped test"])
    assert result.ret == 1


def test_nothing_skipped_passes_if_every_test_ran(suite: pytest.Pytester) -> None:
    result = suite.runpytest_subprocess("--nothing-skipped", "-k", "three")
    result.assert_outcomes(passed=1, deselected=3)
    assert result.ret == 0


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
