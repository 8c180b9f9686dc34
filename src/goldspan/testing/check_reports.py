"""Writes the outcome of `goldspan check` as JSON, JUnit XML, GitHub annotations and Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any
from xml.etree import ElementTree

from goldspan.model.markup import Table, TextSpan, render_markdown, truncate
from goldspan.testing.gates import GateResult
from goldspan.testing.regressions import BaselineComparison
from goldspan.testing.results import AgentResults, CaseResult

_MAX_ANNOTATIONS = 50
"""GitHub shows at most 50 annotations of a job."""
_MAX_LISTED_GOLDENS = 50
"""Goldens in the Markdown summary. GitHub rejects a summary above one megabyte."""


@dataclass(frozen=True)
class CheckOutcome:
    """The results, what was required of them, and whether they meet it."""

    results: AgentResults
    gates: Sequence[GateResult] = ()
    baseline: BaselineComparison | None = None
    fails_on_errors: bool = True
    """Whether a case in which the agent raised or timed out fails the check."""

    @cached_property
    def failures(self) -> list[str]:
        """What fails the check, one sentence each; empty: the check passed."""
        found = [_gate_sentence(result) for result in self.gates if not result.is_met]
        if self.baseline is not None:
            found += _regression_sentences(self.baseline)
        if self.fails_on_errors and (number := self.results.counts["error"] + self.results.counts["timeout"]):
            found.append(f"The agent raised or timed out in {number} case{'s' * (number != 1)}.")
        return found

    @property
    def passed(self) -> bool:
        """Whether nothing fails the check."""
        return not self.failures

    @cached_property
    def faulty_goldens(self) -> list[FaultyGolden]:
        """The goldens with a trial that did not pass, and those that got worse, in the order of the results."""
        worse = {change.golden_id for change in self.baseline.worse} if self.baseline else frozenset()
        cases_of: dict[str, list[CaseResult]] = {}
        for case in self.results.cases:
            cases_of.setdefault(case.golden_id, []).append(case)
        return [
            FaultyGolden(golden_id, cases, faulty, golden_id in worse)
            for golden_id, cases in cases_of.items()
            if (faulty := [case for case in cases if case.outcome != "passed"])
        ]


@dataclass(frozen=True)
class FaultyGolden:
    """A golden that did not pass in every trial."""

    golden_id: str
    cases: Sequence[CaseResult]
    faulty: Sequence[CaseResult]
    is_worse: bool
    """Whether a smaller share of its trials passes than in the baseline."""

    @property
    def sentence(self) -> str:
        """The first reason, after how many trials passed if there are several."""
        passed = sum(case.outcome == "passed" for case in self.cases)
        counted = f"{passed} of {len(self.cases)} trials passed. " if len(self.cases) > 1 else ""
        return f"{counted}{_reason(self.faulty[0])}"


def _reason(case: CaseResult) -> str:
    if case.outcome == "timeout":
        return "The agent did not return in time."
    if case.outcome == "error":
        return f"The agent raised {case.reason}"
    return case.reason or "The run was not evaluated."


def _gate_sentence(result: GateResult) -> str:
    value = "has no value" if result.value is None else f"is {result.value:.4f}"
    return f"{result.gate.label} {value}, and at least {result.gate.minimum:g} is required."


def _regression_sentences(baseline: BaselineComparison) -> Iterator[str]:
    verdicts = baseline.verdicts
    if verdicts is None:
        yield "No golden has a verdict in both builds, so nothing shows that this one is not worse."
    elif verdicts.is_regression:
        yield (
            f"The pass rate fell from {verdicts.baseline_rate:.4f} to {verdicts.current_rate:.4f} "
            f"({verdicts.worse} goldens worse, {verdicts.better} better; p = {verdicts.p_value:.2g})."
        )
    for metric in baseline.metrics:
        if metric.is_regression:
            yield (
                f"{metric.metric} fell from {metric.baseline_mean:.4f} to {metric.current_mean:.4f} "
                f"(p = {metric.p_value:.2g})."
            )


# --- JSON -------------------------------------------------------------------------------------------------------------


def check_document(outcome: CheckOutcome) -> dict[str, Any]:
    """Return the outcome as a JSON object."""
    results, baseline = outcome.results, outcome.baseline
    return {
        "passed": outcome.passed,
        "failures": outcome.failures,
        "cases": dict(results.counts),
        "pass_rate": results.pass_rate,
        "metrics": {metric: results.mean(metric) for metric in results.metric_names},
        "gates": [
            {**asdict(each.gate), "value": each.value, "cases": each.cases, "met": each.is_met}
            for each in outcome.gates
        ],
        "baseline": None if baseline is None else {"is_regression": baseline.is_regression, **asdict(baseline)},
        "goldens": [
            {
                "golden_id": golden.golden_id,
                "source": asdict(golden.cases[0].source) if golden.cases[0].source else None,
                "outcomes": [case.outcome for case in golden.cases],
                "worse": golden.is_worse,
                "reason": golden.sentence,
            }
            for golden in outcome.faulty_goldens
        ],
    }


# --- JUnit XML --------------------------------------------------------------------------------------------------------


def junit_xml(outcome: CheckOutcome) -> str:
    """Return JUnit XML with a test for each case and one for each gate and for the comparison with the baseline.

    The form is that of the Jenkins xUnit plugin, which GitLab, Azure and others read. Scores are properties of a test.
    """
    root = ElementTree.Element("testsuites", name="goldspan")
    cases = _add_suite(root, "goldens")
    for case in outcome.results.cases:
        _add_case(cases, case)
    checks = _add_suite(root, "checks")
    for result in outcome.gates:
        sentence = None if result.is_met else _gate_sentence(result)
        _add_check(checks, f"{result.gate.label} >= {result.gate.minimum:g}", sentence)
    if outcome.baseline is not None:
        _add_check(checks, "not worse than the baseline", " ".join(_regression_sentences(outcome.baseline)) or None)
    for suite in (cases, checks):
        suite.set("tests", str(len(suite)))
        for kind, name in (("failure", "failures"), ("error", "errors"), ("skipped", "skipped")):
            suite.set(name, str(len(suite.findall(f"testcase/{kind}"))))
    ElementTree.indent(root)
    return f"<?xml version='1.0' encoding='utf-8'?>\n{ElementTree.tostring(root, encoding='unicode')}\n"


def _add_suite(root: ElementTree.Element, name: str) -> ElementTree.Element:
    return ElementTree.SubElement(root, "testsuite", name=f"goldspan.{name}")


def _add_case(suite: ElementTree.Element, case: CaseResult) -> None:
    name = case.golden_id if case.trial == 1 else f"{case.golden_id} (trial {case.trial})"
    source = case.source
    test = ElementTree.SubElement(suite, "testcase", name=_xml_text(name))
    test.set("classname", _xml_text(source.file if source else "goldens"))
    test.set("time", f"{(case.duration_ms or 0) / 1000:.3f}")
    if source:
        test.set("file", _xml_text(source.file))
        if source.line is not None:
            test.set("line", str(source.line))
    scores = [] if case.evaluation is None else case.evaluation["scores"]
    if values := [(score["metric"], score["value"]) for score in scores if score["value"] is not None]:
        properties = ElementTree.SubElement(test, "properties")
        for metric, value in values:
            ElementTree.SubElement(
                properties, "property", name=_xml_text(f"goldspan.score.{metric}"), value=f"{value:g}"
            )
    kind = {"failed": "failure", "error": "error", "timeout": "error", "not_evaluated": "skipped"}.get(case.outcome)
    if kind is not None:
        ElementTree.SubElement(test, kind, message=_xml_text(_reason(case)))


def _add_check(suite: ElementTree.Element, name: str, failure: str | None) -> None:
    test = ElementTree.SubElement(suite, "testcase", name=_xml_text(name), classname="goldspan check")
    if failure is not None:
        ElementTree.SubElement(test, "failure", message=_xml_text(failure))


_NOT_IN_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""The characters that XML 1.0 excludes."""


def _xml_text(text: str) -> str:
    return _NOT_IN_XML.sub("\ufffd", text)


# --- GitHub -----------------------------------------------------------------------------------------------------------


def github_annotations(outcome: CheckOutcome) -> Iterator[str]:
    """Yield the workflow commands that annotate the lines of faulty goldens.

    They are errors if the check failed, else warnings. The form is described in "Workflow commands for GitHub Actions".
    """
    level = "warning" if outcome.passed else "error"
    golden_annotations = [
        _annotation(level, golden.golden_id, golden.sentence, golden.cases[0]) for golden in outcome.faulty_goldens
    ]
    annotations = [_annotation(level, "goldspan check", failure) for failure in outcome.failures] + golden_annotations
    yield from annotations[:_MAX_ANNOTATIONS]
    if (omitted := len(annotations) - _MAX_ANNOTATIONS) > 0:
        yield f"::notice title=goldspan check::{omitted} more are in the summary and in the results file."


def _annotation(level: str, title: str, message: str, case: CaseResult | None = None) -> str:
    properties = {}
    if case is not None and case.source is not None:
        properties["file"] = case.source.file.replace("\\", "/")
        if case.source.line is not None:
            properties["line"] = str(case.source.line)
    properties["title"] = truncate(title)
    listed = ",".join(f"{name}={_escape_property(value)}" for name, value in properties.items())
    return f"::{level} {listed}::{_escape_message(message)}"


def _escape_message(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _escape_property(text: str) -> str:
    return _escape_message(text).replace(":", "%3A").replace(",", "%2C")


# --- Markdown ---------------------------------------------------------------------------------------------------------


def markdown_summary(outcome: CheckOutcome) -> str:
    """Return a summary for a pull request or for `$GITHUB_STEP_SUMMARY`."""
    verdict = "passed" if outcome.passed else "failed"
    blocks = [f"### goldspan check {verdict}", *_lines(counts_sentence(outcome.results), *outcome.failures)]
    if outcome.gates:
        blocks.append(_table(("required", "at least", "is", ""), map(_gate_cells, outcome.gates)))
    if outcome.baseline is not None:
        blocks += [*_lines(baseline_sentence(outcome.baseline)), _baseline_table(outcome.baseline)]
    if faulty := outcome.faulty_goldens:
        rows = (
            (golden.golden_id, "worse" if golden.is_worse else "", golden.sentence)
            for golden in faulty[:_MAX_LISTED_GOLDENS]
        )
        blocks.append(_table(("golden", "", "reason"), rows))
        if (omitted := len(faulty) - _MAX_LISTED_GOLDENS) > 0:
            blocks.append(f"{omitted} more goldens did not pass.")
    return "\n\n".join(filter(None, blocks)) + "\n"


def _lines(*sentences: str) -> Iterator[str]:
    return (render_markdown([(TextSpan(sentence),)]) for sentence in sentences)


def counts_sentence(results: AgentResults) -> str:
    """Return how many cases there are with each outcome."""
    told = [f"{number} {name.replace('_', ' ')}" for name, number in results.counts.items() if number]
    number = len(results.cases)
    return f"{number} case{'s' * (number != 1)}: {', '.join(told) or 'none'}."


def baseline_sentence(baseline: BaselineComparison) -> str:
    """Return which goldens were compared with the baseline."""
    told = [f"{baseline.goldens} golden{'s' * (baseline.goldens != 1)} compared with the baseline"]
    for ids, what in ((baseline.added, "new"), (baseline.removed, "no longer run"), (baseline.changed, "changed")):
        told += [f"{len(ids)} {what}"] if ids else []
    return f"{', '.join(told)}."


def baseline_rows(baseline: BaselineComparison) -> Iterator[tuple[str, str, str, str, str]]:
    """Yield name, value in the baseline, value now, p-value and verdict, of the pass rate and of each metric."""
    if (verdicts := baseline.verdicts) is not None:
        yield _difference_cells(
            "pass rate", verdicts.baseline_rate, verdicts.current_rate, verdicts.p_value, verdicts.is_regression
        )
    for each in baseline.metrics:
        yield _difference_cells(each.metric, each.baseline_mean, each.current_mean, each.p_value, each.is_regression)


def _difference_cells(
    name: str, before: float, after: float, p_value: float | None, is_regression: bool
) -> tuple[str, str, str, str, str]:
    p_text = "" if p_value is None or after >= before else f"{p_value:.2g}"
    return name, f"{before:.4f}", f"{after:.4f}", p_text, "worse" if is_regression else ""


def _baseline_table(baseline: BaselineComparison) -> str:
    return _table(("", "baseline", "now", "p", ""), baseline_rows(baseline))


def _gate_cells(result: GateResult) -> tuple[str, str, str, str]:
    value = "—" if result.value is None else f"{result.value:.4f}"
    return result.gate.label, f"{result.gate.minimum:g}", value, "met" if result.is_met else "not met"


def _table(headings: tuple[str, ...], rows: Iterable[Sequence[str]]) -> str:
    cells = tuple(tuple((TextSpan(cell),) for cell in row) for row in rows)
    return render_markdown([Table(headings, cells)]) if cells else ""
