"""Adds scores to the reports of tests, and writes the results, for the pytest plugin.

With pytest-xdist the workers run the tests, and one process prints and writes. What it needs travels with each report.
"""

from __future__ import annotations

import time
from collections import defaultdict
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from goldspan.errors import GoldspanError
from goldspan.goldens import Goldens, load_goldens
from goldspan.model import Evaluation
from goldspan.scoring import evaluate
from goldspan.scoring.evaluator import SCORING_VERSION
from goldspan.testing.assertions import ToolsAssertionError, failure_text
from goldspan.testing.captured_calls import GoldenCase
from goldspan.testing.pytest_cases import CASE_KEY
from goldspan.testing.results import (
    CaseError,
    CaseResult,
    ResultsHeader,
    ResultsWriter,
    case_from_document,
    evaluation_documents,
    goldens_digest,
    outcome_of,
    shortened_message,
)

RESULTS_FILE = "results.jsonl"
REPORT_FILE = "report.html"
_PROPERTY_PREFIX = "goldspan."


# --- in the process that runs a test ----------------------------------------------------------------------------------


def describe_test(item: pytest.Item, call: pytest.CallInfo[None], report: pytest.TestReport) -> None:
    """Add to the report of a test: its scores as properties, its message in two forms, and its case."""
    case = item.stash.get(CASE_KEY, None)
    error = call.excinfo.value if call.excinfo is not None else None
    evaluation = error.evaluation if isinstance(error, ToolsAssertionError) else case.evaluation if case else None
    if evaluation is not None:
        others = [(name, value) for name, value in item.user_properties if not name.startswith(_PROPERTY_PREFIX)]
        item.user_properties[:] = others + _properties(evaluation)  # pytest writes those of the report of the teardown
    if report.failed and evaluation is not None and evaluation.passed is not True:
        path, line = _location(item, call)
        texts = failure_text(evaluation), failure_text(evaluation, coloured=True)
        places = [*_golden_place(evaluation), f"{path}:{line}"]
        vars(report)["goldspan_failure"] = [
            str(path),
            line,
            *texts,
            places,
        ]
    if case is not None and not report.skipped:
        vars(report)["goldspan_case"] = [_case_result(case, call).to_document(), list(case.files)]


def _properties(evaluation: Evaluation) -> list[tuple[str, object]]:
    """Return the scores as JUnit properties."""
    scores = [(f"score.{each.metric}", each.value) for each in evaluation.scores if each.value is not None]
    return [(f"{_PROPERTY_PREFIX}{name}", value) for name, value in [("passed", evaluation.passed), *scores]]


def _golden_place(evaluation: Evaluation) -> list[str]:
    """Return where the golden stands."""
    golden = evaluation.golden
    if golden is None or golden.source is None:
        return []
    line = "" if golden.source.line is None else f":{golden.source.line}"
    return [f"golden {golden.id}: {golden.source.file}{line}"]


def _location(item: pytest.Item, call: pytest.CallInfo[None]) -> tuple[Path, int]:
    """Return where the test failed: the last line in its own file, else its definition."""
    lines = [entry.lineno + 1 for entry in call.excinfo.traceback if entry.path == item.path] if call.excinfo else []
    return item.path, lines[-1] if lines else (item.location[1] or 0) + 1


def _case_result(case: GoldenCase, call: pytest.CallInfo[None]) -> CaseResult:
    """Return the case of a test. An exception that is not about the tools is an error of the agent."""
    golden, evaluation = case.golden, case.evaluation
    has_crashed = call.excinfo is not None and (evaluation is None or evaluation.passed is True)
    base = CaseResult(
        golden.id,
        "error",
        tags=golden.tags,
        source=golden.source,
        duration_ms=round(call.duration * 1000, 3),
        golden_digest=golden.digest,
    )
    if has_crashed and call.excinfo is not None:
        error = call.excinfo.value
        return replace(base, error=CaseError(type(error).__name__, shortened_message(error)))
    document, run = evaluation_documents(evaluation or case.evaluate(), keep_arguments=True)
    return replace(base, outcome=outcome_of(case.evaluate()), evaluation=document, run=run)


# --- in the process that prints and writes ----------------------------------------------------------------------------


@dataclass(frozen=True)
class FailureText:
    """The message of a failed test, in the form that pytest prints."""

    plain: str
    coloured: str
    places: list[str]
    """Where the golden stands, and where the test failed."""
    reprcrash: _Location

    def toterminal(self, writer: Any) -> None:
        """Write the message, in colour where the terminal has colours, and the places."""
        text = self.coloured if writer.hasmarkup else self.plain
        for line in (*text.splitlines(), "", *self.places):
            writer.line(line)

    def __str__(self) -> str:
        return self.plain


@dataclass(frozen=True)
class _Location:
    """Where a test failed, with the attributes that pytest reads for its summary and for JUnit XML."""

    path: str
    lineno: int
    message: str


def show_failure_text(report: pytest.TestReport) -> None:
    """Replace the traceback of a failed evaluation by its message."""
    path, line, plain, coloured, places = report.goldspan_failure
    report.longrepr = FailureText(plain, coloured, places, _Location(path, line, plain))  # type: ignore[assignment]


def register_report_writer(config: pytest.Config, folder: str) -> None:
    """Write the report of the session into a folder. Workers of pytest-xdist write nothing."""
    if hasattr(config, "workerinput"):
        return
    try:
        from goldspan.web import html_report  # noqa: F401 - whether it can be written is known before the tests run

        Path(folder).mkdir(parents=True, exist_ok=True)
    except (GoldspanError, OSError) as error:
        raise pytest.UsageError(f"--goldspan-report: {error}") from error
    config.pluginmanager.register(_ReportWriter(Path(folder), config.getoption("--goldspan-keep-arguments")))


class _ReportWriter:
    """Collects the cases of a session and writes them at its end, also after an interruption."""

    def __init__(self, folder: Path, keep_arguments: bool) -> None:
        self.folder = folder
        self.keep_arguments = keep_arguments
        self._cases: dict[tuple[str, str], tuple[CaseResult, tuple[str, ...]]] = {}
        """By test and golden: the repetition of a failed test replaces its earlier case."""
        self._attempts: defaultdict[tuple[str, str], int] = defaultdict(int)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Remember the case of a test."""
        if not hasattr(report, "goldspan_case"):
            return
        document, files = report.goldspan_case
        case = case_from_document(document)
        key = report.nodeid, case.golden_id
        self._attempts[key] += 1
        self._cases[key] = replace(case, attempts=self._attempts[key]), tuple(files)

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Write the files and print where they are."""
        if not self._cases:
            terminalreporter.write_line("goldspan: no test has a golden, so no report is written")
            return
        try:
            self._write()
        except (GoldspanError, OSError) as error:
            terminalreporter.write_line(f"goldspan: the report cannot be written: {error}", red=True)
            return
        for name in (RESULTS_FILE, REPORT_FILE):
            terminalreporter.write_line(f"goldspan: {self.folder / name} is written")

    def _write(self) -> None:
        goldens_by_files = {files: load_goldens(*files) for _, files in self._cases.values()}
        cases = [
            _evaluated_again(case, goldens_by_files[files], self.keep_arguments) for case, files in self._cases.values()
        ]
        header = ResultsHeader(
            SCORING_VERSION,
            goldens=tuple(dict.fromkeys(file for files in goldens_by_files for file in files)),
            goldens_digest=goldens_digest(golden for goldens in goldens_by_files.values() for golden in goldens),
            keeps_arguments=self.keep_arguments,
            created=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        )
        numbered = _number_trials(cases)
        header = replace(header, trials=max(case.trial for case in numbered))
        with ResultsWriter(self.folder / RESULTS_FILE, header) as writer:
            for case in numbered:
                writer.write(case)
        self._write_html([case.live_evaluation for case in numbered if case.live_evaluation is not None], header)

    def _write_html(self, evaluations: list[Evaluation], header: ResultsHeader) -> None:
        from goldspan.web.html_report import render_html
        from goldspan.web.run_report import ReportHeader, build_report, temporary_store

        with temporary_store(evaluations, keep_arguments=self.keep_arguments) as store:
            report = build_report(store, ReportHeader("goldspan report of pytest", time.time_ns(), header.goldens))
        (self.folder / REPORT_FILE).write_text(render_html(report), encoding="utf-8")


def _evaluated_again(case: CaseResult, goldens: Goldens, keep_arguments: bool) -> CaseResult:
    """Evaluate the run of a case in this process, where its values are known, and keep them if they are wanted."""
    run = case.to_run()
    if run is None:
        return case
    evaluation = evaluate(run, goldens)
    document, run_document = evaluation_documents(evaluation, keep_arguments=keep_arguments)
    return replace(case, evaluation=document, run=run_document, live_evaluation=evaluation)


def _number_trials(cases: list[CaseResult]) -> list[CaseResult]:
    """Return the cases with a number for each test of the same golden."""
    numbers: defaultdict[str, int] = defaultdict(int)
    numbered = []
    for case in cases:
        numbers[case.golden_id] += 1
        numbered.append(replace(case, trial=numbers[case.golden_id]))
    return numbered
