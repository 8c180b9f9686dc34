"""Adds scores to the reports of tests, and writes the results, for the pytest plugin.

With pytest-xdist the workers run the tests, and one process prints and writes. What it needs travels with each report.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from goldspan.errors import GoldspanError
from goldspan.goldens import Goldens, load_goldens
from goldspan.model import Evaluation, Golden
from goldspan.scoring import evaluate
from goldspan.scoring.evaluator import SCORING_VERSION
from goldspan.testing.assertions import ToolsAssertionError, failure_text
from goldspan.testing.captured_calls import GoldenCase
from goldspan.testing.pytest_cases import CASE_KEY
from goldspan.testing.results import (
    CaseError,
    CaseResult,
    ResultsHeader,
    case_from_document,
    evaluation_documents,
    goldens_digest,
    outcome_of,
    shortened_message,
)
from goldspan.testing.results_file import ResultsWriter

RESULTS_FILE = "results.jsonl"
REPORT_FILE = "report.html"
_PROPERTY_PREFIX = "goldspan."
_NEVER_ENDED = CaseError("TestNotEnded", "its process, or the session, stopped before the test ended")
_CRASH = "???"
"""The phase in the report by which pytest-xdist replaces those of a test whose process died."""
_TIMEOUT_MESSAGE = "from pytest-timeout."
"""How the message ends with which pytest-timeout fails a test."""


# --- in the process that runs a test ----------------------------------------------------------------------------------


def describe_setup(item: pytest.Item, call: pytest.CallInfo[None], report: pytest.TestReport, fixture: str) -> None:
    """Add to the report of the setup of a test its case as an error: that of the setup, or that the test never ended.

    The report of the test itself replaces the case. It never comes if the process of the test dies.
    """
    callspec = getattr(item, "callspec", None)
    if callspec is None or fixture not in callspec.params or report.skipped:
        return
    golden, _, files = callspec.params[fixture]
    error = _case_error(call.excinfo.value) if call.excinfo is not None else _NEVER_ENDED
    case = _unfinished_case(golden, call, error)
    vars(report)["goldspan_case"] = [case.to_document(), list(files)]


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
    golden, raised = case.golden, call.excinfo
    if raised is None or (case.evaluation is not None and case.evaluation.passed is not True):
        evaluation = case.evaluate()
        if raised is None or evaluation.passed is not True:
            document, run = evaluation_documents(evaluation, keep_arguments=True)
            base = _unfinished_case(golden, call, None)
            return replace(base, outcome=outcome_of(evaluation), evaluation=document, run=run)
    return _unfinished_case(golden, call, _case_error(raised.value))


def _unfinished_case(golden: Golden, call: pytest.CallInfo[None] | None, error: CaseError | None) -> CaseResult:
    """Return the case of a golden without an evaluation."""
    is_timeout = error is not None and error.message.endswith(_TIMEOUT_MESSAGE)
    return CaseResult(
        golden.id,
        "timeout" if is_timeout else "error",
        tags=golden.tags,
        source=golden.source,
        error=error,
        duration_ms=None if call is None else round(call.duration * 1000, 3),
        golden_digest=golden.digest,
    )


def _case_error(error: BaseException) -> CaseError:
    return CaseError(type(error).__name__, shortened_message(error))


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
    """Writes each case of a session when its test ends, and the report at the end, also after an interruption.

    While the tests run, cases are appended to the results file. The file is written anew when its header changes, and
    at the end, so that it has one line for each case.
    """

    def __init__(self, folder: Path, keep_arguments: bool) -> None:
        self.folder = folder
        self.keep_arguments = keep_arguments
        self._cases: dict[tuple[str, str], CaseResult] = {}
        """By test and golden: the repetition of a failed test replaces its earlier case."""
        self._attempts: Counter[tuple[str, str]] = Counter()
        self._trials: Counter[str] = Counter()
        self._goldens_by_files: dict[tuple[str, ...], Goldens] = {}
        self._files_by_function: dict[str, tuple[str, ...]] = {}
        self._crashes: Counter[str] = Counter()
        """How often each test ended its process."""
        self._header = ResultsHeader(
            SCORING_VERSION,
            keeps_arguments=keep_arguments,
            created=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        )
        self._writer: ResultsWriter | None = None
        self._error: Exception | None = None

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Write the case of a test."""
        if self._error is not None or report.when == "teardown":
            return
        try:
            if hasattr(report, "goldspan_case"):
                document, files = report.goldspan_case
                self._add(report, case_from_document(document), tuple(files))
            elif report.when == _CRASH:
                self._crashes[report.nodeid] += 1
            elif report.skipped:
                self._remove_case(report.nodeid)
        except (GoldspanError, OSError) as error:  # a test does not fail because its case cannot be written
            self._error = error

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Write the files and print where they are."""
        try:
            if self._error is not None:
                raise self._error
            reported = {test for test, _ in self._cases}
            for test in self._crashes:
                if test not in reported:
                    self._add_crash(test, terminalreporter)
            if not self._cases:
                terminalreporter.write_line("goldspan: no test has a golden, so no report is written")
                self._delete_results()
                return
            self._write_anew()
            self._write_html()
        except (GoldspanError, OSError) as error:
            terminalreporter.write_line(f"goldspan: the report cannot be written: {error}", red=True)
            return
        finally:
            if self._writer is not None:
                self._writer.close()
        for name in (RESULTS_FILE, REPORT_FILE):
            terminalreporter.write_line(f"goldspan: {self.folder / name} is written")

    def _add(self, report: pytest.TestReport, case: CaseResult, files: tuple[str, ...]) -> None:
        """Add a case, or replace the earlier case of the same test."""
        key = report.nodeid, case.golden_id
        if report.when == "setup":
            self._attempts[key] += 1
        if key not in self._cases:
            self._trials[case.golden_id] += 1
        trial = self._cases[key].trial if key in self._cases else self._trials[case.golden_id]
        has_new_header = files not in self._goldens_by_files or trial > self._header.trials
        if files not in self._goldens_by_files:
            self._goldens_by_files[files] = load_goldens(*files)
        self._files_by_function[report.nodeid.partition("[")[0]] = files
        evaluated = _evaluated_again(case, self._goldens_by_files[files], self.keep_arguments)
        self._cases[key] = replace(evaluated, trial=trial, attempts=self._attempts[key])
        if self._writer is None or has_new_header:
            self._write_anew()
        else:
            self._writer.write(self._cases[key])

    def _add_crash(self, test: str, terminalreporter: Any) -> None:
        """Add the case of a test of which no report arrived, because pytest-rerunfailures holds them back.

        Its golden is the one that is named like the parameters of the test, among those of the same function.
        """
        function, _, parameters = test.removesuffix("]").partition("[")
        goldens = self._goldens_by_files.get(self._files_by_function.get(function, ()), ())
        golden = next((golden for golden in goldens if golden.id == parameters), None)
        if golden is None:
            message = f"goldspan: {test} ended its process, so the results lack its golden if it has one"
            terminalreporter.write_line(message, red=True)
            return
        self._trials[golden.id] += 1
        case = _unfinished_case(golden, None, _NEVER_ENDED)
        trial = self._trials[golden.id]
        self._cases[test, golden.id] = replace(case, trial=trial, attempts=self._crashes[test])

    def _remove_case(self, test: str) -> None:
        """Remove the case of a test that was skipped after its setup, and number the trials again."""
        kept = {key: case for key, case in self._cases.items() if key[0] != test}
        if len(kept) == len(self._cases):
            return
        self._trials.clear()
        for key, case in kept.items():
            self._trials[case.golden_id] += 1
            kept[key] = replace(case, trial=self._trials[case.golden_id])
        self._cases = kept
        self._write_anew()

    def _write_anew(self) -> None:
        """Write the header and all cases. A file of an earlier session is renamed; that of this session is replaced."""
        goldens = [golden for each in self._goldens_by_files.values() for golden in each]
        self._header = replace(
            self._header,
            goldens=tuple(dict.fromkeys(file for files in self._goldens_by_files for file in files)),
            goldens_digest=goldens_digest(goldens),
            trials=max((case.trial for case in self._cases.values()), default=1),
        )
        path = self.folder / RESULTS_FILE
        if self._writer is None:
            self._writer = ResultsWriter(path, self._header)
            for case in self._cases.values():
                self._writer.write(case)
            return
        self._writer.close()
        replacement = self.folder / f"{RESULTS_FILE}.new"
        replacement.unlink(missing_ok=True)
        with ResultsWriter(replacement, self._header) as writer:
            for case in self._cases.values():
                writer.write(case)
        os.replace(replacement, path)  # a process that dies now loses no case
        self._writer = ResultsWriter(path, self._header, resume=True)

    def _delete_results(self) -> None:
        """Delete the results file of this session, whose tests were all skipped after their setup."""
        if self._writer is not None:
            self._writer.close()
            self._writer.path.unlink()

    def _write_html(self) -> None:
        from goldspan.web.html_report import render_html
        from goldspan.web.run_report import ReportHeader, build_report, temporary_store

        evaluations = [case.live_evaluation for case in self._cases.values() if case.live_evaluation is not None]
        with temporary_store(evaluations, keep_arguments=self.keep_arguments) as store:
            header = ReportHeader("goldspan report of pytest", time.time_ns(), self._header.goldens)
            report = build_report(store, header)
        (self.folder / REPORT_FILE).write_text(render_html(report), encoding="utf-8")


def _evaluated_again(case: CaseResult, goldens: Goldens, keep_arguments: bool) -> CaseResult:
    """Evaluate the run of a case in this process, where its values are known, and keep them if they are wanted."""
    run = case.to_run()
    if run is None:
        return case
    evaluation = evaluate(run, goldens)
    document, run_document = evaluation_documents(evaluation, keep_arguments=keep_arguments)
    return replace(case, evaluation=document, run=run_document, live_evaluation=evaluation)
