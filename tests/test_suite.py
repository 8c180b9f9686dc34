"""The suite itself: it says what it could not run, and the full run accepts no excuse."""

from __future__ import annotations

from pathlib import Path

import pytest

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
