"""The suite itself: it says what it could not run, and the full run accepts no excuse."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from support.forked_children import fork, forking

NEEDY = """
    import pytest

    @pytest.mark.needs("no-such-browser")
    def test_one(): ...

    @pytest.mark.needs("no-such-browser", "sh")
    def test_two(): ...

    @pytest.mark.needs("sh")
    def test_three(): ...

    def test_four():
        pytest.skip("on a whim")
"""


@pytest.fixture
def suite(pytester: pytest.Pytester) -> pytest.Pytester:
    """A small suite of its own under our conftest."""
    pytester.makeconftest(Path(__file__).with_name("conftest.py").read_text())
    pytester.makeini("[pytest]\nmarkers =\n    needs(*programs)")
    pytester.makepyfile(NEEDY)
    return pytester


def test_what_is_skipped_for_want_of_a_program_is_named_at_the_end(suite: pytest.Pytester) -> None:
    result = suite.runpytest_subprocess()
    result.assert_outcomes(passed=1, skipped=3)
    result.stdout.fnmatch_lines(["skipped for want of no-such-browser: 2 tests", "skipped on a whim: 1 test"])
    assert result.ret == 0


def test_the_full_run_fails_when_something_was_skipped(suite: pytest.Pytester) -> None:
    result = suite.runpytest_subprocess("--nothing-skipped")
    result.assert_outcomes(passed=1, skipped=3)
    result.stdout.fnmatch_lines(["failed: nothing may be skipped in this run"])
    assert result.ret == 1


def test_the_full_run_passes_when_everything_ran(suite: pytest.Pytester) -> None:
    result = suite.runpytest_subprocess("--nothing-skipped", "-k", "three")
    result.assert_outcomes(passed=1, deselected=3)
    assert result.ret == 0


@forking
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_tells_whether_it_held_and_does_not_come_back(capfd: pytest.CaptureFixture[str]) -> None:
    parent = os.getpid()
    assert fork(lambda: os.getpid() != parent)()
    assert not fork(lambda: False)()
    assert not fork(lambda: [][0])()
    assert "IndexError" in capfd.readouterr().err
    assert not fork(lambda: os.kill(os.getpid(), signal.SIGALRM))()
    assert os.getpid() == parent


@pytest.mark.needs("sh")
def test_where_a_shell_has_it_ignore_ctrl_c_what_it_starts_hears_it(suite: pytest.Pytester) -> None:
    ask = "import signal, sys; sys.exit(signal.getsignal(signal.SIGINT) is signal.SIG_IGN)"
    suite.makepyfile(f"""
        import subprocess, sys

        def test_a_program():
            subprocess.run([sys.executable, "-c", {ask!r}], check=True)
    """)
    ignoring = ["sh", "-c", 'trap "" INT; exec "$@"', "sh", sys.executable, "-m", "pytest", "-k", "program"]
    assert suite.run(*ignoring).ret == 0
