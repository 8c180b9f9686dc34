"""What holds for every test: our own errors are loud, chance is repeatable, and nothing is skipped in silence."""

from __future__ import annotations

import os
import shutil
import signal
from collections import Counter
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from goldspan import _guard

pytest_plugins = ["pytester"]

for variable in [name for name in os.environ if name.startswith(("GOLDSPAN_", "OTEL_", "OPENAI_"))]:
    del os.environ[variable]  # a developer's own settings are no part of what is tested
for variable in ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR"):
    os.environ.pop(variable, None)  # nor is a terminal, of which those who run tests side by side tell each process
os.environ["GOLDSPAN_STRICT"] = "1"
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a shell does that to what it runs in the background
    signal.signal(signal.SIGINT, signal.default_int_handler)  # and the programs that tests interrupt would inherit it

# How long an example takes says more about the machine than about us.
settings.register_profile("here", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", settings.get_profile("here"), derandomize=True, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "here")


@pytest.fixture(autouse=True)
def _as_at_a_desk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gates are stricter where the variable CI is set, and so tests say themselves whether it is."""
    monkeypatch.delenv("CI", raising=False)


@pytest.fixture(autouse=True)
def _no_failures_of_another_test() -> Iterator[None]:
    yield
    _guard.failure_counts.clear()
    _guard._logged.clear()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-snapshots", action="store_true", help="write what comes out as what is expected")
    parser.addoption("--nothing-skipped", action="store_true", help="fail when any test is skipped")


def pytest_runtest_setup(item: pytest.Item) -> None:
    for mark in item.iter_markers("needs"):
        for program in mark.args:
            if shutil.which(program) is None:
                pytest.skip(f"for want of {program}")


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    if session.config.getoption("--nothing-skipped") and _skip_reasons(session.config) and exitstatus == 0:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    reasons = _skip_reasons(config)
    for reason, tests in sorted(reasons.items()):
        terminalreporter.write_line(f"skipped {reason}: {tests} test{'s' if tests > 1 else ''}", yellow=True)
    if reasons and config.getoption("--nothing-skipped"):
        terminalreporter.write_line("failed: nothing may be skipped in this run", red=True)


def _skip_reasons(config: pytest.Config) -> Counter[str]:
    """How many tests were skipped, by reason."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    skipped = reporter.stats.get("skipped", []) if reporter else []
    return Counter(report.longrepr[2].removeprefix("Skipped: ") for report in skipped)
