"""The pytest plugin: one test for each golden, and fixtures that capture the tools a test calls.

pytest imports this module in every project that has goldspan installed. It stands beside the package, and imports
goldspan only when a test uses it: importing the package takes several milliseconds under pytest, which examines each
module of a package that has a plugin. PYTEST_DONT_REWRITE: it has no assertions.
"""

from __future__ import annotations

import sys
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from goldspan.testing.captured_calls import GoldenCase, ToolCapture

_MARKER = "goldens"
_CASE_FIXTURE = "golden_case"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of the plugin."""
    group = parser.getgroup("goldspan", "goldspan: tool calls of agents")
    group.addoption(
        "--goldspan-report",
        metavar="DIR",
        help="write the results of the goldens to DIR/results.jsonl and a report to DIR/report.html",
    )
    group.addoption(
        "--goldspan-keep-arguments",
        action="store_true",
        help="keep the values of arguments and results in the files of --goldspan-report",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker, and the writer of the report where one is asked for."""
    config.addinivalue_line(
        "markers", f"{_MARKER}(*files): run the test once for each golden of the files, as the fixture {_CASE_FIXTURE}"
    )
    if folder := config.getoption("--goldspan-report"):
        from goldspan.testing.pytest_reports import register_report_writer

        register_report_writer(config, folder)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Make one test of each golden that the marker `goldens` names."""
    marker = metafunc.definition.get_closest_marker(_MARKER)
    if marker is None:
        return
    from goldspan.testing.pytest_cases import load_marked_goldens

    goldens = load_marked_goldens(metafunc, marker, _CASE_FIXTURE)
    metafunc.parametrize(_CASE_FIXTURE, goldens, ids=[golden.id for golden, *_ in goldens], indirect=True)


@pytest.fixture
def golden_case(request: pytest.FixtureRequest) -> Iterator[GoldenCase]:
    """The golden of this test, from the marker `goldens`; when the test ends, the tools it called are evaluated.

    `golden_case.input` is the text to give to the agent.
    """
    from goldspan.testing.pytest_cases import open_golden_case

    with open_golden_case(request, _MARKER) as case:
        yield case


@pytest.fixture
def tool_capture() -> Iterator[ToolCapture]:
    """The tools that the test calls, from the spans of any instrumentation: `tool_capture.assert_tools([...])`."""
    from goldspan.testing.captured_calls import ToolCapture

    with ToolCapture() as capture:
        yield capture


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """Evaluate the golden of a test after its function has returned."""
    result = yield
    if _CASE_FIXTURE in pyfuncitem.funcargs:
        from goldspan.testing.pytest_cases import fail_unless_passed

        fail_unless_passed(pyfuncitem)
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add scores, and what the process that prints the report needs, to the report of a test."""
    report = yield
    if call.when != "teardown" and "goldspan.testing.captured_calls" in sys.modules:
        from goldspan.testing.pytest_reports import describe_setup, describe_test

        if call.when == "setup":
            describe_setup(item, call, report, _CASE_FIXTURE)
        else:
            describe_test(item, call, report)
    return report


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Show the comparison in colour where the terminal has colours."""
    if hasattr(report, "goldspan_failure"):
        from goldspan.testing.pytest_reports import show_failure_text

        show_failure_text(report)
