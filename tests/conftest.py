"""Configures every test: strict errors, repeatable random examples, and a summary of skipped tests."""

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
    del os.environ[variable]  # the settings of a developer must not change a test
for variable in ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR"):
    os.environ.pop(variable, None)  # neither must the terminal; pytest-xdist passes its size to each process
os.environ["GOLDSPAN_STRICT"] = "1"
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a shell ignores SIGINT for background processes
    signal.signal(signal.SIGINT, signal.default_int_handler)  # programs that tests interrupt would inherit that

# The duration of an example depends more on the machine than on goldspan.
settings.register_profile("local", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", settings.get_profile("local"), derandomize=True, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "local")


@pytest.fixture(autouse=True)
def _without_ci_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unset CI, which makes gates stricter; a test that needs the variable sets it."""
    monkeypatch.delenv("CI", raising=False)


@pytest.fixture(autouse=True)
def _reset_failure_counts() -> Iterator[None]:
    yield
    _guard.failure_counts.clear()
    _guard._logged.clear()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-snapshots", action="store_true", help="write the actual results as the expected ones")
    parser.addoption("--nothing-skipped", action="store_true", help="fail when any test is skipped")


def pytest_runtest_setup(item: pytest.Item) -> None:
    for mark in item.iter_markers("needs"):
        for program in mark.args:
            if shutil.which(program) is None:
                pytest.skip(f"{program} is not installed")


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    if session.config.getoption("--nothing-skipped") and _skip_reasons(session.config) and exitstatus == 0:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    reasons = _skip_reasons(config)
    for reason, tests in sorted(reasons.items()):
        terminalreporter.write_line(f"skipped: {reason} ({tests} test{'s' if tests > 1 else ''})", yellow=True)
    if reasons and config.getoption("--nothing-skipped"):
        terminalreporter.write_line("failed: --nothing-skipped allows no skipped test", red=True)


def _skip_reasons(config: pytest.Config) -> Counter[str]:
    """Return the number of skipped tests per reason."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    skipped = reporter.stats.get("skipped", []) if reporter else []
    return Counter(report.longrepr[2].removeprefix("Skipped: ") for report in skipped)
