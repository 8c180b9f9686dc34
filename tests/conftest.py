"""Configures every test: strict errors, repeatable random examples, and a summary of the tests left out."""

from __future__ import annotations

import gc
import glob
import os
import shutil
import signal
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from goldspan import _guard

pytest_plugins = ["pytester"]

for variable in [name for name in os.environ if name.startswith(("GOLDSPAN_", "OTEL_", "OPENAI_"))]:
    del os.environ[variable]  # the settings of a developer must not change a test
for variable in ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR"):
    os.environ.pop(variable, None)  # neither must the terminal; pytest-xdist passes its size to each process
# Reading the certificates of the system takes 20 ms for each client of a judge. No test connects to a public server.
os.environ["SSL_CERT_FILE"] = str(Path(__file__).with_name("fixtures") / "certificate_authority.pem")
os.environ["GOLDSPAN_STRICT"] = "1"
for folder in sorted(glob.glob("/usr/lib/postgresql/*/bin"), reverse=True):
    os.environ["PATH"] += os.pathsep + folder  # Debian does not install these programs in PATH
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a shell ignores SIGINT for background processes
    signal.signal(signal.SIGINT, signal.default_int_handler)  # programs that tests interrupt would inherit that

# The examples of each law: few in `make test`, more before a merge, many in `make stress`.
# There is no deadline: the duration of an example depends more on the machine than on goldspan.
IN_CI = bool(os.environ.get("CI"))
settings.register_profile(
    "default",
    max_examples=20,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=IN_CI,
    print_blob=True,
)
settings.register_profile("ci", settings.get_profile("default"), max_examples=100, derandomize=True)
settings.register_profile(
    "thorough",
    settings.get_profile("default"),
    max_examples=max(20, round(5_000 * float(os.environ.get("STRESS", "1")))),
    derandomize=False,
)
settings.load_profile("ci" if IN_CI else "default")  # `--hypothesis-profile` chooses another

LEFT_FOR_TEST_ALL = pytest.StashKey[int]()
SKIPPED_TESTS = "goldspan/skipped"
"""The key in pytest's cache of the ids of the tests that were skipped, for `--rest`."""


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Any]:
    """Starts a PostgreSQL server. A test that uses it has the mark `needs("postgres", "initdb")`."""
    from support.postgres_server import PostgresServer  # few tests need it, and its client

    server = PostgresServer()
    yield server
    server.remove()


@pytest.fixture(autouse=True)
def _without_ci_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unset CI, which makes gates stricter; a test that needs the variable sets it."""
    monkeypatch.delenv("CI", raising=False)


@pytest.fixture(autouse=True)
def _reset_failure_counts() -> Iterator[None]:
    yield
    _guard.failure_counts.clear()
    _guard._logged.clear()


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Keep the cycle collector from traversing modules and tests again and again: 8 % of the time of `make test`."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-snapshots", action="store_true", help="write the actual results as the expected ones")
    parser.addoption("--nothing-skipped", action="store_true", help="fail when any test is skipped")
    parser.addoption(
        "--rest", action="store_true", help="run the end-to-end tests, and the tests that the last run skipped"
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out, for `--rest`, what `make test` ran."""
    if config.getoption("--rest"):
        assert config.cache is not None
        skipped = frozenset(config.cache.get(SKIPPED_TESTS, []))
        items[:] = [item for item in items if item.get_closest_marker("e2e") or item.nodeid in skipped]


def pytest_runtest_setup(item: pytest.Item) -> None:
    for mark in item.iter_markers("needs"):
        for program in mark.args:
            if shutil.which(program) is None:
                pytest.skip(f"{program} is not installed")


def pytest_deselected(items: Sequence[pytest.Item]) -> None:
    """Count the end-to-end tests that `make test` leaves out."""
    for item in items:
        if item.get_closest_marker("e2e") and not item.get_closest_marker("stress"):
            item.config.stash[LEFT_FOR_TEST_ALL] = item.config.stash.get(LEFT_FOR_TEST_ALL, 0) + 1


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Take the count of one process of pytest-xdist: each of them collects, and so deselects, the same tests."""
    node.config.stash[LEFT_FOR_TEST_ALL] = getattr(node, "workeroutput", {}).get("left for make test-all", 0)


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["left for make test-all"] = session.config.stash.get(LEFT_FOR_TEST_ALL, 0)
    elif (cache := getattr(session.config, "cache", None)) is not None and not session.config.getoption("--rest"):
        cache.set(SKIPPED_TESTS, [report.nodeid for report in _skipped(session.config)])
    if session.config.getoption("--nothing-skipped") and _skip_reasons(session.config) and exitstatus == 0:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if left := config.stash.get(LEFT_FOR_TEST_ALL, 0):
        terminalreporter.write_line(f"left for make test-all: {left} end-to-end test{'s' if left > 1 else ''}")
    reasons = _skip_reasons(config)
    for reason, tests in sorted(reasons.items()):
        terminalreporter.write_line(f"skipped: {reason} ({tests} test{'s' if tests > 1 else ''})", yellow=True)
    if reasons and config.getoption("--nothing-skipped"):
        terminalreporter.write_line("failed: --nothing-skipped allows no skipped test", red=True)


def _skip_reasons(config: pytest.Config) -> Counter[str]:
    """Return the number of skipped tests per reason."""
    return Counter(report.longrepr[2].removeprefix("Skipped: ") for report in _skipped(config))


def _skipped(config: pytest.Config) -> Sequence[Any]:
    """Return the reports of skipped tests."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    return reporter.stats.get("skipped", []) if reporter else []
